// SPDX-License-Identifier: Apache-2.0
// Jamba: Mamba-1 layers around some that attend, every second one with experts.
#include "core/strings.h"
#include "src/config/family.h"
#include "src/config/states.h"

namespace kvgauge {
namespace {

// Every period-th layer, from the offset on.
struct Turns {
  int64_t period, offset;
  bool Has(int64_t layer) const { return layer % period == offset; }
};
Turns ReadTurns(ConfigReader& reader, const std::string& what, const Turns& absent) {
  const int64_t period = reader.Int(StrCat(what, "_layer_period"), absent.period, 1, kMostLayers);
  const int64_t offset = reader.Int(StrCat(what, "_layer_offset"), absent.offset, 0, kMostLayers);
  if (offset >= period) {
    reader.Fail(StrCat(what, "_layer_offset"),
                StrCat("less than ", what, "_layer_period (", period, ")"));
  }
  return {period, offset};
}

void ReadJambaExperts(ConfigReader& reader, ModelConfig& config) {
  const Turns turns = ReadTurns(reader, "expert", {2, 1});
  if (reader.Int("num_experts", 16, 1, kMostExperts) == 1) {
    reader.Ignore({"num_experts_per_tok"});
    return;
  }
  config.moe = ReadExpertSizes(reader,
                               {.default_experts = 16,
                                .default_per_token = 2,
                                .ffn = "intermediate_size",
                                .default_ffn = 14336},
                               config);
  for (int64_t i = 0; i < std::ssize(config.layers); ++i) {
    config.layers[static_cast<size_t>(i)].moe = turns.Has(i);
  }
}

void ReadJamba(ConfigReader& reader, ModelConfig& config) {
  TensorNames& names = config.tensor_names;
  names.final_norm = "final_layernorm";
  names.mlp_norm = "pre_ff_layernorm";
  names.mlp = names.mixture = "feed_forward";
  names.router = "router";
  names.state = "mamba";
  ReadSizes(reader, "intermediate_size", 262144, config);
  ReadHeads(reader, {.kv_heads = 8}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}, .pad = 0}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  const Turns attending = ReadTurns(reader, "attn", {8, 4});
  for (int64_t i = 0; i < std::ssize(config.layers); ++i) {
    LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    layer.attends = attending.Has(i);
    layer.state = !layer.attends;
  }
  if (reader.ok() && config.cache_count() == 0) {
    reader.Fail("attn_layer_offset",
                "that of a layer that is there: without one that attends there is no cache");
  }
  StateConfig state =
      ReadMamba1(reader, {}, config.hidden_size * reader.Int("mamba_expand", 2, 1, 64), config);
  state.part_norms = StateConfig::PartNorms::kWeighed;
  state.part_norm_eps = config.norm_eps;
  config.state = state;
  ReadJambaExperts(reader, config);
  reader.Neutral("mamba_inner_layernorms", true);
  reader.Neutral("attention_bias", false);
  reader.Neutral("mlp_bias", false);
  reader.Refuse("sliding_window", "this family has full attention only, expected null");
  reader.Ignore({"use_mamba_kernels", "use_associative_scan", "use_mambapy", "output_router_logits",
                 "router_aux_loss_coef", "num_logits_to_keep", "calc_logits_for_entire_prompt",
                 "n_ctx"});
}

}  // namespace

KVG_MODEL_FAMILY(jamba, {.title = "Jamba, Jamba 1.5",
                         .notes = "Mamba layers, which keep a state of constant size, around some "
                                  "that attend and do not turn; mixture of experts",
                         .read = ReadJamba})

}  // namespace kvgauge

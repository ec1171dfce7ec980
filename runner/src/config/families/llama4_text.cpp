// SPDX-License-Identifier: Apache-2.0
// Llama 4 Scout and Maverick, their text part.
#include <algorithm>

#include "core/json.h"
#include "core/strings.h"
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

// Which layers see no further than the chunk that a position is in: those of layer_types, else
// those that turn.
void ReadChunks(ConfigReader& reader, const std::vector<bool>& still, ModelConfig& config) {
  const std::vector<std::string> said = reader.Texts("layer_types");
  if (reader.Has("layer_types") && said.size() != config.layers.size()) {
    return reader.Fail("layer_types",
                       StrCat(config.layers.size(), " entries, one per layer, not ", said.size()));
  }
  const int64_t chunk = ReadWindow(reader, "attention_chunk_size", 8192);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    layer.chunked = said.empty() ? !still[i] : said[i] == "chunked_attention";
    if (!layer.chunked && !said.empty() && said[i] != "full_attention") {
      reader.Fail("layer_types",
                  StrCat("only 'chunked_attention' and 'full_attention', not ", Quoted(said[i])));
    }
    if (!layer.chunked) continue;
    layer.window = chunk;
    if (chunk == 0) {
      reader.Fail("attention_chunk_size", "a positive size: this model has chunked layers");
    }
  }
}

// How much longer queries become in layers that do not turn; first files say 4 for yes.
void ReadQueryGrowth(ConfigReader& reader, ModelConfig& config) {
  const Json* tunes = reader.Take("attn_temperature_tuning");
  bool grows = true;
  if (tunes != nullptr && tunes->is_number_integer()) {
    grows = *tunes != 0;
  } else {
    grows = reader.Bool("attn_temperature_tuning", true);
  }
  QueryGrowth growth;
  growth.scale = reader.Real("attn_scale", 0.1, 0.0, 1e6);
  growth.every = reader.Real("floor_scale", 8192.0, 1.0, 1e9);
  if (grows && growth.scale > 0) config.query_growth = growth;
}

void ReadLlama4Experts(ConfigReader& reader, ModelConfig& config) {
  const std::vector<int64_t> listed =
      reader.IntOrInts("moe_layers", 0, std::ssize(config.layers) - 1);
  const int64_t step = reader.Int("interleave_moe_layer_step", 1, 1, kMostLayers);
  for (int64_t i = 0; i < std::ssize(config.layers); ++i) {
    config.layers[static_cast<size_t>(i)].moe = reader.Has("moe_layers")
                                                    ? std::ranges::find(listed, i) != listed.end()
                                                    : (i + 1) % step == 0;
  }
  MoeConfig moe = ReadExpertSizes(reader,
                                  {.experts = "num_local_experts",
                                   .default_experts = 16,
                                   .default_per_token = 1,
                                   .ffn = "intermediate_size",
                                   .default_ffn = 8192},
                                  config);
  moe.sigmoid = moe.weighs_inputs = true;
  moe.shared_experts = 1;
  moe.shared_ffn_size = moe.expert_ffn_size;
  config.moe = moe;
}

void ReadLlama4Text(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names.mlp = config.tensor_names.mixture = "feed_forward";
  config.tensor_names.router = "router";
  config.tensor_names.shared_experts = "shared_expert";
  ReadSizes(reader, SizeKeys{}, 131072, config);
  config.ffn_size = reader.Int("intermediate_size_mlp", 16384, 1, kMostFfn);
  ReadHeads(reader, {.kv_heads = 8, .head_dim = 128}, config);
  ReadNormEps(reader, 1e-5, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  ReadRope(reader,
           {.head_dim = config.key_dim, .layout = RopeLayout::kInterleaved, .theta = 500000.0},
           config);
  const std::vector<bool> still = ReadStillLayers(reader, config, /*may_be_empty=*/true);
  if (std::ranges::find(still, true) != still.end()) StopRopeIn(still, config);
  ReadChunks(reader, still, config);
  ReadQueryGrowth(reader, config);
  config.qk_norm = reader.Bool("use_qk_norm", true);
  config.qk_norm_kind = QkNorm::kLength;
  const RopeKind kind = config.rope->kind;
  const bool lengthens = (kind == RopeKind::kYarn || kind == RopeKind::kLongrope) &&
                         config.rope->attention_factor != 1.0;
  if (config.qk_norm && lengthens) {
    reader.Fail("use_qk_norm", "false where the rope changes the length of what it turns");
  }
  ReadLlama4Experts(reader, config);
  reader.Neutral("attention_bias", false);
  reader.Ignore({"router_aux_loss_coef", "output_router_logits", "router_jitter_noise",
                 "for_llm_compressor"});
}

}  // namespace

KVG_MODEL_FAMILY(
    llama4_text,
    {.title = "Llama 4 Scout, Llama 4 Maverick (text)",
     .notes = "mixture of experts whose inputs are weighed; three of four layers see chunks, and "
              "the others do not turn",
     .read = ReadLlama4Text})

}  // namespace kvgauge

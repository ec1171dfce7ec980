// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/deepseek.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadDots1(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 2048, config);
  ReadHeads(reader, {.kv_heads = 32}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.qk_norm = true;
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  MoeConfig moe = ReadDeepseekExperts(reader, {.experts = "n_routed_experts", .default_ffn = 1408},
                                      0, 0, config);
  moe.sigmoid = true;
  ReadExpertGroups(reader, "n_routed_experts", moe);
  moe.scaling = reader.Real("routed_scaling_factor", 1.0, 1e-6, 1e6);
  ReadRenormalize(reader, moe);
  config.moe = moe;
  const int64_t window = ReadWindow(reader, "sliding_window", 4096);
  const int64_t first = reader.Int("max_window_layers", 62, 0, kMostPosition);
  for (int64_t i = first; i < std::ssize(config.layers); ++i) {
    config.layers[static_cast<size_t>(i)].window = window;
  }
  CheckLayerTypes(reader, config);
  reader.Neutral("moe_layer_freq", int64_t{1});
  reader.Neutral("scoring_func", std::string_view("noaux_tc"));
  reader.Ignore(
      {"aux_loss_alpha", "seq_aux", "ep_size", "router_aux_loss_coef", "output_router_logits"});
}

}  // namespace

KVG_MODEL_FAMILY(
    dots1, {.title = "dots.llm1",
            .notes = "mixture of experts chosen by corrected sigmoids; norms of queries and keys",
            .read = ReadDots1})

}  // namespace kvgauge

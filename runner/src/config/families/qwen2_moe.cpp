// SPDX-License-Identifier: Apache-2.0
// Qwen1.5-MoE, Qwen2-57B-A14B.
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadQwen2Moe(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names.shared_experts = "shared_expert";
  ReadSizes(reader, "intermediate_size", 32768, config);
  ReadHeads(reader, {.kv_heads = 16}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = reader.Bool("qkv_bias", true);
  reader.Neutral("mlp_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  RefuseQwenWindows(reader, config);
  MoeConfig moe = ReadExpertSizes(
      reader, {.default_experts = 60, .default_per_token = 4, .default_ffn = 1408}, config);
  moe.shared_experts = 1;
  moe.shared_ffn_size = reader.Int("shared_expert_intermediate_size", 5632, 1, kMostFfn);
  moe.shared_gate = true;
  ReadRenormalize(reader, moe);
  config.moe = moe;
  ReadSparseLayers(reader, config);
  reader.Ignore({"router_aux_loss_coef", "output_router_logits"});
}

}  // namespace

KVG_MODEL_FAMILY(qwen2_moe,
                 {.title = "Qwen1.5-MoE, Qwen2-MoE",
                  .notes = "mixture of experts beside one that all tokens share, weighed by a gate",
                  .read = ReadQwen2Moe})

}  // namespace kvgauge

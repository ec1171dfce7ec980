// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadQwen3Moe(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 32768, config);
  ReadHeads(reader, {.kv_heads = 4}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qk_norm = true;
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  reader.Neutral("mlp_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  RefuseQwenWindows(reader, config);
  MoeConfig moe = ReadExpertSizes(reader,
                                  {.experts_later = "num_local_experts",
                                   .default_experts = 128,
                                   .default_per_token = 8,
                                   .default_ffn = 768},
                                  config);
  ReadRenormalize(reader, moe);
  config.moe = moe;
  ReadSparseLayers(reader, config);
  reader.Ignore({"router_aux_loss_coef", "output_router_logits"});
}

}  // namespace

KVG_MODEL_FAMILY(qwen3_moe, {.title = "Qwen3-MoE",
                             .notes = "mixture of experts; norms of queries and keys",
                             .read = ReadQwen3Moe})

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/config/granite.h"

namespace kvgauge {

void ReadGraniteMultipliers(ConfigReader& reader, ModelConfig& config) {
  config.embedding_multiplier = ReadMultiplier(reader, "embedding_multiplier", 1.0);
  config.residual_multiplier = ReadMultiplier(reader, "residual_multiplier", 1.0);
  config.attention_scale = ReadMultiplier(reader, "attention_multiplier", 1.0);
  config.logit_multiplier = 1.0f / ReadMultiplier(reader, "logits_scaling", 1.0);
}

void ReadGraniteExperts(ConfigReader& reader, int64_t shared_ffn_size, ModelConfig& config) {
  config.tensor_names.mixture = "block_sparse_moe";
  config.tensor_names.router = "router.layer";
  MoeConfig moe = ReadExpertSizes(reader,
                                  {.experts = "num_local_experts",
                                   .default_experts = 8,
                                   .default_per_token = 2,
                                   .ffn = "intermediate_size",
                                   .default_ffn = 11008},
                                  config);
  if (shared_ffn_size > 0) {
    config.tensor_names.shared_as_mlp = true;
    moe.shared_experts = 1;
    moe.shared_ffn_size = shared_ffn_size;
  }
  // A softmax of the chosen logits is theirs of all, made to sum to 1.
  RenormalizeExperts(reader, moe);
  config.moe = moe;
  for (LayerConfig& layer : config.layers) layer.moe = true;
}

}  // namespace kvgauge

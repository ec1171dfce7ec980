// SPDX-License-Identifier: Apache-2.0
#include "src/config/granite.h"

namespace kvgauge {

void ReadGraniteMultipliers(ConfigReader& reader, ModelConfig& config) {
  config.embedding_multiplier = ReadMultiplier(reader, "embedding_multiplier", 1.0);
  config.residual_multiplier = ReadMultiplier(reader, "residual_multiplier", 1.0);
  config.attention_scale = ReadMultiplier(reader, "attention_multiplier", 1.0);
  config.logit_multiplier = 1.0f / ReadMultiplier(reader, "logits_scaling", 1.0);
}

void ReadGraniteSparse(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, SizeKeys{}, 2048, config);
  ReadHeads(reader, {}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  ReadGraniteMultipliers(reader, config);
  reader.Ignore({"output_router_logits", "router_aux_loss_coef"});
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

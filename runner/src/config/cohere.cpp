// SPDX-License-Identifier: Apache-2.0
#include "src/config/cohere.h"

namespace kvgauge {

void ReadCohereParts(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 8192, config);
  ReadHeads(reader, {}, config);
  ReadNormEps(reader, 1e-5, config, "layer_norm_eps");
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 5, .eos = {255001}, .pad = 0}, config);
  config.norm = NormKind::kLayer;
  config.norm_bias = false;
  config.parallel = config.shared_norm = true;
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.tied_head = reader.Bool("tie_word_embeddings", true);
  config.logit_multiplier = ReadMultiplier(reader, "logit_scale", 0.0625);
  reader.Neutral("mlp_bias", false);
  reader.Neutral("position_embedding_type", std::string_view("rope_gptj"));
  reader.Neutral("use_embedding_sharing", true);
  reader.Neutral("use_gated_activation", true);
  reader.Neutral("use_parallel_block", true);
  reader.Neutral("use_parallel_embedding", false);
  reader.Neutral("pretraining_tp", int64_t{1});
  reader.Ignore({"model_max_length", "embedding_dropout"});
}

}  // namespace kvgauge

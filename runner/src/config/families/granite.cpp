// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadGranite(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 2048, config);
  ReadHeads(reader, {}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.mlp_bias = reader.Bool("mlp_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  config.embedding_multiplier = ReadMultiplier(reader, "embedding_multiplier", 1.0);
  config.residual_multiplier = ReadMultiplier(reader, "residual_multiplier", 1.0);
  config.attention_scale = ReadMultiplier(reader, "attention_multiplier", 1.0);
  config.logit_multiplier = 1.0f / ReadMultiplier(reader, "logits_scaling", 1.0);
  CheckLayerTypes(reader, config);
}

}  // namespace

KVG_MODEL_FAMILY(
    granite, {.title = "Granite 3",
              .notes = "multipliers of embeddings, of what layers add, of attention and of logits",
              .read = ReadGranite})

}  // namespace kvgauge

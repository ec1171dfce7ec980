// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadGranite(ConfigReader& reader, ModelConfig& config) {
  ReadLlamaParts(reader, config);
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

// SPDX-License-Identifier: Apache-2.0
#include "src/config/granite.h"

#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadGranite(ConfigReader& reader, ModelConfig& config) {
  ReadLlamaParts(reader, config);
  ReadGraniteMultipliers(reader, config);
  CheckLayerTypes(reader, config);
}

}  // namespace

KVG_MODEL_FAMILY(
    granite, {.title = "Granite 3",
              .notes = "multipliers of embeddings, of what layers add, of attention and of logits",
              .read = ReadGranite})

}  // namespace kvgauge

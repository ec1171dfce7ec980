// SPDX-License-Identifier: Apache-2.0
#include "src/config/family.h"
#include "src/config/granite.h"

namespace kvgauge {
namespace {

void ReadGraniteMoe(ConfigReader& reader, ModelConfig& config) {
  ReadGraniteSparse(reader, config);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  CheckLayerTypes(reader, config);
  ReadGraniteExperts(reader, 0, config);
}

}  // namespace

KVG_MODEL_FAMILY(granitemoe, {.title = "Granite 3 MoE",
                              .notes = "multipliers as granite; mixture of experts",
                              .read = ReadGraniteMoe})

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/config/family.h"
#include "src/config/granite.h"

namespace kvgauge {
namespace {

void ReadGraniteMoeShared(ConfigReader& reader, ModelConfig& config) {
  ReadGraniteSparse(reader, config);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  CheckLayerTypes(reader, config);
  config.tensor_names.mlp = "shared_mlp";
  config.tensor_names.gate_up = "input_linear";
  config.tensor_names.down = "output_linear";
  ReadGraniteExperts(reader, reader.Int("shared_intermediate_size", 0, 0, kMostFfn), config);
}

}  // namespace

KVG_MODEL_FAMILY(granitemoeshared, {.title = "Granite 3 MoE with a shared expert",
                                    .notes = "as granitemoe, beside an MLP that all tokens share",
                                    .read = ReadGraniteMoeShared})

}  // namespace kvgauge

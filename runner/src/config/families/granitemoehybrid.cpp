// SPDX-License-Identifier: Apache-2.0
// Granite 4.0, with experts and without.
#include "src/config/family.h"
#include "src/config/granite.h"
#include "src/config/states.h"

namespace kvgauge {
namespace {

// Experts beside an MLP that all tokens share; without any, that is the MLP.
void ReadHybridExperts(ConfigReader& reader, ModelConfig& config) {
  if (reader.Int("num_local_experts", 8, 0, kMostExperts) == 0) {
    reader.Ignore({"num_experts_per_tok", "intermediate_size"});
    return;
  }
  ReadGraniteExperts(reader, config.ffn_size, config);
}

void ReadGraniteHybrid(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names.mlp = "shared_mlp";
  config.tensor_names.gate_up = "input_linear";
  config.tensor_names.down = "output_linear";
  config.tensor_names.state = "mamba";
  ReadGraniteSparse(reader, config);
  config.ffn_size = reader.Int("shared_intermediate_size", 1024, 1, kMostFfn);
  const std::string turns = reader.Text("position_embedding_type", "nope");
  if (turns == "rope") {
    ReadRope(reader, {.head_dim = config.key_dim}, config);
  } else {
    if (turns != "nope") reader.Fail("position_embedding_type", "'rope' or 'nope'");
    reader.Ignore({"rope_theta", "rope_scaling", "rope_parameters"});
  }
  ReadStateLayers(reader, "mamba", kMostLayers + 1, config);
  config.state = ReadMamba2(reader, {}, config);
  ReadHybridExperts(reader, config);
  reader.Ignore({"normalization_function", "init_method"});
}

}  // namespace

KVG_MODEL_FAMILY(granitemoehybrid,
                 {.title = "Granite 4.0",
                  .notes = "Mamba-2 layers, which keep a state of constant size, around a few that "
                           "attend and do not turn; multipliers as Granite 3; with or without a "
                           "mixture of experts beside an MLP that all tokens share",
                  .read = ReadGraniteHybrid})

}  // namespace kvgauge

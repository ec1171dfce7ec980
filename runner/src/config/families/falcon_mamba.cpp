// SPDX-License-Identifier: Apache-2.0
// Falcon Mamba 7B: Mamba whose steps, B and C are normed.
#include "src/config/family.h"
#include "src/config/states.h"

namespace kvgauge {
namespace {

void ReadFalconMamba(ConfigReader& reader, ModelConfig& config) {
  ReadMambaParts(reader, /*tied=*/true, 0, 0, 0, config);
  // Published files have an `expand` that does not count.
  const int64_t expanded = config.hidden_size * reader.Int("expand", 2, 1, 64);
  const int64_t width = reader.Int("intermediate_size", expanded, 1, kMostFfn);
  StateConfig state = ReadMamba1Alone(reader, width, config);
  state.part_norms = StateConfig::PartNorms::kPlain;
  state.part_norm_eps = static_cast<float>(reader.Real("mixer_rms_eps", 1e-6, 1e-12, 1.0));
  config.state = state;
  reader.Ignore({"use_falcon_mambapy", "use_mambapy", "use_associative_scan"});
}

}  // namespace

KVG_MODEL_FAMILY(falcon_mamba,
                 {.title = "Falcon Mamba 7B",
                  .notes = "as mamba; what is projected to steps, B and C is normed before",
                  .read = ReadFalconMamba})

}  // namespace kvgauge

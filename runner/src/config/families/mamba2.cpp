// SPDX-License-Identifier: Apache-2.0
// Mamba-2 alone: a model without a cache.
#include "src/config/family.h"
#include "src/config/states.h"

namespace kvgauge {
namespace {

void ReadMamba2Alone(ConfigReader& reader, ModelConfig& config) {
  ReadMambaParts(reader, /*tied=*/false, 0, 2, 1, config);
  config.state = ReadMamba2(reader,
                            {.heads = "num_heads",
                             .head_dim = "head_dim",
                             .groups = "n_groups",
                             .state = "state_size",
                             .conv = "conv_kernel",
                             .conv_bias = "use_conv_bias",
                             .bias = "use_bias",
                             .expand = "expand",
                             .chunk = "chunk_size",
                             .default_head_dim = 64,
                             .default_state = 128,
                             .default_groups = 8},
                            config);
  // Mamba-1 projects steps from so many columns; this one has them at once.
  reader.Ignore({"time_step_rank"});
}

}  // namespace

KVG_MODEL_FAMILY(mamba2, {.title = "Mamba-2, Codestral Mamba",
                          .notes = "no cache: every layer keeps a state of constant size; method "
                                   "full alone, as a baseline",
                          .read = ReadMamba2Alone})

}  // namespace kvgauge

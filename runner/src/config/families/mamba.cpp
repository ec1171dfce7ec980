// SPDX-License-Identifier: Apache-2.0
// Mamba alone: a model without a cache.
#include "core/strings.h"
#include "src/config/family.h"
#include "src/config/states.h"

namespace kvgauge {
namespace {

void ReadMamba(ConfigReader& reader, ModelConfig& config) {
  ReadMambaParts(reader, /*tied=*/true, 0, 0, 0, config);
  const int64_t width = config.hidden_size * reader.Int("expand", 2, 1, 64);
  // It repeats what the others make it.
  if (reader.ok() && reader.Int("intermediate_size", width, 1, kMostFfn) != width) {
    reader.Fail("intermediate_size", StrCat("expand * hidden_size (", width, ")"));
  }
  config.state = ReadMamba1Alone(reader, width, config);
  reader.Ignore({"use_mambapy", "use_associative_scan"});
}

}  // namespace

KVG_MODEL_FAMILY(mamba, {.title = "Mamba",
                         .notes = "no cache: every layer keeps a state of constant size; method "
                                  "full alone, as a baseline",
                         .read = ReadMamba})

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Llama 1 to 3.2, and what is saved as such: Yi, TinyLlama, SmolLM2, Vicuna, LongChat, CEPE.
#include "src/config/common.h"
#include "src/config/context_encoder.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadLlama(ConfigReader& reader, ModelConfig& config) {
  ReadLlamaParts(reader, config);
  reader.Refuse("sliding_window", "this family has full attention only, expected null");
  CheckLayerTypes(reader, config);
  // A split of the matrices that would only change rounding; other values are unheard of.
  reader.Neutral("pretraining_tp", int64_t{1});
  reader.Neutral("rope_interleaved", false);
  reader.Ignore({"max_sequence_length"});
  ReadContextEncoder(reader, config);
}

}  // namespace

KVG_MODEL_FAMILY(
    llama, {.title = "Llama 1, 2, 3, 3.1, 3.2",
            .notes = "every published rotary scaling; tied heads; biases; the encoder of CEPE",
            .read = ReadLlama})

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Llama 1 to 3.2, and what is saved as such: Yi, TinyLlama, SmolLM2, Vicuna, LongChat.
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadLlama(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 2048, config);
  ReadHeads(reader, {}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.mlp_bias = reader.Bool("mlp_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  reader.Refuse("sliding_window", "this family has full attention only, expected null");
  CheckLayerTypes(reader, config);
  // A split of the matrices that would only change rounding; other values are unheard of.
  reader.Neutral("pretraining_tp", int64_t{1});
  reader.Neutral("rope_interleaved", false);
  reader.Ignore({"max_sequence_length"});
}

}  // namespace

KVG_MODEL_FAMILY(llama, {.title = "Llama 1, 2, 3, 3.1, 3.2",
                         .notes = "every published rotary scaling; tied heads; biases",
                         .read = ReadLlama})

}  // namespace kvgauge

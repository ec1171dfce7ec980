// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadMistral(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 4096 * 32, config);
  ReadHeads(reader, {.kv_heads = 8}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 1, .eos = {2}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  // Absent is the class default, 4096; only null is full attention.
  const int64_t window = ReadWindow(reader, "sliding_window", 4096);
  for (LayerConfig& layer : config.layers) layer.window = window;
  CheckLayerTypes(reader, config);
  reader.Neutral("attention_bias", false);
  reader.Neutral("mlp_bias", false);
}

}  // namespace

KVG_MODEL_FAMILY(mistral, {.title = "Mistral",
                           .notes = "with and without sliding window",
                           .read = ReadMistral})

}  // namespace kvgauge

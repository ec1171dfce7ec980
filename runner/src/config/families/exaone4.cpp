// SPDX-License-Identifier: Apache-2.0
#include "core/json.h"
#include "core/strings.h"
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

// Which layers slide. A number says that each so many-th is full. Letters are a repeated pattern;
// the last layer is full whatever they say.
std::vector<bool> ReadExaonePattern(ConfigReader& reader, const ModelConfig& config) {
  const auto layers = std::ssize(config.layers);
  std::vector<bool> sliding(config.layers.size(), false);
  const Json* value = reader.Take("sliding_window_pattern");
  if (value != nullptr && value->is_string()) {
    const std::string letters = reader.Text("sliding_window_pattern", "");
    if (letters.empty() || letters.find_first_not_of("LG") != std::string::npos) {
      reader.Fail("sliding_window_pattern", "letters L (sliding) and G (full), or a number");
      return sliding;
    }
    for (int64_t i = 0; i + 1 < layers; ++i) {
      sliding[static_cast<size_t>(i)] = letters[static_cast<size_t>(i) % letters.size()] == 'L';
    }
    return sliding;
  }
  const int64_t pattern = reader.Int("sliding_window_pattern", 4, 1, kMostLayers);
  for (int64_t i = 0; i < layers; ++i) {
    sliding[static_cast<size_t>(i)] = (i + 1) % pattern != 0;
  }
  return sliding;
}

void ReadExaone4(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 2048, config);
  ReadHeads(reader, {.kv_heads = 32}, config);
  ReadNormEps(reader, 1e-5, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 0, .eos = {2}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.input_norms = false;
  config.output_norms = true;
  config.qk_norm = true;
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  const int64_t window = ReadWindow(reader, "sliding_window", 4096);
  const bool patterned = window > 0;
  std::vector<bool> sliding = ReadExaonePattern(reader, config);
  const std::optional<std::vector<bool>> said = ReadLayerTypes(reader, config);
  if (said) sliding = *said;
  std::vector<bool> still(config.layers.size(), false);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (!patterned) {
      if (said && sliding[i]) {
        reader.Fail("sliding_window", "a positive window: layer_types has sliding layers");
        return;
      }
      continue;
    }
    if (sliding[i]) config.layers[i].window = window;
    still[i] = !sliding[i];
  }
  if (patterned) StopRopeIn(still, config);
}

}  // namespace

KVG_MODEL_FAMILY(
    exaone4,
    {.title = "EXAONE 4.0",
     .notes = "norms of what layers add, none of what they read; norms of queries and keys; "
              "with windows, full layers do not turn",
     .read = ReadExaone4})

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadOlmo3(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 2048, config);
  ReadHeads(reader, {}, config);
  ReadNormEps(reader, 1e-5, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.eos = {50279}, .pad = 1}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.input_norms = false;
  config.output_norms = true;
  config.qk_norm = true;
  config.qk_norm_kind = QkNorm::kWidth;
  const std::optional<std::vector<bool>> said = ReadLayerTypes(reader, config);
  const int64_t window = ReadWindow(reader, "sliding_window", 4096);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (!(said ? (*said)[i] : (i + 1) % 4 != 0)) continue;
    if (window == 0) {
      reader.Fail("sliding_window", "a positive window: this family has sliding layers");
    }
    config.layers[i].window = window;
  }
  // The scaling is that of full layers in the authors' code; transformers 5.2 scales all.
  ReadRopeOfFullLayers(reader, {.head_dim = config.key_dim}, config);
}

}  // namespace

KVG_MODEL_FAMILY(olmo3, {.title = "OLMo 3",
                         .notes = "as OLMo 2; three of four layers slide, and turn unscaled",
                         .read = ReadOlmo3})

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

void ReadCwm(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 131072, config);
  ReadHeads(reader, {.kv_heads = 8, .head_dim = 128}, config);
  ReadNormEps(reader, 1e-5, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 128000, .eos = {128001, 128008, 128009}}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  config.mlp_bias = reader.Bool("mlp_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim, .theta = 1e6}, config);
  const int64_t window = ReadWindow(reader, "sliding_window", 8192);
  const std::optional<std::vector<bool>> said = ReadLayerTypes(reader, config);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (!(said ? (*said)[i] : i % 4 != 0)) continue;
    if (window == 0) {
      reader.Fail("sliding_window", "a positive window: this family has sliding layers");
      return;
    }
    config.layers[i].window = window;
  }
  reader.Neutral("pretraining_tp", int64_t{1});
}

}  // namespace

KVG_MODEL_FAMILY(cwm, {.title = "Code World Model",
                       .notes = "three of four layers slide",
                       .read = ReadCwm})

}  // namespace kvgauge

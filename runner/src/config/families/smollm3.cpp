// SPDX-License-Identifier: Apache-2.0
#include "core/strings.h"
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

// A flag for each layer, true for those that do not turn.
std::vector<bool> ReadStillLayers(ConfigReader& reader, const ModelConfig& config) {
  const auto layers = std::ssize(config.layers);
  const int64_t interval = reader.Int("no_rope_layer_interval", 4, 1, kMostLayers);
  // Despite its name 1 is a layer that turns.
  const std::vector<int64_t> turns = reader.IntOrInts("no_rope_layers", 0, 1);
  const bool listed = reader.Has("no_rope_layers");
  if (listed && std::ssize(turns) != layers) {
    reader.Fail("no_rope_layers", StrCat(layers, " entries, one per layer"));
  }
  std::vector<bool> still;
  for (int64_t i = 0; i < layers; ++i) {
    const auto at = static_cast<size_t>(i);
    still.push_back(listed ? at < turns.size() && turns[at] == 0 : (i + 1) % interval == 0);
  }
  return still;
}

void ReadSmollm3(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 32768, config);
  ReadHeads(reader, {.kv_heads = 4}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadActivation(reader, "hidden_act", "silu", config);
  ReadTokenIds(reader, {.bos = 128000, .eos = {128001}, .pad = 128004}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", true);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.mlp_bias = reader.Bool("mlp_bias", false);
  ReadRope(reader, {.head_dim = config.key_dim, .theta = 2e6}, config);
  StopRopeIn(ReadStillLayers(reader, config), config);
  if (reader.Bool("use_sliding_window", false)) {
    reader.Fail("use_sliding_window", "false: published models of this family have no windows");
  }
  reader.Ignore({"sliding_window", "max_window_layers"});
  CheckLayerTypes(reader, config);
  reader.Neutral("pretraining_tp", int64_t{1});
}

}  // namespace

KVG_MODEL_FAMILY(smollm3, {.title = "SmolLM3",
                           .notes = "every fourth layer does not turn",
                           .read = ReadSmollm3})

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

// A cap, or 0 for null. Absent is the class default.
float ReadSoftcap(ConfigReader& reader, std::string_view key, double fallback) {
  if (reader.PresenceOf(key) == ConfigReader::Presence::kNull) fallback = 0.0;
  return static_cast<float>(reader.Real(key, fallback, 1e-3, 1e6));
}

// hidden_activation decides. Early exports also carry a hidden_act, wrongly "gelu" in some.
void ReadGemmaActivation(ConfigReader& reader, ModelConfig& config) {
  ReadActivation(reader, "hidden_activation", "gelu_pytorch_tanh", config);
  const std::string other = reader.Text("hidden_act", "gelu");
  if (other != "gelu" && ActivationFromName(other) != config.activation) {
    reader.Fail("hidden_act", "the same activation as in key 'hidden_activation'");
  }
}

void ReadGemmaWindows(ConfigReader& reader, ModelConfig& config) {
  const int64_t window = ReadWindow(reader, "sliding_window", 4096);
  if (reader.Has("sliding_window_size") &&
      reader.Int("sliding_window_size", window, 1, kMostPosition) != window) {
    reader.Fail("sliding_window_size", "the same as key 'sliding_window'");
  }
  const std::optional<std::vector<bool>> sliding = ReadLayerTypes(reader, config);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (!(sliding ? (*sliding)[i] : i % 2 == 0)) continue;
    if (window == 0) {
      reader.Fail("sliding_window", "a positive window: this family has sliding layers");
    }
    config.layers[i].window = window;
  }
}

void ReadGemma2(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", 8192, config);
  ReadHeads(reader, {.kv_heads = 4, .head_dim = 256}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadGemmaActivation(reader, config);
  ReadTokenIds(reader, {.bos = 2, .eos = {1}, .pad = 0}, config);
  config.norm = NormKind::kRmsOffsetOne;
  config.sandwich_norms = true;
  config.scale_embedding = true;
  config.tied_head = reader.Bool("tie_word_embeddings", true);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  const double scalar = reader.Real("query_pre_attn_scalar", 256.0, 1e-3, 1e6);
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
  config.attention_softcap = ReadSoftcap(reader, "attn_logit_softcapping", 50.0);
  config.logit_softcap = ReadSoftcap(reader, "final_logit_softcapping", 30.0);
  ReadRope(reader, {.head_dim = config.key_dim}, config);
  ReadGemmaWindows(reader, config);
  reader.Neutral("use_bidirectional_attention", false);
}

}  // namespace

KVG_MODEL_FAMILY(gemma2, {.title = "Gemma-2",
                          .notes = "soft caps; alternating windows",
                          .read = ReadGemma2})

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/config/gemma.h"

#include <cmath>

#include "core/strings.h"

namespace kvgauge {

float ReadGemmaCap(ConfigReader& reader, std::string_view key, double fallback) {
  if (reader.PresenceOf(key) == ConfigReader::Presence::kNull) fallback = 0.0;
  return static_cast<float>(reader.Real(key, fallback, 1e-3, 1e6));
}

void ReadGemmaActivation(ConfigReader& reader, ModelConfig& config) {
  ReadActivation(reader, "hidden_activation", "gelu_pytorch_tanh", config);
  const std::string other = reader.Text("hidden_act", "gelu");
  if (other != "gelu" && ActivationFromName(other) != config.activation) {
    reader.Fail("hidden_act", "the same activation as in key 'hidden_activation'");
  }
}

void ReadGemma(ConfigReader& reader, const GemmaDefaults& defaults, ModelConfig& config) {
  ReadSizes(reader, "intermediate_size", defaults.max_position, config);
  ReadHeads(reader, {.kv_heads = 4, .head_dim = 256}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadGemmaActivation(reader, config);
  ReadTokenIds(reader, {.bos = 2, .eos = {1}, .pad = 0}, config);
  config.norm = NormKind::kRmsOffsetOne;
  config.output_norms = true;
  config.tensor_names.mlp_norm = "pre_feedforward_layernorm";
  config.scale_embedding = true;
  config.tied_head = reader.Bool("tie_word_embeddings", true);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  const double scalar = reader.Real("query_pre_attn_scalar", 256.0, 1e-3, 1e6);
  config.attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
  config.attention_softcap = ReadGemmaCap(reader, "attn_logit_softcapping", defaults.attention_cap);
  config.logit_softcap = ReadGemmaCap(reader, "final_logit_softcapping", defaults.logit_cap);
  reader.Neutral("use_bidirectional_attention", false);
}

void ReadGemmaWindows(ConfigReader& reader, const std::vector<bool>& sliding, ModelConfig& config,
                      int64_t default_window) {
  const int64_t window = ReadWindow(reader, "sliding_window", default_window);
  if (reader.Has("sliding_window_size") &&
      reader.Int("sliding_window_size", window, 1, kMostPosition) != window) {
    reader.Fail("sliding_window_size", "the same as key 'sliding_window'");
  }
  const std::optional<std::vector<bool>> said = ReadLayerTypes(reader, config);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (!(said ? *said : sliding)[i]) continue;
    if (window == 0) {
      reader.Fail("sliding_window", "a positive window: this family has sliding layers");
    }
    config.layers[i].window = window;
  }
}

void ShareGemmaCaches(ConfigReader& reader, int64_t shared, ModelConfig& config) {
  constexpr std::string_view kKey = "num_kv_shared_layers";
  const int64_t layers = config.layer_count();
  if (shared >= layers) {
    reader.Fail(kKey, StrCat("less than the ", layers, " layers"));
  }
  if (!reader.ok()) return;
  const int64_t first = layers - shared;
  std::vector<int64_t> reads;
  for (int64_t i = 0; i < layers; ++i) {
    int64_t of = i;
    while (of >= 0 && i >= first &&
           (of >= first || config.layers[static_cast<size_t>(of)].local_rope !=
                               config.layers[static_cast<size_t>(i)].local_rope)) {
      --of;
    }
    if (of < 0) {
      return reader.Fail(
          kKey, StrCat("fewer, so that layer ", i, " has one of its kind among the first ", first));
    }
    reads.push_back(of);
  }
  const Status status = config.ShareCaches(reads);
  if (!status.ok()) reader.Fail(kKey, status.error().message);
}

}  // namespace kvgauge

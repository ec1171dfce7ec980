// SPDX-License-Identifier: Apache-2.0
// Gemma 3n's text part.
#include <algorithm>
#include <cmath>

#include "core/json.h"
#include "core/strings.h"
#include "src/config/family.h"
#include "src/config/gemma.h"

namespace kvgauge {
namespace {

// x of which a standard normal number is at most `share` of the time: bisection of its integral.
double NormalQuantile(double share) {
  double low = -9, high = 9;
  for (int i = 0; i < 80; ++i) {
    const double middle = 0.5 * (low + high);
    (0.5 * std::erfc(-middle / std::sqrt(2.0)) < share ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

// A share of closed gates for each layer.
void ReadSparsity(ConfigReader& reader, ModelConfig& config) {
  constexpr std::string_view kKey = "activation_sparsity_pattern";
  std::vector<double> shares = reader.Reals(kKey, 0.0, 0.999999);
  const size_t layers = config.layers.size();
  if (!reader.Has(kKey)) {
    shares.assign(layers, 0.0);
    if (layers > 10) std::fill_n(shares.begin(), 10, 0.95);
  }
  if (shares.size() != layers) {
    return reader.Fail(kKey, StrCat(layers, " shares, one for each layer"));
  }
  for (size_t i = 0; i < layers; ++i) {
    if (shares[i] > 0) {
      config.layers[i].gate_deviations = static_cast<float>(NormalQuantile(shares[i]));
    }
  }
}

void ReadStreams(ConfigReader& reader, ModelConfig& config) {
  StreamsConfig streams;
  streams.streams = reader.Int("altup_num_inputs", 4, 1, 64);
  streams.active = reader.Int("altup_active_idx", 0, 0, 63);
  if (reader.ok() && streams.active >= streams.streams) {
    reader.Fail("altup_active_idx", StrCat("less than altup_num_inputs (", streams.streams, ")"));
  }
  streams.scales = reader.Bool("altup_correct_scale", true);
  streams.laurel_rank = reader.Int("laurel_rank", 64, 1, kMostHidden);
  LayerEmbeddings embeddings;
  embeddings.vocab = reader.Int("vocab_size_per_layer_input", 262144, 1, kMostVocab);
  embeddings.columns = reader.Int("hidden_size_per_layer_input", 256, 1, kMostHidden);
  config.streams = streams;
  config.layer_embeddings = embeddings;
  reader.Ignore({"altup_coef_clip", "altup_lr_multiplier"});  // of training
}

void ReadGemma3n(ConfigReader& reader, ModelConfig& config) {
  ReadSizes(reader, SizeKeys{}, 32768, config);
  const std::vector<int64_t> ffn = reader.IntOrInts("intermediate_size", 1, kMostFfn);
  config.ffn_size = ffn.empty() ? 16384 : ffn[0];
  if (std::ranges::any_of(ffn, [&](int64_t size) { return size != config.ffn_size; }) ||
      (ffn.size() > 1 && ffn.size() != config.layers.size())) {
    reader.Fail("intermediate_size", StrCat("one width, or a list of the same one for each of ",
                                            config.layer_count(), " layers"));
  }
  ReadHeads(reader, {.kv_heads = 2, .head_dim = 256}, config);
  ReadNormEps(reader, 1e-6, config);
  ReadGemmaActivation(reader, config);
  ReadTokenIds(reader, {.bos = 2, .eos = {1}, .pad = 0}, config);
  config.tensor_names.mlp_norm = "pre_feedforward_layernorm";
  config.output_norms = true;
  config.scale_embedding = true;
  config.qk_norm = config.value_norm = true;
  config.tied_head = reader.Bool("tie_word_embeddings", true);
  config.qkv_bias = config.output_bias = reader.Bool("attention_bias", false);
  config.attention_scale = 1.0f;
  reader.Ignore({"query_pre_attn_scalar"});
  config.logit_softcap = ReadGemmaCap(reader, "final_logit_softcapping", 30.0);
  std::vector<bool> sliding;
  for (int64_t i = 1; i <= config.layer_count(); ++i) sliding.push_back(i % 5 != 0);
  ReadGemmaWindows(reader, sliding, config, 512);
  for (LayerConfig& layer : config.layers) layer.local_rope = layer.window > 0;
  ReadLayerRopes(reader, {.head_dim = config.key_dim, .theta = 1e6}, 1e4, config);
  ReadStreams(reader, config);
  ReadSparsity(reader, config);
  // None, or all: no published model, and stages that let rows go know shared caches alone.
  const int64_t shared = reader.Int("num_kv_shared_layers", 15, 1, kMostLayers);
  ShareGemmaCaches(reader, shared, config);
}

}  // namespace

KVG_MODEL_FAMILY(gemma3n_text,
                 {.title = "Gemma 3n (text)",
                  .notes = "the last layers read the caches of earlier ones; a residual of several "
                           "streams, embeddings of every layer, few gates that open",
                  .read = ReadGemma3n})

}  // namespace kvgauge

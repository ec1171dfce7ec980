// SPDX-License-Identifier: Apache-2.0
// YOCO, as scripts/import_yoco writes its authors' files: a lower half that sees little or keeps
// states, and an upper half whose layers all read one cache, made of what the lower half gives.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/strings.h"
#include "src/config/common.h"
#include "src/config/family.h"

namespace kvgauge {
namespace {

// Frequencies reach 1 / theta in the last pair itself.
double BaseOfPairs(double theta, int64_t dim) {
  const int64_t pairs = dim / 2;
  const auto last = static_cast<double>(pairs - 1);
  return pairs > 1 ? std::pow(theta, static_cast<double>(pairs) / last) : theta;
}

int64_t ReadSelfHeads(ConfigReader& reader, const ModelConfig& config) {
  constexpr std::string_view kKey = "num_self_heads";
  const int64_t heads = reader.Int(kKey, config.query_heads, 1, kMostHeads);
  if (config.hidden_size % heads != 0 || config.hidden_size / heads % 2 != 0) {
    reader.Fail(kKey, StrCat("heads of an even width that together have the ", config.hidden_size,
                             " columns of hidden_size"));
  }
  return heads;
}

void ReadWindows(ConfigReader& reader, int64_t window, int64_t heads, ModelConfig& config) {
  if (heads != config.query_heads) {
    return reader.Fail("num_self_heads",
                       StrCat("as many as num_attention_heads (", config.query_heads,
                              ") where sliding_window is given: layers that attend have one number "
                              "of query heads"));
  }
  for (int64_t i = 0; i < config.layer_count() / 2; ++i) {
    LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    layer.window = window;
    if (heads != config.kv_heads) {
      layer.heads =
          HeadSizes{.kv_heads = heads, .key_dim = config.key_dim, .value_dim = config.value_dim};
    }
  }
}

void SetRetention(double theta, int64_t heads, ModelConfig& config) {
  for (int64_t i = 0; i < config.layer_count() / 2; ++i) {
    LayerConfig& layer = config.layers[static_cast<size_t>(i)];
    layer.state = true;
    layer.attends = false;
  }
  StateConfig state = {.kind = StateConfig::Kind::kGatedRetention};
  state.heads = state.key_heads = heads;
  state.key_dim = state.value_dim = std::max<int64_t>(config.hidden_size / heads, 1);
  state.conv_width = 1;  // nothing is convolved
  state.turn_base = BaseOfPairs(theta, state.key_dim);
  state.turn_layout = RopeLayout::kInterleaved;
  config.state = state;
}

void ReadYoco(ConfigReader& reader, ModelConfig& config) {
  config.tensor_names.state = "retention";
  ReadSizes(reader, "intermediate_size", 4096, config);
  if (config.layer_count() % 2 != 0) reader.Fail("num_hidden_layers", "an even number: two halves");
  ReadEvenHeads(reader, "num_attention_heads", config);
  SetKvHeads(reader, "num_key_value_heads",
             reader.Int("num_key_value_heads", config.query_heads, 1, kMostHeads), config);
  if (config.key_dim % 2 != 0) {
    reader.Fail("num_attention_heads", "heads of an even width, whose pairs turn");
  }
  ReadNormEps(reader, 1e-5, config);
  ReadTokenIds(reader, {.bos = 0, .eos = {2}, .pad = 1}, config);
  config.tied_head = reader.Bool("tie_word_embeddings", false);
  reader.Neutral("hidden_act", std::string_view("silu"));
  config.embedding_multiplier = std::sqrt(static_cast<float>(config.hidden_size));
  ReadRope(reader, {.head_dim = config.key_dim, .layout = RopeLayout::kInterleaved}, config);
  if (config.rope->kind != RopeKind::kDefault) {
    reader.Fail("rope_scaling", "no scaling, which the authors' code does not have");
  }
  const int64_t heads = ReadSelfHeads(reader, config);
  const int64_t window = ReadWindow(reader, "sliding_window", 0);
  if (!reader.ok()) return;
  const double theta = config.rope->theta;
  config.rope->theta = BaseOfPairs(theta, config.key_dim);
  if (window > 0) {
    ReadWindows(reader, window, heads, config);
  } else {
    SetRetention(theta, heads, config);
  }
  const int64_t first = config.layer_count() / 2;
  std::vector<int64_t> reads(config.layers.size(), first);
  std::iota(reads.begin(), reads.begin() + first, 0);
  const Status shared = config.ShareCaches(reads);
  KVG_CHECK(shared.ok(), "layers of the upper half are alike");
}

}  // namespace

KVG_MODEL_FAMILY(yoco, {.title = "YOCO",
                        .notes = "the upper half of the layers reads one cache, made of what the "
                                 "lower half gives, which keeps states of constant size (gated "
                                 "retention) or sees windows",
                        .read = ReadYoco})

}  // namespace kvgauge

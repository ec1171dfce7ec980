// SPDX-License-Identifier: Apache-2.0
// How GoldFinch's code stores its layers: narrow pairs of matrices as [columns, rows], and vectors
// in three dimensions.
#include <cmath>

#include "core/strings.h"
#include "src/model/model_tensors.h"

namespace kvgauge {
namespace {

TensorSpec GoldMatrix(const std::string& name, int64_t rows, int64_t columns) {
  return {name + ".weight",
          {rows, columns},
          TensorSpec::Init::kNormal,
          1.0f / std::sqrt(static_cast<float>(columns))};
}

TensorSpec GoldRow(const std::string& name, int64_t columns) {
  return {name, {1, 1, columns}, TensorSpec::Init::kZeros, 0};
}

LinearSpec GoldTurned(const std::string& name, int64_t columns, int64_t rows) {
  return {.parts = {{name,
                     {columns, rows},
                     TensorSpec::Init::kNormal,
                     1.0f / std::sqrt(static_cast<float>(columns))}},
          .transposed = true};
}

// What makes so many mixes of narrow rows.
TensorSpec GoldShares(const std::string& name, std::vector<int64_t> shape) {
  const float stddev = 1.0f / std::sqrt(static_cast<float>(shape[shape.size() - 2]));
  return {name, std::move(shape), TensorSpec::Init::kNormal, stddev};
}

NormSpec GoldNorm(const std::string& name, int64_t size) {
  return {{name + ".weight", {size}, TensorSpec::Init::kOnes, 0},
          {name + ".bias", {size}, TensorSpec::Init::kZeros, 0}};
}

}  // namespace

StateSpec DescribeFinchC2(const ModelConfig& config, const std::string& scope) {
  const StateConfig& state = *config.state;
  const int64_t hidden = config.hidden_size, width = state.width();
  const int64_t keys = state.heads * state.key_dim;
  const auto name = [&](std::string_view of) { return StrCat(scope, ".", of); };
  StateSpec spec;
  // Queries, decays, keys, values and second values; the file has decays behind values.
  spec.mixed.push_back({.linear = {.parts = {GoldMatrix(name("receptance"), keys, hidden)}}});
  spec.mixed.push_back({.linear = GoldTurned(name("time_decay_w1"), hidden, state.decay_rank)});
  spec.mixed.push_back({.linear = {.parts = {GoldMatrix(name("key"), keys, hidden)}}});
  spec.mixed.push_back({.linear = {.parts = {GoldMatrix(name("value"), width, hidden)}}});
  spec.mixed.push_back({.linear = GoldTurned(name("time_value2_w1"), hidden, state.value_rank)});
  const int64_t mixes = std::ssize(spec.mixed), rank = state.mix_rank;
  spec.narrow = {.mix = GoldRow(name("time_maa_x"), hidden),
                 .linear = GoldTurned(name("time_maa_w1"), hidden, mixes * rank)};
  spec.mixes = {.shares = GoldShares(name("time_maa_w2"), {mixes, rank, hidden}),
                .by_mix = true,
                .order = {0, 2, 3, 1, 4}};
  for (const char* mix : {"r", "k", "v", "w", "v2"}) {
    spec.mixes.biases.push_back(GoldRow(StrCat(scope, ".time_maa_", mix), hidden));
  }
  spec.decays = GoldTurned(name("time_decay_w2"), state.decay_rank, keys);
  spec.decays.biases = {GoldRow(name("time_decay"), keys)};
  spec.values = GoldTurned(name("time_value2_w2"), state.value_rank, width);
  // Stored, and of no effect beside second values.
  spec.first = {name("time_faaaa"), {state.heads, state.key_dim}, TensorSpec::Init::kZeros, 0};
  spec.norm = GoldNorm(name("ln_x"), width);
  spec.output.parts = {GoldMatrix(name("output"), hidden, width)};
  return spec;
}

void DescribeMadeKeys(const ModelConfig& config, int64_t layer, const std::string& scope,
                      LayerSpec& spec) {
  const MadeKeysConfig& made = *config.made_keys;
  const int64_t hidden = config.hidden_size, rank = made.mix_rank;
  const auto name = [&](std::string_view of) { return StrCat(scope, ".", of); };
  MadeKeysSpec& own = spec.made;
  if (config.HasCache(layer)) {
    const std::string body(config.tensor_names.body);
    own.down.parts = {GoldMatrix(body + "w_kv_cache_a", config.key_dim, hidden)};
    own.up.parts = {GoldMatrix(body + "w_kv_cache_b", hidden, config.key_dim + hidden)};
  }
  own.narrow_query = {.mix = GoldRow(name("time_maa_x"), hidden),
                      .linear = GoldTurned(name("time_maa_q_w1"), hidden, rank)};
  own.query_mix = {.shares = GoldShares(name("time_maa_q_w2"), {rank, hidden}),
                   .by_mix = true,
                   .biases = {GoldRow(name("time_maa_q"), hidden)},
                   .order = {0}};
  own.query.linear.parts = {GoldMatrix(name("query"), hidden, hidden)};
  own.narrow = {.mix = GoldRow(name("time_maa_v_cache"), hidden),
                .linear = GoldTurned(name("time_maa_kv_w1"), hidden, 2 * rank)};
  own.mixes = {.shares = GoldShares(name("time_maa_kv_w2"), {2, rank, hidden}),
               .by_mix = true,
               .biases = {GoldRow(name("time_maa_k"), hidden), GoldRow(name("time_maa_v"), hidden)},
               .order = {0, 1}};
  for (const char* part : {"key", "value"}) {
    const std::string pair = StrCat(scope, ".time_", part);
    own.first.push_back(GoldTurned(pair + "_w1", hidden, made.rank));
    own.second.push_back(GoldTurned(pair + "_w2", made.rank, hidden));
  }
  own.query_norm = GoldNorm(name("ln_q"), hidden);
  own.key_norm = GoldNorm(name("ln_k"), hidden);
  own.value_norm = GoldNorm(name("ln_v"), hidden);
  own.output_norm = GoldNorm(name("ln_x"), hidden);
  spec.output.parts = {GoldMatrix(name("output"), hidden, hidden)};
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// How checkpoints store layers of constant state.
#include <cmath>

#include "core/strings.h"
#include "src/model/model_tensors.h"

namespace kvgauge {
namespace {

TensorSpec StateMatrix(const std::string& name, int64_t rows, int64_t columns) {
  return {StrCat(name, ".weight"),
          {rows, columns},
          TensorSpec::Init::kNormal,
          1.0f / std::sqrt(static_cast<float>(columns))};
}

// Rows [begin, begin + count) of each of `groups` runs of `stride` rows, from `first` on.
void TakeGroups(std::vector<RowSpan>& order, int64_t groups, int64_t first, int64_t stride,
                int64_t begin, int64_t count) {
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t at = first + g * stride + begin;
    order.push_back({at, at + count});
  }
}

LinearSpec DescribeInput(const StateConfig& state, int64_t hidden, const std::string& scope) {
  const int64_t keys = state.key_heads * state.key_dim, values = state.width();
  LinearSpec input;
  switch (state.kind) {
    case StateConfig::Kind::kQwen3Next: {
      // For each key head: its query, its key, values and gates; in the second matrix weights and
      // steps.
      const int64_t own = state.heads / state.key_heads, of_values = own * state.value_dim;
      const int64_t stride = 2 * state.key_dim + 2 * of_values, second = 2 * keys + 2 * values;
      input.parts = {StateMatrix(scope + ".in_proj_qkvz", second, hidden),
                     StateMatrix(scope + ".in_proj_ba", 2 * state.heads, hidden)};
      const auto take = [&](int64_t begin, int64_t count) {
        TakeGroups(input.order, state.key_heads, 0, stride, begin, count);
      };
      take(0, state.key_dim);
      take(state.key_dim, state.key_dim);
      take(2 * state.key_dim, of_values);
      take(2 * state.key_dim + of_values, of_values);
      TakeGroups(input.order, state.key_heads, second, 2 * own, 0, own);
      TakeGroups(input.order, state.key_heads, second, 2 * own, own, own);
      break;
    }
    case StateConfig::Kind::kQwen35:
      input.parts = {StateMatrix(scope + ".in_proj_qkv", 2 * keys + values, hidden),
                     StateMatrix(scope + ".in_proj_z", values, hidden),
                     StateMatrix(scope + ".in_proj_b", state.heads, hidden),
                     StateMatrix(scope + ".in_proj_a", state.heads, hidden)};
      break;
    case StateConfig::Kind::kMamba2: {
      // Gates first.
      const int64_t rows = 2 * values + 2 * keys + state.heads;
      input.parts = {StateMatrix(scope + ".in_proj", rows, hidden)};
      input.order = {{values, 2 * values + 2 * keys}, {0, values}, {rows - state.heads, rows}};
      if (state.input_bias) {
        input.biases = {{scope + ".in_proj.bias", {rows}, TensorSpec::Init::kZeros, 0}};
      }
      break;
    }
  }
  return input;
}

}  // namespace

StateSpec DescribeState(const ModelConfig& config, const std::string& scope) {
  const StateConfig& state = *config.state;
  const int64_t columns = state.conv_columns();
  const auto vector = [&](std::string_view name, int64_t size, TensorSpec::Init init) {
    return TensorSpec{scope + std::string(name), {size}, init, 0};
  };
  StateSpec spec;
  spec.input = DescribeInput(state, config.hidden_size, scope);
  spec.conv = {scope + ".conv1d.weight",
               {columns, 1, state.conv_width},
               TensorSpec::Init::kNormal,
               1.0f / std::sqrt(static_cast<float>(state.conv_width))};
  if (state.conv_bias) spec.conv_bias = vector(".conv1d.bias", columns, TensorSpec::Init::kZeros);
  spec.step_bias = vector(".dt_bias", state.heads, TensorSpec::Init::kOnes);
  spec.rates = vector(".A_log", state.heads, TensorSpec::Init::kZeros);
  if (!state.delta()) spec.skip = vector(".D", state.heads, TensorSpec::Init::kOnes);
  if (state.norm) {
    spec.norm.weight = vector(".norm.weight", state.delta() ? state.value_dim : state.width(),
                              TensorSpec::Init::kOnes);
  }
  return spec;
}

LinearSpec DescribeStateOutput(const ModelConfig& config, const std::string& scope) {
  LinearSpec output;
  output.parts = {StateMatrix(scope + ".out_proj", config.hidden_size, config.state->width())};
  if (config.state->output_bias) {
    output.biases = {{scope + ".out_proj.bias", {config.hidden_size}, TensorSpec::Init::kZeros, 0}};
  }
  return output;
}

}  // namespace kvgauge

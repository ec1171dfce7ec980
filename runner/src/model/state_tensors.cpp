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
      break;
    }
    case StateConfig::Kind::kMamba1:
      input.parts = {StateMatrix(scope + ".in_proj", 2 * values, hidden)};
      break;
    case StateConfig::Kind::kRetention:
    case StateConfig::Kind::kGatedRetention:
      input.parts = {StateMatrix(scope + ".q_proj", keys, hidden),
                     StateMatrix(scope + ".k_proj", keys, hidden),
                     StateMatrix(scope + ".v_proj", values, hidden),
                     StateMatrix(scope + ".g_proj", values, hidden)};
      if (state.gates_retention()) {
        input.parts.push_back(StateMatrix(scope + ".decay_proj", state.heads, hidden));
      }
      break;
    case StateConfig::Kind::kRwkv4:
    case StateConfig::Kind::kRwkv6:
    case StateConfig::Kind::kFinchC2:
    case StateConfig::Kind::kRwkv7:
      break;  // products of their own (DescribeRwkv4 and so on)
  }
  if (state.input_bias) {
    input.biases = {
        {scope + ".in_proj.bias", {input.parts[0].shape[0]}, TensorSpec::Init::kZeros, 0}};
  }
  return input;
}

// Mamba-1: what steps, B and C are made by.
void DescribeSelection(const StateConfig& state, const std::string& scope, StateSpec& spec) {
  const int64_t rank = state.step_rank;
  spec.selected.parts = {StateMatrix(scope + ".x_proj", rank + 2 * state.key_dim, state.width())};
  spec.step_input.parts = {StateMatrix(scope + ".dt_proj", state.heads, rank)};
  if (state.part_norms != StateConfig::PartNorms::kWeighed) return;
  const auto norm = [&](std::string_view name, int64_t size) {
    return NormSpec{{scope + std::string(name), {size}, TensorSpec::Init::kOnes, 0}, {}};
  };
  spec.step_norm = norm(".dt_layernorm.weight", rank);
  spec.key_norm = norm(".b_layernorm.weight", state.key_dim);
  spec.query_norm = norm(".c_layernorm.weight", state.key_dim);
}

TensorSpec StateVector(const std::string& name, std::vector<int64_t> shape,
                       TensorSpec::Init init = TensorSpec::Init::kZeros) {
  return {name, std::move(shape), init, 0};
}

MixedSpec OwnMix(const ModelConfig& config, const std::string& scope, std::string_view name,
                 int64_t rows) {
  const int64_t hidden = config.hidden_size;
  return {.mix = StateVector(StrCat(scope, ".time_mix_", name), {1, 1, hidden}),
          .own = true,
          .linear = {.parts = {StateMatrix(StrCat(scope, ".", name), rows, hidden)}}};
}

StateSpec DescribeRwkv4(const ModelConfig& config, const std::string& scope) {
  const int64_t width = config.state->width();
  StateSpec spec;
  for (const char* name : {"key", "value", "receptance"}) {
    spec.mixed.push_back(OwnMix(config, scope, name, width));
  }
  spec.rates = StateVector(scope + ".time_decay", {width});
  spec.first = StateVector(scope + ".time_first", {width});
  spec.output.parts = {StateMatrix(scope + ".output", config.hidden_size, width)};
  return spec;
}

StateSpec DescribeRetention(const ModelConfig& config, const std::string& scope) {
  const StateConfig& state = *config.state;
  StateSpec spec;
  spec.input = DescribeInput(state, config.hidden_size, scope);
  if (!state.gates_retention()) {
    spec.norm.weight =
        StateVector(scope + (state.norm_gates ? ".g_norm_swish_gate.weight" : ".g_norm.weight"),
                    {state.value_dim}, TensorSpec::Init::kOnes);
  }
  spec.output.parts = {StateMatrix(scope + ".o_proj", config.hidden_size, state.width())};
  return spec;
}

// A row made wide again, by the second matrix of a narrow pair.
LinearSpec Raised(const std::string& pair, int64_t rows, int64_t rank, bool bias) {
  LinearSpec linear = {.parts = {StateMatrix(pair + ".lora.2", rows, rank)}};
  if (bias) linear.biases = {StateVector(pair + ".lora.2.bias", {rows})};
  return linear;
}

// A norm of what each head gives, a weight and a bias for every column.
NormSpec NormOfHeads(const std::string& name, int64_t width) {
  return {StateVector(name + ".weight", {width}, TensorSpec::Init::kOnes),
          StateVector(name + ".bias", {width})};
}

StateSpec DescribeRwkv6(const ModelConfig& config, const std::string& scope) {
  const StateConfig& state = *config.state;
  const int64_t hidden = config.hidden_size, width = state.width();
  const int64_t keys = state.heads * state.key_dim;
  StateSpec spec;
  const auto mixed = [&](const std::string& name, int64_t rows) {
    spec.mixed.push_back({.linear = {.parts = {StateMatrix(scope + name, rows, hidden)}}});
  };
  mixed(".r_proj.linear", keys);
  mixed(".w_proj.linear.lora.0", state.decay_rank);
  mixed(".k_proj.linear", keys);
  mixed(".v_proj.linear", width);
  mixed(".g_proj.linear", width);
  const int64_t mixes = std::ssize(spec.mixed), columns = mixes * state.mix_rank;
  spec.narrow = {.mix = StateVector(scope + ".x_proj.0.mu", {hidden}),
                 .linear = {.parts = {StateMatrix(scope + ".x_proj.0.linear", columns, hidden)}}};
  spec.mixes = {.shares = StateMatrix(scope + ".x_proj.2", hidden, columns),
                .biases = {StateVector(scope + ".x_bias", {mixes, hidden})},
                .order = {0, 1, 2, 3, 4}};
  spec.decays = Raised(scope + ".w_proj.linear", keys, state.decay_rank, true);
  spec.first = StateVector(scope + ".bonus", {state.heads, state.key_dim});
  spec.norm = NormOfHeads(scope + ".g_norm", width);
  spec.output.parts = {StateMatrix(scope + ".o_proj", hidden, width)};
  return spec;
}

StateSpec DescribeRwkv7(const ModelConfig& config, int64_t layer, const std::string& scope) {
  const StateConfig& state = *config.state;
  const int64_t hidden = config.hidden_size, width = state.width();
  const auto down = [&](std::string_view name, int64_t rank) {
    return StateMatrix(StrCat(scope, ".", name, "_lora.lora.0"), rank, hidden);
  };
  const auto raised = [&](std::string_view name, int64_t rank, bool bias) {
    return Raised(StrCat(scope, ".", name, "_lora"), width, rank, bias);
  };
  StateSpec spec;
  const auto mix = [&](std::string_view name, std::vector<TensorSpec> parts) {
    spec.mixed.push_back({.mix = StateVector(StrCat(scope, ".x_", name), {1, 1, hidden}),
                          .linear = {.parts = std::move(parts)}});
  };
  std::vector<TensorSpec> values = {StateMatrix(scope + ".v_proj", width, hidden)};
  if (layer > 0) {
    values.push_back(down("v", state.value_rank));
    spec.values = raised("v", state.value_rank, true);
  }
  mix("r", {StateMatrix(scope + ".r_proj", width, hidden)});
  mix("w", {down("w", state.decay_rank)});
  mix("k", {StateMatrix(scope + ".k_proj", width, hidden)});
  mix("v", std::move(values));
  mix("a", {down("a", state.write_rank)});
  mix("g", {down("g", state.gate_rank)});
  spec.decays = raised("w", state.decay_rank, true);
  spec.writes = raised("a", state.write_rank, true);
  spec.gates = raised("g", state.gate_rank, false);
  spec.find_scale = StateVector(scope + ".k_k", {width}, TensorSpec::Init::kOnes);
  spec.key_scale = StateVector(scope + ".k_a", {width});
  spec.first = StateVector(scope + ".r_k", {state.heads, state.key_dim});
  spec.norm = NormOfHeads(scope + ".g_norm", width);
  spec.output.parts = {StateMatrix(scope + ".o_proj", hidden, width)};
  return spec;
}

}  // namespace

std::vector<MixedSpec> DescribeMixedMlp(const ModelConfig& config, const std::string& scope) {
  const int64_t hidden = config.hidden_size;
  if (config.state->kind == StateConfig::Kind::kRwkv7) {
    return {{.mix = StateVector(scope + ".x_k", {hidden}),
             .linear = {.parts = {StateMatrix(scope + ".key", config.ffn_size, hidden)}}}};
  }
  if (config.state->kind == StateConfig::Kind::kRwkv6) {
    const auto mixed = [&](const std::string& name, int64_t rows) {
      return MixedSpec{.mix = StateVector(name + ".mu", {hidden}),
                       .linear = {.parts = {StateMatrix(name + ".linear", rows, hidden)}}};
    };
    return {mixed(scope + ".key", config.ffn_size), mixed(scope + ".receptance", hidden)};
  }
  if (config.state->kind == StateConfig::Kind::kFinchC2) {
    const auto mixed = [&](std::string_view mix, std::string_view name, int64_t rows) {
      return MixedSpec{.mix = StateVector(StrCat(scope, ".time_maa_", mix), {1, 1, hidden}),
                       .linear = {.parts = {StateMatrix(StrCat(scope, ".", name), rows, hidden)}}};
    };
    return {mixed("k", "key", config.ffn_size), mixed("r", "receptance", hidden)};
  }
  return {OwnMix(config, scope, "key", config.ffn_size),
          OwnMix(config, scope, "receptance", hidden)};
}

StateSpec DescribeState(const ModelConfig& config, int64_t layer, const std::string& scope) {
  const StateConfig& state = *config.state;
  if (state.retains()) return DescribeRetention(config, scope);
  if (state.kind == StateConfig::Kind::kRwkv4) return DescribeRwkv4(config, scope);
  if (state.kind == StateConfig::Kind::kRwkv6) return DescribeRwkv6(config, scope);
  if (state.kind == StateConfig::Kind::kFinchC2) return DescribeFinchC2(config, scope);
  if (state.kind == StateConfig::Kind::kRwkv7) return DescribeRwkv7(config, layer, scope);
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
  spec.step_bias = vector(state.by_column() ? ".dt_proj.bias" : ".dt_bias", state.heads,
                          TensorSpec::Init::kOnes);
  spec.rates = vector(".A_log", state.heads, TensorSpec::Init::kZeros);
  if (state.by_column()) {
    spec.rates.shape.push_back(state.key_dim);
    DescribeSelection(state, scope, spec);
  }
  if (!state.delta()) spec.skip = vector(".D", state.heads, TensorSpec::Init::kOnes);
  if (state.norm && !state.by_column()) {
    spec.norm.weight = vector(".norm.weight", state.delta() ? state.value_dim : state.width(),
                              TensorSpec::Init::kOnes);
  }
  spec.output.parts = {StateMatrix(scope + ".out_proj", config.hidden_size, state.width())};
  if (state.output_bias) {
    spec.output.biases = {
        {scope + ".out_proj.bias", {config.hidden_size}, TensorSpec::Init::kZeros, 0}};
  }
  return spec;
}

}  // namespace kvgauge

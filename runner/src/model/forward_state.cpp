// SPDX-License-Identifier: Apache-2.0
// Layers of constant state in the forward pass: what a sequence has seen is in its states, which
// its rows go through in order.
#include <cmath>
#include <vector>

#include "methods/tensors.h"
#include "src/model/forward_pass.h"

namespace kvgauge {
namespace {

// The gated delta rule has it in the lengths of queries and keys, whatever norm_eps says.
constexpr float kLengthEps = 1e-6f;
// Rows of gated retention write all of their values: the sigmoid of this is 1 to the last bit.
constexpr float kWritesAll = 64.0f;

// Columns [begin, begin + heads * dim) of x [m, width] as [m, heads, dim].
Tensor HeadsAt(const Tensor& x, int64_t begin, int64_t heads, int64_t dim) {
  Tensor view = Columns(x, begin, begin + heads * dim);
  view.rank = 3;
  view.shape = {x.shape[0], heads, dim, 0};
  view.stride = {x.stride[0], dim, 1, 0};
  return view;
}

}  // namespace

void ForwardPass::ForStates(int64_t layer,
                            const std::function<void(int64_t, int64_t, const Tensor&)>& body) {
  const int64_t index = config_.StateOf(layer);
  std::vector<size_t> all;
  std::vector<int64_t> first;
  int64_t row = 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    steps_[i].cache->SetStatesMidway(true);
    all.push_back(i);
    first.push_back(row);
    row += steps_[i].end - steps_[i].begin;
  }
  ForSequences(all, [&](size_t i) {
    body(first[i], steps_[i].end - steps_[i].begin, steps_[i].cache->State(index));
  });
}

// Mamba-2's projections, in place.
void ForwardPass::MultiplyStateParts(const Tensor& projected) {
  if (!config_.multipliers) return;
  const LayerMultipliers& by = *config_.multipliers;
  const StateConfig& state = *config_.state;
  const int64_t keys = state.key_heads * state.key_dim;
  int64_t at = 0;
  const auto next = [&](int64_t columns, float factor) {
    Multiply(Columns(projected, at, at + columns), factor);
    at += columns;
  };
  next(state.width(), by.state_values);
  next(keys, by.state_keys);
  next(keys, by.state_queries);
  next(state.width(), by.state_gates);
  next(state.heads, by.steps);
}

void ForwardPass::TurnRetained(const Tensor& x) {
  const StateConfig& state = *config_.state;
  const int64_t pairs = state.key_dim / 2, keys = state.key_heads * state.key_dim;
  if (retained_cos_.empty()) {  // one table for all layers
    std::vector<int32_t> positions;
    for (const SequenceStep& step : steps_) {
      for (int64_t i = step.begin; i < step.end; ++i) {
        positions.push_back(PositionOf(step, i).rope_position[0]);
      }
    }
    std::vector<float> inverse;
    for (int64_t i = 0; i < pairs; ++i) {
      const double part = static_cast<double>(2 * i) / static_cast<double>(state.key_dim);
      inverse.push_back(static_cast<float>(std::pow(state.turn_base, -part)));
    }
    const Tensor numbers = Take(ScratchSlot::kPositions, DType::kF32, {rows_ + pairs});
    Tensor places = numbers.Slice(0, rows_);
    places.dtype = DType::kI32;
    const Tensor frequencies = numbers.Slice(rows_, rows_ + pairs);
    ops_.memory->Copy(View(positions, {rows_}), places);
    ops_.memory->Copy(View(inverse, {pairs}), frequencies);
    retained_cos_ = Take(ScratchSlot::kRetainedCos, DType::kF32, {rows_, pairs});
    retained_sin_ = Take(ScratchSlot::kRetainedSin, DType::kF32, {rows_, pairs});
    ops_.rows->RopeTable(places.Reshape({rows_, 1}), frequencies, {}, 1.0f, retained_cos_,
                         retained_sin_);
  }
  for (const int64_t begin : {int64_t{0}, keys}) {
    ops_.rows->Rope(retained_cos_, retained_sin_, state.turn_layout, RopeDirection::kForward,
                    HeadsAt(x, begin, state.key_heads, state.key_dim));
  }
  Multiply(Columns(x, 0, keys), 1.0f / std::sqrt(static_cast<float>(state.key_dim)));
}

Tensor ForwardPass::StateRows(int64_t layer, const Tensor& x) {
  const StateConfig& state = *config_.state;
  if (state.kind == StateConfig::Kind::kRwkv4) return AverageRows(layer, x);
  if (state.makes_mixes()) return BonusRows(layer, x);
  if (state.kind == StateConfig::Kind::kRwkv7) return DecayRows(layer, x);
  const StateWeights& w = weights_.layers[static_cast<size_t>(layer)].state;
  const int64_t columns = state.conv_columns(), width = state.width();
  const int64_t past = (state.conv_width - 1) * columns;
  const Tensor projected =
      Take(ScratchSlot::kProjected, DType::kF32, {rows_, w.input.matrix->out_features()});
  ApplyLinear(ops_, x, w.input, MatMulMode::kSet, projected);
  MultiplyStateParts(projected);

  const Tensor scanned = Take(ScratchSlot::kScanned, DType::kF32, {rows_, width});
  const Tensor gates = Columns(projected, columns, columns + width);
  if (state.retains()) {
    TurnRetained(projected);
    ScanHeads(layer, projected, Columns(projected, 0, columns), scanned);
    NormScanned(w, gates, scanned);
    return scanned;
  }
  const Tensor convolved = Take(ScratchSlot::kConvolved, DType::kF32, {rows_, columns});
  ForStates(layer, [&](int64_t row, int64_t rows, const Tensor& kept) {
    ops_.state->Convolve(Columns(projected, 0, columns).Slice(row, row + rows),
                         w.conv.weight.Reshape({state.conv_width, columns}), w.conv.bias,
                         kept.Slice(0, past).Reshape({state.conv_width - 1, columns}),
                         convolved.Slice(row, row + rows));
  });
  ops_.rows->Activate(convolved, state.activation.value_or(config_.activation), convolved);

  if (state.by_column()) {
    ScanColumns(layer, convolved, scanned);
  } else {
    ScanHeads(layer, projected, convolved, scanned);
  }
  NormScanned(w, gates, scanned);
  if (config_.multipliers) Multiply(scanned, config_.multipliers->scanned);
  return scanned;
}

void ForwardPass::ScanHeads(int64_t layer, const Tensor& projected, const Tensor& convolved,
                            Tensor scanned) {
  const StateConfig& state = *config_.state;
  const StateWeights& w = weights_.layers[static_cast<size_t>(layer)].state;
  const int64_t columns = state.conv_columns(), width = state.width(), heads = state.heads;
  const int64_t keys = state.key_heads * state.key_dim;
  const int64_t past = (state.conv_width - 1) * columns;
  // In the order of the convolution's columns: queries, keys, values, or Mamba-2's x, B, C.
  const bool delta = state.delta(), keys_first = delta || state.retains();
  const Tensor q =
      HeadsAt(convolved, keys_first ? 0 : width + keys, state.key_heads, state.key_dim);
  const Tensor k = HeadsAt(convolved, keys_first ? keys : width, state.key_heads, state.key_dim);
  const Tensor v = HeadsAt(convolved, keys_first ? 2 * keys : 0, heads, state.value_dim);
  if (delta) {
    const float eps = kLengthEps / static_cast<float>(state.key_dim);
    ops_.rows->RmsNorm(q, w.query_norm.weight, 0.0f, eps, q);
    ops_.rows->RmsNorm(k, w.key_norm.weight, 0.0f, eps, k);
  }
  const int64_t gates = columns + width;
  Tensor weights;
  if (delta) weights = Columns(projected, gates, gates + heads);
  if (state.gates_retention()) {
    weights = Take(ScratchSlot::kSteps, DType::kF32, {rows_, heads});
    ops_.rows->Fill(kWritesAll, weights);
  }
  // RetNet, whose steps are all of length 1, has numbers there that do not count.
  const Tensor steps = Columns(projected, projected.shape[1] - heads, projected.shape[1]);
  ForStates(layer, [&](int64_t row, int64_t rows, const Tensor& kept) {
    const auto of = [&](const Tensor& t) { return t.empty() ? t : t.Slice(row, row + rows); };
    StateScan scan = {.queries = of(q),
                      .keys = of(k),
                      .values = of(v),
                      .steps = of(steps),
                      .weights = of(weights),
                      .step_bias = w.step_bias.weight,
                      .rates = w.rates.weight,
                      .skip = w.skip.weight};
    scan.corrects = delta;
    scan.least_step = static_cast<float>(state.least_step);
    if (state.most_step > 0) scan.most_step = static_cast<float>(state.most_step);
    ops_.state->Scan(
        scan, kept.Slice(past, state.numbers()).Reshape({heads, state.key_dim, state.value_dim}),
        HeadsAt(of(scanned), 0, heads, state.value_dim));
  });
}

// Mamba-1: steps, B and C are made of what was convolved.
void ForwardPass::ScanColumns(int64_t layer, const Tensor& convolved, Tensor scanned) {
  const StateConfig& state = *config_.state;
  const StateWeights& w = weights_.layers[static_cast<size_t>(layer)].state;
  const int64_t rank = state.step_rank, dim = state.key_dim, width = state.width();
  const int64_t past = (state.conv_width - 1) * width;
  const Tensor selected = Take(ScratchSlot::kSelected, DType::kF32, {rows_, rank + 2 * dim});
  ApplyLinear(ops_, convolved, w.selected, MatMulMode::kSet, selected);
  const Tensor ranked = Columns(selected, 0, rank);
  const Tensor k = Columns(selected, rank, rank + dim);
  const Tensor q = Columns(selected, rank + dim, rank + 2 * dim);
  if (state.part_norms != StateConfig::PartNorms::kNone) {
    ops_.rows->RmsNorm(ranked, w.step_norm.weight, 0.0f, state.part_norm_eps, ranked);
    ops_.rows->RmsNorm(k, w.key_norm.weight, 0.0f, state.part_norm_eps, k);
    ops_.rows->RmsNorm(q, w.query_norm.weight, 0.0f, state.part_norm_eps, q);
  }
  const Tensor steps = Take(ScratchSlot::kSteps, DType::kF32, {rows_, width});
  ApplyLinear(ops_, ranked, w.step_input, MatMulMode::kSet, steps);
  ForStates(layer, [&](int64_t row, int64_t rows, const Tensor& kept) {
    const auto of = [&](const Tensor& t) { return t.Slice(row, row + rows); };
    ops_.state->ScanColumns({.queries = of(q),
                             .keys = of(k),
                             .values = of(convolved),
                             .steps = of(steps),
                             .step_bias = w.step_bias.weight,
                             .rates = w.rates.weight.Reshape({dim, width}),
                             .skip = w.skip.weight},
                            kept.Slice(past, state.numbers()).Reshape({dim, width}), of(scanned));
  });
}

// In place; gates are overwritten.
void ForwardPass::NormScanned(const StateWeights& w, const Tensor& gates, const Tensor& scanned) {
  const StateConfig& state = *config_.state;
  // Mamba-1's gates are opened by what the config names.
  const Activation gate = state.by_column() ? config_.activation : Activation::kSilu;
  ops_.rows->Activate(gates, gate, gates);
  if (state.delta() || state.retains()) {
    const Tensor heads = HeadsAt(scanned, 0, state.heads, state.value_dim);
    ops_.rows->RmsNorm(heads, w.norm.weight, 0.0f, config_.norm_eps, heads);
    ops_.rows->Combine(scanned, gates, Binary::kMultiply, scanned);
    return;
  }
  const bool norms = state.norm && !state.by_column();
  if (!norms || !state.norm_first) {
    ops_.rows->Combine(scanned, gates, Binary::kMultiply, scanned);
  }
  if (!norms) return;
  const int64_t group = state.width() / state.norm_groups;
  for (int64_t g = 0; g < state.norm_groups; ++g) {
    const Tensor part = Columns(scanned, g * group, (g + 1) * group);
    ops_.rows->RmsNorm(part, w.norm.weight.Slice(g * group, (g + 1) * group), 0.0f,
                       config_.norm_eps, part);
  }
  if (state.norm_first) ops_.rows->Combine(scanned, gates, Binary::kMultiply, scanned);
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// RWKV in the forward pass: rows are mixed with those before them, of which the state keeps the
// last; what attention is elsewhere are averages in time (RWKV-4), or a matrix for each head whose
// rows decay by themselves (RWKV-6 and RWKV-7).
#include <cmath>

#include "methods/tensors.h"
#include "src/model/forward_pass.h"

namespace kvgauge {
namespace {

// A row of RWKV-7's state keeps at least e^-kMostDecay of its numbers.
const float kMostDecay = std::exp(-0.5f);
// What a length is at least, squared.
constexpr float kLeastSquare = 1e-24f;

// [m, heads * dim] contiguous as [m * heads, dim].
Tensor AsHeads(const Tensor& x, int64_t heads) {
  return x.Reshape({x.shape[0] * heads, x.shape[1] / heads});
}

}  // namespace

// What rows before x have beyond x: [rows, columns]. `at`: where the state keeps the last row.
Tensor ForwardPass::Differences(int64_t layer, const Tensor& x, int64_t at) {
  const StateWeights& w = weights_.layers[static_cast<size_t>(layer)].state;
  const int64_t columns = x.shape[1];
  const Tensor before = Take(ScratchSlot::kConvolved, DType::kF32, {rows_, columns});
  ForStates(layer, [&](int64_t row, int64_t rows, const Tensor& kept) {
    ops_.state->Convolve(x.Slice(row, row + rows), w.conv.weight.Reshape({2, columns}), {},
                         kept.Slice(at, at + columns).Reshape({1, columns}),
                         before.Slice(row, row + rows));
  });
  ops_.rows->Combine(before, x, Binary::kSubtract, before);
  return before;
}

void ForwardPass::ProjectMixed(const MixedWeights& w, const Tensor& x, const Tensor& differences,
                               Tensor out) {
  const Tensor mixed = Take(ScratchSlot::kMixed, DType::kF32, {x.shape[0], x.shape[1]});
  ops_.rows->Combine(differences, w.share.weight, Binary::kMultiply, mixed);
  ops_.rows->Combine(mixed, x, Binary::kAdd, mixed);
  ApplyLinear(ops_, mixed, w.linear, MatMulMode::kSet, out);
}

// What the halvings of the residual before a layer have made of 1.
float ForwardPass::Halved(int64_t layer) const {
  return config_.halve_every == 0
             ? 1.0f
             : std::ldexp(1.0f, -static_cast<int>(layer / config_.halve_every));
}

Tensor ForwardPass::AverageRows(int64_t layer, const Tensor& x) {
  const StateConfig& state = *config_.state;
  const StateWeights& w = weights_.layers[static_cast<size_t>(layer)].state;
  const int64_t width = state.width(), past = state.mixed_columns;
  const Tensor differences = Differences(layer, x, 0);
  const Tensor projected = Take(ScratchSlot::kProjected, DType::kF32, {3, rows_, width});
  for (int64_t i = 0; i < 3; ++i) {
    ProjectMixed(w.mixed[static_cast<size_t>(i)], x, differences, projected[i]);
  }
  const Tensor keys = projected[0], values = projected[1], receptance = projected[2];
  const Tensor averages = Take(ScratchSlot::kScanned, DType::kF32, {rows_, width});
  ForStates(layer, [&](int64_t row, int64_t rows, const Tensor& kept) {
    ops_.state->ScanAverages({.keys = keys.Slice(row, row + rows),
                              .values = values.Slice(row, row + rows),
                              .rates = w.rates.weight,
                              .first = w.first.weight},
                             kept.Slice(past, past + 3 * width).Reshape({3, width}),
                             averages.Slice(row, row + rows));
  });
  ops_.rows->Activate(receptance, Activation::kSigmoid, receptance);
  ops_.rows->Combine(averages, receptance, Binary::kMultiply, averages);
  Multiply(averages, Halved(layer));
  return averages;
}

// Rows mixed by shares that their narrow ones say; `narrow`: those of all products, side by side.
Tensor ForwardPass::MixedRows(const MixedWeights& w, const Tensor& x, const Tensor& differences,
                              const Tensor& narrow) {
  const int64_t rank = w.made.matrix->in_features();
  const Tensor mixed = Take(ScratchSlot::kMixed, DType::kF32, {x.shape[0], x.shape[1]});
  ApplyLinear(ops_, Columns(narrow, w.narrow * rank, (w.narrow + 1) * rank), w.made,
              MatMulMode::kSet, mixed);
  ops_.rows->Combine(mixed, differences, Binary::kMultiply, mixed);
  ops_.rows->Combine(mixed, x, Binary::kAdd, mixed);
  return mixed;
}

void ForwardPass::NormScannedHeads(const StateWeights& w, int64_t groups, const Tensor& scanned) {
  const Tensor normed = AsHeads(scanned, groups);
  ops_.rows->LayerNorm(normed, {}, {}, config_.state->part_norm_eps, normed);
  ops_.rows->Combine(scanned, w.norm.weight, Binary::kMultiply, scanned);
  ops_.rows->Combine(scanned, w.norm.bias, Binary::kAdd, scanned);
}

Tensor ForwardPass::BonusRows(int64_t layer, const Tensor& x) {
  const StateConfig& state = *config_.state;
  const StateWeights& w = weights_.layers[static_cast<size_t>(layer)].state;
  const bool second = state.kind == StateConfig::Kind::kFinchC2;  // values, for bonus and gates
  const int64_t width = state.width(), heads = state.heads, past = state.mixed_columns;
  const int64_t keys_width = heads * state.key_dim, rank = state.mix_rank;
  const Tensor differences = Differences(layer, x, 0);
  const Tensor narrow =
      Take(ScratchSlot::kSelected, DType::kF32, {rows_, std::ssize(w.mixed) * rank});
  ProjectMixed(w.narrow, x, differences, narrow);
  ops_.rows->SoftCap(narrow, 1.0f, narrow);
  const int64_t ranks = state.decay_rank + state.value_rank;
  const Tensor memory =
      Take(ScratchSlot::kProjected, DType::kF32, {rows_ * (3 * keys_width + 2 * width + ranks)});
  int64_t taken = 0;
  const auto take = [&](int64_t columns) {
    const int64_t begin = taken;
    taken += rows_ * columns;
    return memory.Slice(begin, taken).Reshape({rows_, columns});
  };
  const auto mixed = [&](size_t i) { return MixedRows(w.mixed[i], x, differences, narrow); };
  const auto project = [&](size_t i, int64_t columns) {
    const Tensor out = take(columns);
    ApplyLinear(ops_, mixed(i), w.mixed[i].linear, MatMulMode::kSet, out);
    return out;
  };
  const Tensor queries = project(0, keys_width), decays = project(1, state.decay_rank);
  const Tensor keys = project(2, keys_width), values = project(3, width);
  ops_.rows->SoftCap(decays, 1.0f, decays);
  const Tensor rates = take(keys_width);
  ApplyLinear(ops_, decays, w.decays, MatMulMode::kSet, rates);
  ops_.rows->Activate(rates, Activation::kExp, rates);
  ops_.rows->Affine(rates, -1.0f, 0.0f, rates);
  Tensor added;  // second values, or gates
  if (second) {
    added = take(width);
    const Tensor rows = mixed(4), low = take(state.value_rank);
    ApplyLinear(ops_, rows, w.mixed[3].linear, MatMulMode::kSet, added);
    ApplyLinear(ops_, rows, w.mixed[4].linear, MatMulMode::kSet, low);
    ops_.rows->SoftCap(low, 1.0f, low);
    ApplyLinear(ops_, low, w.values, MatMulMode::kAdd, added);
    // A key weighs as much as the state forgets.
    const Tensor forgotten = Take(ScratchSlot::kMixed, DType::kF32, {rows_, keys_width});
    ops_.rows->Activate(rates, Activation::kExp, forgotten);
    ops_.rows->Affine(forgotten, -1.0f, 1.0f, forgotten);
    ops_.rows->Combine(keys, forgotten, Binary::kMultiply, keys);
  } else {
    added = project(4, width);
    ops_.rows->Activate(added, Activation::kSilu, added);
  }

  const Tensor scanned = Take(ScratchSlot::kScanned, DType::kF32, {rows_, width});
  ForStates(layer, [&](int64_t row, int64_t rows, const Tensor& kept) {
    const auto of = [&](const Tensor& t) {
      return t.Slice(row, row + rows).Reshape({rows, heads, t.shape[1] / heads});
    };
    const Tensor bonus = second ? Tensor() : w.first.weight.Reshape({heads, state.key_dim});
    ops_.state->ScanBonus({.queries = of(queries),
                           .keys = of(keys),
                           .values = of(values),
                           .rates = of(rates),
                           .bonus = bonus},
                          kept.Slice(past, past + keys_width * state.value_dim)
                              .Reshape({heads, state.key_dim, state.value_dim}),
                          of(scanned));
  });
  if (second) ops_.rows->Combine(scanned, added, Binary::kAdd, scanned);
  NormScannedHeads(w, second ? 1 : heads, scanned);
  if (!second) ops_.rows->Combine(scanned, added, Binary::kMultiply, scanned);
  return scanned;
}

Tensor ForwardPass::DecayRows(int64_t layer, const Tensor& x) {
  const StateConfig& state = *config_.state;
  const StateWeights& w = weights_.layers[static_cast<size_t>(layer)].state;
  const int64_t width = state.width(), heads = state.heads, past = state.mixed_columns;
  const Tensor differences = Differences(layer, x, 0);
  const bool first = layer == 0;  // whose values later layers take a share of
  const int64_t value_rank = first ? 0 : state.value_rank;
  const int64_t ranks = state.decay_rank + state.write_rank + state.gate_rank + value_rank;
  const Tensor memory = Take(ScratchSlot::kProjected, DType::kF32, {rows_ * (9 * width + ranks)});
  int64_t taken = 0;
  const auto take = [&](int64_t columns) {
    const int64_t begin = taken;
    taken += rows_ * columns;
    return memory.Slice(begin, taken).Reshape({rows_, columns});
  };
  const auto project = [&](int64_t i, int64_t columns) {
    const Tensor out = take(columns);
    ProjectMixed(w.mixed[static_cast<size_t>(i)], x, differences, out);
    return out;
  };
  const auto raise = [&](const Linear& linear, const Tensor& narrow) {
    const Tensor out = take(width);
    ApplyLinear(ops_, narrow, linear, MatMulMode::kSet, out);
    return out;
  };
  const auto combine = [&](const Tensor& a, const Tensor& b, Binary op, const Tensor& out) {
    ops_.rows->Combine(a, b, op, out);
  };
  const Tensor queries = project(0, width), keys = project(2, width);

  const Tensor decays = project(1, state.decay_rank);
  ops_.rows->SoftCap(decays, 1.0f, decays);
  const Tensor rates = raise(w.decays, decays);
  ops_.rows->Activate(rates, Activation::kSigmoid, rates);
  ops_.rows->Affine(rates, -kMostDecay, 0.0f, rates);

  const Tensor shares = raise(w.writes, project(4, state.write_rank));
  ops_.rows->Activate(shares, Activation::kSigmoid, shares);

  const Tensor opened = project(5, state.gate_rank);
  ops_.rows->Activate(opened, Activation::kSigmoid, opened);
  const Tensor gates = raise(w.gates, opened);

  Tensor values =
      first ? Take(ScratchSlot::kFirstValues, DType::kF32, {rows_, width}) : take(width);
  if (first) {
    ProjectMixed(w.mixed[3], x, differences, values);
    first_values_ = values;
  } else {
    // Values and the narrow rows of their shares are made of the same rows.
    const Tensor both = Take(ScratchSlot::kSelected, DType::kF32, {rows_, width + value_rank});
    ProjectMixed(w.mixed[3], x, differences, both);
    const Tensor narrow = take(value_rank);
    ops_.rows->Convert(Columns(both, 0, width), values);
    ops_.rows->Convert(Columns(both, width, width + value_rank), narrow);
    const Tensor share = Take(ScratchSlot::kMixed, DType::kF32, {rows_, width});
    ApplyLinear(ops_, narrow, w.values, MatMulMode::kSet, share);
    ops_.rows->Activate(share, Activation::kSigmoid, share);
    const Tensor gained = Columns(both, 0, width);
    combine(first_values_, values, Binary::kSubtract, gained);
    combine(gained, share, Binary::kMultiply, gained);
    combine(values, gained, Binary::kAdd, values);
  }

  // What is looked up: keys of length 1, scaled before; what is found there is taken away.
  const Tensor finds = take(width), writes = take(width);
  combine(keys, w.find_scale.weight, Binary::kMultiply, finds);
  const Tensor heads_of = AsHeads(finds, heads);
  ops_.rows->RmsNorm(heads_of, w.query_norm.weight, 0.0f,
                     kLeastSquare / static_cast<float>(state.key_dim), heads_of);
  combine(finds, shares, Binary::kMultiply, writes);
  ops_.rows->Affine(writes, -1.0f, 0.0f, writes);
  // Keys are weighed by how much is written.
  ops_.rows->Affine(shares, 1.0f, -1.0f, shares);
  combine(shares, w.key_scale.weight, Binary::kMultiply, shares);
  ops_.rows->Affine(shares, 1.0f, 1.0f, shares);
  combine(keys, shares, Binary::kMultiply, keys);

  const Tensor scanned = Take(ScratchSlot::kScanned, DType::kF32, {rows_, width});
  ForStates(layer, [&](int64_t row, int64_t rows, const Tensor& kept) {
    const auto of = [&](const Tensor& t) {
      return t.Slice(row, row + rows).Reshape({rows, heads, t.shape[1] / heads});
    };
    ops_.state->ScanDecays({.queries = of(queries),
                            .keys = of(keys),
                            .values = of(values),
                            .rates = of(rates),
                            .finds = of(finds),
                            .writes = of(writes)},
                           kept.Slice(past, past + heads * state.key_dim * state.value_dim)
                               .Reshape({heads, state.key_dim, state.value_dim}),
                           of(scanned));
  });
  NormScannedHeads(w, heads, scanned);

  // A row's own value, by what its query finds at its key.
  combine(queries, keys, Binary::kMultiply, queries);
  combine(queries, w.first.weight, Binary::kMultiply, queries);
  const Tensor own = Take(ScratchSlot::kSteps, DType::kF32, {rows_ * heads});
  ops_.rows->ReduceRows(AsHeads(queries, heads), Reduction::kSum, own);
  ops_.select->AddWeighted(AsHeads(values, heads), AsColumn(own), AsHeads(scanned, heads));
  combine(scanned, gates, Binary::kMultiply, scanned);
  return scanned;
}

void ForwardPass::MixedMlp(int64_t layer, const Tensor& x, Tensor out, MatMulMode mode) {
  const LayerWeights& w = weights_.layers[static_cast<size_t>(layer)];
  const StateConfig& state = *config_.state;
  const Tensor differences = Differences(layer, x, config_.StateNumbers(layer) - state.mlp_columns);
  const Tensor up = Take(ScratchSlot::kMlpUp, DType::kF32, {rows_, config_.ffn_size});
  ProjectMixed(w.mlp_mixed[0], x, differences, up);
  const Tensor activated = Activated(up);
  if (!config_.mlp_weighed) {
    ApplyLinear(ops_, activated, w.mlp.down, mode, out);
    return;
  }
  const int64_t hidden = config_.hidden_size;
  const Tensor weight = Take(ScratchSlot::kProjected, DType::kF32, {rows_, hidden});
  ProjectMixed(w.mlp_mixed[1], x, differences, weight);
  ops_.rows->Activate(weight, Activation::kSigmoid, weight);
  const Tensor given =
      mode == MatMulMode::kSet ? out : Take(ScratchSlot::kBranch, DType::kF32, {rows_, hidden});
  ApplyLinear(ops_, activated, w.mlp.down, MatMulMode::kSet, given);
  ops_.rows->Combine(given, weight, Binary::kMultiply, given);
  Multiply(given, Halved(layer));
  if (mode == MatMulMode::kAdd) ops_.rows->Combine(out, given, Binary::kAdd, out);
}

}  // namespace kvgauge

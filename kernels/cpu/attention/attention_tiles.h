// SPDX-License-Identifier: Apache-2.0
// The functions of attention_kernels.h as templates over a vector type. Included once per
// instruction set, by a file compiled for it; calls nothing that is not inlined, so no function
// compiled for a newer processor can end up in the shared part of the program.
#pragma once

#include <bit>
#include <cstring>
#include <limits>
#include <type_traits>

#include "cpu/attention/attention_chosen.h"
#include "cpu/attention/attention_codes.h"
#include "cpu/attention/attention_entry_tiles.h"
#include "cpu/attention/attention_fixed.h"
#include "cpu/attention/attention_kernels.h"
#include "cpu/attention/attention_numbers.h"
#include "cpu/attention/attention_products.h"
#include "cpu/attention/attention_scores.h"
#include "cpu/isa/inline.h"
#include "cpu/isa/vector_math.h"

namespace kvgauge {

// ---- Scores to probabilities. ----

template <class V, bool kSoftcap, bool kEntropy, bool kBf16, bool kExtras, bool kKeep = false>
SoftmaxState SoftmaxRow(const SoftmaxArgs& args) {
  using F = typename V::F;
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  constexpr int kGroup = V::kRegisters / 8;  // vectors side by side
  const ScoreRule<V, kSoftcap, kExtras> rule(args);
  float* scores = args.scores;
  const int from = args.begin / kVectorFloats * kVectorFloats;
  const int to = (args.end + kVectorFloats - 1) / kVectorFloats * kVectorFloats;
  const int inner = (args.begin + kVectorFloats - 1) / kVectorFloats * kVectorFloats;
  const int inner_end = args.end / kVectorFloats * kVectorFloats;

  F max = V::Set(kNothing);
  const auto edge = [&](int begin, int end) {
    for (int j = begin; j < end; j += V::kLanes) {
      const F s =
          V::Inside(j, args.begin, args.end, rule(V::Load(scores + j), j), V::Set(kNothing));
      V::Store(scores + j, s);
      max = V::Max(max, s);
    }
  };
  if (inner <= inner_end) {
    if (from < inner) edge(from, inner);
    F max_of[kGroup];
#pragma GCC unroll 4
    for (F& one : max_of) one = max;
    int j = inner;
    for (; j + kGroup * V::kLanes <= inner_end; j += kGroup * V::kLanes) {
#pragma GCC unroll 4
      for (int v = 0; v < kGroup; ++v) {
        const F s = rule(V::Load(scores + j + v * V::kLanes), j + v * V::kLanes);
        V::Store(scores + j + v * V::kLanes, s);
        max_of[v] = V::Max(max_of[v], s);
      }
    }
#pragma GCC unroll 4
    for (const F& one : max_of) max = V::Max(max, one);
    for (; j < inner_end; j += V::kLanes) {
      const F s = rule(V::Load(scores + j), j);
      V::Store(scores + j, s);
      max = V::Max(max, s);
    }
    if (inner_end < to) edge(inner_end, to);
  } else {
    edge(from, to);
  }

  SoftmaxState state = {V::MaxLanes(max), 0.0f, 0.0f};
  // A row of -inf scores counts as one that sees nothing; exp(-inf - -inf) would be NaN.
  const F shift = V::Set(state.max == kNothing ? 0.0f : state.max);
  const auto put = [&](int j, F p) {
    if constexpr (kExtras) {
      if (args.value_scale != nullptr && j >= from && j < to) {
        p = V::Mul(p, V::Load(args.value_scale + j));
      }
    }
    if constexpr (kBf16) {
      V::StoreBf16Normal(args.weights + j, p);
      if constexpr (kKeep) V::Store(scores + j, p);
    } else {
      V::Store(scores + j, p);
    }
  };
  F sum = V::Set(0.0f), weighted = V::Set(0.0f);
  for (int j = args.first; j < from; j += V::kLanes) put(j, V::Set(0.0f));
  const auto take = [&](int begin, auto& x) KVG_INLINE_LAMBDA {
    constexpr int kCount = std::extent_v<std::remove_reference_t<decltype(x)>>;
    F p[kCount];
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) {
      p[v] = x[v] = V::Sub(V::Load(scores + begin + v * V::kLanes), shift);
    }
    ExpEach<V>(p);
#pragma GCC unroll 4
    for (int v = 0; v < kCount; ++v) {
      sum = V::Add(sum, p[v]);
      // x may be -inf where p is 0.
      if constexpr (kEntropy) {
        weighted = V::Fma(p[v], V::Max(V::Set(kExpUnderflow), x[v]), weighted);
      }
      put(begin + v * V::kLanes, p[v]);
    }
  };
  int next = from;
  for (; next + kGroup * V::kLanes <= to; next += kGroup * V::kLanes) {
    F x[kGroup];
    take(next, x);
  }
  for (; next < to; next += V::kLanes) {
    F x[1];
    take(next, x);
  }
  for (int j = to; j < args.last; j += V::kLanes) put(j, V::Set(0.0f));
  state.sum = V::SumLanes(sum);
  state.weighted = V::SumLanes(weighted);
  // The maximum may have lost a NaN; the sum has not.
  if (state.sum != state.sum) state.max = state.sum;
  return state;
}

template <class V, bool kSoftcap, bool kEntropy, bool kBf16>
SoftmaxState SoftmaxByExtras(const SoftmaxArgs& args) {
  const bool extras = args.extras.any() || args.value_scale != nullptr;
  return extras ? SoftmaxRow<V, kSoftcap, kEntropy, kBf16, true>(args)
                : SoftmaxRow<V, kSoftcap, kEntropy, kBf16, false>(args);
}

template <class V, bool kSoftcap, bool kEntropy>
SoftmaxState SoftmaxByWeights(const SoftmaxArgs& args) {
  if constexpr (V::kHasBf16Dot) {
    if constexpr (!kEntropy) {
      if (args.weights != nullptr && args.keep) {
        return SoftmaxRow<V, kSoftcap, false, true, false, true>(args);
      }
    }
    if (args.weights != nullptr) return SoftmaxByExtras<V, kSoftcap, kEntropy, true>(args);
  }
  return SoftmaxByExtras<V, kSoftcap, kEntropy, false>(args);
}

template <class V>
SoftmaxState Softmax(const SoftmaxArgs& args) {
  if (args.softcap > 0) {
    return args.entropy ? SoftmaxByWeights<V, true, true>(args)
                        : SoftmaxByWeights<V, true, false>(args);
  }
  return args.entropy ? SoftmaxByWeights<V, false, true>(args)
                      : SoftmaxByWeights<V, false, false>(args);
}

template <class V>
void Merge(SoftmaxState& state, float* values, const SoftmaxState& part, const float* part_values,
           int count) {
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  if (part.max == kNothing) return;
  if (state.max == kNothing) {
    state = part;
    std::memcpy(values, part_values, sizeof(float) * static_cast<size_t>(count));
    return;
  }
  const float max = state.max > part.max ? state.max : part.max;
  const float fall_a = state.max - max, fall_b = part.max - max;
  typename V::F factors[2] = {V::Set(fall_a), V::Set(fall_b)};
  ExpEach<V>(factors);
  const typename V::F va = factors[0], vb = factors[1];
  const float a = va[0], b = vb[0];
  // The shift of the maximum moves every score of a side by the same amount. A fall that makes
  // the factor 0 may be infinite.
  const float sum_a = state.sum * a, sum_b = part.sum * b;
  state.weighted = (state.weighted * a + (a > 0 ? sum_a * fall_a : 0.0f)) +
                   (part.weighted * b + (b > 0 ? sum_b * fall_b : 0.0f));
  state.sum = sum_a + sum_b;
  state.max = max;
  for (int c = 0; c < count; c += V::kLanes) {
    const typename V::F old = V::Mul(V::Load(values + c), va);
    V::Store(values + c, V::Fma(V::Load(part_values + c), vb, old));
  }
}

template <class V, bool kSoftcap, bool kExtras>
void ProbabilitiesOf(const ProbabilityArgs& args) {
  const ScoreRule<V, kSoftcap, kExtras> rule(args);
  const typename V::F lse = V::Set(args.log_sum_exp), zero = V::Set(0.0f);
  for (int j = args.first; j < args.last; j += V::kLanes) {
    const typename V::F p = Exp<V>(V::Sub(rule(V::Load(args.scores + j), j), lse));
    V::Store(args.out + j, V::Inside(j, args.begin, args.end, p, zero));
  }
}

template <class V>
void Probabilities(const ProbabilityArgs& args) {
  if (args.extras.any()) {
    args.softcap > 0 ? ProbabilitiesOf<V, true, true>(args) : ProbabilitiesOf<V, false, true>(args);
  } else {
    args.softcap > 0 ? ProbabilitiesOf<V, true, false>(args)
                     : ProbabilitiesOf<V, false, false>(args);
  }
}

// ---- Column reductions. ----

template <class V>
struct SumColumns {
  explicit SumColumns(float) {}
  [[gnu::always_inline]] typename V::F operator()(typename V::F sum, typename V::F p,
                                                  typename V::F w) const {
    return V::Fma(w, p, sum);
  }
};
template <class V>
struct SumSquareColumns {
  explicit SumSquareColumns(float) {}
  [[gnu::always_inline]] typename V::F operator()(typename V::F sum, typename V::F p,
                                                  typename V::F w) const {
    return V::Fma(V::Mul(w, p), p, sum);
  }
};
template <class V>
struct MaxColumns {
  explicit MaxColumns(float) {}
  [[gnu::always_inline]] typename V::F operator()(typename V::F max, typename V::F p,
                                                  typename V::F w) const {
    return V::Max(max, V::Mul(w, p));
  }
};
template <class V>
struct CountColumns {
  typename V::F threshold;
  explicit CountColumns(float value) : threshold(V::Set(value)) {}
  [[gnu::always_inline]] typename V::F operator()(typename V::F sum, typename V::F p,
                                                  typename V::F w) const {
    return V::Add(sum, V::ZeroWhereLess(p, threshold, w));
  }
};

template <class V, class Fold, bool kSoftcap, bool kExtras>
void ReduceColumnsOf(const ColumnArgs& args) {
  using F = typename V::F;
  constexpr int kGroup = 2 * kVectorFloats / V::kLanes;  // vectors in flight, to hide latency
  const ScoreRule<V, kSoftcap, kExtras> rule(args);
  const Fold fold(args.threshold);
  for (int column = 0; column < kPanelWidth; column += kGroup * V::kLanes) {
    F sum[kGroup];
#pragma GCC unroll 8
    for (int v = 0; v < kGroup; ++v) sum[v] = V::Load(args.columns + column + v * V::kLanes);
    for (int r = 0; r < args.count; ++r) {
      const ColumnRow& row = args.rows[r];
      const float* scores = args.scores + int64_t{r} * kPanelWidth + column;
      const F lse = V::Set(row.log_sum_exp), weight = V::Set(row.weight);
      F p[kGroup];
#pragma GCC unroll 8
      for (int v = 0; v < kGroup; ++v) {
        const int j = column + v * V::kLanes;
        p[v] = Exp<V>(V::Sub(rule(V::Load(scores + v * V::kLanes), j), lse));
      }
      if (row.begin <= column && column + kGroup * V::kLanes <= row.end) {
#pragma GCC unroll 8
        for (int v = 0; v < kGroup; ++v) {
          sum[v] = rule.Read(column + v * V::kLanes, fold(sum[v], p[v], weight), sum[v]);
        }
      } else {
#pragma GCC unroll 8
        for (int v = 0; v < kGroup; ++v) {
          const int j = column + v * V::kLanes;
          const F folded = rule.Read(j, fold(sum[v], p[v], weight), sum[v]);
          sum[v] = V::Inside(j, row.begin, row.end, folded, sum[v]);
        }
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < kGroup; ++v) V::Store(args.columns + column + v * V::kLanes, sum[v]);
  }
}

template <class V, class Fold>
void ReduceColumnsBy(const ColumnArgs& args) {
  if (args.extras.any()) {
    args.softcap > 0 ? ReduceColumnsOf<V, Fold, true, true>(args)
                     : ReduceColumnsOf<V, Fold, false, true>(args);
  } else {
    args.softcap > 0 ? ReduceColumnsOf<V, Fold, true, false>(args)
                     : ReduceColumnsOf<V, Fold, false, false>(args);
  }
}

template <class V>
void ReduceColumns(const ColumnArgs& args) {
  switch (args.kind) {
    case ColumnReduction::kSum:
      return ReduceColumnsBy<V, SumColumns<V>>(args);
    case ColumnReduction::kSumSquares:
      return ReduceColumnsBy<V, SumSquareColumns<V>>(args);
    case ColumnReduction::kMax:
      return ReduceColumnsBy<V, MaxColumns<V>>(args);
    case ColumnReduction::kCountAbove:
      return ReduceColumnsBy<V, CountColumns<V>>(args);
  }
}

template <class V>
void AddWeighted(const WeightedRows& args) {
  using F = typename V::F;
  constexpr int kGroup = 2 * kVectorFloats / V::kLanes;
  for (int column = 0; column < args.width; column += kGroup * V::kLanes) {
    F sum[kGroup];
#pragma GCC unroll 8
    for (int v = 0; v < kGroup; ++v) sum[v] = V::Load(args.sums + column + v * V::kLanes);
    for (int r = 0; r < args.count; ++r) {
      const F factor = V::Set(args.factors[r]);
      const float* row = args.rows + r * args.stride + column;
#pragma GCC unroll 8
      for (int v = 0; v < kGroup; ++v) {
        sum[v] = V::Fma(factor, V::Load(row + v * V::kLanes), sum[v]);
      }
    }
#pragma GCC unroll 8
    for (int v = 0; v < kGroup; ++v) V::Store(args.sums + column + v * V::kLanes, sum[v]);
  }
}

// ---- Rotation. ----

// One step of a panel: columns [column, column + lanes).
template <class V, DType kPanel>
[[gnu::always_inline]] inline typename V::F LoadStep(const void* panel, int step, int column) {
  if constexpr (kPanel == DType::kF32) {
    return V::Load(static_cast<const float*>(panel) + step * kPanelWidth + column);
  } else if constexpr (kPanel == DType::kF16) {
    return V::LoadF16(static_cast<const uint16_t*>(panel) + step * kPanelWidth + column);
  } else {
    const auto* pairs = static_cast<const uint16_t*>(panel) + step / 2 * 2 * kPanelWidth;
    return step % 2 == 0 ? V::LoadFirst(pairs + 2 * column) : V::LoadSecond(pairs + 2 * column);
  }
}

template <class V, DType kPanel>
void Rotate(const RotateArgs& args) {
  const float *cos = args.cos, *sin = args.sin;
  for (int k = args.first; k < args.last; ++k, cos += args.stride, sin += args.stride) {
    const int x = k * args.step, y = x + args.other;
#pragma GCC unroll 8
    for (int e = 0; e < kPanelWidth; e += V::kLanes) {
      const typename V::F a = LoadStep<V, kPanel>(args.panel, x, e);
      const typename V::F b = LoadStep<V, kPanel>(args.panel, y, e);
      const typename V::F c = V::Load(cos + e), s = V::Load(sin + e);
      V::Store(args.out + x * kPanelWidth + e, V::Sub(V::Mul(a, c), V::Mul(b, s)));
      V::Store(args.out + y * kPanelWidth + e, V::Fma(b, c, V::Mul(a, s)));
    }
  }
}

// ---- Elementwise. ----

template <class V, class Function>
[[gnu::always_inline]] inline void ForVectors(const float* in, int64_t n, Function f) {
  int64_t i = 0;
  for (; i + V::kLanes <= n; i += V::kLanes) f(i, V::Load(in + i), V::kLanes);
  if (i < n) {
    float rest[kVectorFloats] = {};
    std::memcpy(rest, in + i, sizeof(float) * static_cast<size_t>(n - i));
    f(i, V::Load(rest), static_cast<int>(n - i));
  }
}

template <class V>
void ToF16(const float* in, int64_t n, uint16_t* out) {
  ForVectors<V>(in, n, [out](int64_t i, typename V::F x, int count) {
    if (count == V::kLanes) {
      V::StoreF16(out + i, x);
      return;
    }
    uint16_t halves[kVectorFloats];
    V::StoreF16(halves, x);
    std::memcpy(out + i, halves, sizeof(uint16_t) * static_cast<size_t>(count));
  });
}

template <class V>
void ToBf16(const float* in, int64_t n, uint16_t* out) {
  ForVectors<V>(in, n, [out](int64_t i, typename V::F x, int count) {
    if (count == V::kLanes) {
      V::StoreBf16(out + i, x);
      return;
    }
    uint16_t rounded[kVectorFloats];
    V::StoreBf16(rounded, x);
    std::memcpy(out + i, rounded, sizeof(uint16_t) * static_cast<size_t>(count));
  });
}

template <class V>
inline typename V::F RoundF16(typename V::F x) {
  uint16_t halves[V::kLanes];
  V::StoreF16(halves, x);
  return V::LoadF16(halves);
}

template <class V, typename V::F (*kFunction)(typename V::F)>
void Map(const float* in, int64_t n, float* out) {
  ForVectors<V>(in, n, [out](int64_t i, typename V::F x, int count) {
    if (count == V::kLanes) {
      V::Store(out + i, kFunction(x));
      return;
    }
    float results[kVectorFloats];
    V::Store(results, kFunction(x));
    std::memcpy(out + i, results, sizeof(float) * static_cast<size_t>(count));
  });
}

template <class V, class P, DType kPanel>
constexpr void SetProducts(AttentionKernels& k) {
  constexpr int kAt = static_cast<int>(kPanel);
  k.product[kAt] = &Product<V, P>;
  k.chosen_keys[kAt] = &ChosenKeys<V, P>;
  k.chosen_values[kAt] = &ChosenValues<V, P>;
  k.turn_rows[kAt] = &TurnRows<V, kPanel>;
  k.entry_keys[kAt] = &EntryKeys<V, P, kPanel>;
  k.entry_values[kAt] = &EntryValues<V, kPanel>;
}

template <class V, class P>
constexpr void SetNumbers(AttentionKernels& k, NumberForm form) {
  k.number_product[static_cast<int>(form)] = &NumberProduct<V, P>;
}

template <class V>
constexpr AttentionKernels MakeAttentionKernels() {
  AttentionKernels k = {};
  k.bf16_dot = V::kHasBf16Dot;
  k.lanes = V::kLanes;
  SetProducts<V, F32Panel<V>, DType::kF32>(k);
  SetProducts<V, F16Panel<V>, DType::kF16>(k);
  if constexpr (V::kHasBf16Dot) {
    SetProducts<V, Bf16DotPanel<V>, DType::kBF16>(k);
  } else {
    SetProducts<V, Bf16Panel<V>, DType::kBF16>(k);
  }
  k.entry_softmax = &EntrySoftmax<V>;
  k.expand[static_cast<int>(DType::kF16)] = &ExpandF16<V>;
  k.expand[static_cast<int>(DType::kBF16)] = &ExpandBf16<V>;
  k.fold[0] = &Fold<V>;
  k.coded_product[0][0] = &CodedProduct<V, 2>;
  k.coded_product[0][1] = &CodedProduct<V, 3>;
  k.coded_product[0][2] = &CodedProduct<V, 4>;
  k.fixed_codes = V::kHasWordDot;
  if constexpr (V::kHasWordDot) {
    k.fold[1] = &FoldFixed<V>;
    k.coded_product[1][0] = &FixedProduct<V, 2>;
    k.coded_product[1][1] = &FixedProduct<V, 3>;
    k.coded_product[1][2] = &FixedProduct<V, 4>;
  }
  k.byte_scales = V::kLoadsE4M3;
  k.scale_rows = &ScaleRows<V>;
  SetNumbers<V, Float8Numbers<V, 3>>(k, NumberForm::kE4M3);
  SetNumbers<V, Float8Numbers<V, 2>>(k, NumberForm::kE5M2);
  SetNumbers<V, ByteNumbers<V>>(k, NumberForm::kByte);
  SetNumbers<V, TableNumbers<V>>(k, NumberForm::kTable);
  if constexpr (V::kHasBf16Dot) {
    // For processors that multiply denormals as fast as other numbers.
    k.raise_rows = &RaiseRows<V>;
    SetNumbers<V, RaisedFloat8Numbers<V>>(k, NumberForm::kRaisedE4M3);
  }
  if constexpr (V::kHasWordTable) {
    SetNumbers<V, ShortTableNumbers<V>>(k, NumberForm::kShortTable);
  } else {
    SetNumbers<V, TableNumbers<V>>(k, NumberForm::kShortTable);
  }
  k.softmax = &Softmax<V>;
  k.merge = &Merge<V>;
  k.probabilities = &Probabilities<V>;
  k.reduce_columns = &ReduceColumns<V>;
  k.add_weighted = &AddWeighted<V>;
  k.rotate[static_cast<int>(DType::kF32)] = &Rotate<V, DType::kF32>;
  k.rotate[static_cast<int>(DType::kF16)] = &Rotate<V, DType::kF16>;
  k.rotate[static_cast<int>(DType::kBF16)] = &Rotate<V, DType::kBF16>;
  k.to_f16 = &ToF16<V>;
  k.to_bf16 = &ToBf16<V>;
  k.round_f16 = &Map<V, &RoundF16<V>>;
  k.exp = &Map<V, &Exp<V>>;
  k.tanh = &Map<V, &Tanh<V>>;
  return k;
}

}  // namespace kvgauge

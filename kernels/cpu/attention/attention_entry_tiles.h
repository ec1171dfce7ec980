// SPDX-License-Identifier: Apache-2.0
// Attention over entries of pages by entry, as templates over a vector type; see
// attention_tiles.h. The entries that are read are all that is touched, wherever they lie; every
// sum has the links it would have among all entries, in the same order, but for zeros.
#pragma once

#include <cstring>
#include <limits>
#include <type_traits>

#include "cpu/attention/attention_chosen.h"
#include "cpu/attention/attention_kernels.h"
#include "cpu/attention/attention_lines.h"
#include "cpu/attention/attention_scores.h"
#include "cpu/isa/vector_math.h"

namespace kvgauge {

template <class V>
[[gnu::always_inline]] inline int Least(int a, int b) {
  return a < b ? a : b;
}

// f(constant) for `rows`, 1 to kRowsTogether.
template <class V, class Function>
[[gnu::always_inline]] inline void WithRows(int rows, Function f) {
  static_assert(kRowsTogether == 4);
  if (rows == 1) f(std::integral_constant<int, 1>());
  if (rows == 2) f(std::integral_constant<int, 2>());
  if (rows == 3) f(std::integral_constant<int, 3>());
  if (rows == 4) f(std::integral_constant<int, 4>());
}

// ---- Keys. ----

// How often four words of V::kLanes entries are taken; those that remain of a row count as four.
template <class V>
[[gnu::always_inline]] inline int StepsOfWords(int entries, int words) {
  return (entries + V::kLanes - 1) / V::kLanes * ((words + 3) / 4);
}

// V::kLanes entries from `first` on, the last one again where there are no more: take(w, x) for
// each word in turn, and begin(w) in front of every four.
template <class V, class Begin, class Take>
[[gnu::always_inline]] inline void ForWords(const EntryKeysArgs& args, int first, Begin begin,
                                            Take take) {
  const char* some[V::kLanes];
  const int last = args.count - 1;
  for (int i = 0; i < V::kLanes; ++i) some[i] = args.keys[first + i < last ? first + i : last];
  const int words = args.steps / 2;
  int w = 0;
  for (; w + 4 <= words; w += 4) {
    typename V::Words x[4];
    V::TurnWords(some, 4 * w, x);
    begin(w);
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) take(w + i, x[i]);
  }
  if (w < words) begin(w);
  for (; w < words; ++w) {
    uint32_t of_entries[V::kLanes];
    for (int i = 0; i < V::kLanes; ++i) std::memcpy(of_entries + i, some[i] + 4 * w, 4);
    take(w, V::LoadWords(of_entries));
  }
}

// The products of V::kLanes entries stand side by side.
template <class V, int kRows>
[[gnu::always_inline]] inline void StoreProducts(const typename V::F (&sum)[kRows], float* out) {
  const typename V::F zero = V::Set(0.0f);
  V::StoreSideBySide(out, sum[0], kRows > 1 ? sum[1 % kRows] : zero,
                     kRows > 2 ? sum[2 % kRows] : zero, kRows > 3 ? sum[3 % kRows] : zero);
}

// Pairs of bf16 are multiplied as the turning leaves them in registers: both go on side by side.
template <class V, int kRows>
[[gnu::noinline]] void DotKeys(const EntryKeysArgs& args, int row, int first, RowFeed<V>& feed) {
  const auto* a = static_cast<const uint16_t*>(args.a) + row * args.a_stride;
  typename V::F sum[kRows];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) sum[r] = V::Set(0.0f);
  ForWords<V>(
      args, first, [&](int) KVG_INLINE_LAMBDA { feed.Step(); },
      [&](int w, typename V::Words x) KVG_INLINE_LAMBDA {
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          sum[r] = V::DotPairs(sum[r], V::SetPairs(a + r * args.a_stride + 2 * w), x);
        }
      });
  StoreProducts<V>(sum, args.out + row * kAttentionSpan + first * kRowsTogether);
}

template <class V, class P, DType kPanel>
void EntryKeys(const EntryKeysArgs& args) {
  if constexpr (V::kHasBf16Dot && kPanel == DType::kBF16) {
    RowFeed<V> feed(args.next, StepsOfWords<V>(args.count, args.steps / 2));
    for (int row = 0; row < args.rows; row += kRowsTogether) {
      WithRows<V>(Least<V>(kRowsTogether, args.rows - row), [&](auto rows) KVG_INLINE_LAMBDA {
        for (int i = 0; i < args.count; i += V::kLanes) DotKeys<V, rows>(args, row, i, feed);
      });
    }
  } else {
    constexpr int kElement = kPanel == DType::kF32 ? 4 : 2;
    const int words = kPanel == DType::kF32 ? args.steps : (args.steps + 1) / 2;
    RowFeed<V> feed(args.next, StepsOfWords<V>(args.count, words));
    for (int first = 0; first < args.count; first += kPanelWidth) {
      const int count = Least<V>(kPanelWidth, args.count - first);
      TurnRowsFed<V, kPanel>(args.keys + first, count, args.steps, args.panel, feed);
      constexpr int kUnits = kPanelWidth / kVectorFloats;
      const void* columns[kUnits];
      for (int u = 0; u < kUnits; ++u) {
        columns[u] = args.panel + u * kVectorFloats * kElement * P::kStepsPerRow;
      }
      alignas(64) float products[kRowsTogether][kPanelWidth] = {};
      for (int row = 0; row < args.rows; row += kRowsTogether) {
        const int rows = Least<V>(kRowsTogether, args.rows - row);
        ChosenKeys<V, P>({static_cast<const typename P::A*>(args.a) + row * args.a_stride,
                          args.a_stride,
                          rows,
                          columns,
                          (count + kVectorFloats - 1) / kVectorFloats,
                          args.steps,
                          products[0],
                          kPanelWidth,
                          {nullptr, 0}});
        float* out = args.out + row * kAttentionSpan + first * kRowsTogether;
        for (int i = 0; i < count; i += V::kLanes) {
          V::StoreSideBySide(out + i * kRowsTogether, V::Load(products[0] + i),
                             V::Load(products[1] + i), V::Load(products[2] + i),
                             V::Load(products[3] + i));
        }
      }
    }
  }
}

// ---- Softmax. ----

// Lane c of a row's sum is that of the columns c modulo V::kLanes, as in SoftmaxRow; then halves
// are added, as V::SumLanes does.
template <class V, bool kSoftcap, bool kEntropy, bool kBf16>
void EntrySoftmaxOf(const EntrySoftmaxArgs& args) {
  using F = typename V::F;
  using Four [[gnu::vector_size(16)]] = float;
  constexpr float kNothing = -std::numeric_limits<float>::infinity();
  constexpr int kGroup = 2;  // vectors side by side
  constexpr int kOfVector = V::kLanes / kRowsTogether;
  const ScoreRule<V, kSoftcap, true> rule(args);
  float* scores = args.scores;
  const int end =
      (args.count * kRowsTogether + kGroup * V::kLanes - 1) / (kGroup * V::kLanes) * kGroup;

  F max = V::Set(kNothing);
  for (int v = 0; v < end; ++v) {
    const F s = rule(V::Load(scores + v * V::kLanes), v * V::kLanes);
    V::Store(scores + v * V::kLanes, s);
    max = V::Max(max, s);
  }
  float lanes[V::kLanes], shifts[V::kLanes];
  V::Store(lanes, max);
  for (int r = 0; r < kRowsTogether; ++r) {
    float most = kNothing;
    for (int i = r; i < V::kLanes; i += kRowsTogether) most = lanes[i] > most ? lanes[i] : most;
    args.states[r].max = most;
    for (int i = r; i < V::kLanes; i += kRowsTogether) shifts[i] = most == kNothing ? 0.0f : most;
  }
  const F shift = V::Load(shifts);

  Four sums[V::kLanes] = {};
  float weighted[V::kLanes][V::kLanes] = {};  // the first kRowsTogether of each
  for (int v = 0; v < end; v += kGroup) {
    F p[kGroup], x[kGroup];
#pragma GCC unroll 2
    for (int k = 0; k < kGroup; ++k) {
      p[k] = x[k] = V::Sub(V::Load(scores + (v + k) * V::kLanes), shift);
    }
    ExpEach<V>(p);
#pragma GCC unroll 2
    for (int k = 0; k < kGroup; ++k) {
      const int j = (v + k) * V::kLanes, first = (v + k) * kOfVector;
      V::Store(scores + j, p[k]);
      for (int i = 0; i < kOfVector && first + i < args.count; ++i) {
        Four of_entry;
        std::memcpy(&of_entry, scores + j + i * kRowsTogether, sizeof(of_entry));
        sums[args.at[first + i] % V::kLanes] += of_entry;
      }
      if constexpr (kEntropy) {
        float of_vector[2 * V::kLanes] = {}, differences[2 * V::kLanes] = {};
        V::Store(of_vector, p[k]);
        V::Store(differences, V::Max(V::Set(kExpUnderflow), x[k]));
        for (int i = 0; i < kOfVector && first + i < args.count; ++i) {
          float* sum = weighted[args.at[first + i] % V::kLanes];
          V::Store(sum, V::Fma(V::Load(of_vector + i * kRowsTogether),
                               V::Load(differences + i * kRowsTogether), V::Load(sum)));
        }
      }
      if (args.value_scale != nullptr) p[k] = V::Mul(p[k], V::Load(args.value_scale + j));
      if constexpr (kBf16) {
        uint16_t rounded[V::kLanes];
        V::StoreBf16Normal(rounded, p[k]);
        p[k] = V::LoadBf16(rounded);
      }
      if (kBf16 || args.value_scale != nullptr) V::Store(scores + j, p[k]);
    }
  }
  for (int half = V::kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) {
      sums[i] += sums[i + half];
      for (int r = 0; kEntropy && r < kRowsTogether; ++r) weighted[i][r] += weighted[i + half][r];
    }
  }
  for (int r = 0; r < kRowsTogether; ++r) {
    args.states[r].sum = sums[0][r];
    args.states[r].weighted = weighted[0][r];
    // The maximum may have lost a NaN; the sum has not.
    if (sums[0][r] != sums[0][r]) args.states[r].max = sums[0][r];
  }
}

template <class V, bool kSoftcap, bool kEntropy>
void EntrySoftmaxByWeights(const EntrySoftmaxArgs& args) {
  if constexpr (V::kHasBf16Dot) {
    if (args.bf16) return EntrySoftmaxOf<V, kSoftcap, kEntropy, true>(args);
  }
  return EntrySoftmaxOf<V, kSoftcap, kEntropy, false>(args);
}

template <class V>
void EntrySoftmax(const EntrySoftmaxArgs& args) {
  if (args.softcap > 0) {
    return args.entropy ? EntrySoftmaxByWeights<V, true, true>(args)
                        : EntrySoftmaxByWeights<V, true, false>(args);
  }
  return args.entropy ? EntrySoftmaxByWeights<V, false, true>(args)
                      : EntrySoftmaxByWeights<V, false, false>(args);
}

// ---- Values. ----

template <class V, DType kType>
[[gnu::always_inline]] inline typename V::F LoadNumbers(const char* row, int column) {
  if constexpr (kType == DType::kF32) {
    return V::Load(reinterpret_cast<const float*>(row) + column);
  } else if constexpr (kType == DType::kF16) {
    return V::LoadF16(reinterpret_cast<const uint16_t*>(row) + column);
  } else {
    return V::LoadBf16(reinterpret_cast<const uint16_t*>(row) + column);
  }
}

// kRows rows by kVectors vectors of columns.
template <class V, DType kType, int kRows, int kVectors>
[[gnu::noinline]] void EntryValuesTile(const EntryValuesArgs& args, int column) {
  using F = typename V::F;
  RowFeed<V> feed(column == 0 ? args.next : WantedRows{}, args.count);
  F sum[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[r][v] = V::Set(0.0f);
  }
  const float* weights = args.weights;
  for (int i = 0; i < args.count; ++i, weights += kRowsTogether) {
    F b[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      b[v] = LoadNumbers<V, kType>(args.values[i], column + v * V::kLanes);
    }
    feed.Step();
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const F weight = V::Set(weights[r]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) sum[r][v] = V::Fma(weight, b[v], sum[r][v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      V::Store(args.out + r * args.out_stride + column + v * V::kLanes, sum[r][v]);
    }
  }
}

// 2 * V::kLanes columns of a row of bf16: the low and the high halves of words, so that no lane
// moves before sums are stored.
template <class V>
struct WordColumns {
  using F = typename V::F;
  static constexpr int kVectors = 2, kWidth = 2 * V::kLanes;
  [[gnu::always_inline]] static void Load(const uint16_t* p, F* b) {
    b[0] = V::LoadFirst(p);
    b[1] = V::LoadSecond(p);
  }
  // Pairs of two rows.
  template <class Pairs>
  [[gnu::always_inline]] static void Join(const uint16_t* p, const uint16_t* q, Pairs* b) {
    const Pairs x = V::LoadPairs(p), y = V::LoadPairs(q);
    b[0] = V::JoinLowHalves(x, y);
    b[1] = V::JoinHighHalves(x, y);
  }
  [[gnu::always_inline]] static void Store(float* p, const F* sums) {
    V::StoreInTurn(p, sums[0], sums[1]);
  }
};
// V::kLanes columns.
template <class V>
struct HalfColumns {
  using F = typename V::F;
  static constexpr int kVectors = 1, kWidth = V::kLanes;
  [[gnu::always_inline]] static void Load(const uint16_t* p, F* b) { b[0] = V::LoadBf16(p); }
  template <class Pairs>
  [[gnu::always_inline]] static void Join(const uint16_t* p, const uint16_t* q, Pairs* b) {
    b[0] = V::JoinPairs(p, q);
  }
  [[gnu::always_inline]] static void Store(float* p, const F* sums) { V::Store(p, sums[0]); }
};

// Whether entry i of those at `at` is the first of a pair whose other one is there, too.
template <class V>
[[gnu::always_inline]] inline bool BeginsPair(const EntryValuesArgs& args, int i) {
  return i + 1 < args.count && args.at[i] % 2 == 0 && args.at[i + 1] == args.at[i] + 1;
}

// An entry without its partner is multiplied in f32, where the product is exact: the sum has the
// bits of a pair with 0, in half the time. The weights of a pair are bf16 in one word.
template <class V, class Columns, int kRows, int kStrips>
[[gnu::noinline]] void DotValuesTile(const EntryValuesArgs& args, int column) {
  using F = typename V::F;
  constexpr int kVectors = Columns::kVectors;
  RowFeed<V> feed(column == 0 ? args.next : WantedRows{}, args.count);
  F sum[kRows][kStrips][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int s = 0; s < kStrips; ++s) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[r][s][v] = V::Set(0.0f);
    }
  }
  for (int i = 0; i < args.count; ++i) {
    const float* weights = args.weights + i * kRowsTogether;
    const auto* row = reinterpret_cast<const uint16_t*>(args.values[i]) + column;
    feed.Step();
    if (BeginsPair<V>(args, i)) [[unlikely]] {
      const auto* second = reinterpret_cast<const uint16_t*>(args.values[++i]) + column;
#pragma GCC unroll 4
      for (int s = 0; s < kStrips; ++s) {
        typename V::Pairs b[kVectors];
        Columns::Join(row + s * Columns::kWidth, second + s * Columns::kWidth, b);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const auto pair = V::SetPairs(reinterpret_cast<const uint16_t*>(weights + r));
#pragma GCC unroll 2
          for (int v = 0; v < kVectors; ++v) sum[r][s][v] = V::DotPairs(sum[r][s][v], pair, b[v]);
        }
      }
      continue;
    }
#pragma GCC unroll 4
    for (int s = 0; s < kStrips; ++s) {
      F b[kVectors];
      Columns::Load(row + s * Columns::kWidth, b);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const F weight = V::Set(weights[r]);
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) sum[r][s][v] = V::Fma(weight, b[v], sum[r][s][v]);
      }
    }
  }
  // A sum that fell below all normal numbers may be -0, where a pair's never is.
  const F zero = V::Set(0.0f);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int s = 0; s < kStrips; ++s) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) sum[r][s][v] = V::Add(sum[r][s][v], zero);
      Columns::Store(args.out + r * args.out_stride + column + s * Columns::kWidth, sum[r][s]);
    }
  }
}

template <class V, int kRows>
void DotValues(const EntryValuesArgs& args) {
  for (int i = 0; i + 1 < args.count; ++i) {
    if (!BeginsPair<V>(args, i)) continue;
    float* weights = args.weights + i * kRowsTogether;
    for (int r = 0; r < kRows; ++r) {
      uint32_t first, second;
      std::memcpy(&first, weights + r, 4);
      std::memcpy(&second, weights + kRowsTogether + r, 4);
      first = first >> 16 | (second & 0xffff0000u);
      std::memcpy(weights + r, &first, 4);
    }
    ++i;
  }
  const typename V::DotScope scope;
  constexpr int kWide = 2 * V::kLanes, kStrips = kRows == 1 ? 4 : 2;
  int column = 0;
  for (; column + kStrips * kWide <= args.width; column += kStrips * kWide) {
    DotValuesTile<V, WordColumns<V>, kRows, kStrips>(args, column);
  }
  for (; column + kWide <= args.width; column += kWide) {
    DotValuesTile<V, WordColumns<V>, kRows, 1>(args, column);
  }
  if (column < args.width) DotValuesTile<V, HalfColumns<V>, kRows, 1>(args, column);
}

template <class V, DType kType>
void EntryValues(const EntryValuesArgs& args) {
  WithRows<V>(args.rows, [&](auto rows) KVG_INLINE_LAMBDA {
    if constexpr (V::kHasBf16Dot && kType == DType::kBF16) {
      DotValues<V, rows>(args);
    } else {
      constexpr int kMost = rows == 1 && V::kRegisters == 32 ? 8 : V::kRegisters / 8;
      int column = 0;
      for (; column + kMost * V::kLanes <= args.width; column += kMost * V::kLanes) {
        EntryValuesTile<V, kType, rows, kMost>(args, column);
      }
      for (; column < args.width; column += V::kLanes) {
        EntryValuesTile<V, kType, rows, 1>(args, column);
      }
    }
  });
}

}  // namespace kvgauge

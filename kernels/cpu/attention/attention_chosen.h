// SPDX-License-Identifier: Apache-2.0
// Products over chosen entries, as templates over a vector type; see attention_tiles.h. An element
// of a result is the chain of the dense product without the links that are zero, so it has the same
// bits.
#pragma once

#include <cstring>

#include "cpu/attention/attention_kernels.h"
#include "cpu/attention/attention_lines.h"
#include "cpu/attention/attention_products.h"

namespace kvgauge {

// kRows rows by kUnits times 16 columns, sums held in registers.
template <class V, class P, int kRows, int kUnits>
[[gnu::noinline]] void ChosenKeysTile(const ChosenKeysArgs& args, int row, int unit) {
  using Element = typename P::Element;
  using F = typename V::F;
  constexpr int kParts = kVectorFloats / V::kLanes, kVectors = kUnits * kParts;
  const auto* a = static_cast<const typename P::A*>(args.a) + row * args.a_stride;
  float* out = args.out + row * args.out_stride + unit * kVectorFloats;
  const Element* columns[kUnits];
#pragma GCC unroll 4
  for (int u = 0; u < kUnits; ++u) columns[u] = static_cast<const Element*>(args.columns[unit + u]);
  // The first rows ask for lines, each tile for its part.
  const int lines = row == 0 ? args.lines.count : 0;
  LineFeed<V> feed(args.lines.at + lines * unit / args.count,
                   args.lines.at + lines * (unit + kUnits) / args.count,
                   args.steps / P::kStepsPerRow);

  F sum[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = V::Set(0.0f);
  }
  int64_t at = 0;
  for (int s = 0; s < args.steps; s += P::kStepsPerRow, at += kPanelWidth * P::kStepsPerRow) {
    typename P::Columns b[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      b[v] = P::Load(columns[v / kParts] + at + v % kParts * V::kLanes * P::kStepsPerRow);
    }
    feed.Step();
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const typename P::Scalar x = P::LoadScalar(a + r * args.a_stride + s);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = P::Fma(x, b[v], sum[r][v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      V::Store(out + r * args.out_stride + v * V::kLanes, sum[r][v]);
    }
  }
}

template <class V, class P, int kRows>
void ChosenKeysOfRows(const ChosenKeysArgs& args, int row) {
  constexpr int kParts = kVectorFloats / V::kLanes;
  int unit = 0;
  if constexpr (V::kTileVectors / kParts >= 4) {
    for (; unit + 4 <= args.count; unit += 4) ChosenKeysTile<V, P, kRows, 4>(args, row, unit);
  }
  if constexpr (V::kTileVectors / kParts >= 2) {
    for (; unit + 2 <= args.count; unit += 2) ChosenKeysTile<V, P, kRows, 2>(args, row, unit);
  }
  for (; unit < args.count; ++unit) ChosenKeysTile<V, P, kRows, 1>(args, row, unit);
}

// kRows rows by kVectors vectors of columns. kApart: of rows that are joined to pairs.
template <class V, class P, bool kApart, int kRows, int kVectors>
[[gnu::noinline]] void ChosenValuesTile(const ChosenValuesArgs& args, int row, int column) {
  using Element = typename P::Element;
  using F = typename V::F;
  const auto* a = static_cast<const typename P::A*>(args.a) + row * args.a_stride;
  float* out = args.out + row * args.out_stride + column;
  LineFeed<V> feed(args.lines.at, args.lines.at + (row + column == 0 ? args.lines.count : 0),
                   args.count);

  F sum[kRows][kVectors];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[r][v] = V::Set(0.0f);
  }
  for (int i = 0; i < args.count; ++i) {
    constexpr int kWidth = kApart ? 1 : P::kStepsPerRow;  // of a column
    const Element* step = static_cast<const Element*>(args.steps[i]) + column * kWidth;
    typename P::Columns b[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kApart) {
        const Element* second = static_cast<const Element*>(args.seconds[i]) + column;
        b[v] = P::Join(step + v * V::kLanes, second + v * V::kLanes);
      } else {
        b[v] = P::Load(step + v * V::kLanes * kWidth);
      }
    }
    feed.Step();
    const int at = args.at[i];
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      const typename P::Scalar x = P::LoadScalar(a + r * args.a_stride + at);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] = P::Fma(x, b[v], sum[r][v]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      V::Store(out + r * args.out_stride + v * V::kLanes, sum[r][v]);
    }
  }
}

template <class V, class P, bool kApart, int kRows>
void ChosenValuesOfRows(const ChosenValuesArgs& args, int row) {
  int column = 0;
  if constexpr (V::kTileVectors >= 4) {
    for (; column + 4 * V::kLanes <= args.width; column += 4 * V::kLanes) {
      ChosenValuesTile<V, P, kApart, kRows, 4>(args, row, column);
    }
  }
  if constexpr (V::kTileVectors >= 2) {
    for (; column + 2 * V::kLanes <= args.width; column += 2 * V::kLanes) {
      ChosenValuesTile<V, P, kApart, kRows, 2>(args, row, column);
    }
  }
  for (; column < args.width; column += V::kLanes) {
    ChosenValuesTile<V, P, kApart, kRows, 1>(args, row, column);
  }
}

// Rows of keys become columns of a panel, as AttentionKernels::turn_rows says. Words of a row: a
// step in f32, and two of them in the other types.
template <class V, DType kPanel>
void TurnRows(const char* const* rows, int count, int steps, void* panel) {
  constexpr int kOfWord = kPanel == DType::kF32 ? 1 : 2;
  const int words = steps / kOfWord;
  for (int column = 0; column < count; column += V::kLanes) {
    const char* some[V::kLanes];
    for (int r = 0; r < V::kLanes; ++r) some[r] = rows[column + r < count ? column + r : count - 1];
    if constexpr (kPanel == DType::kF16) {
      auto* out = static_cast<uint16_t*>(panel) + column;
      const auto step = [&](int s) { return out + s * kPanelWidth; };
      int w = 0;
      for (; w + 4 <= words; w += 4) {
        typename V::Words x[4];
        V::TurnWords(some, 4 * w, x);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) V::StoreHalves(step(2 * (w + i)), step(2 * (w + i) + 1), x[i]);
      }
      for (int s = 2 * w; s < steps; ++s) {
        for (int r = 0; r < V::kLanes; ++r) std::memcpy(step(s) + r, some[r] + 2 * s, 2);
      }
    } else {
      auto* out = static_cast<uint32_t*>(panel) + column;
      int w = 0;
      for (; w + 4 <= words; w += 4) {
        typename V::Words x[4];
        V::TurnWords(some, 4 * w, x);
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) V::StoreWords(out + (w + i) * kPanelWidth, x[i]);
      }
      for (; w < words; ++w) {
        for (int r = 0; r < V::kLanes; ++r) {
          std::memcpy(out + w * kPanelWidth + r, some[r] + 4 * w, 4);
        }
      }
    }
  }
}

template <class V, class P>
void ChosenKeys(const ChosenKeysArgs& args) {
  int row = 0;
  if constexpr (V::kTileRows >= 4) {
    for (; row + 4 <= args.rows; row += 4) ChosenKeysOfRows<V, P, 4>(args, row);
  }
  for (; row + 2 <= args.rows; row += 2) ChosenKeysOfRows<V, P, 2>(args, row);
  if (row < args.rows) ChosenKeysOfRows<V, P, 1>(args, row);
}

// Rows that are joined to pairs, mostly one without a partner. A row's numbers are taken as the
// low and the high halves of words, so that no lane moves before sums are stored. A number alone is
// multiplied in f32, where the product is exact: the sum has the bits of a pair with 0, in half the
// time. kRows rows by kStrips times 32 columns; alone: [count][kRows] what such a number meets.
template <class V, int kRows, int kStrips>
[[gnu::noinline]] void ApartTile(const ChosenValuesArgs& args, const float* alone, int row,
                                 int column) {
  using F = typename V::F;
  constexpr int kStrip = 2 * V::kLanes;
  const auto* a = static_cast<const uint16_t*>(args.a) + row * args.a_stride;
  float* out = args.out + row * args.out_stride + column;
  LineFeed<V> feed(args.lines.at, args.lines.at + (row + column == 0 ? args.lines.count : 0),
                   args.count);
  F low[kRows][kStrips], high[kRows][kStrips];
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int s = 0; s < kStrips; ++s) low[r][s] = high[r][s] = V::Set(0.0f);
  }
  for (int i = 0; i < args.count; ++i, alone += kRows) {
    const auto* first = static_cast<const uint16_t*>(args.steps[i]) + column;
    const auto* second = static_cast<const uint16_t*>(args.seconds[i]) + column;
    feed.Step();
    if (args.steps[i] != args.zeros && args.seconds[i] != args.zeros) {
#pragma GCC unroll 4
      for (int s = 0; s < kStrips; ++s) {
        const typename V::Pairs x = V::LoadPairs(first + s * kStrip);
        const typename V::Pairs y = V::LoadPairs(second + s * kStrip);
        const typename V::Pairs b = V::JoinLowHalves(x, y), b_high = V::JoinHighHalves(x, y);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          const typename V::Pairs weights = V::SetPairs(a + r * args.a_stride + args.at[i]);
          low[r][s] = V::DotPairs(low[r][s], weights, b);
          high[r][s] = V::DotPairs(high[r][s], weights, b_high);
        }
      }
      continue;
    }
    const uint16_t* one = args.steps[i] == args.zeros ? second : first;
#pragma GCC unroll 4
    for (int s = 0; s < kStrips; ++s) {
      const F b = V::LoadFirst(one + s * kStrip), b_high = V::LoadSecond(one + s * kStrip);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const F weight = V::Set(alone[r]);
        low[r][s] = V::Fma(weight, b, low[r][s]);
        high[r][s] = V::Fma(weight, b_high, high[r][s]);
      }
    }
  }
  // A sum that fell below all normal numbers may be -0, where a pair's never is.
  const F zero = V::Set(0.0f);
#pragma GCC unroll 4
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int s = 0; s < kStrips; ++s) {
      V::StoreInTurn(out + r * args.out_stride + s * kStrip, V::Add(low[r][s], zero),
                     V::Add(high[r][s], zero));
    }
  }
}

template <class V, class P, int kRows>
void ApartRows(const ChosenValuesArgs& args, int row) {
  constexpr int kStrip = 2 * V::kLanes;
  const auto* a = static_cast<const uint16_t*>(args.a) + row * args.a_stride;
  float alone[kAttentionSpan / 2 * kRows];
  for (int i = 0; i < args.count; ++i) {
    const int at = args.at[i] + (args.steps[i] == args.zeros ? 1 : 0);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) alone[i * kRows + r] = Bf16ToF32(a[r * args.a_stride + at]);
  }
  const typename V::DotScope scope;
  int column = 0;
  for (; column + 2 * kStrip <= args.width; column += 2 * kStrip) {
    ApartTile<V, kRows, 2>(args, alone, row, column);
  }
  for (; column + kStrip <= args.width; column += kStrip) {
    ApartTile<V, kRows, 1>(args, alone, row, column);
  }
  for (; column < args.width; column += V::kLanes) {
    ChosenValuesTile<V, P, true, kRows, 1>(args, row, column);
  }
}

template <class V, class P, bool kApart, int kRows>
void ChosenValuesOfTileRows(const ChosenValuesArgs& args, int row) {
  if constexpr (kApart && V::kHasBf16Dot) {
    ApartRows<V, P, kRows>(args, row);
  } else {
    ChosenValuesOfRows<V, P, kApart, kRows>(args, row);
  }
}

template <class V, class P, bool kApart>
void ChosenValuesOf(const ChosenValuesArgs& args) {
  int row = 0;
  if constexpr (V::kTileRows >= 4) {
    for (; row + 4 <= args.rows; row += 4) ChosenValuesOfTileRows<V, P, kApart, 4>(args, row);
  }
  for (; row + 2 <= args.rows; row += 2) ChosenValuesOfTileRows<V, P, kApart, 2>(args, row);
  if (row < args.rows) ChosenValuesOfTileRows<V, P, kApart, 1>(args, row);
}

template <class V, class P>
void ChosenValues(const ChosenValuesArgs& args) {
  if constexpr (P::kStepsPerRow == 2) {
    if (args.seconds != nullptr) return ChosenValuesOf<V, P, true>(args);
  }
  ChosenValuesOf<V, P, false>(args);
}

}  // namespace kvgauge

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

// kRows rows by kVectors vectors of columns.
template <class V, class P, int kRows, int kVectors>
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
    const Element* step = static_cast<const Element*>(args.steps[i]) + column * P::kStepsPerRow;
    typename P::Columns b[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) b[v] = P::Load(step + v * V::kLanes * P::kStepsPerRow);
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

template <class V, class P, int kRows>
void ChosenValuesOfRows(const ChosenValuesArgs& args, int row) {
  int column = 0;
  if constexpr (V::kTileVectors >= 4) {
    for (; column + 4 * V::kLanes <= args.width; column += 4 * V::kLanes) {
      ChosenValuesTile<V, P, kRows, 4>(args, row, column);
    }
  }
  if constexpr (V::kTileVectors >= 2) {
    for (; column + 2 * V::kLanes <= args.width; column += 2 * V::kLanes) {
      ChosenValuesTile<V, P, kRows, 2>(args, row, column);
    }
  }
  for (; column < args.width; column += V::kLanes) {
    ChosenValuesTile<V, P, kRows, 1>(args, row, column);
  }
}

// Rows of keys become columns of a panel, as AttentionKernels::turn_rows says. Words of a row: a
// step in f32, and two of them in the other types. `feed` steps with every four, and with those
// that remain.
template <class V, DType kPanel>
[[gnu::always_inline]] inline void TurnRowsFed(const char* const* rows, int count, int steps,
                                               void* panel, RowFeed<V>& feed) {
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
        feed.Step();
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) V::StoreHalves(step(2 * (w + i)), step(2 * (w + i) + 1), x[i]);
      }
      if (2 * w < steps) feed.Step();
      for (int s = 2 * w; s < steps; ++s) {
        for (int r = 0; r < V::kLanes; ++r) std::memcpy(step(s) + r, some[r] + 2 * s, 2);
      }
    } else {
      auto* out = static_cast<uint32_t*>(panel) + column;
      int w = 0;
      for (; w + 4 <= words; w += 4) {
        typename V::Words x[4];
        V::TurnWords(some, 4 * w, x);
        feed.Step();
#pragma GCC unroll 4
        for (int i = 0; i < 4; ++i) V::StoreWords(out + (w + i) * kPanelWidth, x[i]);
      }
      if (w < words) feed.Step();
      for (; w < words; ++w) {
        for (int r = 0; r < V::kLanes; ++r) {
          std::memcpy(out + w * kPanelWidth + r, some[r] + 4 * w, 4);
        }
      }
    }
  }
}

template <class V, DType kPanel>
void TurnRows(const char* const* rows, int count, int steps, void* panel) {
  RowFeed<V> nothing({}, 1);
  TurnRowsFed<V, kPanel>(rows, count, steps, panel, nothing);
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

template <class V, class P>
void ChosenValues(const ChosenValuesArgs& args) {
  int row = 0;
  if constexpr (V::kTileRows >= 4) {
    for (; row + 4 <= args.rows; row += 4) ChosenValuesOfRows<V, P, 4>(args, row);
  }
  for (; row + 2 <= args.rows; row += 2) ChosenValuesOfRows<V, P, 2>(args, row);
  if (row < args.rows) ChosenValuesOfRows<V, P, 1>(args, row);
}

}  // namespace kvgauge

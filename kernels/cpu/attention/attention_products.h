// SPDX-License-Identifier: Apache-2.0
// Rows times panels, as templates over a vector type; see attention_tiles.h.
#pragma once

#include "cpu/attention/attention_kernels.h"

namespace kvgauge {

// ---- Products. A panel type says how one step of a panel meets one element of a. ----

template <class V>
struct F32Panel {
  using A = float;
  using Element = float;
  static constexpr int kStepsPerRow = 1;
  static constexpr bool kReread = false;
  using Columns = typename V::F;
  [[gnu::always_inline]] static Columns Load(const float* p) { return V::Load(p); }
  using Scalar = typename V::F;
  [[gnu::always_inline]] static Scalar LoadScalar(const float* a) { return V::Set(*a); }
  [[gnu::always_inline]] static typename V::F Fma(Scalar a, Columns b, typename V::F sum) {
    return V::Fma(a, b, sum);
  }
};

template <class V>
struct F16Panel : F32Panel<V> {
  using Element = uint16_t;
  [[gnu::always_inline]] static typename V::F Load(const uint16_t* p) { return V::LoadF16(p); }
};

// bf16 pairs, multiplied in f32: first, then second.
template <class V>
struct Bf16Panel {
  using A = float;
  using Element = uint16_t;
  static constexpr int kStepsPerRow = 2;
  static constexpr bool kReread = false;
  struct Columns {
    typename V::F first, second;
  };
  [[gnu::always_inline]] static Columns Load(const uint16_t* p) {
    return {V::LoadFirst(p), V::LoadSecond(p)};
  }
  using Scalar = Columns;
  [[gnu::always_inline]] static Scalar LoadScalar(const float* a) {
    return {V::Set(a[0]), V::Set(a[1])};
  }
  [[gnu::always_inline]] static typename V::F Fma(Scalar a, Columns b, typename V::F sum) {
    return V::Fma(a.second, b.second, V::Fma(a.first, b.first, sum));
  }
};

// bf16 pairs on both sides.
template <class V>
struct Bf16DotPanel {
  using A = uint16_t;
  using Element = uint16_t;
  static constexpr int kStepsPerRow = 2;
  static constexpr bool kReread = true;
  using Columns = typename V::Pairs;
  [[gnu::always_inline]] static Columns Load(const uint16_t* p) { return V::LoadPairs(p); }
  using Scalar = typename V::Pairs;
  [[gnu::always_inline]] static Scalar LoadScalar(const uint16_t* a) { return V::SetPairs(a); }
  [[gnu::always_inline]] static typename V::F Fma(Scalar a, Columns b, typename V::F sum) {
    return V::DotPairs(sum, a, b);
  }
};

// kRows rows by kVectors vectors of columns, sums held in registers.
//
// Few rows make a loop that waits for memory. There the bf16 dot form reads each line again for
// every row (twice for one row), from the first-level cache: its loop is so short that otherwise
// the processor runs many steps ahead, and their prefetches take the miss buffers that the loads
// need. Measured on Zen 4 at 32k entries: 15 -> 21 GB/s with 1 row, 18 -> 24 GB/s with 4.
template <class V, class P, int kRows, int kVectors>
[[gnu::noinline]] void ProductTile(const ProductArgs& args, int row, int column) {
  using A = typename P::A;
  using Element = typename P::Element;
  using F = typename V::F;
  const A* a = static_cast<const A*>(args.a) + row * args.a_stride;
  const Element* panel = static_cast<const Element*>(args.panel) + column * P::kStepsPerRow;
  const auto* next = static_cast<const Element*>(args.next_panel) + column * P::kStepsPerRow;
  const int64_t panel_stride = int64_t{args.width} * P::kStepsPerRow;
  float* out = args.out + row * args.out_stride + column;

  constexpr bool kReread = P::kReread && kRows < V::kTileRows;
  F sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] =
          args.accumulate ? V::Load(out + r * args.out_stride + v * V::kLanes) : V::Set(0.0f);
    }
  }
  for (int s = 0; s < args.steps; s += P::kStepsPerRow) {
    typename P::Columns b[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < (kReread ? 0 : kVectors); ++v) {
      b[v] = P::Load(panel + v * V::kLanes * P::kStepsPerRow);
    }
    // Into the second level only: the first has too few outstanding misses to cover memory latency
    // (measured: half the bandwidth).
    constexpr int kStripBytes = kVectors * V::kLanes * P::kStepsPerRow * int{sizeof(Element)};
#pragma GCC unroll 8
    for (int line = 0; line < kStripBytes; line += 64) {
      __builtin_prefetch(reinterpret_cast<const char*>(next) + line, 0, 2);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const typename P::Scalar x = P::LoadScalar(a + r * args.a_stride + s);
      if constexpr (kReread) {
        if constexpr (kRows == 1) {
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) {
            V::Touch(P::Load(panel + v * V::kLanes * P::kStepsPerRow));
          }
        }
        asm volatile("" : "+r"(panel));
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) {
          const auto* p = panel + v * V::kLanes * P::kStepsPerRow;
          sum[r][v] = P::Fma(x, P::Load(p), sum[r][v]);
        }
      } else {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sum[r][v] = P::Fma(x, b[v], sum[r][v]);
      }
    }
    panel += panel_stride;
    next += panel_stride;
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      V::Store(out + r * args.out_stride + v * V::kLanes, sum[r][v]);
    }
  }
}

template <class V, class P, int kVectors>
void ProductStrip(const ProductArgs& args, int row, int rows, int column) {
  switch (rows) {
    case 1:
      return ProductTile<V, P, 1, kVectors>(args, row, column);
    case 2:
      return ProductTile<V, P, 2, kVectors>(args, row, column);
    default:
      break;
  }
  if constexpr (V::kTileRows >= 6) {
    switch (rows) {
      case 3:
        return ProductTile<V, P, 3, kVectors>(args, row, column);
      case 4:
        return ProductTile<V, P, 4, kVectors>(args, row, column);
      case 5:
        return ProductTile<V, P, 5, kVectors>(args, row, column);
      default:
        return ProductTile<V, P, 6, kVectors>(args, row, column);
    }
  }
}

template <class V, class P>
void Product(const ProductArgs& args) {
  // Row tiles of nearly equal height: 8 rows are 4 + 4, not 6 + 2.
  const int tiles = (args.rows + V::kTileRows - 1) / V::kTileRows;
  ProductArgs strip = args;
  int row = 0;
  for (int t = 0; t < tiles; ++t) {
    const int rows = (args.rows - row + tiles - t - 1) / (tiles - t);
    constexpr int kStrip = V::kTileVectors * V::kLanes;
    int column = 0;
    for (; column + kStrip <= args.width; column += kStrip) {
      ProductStrip<V, P, V::kTileVectors>(strip, row, rows, column);
    }
    if constexpr (kStrip > kVectorFloats) {
      switch ((args.width - column) / kVectorFloats) {
        case 1:
          ProductStrip<V, P, 1>(strip, row, rows, column);
          break;
        case 2:
          ProductStrip<V, P, 2>(strip, row, rows, column);
          break;
        case 3:
          ProductStrip<V, P, 3>(strip, row, rows, column);
          break;
        default:
          break;
      }
    }
    strip.next_panel = args.panel;  // asked for once
    row += rows;
  }
}

template <class V>
void ExpandF16(const void* panel, int steps, int width, float* out) {
  const auto* in = static_cast<const uint16_t*>(panel);
  for (int64_t i = 0; i < int64_t{steps} * width; i += V::kLanes) {
    V::Store(out + i, V::LoadF16(in + i));
  }
}

template <class V>
void ExpandBf16(const void* panel, int steps, int width, float* out) {
  const auto* in = static_cast<const uint16_t*>(panel);
  for (int s = 0; s < steps; s += 2) {
    for (int c = 0; c < width; c += V::kLanes) {
      V::Store(out + c, V::LoadFirst(in + 2 * c));
      V::Store(out + width + c, V::LoadSecond(in + 2 * c));
    }
    in += 2 * width;
    out += 2 * width;
  }
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// The matrix-product core of the cpu backend: some rows times one panel of 64 columns.
//
// A panel holds 64 columns of the right-hand matrix as one stream of steps along k:
//   f32   [k][64]          one k per step
//   f16   [k][64]          one k per step
//   bf16  [(k+1)/2][64][2] two k per step, interleaved; k is padded with zero to even
// The bf16 order serves vdpbf16ps and AMX tiles alike. Steps may be further apart than one panel
// row (`panel_stride`), so the same code runs over wider matrices, 64 columns at a time.
//
// Every output element is ONE f32 chain over k in ascending order, whatever the number of rows.
// Splitting k over several calls (`resume`) stores and reloads that chain exactly. So bits depend
// on k and on the instruction set alone: rows, threads and neighbours cannot change them. (With AMX
// a split must fall on a multiple of kPanelSplit steps, because one tile product is one link.)
//
// How to use it from a file compiled for an instruction set: include exactly one panel_<isa>.h and
// write against its `Panels` type. Every thread needs a scope around its products (tile registers
// must be configured; empty elsewhere):
//   const Panels::ThreadScope scope;
//   PanelRows<Panels::Bf16>({.a = x, .a_stride = k, .panel = w, ...}, rows);
//
// Everything here and in panel_<isa>.h is in an unnamed namespace on purpose: the same source is
// compiled with different vector flags in different files, and the linker must never merge the
// copies, or a machine without the flags would run into them. For the same reason these headers use
// no library templates.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "cpu/isa/inline.h"

namespace kvgauge {

inline constexpr int64_t kPanelColumns = 64;
// Calls that split k cut it into multiples of this many steps.
inline constexpr int64_t kPanelSplit = 16;
// Most rows one register tile takes.
inline constexpr int kPanelTileRows = 6;

namespace {

// One product: acc[r][0..63] (+)= sum over steps of a[r] * panel. Strides are in elements.
// Format::A is the type of the left operand: float, or uint16_t for bf16 products in hardware.
// Left rows hold Format::kStepK values per step (so an odd k needs one zero behind it).
template <class Format>
struct PanelOperands {
  const typename Format::A* a = nullptr;
  int64_t a_stride = 0;
  const typename Format::B* panel = nullptr;
  int64_t panel_stride = 0;  // from step to step; kPanelColumns * Format::kStepK when dense
  int64_t steps = 0;
  float* acc = nullptr;
  int64_t acc_stride = 0;
  bool resume = false;             // continue from acc; otherwise start from zero
  const void* prefetch = nullptr;  // memory wanted next, fetched along the way; may be null
};

// For instruction sets that need nothing per thread.
struct NoThreadScope {
  NoThreadScope() {}  // user-provided: an unused variable of this type is no warning
};

// f(constant 0), ..., f(constant N - 1): loops over registers must be unrolled at any -O level.
template <int N, class F>
[[gnu::always_inline]] inline void Unroll(F&& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) KVG_INLINE_LAMBDA {
    (f(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}

// Bytes of a panel that all rows are multiplied by before the next ones are read. As much again is
// on its way in, so that it should be a quarter of L2: 1 MiB and more on processors with AVX-512.
// Longer blocks put off the storing and reloading of sums.
template <class V>
constexpr int64_t VectorBlockBytes() {
  return V::kLanes == 16 ? int64_t{256} << 10 : int64_t{64} << 10;
}

// Formats over a vector type V of vector_math_<isa>.h.
// A format says how many rows one pass over the panel serves (kOnePassRows), and how many bytes of
// it should be multiplied by all rows before going on (kBlockBytes).

// One step of an outer product. The smaller side is held in registers, the larger one streams.
template <class V, int kRows, int kVectors, class LeftAt, class RightAt>
[[gnu::always_inline]] inline void OuterStep(LeftAt left, RightAt right,
                                             typename V::F (&sum)[kRows][kVectors]) {
  if constexpr (kRows < kVectors) {
    typename V::F x[kRows];
    Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA { x[r] = left(r); });
    Unroll<kVectors>([&](auto j) KVG_INLINE_LAMBDA {
      const typename V::F w = right(j);
      Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA { sum[r][j] = V::Fma(x[r], w, sum[r][j]); });
    });
  } else {
    typename V::F w[kVectors];
    Unroll<kVectors>([&](auto j) KVG_INLINE_LAMBDA { w[j] = right(j); });
    Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
      const typename V::F x = left(r);
      Unroll<kVectors>([&](auto j) KVG_INLINE_LAMBDA { sum[r][j] = V::Fma(x, w[j], sum[r][j]); });
    });
  }
}

template <class V>
struct F32Panel {
  using Vec = V;
  using A = float;
  using B = float;
  static constexpr int kStepK = 1;
  static constexpr int64_t kOnePassRows = kPanelTileRows;
  static constexpr int64_t kBlockBytes = VectorBlockBytes<V>();

  template <int kRows, int kVectors>
  [[gnu::always_inline]] static void Step(const A* a, int64_t a_stride, const B* b,
                                          typename V::F (&sum)[kRows][kVectors]) {
    OuterStep<V>([&](int r) KVG_INLINE_LAMBDA { return V::Set(a[r * a_stride]); },
                 [&](int j) KVG_INLINE_LAMBDA { return V::Load(b + j * V::kLanes); }, sum);
  }
};

template <class V>
struct F16Panel {
  using Vec = V;
  using A = float;
  using B = uint16_t;
  static constexpr int kStepK = 1;
  static constexpr int64_t kOnePassRows = kPanelTileRows;
  static constexpr int64_t kBlockBytes = VectorBlockBytes<V>();

  template <int kRows, int kVectors>
  [[gnu::always_inline]] static void Step(const A* a, int64_t a_stride, const B* b,
                                          typename V::F (&sum)[kRows][kVectors]) {
    OuterStep<V>([&](int r) KVG_INLINE_LAMBDA { return V::Set(a[r * a_stride]); },
                 [&](int j) KVG_INLINE_LAMBDA { return V::LoadF16(b + j * V::kLanes); }, sum);
  }
};

// bf16 without bf16 instructions: the even values of all pairs are widened to f32, then the odd.
template <class V>
struct Bf16WidenPanel {
  using Vec = V;
  using A = float;
  using B = uint16_t;
  static constexpr int kStepK = 2;
  static constexpr int64_t kOnePassRows = kPanelTileRows;
  static constexpr int64_t kBlockBytes = VectorBlockBytes<V>();

  template <int kRows, int kVectors>
  [[gnu::always_inline]] static void Step(const A* a, int64_t a_stride, const B* b,
                                          typename V::F (&sum)[kRows][kVectors]) {
    OuterStep<V>([&](int r) KVG_INLINE_LAMBDA { return V::Set(a[r * a_stride]); },
                 [&](int j) KVG_INLINE_LAMBDA { return V::LoadFirst(b + j * 2 * V::kLanes); }, sum);
    OuterStep<V>([&](int r) KVG_INLINE_LAMBDA { return V::Set(a[r * a_stride + 1]); },
                 [&](int j) KVG_INLINE_LAMBDA { return V::LoadSecond(b + j * 2 * V::kLanes); },
                 sum);
  }
};

// Column groups that are held in registers at once: as many as leave room for the operands.
template <class V>
constexpr int TileVectors(int rows) {
  int vectors = static_cast<int>(kPanelColumns) / V::kLanes;
  while (vectors > 1 && rows * vectors + (rows < vectors ? rows : vectors) + 1 > V::kRegisters)
    vectors /= 2;
  return vectors;
}

// kRows rows; with every step, kPrefetchLines cache lines of `prefetch` are fetched.
template <class Format, int kRows, int kPrefetchLines = 0>
[[gnu::noinline]] void PanelTile(const PanelOperands<Format>& p) {
  using V = typename Format::Vec;
  constexpr int kVectors = TileVectors<V>(kRows);
  constexpr int kColumns = kVectors * V::kLanes;
  // Where a tile takes several passes of few columns each, the passes share the fetching: memory
  // could not keep up with one pass.
  constexpr int kShare = kPrefetchLines * kColumns / static_cast<int>(kPanelColumns);
  constexpr int kFetch = kPrefetchLines > 0 && kShare == 0 ? 1 : kShare;
  // A number: there may be nothing to fetch, and null takes no offsets.
  [[maybe_unused]] uintptr_t next = reinterpret_cast<uintptr_t>(p.prefetch);
  for (int64_t column = 0; column < kPanelColumns; column += kColumns) {
    typename V::F sum[kRows][kVectors];
    float* const acc = p.acc + column;
    Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
      Unroll<kVectors>([&](auto j) KVG_INLINE_LAMBDA {
        sum[r][j] = p.resume ? V::Load(acc + r * p.acc_stride + j * V::kLanes) : V::Set(0.0f);
      });
    });
    const typename Format::A* a = p.a;
    const typename Format::B* b = p.steps == 0 ? nullptr : p.panel + column * Format::kStepK;
    for (int64_t s = 0; s < p.steps; ++s) {
      if constexpr (kFetch > 0) {
        Unroll<kFetch>([&](auto i) KVG_INLINE_LAMBDA {
          V::Prefetch(reinterpret_cast<const void*>(next + i * 64));
        });
        next += kFetch * 64;
      }
      Format::template Step<kRows, kVectors>(a, p.a_stride, b, sum);
      a += Format::kStepK;
      b += p.panel_stride;
    }
    Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
      Unroll<kVectors>([&](auto j) KVG_INLINE_LAMBDA {
        V::Store(acc + r * p.acc_stride + j * V::kLanes, sum[r][j]);
      });
    });
  }
}

template <class Format, int kPrefetchLines>
inline void PanelTileOf(const PanelOperands<Format>& p, int64_t rows) {
  switch (rows) {
    case 1:
      return PanelTile<Format, 1, kPrefetchLines>(p);
    case 2:
      return PanelTile<Format, 2, kPrefetchLines>(p);
    case 3:
      return PanelTile<Format, 3, kPrefetchLines>(p);
    case 4:
      return PanelTile<Format, 4, kPrefetchLines>(p);
    case 5:
      return PanelTile<Format, 5, kPrefetchLines>(p);
    default:
      return PanelTile<Format, 6, kPrefetchLines>(p);
  }
}

// Tiles of equal height: 16 rows as 6 + 5 + 5 rather than 6 + 6 + 4, 7 as 4 + 3. The first fetches
// what comes next.
template <class Format>
inline void PanelTiles(PanelOperands<Format> p, int64_t rows) {
  constexpr int kLines =
      static_cast<int>(kPanelColumns * Format::kStepK * int64_t{sizeof(typename Format::B)} / 64);
  for (int64_t tiles = (rows + kPanelTileRows - 1) / kPanelTileRows; tiles > 0; --tiles) {
    const int64_t r = (rows + tiles - 1) / tiles;
    if (p.prefetch != nullptr) {
      PanelTileOf<Format, kLines>(p, r);
      p.prefetch = nullptr;
    } else {
      PanelTileOf<Format, 0>(p, r);
    }
    rows -= r;
    p.a += r * p.a_stride;
    p.acc += r * p.acc_stride;
  }
}

// Any number of rows. The panel is read once per six rows (AMX: 32), so let one call read no more
// than fits L2.
template <class Format>
inline void PanelRows(const PanelOperands<Format>& p, int64_t rows) {
  if constexpr (requires { Format::Rows(p, rows); }) {
    Format::Rows(p, rows);
  } else {
    PanelTiles<Format>(p, rows);
  }
}

}  // namespace
}  // namespace kvgauge

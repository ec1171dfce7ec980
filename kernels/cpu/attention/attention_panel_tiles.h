// SPDX-License-Identifier: Apache-2.0
// Attention's products with bf16 panels in tile registers (panel_tiles.h), over an engine that
// provides them and a vector type V. An engine also has a VectorScope, in which V's arithmetic
// treats denormals as tiles do.
//
// A link of a chain is what one tile product adds: the sum over 32 dims of a key, or over 32
// entries of a span. Where tiles gain nothing, links are summed in vectors in the order of a tile's
// own sums: for few rows, which wait for memory and come nearer to its rate so, and for chosen
// values, whose entries lie apart.
#pragma once

#include "cpu/attention/attention_kernels.h"
#include "cpu/attention/attention_lines.h"
#include "cpu/linear/panel_tiles.h"

namespace kvgauge {
namespace {

// Prefetches go to the second level of cache, as in ProductTile.
template <class Engine, class V>
class TileProducts : private Bf16TilePanel<Engine, 2> {
  using Tiles = Bf16TilePanel<Engine, 2>;
  using Tiles::kTileColumns;
  using Tiles::kTileRows;
  using Tiles::kTileSteps;
  using typename Tiles::Operands;
  using typename Tiles::Source;
  using typename Tiles::Staged;
  static_assert(2 * Tiles::kTileSteps == kEntryRun && kPanelWidth == kPanelColumns);

 public:
  static void Product(const ProductArgs& args) {
    if (args.rows <= kVectorRows) {
      const typename Engine::VectorScope scope;
      FewRows(WholePanel{args}, 0, args.rows);
      return;
    }
    const Operands p = {.a = static_cast<const uint16_t*>(args.a),
                        .a_stride = args.a_stride,
                        .panel = static_cast<const uint16_t*>(args.panel),
                        .panel_stride = 2 * args.width,
                        .steps = args.steps / 2,
                        .acc = args.out,
                        .acc_stride = args.out_stride,
                        .resume = args.accumulate,
                        .prefetch = args.next_panel};
    if (args.width == kPanelWidth) {
      Tiles::Rows(p, args.rows);
      return;
    }
    for (int64_t r = 0; r < args.rows; r += kTileRows) {
      for (int c = 0; c < args.width; c += kTileColumns) {
        OneByOne(Tiles::From(p, r), Least(args.rows - r, kTileRows), c);
      }
    }
  }

  static void ChosenKeys(const ChosenKeysArgs& args) {
    if (args.rows <= kVectorRows) {
      const typename Engine::VectorScope scope;
      FewRows(ChosenColumns{args}, 0, args.rows);
      return;
    }
    for (int row = 0; row < args.rows; row += kTileRows) {
      for (int unit = 0; unit < args.count; unit += 4) KeysTile(args, row, unit);
    }
  }

  static void ChosenValues(const ChosenValuesArgs& args) {
    const typename Engine::VectorScope scope;
    for (int row = 0; row < args.rows; row += kVectorRows) {
      const auto rows = static_cast<int>(Least(args.rows - row, kVectorRows));
      if (args.seconds == nullptr) {
        FewRows(ChosenSteps{args}, row, rows);
        continue;
      }
      if (rows == 1) ApartRows<1>(args, row);
      if (rows == 2) ApartRows<2>(args, row);
      if (rows == 3) ApartRows<3>(args, row);
      if (rows == 4) ApartRows<4>(args, row);
    }
  }

 private:
  static constexpr int kVectorRows = 4;
  static constexpr int kVectorPairs = V::kLanes * 2;

  static int64_t Least(int64_t a, int64_t b) { return a < b ? a : b; }

  // Up to 16 rows, the 16 columns from `column` on of a panel of fewer than 64.
  static void OneByOne(const Operands& p, int64_t rows, int column) {
    Tiles::template LoadSum<0>(p, p.acc + column, rows);
    Staged left, right;
    const char* next = column == 0 ? static_cast<const char*>(p.prefetch) : nullptr;
    for (int64_t s = 0; s < p.steps; s += kTileSteps) {
      const int64_t steps = Least(p.steps - s, kTileSteps);
      const Source a = Tiles::LeftTile(p, p.a + s * 2, rows, steps, left);
      Engine::template Load<4>(a.data, a.stride_bytes);
      Tiles::template DotColumn<0, 0, 4, 5>(p, p.panel + s * p.panel_stride + column * 2, steps,
                                            right);
      Tiles::Prefetch(next, p.panel_stride / 32 * steps);
    }
    Tiles::template StoreSum<0>(p, p.acc + column, rows);
  }

  // Up to 16 rows, up to four times 16 columns: tiles 0-3 sums, 4 left, 5-7 right.
  static void KeysTile(const ChosenKeysArgs& args, int row, int unit) {
    const int units = static_cast<int>(Least(args.count - unit, 4));
    const int64_t rows = Least(args.rows - row, kTileRows), pairs = args.steps / 2;
    const Operands p = {.a = static_cast<const uint16_t*>(args.a) + row * args.a_stride,
                        .a_stride = args.a_stride,
                        .panel_stride = 2 * kPanelWidth,
                        .acc = args.out + row * args.out_stride + unit * kTileColumns,
                        .acc_stride = args.out_stride};
    // The first rows ask for lines, each tile for its part.
    const int lines = row == 0 ? args.lines.count : 0;
    LineFeed<V> feed(args.lines.at + lines * unit / args.count,
                     args.lines.at + lines * (unit + units) / args.count,
                     static_cast<int>((pairs + kTileSteps - 1) / kTileSteps));
    Unroll<4>([&](auto u) KVG_INLINE_LAMBDA { Engine::template Zero<u>(); });
    Staged left, right;
    for (int64_t s = 0; s < pairs; s += kTileSteps) {
      const int64_t steps = Least(pairs - s, kTileSteps);
      const Source a = Tiles::LeftTile(p, p.a + s * 2, rows, steps, left);
      Engine::template Load<4>(a.data, a.stride_bytes);
      Unroll<4>([&](auto u) KVG_INLINE_LAMBDA {
        if (u >= units) return;
        const auto* b = static_cast<const uint16_t*>(args.columns[unit + u]) + s * p.panel_stride;
        Tiles::template DotColumn<0, u, 4, 5 + u % 3>(p, b, steps, right);
      });
      feed.Step();
    }
    Unroll<4>([&](auto u) KVG_INLINE_LAMBDA {
      if (u < units) Tiles::template StoreSum<u>(p, p.acc + u * kTileColumns, rows);
    });
  }

  // What vectors multiply: where pairs of steps lie, which numbers of a row they meet, where a link
  // ends, and what is fetched meanwhile. A cursor reads kVectors vectors from `column` on.
  struct WholePanel {
    const ProductArgs& args;
    static constexpr bool kMayResume = true;

    template <int kVectors>
    struct Cursor {
      const uint16_t *panel, *next;
      int64_t stride;
      const uint16_t* At(int64_t i, int v) const { return panel + i * stride + v * kVectorPairs; }
      [[gnu::always_inline]] void Fetch() {
        Unroll<kVectors * V::kLanes * 4 / 64>(
            [&](auto line) KVG_INLINE_LAMBDA { __builtin_prefetch(next + line * 32, 0, 2); });
        next += stride;
      }
    };
    template <int kVectors>
    Cursor<kVectors> CursorOf(int, int column) const {
      return {static_cast<const uint16_t*>(args.panel) + 2 * column,
              static_cast<const uint16_t*>(args.next_panel) + 2 * column, 2 * args.width};
    }
    int64_t count() const { return args.steps / 2; }
    int64_t width() const { return args.width; }
    int64_t Meets(int64_t i) const { return 2 * i; }
    int64_t LinkEnd(int64_t begin) const { return Least(begin + kTileSteps, count()); }
  };

  struct ChosenColumns {
    const ChosenKeysArgs& args;
    static constexpr bool kMayResume = false;

    template <int kVectors>
    struct Cursor {
      const uint16_t* columns[kVectors];
      LineFeed<V> lines;
      const uint16_t* At(int64_t i, int v) const { return columns[v] + i * 2 * kPanelWidth; }
      [[gnu::always_inline]] void Fetch() { lines.Step(); }
    };
    template <int kVectors>
    Cursor<kVectors> CursorOf(int row, int column) const {
      const int lines = row == 0 ? args.lines.count : 0, end = column + kVectors * V::kLanes;
      const auto width_now = static_cast<int>(width());
      Cursor<kVectors> cursor = {
          {},
          LineFeed<V>(args.lines.at + lines * column / width_now,
                      args.lines.at + lines * end / width_now, static_cast<int>(count()))};
      for (int v = 0; v < kVectors; ++v) {
        const int at = column + v * V::kLanes;
        cursor.columns[v] =
            static_cast<const uint16_t*>(args.columns[at / kVectorFloats]) + at % kVectorFloats * 2;
      }
      return cursor;
    }
    int64_t count() const { return args.steps / 2; }
    int64_t width() const { return int64_t{args.count} * kVectorFloats; }
    int64_t Meets(int64_t i) const { return 2 * i; }
    int64_t LinkEnd(int64_t begin) const { return Least(begin + kTileSteps, count()); }
  };

  struct ChosenSteps {
    const ChosenValuesArgs& args;
    static constexpr bool kMayResume = false;

    template <int kVectors>
    struct Cursor {
      const void* const* steps;
      int64_t offset;
      LineFeed<V> lines;
      const uint16_t* At(int64_t i, int v) const {
        return static_cast<const uint16_t*>(steps[i]) + offset + v * kVectorPairs;
      }
      [[gnu::always_inline]] void Fetch() { lines.Step(); }
    };
    template <int kVectors>
    Cursor<kVectors> CursorOf(int row, int column) const {
      const int lines = row + column == 0 ? args.lines.count : 0;
      return {args.steps, 2 * column,
              LineFeed<V>(args.lines.at, args.lines.at + lines, args.count)};
    }
    int64_t count() const { return args.count; }
    int64_t width() const { return args.width; }
    int64_t Meets(int64_t i) const { return args.at[i]; }
    int64_t LinkEnd(int64_t begin) const {
      int64_t end = begin + 1;
      while (end < args.count && args.run[end] == args.run[begin]) ++end;
      return end;
    }
  };

  template <class Steps>
  static void FewRows(const Steps& steps, int row, int rows) {
    if (rows == 1) LinkRows<1>(steps, row);
    if (rows == 2) LinkRows<2>(steps, row);
    if (rows == 3) LinkRows<3>(steps, row);
    if (rows == 4) LinkRows<4>(steps, row);
  }

  template <int kRows, class Steps>
  static void LinkRows(const Steps& steps, int row) {
    constexpr int kMost = kRows <= 2 ? 4 : 2;
    const auto width = static_cast<int>(steps.width());
    int column = 0;
    for (; column + kMost * V::kLanes <= width; column += kMost * V::kLanes) {
      LinkTile<kRows, kMost>(steps, row, column);
    }
    for (; column < width; column += V::kLanes) LinkTile<kRows, 1>(steps, row, column);
  }

  // The rows of a pair lie apart: as LinkRows. A row's numbers are taken as the low and the high
  // halves of words, so that no lane moves before sums are stored.
  template <int kRows>
  static void ApartRows(const ChosenValuesArgs& args, int row) {
    const auto* a = static_cast<const uint16_t*>(args.a) + row * args.a_stride;
    float weights[kAttentionSpan * kRows];  // of the first rows of pairs, then of the second ones
    for (int i = 0; i < args.count; ++i) {
      float* of_pair = weights + int64_t{2} * kRows * i;
      for (int r = 0; r < kRows; ++r) {
        of_pair[r] = Bf16ToF32(a[r * args.a_stride + args.at[i]]);
        of_pair[kRows + r] = Bf16ToF32(a[r * args.a_stride + args.at[i] + 1]);
      }
    }
    int column = 0;
    for (; column + kVectorPairs <= args.width; column += kVectorPairs) {
      ApartStrip<kRows, 2>(args, weights, row, column);
    }
    for (; column < args.width; column += V::kLanes) {
      ApartStrip<kRows, 1>(args, weights, row, column);
    }
  }

  template <int kVectors>
  [[gnu::always_inline]] static void LoadStrip(const void* row, int column,
                                               typename V::F (&x)[kVectors]) {
    const auto* numbers = static_cast<const uint16_t*>(row) + column;
    if constexpr (kVectors == 2) {
      x[0] = V::LoadFirst(numbers);
      x[1] = V::LoadSecond(numbers);
    } else {
      x[0] = V::LoadBf16(numbers);
    }
  }

  template <int kRows, int kVectors>
  [[gnu::noinline]] static void ApartStrip(const ChosenValuesArgs& args, const float* weights,
                                           int row, int column) {
    using F = typename V::F;
    const int lines = row + column == 0 ? args.lines.count : 0;
    LineFeed<V> feed(args.lines.at, args.lines.at + lines, args.count);
    F sum[kRows][kVectors];
    const auto clear = [](F(&x)[kRows][kVectors]) KVG_INLINE_LAMBDA {
      Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
        Unroll<kVectors>([&](auto v) KVG_INLINE_LAMBDA { x[r][v] = V::Set(0.0f); });
      });
    };
    clear(sum);
    for (int i = 0; i < args.count;) {
      F first[kRows][kVectors], second[kRows][kVectors];
      clear(first);
      clear(second);
      const uint8_t link = args.run[i];
      for (; i < args.count && args.run[i] == link; ++i, weights += 2 * kRows) {
        F b0[kVectors], b1[kVectors];
        feed.Step();
        LoadStrip(args.steps[i], column, b0);
        LoadStrip(args.seconds[i], column, b1);
        Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
          const F w0 = V::Set(weights[r]), w1 = V::Set(weights[kRows + r]);
          Unroll<kVectors>([&](auto v) KVG_INLINE_LAMBDA {
            first[r][v] = V::Fma(w0, b0[v], first[r][v]);
            second[r][v] = V::Fma(w1, b1[v], second[r][v]);
          });
        });
      }
      Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
        Unroll<kVectors>([&](auto v) KVG_INLINE_LAMBDA {
          sum[r][v] = V::Add(sum[r][v], V::Add(first[r][v], second[r][v]));
        });
      });
    }
    float* out = args.out + row * args.out_stride + column;
    Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
      if constexpr (kVectors == 2) {
        V::StoreInTurn(out + r * args.out_stride, sum[r][0], sum[r][1]);
      } else {
        V::Store(out + r * args.out_stride, sum[r][0]);
      }
    });
  }

  struct Pair {
    typename V::F first, second;
  };
  [[gnu::always_inline]] static Pair Broadcast(const uint16_t* a) {
    uint16_t pair[2];
    std::memcpy(pair, a, sizeof(pair));
    const auto widen = [](uint16_t bits) KVG_INLINE_LAMBDA {
      const uint32_t wide = uint32_t{bits} << 16;
      float value;
      std::memcpy(&value, &wide, sizeof(value));
      return V::Set(value);
    };
    return {widen(pair[0]), widen(pair[1])};
  }

  // kRows rows by kVectors vectors of columns, link by link.
  template <int kRows, int kVectors, class Steps>
  [[gnu::noinline]] static void LinkTile(const Steps& steps, int row, int column) {
    using F = typename V::F;
    const auto& args = steps.args;
    const auto* a = static_cast<const uint16_t*>(args.a) + row * args.a_stride;
    float* out = args.out + row * args.out_stride + column;
    auto cursor = steps.template CursorOf<kVectors>(row, column);
    bool resume = false;
    if constexpr (Steps::kMayResume) resume = args.accumulate;
    F sum[kRows][kVectors];
    Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
      Unroll<kVectors>([&](auto v) KVG_INLINE_LAMBDA {
        sum[r][v] = resume ? V::Load(out + r * args.out_stride + v * V::kLanes) : V::Set(0.0f);
      });
    });
    for (int64_t i = 0; i < steps.count();) {
      F first[kRows][kVectors], second[kRows][kVectors];
      // A product that begins a sum may keep the sign of its zero: the result has none.
      const auto step = [&](auto sum_of) KVG_INLINE_LAMBDA {
        cursor.Fetch();
        Pair x[kRows];
        Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
          x[r] = Broadcast(a + r * args.a_stride + steps.Meets(i));
        });
        Unroll<kVectors>([&](auto v) KVG_INLINE_LAMBDA {
          const F b0 = V::LoadFirst(cursor.At(i, v)), b1 = V::LoadSecond(cursor.At(i, v));
          Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
            sum_of(x[r].first, b0, first[r][v]);
            sum_of(x[r].second, b1, second[r][v]);
          });
        });
      };
      const int64_t end = steps.LinkEnd(i);
      step([](F x, F b, F& to) KVG_INLINE_LAMBDA { to = V::Mul(x, b); });
      for (++i; i < end; ++i) {
        step([](F x, F b, F& to) KVG_INLINE_LAMBDA { to = V::Fma(x, b, to); });
      }
      Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
        Unroll<kVectors>([&](auto v) KVG_INLINE_LAMBDA {
          sum[r][v] = V::Add(sum[r][v], V::Add(first[r][v], second[r][v]));
        });
      });
    }
    Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
      Unroll<kVectors>([&](auto v) KVG_INLINE_LAMBDA {
        V::Store(out + r * args.out_stride + v * V::kLanes, sum[r][v]);
      });
    });
  }
};

}  // namespace
}  // namespace kvgauge

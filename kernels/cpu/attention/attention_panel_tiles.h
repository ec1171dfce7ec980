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

#include "cpu/attention/attention_entry_tiles.h"
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
      FewRows(ChosenSteps{args}, row, static_cast<int>(Least(args.rows - row, kVectorRows)));
    }
  }

  static void EntryKeys(const EntryKeysArgs& args) {
    const typename Engine::VectorScope scope;
    RowFeed<V> feed(args.next, StepsOfWords<V>(args.count, args.steps / 2));
    for (int row = 0; row < args.rows; row += kVectorRows) {
      const auto rows = static_cast<int>(Least(args.rows - row, kVectorRows));
      WithRows<V>(rows, [&](auto n) KVG_INLINE_LAMBDA {
        for (int i = 0; i < args.count; i += V::kLanes) LinkKeys<n>(args, row, i, feed);
      });
    }
  }

  static void EntryValues(const EntryValuesArgs& args) {
    const typename Engine::VectorScope scope;
    WithRows<V>(args.rows, [&](auto rows) KVG_INLINE_LAMBDA { LinkValues<rows>(args); });
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

  // V::kLanes keys at a time, as the turning leaves them in registers.
  template <int kRows>
  [[gnu::noinline]] static void LinkKeys(const EntryKeysArgs& args, int row, int entry,
                                         RowFeed<V>& feed) {
    const auto* a = static_cast<const float*>(args.a) + row * args.a_stride;
    const int64_t stride = args.a_stride;
    using F = typename V::F;
    F sum[kRows], first[kRows], second[kRows];
    const auto clear = [](F(&x)[kRows]) KVG_INLINE_LAMBDA {
      Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA { x[r] = V::Set(0.0f); });
    };
    const auto end_link = [&]() KVG_INLINE_LAMBDA {
      Unroll<kRows>(
          [&](auto r) KVG_INLINE_LAMBDA { sum[r] = V::Add(sum[r], V::Add(first[r], second[r])); });
      clear(first);
      clear(second);
    };
    clear(sum);
    clear(first);
    clear(second);
    const auto begin = [&](int w) KVG_INLINE_LAMBDA {
      feed.Step();
      if (w % kTileSteps == 0 && w > 0) end_link();
    };
    ForWords<V>(args, entry, begin, [&](int w, typename V::Words x) KVG_INLINE_LAMBDA {
      const F b0 = V::FirstOfWords(x), b1 = V::SecondOfWords(x);
      const float* of_word = a + 2 * w;
      Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
        first[r] = V::Fma(V::Set(of_word[r * stride]), b0, first[r]);
        second[r] = V::Fma(V::Set(of_word[r * stride + 1]), b1, second[r]);
      });
    });
    end_link();
    StoreProducts<V>(sum, args.out + row * kAttentionSpan + entry * kRowsTogether);
  }

  // The entries of one link: those that are first in their pair, and the others.
  struct Link {
    int count[2] = {0, 0};
    const uint16_t* rows[2][kEntryRun];
    const float* weights[2][kEntryRun];
  };

  // Sums stand in `out` as Columns::Load leaves them until the last link is added.
  template <int kRows>
  static void LinkValues(const EntryValuesArgs& args) {
    for (int r = 0; r < kRows; ++r) {
      for (int c = 0; c < args.width; c += V::kLanes) {
        V::Store(args.out + r * args.out_stride + c, V::Set(0.0f));
      }
    }
    RowFeed<V> feed(args.next, args.count);
    for (int i = 0; i < args.count;) {
      Link link;
      const int run = args.at[i] / kEntryRun;
      for (; i < args.count && args.at[i] / kEntryRun == run; ++i) {
        const int half = args.at[i] % 2, n = link.count[half]++;
        link.rows[half][n] = reinterpret_cast<const uint16_t*>(args.values[i]);
        link.weights[half][n] = args.weights + i * kRowsTogether;
        feed.Step();
      }
      AddLink<kRows>(args, link);
    }
    for (int c = 0; c + kVectorPairs <= args.width; c += kVectorPairs) {
      for (int r = 0; r < kRows; ++r) {
        float* out = args.out + r * args.out_stride + c;
        V::StoreInTurn(out, V::Load(out), V::Load(out + V::kLanes));
      }
    }
  }

  static constexpr int kSome = -1;  // as many as there are

  // Which half is which does not matter; most links have few entries.
  template <int kRows>
  [[gnu::always_inline]] static void AddLink(const EntryValuesArgs& args, const Link& link) {
    const int more = link.count[0] >= link.count[1] ? 0 : 1;
    const int count = link.count[more], others = link.count[1 - more];
    if (count == 1 && others == 0) return AddLinkOf<kRows, 1, 0>(args, link, more);
    if (count == 1) return AddLinkOf<kRows, 1, 1>(args, link, more);
    if (count == 2 && others == 0) return AddLinkOf<kRows, 2, 0>(args, link, more);
    if (count == 2 && others == 1) return AddLinkOf<kRows, 2, 1>(args, link, more);
    AddLinkOf<kRows, kSome, kSome>(args, link, more);
  }

  template <int kRows, int kCount, int kOthers>
  [[gnu::noinline]] static void AddLinkOf(const EntryValuesArgs& args, const Link& link, int more) {
    int column = 0;
    for (; column + kVectorPairs <= args.width; column += kVectorPairs) {
      AddLinkTo<WordColumns<V>, kRows, kCount, kOthers>(args, link, more, column);
    }
    if (column < args.width) {
      AddLinkTo<HalfColumns<V>, kRows, kCount, kOthers>(args, link, more, column);
    }
  }

  template <class Columns, int kRows, int kCount, int kOthers>
  [[gnu::always_inline]] static void AddLinkTo(const EntryValuesArgs& args, const Link& link,
                                               int more, int column) {
    using F = typename V::F;
    constexpr int kVectors = Columns::kVectors;
    F part[2][kRows][kVectors];
    const auto add = [&](auto at, int half, int count) KVG_INLINE_LAMBDA {
      Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
        Unroll<kVectors>([&](auto v) KVG_INLINE_LAMBDA { part[at][r][v] = V::Set(0.0f); });
      });
#pragma GCC unroll 2
      for (int i = 0; i < count; ++i) {
        F b[kVectors];
        Columns::Load(link.rows[half][i] + column, b);
        Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
          const F weight = V::Set(link.weights[half][i][r]);
          Unroll<kVectors>([&](auto v) KVG_INLINE_LAMBDA {
            part[at][r][v] = V::Fma(weight, b[v], part[at][r][v]);
          });
        });
      }
    };
    const int count = kCount == kSome ? link.count[more] : kCount;
    const int others = kOthers == kSome ? link.count[1 - more] : kOthers;
    add(std::integral_constant<int, 0>(), more, count);
    if constexpr (kOthers != 0) add(std::integral_constant<int, 1>(), 1 - more, others);
    Unroll<kRows>([&](auto r) KVG_INLINE_LAMBDA {
      Unroll<kVectors>([&](auto v) KVG_INLINE_LAMBDA {
        float* out = args.out + r * args.out_stride + column + v * V::kLanes;
        F both = part[0][r][v];
        if constexpr (kOthers != 0) both = V::Add(both, part[1][r][v]);
        V::Store(out, V::Add(V::Load(out), both));
      });
    });
  }

  [[gnu::always_inline]] static float Widen(uint16_t bits) {
    const uint32_t wide = uint32_t{bits} << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
  }

  struct Pair {
    typename V::F first, second;
  };
  [[gnu::always_inline]] static Pair Broadcast(const uint16_t* a) {
    uint16_t pair[2];
    std::memcpy(pair, a, sizeof(pair));
    return {V::Set(Widen(pair[0])), V::Set(Widen(pair[1]))};
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

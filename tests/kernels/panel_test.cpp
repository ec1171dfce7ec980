// SPDX-License-Identifier: Apache-2.0
// The panel products themselves: portable code, and the tile geometry over emulated registers, so
// that it is tested where the hardware has none.
#include "cpu/linear/panel.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/dtype.h"
#include "core/strings.h"
#include "cpu/linear/linear_multiply.h"
#include "cpu/linear/panel_portable.h"
#include "cpu/linear/panel_tiles.h"
#include "emulated_tiles.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

struct TilePanels {
  using ThreadScope = EmulatedTiles::ThreadScope;
  using Vec = PortableVector;
  using F32 = F32Panel<PortableVector>;
  using F16 = F16Panel<PortableVector>;
  using Bf16 = Bf16TilePanel<EmulatedTiles>;
};

// Operands of one product in every form; `stride` columns of right operand, of which the panel is
// the first 64.
struct Problem {
  Problem(int64_t rows, int64_t k, int64_t stride) : m(rows), steps(k / 2), columns(stride) {
    x = RandomValues(m * k, 1);
    w = RandomValues(k * columns, 2);
    for (float& v : x) bits_x.push_back(F32ToBf16(v));
    for (float& v : w) v = Bf16ToF32(F32ToBf16(v));
    for (size_t i = 0; i < x.size(); ++i) x[i] = Bf16ToF32(bits_x[i]);
    bits_w.resize(w.size());
    for (int64_t i = 0; i < k; ++i) {
      for (int64_t c = 0; c < columns; ++c) {
        bits_w[static_cast<size_t>((i / 2 * columns + c) * 2 + i % 2)] =
            F32ToBf16(w[static_cast<size_t>(i * columns + c)]);
      }
    }
    for (int64_t r = 0; r < m; ++r) {
      for (int64_t c = 0; c < kPanelColumns; ++c) {
        double sum = 0;
        for (int64_t i = 0; i < k; ++i) {
          sum +=
              double{x[static_cast<size_t>(r * k + i)]} * w[static_cast<size_t>(i * columns + c)];
        }
        want.push_back(static_cast<float>(sum));
      }
    }
    bound = Norm(x) * Norm(w) * std::ldexp(static_cast<double>(k + 1), -24);
  }

  int64_t m, steps, columns;
  std::vector<float> x, w, want;
  std::vector<uint16_t> bits_x, bits_w;
  double bound = 0;
};

constexpr int64_t kGap = 3;  // between rows of sums: a tile must not write there

std::vector<float> RunTiles(const Problem& problem, int64_t split) {
  const TilePanels::ThreadScope scope;
  std::vector<float> acc(static_cast<size_t>(problem.m * (kPanelColumns + kGap)), -7.0f);
  for (int64_t done = 0; done < problem.steps; done += split) {
    PanelRows<TilePanels::Bf16>({.a = problem.bits_x.data() + done * 2,
                                 .a_stride = problem.steps * 2,
                                 .panel = problem.bits_w.data() + done * problem.columns * 2,
                                 .panel_stride = problem.columns * 2,
                                 .steps = std::min(split, problem.steps - done),
                                 .acc = acc.data(),
                                 .acc_stride = kPanelColumns + kGap,
                                 .resume = done > 0,
                                 .prefetch = problem.bits_w.data()},
                                problem.m);
  }
  std::vector<float> out;
  for (int64_t r = 0; r < problem.m; ++r) {
    const float* row = acc.data() + r * (kPanelColumns + kGap);
    out.insert(out.end(), row, row + kPanelColumns);
    for (int64_t c = 0; c < kGap; ++c) EXPECT_EQ(row[kPanelColumns + c], -7.0f);
  }
  return out;
}

TEST(Tiles, MatchDoublesAtEveryEdge) {
  for (const int64_t m : {1, 2, 15, 16, 17, 31, 32, 33, 48, 49, 70}) {
    for (const int64_t k : {2, 30, 32, 34, 64, 94}) {
      const Problem problem(m, k, m % 2 == 0 ? 64 : 128);
      EXPECT_TRUE(AllWithin(RunTiles(problem, problem.steps), problem.want, problem.bound))
          << m << " rows, k " << k;
    }
  }
}

TEST(Tiles, RowsAndSplitsChangeNoBit) {
  const Problem most(70, 110, 64);
  const std::vector<float> want = RunTiles(most, most.steps);
  EXPECT_TRUE(SameBits(RunTiles(most, kPanelSplit), want));
  EXPECT_TRUE(SameBits(RunTiles(most, 2 * kPanelSplit), want));
  for (const int64_t m : {1, 2, 3, 16, 17, 20, 32, 33, 64}) {
    const Problem part(m, 110, 64);
    Problem rows = most;
    rows.m = m;
    EXPECT_TRUE(SameBits(RunTiles(rows, rows.steps),
                         std::span(want).first(static_cast<size_t>(m * kPanelColumns))))
        << m;
  }
}

// The whole kernel over tiles: blocks of k, bias, addition, columns beyond the edge.
TEST(Tiles, ServeTheLinearKernels) {
  const LinearKernels& kernels = LinearKernelsOf<TilePanels>();
  EXPECT_TRUE(kernels.bf16_left);
  const Problem problem(37, 1100, 64);
  const auto bias = RandomValues(kPanelColumns, 5), before = RandomValues(37 * 50, 6);
  std::vector<float> out = before, scratch(static_cast<size_t>(ScratchFloats(37)));
  kernels.multiply[static_cast<int>(DType::kBF16)]({.a = problem.bits_x.data(),
                                                    .a_stride = 1100,
                                                    .rows = 37,
                                                    .panel = problem.bits_w.data(),
                                                    .panel_stride = 128,
                                                    .k = 1100,
                                                    .bias = bias.data(),
                                                    .add = true,
                                                    .out = out.data(),
                                                    .out_stride = 50,
                                                    .columns = 50,
                                                    .scratch = scratch.data()});
  std::vector<float> want;
  for (size_t i = 0; i < before.size(); ++i) {
    want.push_back(before[i] + (problem.want[i / 50 * 64 + i % 50] + bias[i % 50]));
  }
  EXPECT_TRUE(AllWithin(out, want, problem.bound));
  EXPECT_EQ(EmulatedTiles::ThreadScope::open, 0);
}

// A product in parts, several panels in turn, is the product.
TEST(Tiles, PartsChangeNoBit) {
  const LinearKernels& kernels = LinearKernelsOf<TilePanels>();
  const int64_t part = kernels.grouped_k;
  ASSERT_GT(part, 0);
  constexpr int64_t m = 70, k = 1100;
  const auto bias = RandomValues(kPanelColumns, 5);
  const Problem one(m, k, 64);
  Problem other = one;
  for (uint16_t& bits : other.bits_w) bits ^= 0x8000;
  const auto product = [&](const Problem& problem, std::vector<float>& scratch) {
    return PanelProduct{.a = one.bits_x.data(),
                        .a_stride = k,
                        .rows = m,
                        .panel = problem.bits_w.data(),
                        .panel_stride = 128,
                        .k = k,
                        .bias = bias.data(),
                        .out_stride = 50,
                        .columns = 50,
                        .scratch = scratch.data()};
  };
  const auto multiply = kernels.multiply[static_cast<int>(DType::kBF16)];
  std::vector<float> scratch(static_cast<size_t>(ScratchFloats(m)));
  std::vector<float> want[2], got[2], sums[2];
  for (int i = 0; i < 2; ++i) {
    want[i].resize(m * 50);
    got[i].resize(m * 50);
    sums[i].resize(m * kPanelColumns);
    PanelProduct whole = product(i == 0 ? one : other, scratch);
    whole.out = want[i].data();
    multiply(whole);
  }
  for (int64_t begin = 0; begin < k; begin += part) {
    for (int i = 0; i < 2; ++i) {
      PanelProduct p = product(i == 0 ? one : other, scratch);
      p.out = got[i].data();
      p.begin = begin;
      p.k = std::min(begin + part, k);
      p.last = p.k == k;
      p.sums = sums[i].data();
      p.next = one.bits_w.data();
      multiply(p);
    }
  }
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(SameBits(got[i], want[i]));
}

TEST(Panel, SplitsAndStridesChangeNoBit) {
  for (const int64_t m : {1, 4, 6, 7, 13}) {
    const Problem problem(m, 94, 128);
    const auto run = [&](int64_t split) {
      std::vector<float> acc(static_cast<size_t>(m * kPanelColumns));
      for (int64_t done = 0; done < 94; done += split) {
        PanelRows<Panels::F32>({.a = problem.x.data() + done,
                                .a_stride = 94,
                                .panel = problem.w.data() + done * 128,
                                .panel_stride = 128,
                                .steps = std::min<int64_t>(split, 94 - done),
                                .acc = acc.data(),
                                .acc_stride = kPanelColumns,
                                .resume = done > 0},
                               m);
      }
      return acc;
    };
    const auto whole = run(94);
    EXPECT_TRUE(AllWithin(whole, problem.want, problem.bound));
    EXPECT_TRUE(SameBits(run(1), whole));
    EXPECT_TRUE(SameBits(run(40), whole));
  }
}

}  // namespace
}  // namespace kvgauge

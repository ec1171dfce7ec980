// SPDX-License-Identifier: Apache-2.0
// RowOps: angle tables and rotation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "backends.h"
#include "kernels/rows.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

class RopeTest : public ::testing::Test {
 protected:
  RopeTest() : backends(CpuBackends(MakeCpuRows, {1, 2})) {
    backends.push_back({"reference", MakeReferenceRows()});
  }
  std::vector<Backend<RowOps>> backends;
};

TEST_F(RopeTest, TableIsAccurateAtLargePositions) {
  std::vector<float> frequency(64);
  for (int i = 0; i < 64; ++i) frequency[i] = static_cast<float>(std::pow(1e4, -i / 64.0));
  const std::vector<int32_t> positions = {0, 1, 4095, 100000, 1000003, -7, 2000000000};
  const auto m = static_cast<int64_t>(positions.size());
  for (const auto& [name, ops] : backends) {
    Matrix cos(DType::kF32, m, 64, 3), sin(DType::kF32, m, 64, 3);
    ops->RopeTable(View(positions, {m, 1}), View(frequency, {64}), {}, 1.25f, cos.view(),
                   sin.view());
    EXPECT_TRUE(cos.Intact() && sin.Intact());
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < 64; ++j) {
        const float angle = static_cast<float>(positions[i]) * frequency[j];
        // Rounded to f32 below 1, then times the factor, rounded again below 2.
        ASSERT_NEAR(cos.row(i)[j], 1.25 * std::cos(double{angle}), 1.7 * kRound) << name;
        ASSERT_NEAR(sin.row(i)[j], 1.25 * std::sin(double{angle}), 1.7 * kRound) << name;
      }
    }
  }
}

TEST_F(RopeTest, TableFollowsAxes) {
  const std::vector<float> frequency = {1, 0.5f, 0.25f};
  const std::vector<int32_t> positions = {2, 4, 8, 0, 1, 2}, axis = {2, 0, 1};
  for (const auto& [name, ops] : backends) {
    std::vector<float> cos(6), sin(6);
    ops->RopeTable(View(positions, {2, 3}), View(frequency, {3}), View(axis, {3}), 1,
                   View(cos, {2, 3}), View(sin, {2, 3}));
    const double angles[] = {8, 1, 1, 2, 0, 0.25};
    for (int i = 0; i < 6; ++i) EXPECT_NEAR(cos[i], std::cos(angles[i]), 1e-7) << name;
    for (int i = 0; i < 6; ++i) EXPECT_NEAR(sin[i], std::sin(angles[i]), 1e-7) << name;
  }
}

// x: heads of d values, more than are rotated, inside wider rows.
struct RopeShape {
  int64_t m, heads, d, half;
};

TEST_F(RopeTest, AgreesWithTwinAndUndoesItself) {
  const std::unique_ptr<RowOps> twin = MakeReferenceRows();
  for (const RopeShape& s : {RopeShape{1, 1, 2, 1},
                             {3, 2, 8, 4},
                             {2, 3, 80, 20},
                             {5, 2, 64, 32},
                             {2, 1, 30, 15},
                             {2, 2, 128, 37},
                             {1, 2, 700, 300},
                             {64, 8, 128, 64}}) {
    const int64_t width = (s.heads + 2) * s.d;
    const std::vector<float> data = RandomValues(s.m * width, 31);
    std::vector<float> frequency(s.half), cos(s.m * s.half), sin(s.m * s.half);
    for (int64_t i = 0; i < s.half; ++i) frequency[i] = 1.0f / static_cast<float>(i + 1);
    std::vector<int32_t> positions(s.m);
    for (int64_t i = 0; i < s.m; ++i) positions[i] = static_cast<int32_t>(17 * i + 3);
    const Tensor c = View(cos, {s.m, s.half}), sn = View(sin, {s.m, s.half});
    twin->RopeTable(View(positions, {s.m, 1}), View(frequency, {s.half}), {}, 1, c, sn);
    const auto heads = [&](const std::vector<float>& rows) {
      Tensor x = View(rows, {s.m, s.heads + 2, s.d});
      x.data = x.f32() + s.d;  // a head before and one behind
      x.shape[1] = s.heads;
      return x;
    };
    for (const RopeLayout layout : {RopeLayout::kHalf, RopeLayout::kInterleaved}) {
      std::vector<float> want = data;
      twin->Rope(c, sn, layout, RopeDirection::kForward, heads(want));
      for (const auto& [name, ops] : backends) {
        std::vector<float> got = data;
        ops->Rope(c, sn, layout, RopeDirection::kForward, heads(got));
        // Each output is a sum of two products.
        ASSERT_TRUE(AllWithin(got, want, 3 * kRound * 1.5 * 80)) << name;
        for (size_t i = 0; i < got.size(); ++i) {
          const int64_t in_head = static_cast<int64_t>(i) % s.d;
          const int64_t head = static_cast<int64_t>(i) % width / s.d;
          if (in_head >= 2 * s.half || head == 0 || head > s.heads) {
            ASSERT_EQ(got[i], data[i]) << name << ": touched what it should not";
          }
        }
        // One row alone gets the same bits.
        std::vector<float> alone = data;
        for (int64_t i = 0; i < s.m; ++i) {
          ops->Rope(c.Slice(i, i + 1), sn.Slice(i, i + 1), layout, RopeDirection::kForward,
                    heads(alone).Slice(i, i + 1));
        }
        ASSERT_TRUE(SameBits(alone, got)) << name;
        ops->Rope(c, sn, layout, RopeDirection::kInverse, heads(got));
        ASSERT_TRUE(AllWithin(got, data, 8 * kRound * 1.5 * 80)) << name;
      }
    }
  }
}

TEST_F(RopeTest, HandWorked) {
  // A quarter turn of the first pair, a half turn of the second.
  const std::vector<float> cos = {0, -1}, sin = {1, 0};
  for (const auto& [name, ops] : backends) {
    std::vector<float> x = {1, 2, 3, 4, 9};
    ops->Rope(View(cos, {1, 2}), View(sin, {1, 2}), RopeLayout::kHalf, RopeDirection::kForward,
              View(x, {1, 1, 5}));
    EXPECT_THAT(x, ::testing::ElementsAre(-3, -2, 1, -4, 9)) << name;
    x = {1, 2, 3, 4, 9};
    ops->Rope(View(cos, {1, 2}), View(sin, {1, 2}), RopeLayout::kInterleaved,
              RopeDirection::kForward, View(x, {1, 1, 5}));
    EXPECT_THAT(x, ::testing::ElementsAre(-2, 1, -3, -4, 9)) << name;
  }
}

}  // namespace
}  // namespace kvgauge

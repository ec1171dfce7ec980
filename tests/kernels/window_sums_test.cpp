// SPDX-License-Identifier: Apache-2.0
#include "kernels/window_sums.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvgauge {
namespace {

TEST(WindowSums, EqualPlainLoops) {
  for (const char* backend : {"reference", "cpu"}) {
    const std::unique_ptr<Ops> ops = MakeOps(backend, MakeThreadSettings(2)).value();
    for (const int64_t n : {1, 2, 3, 17, 64, 100}) {
      for (const int64_t width : {1, 2, 3, 5, 8, 31, 32, 33, 64, 200}) {
        for (const WindowSide side : {WindowSide::kAhead, WindowSide::kBehind}) {
          const int64_t d = 3;
          const auto count = static_cast<size_t>(n * d);
          std::vector<float> x(count), spare(2 * count), out(count, -1.0f);
          // Small whole numbers: every order of adding them gives the same.
          for (size_t i = 0; i < count; ++i) x[i] = static_cast<float>((i * 37 + 11) % 23) - 9;
          const std::vector<float> before = x;
          WindowSums(*ops, View(x, {n, d}), width, side, View(spare, {2 * n, d}),
                     View(out, {n, d}));
          EXPECT_EQ(x, before);
          for (int64_t i = 0; i < n; ++i) {
            for (int64_t c = 0; c < d; ++c) {
              float want = 0;
              for (int64_t m = 0; m < width; ++m) {
                const int64_t row = side == WindowSide::kAhead ? i + m : i - m;
                if (row >= 0 && row < n) want += x[static_cast<size_t>(row * d + c)];
              }
              ASSERT_EQ(out[static_cast<size_t>(i * d + c)], want)
                  << backend << " n " << n << " width " << width << " row " << i;
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvgauge

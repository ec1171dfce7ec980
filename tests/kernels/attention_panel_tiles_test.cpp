// SPDX-License-Identifier: Apache-2.0
// Attention's products in tile registers, over emulated ones: a result's bits are the same however
// many rows, columns and entries are multiplied together, and whether tiles or vectors do it.
#include "cpu/attention/attention_panel_tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "core/rng.h"
#include "cpu/cpu.h"
#include "cpu/isa/vector_math_portable.h"
#include "emulated_tiles.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

using Products = TileProducts<EmulatedTiles, PortableVector>;

constexpr int64_t kFence = 5;  // between rows of results: nothing may be written there

std::vector<uint16_t> RoundedBits(std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (float& v : values) {
    bits.push_back(F32ToBf16(v));
    v = Bf16ToF32(bits.back());
  }
  return bits;
}

// Rows that meet a panel of `width` columns.
struct PanelScene {
  PanelScene(int most_rows, int panel_steps, int panel_width)
      : rows(most_rows), steps(panel_steps), width(panel_width) {
    a = RandomValues(int64_t{rows} * steps, 1);
    w = RandomValues(int64_t{steps} * width, 2);
    a_bits = RoundedBits(a);
    const std::vector<uint16_t> bits = RoundedBits(w);
    panel.resize(bits.size());
    for (int s = 0; s < steps; ++s) {
      for (int c = 0; c < width; ++c) panel[Place(s, c)] = bits[At(s, c)];
    }
  }
  size_t At(int s, int c) const { return static_cast<size_t>(s) * width + c; }
  size_t Place(int s, int c) const { return (static_cast<size_t>(s / 2) * width + c) * 2 + s % 2; }

  // Rows [first, first + count) of `before` + a * panel, by the doubles and by the product.
  std::vector<float> Want(const std::vector<float>& before) const {
    std::vector<float> want;
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < width; ++c) {
        double sum = before.empty() ? 0 : double{before[static_cast<size_t>(r) * width + c]};
        for (int s = 0; s < steps; ++s) {
          sum += double{a[static_cast<size_t>(r) * steps + s]} * w[At(s, c)];
        }
        want.push_back(static_cast<float>(sum));
      }
    }
    return want;
  }
  std::vector<float> Run(const std::vector<float>& before, int first, int count) const {
    const int64_t stride = width + kFence;
    std::vector<float> out(static_cast<size_t>(count * stride), -7.0f);
    for (size_t i = 0; !before.empty() && i < static_cast<size_t>(count * width); ++i) {
      out[i / width * stride + i % width] = before[static_cast<size_t>(first) * width + i];
    }
    const EmulatedTiles::ThreadScope scope;
    Products::Product({.a = a_bits.data() + int64_t{first} * steps,
                       .a_stride = steps,
                       .rows = count,
                       .panel = panel.data(),
                       .next_panel = panel.data(),
                       .steps = steps,
                       .width = width,
                       .out = out.data(),
                       .out_stride = stride,
                       .accumulate = !before.empty()});
    std::vector<float> dense;
    for (int r = 0; r < count; ++r) {
      const float* row = out.data() + r * stride;
      dense.insert(dense.end(), row, row + width);
      for (int64_t c = width; c < stride; ++c) EXPECT_EQ(row[c], -7.0f);
    }
    return dense;
  }

  int rows, steps, width;
  std::vector<float> a, w;
  std::vector<uint16_t> a_bits, panel;
};

TEST(TileProducts, MatchDoublesWhateverTheShape) {
  for (const int width : {16, 32, 48, 64}) {
    for (const int steps : {2, 30, 32, 64, 66, 80, 128}) {
      const PanelScene scene(37, steps, width);
      const std::vector<float> before = RandomValues(int64_t{scene.rows} * width, 3);
      const double bound =
          (Norm(scene.a) * Norm(scene.w) + Norm(before)) * std::ldexp(steps + 2.0, -24);
      EXPECT_TRUE(AllWithin(scene.Run({}, 0, 37), scene.Want({}), bound)) << width << " " << steps;
      EXPECT_TRUE(AllWithin(scene.Run(before, 0, 37), scene.Want(before), bound))
          << width << " " << steps;
    }
  }
}

TEST(TileProducts, RowsHaveTheirBitsInAnyCompany) {
  for (const int width : {16, 48, 64}) {
    for (const int steps : {30, 64, 80}) {
      const PanelScene scene(70, steps, width);
      const std::vector<float> before = RandomValues(int64_t{70} * width, 3);
      for (const bool resumed : {false, true}) {
        const std::vector<float> start = resumed ? before : std::vector<float>{};
        const std::vector<float> want = scene.Run(start, 0, 70);
        for (const int count : {1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 48, 49}) {
          for (const int first : {0, 3, 21}) {
            const auto part = std::span(want).subspan(static_cast<size_t>(first) * width,
                                                      static_cast<size_t>(count) * width);
            EXPECT_TRUE(SameBits(scene.Run(start, first, count), part))
                << width << " columns, " << steps << " steps, rows " << first << " + " << count;
          }
        }
      }
    }
  }
}

TEST(TileProducts, ChosenKeysAreThoseOfTheWholePage) {
  for (const int steps : {16, 64, 80, 130}) {
    const PanelScene scene(21, steps, kPanelWidth);
    const std::vector<float> all = scene.Run({}, 0, 21);
    const std::vector<int> chosen = {3, 0, 1, 3, 2};  // units of 16 columns, in any order
    for (const int count : {1, 2, 3, 4, 5}) {
      for (const int rows : {1, 4, 8, 16, 21}) {
        std::vector<const void*> columns;
        for (int u = 0; u < count; ++u) columns.push_back(scene.panel.data() + chosen[u] * 32);
        const int64_t stride = count * kVectorFloats + kFence;
        std::vector<float> out(static_cast<size_t>(rows * stride), -7.0f);
        const std::vector<const char*> lines(7, reinterpret_cast<const char*>(out.data()));
        const EmulatedTiles::ThreadScope scope;
        Products::ChosenKeys({.a = scene.a_bits.data(),
                              .a_stride = steps,
                              .rows = rows,
                              .columns = columns.data(),
                              .count = count,
                              .steps = steps,
                              .out = out.data(),
                              .out_stride = stride,
                              .lines = {lines.data(), 7}});
        for (int r = 0; r < rows; ++r) {
          for (int u = 0; u < count; ++u) {
            const auto part = std::span(out).subspan(static_cast<size_t>(r * stride) + u * 16, 16);
            const size_t at = static_cast<size_t>(r) * kPanelWidth + chosen[u] * 16;
            EXPECT_TRUE(SameBits(part, std::span(all).subspan(at, 16))) << r << " " << u;
          }
          EXPECT_EQ(out[static_cast<size_t>((r + 1) * stride - 1)], -7.0f);
        }
      }
    }
  }
}

// A span of several pages, of which a few pairs of entries have weights: their places among all
// columns are not those among the chosen ones.
TEST(TileProducts, ChosenValuesAreThoseOfAllEntriesWithZeros) {
  constexpr int kSteps = 64, kPages = 3, kRows = 9;
  const std::vector<std::vector<int>> choices = {
      {0}, {190}, {30, 32, 34}, {2, 4, 6, 62, 64, 126, 128, 160, 162, 164}, {96, 98, 100, 102}};
  for (const int width : {16, 48, 64}) {
    std::vector<PanelScene> pages;
    for (int p = 0; p < kPages; ++p) {
      pages.emplace_back(kRows, kSteps, width);
      // Pages are not alike.
      for (size_t i = 0; i < pages[p].panel.size(); i += 7) {
        pages[p].panel[i] = static_cast<uint16_t>(pages[p].panel[i] ^ p << 4);
      }
    }
    for (const std::vector<int>& entries : choices) {
      const auto count = static_cast<int>(entries.size());
      std::vector<float> weights = RandomValues(int64_t{kRows} * count * 2, 4);
      const std::vector<uint16_t> bits = RoundedBits(weights);
      std::vector<const void*> steps;
      std::vector<uint16_t> at;
      std::vector<uint8_t> run;
      for (int i = 0; i < count; ++i) {
        const int page = entries[i] / kSteps, s = entries[i] % kSteps;
        steps.push_back(pages[page].panel.data() + pages[page].Place(s, 0));
        at.push_back(static_cast<uint16_t>(2 * i));
        run.push_back(static_cast<uint8_t>(entries[i] / kEntryRun));
      }
      for (PanelScene& page : pages) std::fill(page.a_bits.begin(), page.a_bits.end(), uint16_t{0});
      for (int r = 0; r < kRows; ++r) {
        for (int i = 0; i < count; ++i) {
          PanelScene& page = pages[entries[i] / kSteps];
          for (int half = 0; half < 2; ++half) {
            page.a_bits[static_cast<size_t>(r) * kSteps + entries[i] % kSteps + half] =
                bits[static_cast<size_t>(r * count + i) * 2 + half];
          }
        }
      }
      std::vector<float> want(static_cast<size_t>(kRows) * width, 0.0f);
      for (const PanelScene& page : pages) want = page.Run(want, 0, kRows);
      for (const int rows : {1, 2, 3, 4, kRows}) {
        std::vector<float> out(static_cast<size_t>(rows) * width);
        const EmulatedTiles::ThreadScope scope;
        Products::ChosenValues({.a = bits.data(),
                                .a_stride = count * 2,
                                .rows = rows,
                                .steps = steps.data(),
                                .at = at.data(),
                                .run = run.data(),
                                .count = count,
                                .width = width,
                                .out = out.data(),
                                .out_stride = width,
                                .lines = {}});
        EXPECT_TRUE(SameBits(out, std::span(want).first(out.size())))
            << width << " columns, " << count << " pairs, " << rows << " rows";
      }
    }
  }
}

#if defined(__x86_64__)
// The registers themselves: numbers whose products and sums are denormal count as 0 in both ways,
// and so do denormal numbers.
TEST(TileProducts, OfTheProcessorRoundAsItsVectorsDo) {
  if (SupportedIsas().back() != Isa::kAmx) GTEST_SKIP() << "no AMX here";
  const AttentionKernels& kernels = AmxAttentionKernels();
  constexpr int kRows = 21, kSteps = 128;
  Rng rng(5, 0);
  PanelScene scene(kRows, kSteps, kPanelWidth);
  // From denormals to 2^-58: products are around 2^-126, below which floats are denormal, and far
  // below.
  const auto spread = [&](std::vector<uint16_t>& bits) {
    for (uint16_t& x : bits) {
      x = static_cast<uint16_t>((x & 0x807f) | static_cast<uint16_t>(rng.NextBelow(70)) << 7);
    }
  };
  spread(scene.a_bits);
  spread(scene.panel);
  const auto run = [&](int first, int count) {
    std::vector<float> out(static_cast<size_t>(count) * kPanelWidth);
    const ProductScope scope(kernels);
    kernels.product[static_cast<int>(DType::kBF16)](
        {.a = scene.a_bits.data() + int64_t{first} * kSteps,
         .a_stride = kSteps,
         .rows = count,
         .panel = scene.panel.data(),
         .next_panel = scene.panel.data(),
         .steps = kSteps,
         .width = kPanelWidth,
         .out = out.data(),
         .out_stride = kPanelWidth,
         .accumulate = false});
    return out;
  };
  const std::vector<float> want = run(0, kRows);
  EXPECT_GT(std::ranges::count_if(want, [](float x) { return x != 0; }), 100);
  for (const int count : {1, 2, 3, 4}) {
    for (int first = 0; first + count <= kRows; first += count) {
      const auto part = std::span(want).subspan(static_cast<size_t>(first) * kPanelWidth,
                                                static_cast<size_t>(count) * kPanelWidth);
      EXPECT_TRUE(SameBits(run(first, count), part)) << "rows " << first << " + " << count;
    }
  }
}
#endif

}  // namespace
}  // namespace kvgauge

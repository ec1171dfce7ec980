// SPDX-License-Identifier: Apache-2.0
// Readers on a layer with a window that slides, or that begins anew at multiples of its size: what
// it hides takes no place of what is seen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "chosen_entries.h"
#include "fake_view.h"

namespace kvgauge {
namespace {

constexpr int64_t kWindowEntries = 200, kWindow = 40, kDims = 8;

struct WindowedReader {
  const char* id;
  const char* params;
  int64_t least;  // entries that a query head reads of those that it sees
};

void PrintTo(const WindowedReader& reader, std::ostream* out) { *out << reader.id; }

class ReaderWindows : public ::testing::TestWithParam<WindowedReader> {
 protected:
  static ModelShape Shape(int64_t window, bool chunked) {
    ModelShape shape = SmallShape(1, 2, 2, kDims);
    shape.windows.assign(1, window);
    shape.chunked = chunked;
    return shape;
  }

  // Keys that match the queries best are those of the first entries.
  static std::vector<float> Fill(FakeView& view) {
    view.Randomize(3);
    view.classes[static_cast<size_t>(TokenClass::kPunctuation)].assign(kWindowEntries, 0.0f);
    for (int64_t i = 7; i < kWindowEntries; i += 8) {
      view.classes[static_cast<size_t>(TokenClass::kPunctuation)][static_cast<size_t>(i)] = 1;
    }
    for (auto& keys : view.keys) {
      for (int64_t i = 0; i < (kWindowEntries - kWindow) * kDims; ++i) {
        keys[static_cast<size_t>(i)] = 2 + std::abs(keys[static_cast<size_t>(i)]);
      }
    }
    return std::vector<float>(static_cast<size_t>(4 * kDims), 1.0f);
  }

  static int64_t SeenReads(const Reads& reads, int64_t head) {
    int64_t count = 0;
    for (int64_t e = kWindowEntries - kWindow; e < kWindowEntries; ++e)
      count += reads.Has(head, e) ? 1 : 0;
    return count;
  }
};

TEST_P(ReaderWindows, WhatIsHiddenTakesNoPlace) {
  const auto reader = MakeStage<Reader>(StageKind::kRead, GetParam().id, GetParam().params);
  static_assert(kWindowEntries % (2 * kWindow) == kWindow,
                "a chunk of twice the window shows as much");
  for (const auto& [window, chunked] :
       {std::pair{int64_t{0}, false}, {kWindow, false}, {2 * kWindow, true}}) {
    SCOPED_TRACE(window);
    FakeView view(Shape(window, chunked), kWindowEntries);
    const std::vector<float> queries = Fill(view);
    const auto state = reader->Begin(view);
    const Reads reads = SelectWith(*reader, view, *state, queries);
    ASSERT_TRUE(reads.chosen);
    for (int64_t head = 0; head < 4; ++head) {
      if (window == 0) {
        EXPECT_LT(SeenReads(reads, head), GetParam().least) << "the test shows nothing";
      } else {
        EXPECT_GE(SeenReads(reads, head), GetParam().least);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Readers, ReaderWindows,
    ::testing::Values(
        WindowedReader{"quest", R"({"page": 8, "tokens": 32, "dense_layers": 0})", 32},
        WindowedReader{"quest_top_p",
                       R"({"page": 8, "tokens": 32, "share": 0.999, "dense_layers": 0})", 20},
        WindowedReader{"exact_top_k", R"({"tokens": 20, "sinks": 4, "local": 8})", 28},
        WindowedReader{"subspace", R"({"rank": 4, "tokens": 24})", 24},
        WindowedReader{"sentences", R"({"tokens": 16, "sinks": 4, "local": 8})", 24},
        WindowedReader{"clusterkv", R"({"tokens": 24, "sinks": 4, "span": 20, "dense_layers": 0})",
                       20},
        WindowedReader{"rocketkv", R"({"page": 4, "rank": 4, "tokens": 24})", 24},
        WindowedReader{"shadowkv", R"({"chunk": 4, "tokens": 16, "outliers": 2, "local": 2})", 24}),
    [](const auto& one) { return std::string(one.param.id); });

}  // namespace
}  // namespace kvgauge

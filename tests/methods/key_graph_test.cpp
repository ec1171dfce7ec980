// SPDX-License-Identifier: Apache-2.0
// The reader that searches a graph of keys, against the exact search over the same entries.
#include "kernels/key_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "chosen_entries.h"
#include "core/rng.h"
#include "fake_view.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kGraphEntries = 480, kGraphDim = 32, kGraphSinks = 4, kGraphLocal = 16;
constexpr int64_t kGraphReads = 24, kGraphKvHeads = 2, kGraphGroup = 2, kGraphHeads = 4;

// Queries lie elsewhere than keys do, as those of a model, and depend on few things.
class KeyGraphReaderTest : public ::testing::Test {
 protected:
  static std::vector<float> Gaussians(int64_t count, uint64_t seed, float scale = 1.0f) {
    Rng rng(seed, 3);
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = scale * static_cast<float>(rng.NextGaussian());
    return values;
  }

  static std::vector<float> Queries(int64_t rows, uint64_t seed) {
    const std::vector<float> directions = Gaussians(2 * kGraphDim, 77);
    const std::vector<float> parts = Gaussians(rows * kGraphHeads * 2, seed);
    const std::vector<float> noise = Gaussians(rows * kGraphHeads * kGraphDim, seed + 1, 0.3f);
    std::vector<float> queries = noise;
    for (int64_t i = 0; i < rows * kGraphHeads; ++i) {
      for (int64_t d = 0; d < kGraphDim; ++d) {
        float& x = queries[static_cast<size_t>(i * kGraphDim + d)];
        for (int64_t p = 0; p < 2; ++p) x += parts[i * 2 + p] * directions[p * kGraphDim + d];
        x += d % 4 == 0 ? 1.5f : 0.0f;
      }
    }
    return queries;
  }

  static FakeView Scene(int64_t window = 0) {
    ModelShape shape = SmallShape(1, kGraphKvHeads, kGraphGroup, kGraphDim);
    shape.windows.assign(1, window);
    FakeView view(shape, kGraphEntries);
    for (int64_t h = 0; h < kGraphKvHeads; ++h) {
      view.keys[static_cast<size_t>(h)] = Gaussians(kGraphEntries * kGraphDim, 20 + h);
    }
    view.queries = Queries(kGraphEntries, 30);
    return view;
  }

  static std::unique_ptr<Reader> Graph(int64_t beam, const std::string& more = "") {
    return MakeStage<Reader>(
        StageKind::kRead, "key_graph",
        StrCat(R"({"tokens": 24, "sinks": 4, "local": 16, "nearest": 24, "degree": 4,)",
               R"( "build_beam": 12, "beam": )", beam, more, "}"));
  }
  static std::unique_ptr<Reader> Exact() {
    return MakeStage<Reader>(StageKind::kRead, "exact_top_k",
                             R"({"tokens": 24, "sinks": 4, "local": 16})");
  }

  // The share of what an exact search reads between the ends that is read, over some steps.
  static double Recall(const Reader& reader, FakeView& view) {
    const auto exact = Exact();
    const auto state = reader.Begin(view), oracle = exact->Begin(view);
    int64_t hits = 0, all = 0;
    for (uint64_t step = 0; step < 20; ++step) {
      const std::vector<float> q = Queries(1, 500 + 2 * step);
      const Reads reads = SelectWith(reader, view, *state, q);
      const Reads best = SelectWith(*exact, view, *oracle, q);
      EXPECT_TRUE(reads.chosen);
      for (int64_t head = 0; head < kGraphHeads; ++head) {
        for (const int64_t entry : best.Of(head)) {
          if (entry < kGraphSinks || entry >= kGraphEntries - kGraphLocal) {
            EXPECT_TRUE(reads.Has(head, entry)) << entry;
            continue;
          }
          hits += reads.Has(head, entry) ? 1 : 0;
          ++all;
        }
        EXPECT_LE(std::ssize(reads.Of(head)), kGraphSinks + kGraphLocal + kGraphReads);
      }
    }
    return static_cast<double>(hits) / static_cast<double>(all);
  }
};

TEST_F(KeyGraphReaderTest, FindsNearlyAllThatAnExactSearchFinds) {
  FakeView view = Scene();
  const double narrow = Recall(*Graph(24), view), wide = Recall(*Graph(96), view);
  EXPECT_GE(narrow, 0.6);
  EXPECT_GE(wide, 0.9);
  EXPECT_GT(wide, narrow + 0.05);
}

// What the paper is about: where queries are unlike keys, links by keys alone lead astray, though
// there are more of them.
TEST_F(KeyGraphReaderTest, LinksByQueriesFindMoreThanLinksByKeys) {
  FakeView view = Scene();
  const auto reader = Graph(24);
  const double by_queries = Recall(*reader, view);
  FakeView other = Scene();
  for (int64_t i = 0; i < kGraphEntries; ++i) {
    for (int64_t head = 0; head < kGraphHeads; ++head) {
      const auto& keys = other.keys[static_cast<size_t>(head / kGraphGroup)];
      std::copy_n(keys.begin() + i * kGraphDim, kGraphDim,
                  other.queries.begin() + (i * kGraphHeads + head) * kGraphDim);
    }
  }
  EXPECT_LT(reader->Begin(view)->bytes(), reader->Begin(other)->bytes());
  EXPECT_GT(by_queries, Recall(*reader, other) + 0.02);
}

TEST_F(KeyGraphReaderTest, WhatIsDecodedIsReadAndTheIndexStays) {
  FakeView view = Scene();
  // The last 100 entries come later: the prompt ends before them.
  for (int64_t h = 0; h < kGraphKvHeads; ++h) view.SetLength(h, kGraphEntries - 100);
  const auto reader = Graph(48);
  const auto state = reader->Begin(view);
  const int64_t bytes = state->bytes();
  constexpr int64_t kMembers = kGraphEntries - 100 - kGraphSinks - kGraphLocal;
  EXPECT_GT(bytes, kGraphKvHeads * kMembers * kGraphDim * 4);
  // Keys, up to two lists of links and their ends, and what a search works with.
  EXPECT_LE(bytes, kGraphKvHeads * kMembers * kGraphDim * 4 +
                       kGraphHeads * (kMembers * (8 * 4 + 4) + 4 + kMembers / 8 + 8 + 12 * 49));
  view.is_decoding = true;
  for (int64_t h = 0; h < kGraphKvHeads; ++h) view.SetLength(h, kGraphEntries);
  const std::vector<int64_t> first(kGraphKvHeads, kGraphEntries - 100);
  reader->Append(view, first, *state);
  const Reads reads = SelectWith(*reader, view, *state, Queries(1, 3));
  for (int64_t head = 0; head < kGraphHeads; ++head) {
    for (int64_t entry = kGraphEntries - 100 - kGraphLocal; entry < kGraphEntries; ++entry) {
      EXPECT_TRUE(reads.Has(head, entry)) << entry;
    }
    EXPECT_EQ(std::ssize(reads.Of(head)), kGraphSinks + kGraphLocal + 100 + kGraphReads);
  }
  EXPECT_EQ(state->bytes(), bytes);
}

TEST_F(KeyGraphReaderTest, WithoutQueriesOfAPromptASearchIsExact) {
  FakeView view = Scene();
  view.is_decoding = true;
  EXPECT_EQ(Recall(*Graph(24), view), 1.0);
}

TEST_F(KeyGraphReaderTest, TheLastRowsAloneMakeTheGraphs) {
  FakeView view = Scene(), other = Scene();
  std::fill_n(other.queries.begin(), (kGraphEntries - 300) * kGraphHeads * kGraphDim, 0.0f);
  const auto reader = Graph(32, R"(, "rows": 300)");
  EXPECT_EQ(reader->needs().window, 300);
  const auto state = reader->Begin(view), same = reader->Begin(other);
  EXPECT_EQ(state->bytes(), same->bytes());
  const std::vector<float> q = Queries(1, 8);
  EXPECT_EQ(SelectWith(*reader, view, *state, q).words, SelectWith(*reader, other, *same, q).words);
  const auto all = Graph(32);
  const auto of_zeros = all->Begin(other), of_all = all->Begin(view);
  EXPECT_NE(of_zeros->bytes(), of_all->bytes()) << "the test shows nothing";
}

TEST_F(KeyGraphReaderTest, AHeadOfFewEntriesIsReadWhole) {
  FakeView view = Scene();
  view.SetLength(0, 30);
  const auto reader = Graph(32);
  const auto state = reader->Begin(view);
  const Reads reads = SelectWith(*reader, view, *state, Queries(1, 4));
  ASSERT_TRUE(reads.chosen);
  for (const int64_t head : {0, 1}) EXPECT_EQ(std::ssize(reads.Of(head)), 30);
  for (const int64_t head : {2, 3}) EXPECT_EQ(std::ssize(reads.Of(head)), 4 + 16 + 24);
}

TEST_F(KeyGraphReaderTest, WhatFitsAndWhatAWindowSeesIsReadWhole) {
  const auto reader = Graph(32);
  FakeView narrow = Scene(/*window=*/200);
  const auto of_window = reader->Begin(narrow);
  EXPECT_EQ(of_window->bytes(), 0);
  EXPECT_FALSE(SelectWith(*reader, narrow, *of_window, Queries(1, 4)).chosen);
  FakeView few = Scene();
  for (int64_t h = 0; h < kGraphKvHeads; ++h) few.SetLength(h, 44);
  const auto of_few = reader->Begin(few);
  EXPECT_FALSE(SelectWith(*reader, few, *of_few, Queries(1, 4)).chosen);
}

TEST_F(KeyGraphReaderTest, ABeamHasRoomForWhatIsRead) {
  FakeView view = Scene();
  const auto narrow = Graph(5), exact_fit = Graph(24);
  const auto state = narrow->Begin(view), same = exact_fit->Begin(view);
  const std::vector<float> q = Queries(1, 4);
  EXPECT_EQ(SelectWith(*narrow, view, *state, q).words,
            SelectWith(*exact_fit, view, *same, q).words);
}

TEST_F(KeyGraphReaderTest, AGraphWithoutLinksIsRefused) {
  const StageSpec* spec = *FindStage(StageKind::kRead, "key_graph");
  for (const char* key : {"degree", "nearest", "rows", "beam", "build_beam", "tokens", "local"}) {
    const auto parsed =
        Params::Parse(spec->params, *ParseJson(StrCat("{\"", key, "\": 0}"), "test"), "key_graph");
    ASSERT_FALSE(parsed.ok()) << key;
    EXPECT_THAT(parsed.error().message, HasSubstr(key));
    EXPECT_THAT(parsed.error().message, HasSubstr("0"));
  }
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/run/text_windows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <tuple>

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Kind = TextProtocol::Kind;

std::vector<std::tuple<int64_t, int64_t, int64_t>> Cut(const TextProtocol& protocol,
                                                       int64_t tokens) {
  std::vector<std::tuple<int64_t, int64_t, int64_t>> windows;
  for (const TextWindow& w : CutWindows(protocol, tokens)) {
    windows.emplace_back(w.begin, w.end, w.counted);
  }
  return windows;
}

TEST(TextWindows, AreCutAsTheProtocolSays) {
  const TextProtocol blocks = {.kind = Kind::kBlocks, .window = 8};
  EXPECT_THAT(Cut(blocks, 25),
              ElementsAre(std::tuple(0, 8, 7), std::tuple(8, 16, 7), std::tuple(16, 24, 7)));
  EXPECT_THAT(Cut(blocks, 7), IsEmpty());
  const TextProtocol sliding = {.kind = Kind::kSliding, .window = 8, .stride = 3};
  EXPECT_THAT(Cut(sliding, 15),
              ElementsAre(std::tuple(0, 8, 3), std::tuple(3, 11, 3), std::tuple(6, 14, 3)));
  const TextProtocol streaming = {.kind = Kind::kStreaming, .max_tokens = 10};
  EXPECT_THAT(Cut(streaming, 25), ElementsAre(std::tuple(0, 10, 9)));
  EXPECT_THAT(Cut(streaming, 4), ElementsAre(std::tuple(0, 4, 3)));
  EXPECT_THAT(Cut(streaming, 1), IsEmpty());
  EXPECT_THAT(Cut({.kind = Kind::kBlocks, .window = 8, .max_tokens = 16}, 25),
              ElementsAre(std::tuple(0, 8, 7), std::tuple(8, 16, 7)));
}

// Each token of a text counts once at most.
TEST(TextWindows, CountEveryTokenOnce) {
  const TextProtocol sliding = {.kind = Kind::kSliding, .window = 64, .stride = 16};
  std::set<int64_t> counted;
  for (const TextWindow& w : CutWindows(sliding, 1000)) {
    for (int64_t i = w.end - w.counted; i < w.end; ++i) EXPECT_TRUE(counted.insert(i).second) << i;
  }
  EXPECT_EQ(*counted.begin(), 48);
  EXPECT_EQ(std::ssize(counted), *counted.rbegin() - 47);
}

TEST(TextWindows, OnlySlidingOnesHaveAPrompt) {
  EXPECT_TRUE((TextProtocol{.kind = Kind::kSliding, .window = 8, .stride = 3}).has_prompt());
  EXPECT_FALSE((TextProtocol{.kind = Kind::kSliding, .window = 8, .stride = 8}).has_prompt());
  EXPECT_FALSE((TextProtocol{.kind = Kind::kBlocks, .window = 8}).has_prompt());
  EXPECT_FALSE((TextProtocol{.kind = Kind::kStreaming}).has_prompt());
}

// The token before the first counted one is fed after compression, so that no counted token is
// predicted by anything but the compressed cache.
TEST(TextWindows, AreFedThroughTheCache) {
  std::vector<int32_t> ids(8);
  std::iota(ids.begin(), ids.end(), 10);
  const EngineSample prompt = FeedWindow("w", ids, 3, CompressAt::kPrompt);
  EXPECT_THAT(prompt.context, ElementsAre(10, 11, 12, 13));
  ASSERT_EQ(prompt.turns.size(), 1u);
  EXPECT_THAT(prompt.turns[0].ids, IsEmpty());
  EXPECT_THAT(prompt.turns[0].forced, ElementsAre(14, 15, 16, 17));
  EXPECT_EQ(prompt.turns[0].max_new_tokens, 4);
  EXPECT_THAT(prompt.stop_ids, IsEmpty());
  const EngineSample context = FeedWindow("w", ids, 3, CompressAt::kContext);
  EXPECT_THAT(context.context, ElementsAre(10, 11, 12, 13));
  EXPECT_THAT(context.turns[0].ids, ElementsAre(14));
  EXPECT_THAT(context.turns[0].forced, ElementsAre(15, 16, 17));
  // Nothing before the second token.
  const EngineSample stream = FeedWindow("w", ids, 7, CompressAt::kPrompt);
  EXPECT_THAT(stream.context, ElementsAre(10));
  EXPECT_EQ(stream.turns[0].forced.size(), 7u);
}

}  // namespace
}  // namespace kvgauge

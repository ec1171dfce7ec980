// SPDX-License-Identifier: Apache-2.0
// Which tokens leave of which segment, and what is read before they do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_view.h"
#include "methods/rereading_thin.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

// A row is told by its number, whatever is before it.
class OwnNumbers final : public RowReader {
 public:
  Result<std::vector<float>> Surprise(std::span<const int32_t> rows, int64_t first,
                                      std::span<const int32_t>) override {
    asked.emplace_back(rows.begin(), rows.end());
    from.push_back(first);
    std::vector<float> told;
    for (size_t i = static_cast<size_t>(first) + 1; i < rows.size(); ++i) {
      told.push_back(tells[static_cast<size_t>(rows[i])]);
    }
    return told;
  }
  RowReader& Beside() override { return *this; }
  Result<std::vector<int32_t>> Encode(std::string_view) override { return std::vector<int32_t>(); }

  std::vector<float> tells = {0, 0, 9, 1, 8, 2, 7, 3, 6, 4, 5, 0};  // by row
  std::vector<std::vector<int32_t>> asked;
  std::vector<int64_t> from;
};

std::vector<int32_t> LeftOf(OwnNumbers& reader, const std::string& params, int64_t rows = 12) {
  FakeView view(SmallShape(), rows);
  const auto stage = MakeStage<Thin>(StageKind::kThin, "llmlingua", params);
  return Ints(*dynamic_cast<const RereadingThin&>(*stage).ChooseBy(view, reader));
}

TEST(LlmLinguaTest, SegmentsAreReadBehindWhatIsLeft) {
  OwnNumbers reader;
  // The context is 1 .. 10, of which half should stay. 9 tokens are told: four of them tell 6 or
  // more, and above that stays. Then 7 of eight, then 9 of three is the limit.
  EXPECT_THAT(LeftOf(reader, R"({"sinks": 1, "recent": 1, "segment": 5, "drop": 0.4167})"),
              ElementsAre(0, 1, 2, 4, 11));
  ASSERT_EQ(reader.asked.size(), 3);
  EXPECT_THAT(reader.asked[0], ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 9, 10));
  // 3 has left; the next segment ends five tokens behind 4.
  EXPECT_THAT(reader.asked[1], ElementsAre(1, 2, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(reader.asked[2], ElementsAre(1, 2, 4, 10));
  EXPECT_THAT(reader.from, ElementsAre(0, 0, 3));
}

TEST(LlmLinguaTest, TheReleasedCodeGoesByTheTokenBehindAndKeepsTheRest) {
  OwnNumbers reader;
  const std::string more = R"("told_by": "following", "rest": "whole"})";
  const auto left =
      LeftOf(reader, R"({"sinks": 1, "recent": 1, "segment": 5, "drop": 0.4167, )" + more);
  // 1 stays for 2, and 3 for 4; 2 leaves for 3.
  EXPECT_THAT(std::vector<int32_t>(left.begin(), left.begin() + 3), ElementsAre(0, 1, 3));
  EXPECT_EQ(left.back(), 11);
  // A text shorter than a segment stays.
  EXPECT_EQ(std::ssize(LeftOf(reader, R"({"sinks": 1, "recent": 1, )" + more)), 12);
  EXPECT_LT(std::ssize(LeftOf(reader, R"({"sinks": 1, "recent": 1})")), 12);
}

TEST(LlmLinguaTest, WhatIsNoContextStaysUnread) {
  OwnNumbers reader;
  EXPECT_EQ(std::ssize(LeftOf(reader, R"({"drop": 0})")), 12);
  EXPECT_EQ(std::ssize(LeftOf(reader, R"({"sinks": 20, "drop": 0.9})")), 12);
  EXPECT_EQ(std::ssize(LeftOf(reader, R"({"sinks": 4, "recent": 64})")), 12);
  EXPECT_TRUE(reader.asked.empty());
}

TEST(LlmLinguaTest, PicturesStayUnread) {
  OwnNumbers reader;
  FakeView view(SmallShape(), 12);
  view.spans = {{.first = 3, .count = 4}};
  const auto stage =
      MakeStage<Thin>(StageKind::kThin, "llmlingua", R"({"sinks": 1, "recent": 1, "drop": 0.25})");
  const auto left = dynamic_cast<const RereadingThin&>(*stage).ChooseBy(view, reader);
  ASSERT_TRUE(left.ok());
  // Of 6 tokens of text half should stay: 1, and those above 6, the second of five that are told.
  EXPECT_THAT(Ints(*left), ElementsAre(0, 1, 2, 3, 4, 5, 6, 11));
  EXPECT_THAT(reader.asked, ElementsAre(ElementsAre(1, 2, 7, 8, 9, 10)));
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Which documents and tokens a question leaves, and what is read before they go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_view.h"
#include "methods/rereading_thin.h"
#include "stage_calls.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// A row is told by its number, by half of it where the question, row 11, was read first. The
// question is told by much behind the first rows and by little behind those from 6 on.
class AskedNumbers final : public RowReader {
 public:
  Result<std::vector<float>> Surprise(std::span<const int32_t> rows, int64_t first,
                                      std::span<const int32_t> behind) override {
    asked.emplace_back(rows.begin(), rows.end());
    asked.back().insert(asked.back().end(), behind.begin(), behind.end());
    from.push_back(first);
    std::vector<float> told;
    for (size_t i = static_cast<size_t>(first) + 1; i < rows.size(); ++i) {
      const auto row = static_cast<size_t>(rows[i]);
      const float number = row == 11 ? (rows[i - 1] < 6 ? 5 : 1) : tells[row];
      told.push_back(rows[0] == 11 ? number / 2 : number);
    }
    told.resize(told.size() + behind.size(), 2);
    return told;
  }
  RowReader& Beside() override { return *this; }
  Result<std::vector<int32_t>> Encode(std::string_view) override {
    return std::vector<int32_t>{90, 91};
  }

  std::vector<float> tells = {0, 0, 9, 1, 8, 2, 7, 3, 6, 4, 5};  // by row
  std::vector<std::vector<int32_t>> asked;
  std::vector<int64_t> from;
};

std::vector<int32_t> LeftBy(AskedNumbers& reader, const std::string& params, int64_t rows = 12) {
  FakeView view(SmallShape(), rows);
  const auto stage = MakeStage<Thin>(StageKind::kThin, "longllmlingua", params);
  return Ints(*dynamic_cast<const RereadingThin&>(*stage).ChooseBy(view, reader));
}

TEST(LongLlmLinguaTest, HandWorked) {
  AskedNumbers reader;
  // The budget is four of ten tokens, so the document that ranks first is enough. Its tokens are
  // told by 6, 5, 4 and 3 less half of that, and those above the third of these stay.
  EXPECT_THAT(LeftBy(reader, R"({"sinks": 1, "recent": 1, "document": 5, "extra": 0, "drop": 0.5,
                                 "segment": 20})"),
              ElementsAre(0, 6, 8, 10, 11));
  ASSERT_EQ(reader.asked.size(), 4);
  EXPECT_THAT(reader.asked[0], ElementsAre(1, 2, 3, 4, 5, 11, 90, 91));
  EXPECT_THAT(reader.asked[1], ElementsAre(6, 7, 8, 9, 10, 11, 90, 91));
  EXPECT_THAT(reader.asked[2], ElementsAre(6, 7, 8, 9, 10));
  EXPECT_THAT(reader.asked[3], ElementsAre(11, 6, 7, 8, 9, 10));
  EXPECT_THAT(reader.from, ElementsAre(4, 4, 0, 1));
}

TEST(LongLlmLinguaTest, WithoutAContextNothingIsRead) {
  AskedNumbers reader;
  EXPECT_EQ(std::ssize(LeftBy(reader, R"({"drop": 0})")), 12);
  EXPECT_EQ(std::ssize(LeftBy(reader, R"({"sinks": 4, "recent": 64})")), 12);
  EXPECT_THAT(reader.asked, IsEmpty());
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Reducers that merge keys and values: cases worked by hand.
#include <gmock/gmock.h>

#include "methods/fake_view.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

// The plan of one head whose keys have two dims.
struct MergedHead {
  std::vector<int32_t> keep, from, to;
  std::vector<float> weight, self, log_weight;
};

MergedHead ReduceOne(const std::string& reducer, const std::string& params, FakeView& view,
                     std::vector<float> scores, int64_t kept) {
  const auto stage = MakeStage<Reducer>(StageKind::kReduce, reducer, params);
  const int64_t allocated[] = {kept};
  const auto n = static_cast<int64_t>(scores.size());
  const HeadPlan plan =
      stage->Reduce(view, {.scores = View(scores, {1, n}), .allocated = allocated}, nullptr)[0];
  const auto numbers = [](const Tensor& t) {
    return t.empty() ? std::vector<int32_t>() : std::vector<int32_t>(t.i32(), t.i32() + t.Numel());
  };
  const auto floats = [](const Tensor& t) { return t.empty() ? std::vector<float>() : Floats(t); };
  return {numbers(plan.keep),       numbers(plan.keys.from), numbers(plan.keys.to),
          floats(plan.keys.weight), floats(plan.keys.self),  floats(plan.log_weight)};
}

TEST(MergeKeysTest, NeighboursJoinTheOneThatIsNearestInPosition) {
  FakeView view(SmallShape(1, 1, 1, 2), 7);
  const float inf = std::numeric_limits<float>::infinity();
  // 0 is protected and takes nothing; 1 to 2: 2; 3 is as far from 2 as from 4, the earlier takes
  // it.
  const MergedHead head = ReduceOne("nearest_position", "{}", view, {inf, 1, 5, 1, 5, 1, 1}, 3);
  EXPECT_THAT(head.keep, ElementsAre(0, 2, 4));
  EXPECT_THAT(head.from, ::testing::UnorderedElementsAre(1, 3, 5, 6));
  for (size_t i = 0; i < head.from.size(); ++i) {
    EXPECT_EQ(head.to[i], head.from[i] < 4 ? 2 : 4);
    EXPECT_FLOAT_EQ(head.weight[i], 1.0f / 3);
  }
  EXPECT_FLOAT_EQ(head.self[2], 1.0f / 3);
  EXPECT_FLOAT_EQ(head.self[0], 1.0f);
}

TEST(MergeKeysTest, ARunOfEqualKeysBecomesItsPivot) {
  FakeView view(SmallShape(1, 1, 1, 2), 5);
  view.keys[0] = {1, 0, 0, 1, 0, 1, 0, 1, -1, 0};
  const MergedHead head = ReduceOne("kvmerger", "{}", view, {1, 1, 3, 3, 1}, 3);
  EXPECT_THAT(head.keep, ElementsAre(0, 2, 4));  // of the two that score alike the first
  EXPECT_THAT(head.from, ElementsAre(1, 3));
  EXPECT_THAT(head.to, ElementsAre(2, 2));
  EXPECT_FLOAT_EQ(head.weight[0], 1.0f / 3);
}

TEST(MergeKeysTest, AChunkOfEqualKeysCollapsesAndCountsAsOftenAsItWas) {
  FakeView view(SmallShape(1, 1, 1, 2), 8);
  for (int i = 0; i < 8; ++i) view.keys[0][static_cast<size_t>(2 * i)] = 1;
  const MergedHead head =
      ReduceOne("chelsea", R"({"chunk": 4})", view, std::vector<float>(8, 1.0f), 1);
  ASSERT_EQ(head.keep.size(), 1u);
  EXPECT_EQ(head.from.size(), 7u);
  for (const float weight : head.weight) EXPECT_FLOAT_EQ(weight, 1.0f / 8);
  EXPECT_FLOAT_EQ(head.log_weight[0], std::log(8.0f));
}

TEST(MergeKeysTest, AnOddChunkIsRefused) {
  const auto stage = MakeStage<Reducer>(StageKind::kReduce, "chelsea", R"({"chunk": 5})");
  const Status status = stage->Check(SmallShape());
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message, HasSubstr("chunk"));
}

TEST(MergeKeysTest, FewEntriesStandForAllThatHasGone) {
  const auto stage = MakeStage<Reducer>(StageKind::kReduce, "zeromerge", R"({"share": 1})");
  const auto state = stage->Begin();
  const float inf = std::numeric_limits<float>::infinity();
  const auto reduce = [&](FakeView& view, std::vector<float> scores, int64_t kept, int64_t step) {
    const auto n = static_cast<int64_t>(scores.size());
    const int64_t allocated[] = {kept};
    HeadPlan plan =
        stage->Reduce(view, {.scores = View(scores, {1, n}), .allocated = allocated, .step = step},
                      state.get())[0];
    EXPECT_EQ(plan.keep.Numel(), kept);
    return plan;
  };
  const auto numbers = [](const Tensor& t) {
    return std::vector<int>(t.i32(), t.i32() + t.Numel());
  };

  FakeView prompt(SmallShape(1, 1, 1, 2), 6);
  // 1, 3 and 4 go, and become one at the place of 1.
  HeadPlan plan = reduce(prompt, {5, 1, 7, 2, 3, inf}, 4, 0);
  EXPECT_THAT(numbers(plan.keep), ElementsAre(0, 1, 2, 5));
  EXPECT_THAT(numbers(plan.keys.from), ElementsAre(3, 4));
  EXPECT_THAT(numbers(plan.keys.to), ElementsAre(1, 1));
  EXPECT_THAT(Floats(plan.log_weight), ElementsAre(0, FloatEq(std::log(3.0f)), 0, 0));

  // The worst score does not drive out the one that stands for others: 0 goes, and joins the three.
  FakeView step(SmallShape(1, 1, 1, 2), 5);
  plan = reduce(step, {1, 0, 7, 2, inf}, 4, 1);
  EXPECT_THAT(numbers(plan.keep), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(numbers(plan.keys.to), ElementsAre(1));
  EXPECT_THAT(Floats(plan.keys.weight), ElementsAre(FloatEq(0.25f)));
  EXPECT_THAT(Floats(plan.keys.self)[1], FloatEq(0.75f));
  EXPECT_THAT(Floats(plan.log_weight), ElementsAre(FloatEq(std::log(4.0f)), 0, 0, 0));

  // Protected entries take all places: nothing stands for what goes.
  FakeView full(SmallShape(1, 1, 1, 2), 3);
  plan = reduce(full, {1, inf, inf}, 2, 2);
  EXPECT_TRUE(plan.keys.empty());
  EXPECT_TRUE(plan.log_weight.empty());
}

}  // namespace
}  // namespace kvgauge

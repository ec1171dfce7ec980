// SPDX-License-Identifier: Apache-2.0
// Which chunks of earlier prompts are used, and what of them is computed again, worked by hand.
#include <gtest/gtest.h>

#include <set>

#include "kernels/ops.h"
#include "methods/historic_reuse.h"
#include "methods/method.h"

namespace kvgauge {
namespace {

class ChunkHistoryTest : public ::testing::Test {
 protected:
  // What stage `cache_craft` makes of texts that begin at `edges`.
  HistoricReuse::Choice Choose(const std::vector<std::string>& overrides,
                               const std::vector<int64_t>& edges,
                               const std::vector<std::vector<int64_t>>& orders,
                               const std::vector<std::vector<float>>& paid) {
    const Result<Method> method =
        LoadMethod("cache_craft", std::string(KVG_SOURCE_DIR) + "/configs/methods", overrides);
    EXPECT_TRUE(method.ok()) << method.error().message;
    const std::unique_ptr<Stage> stage = MakeStage(*method->reuse);
    std::vector<EarlierPrompt> prompts;
    for (size_t i = 0; i < orders.size(); ++i) {
      prompts.push_back({orders[i], View(paid[i], {std::ssize(edges) - 1, edges.back()})});
    }
    return static_cast<const HistoricReuse&>(*stage).ChooseEarlier(
        {.ops = ops_.get(), .edges = edges, .prompts = prompts});
  }

  const std::unique_ptr<Ops> ops_ = std::move(*MakeOps("cpu", ThreadSettings{1}));
  // Two chunks behind a beginning of two tokens. Chunk 1 stood behind chunk 2.
  const std::vector<int64_t> edges_ = {0, 2, 4, 6};
  const std::vector<float> turned_ = {9, 9, 0.2f, 0.1f, 0.5f, 0.4f,   // to the beginning
                                      9, 9, 0.2f, 0.6f, 0.0f, 0.0f,   // to chunk 1
                                      9, 9, 0.6f, 0.3f, 0.5f, 0.6f};  // to chunk 2
};

// Chunk 1: a = (0.3 + 0.9) / 2 and b = 0.8 / 2, so the impact is 1 / (1 + e^-1.5) = 0.818. Of 1.2
// it still has 0.3, so 0.613 of two tokens are computed again: two, or one of them at half that.
// Chunk 2 had nothing before it but the beginning, which it still has.
TEST_F(ChunkHistoryTest, ComputesAgainWhatLeanedOnOtherChunks) {
  const HistoricReuse::Choice whole = Choose({}, edges_, {{2, 1}}, {turned_});
  EXPECT_EQ(whole.prompts, (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(whole.rows, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(Choose({"reuse.alpha=0.5"}, edges_, {{2, 1}}, {turned_}).rows,
            (std::vector<int32_t>{2}));
  EXPECT_TRUE(Choose({"reuse.alpha=0"}, edges_, {{2, 1}}, {turned_}).rows.empty());
  // Without the beginning token 3 would still come second: 0.6 and 0.3.
  EXPECT_EQ(Choose({"reuse.alpha=0.5", "reuse.beginning=false"}, edges_, {{2, 1}}, {turned_}).rows,
            (std::vector<int32_t>{2}));
}

// An earlier prompt of the same order leaves nothing to do; among equals the first one counts.
TEST_F(ChunkHistoryTest, TakesTheEarlierPromptThatLeavesLeast) {
  const HistoricReuse::Choice best =
      Choose({"reuse.requests=2"}, edges_, {{2, 1}, {1, 2}}, {turned_, turned_});
  EXPECT_EQ(best.prompts, (std::vector<int64_t>{1, 0}));
  EXPECT_TRUE(best.rows.empty());
}

// Chunk 3 has all before it that it had, but of three pairs one is turned. A third of the impact of
// 2.4 / 0.4, which is 0.998, of four tokens is 1.33: two of them, or one at half that. Tokens that
// paid most to other texts come first.
TEST_F(ChunkHistoryTest, CountsPairsThatAreTurned) {
  const std::vector<int64_t> edges = {0, 1, 2, 3, 7};
  const std::vector<float> paid = {9, 0.1f, 0.1f, 0.1f, 0.3f, 0.2f, 0.2f,  //
                                   9, 0.9f, 0.0f, 0.2f, 0.2f, 0.3f, 0.1f,  //
                                   9, 0.0f, 0.9f, 0.1f, 0.3f, 0.2f, 0.2f,  //
                                   9, 0.0f, 0.0f, 0.6f, 0.2f, 0.3f, 0.5f};
  const auto of_last = [&](const std::vector<std::string>& overrides) {
    std::vector<int32_t> rows = Choose(overrides, edges, {{2, 1, 3}}, {paid}).rows;
    std::erase_if(rows, [](int32_t row) { return row < 3; });
    return rows;
  };
  EXPECT_EQ(of_last({}), (std::vector<int32_t>{4, 5}));
  EXPECT_EQ(of_last({"reuse.alpha=0.5"}), (std::vector<int32_t>{4}));
}

TEST_F(ChunkHistoryTest, OrdersAreDrawnAgainAlike) {
  const Result<Method> method =
      LoadMethod("cache_craft", std::string(KVG_SOURCE_DIR) + "/configs/methods",
                 {"reuse.requests=4", "reuse.seed=7"});
  ASSERT_TRUE(method.ok()) << method.error().message;
  const std::unique_ptr<Stage> stage = MakeStage(*method->reuse), again = MakeStage(*method->reuse);
  const auto orders = static_cast<const HistoricReuse&>(*stage).Orders(9);
  EXPECT_EQ(orders, static_cast<const HistoricReuse&>(*again).Orders(9));
  std::set<std::vector<int64_t>> distinct(orders.begin(), orders.end());
  EXPECT_EQ(distinct.size(), 4u);
  for (const std::vector<int64_t>& order : orders) {
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()),
              (std::set<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  }
}

}  // namespace
}  // namespace kvgauge

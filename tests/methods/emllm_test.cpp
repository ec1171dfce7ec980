// SPDX-License-Identifier: Apache-2.0
// Events of a prompt, worked by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "chosen_entries.h"
#include "fake_view.h"
#include "methods/entry_blocks.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kEventDim = 4;

std::unique_ptr<Reader> Events(const std::string& more) {
  return MakeStage<Reader>(
      StageKind::kRead, "emllm",
      R"({"chunk": 2, "least": 2, "most": 4, "sinks": 1, "local": 5,)" + more + "}");
}

FakeView EventView(int64_t tokens = 14) {
  FakeView view(SmallShape(1, 1, 1, kEventDim), tokens);
  view.Randomize(2);
  view.surprise = {5, 1, 1, 1, 9, 1, 9, 1, 1, 9, 1, 1, 9, 0};
  view.surprise.resize(static_cast<size_t>(tokens));
  return view;
}

// Row 4 is above the mean of the three before it when it comes, 6 above that of 3 to 5. Entry 1 is
// the first to leave the window of 5; four of them have left it before two more have come.
TEST(EmLlmTest, EventsByHand) {
  FakeView view = EventView();
  const auto state = Events(R"("gamma": 0)")->Begin(view);
  EXPECT_THAT(static_cast<const EntryBlocks&>(*state).ends, ElementsAre(3, 5));
  EXPECT_EQ(static_cast<const EntryBlocks&>(*state).first, 1);
}

// Without surprises events are as long as they may be.
TEST(EmLlmTest, NothingSurprises) {
  FakeView view = EventView();
  for (size_t i = 0; i < view.surprise.size(); ++i) view.surprise[i] = i % 2 == 0 ? 1.0f : 2.0f;
  const auto state = Events(R"("gamma": 100)")->Begin(view);
  EXPECT_THAT(static_cast<const EntryBlocks&>(*state).ends, ElementsAre(4, 8));
}

TEST(EmLlmTest, ReadsTheBestEventsThatThereIsRoomFor) {
  FakeView view = EventView();
  std::fill(view.keys[0].begin(), view.keys[0].end(), 0.0f);
  for (int64_t e = 1; e < 4; ++e) view.keys[0][static_cast<size_t>(e * kEventDim)] = 2;
  const auto read = [&](const std::string& more, float along) {
    const auto reader = Events(R"("gamma": 0, )" + more);
    const auto state = reader->Begin(view);
    return SelectWith(*reader, view, *state, {along, 0, 0, 0});
  };
  // Three entries are in no event, behind the window's 5: room for 2 + 5 - 3. The first event has
  // 3 entries, and with the second there would be 5, which is no nearer to 4.
  EXPECT_THAT(read(R"("tokens": 5)", 1).Of(0), ElementsAre(0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13));
  // The second has 2, and 5 are nearer to 4 than 2 are.
  EXPECT_EQ(std::ssize(read(R"("tokens": 5)", -1).Of(0)), 14);
  EXPECT_THAT(read(R"("tokens": 1)", 1).Of(0), ElementsAre(0, 6, 7, 8, 9, 10, 11, 12, 13));
  EXPECT_FALSE(read(R"("tokens": 6)", 1).chosen);
}

TEST(EmLlmTest, ShortPromptsAndFaults) {
  FakeView view = EventView(5);
  const auto reader = Events(R"("gamma": 0)");
  const auto state = reader->Begin(view);
  EXPECT_EQ(static_cast<const EntryBlocks&>(*state).count(), 0);
  EXPECT_FALSE(SelectWith(*reader, view, *state, {1, 0, 0, 0}).chosen);
  const auto wrong = MakeStage<Reader>(StageKind::kRead, "emllm", R"({"least": 9, "most": 8})");
  EXPECT_THAT(wrong->Check(SmallShape()).error().message,
              HasSubstr("least 9: an event has at most 8 entries; lower least or raise most"));
}

}  // namespace
}  // namespace kvgauge

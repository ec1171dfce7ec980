// SPDX-License-Identifier: Apache-2.0
// Readers whose steps found no memory and are tried again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chosen_entries.h"
#include "fake_view.h"

namespace kvgauge {
namespace {

constexpr int64_t kPrompt = 90, kSteps = 14, kTriedDims = 8;

struct Case {
  const char* id;
  const char* params;
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.id; }

class TriedStepsTest : public ::testing::TestWithParam<Case> {
 protected:
  TriedStepsTest() : shape_(SmallShape(1, 2, 2, kTriedDims)) {
    for (uint64_t head = 0; head < 2; ++head) {
      keys_.push_back(RandomValues((kPrompt + kSteps) * kTriedDims, head, 1.0f));
    }
  }

  FakeView At(int64_t length) const {
    FakeView view(shape_, length);
    for (size_t head = 0; head < 2; ++head) {
      view.keys[head].assign(keys_[head].begin(), keys_[head].begin() + length * kTriedDims);
    }
    auto& marks = view.classes[static_cast<size_t>(TokenClass::kPunctuation)];
    marks.assign(static_cast<size_t>(length), 0.0f);
    for (int64_t i = 4; i < length; i += 5) marks[static_cast<size_t>(i)] = 1;
    return view;
  }

  const ModelShape shape_;
  std::vector<std::vector<float>> keys_;
};

TEST_P(TriedStepsTest, CountOnce) {
  const auto reader = MakeStage<Reader>(StageKind::kRead, GetParam().id, GetParam().params);
  FakeView prompt = At(kPrompt);
  const auto once = reader->Begin(prompt), again = reader->Begin(prompt);
  int64_t less = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto queries = RandomValues(4 * kTriedDims, 100 + static_cast<uint64_t>(step), 1.0f);
    FakeView view = At(kPrompt + step + 1);
    const std::vector<int64_t> first(2, kPrompt + step);
    reader->Append(view, first, *once);
    reader->Append(view, first, *again);
    const Reads want = SelectWith(*reader, view, *once, queries);
    // Every third step is tried three times.
    for (int64_t tries = step % 3 == 0 ? 3 : 1; tries > 0; --tries) {
      FakeView tried = At(kPrompt + step + 1);
      const Reads got = SelectWith(*reader, tried, *again, queries);
      EXPECT_EQ(got.chosen, want.chosen) << "step " << step;
      EXPECT_EQ(got.words, want.words) << "step " << step;
    }
    less += want.chosen ? 1 : 0;
  }
  EXPECT_GT(less, kSteps / 2) << "the test shows nothing";
}

INSTANTIATE_TEST_SUITE_P(
    Readers, TriedStepsTest,
    ::testing::Values(Case{"recycled", R"({"tokens": 20, "stride": 3})"},
                      Case{"loopserve", R"({"tokens": 20, "steps": 3})"},
                      Case{"lserve", R"({"tokens": 20, "logical": 4, "parts": 2})"},
                      Case{"sentences", R"({"tokens": 16, "sinks": 2, "local": 4})"}),
    [](const auto& one) { return std::string(one.param.id); });

}  // namespace
}  // namespace kvgauge

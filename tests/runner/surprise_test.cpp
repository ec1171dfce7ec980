// SPDX-License-Identifier: Apache-2.0
// How little each token of a prompt was expected, held to the logits of all rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runner/capture.h"
#include "runner/engine_fixture.h"
#include "runner/generate.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

class SurpriseTest : public EngineTest {
 protected:
  static constexpr int64_t kTokens = 150;

  // The prompt in passes that end there.
  std::vector<float> Surprises(const std::vector<int64_t>& ends) {
    KvCache cache = model_.NewCache(kTokens);
    PrefillCapture capture(model_.config(), cache, {.surprise = true}, kTokens);
    for (const int64_t end : ends) {
      const int64_t begin = cache.tokens();
      EXPECT_TRUE(cache.Append(end - begin).ok());
      const SequenceStep step = {.cache = &cache,
                                 .prompt = &prompt_,
                                 .begin = begin,
                                 .end = end,
                                 .logits = end == kTokens ? LogitRows::kLast : LogitRows::kNone,
                                 .hook = &capture};
      const Tensor logits = model_.Forward({&step, 1});
      if (!logits.empty()) last_ = HostFloats(model_.ops(), logits[0]);
    }
    EXPECT_TRUE(capture.status().ok());
    return HostFloats(model_.ops(), capture.Surprise());
  }

  const std::vector<int32_t> ids_ = RandomIds(kTokens, 5);
  const Prompt prompt_ = Prompt::FromTokens(ids_);
  std::vector<float> last_;  // the prompt's last logits
};

TEST_F(SurpriseTest, IsWhatTheLogitsSay) {
  KvCache cache = model_.NewCache(kTokens);
  std::vector<float> want, last;
  ASSERT_TRUE(Prefill(model_, prompt_, cache, kTokens, true, [&](const Tensor& logits) -> Status {
                for (int64_t row = 0; row < kTokens; ++row) {
                  last = HostFloats(model_.ops(), logits[row]);
                  if (row + 1 == kTokens) break;
                  double sum = 0;
                  for (const float x : last) sum += std::exp(double{x});
                  const auto next = static_cast<size_t>(ids_[static_cast<size_t>(row) + 1]);
                  want.push_back(static_cast<float>(std::log(sum) - double{last[next]}));
                }
                return {};
              }).ok());
  want.push_back(0);
  const std::vector<float> whole = Surprises({kTokens});
  EXPECT_TRUE(AllWithin(whole, want, 1e-4));
  EXPECT_EQ(last_, last) << "the pass itself is another";
  // However the prompt is cut.
  EXPECT_EQ(Surprises({1, 65, 66, 130, kTokens}), whole);
  EXPECT_EQ(last_, last);
}

// Nothing is foreseen of pictures.
TEST_F(SurpriseTest, IsNothingBeforeEmbeddings) {
  Prompt prompt = prompt_;
  prompt.positions.back().token_id = -1;
  KvCache cache = model_.NewCache(kTokens);
  PrefillCapture capture(model_.config(), cache, {.surprise = true}, kTokens - 1);
  ASSERT_TRUE(cache.Append(kTokens - 1).ok());
  const SequenceStep step = {
      .cache = &cache, .prompt = &prompt, .begin = 0, .end = kTokens - 1, .hook = &capture};
  model_.Forward({&step, 1});
  const std::vector<float> got = HostFloats(model_.ops(), capture.Surprise());
  EXPECT_EQ(got.back(), 0);
  EXPECT_GT(got[got.size() - 2], 0);
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <cmath>

#include "methods/fake_view.h"

namespace kvgauge {
namespace {

// Four entries along one dim, of which a row may see the first ones alone.
std::vector<double> Shares(const std::vector<float>& keys, float query, double scale, size_t seen) {
  double sum = 0;
  std::vector<double> shares(keys.size());
  for (size_t i = 0; i < seen; ++i) sum += shares[i] = std::exp(double{query} * keys[i] * scale);
  for (double& share : shares) share /= sum;
  return shares;
}

class LaqTest : public ::testing::Test {
 protected:
  LaqTest() : view_(SmallShape(1, 1, 1, 2), 4) {
    view_.keys[0] = {1, 0, 3, 0, -2, 0, 0.5f, 0};
    view_.queries = {0, 0, 0, 0, 0, 0, 0.5f, 0};
    view_.draft_queries = {-1, 0, 2, 0};
  }

  std::vector<float> Score(const std::string& params) {
    const auto scorer = MakeStage<Scorer>(StageKind::kScore, "laq", params);
    const Tensor out = view_.Scratch(DType::kF32, {1, 4});
    scorer->Score(view_, out);
    return Floats(out);
  }

  FakeView view_;
  const std::vector<float> keys_ = {1, 3, -2, 0.5f};
};

TEST_F(LaqTest, DraftedRowsShareTheirAttentionAmongThePrompt) {
  const double scale = double{view_.shape().attention_scale};
  const std::vector<float> got = Score(R"({"window": 0, "draft": 2, "kernel": 1})");
  const std::vector<double> first = Shares(keys_, -1, scale, 4),
                            second = Shares(keys_, 2, scale, 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(double{got[i]}, first[i] + second[i], 1e-6);
}

TEST_F(LaqTest, AsReleasedTheLastRowAloneSeesAll) {
  const double scale = double{view_.shape().attention_scale};
  const std::vector<float> got =
      Score(R"({"window": 0, "draft": 2, "kernel": 1, "mask": "released"})");
  const std::vector<double> first = Shares(keys_, -1, scale, 3),
                            second = Shares(keys_, 2, scale, 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(double{got[i]}, first[i] + second[i], 1e-6);
}

TEST_F(LaqTest, RowsOfThePromptLookBackBesideTheDraftAndStay) {
  const double scale = double{view_.shape().attention_scale};
  const std::vector<float> got = Score(R"({"window": 1, "draft": 2, "kernel": 1})");
  const std::vector<double> first = Shares(keys_, -1, scale, 4),
                            second = Shares(keys_, 2, scale, 4),
                            own = Shares(keys_, 0.5f, scale, 4);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(double{got[i]}, first[i] + second[i] + own[i], 1e-6);
  EXPECT_GT(got[3], 1e29f);
}

}  // namespace
}  // namespace kvgauge

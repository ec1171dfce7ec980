// SPDX-License-Identifier: Apache-2.0
// What a stage sees of a prompt with pictures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runner/capture.h"
#include "src/compress/view.h"
#include "support/compare.h"
#include "support/tiny_models.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

class VisualView : public ::testing::Test {
 protected:
  static constexpr int64_t kTokens = 24, kHidden = 64;

  // 3 tokens, a picture of 2 x 3 with line ends, 1 token, times 4 and 5 of a video of 1 x 2, its
  // end, 7 tokens.
  VisualView() : tiny_(MakeTinyModel("gqa")), rows_(RandomValues(13 * kHidden, 3, 1.0f)) {
    VisualSpan picture;
    picture.first = 3;
    picture.count = 8;
    picture.index = 1;
    picture.grid = {1, 2, 3};
    picture.newlines = true;
    VisualSpan video;
    video.first = 12;
    video.count = 4;
    video.modality = Modality::kVideo;
    video.piece = VisualSpan::Piece::kFrames;
    video.frame = 4;
    video.grid = {2, 1, 2};
    video.embedding_row = 8;
    VisualSpan end = video;
    end.piece = VisualSpan::Piece::kNewline;
    end.first = 16;
    end.count = 1;
    end.frame = 5;
    end.grid = {1, 1, 1};
    end.embedding_row = 12;
    spans_ = {picture, video, end};
    prompt_.embeddings = {{View(rows_, {13, kHidden})}};
    prompt_.Append(RandomIds(kTokens, 2), spans_, false);
  }

  void Prefill(const Needs& needs) {
    cache_.emplace(model().NewCache(kTokens + 8));
    capture_ = std::make_unique<PrefillCapture>(model().config(), *cache_, NeedsOf(needs, prompt_),
                                                kTokens);
    for (int64_t begin = 0; begin < kTokens; begin += 10) {
      const int64_t end = std::min<int64_t>(begin + 10, kTokens);
      ASSERT_TRUE(cache_->Append(end - begin).ok());
      const SequenceStep step = {.cache = &*cache_,
                                 .prompt = &prompt_,
                                 .begin = begin,
                                 .end = end,
                                 .logits = LogitRows::kNone,
                                 .hook = capture_.get()};
      model().Forward({&step, 1});
    }
    ASSERT_TRUE(capture_->status().ok());
  }
  CacheView ViewOf(int64_t layer) {
    return CacheView({.model = &model(),
                      .shape = &shape_,
                      .cache = &*cache_,
                      .prompt = &prompt_,
                      .prefill = capture_.get()},
                     layer);
  }
  Model& model() { return *tiny_.model; }
  template <class T>
  std::vector<T> Host(const Tensor& values) {
    std::vector<T> out(static_cast<size_t>(values.Numel()));
    model().ops().memory->Copy(values, View(out, {values.Numel()}));
    return out;
  }

  TinyModel tiny_;
  ModelShape shape_ = tiny_.model->shape();
  std::vector<float> rows_;
  std::vector<VisualSpan> spans_;
  Prompt prompt_;
  std::optional<KvCache> cache_;
  std::unique_ptr<PrefillCapture> capture_;
};

TEST_F(VisualView, EveryEntrySaysWhatItShows) {
  Prefill({.modality = true});
  CacheView view = ViewOf(1);
  EXPECT_THAT(Host<float>(view.OfModality(Modality::kImage, 0, 0)),
              ElementsAre(0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(Host<float>(view.OfModality(Modality::kVideo, 1, 10)),
              ElementsAre(0, 0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(Host<float>(view.OfModality(Modality::kText, 0, 15)),
              ElementsAre(0, 0, 1, 1, 1, 1, 1, 1, 1));
  const auto places = [&](VisualAxis axis) {
    std::vector<int32_t> all = Host<int32_t>(view.VisualPlaces(axis, 0, 2));
    all.resize(16);
    return all;
  };
  EXPECT_THAT(places(VisualAxis::kItem),
              ElementsAre(-1, 1, 1, 1, 1, 1, 1, 1, 1, -1, 0, 0, 0, 0, 0, -1));
  EXPECT_THAT(places(VisualAxis::kFrame),
              ElementsAre(-1, 0, 0, 0, 0, 0, 0, 0, 0, -1, 4, 4, 5, 5, 5, -1));
  EXPECT_THAT(places(VisualAxis::kRow),
              ElementsAre(-1, 0, 0, 0, 0, 1, 1, 1, 1, -1, 0, 0, 0, 0, -1, -1));
  EXPECT_THAT(places(VisualAxis::kColumn),
              ElementsAre(-1, 0, 1, 2, -1, 0, 1, 2, -1, -1, 0, 1, 0, 1, -1, -1));
  EXPECT_EQ(std::vector<VisualSpan>(view.VisualSpans().begin(), view.VisualSpans().end()), spans_);
}

// Stages of two views run in the same memory, one after the other. What attention gave stays where
// another stage looks at it.
TEST_F(VisualView, LendsMemoryToItsStages) {
  Prefill({.window = 4});
  CacheView alone_first = ViewOf(0), alone_second = ViewOf(1);
  const auto keys = [&](CacheView& view) { return Host<float>(view.Keys(0, 0)); };
  const auto looks = [&](CacheView& view) { return Host<float>(view.WindowAttention(4)); };
  for (const bool keeps : {true, false}) {
    ViewMemory memory(int64_t{1} << 30);
    CacheView first = ViewOf(0), second = ViewOf(1);
    void *of_keys = nullptr, *of_looks = nullptr;
    {
      const LentMemory lent(first, memory, keeps);
      of_keys = first.Keys(0, 0).data;
      of_looks = first.WindowAttention(4).data;
      EXPECT_EQ(keys(first), keys(alone_first));
      EXPECT_EQ(looks(first), looks(alone_first));
    }
    {
      const LentMemory lent(second, memory, keeps);
      EXPECT_EQ(second.Keys(0, 0).data, of_keys);
      EXPECT_EQ(second.WindowAttention(4).data == of_looks, !keeps);
      EXPECT_EQ(keys(second), keys(alone_second));
      EXPECT_EQ(looks(second), looks(alone_second));
    }
    EXPECT_EQ(first.WindowAttention(4).data == of_looks, keeps);
    EXPECT_EQ(keys(first), keys(alone_first));
    EXPECT_EQ(looks(first), looks(alone_first));
  }
}

// Entries say so wherever they have moved, and decoded ones are text.
TEST_F(VisualView, AfterAReductionAndAStep) {
  Prefill({.modality = true});
  std::vector<int32_t> keep = {0, 4, 6, 14, 23};
  HeadPlan head;
  head.keep = View(keep, {5});
  const std::vector<HeadPlan> plan(2, head);
  ASSERT_TRUE(cache_->Reduce(0, plan).ok());
  prompt_.AppendText(5);
  ASSERT_TRUE(cache_->Append(1).ok());
  const SequenceStep step = {
      .cache = &*cache_, .prompt = &prompt_, .begin = kTokens, .end = kTokens + 1};
  model().Forward({&step, 1});
  CacheView view = ViewOf(0);
  EXPECT_THAT(Host<float>(view.OfModality(Modality::kImage, 1, 0)), ElementsAre(0, 1, 1, 0, 0, 0));
  EXPECT_THAT(Host<float>(view.OfModality(Modality::kText, 1, 0)), ElementsAre(1, 0, 0, 0, 1, 1));
  EXPECT_THAT(Host<int32_t>(view.VisualPlaces(VisualAxis::kColumn, 1, 0)),
              ElementsAre(-1, 1, -1, 0, -1, -1));
}

TEST_F(VisualView, TheQuestionIsWhatStandsBehindTheLastPicture) {
  EXPECT_EQ(RowsOfQuestion(prompt_, 100), 7);
  EXPECT_EQ(RowsOfQuestion(prompt_, 5), 5);
  EXPECT_EQ(RowsOfQuestion(Prompt::FromTokens(RandomIds(9, 1)), 6), 6);
  Prompt ends = prompt_;
  ends.spans.back().first = kTokens - 1;
  EXPECT_EQ(RowsOfQuestion(ends, 100), 1);

  Prefill({.window = 2, .question_rows = 100});
  CacheView view = ViewOf(1);
  EXPECT_EQ(view.QuestionRows(100), 7);
  EXPECT_EQ(view.QuestionRows(4), 4);
  const std::vector<float> asked = Host<float>(view.WindowAttention(7));
  Prefill({.window = 7});
  CacheView same = ViewOf(1);
  EXPECT_TRUE(SameBits(asked, Host<float>(same.WindowAttention(7))));
}

// One layer serves the views of all; and it is the last row of the window.
TEST_F(VisualView, TheLastRowOfOneLayer) {
  Prefill({.window = 3, .last_row_of = {1}});
  CacheView first = ViewOf(0), second = ViewOf(1);
  const int64_t heads = shape_.query_heads;
  const std::vector<float> row = Host<float>(first.LastRow(1));
  const std::vector<float> window = Host<float>(second.WindowAttention(3));
  ASSERT_EQ(std::ssize(row), heads * kTokens);
  for (int64_t h = 0; h < heads; ++h) {
    const auto last = window.begin() + (h * 3 + 2) * kTokens;
    EXPECT_TRUE(
        SameBits(std::vector<float>(row.begin() + h * kTokens, row.begin() + (h + 1) * kTokens),
                 std::vector<float>(last, last + kTokens)));
  }
  const auto planned = [&](const Needs& needs) {
    return PrefillCapture::PlannedBytes(model().config(), needs, kTokens);
  };
  EXPECT_EQ(planned({.last_row_of = {1}}) - planned({}), heads * kTokens * 4);
}

}  // namespace
}  // namespace kvgauge

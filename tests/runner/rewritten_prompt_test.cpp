// SPDX-License-Identifier: Apache-2.0
// Prefills of prompts that a stage rewrites: those of the other text, told by the places where its
// tokens stand.
#include "src/engine/rewritten_prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "methods/registry.h"
#include "runner/engine_fixture.h"
#include "runner/generate.h"
#include "runner/thinned.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Puts 7 8 9 in the place of rows 2 to 8, or does as `way` says.
class TestRewriting final : public RewritingThin {
 public:
  explicit TestRewriting(const Params& params) : way_(params.Text("way")) {}
  Needs needs() const override { return {.encoder = true}; }
  bool closes_up() const override { return true; }
  Result<std::vector<TextChange>> Rewrite(const SpelledPrompt& prompt) const override {
    if (way_ == "asks") {
      const Result<TokenTagger*> tagger = prompt.Tagger();
      if (!tagger.ok()) return tagger.error();
    }
    std::vector<TextChange> changes = {{2, 9, {7, 8, 9}}};
    if (way_ == "nothing") changes.clear();
    if (way_ == "long") changes[0].ids.resize(8);
    if (way_ == "beyond") changes[0].ids[1] = 101;
    if (way_ == "last") changes[0].end = prompt.rows();
    if (way_ == "twice") changes.push_back({8, 10, {}});
    return changes;
  }

 private:
  std::string way_;
};

const StageRegistrar kTestRewriting(StageSpec{
    .kind = StageKind::kThin,
    .id = "test_rewriting",
    .version = 1,
    .paper = "",
    .summary = "other tokens",
    .params = {ChoiceParam("way", "right",
                           {"right", "nothing", "long", "beyond", "last", "twice", "asks"}, "")},
    .make = Make<TestRewriting>()});

Method RewritingBy(const std::string& way) { return ThinBy("test_rewriting", way); }

std::vector<float> LogitsOf(Model& model, const Prompt& prompt) {
  KvCache cache = model.NewCache(prompt.size() + 8);
  cache.PlaceRope(RopePlaces::Of(prompt));
  std::vector<float> logits;
  const Status done =
      Prefill(model, prompt, cache, Model::kChunkRows, false, [&](const Tensor& rows) -> Status {
        logits = HostFloats(model.ops(), rows);
        return {};
      });
  EXPECT_TRUE(done.ok()) << done.error().message;
  return logits;
}

TEST(RewrittenPromptTest, IsReadAsTheOtherText) {
  const TinyModel tiny = MakeTinyModel("gqa");
  Model& model = *tiny.model;
  const std::vector<int32_t> ids = {1, 2, 3, 8, 4, 9, 5, 6, 7, 10, 11, 12};
  const Thinned rewritten(model, RewritingBy("right"), Prompt::FromTokens(ids));
  ASSERT_TRUE(rewritten.status.ok()) << rewritten.status.error().message;
  const std::vector<int32_t> other = {1, 2, 7, 8, 9, 10, 11, 12};
  EXPECT_TRUE(SameBits(rewritten.logits, LogitsOf(model, Prompt::FromTokens(other))));
  // 7 would leave no room for the others where it stands; 8 is where it was, 9 too.
  EXPECT_THAT(rewritten.cache.Positions(1, 0), ElementsAre(0, 1, 2, 3, 5, 9, 10, 11));
  EXPECT_EQ(rewritten.prompt.positions[2].token_id, 7);
  EXPECT_EQ(rewritten.prompt.next_rope_position, 8);
}

TEST(RewrittenPromptTest, WithoutChangesItIsTheWholePrefill) {
  const TinyModel tiny = MakeTinyModel("mha");
  const Prompt prompt = Prompt::FromTokens(RandomIds(Model::kChunkRows + 70, 3));
  const Thinned rewritten(*tiny.model, RewritingBy("nothing"), prompt);
  ASSERT_TRUE(rewritten.status.ok()) << rewritten.status.error().message;
  EXPECT_TRUE(SameBits(rewritten.logits, LogitsOf(*tiny.model, prompt)));
  EXPECT_EQ(rewritten.cache.length(0, 0), prompt.size());
}

TEST(RewrittenPromptTest, WrongChangesAreErrors) {
  const TinyModel tiny = MakeTinyModel("gqa");
  const auto fault = [&](const std::string& way) {
    const Prompt prompt = Prompt::FromTokens(RandomIds(12, 4));
    const Status status = Thinned(*tiny.model, RewritingBy(way), prompt).status;
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_THAT(fault("long"),
              AllOf(HasSubstr("thin.test_rewriting: 8 tokens in the place of 7 rows"),
                    HasSubstr("expected at most as many")));
  EXPECT_THAT(fault("beyond"), HasSubstr("token 101 in the place of rows from 2 on; the model's ids"
                                         " are 0 .. 100"));
  EXPECT_THAT(fault("last"), HasSubstr("rows 2 to 11 after row -1 of 12; changes ascend, and the "
                                       "last row stays"));
  EXPECT_THAT(fault("twice"), HasSubstr("rows 8 to 9 after row 8 of 12"));
  EXPECT_THAT(fault("asks"), HasSubstr("the encoder '' was not loaded beside this model"));
}

}  // namespace
}  // namespace kvgauge

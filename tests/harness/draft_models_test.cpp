// SPDX-License-Identifier: Apache-2.0
#include "src/model/draft_models.h"

#include <gmock/gmock.h>

#include "core/json.h"
#include "core/strings.h"
#include "runner/drafted_answer.h"
#include "runner/tokenizer.h"
#include "src/model/method_flags.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kModels = KVG_SOURCE_DIR "/models/";

Result<Method> SpecKvBy(const std::string& draft) {
  return ReadMethod("speckv", KVG_SOURCE_DIR "/configs/methods",
                    {StrCat("score.draft_model=", draft), "score.lookahead=6"});
}

Status CheckOn(const std::string& draft, const std::string& model) {
  const Result<Method> method = SpecKvBy(draft);
  EXPECT_TRUE(method.ok()) << method.error().message;
  return CheckDraftModels(*method, model, *ReadModelConfig(model), nullptr);
}

TEST(DraftModels, AreRefusedWhereTokensAreOthers) {
  EXPECT_TRUE(CheckOn(kModels + "ref-mqa", kModels + "ref-gqa").ok());
  EXPECT_TRUE(CheckOn("self", kModels + "ref-gqa").ok());
  const Status other = CheckOn(kModels + "ref-vlm", kModels + "ref-gqa");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::kBadInput);
  EXPECT_THAT(other.error().message,
              AllOf(HasSubstr("method speckv: score.speckv.draft_model: "),
                    HasSubstr("models/ref-vlm: its tokenizer has "),
                    HasSubstr("expected a checkpoint with the tokenizer of the measured model")));
  const Status none = CheckOn(KVG_SOURCE_DIR "/tests/golden/models/llama2", kModels + "ref-gqa");
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("llama2 has no tokenizer, and "));
  const Result<Method> nowhere = SpecKvBy("no/such/model");
  ASSERT_FALSE(nowhere.ok());
  EXPECT_THAT(nowhere.error().message,
              AllOf(HasSubstr("score.speckv.draft_model"), HasSubstr("no/such/model")));
}

// A key names what a draft is, not where it lies.
TEST(DraftModels, CountByTheirWeights) {
  const Result<Method> method = SpecKvBy(kModels + "ref-mqa");
  ASSERT_TRUE(method.ok()) << method.error().message;
  const DraftModel& draft = *method->score->draft;
  EXPECT_GT(draft.weight_bytes, 1 << 20);
  EXPECT_EQ(method->ToJson()["stages"]["score"]["params"]["draft_model"], draft.fingerprint);
  EXPECT_EQ(SpecKvBy("self")->ToJson()["stages"]["score"]["params"]["draft_model"], "self");
}

// The answer is what the checkpoint says alone, and its end is a token of it.
TEST(DraftModels, AnswerGreedily) {
  const std::string directory = kModels + "ref-mqa";
  const Result<Method> method = SpecKvBy(directory);
  ASSERT_TRUE(method.ok()) << method.error().message;
  const auto ops = std::move(*MakeOps("cpu", MakeThreadSettings(1)));
  const Method* one = &*method;
  const Result<Drafters> drafters = LoadDrafters({&one, 1}, *ops);
  ASSERT_TRUE(drafters.ok()) << drafters.error().message;
  const std::vector<int32_t> prompt =
      *(*LoadTokenizer(directory))->Encode("the color of the box is red. the color of the box is");
  const Drafter& drafter = drafters->at(directory);
  const Result<std::vector<int32_t>> few = drafter.answer(prompt, 3),
                                     more = drafter.answer(prompt, 9);
  ASSERT_TRUE(few.ok() && more.ok());
  EXPECT_EQ(few->size(), 3u);
  EXPECT_EQ(std::vector<int32_t>(more->begin(), more->begin() + 3), *few);
  const std::vector<int64_t> ends = ReadModelConfig(directory)->eos_ids;
  for (size_t i = 0; i + 1 < more->size(); ++i) {
    EXPECT_EQ(std::count(ends.begin(), ends.end(), (*more)[i]), 0);
  }
  const Result<std::vector<int32_t>> beyond = drafter.answer(prompt, 1 << 14);
  ASSERT_FALSE(beyond.ok());
  EXPECT_THAT(beyond.error().message, HasSubstr("the model that drafts was made for 8192"));
}

}  // namespace
}  // namespace kvgauge

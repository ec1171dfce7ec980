// SPDX-License-Identifier: Apache-2.0
// Encoders that methods name: found, refused, and told apart by what they are.
#include "src/model/taggers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "core/strings.h"
#include "src/model/method_flags.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::string kEncoders = std::string(KVG_TEST_DATA) + "/golden/encoders/";

Result<Method> AskingEncoder(const std::string& directory) {
  return ReadMethod("llmlingua2", KVG_SOURCE_DIR "/configs/methods",
                    {StrCat("thin.encoder=", directory)});
}

TEST(Taggers, AreRefusedBeforeAnythingRuns) {
  const Result<Method> nowhere = AskingEncoder("no/such/encoder");
  ASSERT_FALSE(nowhere.ok());
  EXPECT_THAT(nowhere.error().message,
              AllOf(HasSubstr("method llmlingua2: thin.llmlingua2.encoder: no/such/encoder"),
                    HasSubstr("expected the directory of a token classifier")));
  const Result<Method> decoder = AskingEncoder(KVG_SOURCE_DIR "/models/ref-gqa");
  ASSERT_FALSE(decoder.ok());
  EXPECT_THAT(decoder.error().message, HasSubstr("key 'architectures' is [\"LlamaForCausalLM\"]"));
}

// A key names what an encoder is, not where it lies.
TEST(Taggers, CountByTheirWeights) {
  const Result<Method> method = AskingEncoder(kEncoders + "bert");
  ASSERT_TRUE(method.ok()) << method.error().message;
  const TaggerModel& tagger = *method->thin->tagger;
  EXPECT_GT(tagger.weight_bytes, 1 << 16);
  EXPECT_EQ(method->ToJson()["stages"]["thin"]["params"]["encoder"], tagger.fingerprint);
  const Result<Method> other = AskingEncoder(kEncoders + "xlmr");
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_NE(other->thin->tagger->fingerprint, tagger.fingerprint);
  EXPECT_NE(LoadedBeside(*method), LoadedBeside(*other));
}

TEST(Taggers, AreLoadedOnce) {
  const Result<Method> bert = AskingEncoder(kEncoders + "bert"),
                       xlmr = AskingEncoder(kEncoders + "xlmr");
  ASSERT_TRUE(bert.ok() && xlmr.ok());
  const auto ops = MakeOps("cpu", MakeThreadSettings(1));
  ASSERT_TRUE(ops.ok());
  const Method* methods[] = {&*bert, &*xlmr, &*bert};
  const Result<Taggers> taggers = LoadTaggers(methods, **ops);
  ASSERT_TRUE(taggers.ok()) << taggers.error().message;
  EXPECT_EQ(taggers->size(), 2u);
  EXPECT_EQ(taggers->at(kEncoders + "xlmr")->word_spelling(), WordSpelling::kBegun);
}

}  // namespace
}  // namespace kvgauge

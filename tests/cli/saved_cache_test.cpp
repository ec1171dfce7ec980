// SPDX-License-Identifier: Apache-2.0
// A cache that one process saves and another one goes on with.
#include <gmock/gmock.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class SavedCacheCliTest : public ProgramTest {
 protected:
  static std::string Reference(const char* name) {
    return StrCat(KVG_TEST_DATA, "/../models/", name);
  }
  static std::string Prompt() {
    return StrCat(" --prompt-file '", Reference("ref-gqa"), "/demo/long.txt'");
  }
  nlohmann::json Answer(const std::string& arguments, const char* model = "ref-gqa") const {
    const Outcome outcome =
        Run(StrCat("generate '", Reference(model), "' --ignore-stop --json ", arguments));
    EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
    return outcome.exit_code == 0 ? nlohmann::json::parse(outcome.out) : nlohmann::json();
  }
  // Seven tokens and 33 more of another process are 40 of one; `again` is said once more on going
  // on.
  void GoesOnBitForBit(const char* model, const std::string& prompt, const std::string& method,
                       const std::string& again) const {
    const nlohmann::json whole =
        Answer(StrCat(prompt, " --max-new-tokens 40 --save-cache whole.kvc ", method), model);
    const nlohmann::json first =
        Answer(StrCat(prompt, " --max-new-tokens 7 --save-cache first.kvc ", method), model);
    const nlohmann::json second = Answer(
        StrCat("--max-new-tokens 33 --load-cache first.kvc --save-cache both.kvc ", again), model);
    ASSERT_TRUE(whole.is_object() && first.is_object() && second.is_object());
    nlohmann::json ids = first["ids"];
    ids.insert(ids.end(), second["ids"].begin(), second["ids"].end());
    EXPECT_EQ(ids, whole["ids"]);
    EXPECT_EQ(second["loaded_cache"]["tokens"], first["saved_cache"]["tokens"]);
    // The tokens of the cache are not read again, and do not count in the rate.
    EXPECT_EQ(second["prefill_tokens"], 1);
    EXPECT_DOUBLE_EQ(second["prefill_tokens_per_s"].get<double>(),
                     1 / second["prefill_s"].get<double>());
    EXPECT_EQ(Pages("both.kvc"), Pages("whole.kvc"));
    EXPECT_LT(first["saved_cache"]["file_bytes"], first["saved_cache"]["cache_bytes"]);
    EXPECT_EQ(first["saved_cache"]["file_bytes"],
              static_cast<int64_t>(std::filesystem::file_size(Path("first.kvc"))));
  }
  // The pages of a saved cache: all but its header, which says how long the answer may become.
  std::string Pages(const std::string& name) const {
    const std::string file = *ReadFile(Path(name));
    uint32_t header = 0;
    std::memcpy(&header, file.data() + 8, sizeof(header));
    return file.substr(8 + 4 + header + 4);
  }
  void Refused(const std::string& arguments, const ::testing::Matcher<std::string>& message) const {
    const Outcome outcome = Run(StrCat("generate '", Reference("ref-gqa"), "' ", arguments));
    EXPECT_EQ(outcome.exit_code, 2) << outcome.out;
    EXPECT_THAT(outcome.err, message);
  }
};

TEST_F(SavedCacheCliTest, AnotherProcessGoesOnBitForBit) {
  for (const char* method : {"", "--method snapkv_kivi --budget 50%", "--method gear",
                             "--method shadowkv_keys", "--method cachegen"}) {
    SCOPED_TRACE(method);
    GoesOnBitForBit("ref-gqa", Prompt(), method, "");
  }
}

TEST_F(SavedCacheCliTest, AModelThatAMethodMadeOverGoesOnByThatMethod) {
  for (const char* method : {"--method palu_4bit", "--method xquant", "--method cla"}) {
    SCOPED_TRACE(method);
    GoesOnBitForBit("ref-gqa", Prompt(), method, method);
  }
  GoesOnBitForBit("ref-mla", Prompt(), "--method mla_latent", "--method mla_latent");
}

TEST_F(SavedCacheCliTest, PeopleAreToldHowMuchWasRead) {
  ASSERT_TRUE(Answer(Prompt() + " --max-new-tokens 7 --save-cache a.kvc").is_object());
  const Outcome outcome =
      Run(StrCat("generate '", Reference("ref-gqa"), "' --load-cache a.kvc --max-new-tokens 3"));
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("prefill  1 of 1906 tokens, "));
}

// Classes of precision, evictions in decode with and without what a reducer knows, and readers.
TEST_F(SavedCacheCliTest, AMethodThatActsInDecodeGoesOn) {
  for (const char* method :
       {"--method qaq", "--method mikv", "--method h2o --budget 25%", "--method d2o --budget 25%",
        "--method quest", "--method less --budget 25% --set read.weights=random",
        "--method retrieval_attention_graph --set read.sinks=700 --set read.local=700"}) {
    SCOPED_TRACE(method);
    GoesOnBitForBit("ref-gqa", Prompt(), method, method);
  }
}

// The file holds the tokens that a method put between texts of the prompt.
TEST_F(SavedCacheCliTest, APromptWithTokensBetweenItsTextsGoesOn) {
  GoesOnBitForBit("ref-gqa", Prompt(),
                  "--method kvlink --set reuse.chunk=128 --set reuse.first=40 --set reuse.links=2 "
                  "--set reuse.begin=3 --set reuse.end=4",
                  "");
}

TEST_F(SavedCacheCliTest, PicturesAreInTheCache) {
  for (const char* model : {"ref-vlm", "ref-vlm-mrope"}) {
    SCOPED_TRACE(model);
    const std::string demo = Reference("ref-vlm") + "/demo/";
    const std::string prompt =
        StrCat(" --image '", demo, "1.png' --image '", demo, "2.png' --image '", demo,
               "3.png' --prompt-file '", demo, "page.txt'");
    GoesOnBitForBit(model, prompt, "--method q8_0", "");
    GoesOnBitForBit(model, prompt, "--method visionzip", "");
    // A stage that asks where they stand while the answer is written is told.
    for (const char* method : {"--method akvq_vl --set store.recent=60 --set store.wait=4",
                               "--method rekv --set read.picks=1", "--method calibquant"}) {
      SCOPED_TRACE(method);
      GoesOnBitForBit(model, prompt, method, method);
    }
  }
}

TEST_F(SavedCacheCliTest, DamagedFilesAreRefused) {
  ASSERT_TRUE(Answer(Prompt() + " --max-new-tokens 3 --save-cache a.kvc").is_object());
  const std::string file = *ReadFile(Path("a.kvc"));
  for (size_t at = 0; at < file.size(); at += file.size() / 6) {
    std::string wrong = file;
    wrong[at] = static_cast<char>(wrong[at] ^ 4);
    Write("wrong.kvc", wrong);
    Refused("--load-cache wrong.kvc", HasSubstr("wrong.kvc: "));
  }
  std::string flipped = file;
  flipped[file.size() / 2] = static_cast<char>(flipped[file.size() / 2] ^ 1);
  Write("flipped.kvc", flipped);
  Refused("--load-cache flipped.kvc",
          AllOf(HasSubstr("page "), HasSubstr(" has checksum "), HasSubstr("the file is damaged")));
  Write("cut.kvc", file.substr(0, file.size() - 1));
  Refused("--load-cache cut.kvc",
          AllOf(HasSubstr("the file ends within page"), HasSubstr("save the cache again")));
  Write("long.kvc", file + "x");
  Refused("--load-cache long.kvc", HasSubstr("1 bytes follow the last page"));
  Write("other.kvc", "not a cache at all");
  Refused("--load-cache other.kvc", HasSubstr("begins with 'not a ca'; expected 'kvgsave2'"));
  const Outcome outcome = Run(StrCat("generate '", Reference("ref-mha"), "' --load-cache a.kvc"));
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("a.kvc: the cache is of the model with fingerprint")));
}

TEST_F(SavedCacheCliTest, WhatCannotBeSavedOrContinuedSaysSo) {
  ASSERT_TRUE(Answer(Prompt() + " --max-new-tokens 3 --save-cache a.kvc").is_object());
  Refused(StrCat("--load-cache a.kvc", Prompt()), HasSubstr("leave out --prompt"));
  Refused("--load-cache a.kvc --template chatml", HasSubstr("and what chooses a template"));
  Refused(
      "--load-cache a.kvc --method snapkv",
      HasSubstr("a.kvc: the cache goes on as it was stored, without a method; leave snapkv out"));
  ASSERT_TRUE(Answer(Prompt() + " --max-new-tokens 3 --save-cache made_over.kvc --method palu")
                  .is_object());
  Refused("--load-cache made_over.kvc",
          HasSubstr("made_over.kvc: the cache is one of method palu; name the method again"));
  Refused(
      "--load-cache made_over.kvc --method full",
      HasSubstr("one of method palu, and this is full; name palu, with the parameters of then"));
  Refused("--load-cache made_over.kvc --method palu --set prepare.key_ratio=0.25",
          HasSubstr("one of method palu with other parameters: prepare.key_ratio was 0.5 and is "
                    "0.25; name it with those of then"));
  Refused("--load-cache made_over.kvc --method palu --dtype f32",
          HasSubstr("the cache is in bf16, and this model in f32; load the model in bf16"));
  Refused("--load-cache made_over.kvc --method palu --budget 10%",
          HasSubstr("was stored at a budget of none: leave out --budget"));
  ASSERT_TRUE(
      Answer(Prompt() + " --max-new-tokens 3 --save-cache acts.kvc --method h2o --budget 25%")
          .is_object());
  Refused("--load-cache acts.kvc",
          HasSubstr("acts.kvc: the cache is one of method h2o; name the method again"));
  Refused("--load-cache acts.kvc --method h2o --set protect.recent=3",
          HasSubstr("one of method h2o with other parameters: protect.recent was "));
  Refused("--load-cache nowhere.kvc", HasSubstr("nowhere.kvc"));
}

}  // namespace
}  // namespace kvgauge

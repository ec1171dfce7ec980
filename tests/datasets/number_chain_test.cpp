// SPDX-License-Identifier: Apache-2.0
// Chains of numbers: worked out again from what the prompt says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "core/json.h"
#include "core/strings.h"
#include "datasets/draws.h"
#include "datasets/task.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

struct WorkedChain {
  std::map<std::string, int64_t> values;
  std::string last;
  int64_t far = 0;              // rules that read another number than the one before
  int64_t without_before = 0;   // rules that do not read that one
  int64_t least = 0, most = 0;  // of the values
};

// By the rules of the prompt alone.
WorkedChain Work(const std::string& context) {
  WorkedChain chain;
  std::istringstream lines(context);
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string name, equals, left, sign, right;
    words >> name >> equals >> left >> sign >> right;
    if (equals != "=") continue;
    const auto value = [&](const std::string& word) {
      if (word[0] != 'x') return static_cast<int64_t>(std::stoll(word));
      EXPECT_TRUE(chain.values.contains(word)) << word << " is not there before " << name;
      return chain.values[word];
    };
    int64_t result = value(left);
    if (sign == "+") result += value(right);
    if (sign == "-") result -= value(right);
    if (!chain.last.empty()) {
      const bool of_before = left == chain.last || right == chain.last;
      chain.without_before += of_before ? 0 : 1;
      const std::string& other = left == chain.last ? right : left;
      chain.far += other[0] == 'x' && other != chain.last ? 1 : 0;
    }
    EXPECT_FALSE(chain.values.contains(name));
    chain.values[name] = result;
    chain.last = name;
    chain.least = std::min(chain.least, result);
    chain.most = std::max(chain.most, result);
  }
  return chain;
}

std::vector<Sample> ChainsOf(const std::string& params, uint64_t seed = 0) {
  const Json task = {{"name", "t"},
                     {"version", 1},
                     {"group", "t"},
                     {"description", "d"},
                     {"metric", "accuracy"},
                     {"max_new_tokens", 100},
                     {"source", *ParseJson(params, "params")}};
  const Result<Task> parsed = ParseTask(task, "t.json");
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  TaskOptions options;
  options.seed = seed;
  const auto stream = OpenTask(*parsed, options);
  EXPECT_TRUE(stream.ok()) << stream.error().message;
  std::vector<Sample> samples;
  while (auto sample = *(*stream)->Next()) samples.push_back(std::move(*sample));
  return samples;
}

TEST(NumberChain, AnswersFollowFromThePrompt) {
  const std::vector<Sample> samples =
      ChainsOf(R"({"name": "number_chain", "steps": "2,16,64", "samples": 20, "most": 500})");
  ASSERT_EQ(samples.size(), 60u);
  std::set<std::string> texts;
  int64_t far = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& sample = samples[i];
    const int64_t steps = i < 20 ? 2 : i < 40 ? 16 : 64;
    const WorkedChain chain = Work(sample.context);
    ASSERT_EQ(std::ssize(chain.values), steps);
    EXPECT_EQ(chain.last, StrCat("x", steps));
    EXPECT_EQ(sample.questions[0].answers,
              std::vector<std::string>{StrCat(chain.values.at(chain.last))});
    EXPECT_EQ(chain.without_before, 0) << "every number carries on the one before";
    EXPECT_GE(chain.least, 0);
    EXPECT_LE(chain.most, 500);
    const std::map<std::string, std::string> facts(sample.facts.begin(), sample.facts.end());
    EXPECT_EQ(facts.at("steps"), StrCat(steps));
    EXPECT_EQ(facts.at("far_steps"), StrCat(chain.far));
    if (steps == 64) far += chain.far;
    EXPECT_THAT(sample.questions[0].text, HasSubstr(StrCat("the value of ", chain.last)));
    texts.insert(sample.context);
  }
  EXPECT_EQ(texts.size(), samples.size());
  // Half of the 62 steps that have an earlier number, in 20 chains.
  EXPECT_NEAR(static_cast<double>(far), 620, 80);
}

TEST(NumberChain, SeedsAndShares) {
  const std::string params = R"({"name": "number_chain", "steps": "40", "samples": 3, "far": )";
  const std::vector<Sample> near = ChainsOf(params + "0}"), all = ChainsOf(params + "100}");
  for (size_t i = 0; i < near.size(); ++i) {
    EXPECT_EQ(Work(near[i].context).far, 0);
    EXPECT_EQ(Work(all[i].context).far, 38);
  }
  EXPECT_EQ(ChainsOf(params + "50}")[2].context, ChainsOf(params + "50}")[2].context);
  EXPECT_NE(ChainsOf(params + "50}", 1)[2].context, ChainsOf(params + "50}")[2].context);
  // The smallest range that there can be.
  for (const Sample& sample : ChainsOf(
           R"({"name": "number_chain", "steps": "300", "samples": 4, "most": 9, "far": 60})")) {
    EXPECT_LE(Work(sample.context).most, 9);
  }
}

TEST(NumberChain, TheRuleFindsTheAnswerOfTheLastLine) {
  const Result<Task> task =
      ReadTask(KVG_SOURCE_DIR "/configs/tasks/number_chain/number_chain.json");
  ASSERT_TRUE(task.ok()) << task.error().message;
  const auto found = [&](const std::string& text) { return PostProcess(task->post, text); };
  EXPECT_EQ(found("x1 = 4\nx2 = 17\nAnswer: 17"), "17");
  EXPECT_EQ(found("x2 = 17\n**Answer:** 17."), "17");
  EXPECT_EQ(found("answer: x64 = 345\n"), "345");
  EXPECT_EQ(found("Answer: 5, no.\nAnswer: 6"), "6");
  EXPECT_EQ(found("x1 = 4\nx2 = 17\n"), "");
}

TEST(NumberChain, WrongStepsAreRefused) {
  const Json task = {{"name", "t"},
                     {"version", 1},
                     {"group", "t"},
                     {"description", "d"},
                     {"metric", "accuracy"},
                     {"max_new_tokens", 100},
                     {"source", {{"name", "number_chain"}, {"steps", "1,16"}}}};
  const Result<Task> parsed = ParseTask(task, "t.json");
  ASSERT_TRUE(parsed.ok());
  const auto stream = OpenTask(*parsed, {});
  ASSERT_FALSE(stream.ok());
  EXPECT_THAT(stream.error().message,
              AllOf(HasSubstr("number_chain.steps"), HasSubstr("whole numbers from 2 to 4096")));
}

}  // namespace
}  // namespace kvgauge

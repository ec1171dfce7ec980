// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <sstream>

#include "core/json.h"
#include "core/strings.h"
#include "datasets/sample_stream.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

// A token for each word, number, sign and line break.
class ChainCodec final : public TextCodec {
 public:
  Result<std::vector<int32_t>> Encode(std::string_view text, bool) const override {
    std::vector<int32_t> ids;
    bool inside = false;
    for (const char byte : text) {
      const bool word = std::isalnum(static_cast<unsigned char>(byte)) != 0;
      if (byte != ' ' && !(word && inside)) ids.push_back(byte);
      inside = word;
    }
    return ids;
  }
  std::string Decode(std::span<const int32_t>, bool) const override { return ""; }
};

const ChainCodec kChainCodec;

Result<std::vector<Sample>> DrawChains(const Json& values, int64_t count) {
  Result<Task> task = ReadTask(KVG_SOURCE_DIR "/configs/tasks/reference/chain.json");
  if (task.ok()) task = WithSourceParams(*task, values);
  if (!task.ok()) return BadInput(task.error().message);
  TaskOptions options;
  options.codec = &kChainCodec;
  options.limit = count;
  return ReadAll(*task, options);
}

// The numbers of a prompt, worked out from its rules alone: "= lamp 9" for each.
std::vector<std::string> ChainWorkedOut(const std::string& prompt) {
  std::map<std::string, int64_t> values;
  std::vector<std::string> results;
  std::istringstream lines(prompt);
  std::string line;
  int64_t running = 0;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string from, sign, operand, blank, equals, name;
    words >> from;
    if (from == "=") {
      words >> name >> running;
      values[name] = running;
    }
    if (from != "?") continue;
    words >> sign >> operand >> blank >> equals >> name;
    EXPECT_EQ(values.count(operand), 1u) << line;
    EXPECT_EQ(values.count(name), 0u) << line;
    running += (sign == "+" ? 1 : -1) * values[operand];
    EXPECT_TRUE(running >= 0 && running <= 9) << line << ": " << running;
    values[name] = running;
    results.push_back(StrCat("= ", name, " ", running));
  }
  return results;
}

TEST(ClosedChain, AnswersFollowFromThePrompt) {
  for (const std::string length : {"64", "512"}) {
    const Result<std::vector<Sample>> samples = DrawChains({{"lengths", length}}, 20);
    ASSERT_TRUE(samples.ok()) << samples.error().message;
    std::set<std::string> texts;
    for (const Sample& sample : *samples) {
      const Question& question = sample.questions.at(0);
      const std::vector<std::string> results = ChainWorkedOut(sample.context);
      EXPECT_EQ(question.answers, results);
      EXPECT_EQ(sample.facts.back().second, std::to_string(results.size()));
      const auto rules =
          std::count_if(sample.marks.begin(), sample.marks.end(),
                        [](const Mark& mark) { return mark.kind == MarkKind::kNeedle; });
      EXPECT_EQ(rules, std::ssize(results));
      EXPECT_LE(sample.length, std::stoll(length));
      EXPECT_GE(sample.length, std::stoll(length) - 8) << "a rule";
      texts.insert(sample.context);
    }
    EXPECT_EQ(texts.size(), 20u);
  }
}

// A step is found by its sign and its name; the model reads no further back.
TEST(ClosedChain, StepsBeginAlikeOnlyOnce) {
  const Result<std::vector<Sample>> samples = DrawChains({{"lengths", "2048"}}, 10);
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  for (const Sample& sample : *samples) {
    std::multiset<std::string> beginnings;
    std::istringstream lines(sample.context);
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("?")) beginnings.insert(line.substr(0, line.find('?', 1)));
    }
    EXPECT_EQ(beginnings.size(), 120u) << "as many as there are names";
    for (const std::string& one : beginnings) EXPECT_EQ(beginnings.count(one), 1u) << one;
  }
}

TEST(ClosedChain, WholeTextsHoldTheWork) {
  const Result<std::vector<Sample>> samples =
      DrawChains({{"lengths", "256"}, {"whole", true}, {"split", "train"}, {"samples", 0}}, 5);
  ASSERT_TRUE(samples.ok()) << samples.error().message;
  for (const Sample& sample : *samples) {
    const Question& question = sample.questions.at(0);
    const std::string& answer = question.answers.at(0);
    size_t at = 0;
    for (const std::string& result : ChainWorkedOut(sample.context)) {
      at = answer.find(result + "\n", at);
      ASSERT_NE(at, std::string::npos) << result;
    }
    EXPECT_EQ(answer.find('?'), std::string::npos);
    const std::string text = sample.context + question.text + question.answer_prefix + answer;
    const auto tokens = static_cast<int64_t>(kChainCodec.Encode(text, false)->size()) + 2;
    EXPECT_LE(tokens, 256);
    EXPECT_GE(tokens, 256 - 16) << "a rule and its line";
  }
}

TEST(ClosedChain, IsNotFilled) {
  const Result<std::vector<Sample>> samples = DrawChains({{"fill", true}}, 1);
  ASSERT_FALSE(samples.ok());
  EXPECT_THAT(samples.error().message,
              HasSubstr("closed_english.fill: true, but the form 'chain'"));
}

}  // namespace
}  // namespace kvgauge

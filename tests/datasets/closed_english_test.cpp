// SPDX-License-Identifier: Apache-2.0
#include "generators/closed_english.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <set>

#include "core/json.h"
#include "datasets/sample_stream.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

// A token for each word, digit and sign, as the reference models' tokenizers nearly have it.
class SignCodec final : public TextCodec {
 public:
  Result<std::vector<int32_t>> Encode(std::string_view text, bool) const override {
    std::vector<int32_t> ids;
    bool inside = false;
    for (const char byte : text) {
      const bool letter = std::isalpha(static_cast<unsigned char>(byte)) != 0;
      if (byte != ' ' && !(letter && inside)) ids.push_back(byte);
      inside = letter;
    }
    return ids;
  }
  std::string Decode(std::span<const int32_t>, bool) const override { return ""; }
};

const SignCodec kSigns;

// Tasks about pages of any length. A chain is none: closed_chain_test.cpp.
std::vector<Task> ReferenceTasks() {
  auto tasks = ReadTasks(KVG_SOURCE_DIR "/configs/tasks/reference");
  EXPECT_TRUE(tasks.ok()) << (tasks.ok() ? "" : tasks.error().message);
  if (!tasks.ok()) return {};
  std::erase_if(*tasks, [](const Task& task) { return task.name == "reference/chain"; });
  return *tasks;
}

std::vector<Sample> Draw(const Task& task, const Json& values, int64_t count, uint64_t seed = 5) {
  const Result<Task> changed = WithSourceParams(task, values);
  EXPECT_TRUE(changed.ok()) << (changed.ok() ? "" : changed.error().message);
  TaskOptions options;
  options.codec = &kSigns;
  options.seed = seed;
  options.limit = count;
  const auto samples = ReadAll(*changed, options);
  EXPECT_TRUE(samples.ok()) << task.name << ": " << (samples.ok() ? "" : samples.error().message);
  return samples.ok() ? *samples : std::vector<Sample>();
}

std::string ServedText(const Sample& sample, bool whole) {
  std::string text = sample.context;
  for (const Question& question : sample.questions) {
    text += question.text + question.answer_prefix;
    if (whole) text += question.answers.at(0);
  }
  return text;
}

// Neighbouring words that are an adjective and a noun of the lists.
std::set<std::string> ThingsIn(const std::string& text) {
  std::set<std::string> adjectives, nouns, things;
  for (const std::string_view word : closed::Adjectives()) adjectives.emplace(word);
  for (const std::string_view word : closed::Nouns()) nouns.emplace(word);
  std::string last, word;
  char joint = 0, before = 0;  // the sign before the word, and before the last one
  for (const char byte : text + ".") {
    if (std::isalpha(static_cast<unsigned char>(byte)) != 0) {
      word += byte;
      continue;
    }
    if (!word.empty()) {
      if ((joint == ' ' || joint == '_') && adjectives.contains(last) && nouns.contains(word)) {
        things.insert(last + " " + word);
      }
      last = word;
      word.clear();
      before = byte;
    } else {
      before = 0;  // two signs: no neighbours
    }
    joint = before;
  }
  return things;
}

TEST(ClosedEnglish, EveryThingIsOfOneSplit) {
  size_t eval = 0;
  for (size_t a = 0; a < closed::Adjectives().size(); ++a) {
    for (size_t n = 0; n < closed::Nouns().size(); ++n) {
      const bool held = closed::InSplit(a, n, closed::Split::kEval);
      EXPECT_NE(held, closed::InSplit(a, n, closed::Split::kTrain));
      eval += held ? 1 : 0;
    }
  }
  EXPECT_GT(eval, 1000u);
}

TEST(ClosedEnglish, SplitsShareNoThingAndNoText) {
  std::set<std::string> train, eval, texts;
  for (const Task& task : ReferenceTasks()) {
    for (const std::string split : {"train", "eval"}) {
      const Json values = {{"split", split},
                           {"whole", true},
                           {"lengths", "512,2048"},
                           {"depths", ""},
                           {"samples", 0}};
      for (const Sample& sample : Draw(task, values, 12)) {
        const std::string text = ServedText(sample, true);
        EXPECT_TRUE(texts.insert(text).second) << sample.id;
        (split == "train" ? train : eval).merge(ThingsIn(text));
      }
    }
  }
  EXPECT_GT(train.size(), 2000u);
  EXPECT_GT(eval.size(), 1000u);
  for (const std::string& thing : eval) EXPECT_FALSE(train.contains(thing)) << thing;
}

TEST(ClosedEnglish, PromptsFillTheLength) {
  for (const Task& task : ReferenceTasks()) {
    for (const int64_t length : {256, 1024, 4096}) {
      for (const Sample& sample : Draw(task, {{"lengths", std::to_string(length)}}, 12)) {
        SCOPED_TRACE(sample.id + task.name);
        const auto tokens =
            static_cast<int64_t>(kSigns.Encode(ServedText(sample, false), false)->size()) + 1;
        EXPECT_EQ(sample.length, tokens);
        EXPECT_LE(tokens, length);
        // A unit less than full: passages are the largest.
        EXPECT_GE(tokens, length - 75);
        EXPECT_FALSE(sample.chat_template);
      }
    }
  }
}

TEST(ClosedEnglish, PromptsAreFilledToTheToken) {
  int64_t short_ones = 0;
  for (const Task& task : ReferenceTasks()) {
    for (const std::string length : {"256", "1023", "4096"}) {
      const auto pages = Draw(task, {{"lengths", length}}, 12);
      const auto filled = Draw(task, {{"lengths", length}, {"fill", true}}, 12);
      ASSERT_EQ(filled.size(), pages.size());
      for (size_t i = 0; i < filled.size(); ++i) {
        SCOPED_TRACE(task.name + " " + filled[i].id);
        const auto tokens =
            static_cast<int64_t>(kSigns.Encode(ServedText(filled[i], false), false)->size()) + 1;
        EXPECT_EQ(filled[i].length, tokens);
        EXPECT_LE(tokens, std::stoll(length));
        EXPECT_GE(tokens, std::stoll(length) - 1);
        short_ones += pages[i].length < std::stoll(length) - 1 ? 1 : 0;
        // The same page up to where it ends, or a unit or two less of it.
        const auto marked = [](const Sample& sample) {
          const Mark& mark = sample.marks.at(0);
          return sample.context.substr(static_cast<size_t>(mark.begin),
                                       static_cast<size_t>(mark.end - mark.begin));
        };
        if (!filled[i].context.starts_with(pages[i].context)) continue;
        EXPECT_EQ(filled[i].questions[0].text, pages[i].questions[0].text);
        EXPECT_EQ(filled[i].questions[0].answers, pages[i].questions[0].answers);
        EXPECT_EQ(marked(filled[i]), marked(pages[i]));
      }
    }
  }
  EXPECT_GT(short_ones, 300);
}

TEST(ClosedEnglish, WholeTextsAreNotFilled) {
  const Result<Task> changed =
      WithSourceParams(ReferenceTasks().at(0), {{"whole", true}, {"fill", true}});
  ASSERT_TRUE(changed.ok());
  TaskOptions options;
  options.codec = &kSigns;
  const auto samples = ReadAll(*changed, options);
  ASSERT_FALSE(samples.ok());
  EXPECT_THAT(samples.error().message, HasSubstr("closed_english.fill: true, but whole is true"));
}

TEST(ClosedEnglish, WholeTextsLeaveRoomForTheirEnds) {
  for (const Task& task : ReferenceTasks()) {
    const Json values = {{"split", "train"},
                         {"whole", true},
                         {"lengths", "128,1024"},
                         {"depths", ""},
                         {"samples", 0}};
    size_t most = 0;
    for (const Sample& sample : Draw(task, values, 16)) {
      SCOPED_TRACE(sample.id + task.name);
      const std::vector<int32_t> ids = *kSigns.Encode(ServedText(sample, true), false);
      const size_t length = sample.facts.at(0).second == "128" ? 128 : 1024;
      EXPECT_LE(ids.size() + 1 + sample.questions.size(), length);
      most = std::max(most, sample.questions.size());
    }
    if (task.name != "reference/needle" && task.name != "reference/longbench_summary") {
      EXPECT_GT(most, 1u) << task.name;
    }
  }
}

class Pages : public ::testing::TestWithParam<bool> {};

TEST_P(Pages, MarksHoldTheAnswerAndPromptsEndInItsWords) {
  for (const Task& task : ReferenceTasks()) {
    for (const Sample& sample : Draw(task, {{"lengths", "1024"}, {"fill", GetParam()}}, 22)) {
      SCOPED_TRACE(sample.id + task.name);
      ASSERT_EQ(sample.questions.size(), 1u);
      const Question& question = sample.questions[0];
      std::string marked;
      ASSERT_FALSE(sample.marks.empty());
      for (const Mark& mark : sample.marks) {
        if (mark.kind != MarkKind::kNeedle) continue;
        marked += sample.context.substr(static_cast<size_t>(mark.begin),
                                        static_cast<size_t>(mark.end - mark.begin));
      }
      if (task.name == "reference/tracing" || task.name == "reference/longbench_multi_doc_qa") {
        // Spread over sentences: its last word ends the last of them.
        const std::string last = question.answers[0].substr(question.answers[0].rfind(' '));
        EXPECT_THAT(marked, HasSubstr(last + "."));
      } else {
        EXPECT_THAT(marked, HasSubstr(question.answers[0]));
      }
      // The words that lead to the answer, joined as in the text.
      EXPECT_THAT(marked, HasSubstr(question.answer_prefix));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(ClosedEnglish, Pages, ::testing::Bool(),
                         [](const auto& of) { return of.param ? "filled" : "whole_units"; });

// The first token of an answer is known before a cache is compressed after the prompt: an answer of
// one would say nothing of any method.
TEST(ClosedEnglish, AnswersHaveSeveralTokens) {
  for (const Task& task : ReferenceTasks()) {
    for (const Sample& sample : Draw(task, {{"lengths", "1024"}}, 44)) {
      const std::string& answer = sample.questions.at(0).answers.at(0);
      EXPECT_GE(kSigns.Encode(answer, false)->size(), 2u) << task.name << ": " << answer;
    }
  }
}

TEST(ClosedEnglish, WhatTellsPassagesApartStandsBeforeTheNumber) {
  for (const Task& task : ReferenceTasks()) {
    if (task.name != "reference/passages") continue;
    for (const Sample& sample : Draw(task, {{"lengths", "4096"}}, 4)) {
      const std::string& lead = sample.questions.at(0).answer_prefix;
      const std::set<std::string> things = ThingsIn(lead);
      ASSERT_EQ(things.size(), 1u) << lead;
      EXPECT_THAT(lead, ::testing::EndsWith(*things.begin() + " (p"));
      // No other passage may hold it.
      const size_t first = sample.context.find(*things.begin() + " (p");
      EXPECT_EQ(first, sample.context.rfind(*things.begin() + " (p"));
      EXPECT_GE(std::stoi(sample.facts.back().second), 50) << "passages";
    }
  }
}

TEST(ClosedEnglish, DepthsAreKept) {
  for (const Task& task : ReferenceTasks()) {
    if (task.name != "reference/needle") continue;
    std::set<std::string> depths;
    for (const Sample& sample : Draw(task, {{"lengths", "2048"}}, 22)) {
      ASSERT_EQ(sample.facts[1].first, "depth");
      depths.insert(sample.facts[1].second);
      const double at = static_cast<double>(sample.marks.at(0).begin) * 100 /
                        static_cast<double>(sample.context.size());
      EXPECT_NEAR(at, std::stod(sample.facts[1].second), 2.5);
    }
    EXPECT_EQ(depths.size(), 11u);
  }
}

TEST(ClosedEnglish, SampleDependsOnSeedAndIndexAlone) {
  for (const Task& task : ReferenceTasks()) {
    const auto many = Draw(task, {{"lengths", "512"}}, 6);
    const auto later = Draw(task, {{"lengths", "512"}, {"first", 4}}, 1);
    const auto other = Draw(task, {{"lengths", "512"}}, 1, 6);
    ASSERT_EQ(many.size(), 6u);
    EXPECT_EQ(ServedText(many[4], true), ServedText(later.at(0), true)) << task.name;
    EXPECT_EQ(many[4].hash, later.at(0).hash);
    EXPECT_NE(ServedText(many[0], true), ServedText(other.at(0), true)) << task.name;
  }
}

TEST(ClosedEnglish, FullPagesOfPairsHold512) {
  for (const Task& task : ReferenceTasks()) {
    if (task.name != "reference/pairs") continue;
    for (const Sample& sample : Draw(task, {{"lengths", "4096"}}, 3)) {
      EXPECT_EQ(sample.facts.back().first, "pairs");
      EXPECT_GE(std::stoi(sample.facts.back().second), 512);
    }
  }
}

TEST(ClosedEnglish, TooShortIsAnError) {
  for (const Task& task : ReferenceTasks()) {
    TaskOptions options;
    options.codec = &kSigns;
    const auto changed = WithSourceParams(task, {{"lengths", "10"}});
    ASSERT_TRUE(changed.ok());
    const auto samples = ReadAll(*changed, options);
    ASSERT_FALSE(samples.ok()) << task.name;
    EXPECT_THAT(samples.error().message, HasSubstr("closed_english.lengths: 10"));
    EXPECT_FALSE(WithSourceParams(task, {{"splitt", "train"}}).ok());
  }
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "datasets/draws.h"
#include "datasets/metric.h"
#include "datasets/task.h"

namespace kvgauge {
namespace {

using namespace draws;
using ::testing::HasSubstr;

// Everything that can move a score.
std::string Print(const Sample& sample) {
  std::string text = sample.id + "\n" + sample.context;
  for (const Question& question : sample.questions) {
    text += "\n--\n" + question.text + "\n--\n" + question.answer_prefix;
    for (const std::string& answer : question.answers) text += "\n-> " + answer;
  }
  return text;
}

struct Case {
  const char* name;
  const char* source;
  const char* given;  // with a length that {N} stands for, unless sizes are not tokens
  bool fitted = true;
};

const Case kCases[] = {
    {"needle", "needle", R"({"lengths": "{N}", "depths": "0,50,100"})"},
    {"needles", "needle",
     R"({"lengths": "{N}", "depths": "0,20", "needles": "Figs are one.|Ham is two.|Cheese is three.",
         "answers": "Figs|Ham|Cheese", "question": "Which?"})"},
    {"niah_single_1", "ruler_niah", R"({"lengths": "{N}", "haystack": "noise"})"},
    {"niah_single_3", "ruler_niah", R"({"lengths": "{N}", "value_type": "uuids"})"},
    {"niah_multikey_3", "ruler_niah",
     R"({"lengths": "{N}", "haystack": "needle", "key_type": "uuids", "value_type": "uuids"})"},
    {"niah_multivalue", "ruler_niah", R"({"lengths": "{N}", "values": 4})"},
    {"niah_multiquery", "ruler_niah", R"({"lengths": "{N}", "queries": 4})"},
    {"vt", "ruler_variables", R"({"lengths": "{N}"})"},
    {"cwe", "ruler_words", R"({"lengths": "{N}"})"},
    {"fwe", "ruler_words", R"({"lengths": "{N}", "task": "frequent"})"},
    {"lines", "lines", R"({"lengths": "{N}"})"},
    {"lines_200", "lines", R"({"lines": "200"})", false},
    {"passkey", "passkey", R"({"lengths": "{N}"})"},
    {"key_value", "key_value", R"({"lengths": "{N}", "depths": "0,100"})"},
    {"key_value_75", "key_value", R"({"keys": "75"})", false},
    {"list_ops", "list_ops", "{}", false},
    {"list_ops_tokens", "list_ops", R"({"lengths": "{N}"})"},
    {"passages", "passages", R"({"lengths": "{N}"})"},
    {"passages_count", "passages", R"({"lengths": "{N}", "task": "count"})"},
    {"shared", "shared_context", R"({"lengths": "{N}"})"},
    {"turns", "shared_context", R"({"lengths": "{N}", "mode": "multi_turn"})"},
    {"topics", "topics", R"({"topics": "5"})", false},
    {"topics_third", "topics", R"({"topics": "5", "asked": "third"})", false},
    {"topics_second", "topics", R"({"lengths": "{N}", "asked": "second"})"},
    {"stream", "stream_lines", R"({"queries": 12})", false},
    {"stream_tokens", "stream_lines", R"({"lengths": "9000", "fill": true})", false},
};

Json Given(const Case& test, const std::string& length) {
  std::string text = test.given;
  const size_t at = text.find("{N}");
  if (at != std::string::npos) text.replace(at, 3, length);
  return *ParseJson(text, test.name);
}

TEST(Generators, SampleDependsOnSeedAndIndexAlone) {
  for (const Case& test : kCases) {
    SCOPED_TRACE(test.name);
    const Json given = Given(test, "9000");
    const auto few = MustDraw(test.source, given, &kMerging, 2);
    const auto more = MustDraw(test.source, given, &kMerging, 3);
    const auto other = MustDraw(test.source, given, &kMerging, 1, 2);
    ASSERT_EQ(few.size(), 2u);
    EXPECT_EQ(Print(few[0]), Print(more[0]));
    EXPECT_EQ(Print(few[1]), Print(more[1]));
    EXPECT_NE(Print(few[0]), Print(other.at(0)));
    EXPECT_NE(few[0].id, few[1].id);
  }
}

TEST(Generators, LengthsAreKept) {
  for (const TextCodec* codec :
       {static_cast<const TextCodec*>(&kBytes), static_cast<const TextCodec*>(&kWords),
        static_cast<const TextCodec*>(&kMerging)}) {
    for (const Case& test : kCases) {
      if (!test.fitted) continue;
      SCOPED_TRACE(test.name);
      const int64_t length = codec == &kBytes ? 24001 : codec == &kWords ? 4001 : 9001;
      for (const Sample& sample :
           MustDraw(test.source, Given(test, std::to_string(length)), codec, 3)) {
        const int64_t counted = Tokens(*codec, TextOf(sample));
        const std::string source = test.source;
        const int64_t kept = source.starts_with("ruler") ? sample.questions[0].max_new_tokens : 0;
        EXPECT_LE(counted + kept, length);
        if (source != "shared_context") {
          EXPECT_EQ(sample.length, counted);
        }
        // Whole words, lines and records fill less exactly than characters do.
        if (source == "needle" || source == "passkey" || source == "list_ops") {
          EXPECT_GE(counted, length - 1);
        }
        EXPECT_GE(counted + kept, length - length / 12) << test.name;
      }
    }
  }
}

bool CanFill(const std::string& source) {
  const SourceSpec* spec = FindSource(source);
  return std::any_of(spec->params.begin(), spec->params.end(),
                     [](const ParamSpec& param) { return param.name == "fill"; });
}

class Answers : public ::testing::TestWithParam<bool> {};

TEST_P(Answers, StandInTheContext) {
  for (const Case& test : kCases) {
    if (GetParam() && !(test.fitted && CanFill(test.source))) continue;
    SCOPED_TRACE(test.name);
    Json given = Given(test, "6000");
    if (GetParam()) given["fill"] = true;
    for (const Sample& sample : MustDraw(test.source, given, &kWords, 4)) {
      const std::string source = test.source;
      const std::string context =
          source == "ruler_variables"
              ? sample.context.substr(sample.context.rfind("Memorize and track"))
              : sample.context;
      for (const Question& question : sample.questions) {
        ASSERT_FALSE(question.answers.empty());
        EXPECT_GT(question.max_new_tokens, 0);
        for (const std::string& answer : question.answers) {
          const int64_t count = Count(context, answer);
          if (source == "stream_lines") {
            std::string before = context;
            for (const Question& other : sample.questions) {
              before += other.text;
              if (&other == &question) break;
            }
            EXPECT_GE(Count(before, "<" + answer + ">"), 1);
          } else if (source == "passkey") {
            EXPECT_EQ(Count(context, " " + answer + "."), 1);
          } else if (source == "lines") {
            EXPECT_EQ(Count(sample.context, "<" + answer + ">"), 1) << answer;
          } else if (source == "ruler_words" || source == "list_ops") {
            EXPECT_GE(count, 1);
          } else if (source == "ruler_variables") {
            EXPECT_EQ(count, &answer == &question.answers.back() ? 1 : 2);
          } else if (source == "passages") {
            if (answer.starts_with("P")) {
              EXPECT_EQ(Count(context, answer + ":"), 1);
            }
          } else if (source == "topics") {
            EXPECT_GE(count, 1);
          } else {
            EXPECT_EQ(count, 1) << answer;
          }
        }
      }
      for (const Mark& mark : sample.marks) {
        ASSERT_LT(mark.begin, mark.end);
        ASSERT_LE(mark.end, static_cast<int64_t>(sample.context.size()));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Filled, Answers, ::testing::Bool());

TEST(Generators, MarksAreTheNeedles) {
  for (const Sample& sample : MustDraw("ruler_niah", {{"queries", 4}}, &kWords, 5)) {
    std::set<std::string> found;
    for (const Mark& mark : sample.marks) {
      const std::string text = sample.context.substr(static_cast<size_t>(mark.begin),
                                                     static_cast<size_t>(mark.end - mark.begin));
      EXPECT_TRUE(text.starts_with("One of the special magic numbers for ")) << text;
      for (const std::string& answer : sample.questions[0].answers) {
        if (text.find(answer) != std::string::npos) found.insert(answer);
      }
    }
    EXPECT_EQ(found.size(), 4u);
  }
}

// Another evaluation of the expressions, from their text.
int Evaluate(const std::vector<std::string>& parts, size_t& at) {
  const std::string operation = parts[at++];
  if (operation[0] != '[') return std::stoi(operation);
  std::vector<int> values;
  while (parts[at] != "]") values.push_back(Evaluate(parts, at));
  ++at;
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  if (operation == "[MIN") return values[0];
  if (operation == "[MAX") return values[n - 1];
  if (operation == "[MED") return (values[(n - 1) / 2] + values[n / 2]) / 2;
  int sum = 0;
  for (const int value : values) sum += value;
  return sum % 10;
}

TEST(ListOps, ValuesAreRight) {
  for (const Sample& sample : MustDraw("list_ops", Json::object(), nullptr, 20)) {
    const auto begin = static_cast<size_t>(sample.marks[0].begin);
    const auto parts = Split(sample.context.substr(begin), ' ');
    size_t at = 0;
    EXPECT_EQ(std::to_string(Evaluate(parts, at)), sample.questions[0].answers[0]);
    EXPECT_EQ(at, parts.size());
    EXPECT_EQ(static_cast<int64_t>(parts.size()), sample.length);
    EXPECT_GT(sample.length, 500);
    EXPECT_LT(sample.length, 2000);
  }
}

TEST(ListOps, GrowsToTheToken) {
  const std::string lengths = "300,301,302,303,2500,2501,2502,2503,2517,2589";
  for (const TextCodec* codec :
       {static_cast<const TextCodec*>(&kBytes), static_cast<const TextCodec*>(&kWords),
        static_cast<const TextCodec*>(&kMerging)}) {
    const bool bytes = codec == &kBytes;
    std::map<std::string, int64_t> values;
    for (const int arguments : {3, 10}) {
      const Json given = {{"lengths", bytes ? "2501,2502,9001" : lengths},
                          {"samples", 12},
                          {"arguments", arguments}};
      for (const Sample& sample : MustDraw("list_ops", given, codec)) {
        SCOPED_TRACE(StrCat(sample.id, " of ", arguments));
        const int64_t length = std::stoll(Fact(sample, "length"));
        EXPECT_EQ(Tokens(*codec, TextOf(sample)), sample.length);
        EXPECT_LE(sample.length, length);
        EXPECT_GE(sample.length, length - 1);
        const auto begin = static_cast<size_t>(sample.marks[0].begin);
        const auto parts = Split(sample.context.substr(begin), ' ');
        EXPECT_EQ(StrCat(parts.size()), Fact(sample, "size"));
        size_t at = 0;
        EXPECT_EQ(std::to_string(Evaluate(parts, at)), sample.questions[0].answers[0]);
        EXPECT_EQ(at, parts.size());
        std::vector<int> counts;
        int depth = 0;
        for (const std::string& part : parts) {
          if (part == "]") {
            EXPECT_GE(counts.back(), 2);
            EXPECT_LE(counts.back(), arguments);
            counts.pop_back();
            continue;
          }
          if (!counts.empty()) ++counts.back();
          if (part[0] == '[') counts.push_back(0);
          depth = std::max(depth, static_cast<int>(counts.size()));
        }
        EXPECT_LE(depth, 9);  // and a digit below
        ++values[sample.questions[0].answers[0]];
      }
    }
    // No digit is nearly always right.
    int64_t all = 0, most = 0;
    for (const auto& [value, count] : values) {
      all += count;
      most = std::max(most, count);
    }
    EXPECT_GE(values.size(), 8u);
    EXPECT_LT(most, all / 2);
  }
  EXPECT_THAT(ErrorOf("list_ops", {{"lengths", "60"}}),
              HasSubstr("list_ops.lengths: 60: 60 tokens are too few; instructions, question"));
  EXPECT_THAT(ErrorOf("list_ops", {{"lengths", "2000"}, {"depth", 2}}),
              HasSubstr("list_ops.lengths: 2000: expressions of depth 2 and 10 arguments do not"));
  EXPECT_THAT(ErrorOf("list_ops", {{"lengths", "2000"}}, nullptr), HasSubstr("needs a tokenizer"));
}

TEST(KeyValue, DepthsArePositions) {
  const auto samples =
      MustDraw("key_value", {{"keys", "75"}, {"depths", "0,50,100"}, {"samples", 1}}, nullptr);
  ASSERT_EQ(samples.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const size_t begin = samples[i].context.find('{');
    const Json records = *ParseJson(samples[i].context.substr(begin), "records");
    EXPECT_EQ(records.size(), 75u);
    const int64_t before =
        Count(samples[i].context.substr(0, static_cast<size_t>(samples[i].marks[0].begin)), "\n ");
    EXPECT_EQ(before, static_cast<int64_t>(37 * i));
  }
}

TEST(Generators, BadParametersAreNamed) {
  EXPECT_THAT(ErrorOf("needle", {{"lengths", "20"}}),
              HasSubstr("needle.lengths: 20: 20 tokens are too few"));
  EXPECT_THAT(ErrorOf("needle", {{"lengths", "many"}}), HasSubstr("'many' is not valid"));
  EXPECT_THAT(ErrorOf("needle", {{"depths", "0,101"}}), HasSubstr("percentages from 0 to 100"));
  EXPECT_THAT(ErrorOf("needle", {{"needles", "one||two"}}), HasSubstr(".needles: 'one||two' has"));
  EXPECT_THAT(ErrorOf("needle", {{"answers", ""}}), HasSubstr(".answers: '' has an empty one"));
  EXPECT_THAT(ErrorOf("needle", {{"needles", "It is {nuber}."}}),
              HasSubstr(".needles: unknown name {nuber} (did you mean 'number'?); known: {number}, "
                        "{city}, {key}"));
  EXPECT_EQ(ErrorOf("needle", {{"needles", "\nSo {\"a\": {number}} {2} {} { city }.\n"}}), "");
  EXPECT_THAT(ErrorOf("needle", {{"haystack", "/no/such/place"}}), HasSubstr("/no/such/place"));
  EXPECT_THAT(ErrorOf("needle", Json::object(), nullptr), HasSubstr("needs a tokenizer"));
  EXPECT_THAT(ErrorOf("ruler_niah", {{"lengths", "150"}}), HasSubstr("too few"));
  EXPECT_THAT(ErrorOf("ruler_niah", {{"lengths", "100"}, {"reserve_tokens", 5}}),
              HasSubstr("ruler_niah.lengths: 100 less 128 new tokens and 5 reserve_tokens: nothing "
                        "is left"));
  EXPECT_THAT(ErrorOf("needle", {{"lengths", "60"}, {"reserve_tokens", 55}}),
              HasSubstr("needle.lengths: 60 less 55 reserve_tokens: 5 tokens are too few; "
                        "instructions, question and what must be found take "));
  EXPECT_THAT(ErrorOf("shared_context", {{"lengths", "100"}, {"mode", "multi_turn"}}),
              HasSubstr(" new tokens of earlier answers: "));
  EXPECT_THAT(ErrorOf("ruler_variables", {{"lengths", "64"}}), HasSubstr("too few"));
  for (const char* source : {"lines", "topics", "key_value", "stream_lines"}) {
    EXPECT_EQ(ErrorOf(source, {{"fill", true}}),
              StrCat(source, ".fill: there is no length to fill; name lengths, in tokens"));
  }
  EXPECT_THAT(ErrorOf("list_ops", {{"least_size", 9}, {"most_size", 9}}), HasSubstr("most_size"));
  EXPECT_THAT(ErrorOf("lines", {{"lines", "50000"}, {"index_type", "letters"}}),
              HasSubstr("46656"));
}

TEST(Generators, TaskFilesGiveSamples) {
  const std::string root = KVG_SOURCE_DIR "/configs/tasks/";
  int64_t generated = 0;
  for (const char* group : {"needle", "ruler", "longeval", "passkey", "key_value", "list_ops",
                            "passages", "shared_context"}) {
    const auto tasks = ReadTasks(root + group);
    ASSERT_TRUE(tasks.ok()) << tasks.error().message;
    for (const Task& task : tasks.value()) {
      SCOPED_TRACE(task.name);
      TaskOptions options;
      options.codec = &kWords;
      options.limit = 1;
      const auto stream = OpenTask(task, options);
      if (task.source == "ruler_qa" || task.name == "needle/essays") {
        EXPECT_FALSE(stream.ok());
        continue;
      }
      ASSERT_TRUE(stream.ok()) << stream.error().message;
      const auto sample = stream.value()->Next();
      ASSERT_TRUE(sample.ok()) << sample.error().message;
      ASSERT_TRUE(sample->has_value());
      EXPECT_EQ((*sample)->hash.size(), 64u);
      EXPECT_EQ((*sample)->questions[0].max_new_tokens, task.max_new_tokens);
      EXPECT_THAT((*sample)->questions[0].text, ::testing::Not(HasSubstr("{")));
      ++generated;
    }
  }
  EXPECT_GE(generated, 20);
}

// Where whole units are asked to be filled up, every length is met to the token.
TEST(Generators, FilledLengthsAreExact) {
  const std::string lengths = "2500,2501,2502,2503,2504,2505,2517,2533,2589,2611";
  for (const TextCodec* codec :
       {static_cast<const TextCodec*>(&kBytes), static_cast<const TextCodec*>(&kMerging)}) {
    for (const auto& [source, given] : std::initializer_list<std::pair<const char*, Json>>{
             {"passages", {{"task", "count"}, {"sentences", 3}}},
             {"passages", {{"task", "retrieval"}, {"sentences", 3}}},
             {"key_value", {{"depths", "50"}}},
             {"lines", Json::object()},
             {"topics", {{"turns", 2}}},
             {"ruler_niah", Json::object()},
             {"ruler_niah", {{"haystack", "noise"}}},
             {"ruler_niah", {{"haystack", "needle"}, {"value_type", "uuids"}}},
             {"ruler_variables", Json::object()},
             {"ruler_words", Json::object()},
             {"ruler_words", {{"task", "frequent"}}}}) {
      Json full = given;
      full["lengths"] = lengths;
      full["samples"] = 3;
      const auto coarse = MustDraw(source, full, codec);
      full["fill"] = true;
      const auto samples = MustDraw(source, full, codec);
      ASSERT_EQ(samples.size(), 30u);
      int64_t short_ones = 0;
      for (size_t i = 0; i < samples.size(); ++i) {
        const int64_t kept = std::string_view(source).starts_with("ruler_")
                                 ? samples[i].questions[0].max_new_tokens
                                 : 0;
        const int64_t length = std::stoll(Fact(samples[i], "length")) - kept;
        EXPECT_EQ(Tokens(*codec, TextOf(samples[i])), samples[i].length);
        EXPECT_EQ(Count(samples[i].context, "\n\n\n"), 0);
        EXPECT_LE(samples[i].length, length);
        EXPECT_GE(samples[i].length, length - 1) << source << " " << samples[i].id;
        short_ones += coarse[i].length < length - 1 ? 1 : 0;
      }
      EXPECT_GT(short_ones, 10) << source;
      if (std::string_view(source) != "key_value") continue;
      for (const Sample& sample : samples) {
        const size_t begin = sample.context.find('{');
        const auto records = ParseJson(sample.context.substr(begin), "records");
        ASSERT_TRUE(records.ok()) << records.error().message;
        // One more where there was something to fill.
        const int64_t more = std::ssize(*records) - std::stoll(Fact(sample, "keys"));
        EXPECT_TRUE(more == 0 || more == 1) << more;
      }
    }
  }
}

TEST(Generators, StreamsAskForLinesBehindThem) {
  const auto samples =
      MustDraw("stream_lines", *ParseJson(R"({"distances": "20", "queries": 3})", ""), &kWords, 1);
  const Sample& sample = samples.at(0);
  EXPECT_EQ(sample.mode, QuestionMode::kMultiTurn);
  EXPECT_EQ(Count(sample.context, "\nline "), 20);
  ASSERT_EQ(sample.questions.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    const Question& question = sample.questions[i];
    EXPECT_EQ(Count(question.text, "REGISTER_CONTENT is <"), 10);
    // After 30 lines the tenth, after 40 the twentieth.
    const std::string asked = StrCat("line ", 10 * (i + 1));
    EXPECT_THAT(question.text, HasSubstr(StrCat("in ", asked, "?")));
    const std::string whole = sample.context + sample.questions[0].text + sample.questions[1].text;
    EXPECT_THAT(whole, HasSubstr(StrCat("\n", asked, ": REGISTER_CONTENT is <",
                                        question.answers.at(0), ">")));
  }
}

TEST(Generators, ConversationsFillTheLength) {
  constexpr int64_t kAnswer = 20, kDistance = 15;
  for (const TextCodec* codec :
       {static_cast<const TextCodec*>(&kBytes), static_cast<const TextCodec*>(&kWords),
        static_cast<const TextCodec*>(&kMerging)}) {
    for (const bool fill : {false, true}) {
      const Json given = {{"lengths", "4000,4001,4002,4003,4021,4077"},
                          {"distances", "15"},
                          {"samples", 2},
                          {"fill", fill}};
      for (const Sample& sample : MustDraw("stream_lines", given, codec)) {
        SCOPED_TRACE(sample.id);
        const int64_t length = std::stoll(Fact(sample, "length"));
        std::string whole = sample.context;
        int64_t turns = Tokens(*codec, whole), lines = Count(whole, "\nline ");
        for (const Question& question : sample.questions) {
          turns += Tokens(*codec, "." + question.text) - Tokens(*codec, ".");
          whole += question.text;
          lines += Count("\n" + question.text, "\nline ");
          // The line so many back.
          const std::string asked = StrCat("line ", lines - kDistance);
          EXPECT_THAT(question.text, HasSubstr(StrCat("in ", asked, "?")));
          EXPECT_THAT(whole, HasSubstr(StrCat("\n", asked, ": REGISTER_CONTENT is <",
                                              question.answers.at(0), ">")));
        }
        EXPECT_EQ(Fact(sample, "lines"), StrCat(lines));
        const int64_t tokens =
            std::max(turns, Tokens(*codec, whole)) + kAnswer * (std::ssize(sample.questions) - 1);
        EXPECT_EQ(sample.length, tokens);
        EXPECT_LE(tokens, length);
        // A line, and where it ends a block a question with the answer before it.
        EXPECT_GE(tokens, fill ? length - 1 : length - (codec == &kBytes ? 160 : 90));
        EXPECT_GE(sample.questions.size(), codec == &kBytes ? 4u : 10u);
      }
    }
  }
}

TEST(Generators, TopicsBehindTheFirst) {
  const Json given = *ParseJson(R"({"topics": "5", "asked": "third"})", "");
  const Sample sample = MustDraw("topics", given, &kWords, 1).at(0);
  EXPECT_THAT(sample.context, HasSubstr("retrieve the third topic."));
  EXPECT_THAT(sample.questions[0].text, HasSubstr("What is the third topic(s)"));
  size_t at = 0;
  for (int i = 0; i < 3; ++i) at = sample.context.find("discuss the topic of the ", at + 1);
  EXPECT_EQ(sample.context.find(sample.questions[0].answers[0], at),
            at + std::string("discuss the topic of ").size());
  EXPECT_THAT(ErrorOf("topics", {{"topics", "2"}, {"asked", "third"}}), HasSubstr("topics"));
}

// A change of these is a change of every published number: raise the source's version with it.
// The solved example has as much noise as 500 tokens hold, the names that solve it not counted.
TEST(Ruler, TheExampleOfVariablesFills500Tokens) {
  const auto samples = MustDraw("ruler_variables", {{"lengths", "4000"}}, &kMerging, 2);
  ASSERT_EQ(samples.size(), 2u);
  for (const Sample& sample : samples) {
    const size_t answer = sample.context.find("they are: ");
    ASSERT_NE(answer, std::string::npos);
    const std::string example = sample.context.substr(0, answer + 10);
    const auto tokens = [](const std::string& text) {
      return kMerging.Encode(text, false)->size();
    };
    EXPECT_LE(tokens(example), 510u);  // names of another draw may take some tokens more
    const std::string line =
        "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back "
        "again.\n";
    EXPECT_GT(tokens(example) + tokens(line), 490u);
  }
}

TEST(Generators, PinnedBytes) {
  const std::map<std::string, std::string> pinned = {
      {"needle", "956bd66dbbbfb5da6b0981034d67fd8aae0e27eb5d117eec90cd42b737cde056"},
      {"needles", "3e66aa1c8e0fcabfaae714bd482fbfbc3073e3da6c279bf605849896a606a328"},
      {"niah_single_1", "7b783a6eef76a3555f51c5b82569b12add6f047052fe9a1cf4bd1401e3272297"},
      {"niah_single_3", "29c37cadf236c0bb0dc8cc8152c5566db55b1d3fa3535cd747348290a1acfdc8"},
      {"niah_multikey_3", "e9b27bc84fef00e5acf3d40b87c0e3e8b7350d304fa9fdca85c18e92f63f31e2"},
      {"niah_multivalue", "a7c552b75cb0b09f99c1b0ac448547586f93b8e1c22ea8ed52f5169af955f6eb"},
      {"niah_multiquery", "80ec986ce70345844c44f3341ce2916424f9575e967ff1e417c5cfd7fd62b2ac"},
      {"vt", "745902c6048373c2170419457a698a62261e7deea0cd194710fc4e4081486440"},
      {"cwe", "7bfe504b5206e733670411835e38e3e2c3a14af462bce4cd3c7c66a3e12c5ea8"},
      {"fwe", "080635e5d4c4d39bdf1e689150fcef5da3f616c22c7a5bebcc113956c783f854"},
      {"lines", "027c3ec7b576bf6ad3e0b6398006cd789a8575371021d0c2184916faca644b2e"},
      {"lines_200", "d0131c2cb036928750bf08b9cdb89dc18b099298f0d1a9911dea681123800b0b"},
      {"passkey", "5943a0d246552f026ba2ee0a4dd8096c31ca9757373bf292de2a4095c7d42c95"},
      {"key_value", "1ce12e87362f655a06bba0bffb675ae7ed303ec6400813b97a3b15d955ef1d0a"},
      {"key_value_75", "8bd449f80057e78640dda940aec9594d0a663eaaa636b70d67de4b9998512470"},
      {"list_ops", "35d4f666e0521007d8d7b26719bf8656ea8d6574995deadcee0873af830eecae"},
      {"list_ops_tokens", "af3e91de18b6354b2f544e0821f87a004f9575dce70e594266c6a44f54166626"},
      {"passages", "79c6a30ae6bbc359763d606242fcb3df793a5a13f513f4b4da037bdc55b339be"},
      {"passages_count", "a677d694db84afd5852e0e721e43107d2b1509610426310ddb8730202211b2a2"},
      {"shared", "ac2ea47601c4894b2b2497dcabebebc8c0c6f923bf6d3991e667ca061c3373d7"},
      {"turns", "d8f2676b484f525331b9ce8e1c68da154ad7ab35285eb614692d8c2fbcf9c0a0"},
      {"topics_third", "2ed13b34745c719de50b2ae4fa2bccb9e56ca5712e7a879d2be9cd3e574ae385"},
      {"topics_second", "005df5943815ba3ae922c4da4aa10234e031f2734d639b31b2284b17583289ae"},
      {"stream", "5b12784c452177ed01ff0037803755774f7f65d014a449b2524296a24c3a47ea"},
      {"stream_tokens", "b7a455db427802d4e2da28e377380d565496d96c61d391ab418164f21ad1b8c2"},
      {"topics", "d6376ee36ab66903e574e46aed2b020c6f0946fad58c7c451e57ab39917a2520"},
  };
  for (const Case& test : kCases) {
    const auto samples = MustDraw(test.source, Given(test, "9000"), &kMerging, 2, 42);
    const std::string hash = Sha256Hex(Print(samples.at(1)));
    const auto found = pinned.find(test.name);
    EXPECT_TRUE(found != pinned.end() && found->second == hash)
        << "{\"" << test.name << "\", \"" << hash << "\"},";
  }
}

}  // namespace
}  // namespace kvgauge
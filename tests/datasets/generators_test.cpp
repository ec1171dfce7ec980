// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "datasets/metric.h"
#include "datasets/task.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

class CodecBase : public TextCodec {
 public:
  std::string Decode(std::span<const int32_t>, bool) const override { return ""; }
};

class ByteCodec final : public CodecBase {
 public:
  Result<std::vector<int32_t>> Encode(std::string_view text, bool) const override {
    return std::vector<int32_t>(text.begin(), text.end());
  }
};

class WordCodec final : public CodecBase {
 public:
  Result<std::vector<int32_t>> Encode(std::string_view text, bool) const override {
    std::vector<int32_t> ids;
    bool inside = false;
    for (const char c : text) {
      const bool space = std::isspace(static_cast<unsigned char>(c)) != 0;
      if (!space && !inside) ids.push_back(1);
      inside = !space;
    }
    return ids;
  }
};

// Greedy pieces of up to five bytes whose length hangs on what stands before: where a text is
// joined moves every later boundary up to the next line break, so counts of parts never add up.
class MergingCodec final : public CodecBase {
 public:
  Result<std::vector<int32_t>> Encode(std::string_view text, bool) const override {
    std::vector<int32_t> ids;
    uint32_t state = 7;
    for (size_t at = 0; at < text.size();) {
      const auto byte = static_cast<unsigned char>(text[at]);
      state = byte == '\n' ? 7 : state * 31 + byte;
      const size_t size = byte == '\n' ? 1 : 1 + (state >> 3) % 5;
      at += std::min(size, text.size() - at);
      ids.push_back(byte);
    }
    return ids;
  }
};

const ByteCodec kBytes;
const WordCodec kWords;
const MergingCodec kMerging;

Result<std::vector<Sample>> Draw(const std::string& source, const Json& given,
                                 const TextCodec* codec, int64_t limit = -1, uint64_t seed = 1,
                                 const std::string& data = "") {
  const SourceSpec* spec = FindSource(source);
  if (spec == nullptr) return BadInput("no source " + source);
  KVG_ASSIGN(const Params params, Params::Parse(spec->params, given, source));
  if (spec->check) KVG_TRY(spec->check(params, Json()));
  TaskOptions options;
  options.codec = codec;
  options.limit = limit;
  options.seed = seed;
  options.data_directory = data;
  KVG_ASSIGN(const std::unique_ptr<SampleStream> stream, spec->open(params, Json(), options));
  std::vector<Sample> samples;
  while (true) {
    KVG_ASSIGN(std::optional<Sample> sample, stream->Next());
    if (!sample) return samples;
    samples.push_back(std::move(*sample));
  }
}

std::vector<Sample> MustDraw(const std::string& source, const Json& given, const TextCodec* codec,
                             int64_t limit = -1, uint64_t seed = 1) {
  auto samples = Draw(source, given, codec, limit, seed);
  EXPECT_TRUE(samples.ok()) << samples.error().message;
  return samples.ok() ? std::move(samples).value() : std::vector<Sample>();
}

std::string ErrorOf(const std::string& source, const Json& given, const TextCodec* codec = &kWords,
                    const std::string& data = "") {
  const auto samples = Draw(source, given, codec, -1, 1, data);
  return samples.ok() ? "" : samples.error().message;
}

std::string TextOf(const Sample& sample) {
  return sample.context + sample.questions[0].text + sample.questions[0].answer_prefix;
}

int64_t Tokens(const TextCodec& codec, const std::string& text) {
  return static_cast<int64_t>(codec.Encode(text, false)->size());
}

int64_t Count(std::string_view text, std::string_view word) {
  int64_t count = 0;
  for (size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

// Everything that can move a score.
std::string Print(const Sample& sample) {
  std::string text = sample.id + "\n" + sample.context;
  for (const Question& question : sample.questions) {
    text += "\n--\n" + question.text + "\n--\n" + question.answer_prefix;
    for (const std::string& answer : question.answers) text += "\n-> " + answer;
  }
  return text;
}

std::string Fact(const Sample& sample, const std::string& name) {
  for (const auto& [key, value] : sample.facts) {
    if (key == name) return value;
  }
  return "";
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
    {"passages", "passages", R"({"lengths": "{N}"})"},
    {"passages_count", "passages", R"({"lengths": "{N}", "task": "count"})"},
    {"shared", "shared_context", R"({"lengths": "{N}"})"},
    {"turns", "shared_context", R"({"lengths": "{N}", "mode": "multi_turn"})"},
    {"topics", "topics", R"({"topics": "5"})", false},
    {"topics_third", "topics", R"({"topics": "5", "asked": "third"})", false},
    {"topics_second", "topics", R"({"lengths": "{N}", "asked": "second"})"},
    {"stream", "stream_lines", R"({"queries": 12})", false},
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
        if (source == "needle") {
          EXPECT_GE(counted, length - 1);
        }
        if (source == "passkey") {
          EXPECT_GE(counted, length - 2);
        }
        EXPECT_GE(counted + kept, length - length / 12) << test.name;
      }
    }
  }
}

TEST(Generators, AnswersStandInTheContext) {
  for (const Case& test : kCases) {
    SCOPED_TRACE(test.name);
    for (const Sample& sample : MustDraw(test.source, Given(test, "6000"), &kWords, 4)) {
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

TEST(Needle, DepthsAreSentenceEnds) {
  const auto samples =
      MustDraw("needle", {{"lengths", "4000"}, {"depths", "0,25,50,75,100"}}, &kWords);
  ASSERT_EQ(samples.size(), 5u);
  for (const Sample& sample : samples) {
    const double depth = std::stod(Fact(sample, "depth")) / 100;
    const Mark& mark = sample.marks[0];
    const auto begin = static_cast<size_t>(mark.begin);
    const double share = static_cast<double>(begin) / static_cast<double>(sample.context.size());
    EXPECT_NEAR(share, depth, 0.02);
    if (depth > 0 && depth < 1) {
      EXPECT_EQ(sample.context[begin - 1], '.');
    }
    EXPECT_EQ(Fact(sample, "length"), "4000");
  }
  EXPECT_EQ(samples[0].id, "n4000-d0-r0");
}

// A directory with one file, gone with the object.
class TextFolder {
 public:
  explicit TextFolder(const std::string& text)
      : path_(std::filesystem::path(::testing::TempDir()) /
              StrCat("kvgauge_folder_", Sha256Hex(text).substr(0, 8))) {
    std::filesystem::create_directories(path_);
    std::ofstream(path_ / "a.txt") << text;
  }
  ~TextFolder() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string Repeated(const std::vector<std::string>& parts, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) {
    for (const std::string& part : parts) text += part;
  }
  return text;
}

// Whatever ends the sentences of a text, needles stand behind one and at their depth.
TEST(Needle, DepthsInTextsOfOtherKinds) {
  const struct {
    const char* name;
    std::string text;
    std::vector<std::string> before;  // a needle stands behind one of these
  } kinds[] = {
      {"chinese",
       Repeated({"他们在河边走了很久。", "天黑了吗？！", "「是的。」"}, 400),
       {"。", "！", "」"}},
      {"lines",
       Repeated({"a line without a stop, 3.5 long\n", "another one\n"}, 500),
       {"long", "one"}},
      {"quoted", Repeated({"\"He said so.\" ", "(\"Really?\") "}, 700), {".\"", "\")"}},
      {"hindi", Repeated({"वह घर गया। ", "सब ठीक है। "}, 300), {"।"}},
      {"words only", Repeated({"stone water light "}, 1000), {"stone", "water", "light"}},
      {"one word", Repeated({"stonewater"}, 2000), {""}},
  };
  for (const auto& kind : kinds) {
    SCOPED_TRACE(kind.name);
    const TextFolder folder(kind.text);
    const auto samples = MustDraw("needle",
                                  {{"lengths", "12000"},
                                   {"depths", "25,50,75"},
                                   {"repeats", 2},
                                   {"needles", "\nNeedle {number}.\n"},
                                   {"answers", "{number}"},
                                   {"haystack", folder.path()}},
                                  &kBytes);
    ASSERT_EQ(samples.size(), 6u);
    for (const Sample& sample : samples) {
      const auto begin = static_cast<size_t>(sample.marks[0].begin);
      const double share = static_cast<double>(begin) / static_cast<double>(sample.context.size());
      EXPECT_NEAR(share, std::stod(Fact(sample, "depth")) / 100, 0.02);
      const std::string_view front = std::string_view(sample.context).substr(0, begin);
      EXPECT_TRUE(std::any_of(kind.before.begin(), kind.before.end(), [&](const std::string& end) {
        return front.ends_with(end);
      })) << front.substr(front.size() - 20);
      EXPECT_EQ(FindInvalidUtf8(sample.context), std::string::npos);
    }
  }
}

TEST(Needle, TellsTheDepthThatItCouldNotKeep) {
  const std::string sentence = Repeated({"stone water light "}, 50) + "end. ";
  const TextFolder folder(Repeated({sentence}, 20));
  const auto samples = MustDraw(
      "needle", {{"lengths", "3000"}, {"depths", "0,50"}, {"haystack", folder.path()}}, &kBytes);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(Fact(samples[0], "placed_depth"), "");
  const double placed = std::stod(Fact(samples[1], "placed_depth"));
  EXPECT_EQ(Fact(samples[1], "depth"), "50");
  const Mark& mark = samples[1].marks[0];
  const double haystack = static_cast<double>(samples[1].marks[1].end - (mark.end - mark.begin));
  EXPECT_NEAR(placed, 100 * static_cast<double>(mark.begin) / haystack, 0.06);
  EXPECT_LT(placed, 40);
}

// The ROUGE score that papers print: ten times the F of single words, against the whole needle.
TEST(Needle, RougeHasATaskOfItsOwn) {
  const auto task = ReadTask(KVG_SOURCE_DIR "/configs/tasks/needle/story_book_rouge.json");
  ASSERT_TRUE(task.ok()) << task.error().message;
  const auto shown = [&](const std::string& output) {
    const MetricInput input = {.prediction = PostProcess(task->post, output),
                               .answers = {task->source_params.Text("answers")}};
    return Reported(task->report, *FindMetric(task->metric)->score(input));
  };
  EXPECT_EQ(shown("eat a sandwich and sit in Dolores Park on a sunny day.\nMore."), 7.2727);
  EXPECT_EQ(shown("to eat a sandwich and sit in Dolores Park on a sunny day"), 7.6471);
  EXPECT_EQ(shown("visit the Golden Gate Bridge"), 0.7692);
  EXPECT_EQ(shown(""), 0);
}

TEST(Needle, ReadsADirectory) {
  namespace fs = std::filesystem;
  const fs::path directory = fs::path(::testing::TempDir()) / "kvgauge_haystack";
  fs::create_directories(directory);
  std::ofstream(directory / "b.txt") << "Second file here. ";
  std::ofstream(directory / "a.txt") << "First file, caf\xc3\xa9 and na\xc3\xafve. ";
  for (const TextCodec* codec :
       {static_cast<const TextCodec*>(&kBytes), static_cast<const TextCodec*>(&kMerging)}) {
    const auto samples = MustDraw(
        "needle", {{"lengths", "900,901,902,903"}, {"haystack", directory.string()}}, codec);
    EXPECT_EQ(samples.size(), 40u);
    for (const Sample& sample : samples) {
      EXPECT_EQ(FindInvalidUtf8(sample.context), std::string::npos);
      const int64_t length = std::stoll(Fact(sample, "length"));
      EXPECT_LE(Tokens(*codec, TextOf(sample)), length);
      EXPECT_GE(Tokens(*codec, TextOf(sample)), length - 1);
    }
    EXPECT_EQ(samples[9].context.substr(0, 10), "First file");
    EXPECT_THAT(samples[9].context, HasSubstr("naïve. Second file here.\nFirst"));
  }
  std::ofstream(directory / "c.txt") << "caf\xe9";
  EXPECT_THAT(ErrorOf("needle", {{"haystack", directory.string()}}),
              HasSubstr("c.txt: not UTF-8 at byte 4"));
  fs::remove_all(directory);
}

TEST(Ruler, SingularPrompt) {
  const auto samples = MustDraw("ruler_niah", {{"haystack", "noise"}}, &kWords, 1);
  const Sample& sample = samples.at(0);
  EXPECT_THAT(sample.context, HasSubstr("A special magic number is hidden within the following"));
  EXPECT_THAT(sample.questions[0].text, HasSubstr("\nWhat is the special magic number for "));
  EXPECT_THAT(sample.questions[0].answer_prefix, HasSubstr("in the provided text is"));
  EXPECT_THAT(sample.context, HasSubstr("One of the special magic numbers for "));
}

TEST(Ruler, CommonWordsAreCommon) {
  const Sample sample = MustDraw("ruler_words", Json::object(), &kWords, 1).at(0);
  const std::string list = sample.context.substr(sample.context.rfind("Below is"));
  for (const std::string& answer : sample.questions[0].answers) {
    EXPECT_EQ(Count(list, answer), 30);
  }
}

TEST(Ruler, FrequentWordsAreFrequent) {
  const Sample sample = MustDraw("ruler_words", {{"task", "frequent"}}, &kWords, 1).at(0);
  std::map<std::string, int64_t> counts;
  for (const std::string& word : Split(sample.context, ' ')) ++counts[word];
  std::vector<std::pair<int64_t, std::string>> ranked;
  for (const auto& [word, count] : counts) ranked.emplace_back(-count, word);
  std::sort(ranked.begin(), ranked.end());
  EXPECT_EQ(ranked[0].second, "...");
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(ranked[i + 1].second, sample.questions[0].answers[i]);
  }
}

TEST(Ruler, QuestionsOverDocuments) {
  namespace fs = std::filesystem;
  EXPECT_THAT(ErrorOf("ruler_qa", Json::object(), &kWords, "/nowhere"),
              HasSubstr("/nowhere/ruler/dev-v2.0.json not found; get it with: scripts/fetch_data "
                        "--data /nowhere ruler"));
  const fs::path data = fs::path(::testing::TempDir()) / "kvgauge_ruler";
  fs::create_directories(data / "ruler");
  Json paragraphs = Json::array();
  for (int i = 0; i < 30; ++i) {
    paragraphs.push_back({{"context", StrCat("Fact number ", i, " is told here.")},
                          {"qas",
                           {{{"question", StrCat("Which fact is ", i, "?")},
                             {"is_impossible", i % 2 == 1},
                             {"answers", {{{"text", StrCat("number ", i)}}}}}}}});
  }
  std::ofstream(data / "ruler/dev-v2.0.json")
      << Json{{"data", {{{"paragraphs", paragraphs}}}}}.dump();
  const auto drawn = Draw("ruler_qa", {{"lengths", "250"}}, &kWords, -1, 1, data.string());
  ASSERT_TRUE(drawn.ok()) << drawn.error().message;
  const std::vector<Sample>& samples = drawn.value();
  ASSERT_EQ(samples.size(), 15u);
  EXPECT_THAT(samples[1].questions[0].text, HasSubstr("Question: Which fact is 2?"));
  EXPECT_THAT(samples[1].context, HasSubstr("Fact number 2 is told here."));
  EXPECT_THAT(samples[1].context, HasSubstr("Document 9:\n"));

  // What the set gets wrong is named by its place, or left out with the reason.
  const auto faulty = [&](const Json& json, const char* file, const char* set) {
    std::ofstream(data / "ruler" / file) << json.dump(1);
    const Json given = {{"lengths", "250"}, {"dataset", set}};
    return ErrorOf("ruler_qa", given, &kWords, data.string());
  };
  const auto squad = [&](const Json& wrong) {
    return faulty({{"data", {{{"paragraphs", wrong}}}}}, "dev-v2.0.json", "squad");
  };
  Json wrong = paragraphs;
  wrong[2]["qas"][0]["answers"] = Json::array();
  EXPECT_THAT(squad(wrong), HasSubstr("dev-v2.0.json: data[0].paragraphs[2].qas[0]: field "
                                      "'answers' has no text, but is_impossible is false"));
  wrong[4]["qas"][0].erase("question");
  wrong[6].erase("context");
  wrong[8]["qas"][0]["is_impossible"] = "no";
  const SourceSpec* spec = FindSource("ruler_qa");
  const Params params = *Params::Parse(spec->params, {{"lengths", "250"}}, "ruler_qa");
  TaskOptions tolerant;
  tolerant.codec = &kWords;
  tolerant.data_directory = data.string();
  tolerant.skip_bad = true;
  EXPECT_THAT(squad(wrong), HasSubstr("data[0].paragraphs[6]: field 'context' is missing"));
  const auto stream = spec->open(params, Json(), tolerant);
  ASSERT_TRUE(stream.ok()) << stream.error().message;
  EXPECT_EQ((*stream)->skipped(), 4);
  EXPECT_THAT((*stream)->faults(),
              ::testing::UnorderedElementsAre(
                  HasSubstr("paragraphs[2].qas[0]: field 'answers'"),
                  HasSubstr("paragraphs[4].qas[0]: field 'question' is missing"),
                  HasSubstr("paragraphs[6]: field 'context' is missing"),
                  HasSubstr("paragraphs[8].qas[0]: field 'is_impossible' is a string")));
  EXPECT_THAT(faulty(Json::array(), "dev-v2.0.json", "squad"), HasSubstr("dev-v2.0.json: is an"));

  const char* hotpot = "hotpot_dev_distractor_v1.json";
  Json records = Json::array();
  for (int i = 0; i < 3; ++i) {
    records.push_back(
        {{"question", "Who?"},
         {"answer", "Bo"},
         {"context",
          Json::array({Json::array({StrCat("Title ", i), {"Bo did. ", "It rained."}})})}});
  }
  EXPECT_EQ(faulty(records, hotpot, "hotpotqa"), "");
  Json blank = records;
  blank[1]["answer"] = " ";
  EXPECT_THAT(faulty(blank, hotpot, "hotpotqa"), HasSubstr("v1.json:15: field 'answer' is empty"));
  records[1]["context"][0] = "Title";
  EXPECT_THAT(faulty(records, hotpot, "hotpotqa"),
              HasSubstr("field 'context' is no array of [title, [sentences]]"));
  fs::remove_all(data);
}

// The shortest list of common words is about as long as 4,096 tokens of a small vocabulary: words
// are drawn until it fits.
TEST(Ruler, CommonWordsAreDrawnUntilTheyFit) {
  const Json tight = {{"task", "common"}, {"lengths", "6050"}, {"samples", 20}};
  const auto samples = MustDraw("ruler_words", tight, &kBytes);
  ASSERT_EQ(samples.size(), 20u);
  for (const Sample& sample : samples) {
    EXPECT_LE(Tokens(kBytes, TextOf(sample)) + 120, 6050);
    EXPECT_EQ(std::set<std::string>(sample.questions[0].answers.begin(),
                                    sample.questions[0].answers.end())
                  .size(),
              10u);
  }
  EXPECT_THAT(ErrorOf("ruler_words", {{"lengths", "5000"}}, &kBytes),
              HasSubstr("sample at position 0: ruler_words.lengths: 5000 less 120 new tokens: "
                        "4880 tokens are too few"));
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
TEST(Generators, PinnedBytes) {
  const std::map<std::string, std::string> pinned = {
      {"needle", "956bd66dbbbfb5da6b0981034d67fd8aae0e27eb5d117eec90cd42b737cde056"},
      {"needles", "3e66aa1c8e0fcabfaae714bd482fbfbc3073e3da6c279bf605849896a606a328"},
      {"niah_single_1", "7b783a6eef76a3555f51c5b82569b12add6f047052fe9a1cf4bd1401e3272297"},
      {"niah_single_3", "29c37cadf236c0bb0dc8cc8152c5566db55b1d3fa3535cd747348290a1acfdc8"},
      {"niah_multikey_3", "e9b27bc84fef00e5acf3d40b87c0e3e8b7350d304fa9fdca85c18e92f63f31e2"},
      {"niah_multivalue", "a7c552b75cb0b09f99c1b0ac448547586f93b8e1c22ea8ed52f5169af955f6eb"},
      {"niah_multiquery", "80ec986ce70345844c44f3341ce2916424f9575e967ff1e417c5cfd7fd62b2ac"},
      {"vt", "66d693f3b841d8ce4edac6c82b8d0e76e31c9c7e77ea9b39c991b01318995029"},
      {"cwe", "7bfe504b5206e733670411835e38e3e2c3a14af462bce4cd3c7c66a3e12c5ea8"},
      {"fwe", "080635e5d4c4d39bdf1e689150fcef5da3f616c22c7a5bebcc113956c783f854"},
      {"lines", "027c3ec7b576bf6ad3e0b6398006cd789a8575371021d0c2184916faca644b2e"},
      {"lines_200", "d0131c2cb036928750bf08b9cdb89dc18b099298f0d1a9911dea681123800b0b"},
      {"passkey", "5943a0d246552f026ba2ee0a4dd8096c31ca9757373bf292de2a4095c7d42c95"},
      {"key_value", "1ce12e87362f655a06bba0bffb675ae7ed303ec6400813b97a3b15d955ef1d0a"},
      {"key_value_75", "8bd449f80057e78640dda940aec9594d0a663eaaa636b70d67de4b9998512470"},
      {"list_ops", "35d4f666e0521007d8d7b26719bf8656ea8d6574995deadcee0873af830eecae"},
      {"passages", "79c6a30ae6bbc359763d606242fcb3df793a5a13f513f4b4da037bdc55b339be"},
      {"passages_count", "a677d694db84afd5852e0e721e43107d2b1509610426310ddb8730202211b2a2"},
      {"shared", "b3804e87311d8b665feb40d9094f9563cc86020d3d6dec6e01a978a04e4d8627"},
      {"turns", "d8f2676b484f525331b9ce8e1c68da154ad7ab35285eb614692d8c2fbcf9c0a0"},
      {"topics_third", "2ed13b34745c719de50b2ae4fa2bccb9e56ca5712e7a879d2be9cd3e574ae385"},
      {"topics_second", "005df5943815ba3ae922c4da4aa10234e031f2734d639b31b2284b17583289ae"},
      {"stream", "5b12784c452177ed01ff0037803755774f7f65d014a449b2524296a24c3a47ea"},
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

// SPDX-License-Identifier: Apache-2.0
// Needles in haystacks, and RULER.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
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

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Every metric against the reference packages' scores, which scripts/goldens/make_metrics wrote.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>

#include "core/json.h"
#include "core/strings.h"
#include "datasets/aggregate.h"
#include "datasets/metric.h"
#include "datasets/task.h"
#include "metrics/jieba.h"
#include "metrics/numbers.h"
#include "metrics/porter.h"
#include "metrics/text.h"
#include "metrics/wordnet.h"

namespace kvgauge {
namespace {

// The table is read once, at the first Chinese score.
[[maybe_unused]] const int kTables =
    setenv("KVGAUGE_JIEBA", StrCat(KVG_TEST_DATA, "/golden/metrics/jieba").c_str(), 1);

Json Golden(const std::string& name) {
  Result<Json> json = ReadJsonFile(StrCat(KVG_TEST_DATA, "/golden/metrics/", name, ".json"));
  EXPECT_TRUE(json.ok()) << (json.ok() ? "" : json.error().message);
  return json.ok() ? *json : Json();
}

double Score(const std::string& metric, const std::string& prediction,
             const std::vector<std::string>& answers, const std::vector<std::string>& classes = {},
             const std::string& kind = "") {
  const MetricSpec* spec = FindMetric(metric);
  EXPECT_NE(spec, nullptr) << metric;
  if (spec == nullptr) return NAN;
  const Result<double> score = spec->score({.prediction = prediction,
                                            .answers = answers,
                                            .all_classes = classes,
                                            .language = "en",
                                            .kind = kind});
  EXPECT_TRUE(score.ok()) << (score.ok() ? "" : score.error().message);
  return score.ok() ? *score : NAN;
}

std::string ErrorOf(const std::string& metric, const MetricInput& input) {
  const Result<double> score = FindMetric(metric)->score(input);
  return score.ok() ? "" : score.error().message;
}

[[maybe_unused]] const int kSynonyms =
    setenv("KVGAUGE_WORDNET", StrCat(KVG_TEST_DATA, "/golden/metrics/wordnet").c_str(), 1);

void ExpectScores(const Json& golden, std::map<std::string, int>& compared) {
  for (const Json& row : golden["cases"]) {
    const std::string prediction = row["prediction"];
    const std::vector<std::string> answers = row["answers"];
    const std::vector<std::string> classes =
        row.contains("all_classes") ? row["all_classes"].get<std::vector<std::string>>()
                                    : std::vector<std::string>();
    for (const auto& [metric, want] : row["scores"].items()) {
      const double got = Score(metric, prediction, answers, classes, row.value("kind", ""));
      EXPECT_TRUE(std::abs(got - want.get<double>()) <= 1e-9)
          << metric << ": " << got << ", expected " << want << "\n  prediction "
          << Quoted(prediction, 300) << "\n  answer " << Quoted(answers[0], 300);
      ++compared[metric];
    }
  }
}

class MetricGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(MetricGolden, EqualsThePackages) {
  std::map<std::string, int> compared;
  ExpectScores(Golden(GetParam()), compared);
  EXPECT_FALSE(compared.empty());
  for (const auto& [metric, times] : compared) EXPECT_GE(times, 100) << metric;
}

INSTANTIATE_TEST_SUITE_P(Files, MetricGolden,
                         ::testing::Values("text", "code", "retrieval", "classification", "chinese",
                                           "wordnet", "functions", "leval", "cloze", "babilong",
                                           "order", "code_levenshtein", "pictures", "choices",
                                           "nextqa"),
                         [](const auto& file) { return std::string(file.param); });

TEST(Metric, HandWorkedCases) {
  std::map<std::string, int> compared;
  ExpectScores(Golden("hand"), compared);
  for (const auto& [metric, times] : compared) EXPECT_GE(times, 2) << metric;
}

TEST(Metric, SetsOfSamplesEqualThePackages) {
  int compared = 0;
  Json cases = Golden("corpus")["cases"];
  const Json visual = Golden("visual_sets");
  for (const Json& row : visual["cases"]) cases.push_back(row);
  for (const Json& row : cases) {
    for (const auto& [metric, want] : row["scores"].items()) {
      SetScore set(*FindMetric(metric));
      for (const Json& pair : row["pairs"]) {
        MetricInput input{.prediction = pair["prediction"], .answers = pair["answers"]};
        input.all_classes = pair.value("all_classes", std::vector<std::string>());
        input.group = pair.value("group", "");
        const Result<double> score = set.Add(input);
        ASSERT_TRUE(score.ok()) << score.error().message;
      }
      EXPECT_TRUE(std::abs(set.Value() - want.get<double>()) <= 1e-9)
          << metric << ": " << set.Value() << ", expected " << want << "\n  " << row["pairs"];
      ++compared;
    }
  }
  EXPECT_GE(compared, 1000);
}

// Two right yeses, one wrong yes, one missed, one right no.
TEST(Metric, YesNoOverASet) {
  for (const auto& [metric, want] : {std::pair{"yes_no_precision", 2.0 / 3},
                                     {"yes_no_recall", 2.0 / 3},
                                     {"yes_no_f1", 2.0 / 3}}) {
    SetScore set(*FindMetric(metric));
    EXPECT_EQ(set.Value(), 0);
    for (const auto& [prediction, answer] :
         {std::pair{"Yes.", "True"}, {"yes", "yes"}, {"Yes", "no"}, {"No.", "1"}, {"no", "0"}}) {
      ASSERT_TRUE(set.Add({.prediction = prediction, .answers = {answer}}).ok());
    }
    EXPECT_FALSE(set.Add({.prediction = "yes", .answers = {"maybe"}}).ok());
    EXPECT_EQ(set.count(), 5);
    EXPECT_NEAR(set.Value(), want, 1e-12) << metric;
  }
  SetScore precision(*FindMetric("yes_no_precision")), recall(*FindMetric("yes_no_recall"));
  for (SetScore* set : {&precision, &recall}) {
    ASSERT_TRUE(set->Add({.prediction = "yes", .answers = {"yes"}}).ok());
    ASSERT_TRUE(set->Add({.prediction = "yes", .answers = {"no"}}).ok());
  }
  EXPECT_EQ(precision.Value(), 0.5);
  EXPECT_EQ(recall.Value(), 1);
}

TEST(Aggregate, AveragesWithNamesOfTheirOwn) {
  EXPECT_NEAR(RelativeScore({{8, 4}, {10, 9}}), 13.0 / 18, 1e-12);
  EXPECT_NEAR(RelativeScore({{8, 6}, {-1, -1}}), 5.0 / 7, 1e-12);
  EXPECT_EQ(RelativeScore({}), 0);
  EXPECT_NEAR(PassAtK(10, 3, 1), 0.3, 1e-12);
  EXPECT_NEAR(PassAtK(10, 3, 5), 0.916666667, 1e-9);
  EXPECT_EQ(PassAtK(5, 0, 2), 0);
  EXPECT_NEAR(PassAtK(200, 13, 100), 0.999919497, 1e-9);
  EXPECT_EQ(PassAtK(1, 1, 1), 1);
}

TEST(WordNet, MissingOrFaultyFilesAreErrors) {
  const Result<std::shared_ptr<const metrics::WordNet>> missing =
      metrics::WordNet::Load(StrCat(KVG_TEST_DATA, "/golden"));
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, testing::HasSubstr("golden/data.noun"));
}

// A ring of parents, an offset beyond the file, one in the middle of a line.
TEST(WordNet, FaultyPointersLeadNowhere) {
  const std::string folder = StrCat(testing::TempDir(), "faulty_wordnet_", getpid());
  std::filesystem::create_directories(folder);
  const std::string first = "00000000 00 n 01 ring 0 001 @ 00000054 n 0000 | in a circle  ";
  const std::string second = "00000054 00 n 01 circle 0 002 @ 00000000 n 0000 @ 99999999 n 0000 | ";
  ASSERT_LT(first.find('|'), 54u);
  const auto write = [&](const std::string& name, const std::string& content) {
    std::ofstream(StrCat(folder, "/", name), std::ios::binary) << content;
  };
  for (const char* part : {"noun", "verb", "adj", "adv"}) {
    for (const char* name : {"data.", "index."}) write(StrCat(name, part), "  1 nothing\n");
    write(StrCat(part, ".exc"), "");
  }
  write("data.noun", StrCat(first.substr(0, 53), "\n", second, "\n"));
  write(
      "index.noun",
      "ring n 1 1 @ 1 0 00000000\ncircle n 1 1 @ 1 0 00000054\nlost n 2 0 2 0 77777777 00000003\n");
  const auto net = metrics::WordNet::Load(folder);
  ASSERT_TRUE(net.ok()) << net.error().message;
  const auto ring = (*net)->Synsets("rings"), circle = (*net)->Synsets("circle");
  ASSERT_EQ(ring.size(), 1u);
  ASSERT_EQ(circle.size(), 1u);
  EXPECT_TRUE((*net)->Similarity(ring[0], circle[0]).has_value());
  const auto lost = (*net)->Synsets("lost");
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_TRUE((*net)->Words(lost[0]).empty());
  EXPECT_FALSE((*net)->Similarity(lost[0], ring[0]).has_value());
  write("data.verb", "  1 nothing\r\n");
  const auto moved = metrics::WordNet::Load(folder);
  ASSERT_FALSE(moved.ok());
  EXPECT_THAT(moved.error().message, testing::HasSubstr("data.verb: its lines end in CR LF"));
  write("data.verb", "  1 nothing\n");
  write("index.noun", "ring n x\n");
  const auto bad = metrics::WordNet::Load(folder);
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(bad.error().message, testing::HasSubstr("index.noun:1: not a line"));
  std::filesystem::remove_all(folder);
}

TEST(Text, EveryCodePointIsAsPythonHasIt) {
  const Json golden = Golden("unicode");
  std::vector<uint8_t> flags(0x110000, 0);
  const std::vector<std::string> sets = {"space",
                                         "digit",
                                         "word",
                                         "final_sigma_after",
                                         "final_sigma_after_a_and",
                                         "final_sigma_before",
                                         "unassigned"};
  for (size_t bit = 0; bit < sets.size(); ++bit) {
    for (const Json& range : golden[sets[bit]]) {
      for (uint32_t c = range[0]; c <= range[1].get<uint32_t>(); ++c) {
        flags[c] = static_cast<uint8_t>(flags[c] | (1u << bit));
      }
    }
  }
  const auto mapping = [&](const char* name) {
    std::map<uint32_t, std::u32string> to;
    for (const auto& [code_point, letters] : golden[name].items()) {
      for (const Json& c : letters) {
        to[static_cast<uint32_t>(std::stoul(code_point))].push_back(c.get<uint32_t>());
      }
    }
    EXPECT_GT(to.size(), 1300u);
    return to;
  };
  const std::map<uint32_t, std::u32string> lower = mapping("lower"), upper = mapping("upper");
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    if ((flags[c] >> 6) != 0) continue;  // utf8proc may know a later Unicode
    const std::u32string one(1, c);
    const auto has = [&](int bit) { return ((flags[c] >> bit) & 1) != 0; };
    const auto final_in = [](const std::u32string& text, size_t at) {
      return metrics::Lower(text)[at] == 0x3C2;
    };
    const auto found = lower.find(c);
    ASSERT_EQ(metrics::Lower(one) == (found == lower.end() ? one : found->second), true)
        << "lower " << uint32_t{c};
    const auto capital = upper.find(c);
    ASSERT_EQ(metrics::Upper(one) == (capital == upper.end() ? one : capital->second), true)
        << "upper " << uint32_t{c};
    ASSERT_EQ(metrics::IsSpace(c), has(0)) << uint32_t{c};
    ASSERT_EQ(metrics::IsDigit(c), has(1)) << uint32_t{c};
    ASSERT_EQ(metrics::IsWord(c), has(2)) << uint32_t{c};
    ASSERT_EQ(metrics::Lower(one + U"\u03A3").back() == 0x3C2, has(3)) << uint32_t{c};
    ASSERT_EQ(metrics::Lower(U"a" + one + U"\u03A3").back() == 0x3C2, has(4)) << uint32_t{c};
    ASSERT_EQ(final_in(U"a\u03A3" + one, 1), has(5)) << uint32_t{c};
  }
}

TEST(Text, NumbersAreReadAsPythonReadsThem) {
  const Json golden = Golden("unicode");
  ASSERT_GT(golden["numbers"].size(), 50u);
  for (const Json& row : golden["numbers"]) {
    const metrics::Text text = metrics::Decode(row[0].get<std::string>());
    const std::optional<std::string> whole = metrics::PythonInt(text);
    EXPECT_EQ(whole ? Json(*whole) : Json(), row[1]) << row;
    const std::optional<double> real = metrics::PythonFloat(text);
    ASSERT_EQ(real.has_value(), !row[2].is_null()) << row;
    if (!real) continue;
    const double want = std::stod(row[2].get<std::string>());
    EXPECT_TRUE(*real == want || (std::isnan(*real) && std::isnan(want))) << row;
  }
}

TEST(Jieba, FindsTheSameWords) {
  const Result<std::shared_ptr<const metrics::Jieba>> jieba = metrics::Jieba::Shared();
  ASSERT_TRUE(jieba.ok()) << jieba.error().message;
  const Json golden = Golden("chinese");
  for (const Json& row : golden["cases"]) {
    std::vector<std::u32string> want;
    for (const Json& word : row["tokens"]) {
      want.push_back(metrics::Decode(word.get<std::string>()));
    }
    const std::string text = row["prediction"];
    EXPECT_TRUE((*jieba)->Cut(metrics::Decode(text)) == want) << text;
  }
}

TEST(Jieba, MissingFilesAreErrors) {
  EXPECT_FALSE(metrics::Jieba::Load(StrCat(KVG_TEST_DATA, "/golden")).ok());
}

TEST(Text, StemsAsNltkDoes) {
  const Json golden = Golden("porter");
  EXPECT_GE(golden.size(), 2000u);
  for (const Json& row : golden) {
    const std::string word = row[0], stem = row[1];
    EXPECT_EQ(metrics::PorterStem(metrics::Decode(word)) == metrics::Decode(stem), true)
        << word << " should become " << stem;
  }
}

TEST(Metric, AllHaveGoldens) {
  std::set<std::string> scored;
  for (const char* file : {"text", "code", "retrieval", "classification", "chinese", "wordnet",
                           "corpus", "functions", "leval", "cloze", "babilong", "order", "hand",
                           "code_levenshtein", "pictures", "choices", "visual_sets", "nextqa"}) {
    const Json golden = Golden(file);
    for (const Json& row : golden["cases"]) {
      for (const auto& entry : row["scores"].items()) scored.insert(entry.key());
    }
  }
  scored.insert({"coco_rouge_l", "coco_cider", "caption_cider"});  // captions_test.cpp
  for (const int order : {1, 2, 3, 4}) {
    scored.insert({StrCat("coco_bleu_", order), StrCat("caption_bleu_", order)});
  }
  scored.insert({"hallusionbench_figures", "hallusionbench_questions"});  // pairs_test.cpp
  scored.insert("repobench_exact");                                       // text_tables_test.cpp
  scored.insert({"math_string", "math_equal"});                           // math_equal_test.cpp
  // task_golden_test.cpp: outputs of tasks, scored by the references' own code.
  for (const char* family : {"visual_haystacks", "v_niah", "vl_icl", "mmlongbench", "repobench",
                             "lmms_eval", "vlmevalkit", "vlmevalkit_videos"}) {
    const Result<Json> fixture =
        ReadJsonFile(StrCat(KVG_SOURCE_DIR, "/tests/golden/tasks/", family, ".json"));
    ASSERT_TRUE(fixture.ok()) << fixture.error().message;
    for (const Json& golden : fixture->at("tasks")) {
      if (golden.at("outputs").empty()) continue;
      const std::string name = golden.at("tasks")[0];
      const Result<Task> task = ReadTask(StrCat(KVG_SOURCE_DIR, "/configs/tasks/", name, ".json"));
      ASSERT_TRUE(task.ok()) << name;
      scored.insert(task->metric);
    }
  }
  for (const MetricSpec* metric : ListMetrics()) {
    EXPECT_TRUE(scored.contains(metric->name)) << metric->name;
    EXPECT_GE(metric->version, 1);
    EXPECT_FALSE(metric->reference.empty()) << metric->name;
  }
}

TEST(Metric, NoAnswersScoreNothingOrSaySo) {
  EXPECT_EQ(Score("qa_f1", "x", {}), 0);
  EXPECT_EQ(Score("rouge_l", "x", {}), 0);
  EXPECT_THAT(ErrorOf("string_match_all", {}), testing::HasSubstr("at least one answer"));
  EXPECT_THAT(ErrorOf("babilong", {.answers = {"office"}}), testing::HasSubstr("all_classes"));
  EXPECT_THAT(ErrorOf("classification", {}), testing::HasSubstr("all_classes"));
  MetricInput unnamed;
  unnamed.answers = {"7"};
  EXPECT_THAT(ErrorOf("retrieval", unnamed), testing::HasSubstr("names no paragraph"));
  EXPECT_THAT(ErrorOf("repoqa", unnamed), testing::HasSubstr("the function and its name"));
  EXPECT_THAT(ErrorOf("loogle_cloze_exact", unnamed), testing::HasSubstr("a JSON object such as"));
  EXPECT_THAT(ErrorOf("scbench_repoqa_and_kv", unnamed),
              testing::HasSubstr("neither \"scbench_repoqa\" nor \"scbench_kv\""));
}

TEST(Metric, IllFormedBytesAreReplacementCharacters) {
  EXPECT_EQ(Score("accuracy", "a\xE6", {"a\uFFFD"}), 1);
  for (const MetricSpec* metric : ListMetrics()) {
    MetricInput input;
    input.prediction = "Paragraph 1 \xF0\x9F\xFF";
    input.answers = {"Paragraph 1 \xC0\x80",
                     "\u6bb5\u843d"
                     "1 Paragraph 1"};
    input.all_classes = {"\xFE"};
    if (metric->name == "retrieval_zh") input.answers.erase(input.answers.begin());
    if (metric->name.starts_with("yes_no") || metric->name.starts_with("pope_")) {
      input.answers = {"yes"};
    }
    if (metric->name == "milebench_choice") input.answers = {"A"};
    if (metric->name.starts_with("loogle_cloze")) input.answers = {R"({"a": "b"})"};
    if (metric->name == "mm_niah_choice") input.answers = {"1"};
    if (metric->name == "mm_niah_counts") input.answers = {"[1, 2]"};
    if (metric->name.starts_with("mmlongbench_")) input.answers = {"1"};
    if (metric->name == "mmlongbench_yes_or_no") input.answers = {"yes"};
    if (metric->name == "mmlongbench_counts") input.answers = {"[1, 2]"};
    if (metric->name == "repoqa") input.all_classes = {"\xFE", "\xFF"};
    if (metric->name == "scbench_summary_with_needles") input.kind = "scbench_passkey";
    if (metric->name == "scbench_repoqa_and_kv") input.kind = "scbench_kv";
    SetScore set(*metric);
    const Result<double> score = metric->of_set ? set.Add(input) : metric->score(input);
    ASSERT_TRUE(score.ok()) << metric->name << ": " << score.error().message;
    if (metric->of_set) {
      EXPECT_GE(set.Value(), 0) << metric->name;
    }
    EXPECT_GE(*score, 0) << metric->name;
    EXPECT_LE(*score, 1) << metric->name;
  }
}

// A generous bound; the number that counts is taken by hand on an optimised build.
TEST(Metric, RougeLOfLongTextsIsQuick) {
  std::string one, many, other, other_many, short_ones, other_short;
  for (int i = 0; i < 5000; ++i) {
    one += StrCat("w", (i * 7919) % 997, " ");
    other += StrCat("w", (i * 104729) % 1009, " ");
    many += StrCat("w", (i * 7919) % 997, i % 17 == 0 ? ". " : " ");
    other_many += StrCat("w", (i * 104729) % 1009, i % 19 == 0 ? ". " : " ");
    short_ones += StrCat("w", (i * 7919) % 997, ". ");
    other_short += StrCat("w", (i * 104729) % 1009, ". ");
  }
  for (const auto& [a, b] :
       {std::pair(one, other), std::pair(many, other_many), std::pair(short_ones, other_short)}) {
    double best_s = 1e9;
    for (int repeat = 0; repeat < 3; ++repeat) {
      const auto begin = std::chrono::steady_clock::now();
      Score("rouge_l", a, {b});
      best_s = std::min(
          best_s, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    }
    RecordProperty("milliseconds", StrCat(best_s * 1e3));
    EXPECT_LT(best_s, 2.0);
  }
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Sentences, words, tags and lemmas against NLTK's and pywsd's own code, and NExT-QA's scores over
// them against lmms-eval's, all of which scripts/goldens/make_lemmas ran.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/json.h"
#include "core/strings.h"
#include "metrics/nltk_lemmas.h"
#include "metrics/nltk_text.h"
#include "metrics/nltk_words.h"
#include "metrics/wups.h"

namespace kvgauge {
namespace {

using metrics::Decode;
using metrics::Encode;
using metrics::Text;
using metrics::WordNet;
using metrics::nltk::Language;
using testing::HasSubstr;

[[maybe_unused]] const int kLemmaSynonyms =
    setenv("KVGAUGE_WORDNET", StrCat(KVG_TEST_DATA, "/golden/metrics/wordnet").c_str(), 1);

// What the registered metric scores here does not depend on who runs the tests.
[[maybe_unused]] const int kNoLemmas = unsetenv("KVGAUGE_NLTK");

const std::string& NltkFolder() {
  static const std::string folder = StrCat(KVG_TEST_DATA, "/golden/metrics/nltk");
  return folder;
}

Json LemmaGolden(const std::string& name) {
  Result<Json> json = ReadJsonFile(StrCat(KVG_TEST_DATA, "/golden/metrics/", name, ".json"));
  EXPECT_TRUE(json.ok()) << (json.ok() ? "" : json.error().message);
  return json.ok() ? *json : Json();
}

template <class Texts>
std::vector<std::string> Encoded(const Texts& texts) {
  std::vector<std::string> utf8;
  for (const auto& text : texts) utf8.push_back(Encode(text));
  return utf8;
}

using Strings = std::vector<std::string>;

TEST(Lemmas, EveryStepEqualsThePackages) {
  Sha256 digest;
  const auto punkt =
      metrics::nltk::Punkt::Load(NltkFolder() + "/tokenizers/punkt_tab/english", digest);
  ASSERT_TRUE(punkt.ok()) << punkt.error().message;
  const auto tagger = metrics::nltk::PerceptronTagger::Load(
      NltkFolder() + "/taggers/averaged_perceptron_tagger_eng", digest);
  ASSERT_TRUE(tagger.ok()) << tagger.error().message;
  const auto language = Language::Load(NltkFolder());
  ASSERT_TRUE(language.ok()) << language.error().message;
  const auto net = WordNet::Shared();
  ASSERT_TRUE(net.ok()) << net.error().message;
  const Json golden = LemmaGolden("lemmas");
  ASSERT_GE(golden["cases"].size(), 600u);
  for (const Json& row : golden["cases"]) {
    const Text text = Decode(row["text"].get<std::string>());
    const std::string shown = row["text"].dump();
    EXPECT_EQ(Encoded((*punkt)->Split(text)), row["sentences"].get<Strings>()) << shown;
    EXPECT_EQ(Encoded((*language)->Words(text)), row["words"].get<Strings>()) << shown;
    EXPECT_EQ(Encoded(metrics::nltk::NltkWords(text)), row["line"].get<Strings>()) << shown;
    EXPECT_EQ(Encoded(metrics::nltk::PywsdWords(text)), row["pywsd_line"].get<Strings>()) << shown;
    EXPECT_EQ(Encoded((*language)->Lemmas(text, **net)), row["lemmas"].get<Strings>()) << shown;
    std::vector<Text> words;
    for (const metrics::TextView sentence : (*punkt)->Split(text)) {
      for (Text& word : metrics::nltk::PywsdWords(sentence)) words.push_back(std::move(word));
    }
    EXPECT_EQ((*tagger)->Tags(words), row["tags"].get<Strings>()) << shown;
  }
}

TEST(Lemmas, CharactersAreOfTheClassesThatThePackagesSee) {
  const Json classes = LemmaGolden("lemmas")["characters"];
  const auto members = [&](const char* name) {
    std::vector<bool> all(0x110000);
    EXPECT_GT(classes[name].size(), 2u) << name;
    for (const Json& range : classes[name]) {
      for (uint32_t c = range[0]; c <= range[1].get<uint32_t>(); ++c) all[c] = true;
    }
    return all;
  };
  const std::vector<bool> unassigned = members("unassigned");
  for (const auto& [name, test] : {std::pair{"upper", &metrics::nltk::IsUpper},
                                   {"lower", &metrics::nltk::IsLower},
                                   {"digit_like", &metrics::nltk::IsDigitLike},
                                   {"regex_space", &metrics::nltk::IsRegexSpace},
                                   {"regex_word", &metrics::nltk::IsRegexWord}}) {
    const std::vector<bool> want = members(name);
    for (uint32_t c = 0; c < want.size(); ++c) {
      if (unassigned[c] || (c >= 0xD800 && c <= 0xDFFF)) continue;  // utf8proc may know more
      ASSERT_EQ(test(c), want[c]) << name << " " << c;
    }
  }
}

TEST(Lemmas, OpenAnswersOfNextQaScoreAsLmmsEvalScoresThem) {
  const auto language = Language::Load(NltkFolder());
  ASSERT_TRUE(language.ok()) << language.error().message;
  const Json golden = LemmaGolden("nextqa_lemmas");
  ASSERT_GE(golden["cases"].size(), 400u);
  int moved = 0;
  for (const Json& row : golden["cases"]) {
    const MetricInput input = {
        .prediction = row["prediction"], .answers = row["answers"], .kind = row["kind"]};
    const double want = row["scores"]["wups_nextqa"];
    const Result<double> got = metrics::wups::NextQaScore(input, language->get());
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_TRUE(std::abs(*got - want) <= 1e-12) << *got << ", expected " << want << "\n" << row;
    const Result<double> by_words = metrics::wups::NextQaScore(input, nullptr);
    ASSERT_TRUE(by_words.ok()) << by_words.error().message;
    moved += *by_words != *got;
  }
  EXPECT_GE(moved, 100) << "scores that the lemmas move";
}

TEST(Lemmas, NoWordIsTooLongForWordNet) {
  const auto net = WordNet::Shared();
  ASSERT_TRUE(net.ok()) << net.error().message;
  const std::string long_word(200000, 's');
  EXPECT_FALSE((*net)->HasForm("q" + long_word));
  EXPECT_TRUE((*net)->HasForm("dog" + long_word));
  EXPECT_EQ((*net)->Lemma("dog" + long_word, 0), "dog" + long_word);
}

class NltkFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) / StrCat("nltk_files_", getpid());
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(NltkFolder(), folder_, std::filesystem::copy_options::recursive);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::string Path(const std::string& name) {
    return name.ends_with(".json")
               ? "taggers/averaged_perceptron_tagger_eng/averaged_perceptron_tagger_eng." + name
               : "tokenizers/punkt_tab/english/" + name;
  }
  // The error with `content` in place of the file's.
  std::string ErrorWith(const std::string& name, const std::string& content) {
    const std::filesystem::path path = folder_ / Path(name);
    std::filesystem::rename(path, folder_ / "aside");
    std::ofstream(path, std::ios::binary) << content;
    const auto loaded = Language::Load(folder_);
    std::filesystem::rename(folder_ / "aside", path);
    return loaded.ok() ? "" : loaded.error().message;
  }
  std::string Content(const std::string& name) {
    std::ifstream file(folder_ / Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_;
};

TEST_F(NltkFiles, FaultyOnesAreToldByFileKeyAndWhatWouldBeRight) {
  const std::string weights = Content("weights.json");
  const std::string half = weights.substr(0, weights.size() / 2);
  struct Case {
    const char* file;
    std::string content;
    const char* told;
  };
  for (const auto& [file, content, told] : std::vector<Case>{
           {"weights.json", half, "weights.json: "},
           {"weights.json", "", "weights.json: "},
           {"weights.json", "[]", "must be an object of features and their weights"},
           {"weights.json", "{}", "must be an object of features and their weights"},
           {"weights.json", R"({"bias": 1})", "'bias': is '1', expected an object of tags"},
           {"weights.json", R"({"bias": {"NN": NaN}})", "weights.json: "},
           {"weights.json", R"({"bias": {"NN": 1e999}})", "weights.json: "},
           {"weights.json", R"({"bias": {"NN": "1"}})",
            "'NN' is '\"1\"', expected a finite number"},
           {"weights.json", R"({"bias": {"NN": null}})",
            "'NN' is 'null', expected a finite number"},
           {"weights.json", R"({"i word dog": {"XX": 1}})",
            "'i word dog': unknown tag 'XX', expected one that averaged_perceptron_tagger_eng."
            "classes.json names"},
           {"weights.json", R"({"bias": {"NN": 1, "NN": 2}})", "weights.json: "},
           {"tagdict.json", R"({"the": "XX"})", "'the': unknown tag 'XX', expected one that"},
           {"tagdict.json", R"({"the": 1})", "'the': is 1, expected a tag"},
           {"tagdict.json", "7", "must be an object of words and their tags"},
           {"classes.json", "[]", "must be a list of tags"},
           {"classes.json", R"({"NN": 1})", "must be a list of tags"},
           {"classes.json", R"(["NN", 3])", "entry 1 is 3, expected a tag"},
           {"classes.json", R"(["NN", ""])", "entry 1 is \"\", expected a tag"},
           {"classes.json", "[\"N\xff\"]", "classes.json: byte 3 is not UTF-8"},
           {"abbrev_types.txt", "", "abbrev_types.txt: is empty"},
           {"sent_starters.txt", "", "sent_starters.txt: is empty"},
           {"collocations.tab", "a\tb\nc", "collocations.tab:2: is 'c', expected two words"},
           {"ortho_context.tab", "cat\t46\ndog", "ortho_context.tab:2: is 'dog', expected a word"},
           {"ortho_context.tab", "cat\tx",
            "ortho_context.tab:1: 'cat' has 'x', expected a word, a "
            "tab and an even number from 2 to 126"},
           {"ortho_context.tab", "cat\t127", "'cat' has '127'"},
           {"ortho_context.tab", "cat\t-2", "'cat' has '-2'"},
           {"ortho_context.tab", "cat\t\xc3", "ortho_context.tab: byte 4 is not UTF-8"}}) {
    EXPECT_THAT(ErrorWith(file, content), testing::AllOf(HasSubstr(told), HasSubstr(Path(file))))
        << content.substr(0, 60);
  }
  EXPECT_TRUE(Language::Load(folder_).ok());
}

TEST_F(NltkFiles, MissingOnesAreToldWithTheWayToGetThem) {
  std::filesystem::remove(folder_ / Path("tagdict.json"));
  const auto lacking = Language::Load(folder_);
  ASSERT_FALSE(lacking.ok());
  EXPECT_THAT(lacking.error().message, HasSubstr(Path("tagdict.json")));
  std::filesystem::remove_all(folder_ / "tokenizers");
  const auto gone = Language::Load(folder_);
  ASSERT_FALSE(gone.ok());
  EXPECT_THAT(gone.error().message,
              testing::AllOf(HasSubstr("/tokenizers/punkt_tab/english is not there"),
                             HasSubstr("scripts/fetch_data nltk")));
}

// Results over other files are other results.
TEST_F(NltkFiles, TheDigestTellsThemApart) {
  const auto one = Language::Load(NltkFolder()), same = Language::Load(folder_);
  ASSERT_TRUE(one.ok() && same.ok());
  EXPECT_EQ((*one)->digest(), (*same)->digest());
  EXPECT_EQ((*one)->digest().size(), 16u);
  for (const char* name : {"weights.json", "classes.json", "abbrev_types.txt"}) {
    std::ofstream(folder_ / Path(name), std::ios::app) << "\n";
    const auto other = Language::Load(folder_);
    ASSERT_TRUE(other.ok()) << other.error().message;
    EXPECT_NE((*one)->digest(), (*other)->digest()) << name;
    SetUp();
  }
  // The same bytes in a row, one of them in the next file.
  std::string before = Content("abbrev_types.txt"), behind = Content("sent_starters.txt");
  behind.insert(0, 1, before.back());
  before.pop_back();
  std::ofstream(folder_ / Path("abbrev_types.txt"), std::ios::binary) << before;
  std::ofstream(folder_ / Path("sent_starters.txt"), std::ios::binary) << behind;
  const auto moved = Language::Load(folder_);
  ASSERT_TRUE(moved.ok()) << moved.error().message;
  EXPECT_NE((*one)->digest(), (*moved)->digest());
}

}  // namespace
}  // namespace kvgauge

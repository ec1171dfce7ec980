// SPDX-License-Identifier: Apache-2.0
// RULER's questions over documents, built from the files of SQuAD 2.0 and HotpotQA.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "generators/ruler.h"
#include "src/records.h"

namespace kvgauge {
namespace {

constexpr std::string_view kOwner = "ruler_qa";
constexpr std::string_view kInstruction =
    "Answer the question based on the given documents. Only give me the answer and do not output "
    "any other words.\n\n";

struct Item {
  std::string question;
  std::vector<std::string> answers;
  std::vector<int64_t> gold, more;  // documents
};

struct Corpus {
  std::vector<std::string> documents;  // sorted, each once
  std::vector<Item> items;
};

struct Setup {
  RulerSetup ruler;
  Corpus corpus;
};

std::string FileOf(const Params& params) {
  return params.Text("dataset") == "squad" ? "ruler/dev-v2.0.json"
                                           : "ruler/hotpot_dev_distractor_v1.json";
}

// Documents are named by their text until all are known.
class Documents {
 public:
  void Add(const std::string& text) { numbers_.emplace(text, 0); }
  void Number() {
    int64_t next = 0;
    for (auto& [text, number] : numbers_) number = next++;
  }
  int64_t At(const std::string& text) const { return numbers_.at(text); }
  std::vector<std::string> List() const {
    std::vector<std::string> list;
    for (const auto& [text, number] : numbers_) list.push_back(text);
    return list;
  }

 private:
  std::map<std::string, int64_t> numbers_;
};

Corpus ReadSquad(const Json& json) {
  Documents documents;
  for (const Json& article : json.at("data")) {
    for (const Json& paragraph : article.at("paragraphs")) documents.Add(paragraph.at("context"));
  }
  documents.Number();
  Corpus corpus;
  for (const Json& article : json.at("data")) {
    std::vector<int64_t> all;
    for (const Json& paragraph : article.at("paragraphs")) {
      all.push_back(documents.At(paragraph.at("context")));
    }
    for (const Json& paragraph : article.at("paragraphs")) {
      const int64_t gold = documents.At(paragraph.at("context"));
      for (const Json& qa : paragraph.at("qas")) {
        if (qa.at("is_impossible").get<bool>()) continue;
        Item item{qa.at("question"), {}, {gold}, {}};
        for (const Json& answer : qa.at("answers")) item.answers.push_back(answer.at("text"));
        std::copy_if(all.begin(), all.end(), std::back_inserter(item.more),
                     [gold](int64_t document) { return document != gold; });
        corpus.items.push_back(std::move(item));
      }
    }
  }
  corpus.documents = documents.List();
  return corpus;
}

std::string HotpotDocument(const Json& pair) {
  std::string text = StrCat(pair.at(0).get<std::string>(), "\n");
  for (const Json& sentence : pair.at(1)) text += sentence.get<std::string>();
  return text;
}

Corpus ReadHotpot(const Json& json) {
  Documents documents;
  for (const Json& record : json) {
    for (const Json& pair : record.at("context")) documents.Add(HotpotDocument(pair));
  }
  documents.Number();
  Corpus corpus;
  for (const Json& record : json) {
    Item item{record.at("question"), {record.at("answer").get<std::string>()}, {}, {}};
    for (const Json& pair : record.at("context")) {
      item.gold.push_back(documents.At(HotpotDocument(pair)));
    }
    corpus.items.push_back(std::move(item));
  }
  corpus.documents = documents.List();
  return corpus;
}

// Gold first, then the article's others, then any; shuffled.
std::vector<int64_t> Choose(const Corpus& corpus, const Item& item, Rng rng, int64_t count) {
  const auto all = static_cast<int64_t>(corpus.documents.size());
  std::vector<int64_t> chosen;
  if (count >= all) {
    for (int64_t i = 0; i < count; ++i) chosen.push_back(i % all);
  } else {
    chosen = item.gold;
    std::set<int64_t> taken(chosen.begin(), chosen.end());
    std::vector<int64_t> more = item.more;
    Shuffle(more, rng);
    for (size_t i = 0; i < more.size() && static_cast<int64_t>(chosen.size()) < count; ++i) {
      if (taken.insert(more[i]).second) chosen.push_back(more[i]);
    }
    while (static_cast<int64_t>(chosen.size()) < count) {
      const int64_t document = Between(rng, 0, all - 1);
      if (taken.insert(document).second) chosen.push_back(document);
    }
  }
  Shuffle(chosen, rng);
  return chosen;
}

Result<Sample> Make(const Setup& setup, int64_t index) {
  const Item& item = setup.corpus.items[static_cast<size_t>(index % setup.ruler.samples)];
  const Rng places = RngFor(setup.ruler.seed, index, Draw::kPlaces);
  const auto build = [&](int64_t count) {
    RulerText text;
    text.context = StrCat(kInstruction, "The following are given documents.\n\n");
    const auto chosen = Choose(setup.corpus, item, places, count);
    for (size_t i = 0; i < chosen.size(); ++i) {
      if (i > 0) text.context += "\n\n";
      text.context += StrCat("Document ", i + 1, ":\n");
      const std::string& document = setup.corpus.documents[static_cast<size_t>(chosen[i])];
      if (std::find(item.gold.begin(), item.gold.end(), chosen[i]) != item.gold.end()) {
        text.marks.push_back(MarkAt(MarkKind::kNeedle, text.context.size(), document.size()));
      }
      text.context += document;
    }
    text.question.text = StrCat("\n\n", kInstruction, "Question: ", item.question);
    text.question.answer_prefix = " Answer:";
    text.question.answers = item.answers;
    return text;
  };
  return FitRulerSample(setup.ruler, index, static_cast<int64_t>(item.gold.size()),
                        int64_t{1} << 40, build);
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  Setup setup;
  KVG_ASSIGN(setup.ruler, ReadRulerSetup(kOwner, params, task, options, 32));
  KVG_ASSIGN(const std::string path, DataFile(options, FileOf(params)));
  KVG_ASSIGN(const Json json, ReadJsonFile(path));
  try {
    setup.corpus = params.Text("dataset") == "squad" ? ReadSquad(json) : ReadHotpot(json);
  } catch (const Json::exception& error) {
    return BadInput(StrCat(path, ": not the published format: ", error.what()));
  }
  if (setup.corpus.items.empty()) return BadInput(StrCat(path, ": holds no answerable question"));
  setup.ruler.samples =
      std::min(setup.ruler.samples, static_cast<int64_t>(setup.corpus.items.size()));
  const int64_t total = setup.ruler.total();
  return MakeStream(total, options,
                    [setup = std::move(setup)](int64_t index) { return Make(setup, index); });
}

KVG_REGISTER_SOURCE({
    .name = "ruler_qa",
    .version = 1,
    .description = "RULER's questions over documents (qa_1: squad, qa_2: hotpotqa)",
    .generated = false,
    .params = RulerParams({
        ChoiceParam("dataset", "squad", {"squad", "hotpotqa"}, "where documents come from"),
    }),
    .open = Open,
    .files = [](const Params& params, const Json&) -> std::vector<std::string> {
      return {FileOf(params)};
    },
    .check = nullptr,
});

}  // namespace
}  // namespace kvgauge

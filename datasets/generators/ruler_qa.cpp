// SPDX-License-Identifier: Apache-2.0
// RULER's questions over documents, built from the files of SQuAD 2.0 and HotpotQA.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "generators/ruler.h"
#include "src/records.h"

namespace kvgauge::ruler_qa {
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

// Leaves out what is malformed, where that is asked for.
class Faults {
 public:
  explicit Faults(bool skip_bad) : skip_bad_(skip_bad) {}
  // Nothing: this one is left out.
  template <class T>
  Result<std::optional<T>> Pass(Result<T> value) {
    if (value.ok()) return std::optional<T>(*std::move(value));
    if (!skip_bad_ || value.error().code != ErrorCode::kBadInput) return value.error();
    messages_.push_back(value.error().message);
    return std::optional<T>();
  }
  std::vector<std::string> Take() { return std::move(messages_); }

 private:
  bool skip_bad_;
  std::vector<std::string> messages_;
};

// The objects under `name`, each with its place: "dev-v2.0.json: data[0].paragraphs[3]".
Result<std::vector<Record>> Objects(const Record& holder, const std::string& name,
                                    std::string_view joint) {
  KVG_ASSIGN(const Json* list, Fields(holder).Get(name));
  if (!list->is_array()) {
    return Fields(holder).Wrong(name, StrCat("is ", KindOf(*list), ", expected an array"));
  }
  std::vector<Record> objects;
  for (const Json& value : *list) {
    const auto i = objects.size();
    if (!value.is_object()) {
      return Fields(holder).Wrong(
          name, StrCat("holds ", KindOf(value), " at index ", i, ", expected objects"));
    }
    objects.push_back({value, StrCat(holder.where, joint, name, "[", i, "]")});
  }
  return objects;
}

// Nothing for a question that has no answer, as the set says itself.
Result<std::optional<Item>> SquadItem(const Record& qa) {
  const Fields fields(qa);
  KVG_ASSIGN(const Json* impossible, fields.Get("is_impossible"));
  if (!impossible->is_boolean()) {
    return fields.Wrong("is_impossible",
                        StrCat("is ", KindOf(*impossible), ", expected true or false"));
  }
  if (impossible->get<bool>()) return std::optional<Item>();
  Item item;
  KVG_ASSIGN(item.question, fields.Text("question"));
  KVG_ASSIGN(const std::vector<Record> answers, Objects(qa, "answers", "."));
  for (const Record& answer : answers) {
    KVG_ASSIGN(std::string text, Fields(answer).Text("text"));
    item.answers.push_back(std::move(text));
  }
  if (AllBlank(item.answers)) {
    return fields.Wrong("answers", "has no text, but is_impossible is false");
  }
  return std::optional<Item>(std::move(item));
}

struct SquadParagraph {
  std::string context;
  std::vector<Record> questions;
};

Result<SquadParagraph> ReadSquadParagraph(const Record& record) {
  SquadParagraph paragraph;
  KVG_ASSIGN(paragraph.context, Fields(record).Text("context"));
  KVG_ASSIGN(paragraph.questions, Objects(record, "qas", "."));
  return paragraph;
}

Result<Corpus> ReadSquad(const std::string& path, Faults& faults) {
  Record file;
  file.where = path;
  KVG_ASSIGN(file.value, ReadJsonFile(path));
  if (!file.value.is_object()) {
    return BadInput(StrCat(path, ": is ", KindOf(file.value), ", expected SQuAD's object"));
  }
  std::vector<std::vector<SquadParagraph>> articles;
  Documents documents;
  KVG_ASSIGN(const std::vector<Record> data, Objects(file, "data", ": "));
  for (const Record& article : data) {
    KVG_ASSIGN(const auto records, faults.Pass(Objects(article, "paragraphs", ".")));
    if (!records) continue;
    articles.emplace_back();
    for (const Record& record : *records) {
      KVG_ASSIGN(auto paragraph, faults.Pass(ReadSquadParagraph(record)));
      if (!paragraph) continue;
      documents.Add(paragraph->context);
      articles.back().push_back(*std::move(paragraph));
    }
  }
  documents.Number();
  Corpus corpus;
  for (const std::vector<SquadParagraph>& article : articles) {
    std::vector<int64_t> all;
    all.reserve(article.size());
    for (const SquadParagraph& paragraph : article) all.push_back(documents.At(paragraph.context));
    for (const SquadParagraph& paragraph : article) {
      const int64_t gold = documents.At(paragraph.context);
      for (const Record& qa : paragraph.questions) {
        KVG_ASSIGN(const auto passed, faults.Pass(SquadItem(qa)));
        if (!passed || !*passed) continue;
        Item item = **passed;
        item.gold = {gold};
        std::copy_if(all.begin(), all.end(), std::back_inserter(item.more),
                     [gold](int64_t document) { return document != gold; });
        corpus.items.push_back(std::move(item));
      }
    }
  }
  corpus.documents = documents.List();
  return corpus;
}

// A question with its documents, which have no numbers yet.
struct HotpotRecord {
  Item item;
  std::vector<std::string> documents;
};

Result<HotpotRecord> ReadHotpotRecord(const Record& record) {
  const Fields fields(record);
  HotpotRecord read;
  KVG_ASSIGN(read.item.question, fields.Text("question"));
  read.item.answers.resize(1);
  KVG_ASSIGN(read.item.answers[0], fields.Text("answer"));
  if (AllBlank(read.item.answers)) {
    return fields.Wrong("answer", "is empty: no prediction could be right");
  }
  KVG_ASSIGN(const Json* context, fields.Get("context"));
  const auto wrong = [&] { return fields.Wrong("context", "is no array of [title, [sentences]]"); };
  if (!context->is_array() || context->empty()) return wrong();
  for (const Json& pair : *context) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !pair[1].is_array()) {
      return wrong();
    }
    std::string text = StrCat(pair[0].get<std::string>(), "\n");
    for (const Json& sentence : pair[1]) {
      if (!sentence.is_string()) return wrong();
      text += sentence.get<std::string>();
    }
    read.documents.push_back(std::move(text));
  }
  return read;
}

Result<Corpus> ReadHotpot(const std::string& path, Faults& faults) {
  KVG_ASSIGN(const auto reader, RecordReader::Open(path, Container::kJsonArray));
  std::vector<HotpotRecord> records;
  Documents documents;
  while (true) {
    Result<std::optional<Record>> next = reader->Next();
    if (!next.ok() && reader->broken()) return next.error();
    KVG_ASSIGN(const auto record, faults.Pass(std::move(next)));
    if (!record) continue;
    if (!*record) break;
    KVG_ASSIGN(auto read, faults.Pass(ReadHotpotRecord(**record)));
    if (!read) continue;
    for (const std::string& text : read->documents) documents.Add(text);
    records.push_back(*std::move(read));
  }
  documents.Number();
  Corpus corpus;
  for (HotpotRecord& record : records) {
    for (const std::string& text : record.documents) {
      record.item.gold.push_back(documents.At(text));
    }
    corpus.items.push_back(std::move(record.item));
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
                        int64_t{1} << 40,
                        ProseTail(setup.ruler, index, "\n\nThe documents end here."), build);
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  Setup setup;
  KVG_ASSIGN(setup.ruler, ReadRulerSetup(kOwner, params, task, options, 32));
  KVG_ASSIGN(const std::string path, DataFile(options, FileOf(params)));
  Faults faults(options.skip_bad);
  KVG_ASSIGN(setup.corpus, params.Text("dataset") == "squad" ? ReadSquad(path, faults)
                                                             : ReadHotpot(path, faults));
  if (setup.corpus.items.empty()) return BadInput(StrCat(path, ": holds no answerable question"));
  setup.ruler.samples =
      std::min(setup.ruler.samples, static_cast<int64_t>(setup.corpus.items.size()));
  const int64_t total = setup.ruler.total();
  return MakeStream(
      total, options, [setup = std::move(setup)](int64_t index) { return Make(setup, index); },
      faults.Take());
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
}  // namespace kvgauge::ruler_qa

// SPDX-License-Identifier: Apache-2.0
// Declarative tasks: a file of JSON objects, templates with their fields, and where the answers
// stand. docs/formats/tasks.md lists the parameters.
#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "loaders/jsonl_layout.h"
#include "loaders/jsonl_texts.h"
#include "metrics/text.h"
#include "src/python_literal.h"
#include "src/python_text.h"
#include "src/records.h"
#include "src/source_file.h"
#include "src/task_prompt.h"

namespace kvgauge::jsonl {
namespace {

using Field = PromptTemplate::Field;

// What str.format writes for a scalar or a list of numbers; nothing for anything else.
std::optional<std::string> Printed(const Json& value) {
  if (!value.is_array()) return PythonScalar(value);
  std::vector<std::string> numbers;
  for (const Json& entry : value) {
    if (!entry.is_number()) return std::nullopt;
    numbers.push_back(entry.dump());
  }
  return StrCat("[", Join(numbers, ", "), "]");
}

// A turn's own fields hide those of its record.
class Scope {
 public:
  Scope(const Record& record, const Record* turn) : record_(record), turn_(turn) {}

  // Present, not null and not empty.
  bool Has(const Field& field) const {
    const bool in_turn = turn_ != nullptr && turn_->value.contains(field.name);
    const Record& holder = in_turn ? *turn_ : record_;
    return Fields(holder).Has(field.name) && holder.value.at(field.name) != "";
  }

  Result<const Json*> Value(const Field& field) const {
    const bool in_turn = turn_ != nullptr && turn_->value.contains(field.name);
    const Fields fields(in_turn ? *turn_ : record_);
    KVG_ASSIGN(const Json* value, fields.Get(field.name));
    if (field.index < 0) return value;
    if (!value->is_array()) {
      return fields.Wrong(field.name, StrCat("is ", KindOf(*value), ", expected an array"));
    }
    if (static_cast<size_t>(field.index) >= value->size()) {
      return fields.Wrong(
          field.name, StrCat("has ", value->size(), " entries, index ", field.index, " is wanted"));
    }
    return &(*value)[static_cast<size_t>(field.index)];
  }

  // What a template prints: a list of the layout as one text.
  Result<std::string> Print(const Field& field, const JsonlLayout& layout) const {
    const bool listed =
        field.index < 0 && field.rule.empty() &&
        std::find(layout.lists.begin(), layout.lists.end(), field.name) != layout.lists.end();
    if (!listed) return Text(field);
    KVG_ASSIGN(const Json* value, Value(field));
    Result<std::string> text = ListText(*value, layout.list_style);
    return text.ok() ? std::move(text) : Wrong(field, text.error().message);
  }

  Result<std::string> Text(const Field& field) const {
    KVG_ASSIGN(const Json* value, Value(field));
    std::optional<std::string> text = Printed(*value);
    if (!text) {
      return Wrong(field, StrCat("is ", KindOf(*value), ", expected a string or number"));
    }
    if (field.rule.empty()) return *std::move(text);
    PostProcessing post;
    post.extract = field.rule;
    std::string found = PostProcess(post, *text);
    if (!found.empty()) return found;
    return Wrong(field, StrCat("holds nothing that the rule '", field.rule, "' finds"));
  }

  // A scalar, or an array of scalars.
  Result<std::vector<std::string>> Texts(const Field& field) const {
    KVG_ASSIGN(const Json* value, Value(field));
    if (std::optional<std::string> text = PythonScalar(*value))
      return std::vector{*std::move(text)};
    std::vector<std::string> texts;
    if (value->is_array()) {
      for (const Json& entry : *value) {
        std::optional<std::string> text = PythonScalar(entry);
        if (!text) {
          return Wrong(field, StrCat("holds ", KindOf(entry), ", expected strings or numbers"));
        }
        texts.push_back(*std::move(text));
      }
      return texts;
    }
    return Wrong(field, StrCat("is ", KindOf(*value), ", expected a string, a number or an array"));
  }

  // A text out of each object of an array.
  Result<std::vector<std::string>> TextsWithin(const Field& field, const std::string& name) const {
    KVG_ASSIGN(const Json* value, Value(field));
    std::vector<std::string> texts;
    if (!value->is_array()) {
      return Wrong(field, StrCat("is ", KindOf(*value), ", expected an array of objects"));
    }
    for (const Json& entry : *value) {
      if (!entry.is_object() || !entry.contains(name) || !entry[name].is_string()) {
        return Wrong(field, StrCat("holds at index ", texts.size(), " no object with the text ",
                                   Quoted(name)));
      }
      texts.push_back(entry[name].get<std::string>());
    }
    return texts;
  }

  Error Wrong(const Field& field, std::string_view what) const {
    return Fields(turn_ != nullptr ? *turn_ : record_).Wrong(field.name, what);
  }

 private:
  const Record& record_;
  const Record* turn_;
};

// Bytes of the first `characters` characters, at most all.
size_t BytesOf(std::string_view text, int64_t characters) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((static_cast<uint8_t>(text[at]) & 0xc0) != 0x80 && characters-- == 0) break;
  }
  return at;
}

int64_t CharactersOf(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
}

// For each value of one field, the named answers of all records that share it: name, answer, name,
// answer ..., none twice.
using Peers = std::map<std::string, std::vector<std::string>>;

// Reads the whole file once. Records that are malformed say nothing here; whoever reads the samples
// meets them again.
Result<Peers> ReadPeers(const JsonlLayout& layout, RecordReader& reader) {
  Peers peers;
  while (!reader.broken()) {
    const Result<std::optional<Record>> record = reader.Next();
    if (!record.ok()) {
      if (record.error().code != ErrorCode::kBadInput) return record.error();
      continue;
    }
    if (!*record) break;
    const Json& value = (*record)->value;
    const auto turns = value.find(layout.turns);
    const auto shared = value.find(layout.peers->name);
    if (turns == value.end() || !turns->is_array() || shared == value.end()) continue;
    const std::optional<std::string> key = PythonScalar(*shared);
    for (const Json& turn : *turns) {
      if (!key || !turn.is_object() || !turn.contains(layout.named->name)) continue;
      const Record one{turn, ""};
      const Scope scope(one, nullptr);
      const Result<std::string> name = scope.Text(*layout.named);
      const Result<std::string> answer = scope.Text(*layout.answers);
      if (!name.ok() || name->empty() || !answer.ok()) continue;
      std::vector<std::string>& all = peers[*key];
      bool held = false;
      for (size_t i = 0; i + 1 < all.size(); i += 2) {
        held = held || (all[i] == *name && all[i + 1] == *answer);
      }
      if (!held) all.insert(all.end(), {*name, *answer});
    }
  }
  return peers;
}

class Loader {
 public:
  Loader(JsonlLayout layout, TaskOptions options, int64_t max_new_tokens, Peers peers)
      : layout_(std::move(layout)),
        options_(std::move(options)),
        max_new_tokens_(max_new_tokens),
        peers_(std::move(peers)) {}

  Result<Sample> operator()(const Record& given) const {
    if (layout_.literals.empty() && layout_.passages.empty() && layout_.pairs.empty() &&
        layout_.flattened.empty()) {
      return Build(given);
    }
    Record record = given;
    for (const std::string& name : layout_.flattened) {
      KVG_ASSIGN(const Json* value, Fields(given).Get(name));
      if (!value->is_object()) {
        return Fields(given).Wrong(name, StrCat("is ", KindOf(*value), ", expected an object"));
      }
      for (const auto& [entry, held] : value->items()) {
        record.value[StrCat(name, "_", entry)] = held;
      }
    }
    for (const std::string& name : layout_.passages) {
      KVG_ASSIGN(const Json* value, Fields(record).Get(name));
      std::string text = PassagesText(*value, layout_.passage_style);
      if (text.empty()) {
        return Fields(record).Wrong(
            name, layout_.passage_style == PassageStyle::kSpeech
                      ? "holds no speech; expected objects with 'speaker' and 'content'"
                      : "holds no passages; expected [title, [sentences]] or objects with 'title' "
                        "and 'paragraph_text' or 'text'");
      }
      record.value[name] = std::move(text);
    }
    if (!layout_.pairs.empty()) {
      const Scope scope(given, nullptr);
      KVG_ASSIGN(const Json* value, Fields(given).Get(layout_.pairs));
      KVG_ASSIGN(const std::string key, scope.Text(*layout_.pair_key));
      KVG_ASSIGN(const std::string answer, scope.Text(*layout_.answers));
      Result<std::string> text = PairsText(*value, key, answer, layout_.pair_position);
      if (!text.ok()) return Fields(given).Wrong(layout_.pairs, text.error().message);
      record.value[layout_.pairs] = *std::move(text);
    }
    for (const std::string& name : layout_.literals) {
      KVG_ASSIGN(const std::string text, Fields(record).Text(name));
      Result<Json> value = ParsePythonLiteral(text);
      if (!value.ok()) return Fields(record).Wrong(name, StrCat("is ", value.error().message));
      record.value[name] = *std::move(value);
    }
    return Build(record);
  }

 private:
  Result<Sample> Build(const Record& record) const {
    const Scope scope(record, nullptr);
    Sample sample;
    sample.chat_template = layout_.chat_template;
    sample.language = layout_.language;
    KVG_ASSIGN(sample.id, Id(record, scope));
    if (layout_.length) {
      KVG_ASSIGN(sample.length, Fields(record).Int(layout_.length->name));
    }
    // What the record has not, its first turn may have.
    const auto turns = record.value.find(layout_.turns);
    std::optional<Record> first_turn;
    if (turns != record.value.end() && turns->is_array() && !turns->empty() &&
        (*turns)[0].is_object()) {
      first_turn = Record{(*turns)[0], StrCat(record.where, " (", layout_.turns, "[0])")};
    }
    const auto lookup = [&](const Field& field) {
      const bool in_turn = first_turn && !record.value.contains(field.name);
      return in_turn ? Scope(*first_turn, nullptr).Print(field, layout_)
                     : scope.Print(field, layout_);
    };
    KVG_ASSIGN(PromptTemplate::Filled filled, layout_.context.Fill(lookup, layout_.document));
    PromptText prompt;
    prompt.text = std::move(filled.text);
    prompt.question = prompt.text.size();
    if (!layout_.document.empty()) {
      prompt.document_begin = filled.field_begin;
      prompt.document_end = filled.field_end;
      sample.group = ContextGroup(
          std::string_view(prompt.text)
              .substr(prompt.document_begin, prompt.document_end - prompt.document_begin));
    } else {
      sample.group = sample.id;
    }

    if (!layout_.split_at.empty()) {
      KVG_ASSIGN(const int64_t characters, Fields(record).Int(layout_.split_at));
      const std::string_view document =
          std::string_view(prompt.text)
              .substr(prompt.document_begin, prompt.document_end - prompt.document_begin);
      const size_t bytes = BytesOf(document, characters);
      if (bytes >= document.size()) {
        return Fields(record).Wrong(
            layout_.split_at, StrCat("is ", characters, ", but '", layout_.document, "' has ",
                                     CharactersOf(document), " characters: no question is left"));
      }
      prompt.question = prompt.document_begin + bytes;
      prompt.document_end = prompt.question;
    }
    if (!layout_.separator.empty()) {
      KVG_ASSIGN(prompt.separator, Fields(record).Text(layout_.separator));
    }
    KVG_ASSIGN(std::vector<Question> questions, Questions(record));
    if (!layout_.turns.empty()) sample.mode = layout_.turn_mode;
    // Several requests share the context, so it is cut alone; otherwise the first question counts.
    const bool with_question = sample.mode != QuestionMode::kMultiRequest;
    if (with_question && layout_.split_at.empty()) prompt.text += questions[0].text;
    KVG_ASSIGN(const int64_t tokens, Truncate(layout_.cut, options_, prompt));
    Question first = questions[0];
    PlacePrompt(prompt, sample, first);
    if (with_question) questions[0] = std::move(first);
    sample.questions = std::move(questions);

    for (const Field& fact : layout_.facts) {
      KVG_ASSIGN(std::string text, scope.Text(fact));
      sample.facts.emplace_back(fact.name, std::move(text));
    }
    if (tokens > options_.max_prompt_tokens) sample.facts.emplace_back("cut_from", StrCat(tokens));
    return sample;
  }

  Result<std::string> Id(const Record& record, const Scope& scope) const {
    if (layout_.id) return scope.Text(*layout_.id);
    const size_t line = record.where.rfind(':') + 1;
    std::string id = "line-" + record.where.substr(line, record.where.find(' ', line) - line);
    if (record.shares_line) id.append(StrCat("-record-", record.number));
    return id;
  }

  Result<std::vector<Question>> Questions(const Record& record) const {
    std::vector<Question> questions;
    if (layout_.turns.empty()) {
      KVG_ASSIGN(Question question, One(Scope(record, nullptr), layout_.question));
      questions.push_back(std::move(question));
      return questions;
    }
    const Fields fields(record);
    KVG_ASSIGN(const Json* turns, fields.Get(layout_.turns));
    if (!turns->is_array() || turns->empty()) {
      return fields.Wrong(layout_.turns, turns->is_array()
                                             ? "is empty, expected an array of objects"
                                             : "is not an array of objects");
    }
    if (!layout_.turn_answers.empty()) return ParallelQuestions(record, *turns);
    for (const Json& value : *turns) {
      if (!value.is_object()) return fields.Wrong(layout_.turns, "is not an array of objects");
      const Record turn{value,
                        StrCat(record.where, " (", layout_.turns, "[", questions.size(), "])")};
      const bool follows = layout_.has_follow_up && !questions.empty();
      KVG_ASSIGN(Question question,
                 One(Scope(record, &turn), follows ? layout_.follow_up : layout_.question));
      questions.push_back(std::move(question));
    }
    return questions;
  }

  // Two arrays side by side: {turn} is the question, and the answers are those of the other array.
  Result<std::vector<Question>> ParallelQuestions(const Record& record, const Json& turns) const {
    const Fields fields(record);
    KVG_ASSIGN(const Json* answers, fields.Get(layout_.turn_answers));
    if (!answers->is_array() || answers->size() != turns.size()) {
      return fields.Wrong(layout_.turn_answers,
                          StrCat("is no array of ", turns.size(), " answers, as many as '",
                                 layout_.turns, "' has"));
    }
    std::vector<Question> questions;
    for (size_t i = 0; i < turns.size(); ++i) {
      Json fields_of_turn = {{"turn", turns[i]}, {"turn_answer", (*answers)[i]}};
      if ((*answers)[i].is_string()) {
        const metrics::Text answer = metrics::Decode((*answers)[i].get<std::string>());
        fields_of_turn["turn_answer_words"] = metrics::SplitSpace(answer).size();
      }
      const Record turn{std::move(fields_of_turn),
                        StrCat(record.where, " (", layout_.turns, "[", i, "])")};
      KVG_ASSIGN(Question question, One(Scope(record, &turn), layout_.question));
      questions.push_back(std::move(question));
    }
    return questions;
  }

  Result<Question> One(const Scope& scope, const PromptTemplate& form) const {
    const auto lookup = [&](const Field& field) { return scope.Print(field, layout_); };
    Question question;
    question.max_new_tokens = max_new_tokens_;
    if (layout_.kind) {
      KVG_ASSIGN(question.kind, scope.Text(*layout_.kind));
      const auto known = layout_.kinds.find(question.kind);
      if (known == layout_.kinds.end()) {
        std::vector<std::string> names;
        for (const auto& entry : layout_.kinds) names.push_back(entry.first);
        return scope.Wrong(*layout_.kind, StrCat("is ", Quoted(question.kind), ", expected one of ",
                                                 Join(names, ", ")));
      }
      question.max_new_tokens = known->second;
    }
    KVG_ASSIGN(PromptTemplate::Filled text, form.Fill(lookup, ""));
    const PromptTemplate& prefix_form =
        &form == &layout_.follow_up ? layout_.follow_up_prefix : layout_.prefix;
    KVG_ASSIGN(PromptTemplate::Filled prefix, prefix_form.Fill(lookup, ""));
    question.text = std::move(text.text);
    question.answer_prefix = std::move(prefix.text);
    question.all_classes = layout_.classes;
    if (layout_.choices) {
      KVG_ASSIGN(question.all_classes, scope.Texts(*layout_.choices));
    }
    if (layout_.classes_not_in) {
      KVG_ASSIGN(const std::string naming, scope.Text(*layout_.classes_not_in));
      const metrics::Text lower = metrics::Lower(metrics::Decode(naming));
      std::erase_if(question.all_classes, [&](const std::string& name) {
        return lower.find(metrics::Lower(metrics::Decode(name))) != metrics::Text::npos;
      });
      if (question.all_classes.empty()) {
        return scope.Wrong(*layout_.classes_not_in,
                           "names every class: no prediction could be right");
      }
    }
    if (layout_.first_index >= 0) {
      KVG_ASSIGN(question.answers, ChosenAnswer(scope, question.all_classes));
    } else if (layout_.object_answers) {
      KVG_ASSIGN(const Json* value, scope.Value(*layout_.answers));
      if (!value->is_object() || value->empty()) {
        return scope.Wrong(*layout_.answers,
                           StrCat("is ", value->is_object() ? "empty" : KindOf(*value),
                                  ", expected an object of named answers"));
      }
      question.answers = {CanonicalJson(*value)};
    } else if (!layout_.answer_field.empty()) {
      KVG_ASSIGN(question.answers, scope.TextsWithin(*layout_.answers, layout_.answer_field));
    } else {
      KVG_ASSIGN(question.answers, scope.Texts(*layout_.answers));
    }
    if (layout_.text_and_letter) {
      const auto& choices = question.all_classes;
      // A released record may hold both already.
      const bool held = question.answers.size() == 2 && question.answers[1].size() == 1 &&
                        question.answers[1][0] >= 'A' && question.answers[1][0] <= 'D';
      if (!held) {
        const auto found = question.answers.size() != 1
                               ? choices.end()
                               : std::find(choices.begin(), choices.end(), question.answers[0]);
        if (found == choices.end()) {
          return scope.Wrong(*layout_.answers, "is not one of the choices");
        }
        question.answers.emplace_back(1, static_cast<char>('A' + (found - choices.begin())));
      }
    }
    if (!layout_.extract.empty()) {
      PostProcessing post;
      post.extract = layout_.extract;
      for (std::string& answer : question.answers) {
        answer = PostProcess(post, answer);
        if (answer.empty()) {
          return scope.Wrong(*layout_.answers,
                             StrCat("holds nothing that the rule '", layout_.extract, "' finds"));
        }
      }
    }
    if (AllBlank(question.answers)) {
      return scope.Wrong(*layout_.answers, "is empty: no prediction could be right");
    }
    if (layout_.named && scope.Has(*layout_.named)) {
      KVG_ASSIGN(std::string name, scope.Text(*layout_.named));
      KVG_ASSIGN(const std::string shared, scope.Text(*layout_.peers));
      const auto all = peers_.find(shared);
      if (all == peers_.end())
        return scope.Wrong(*layout_.named, "has no text beside it to choose");
      question.answers.push_back(std::move(name));
      question.all_classes = all->second;
    }
    return question;
  }

  Result<std::vector<std::string>> ChosenAnswer(const Scope& scope,
                                                const std::vector<std::string>& choices) const {
    KVG_ASSIGN(const Json* value, scope.Value(*layout_.answers));
    const int64_t index = value->is_number_integer() ? value->get<int64_t>() : -1;
    const int64_t offset = index - layout_.first_index;
    if (offset < 0 || offset >= static_cast<int64_t>(choices.size())) {
      return scope.Wrong(*layout_.answers,
                         StrCat("is ", value->is_structured() ? "no number" : value->dump(),
                                ", expected the index of one of ", choices.size(), " choices"));
    }
    return std::vector{choices[static_cast<size_t>(offset)]};
  }

  JsonlLayout layout_;
  TaskOptions options_;
  int64_t max_new_tokens_;
  Peers peers_;
};

// Adds the answer of `next` to those of `first` where both have one id.
bool MergeAnswers(Json& first, const Json& next, const std::string& id,
                  const std::string& answers) {
  if (!first.contains(answers) || !first.contains(id) || !next.contains(answers) ||
      !next.contains(id) || first.at(id) != next.at(id) || next.at(answers).is_structured()) {
    return false;
  }
  Json& all = first.at(answers);
  if (!all.is_array()) all = Json::array({all});
  all.push_back(next.at(answers));
  return true;
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  KVG_ASSIGN(JsonlLayout layout, ReadJsonlLayout(params));
  KVG_ASSIGN(const std::string path, DataFile(options, params.Text("file")));
  const Container container = ContainerFromName(params.Text("container"));
  KVG_ASSIGN(auto reader, RecordReader::Open(path, container));
  reader->set_lenient(params.Bool("lenient"));
  const std::string id = layout.id ? layout.id->name : "", answers = layout.answers->name;
  Peers peers;
  if (layout.peers) {
    KVG_ASSIGN(auto all, RecordReader::Open(path, container));
    all->set_lenient(params.Bool("lenient"));
    KVG_ASSIGN(peers, ReadPeers(layout, *all));
  }
  const std::optional<JsonlLayout::Only> only = layout.only;
  Loader loader(std::move(layout), options, task.at("max_new_tokens").get<int64_t>(),
                std::move(peers));
  auto stream =
      std::make_unique<FileStream>(std::move(reader), options.skip_bad, std::move(loader));
  if (only) {
    stream->set_filter([only](const Record& record) -> Result<bool> {
      KVG_ASSIGN(const std::string value, Scope(record, nullptr).Text(only->field));
      return std::find(only->values.begin(), only->values.end(), value) != only->values.end();
    });
  }
  if (params.Bool("merge_by_id")) {
    stream->set_merge([id, answers](Record& first, const Record& next) {
      return MergeAnswers(first.value, next.value, id, answers);
    });
  }
  return std::unique_ptr<SampleStream>(std::move(stream));
}

ParamSpec Text(std::string name, std::string help) {
  return ChoiceParam(std::move(name), "", {}, std::move(help));
}

KVG_REGISTER_SOURCE({
    .name = "jsonl",
    .version = 1,
    .description = "JSON objects of any layout, described by the task file",
    .generated = false,
    .params =
        {Text("file", "file below the data directory"),
         ChoiceParam("container", "jsonl", ContainerNames(), "how the objects are packed"),
         Text("context", "template of what stands before the first question"),
         Text("question", "template of each question"),
         Text("follow_up", "template of the questions after the first of a conversation"),
         Text("follow_up_prefix", "template of what answers to follow_up begin with"),
         Text("answer_prefix", "template of what the answer begins with"),
         Text("document", "the field of the context template that holds the long text"),
         Text("answers", "field with the answer or an array of accepted answers"),
         ChoiceParam("answer_kind", "text",
                     {"text", "index0", "index1", "text_and_letter", "object"},
                     "indices count the choices from 0 or 1; or the choice and its letter; or "
                     "named answers in one object"),
         Text("answer_field", "field of each answer's text, where answers are objects"),
         Text("answer_extract", "extraction rule applied to every answer"),
         Text("choices", "field with the choices of this record"),
         Text("classes", "the choices of every record, comma-separated; or by semicolons"),
         Text("classes_not_in", "field whose text takes the choices it names, in any case, away"),
         Text("kind", "field with the question's kind, where a record mixes several"),
         Text("kinds", "KIND=TOKENS, comma-separated: what it can be, with its new tokens"),
         Text("named", "field of a turn with its answer's name"),
         Text("peers", "field whose sharers' named answers are what a question chooses from"),
         Text("id", "field with the record's id; the line number when empty"),
         Text("length", "field with the length that the data set states"),
         Text("facts", "fields kept for grouping scores, comma-separated"),
         Text("only",
              "FIELD=VALUE, VALUE ...: which records are samples; the others are passed by"),
         Text("turns", "field with an array of objects, one per question"),
         Text("turn_answers", "field with the answers, when turns are texts"),
         Text("split_at", "field with the character of the document where the question is"),
         Text("separator", "field with what stands where the context was cut"),
         Text("flatten", "fields with an object; its entries become fields NAME_ENTRY"),
         Text("python_literals", "fields that hold Python literals, comma-separated"),
         Text("passages", "fields with arrays of titled passages, comma-separated"),
         ChoiceParam("passage_style", "passage", {"passage", "search_result", "speech"},
                     "LongBench's numbered passages, Lost in the middle's documents, or who says "
                     "what"),
         Text("lists", "fields with arrays of texts that a template prints whole, comma-separated"),
         ChoiceParam("list_entry", "{entry}", {}, "template of each text, with {entry}, {number}"),
         ChoiceParam("list_between", "\n", {}, "what stands between the texts"),
         IntParam("list_from", 0, 0, 1, "the first text's number"),
         Text("pairs", "field with an array of [key, value], written as one JSON object"),
         Text("pair_key", "field with the key of the pair whose value is the answer"),
         IntParam("pair_position", -1, -1, 1 << 24, "where that pair is moved to; -1: it stays"),
         BoolParam("merge_by_id", false,
                   "lines of one id that follow each other are one sample with all answers"),
         BoolParam("lenient", false, "allow control characters within strings"),
         ChoiceParam("mode", "multi_request", {"multi_request", "multi_turn"},
                     "how the questions of one record relate"),
         BoolParam("chat_template", true, "wrap the prompt with the model's chat template"),
         ChoiceParam("language", "en", {}, "of the texts"),
         ChoiceParam("truncate", "none", CutNames(), "what to do with prompts beyond the limit")},
    .open = Open,
    .files = SourceFile,
    .check = [](const Params& params, const Json&) { return CheckJsonlLayout(params); },
});

}  // namespace
}  // namespace kvgauge::jsonl

// SPDX-License-Identifier: Apache-2.0
#include "loaders/jsonl_layout.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "core/strings.h"

namespace kvgauge {
namespace {

using Field = PromptTemplate::Field;

// The parts of a parameter, without blanks.
std::vector<std::string> List(const std::string& text, char separator = ',') {
  std::vector<std::string> parts;
  for (const std::string& part : Split(text, separator)) {
    if (!Trim(part).empty()) parts.emplace_back(Trim(part));
  }
  return parts;
}

// A field reference outside templates, written as in one but without braces.
Result<Field> ParseReference(const std::string& text, std::string_view owner) {
  Result<PromptTemplate> parsed = PromptTemplate::Parse("{" + text + "}", owner);
  if (!parsed.ok()) return parsed.error();
  return parsed->fields()[0];
}

}  // namespace

Result<JsonlLayout> ReadJsonlLayout(const Params& params) {
  JsonlLayout layout;
  KVG_ASSIGN(layout.context, PromptTemplate::Parse(params.Text("context"), ".context"));
  KVG_ASSIGN(layout.question, PromptTemplate::Parse(params.Text("question"), ".question"));
  layout.has_follow_up = !params.Text("follow_up").empty();
  KVG_ASSIGN(layout.follow_up, PromptTemplate::Parse(params.Text("follow_up"), ".follow_up"));
  KVG_ASSIGN(layout.prefix, PromptTemplate::Parse(params.Text("answer_prefix"), ".answer_prefix"));
  for (const auto& [name, field] : {std::pair{"answers", &layout.answers},
                                    {"choices", &layout.choices},
                                    {"id", &layout.id},
                                    {"length", &layout.length},
                                    {"kind", &layout.kind},
                                    {"named", &layout.named},
                                    {"peers", &layout.peers},
                                    {"classes_not_in", &layout.classes_not_in},
                                    {"pair_key", &layout.pair_key}}) {
    const std::string& text = params.Text(name);
    if (text.empty()) continue;
    KVG_ASSIGN(*field, ParseReference(text, StrCat(".", name)));
  }
  for (const std::string& pair : List(params.Text("kinds"))) {
    const size_t sign = pair.find('=');
    int64_t tokens = 0;
    const char* end = pair.data() + pair.size();
    const auto parsed =
        std::from_chars(pair.data() + std::min(sign, pair.size() - 1) + 1, end, tokens);
    if (sign == std::string::npos || parsed.ec != std::errc() || parsed.ptr != end || tokens < 1) {
      return BadInput(StrCat(".kinds: ", Quoted(pair), ", expected KIND=TOKENS, such as qa=40"));
    }
    layout.kinds[std::string(Trim(pair.substr(0, sign)))] = tokens;
  }
  KVG_ASSIGN(layout.follow_up_prefix,
             PromptTemplate::Parse(params.Text("follow_up_prefix"), ".follow_up_prefix"));
  if (const std::string& only = params.Text("only"); !only.empty()) {
    const size_t sign = only.find('=');
    layout.only.emplace();
    if (sign != std::string::npos) layout.only->values = List(only.substr(sign + 1));
    if (layout.only->values.empty()) {
      return BadInput(
          StrCat(".only: ", Quoted(only), ", expected FIELD=VALUE, such as evaluation=f1,rouge"));
    }
    KVG_ASSIGN(layout.only->field,
               ParseReference(std::string(Trim(only.substr(0, sign))), ".only"));
  }
  for (const std::string& fact : List(params.Text("facts"))) {
    KVG_ASSIGN(Field field, ParseReference(fact, ".facts"));
    layout.facts.push_back(std::move(field));
  }
  layout.document = params.Text("document");
  layout.turns = params.Text("turns");
  layout.turn_answers = params.Text("turn_answers");
  layout.split_at = params.Text("split_at");
  layout.separator = params.Text("separator");
  layout.literals = List(params.Text("python_literals"));
  layout.flattened = List(params.Text("flatten"));
  layout.passages = List(params.Text("passages"));
  layout.lists = List(params.Text("lists"));
  KVG_ASSIGN(layout.list_style.entry,
             PromptTemplate::Parse(params.Text("list_entry"), ".list_entry"));
  layout.list_style.between = params.Text("list_between");
  layout.list_style.first_number = params.Int("list_from");
  layout.language = params.Text("language");
  layout.extract = params.Text("answer_extract");
  layout.answer_field = params.Text("answer_field");
  const std::string& classes = params.Text("classes");
  layout.classes = List(classes, classes.find(';') == std::string::npos ? ',' : ';');
  const std::string& style = params.Text("passage_style");
  if (style == "search_result") layout.passage_style = PassageStyle::kSearchResult;
  if (style == "speech") layout.passage_style = PassageStyle::kSpeech;
  layout.pairs = params.Text("pairs");
  layout.pair_position = params.Int("pair_position");
  layout.chat_template = params.Bool("chat_template");
  layout.cut = CutFromName(params.Text("truncate"));
  if (!layout.turns.empty()) {
    layout.turn_mode = params.Text("mode") == "multi_turn" ? QuestionMode::kMultiTurn
                                                           : QuestionMode::kMultiRequest;
  }
  const std::string& kind = params.Text("answer_kind");
  layout.text_and_letter = kind == "text_and_letter";
  layout.object_answers = kind == "object";
  if (kind == "index0" || kind == "index1") layout.first_index = kind == "index0" ? 0 : 1;
  return layout;
}

Status CheckJsonlLayout(const Params& params) {
  KVG_ASSIGN(const JsonlLayout layout, ReadJsonlLayout(params));
  if (params.Text("file").empty()) return BadInput(".file: missing");
  if (!layout.answers) return BadInput(".answers: missing; expected the field with the answers");
  if (params.Text("context").empty() && params.Text("question").empty()) {
    return BadInput(".context: missing, and so is .question; a prompt needs one of them");
  }
  const auto& fields = layout.context.fields();
  if (!layout.document.empty() && std::none_of(fields.begin(), fields.end(), [&](const Field& f) {
        return f.name == layout.document;
      })) {
    return BadInput(StrCat(".document: ", Quoted(layout.document), " is no field of .context"));
  }
  for (const Field& field : layout.list_style.entry.fields()) {
    if ((field.name != "entry" && field.name != "number") || field.index >= 0 ||
        !field.rule.empty()) {
      return BadInput(StrCat(".list_entry: ", Quoted(field.name),
                             " is not known here; write {entry} and {number}"));
    }
  }
  if (!layout.turn_answers.empty() && layout.turns.empty()) {
    return BadInput(".turn_answers: needs .turns, the field with the questions");
  }
  if (layout.has_follow_up && (layout.turns.empty() || !layout.turn_answers.empty() ||
                               params.Text("mode") != "multi_turn")) {
    return BadInput(".follow_up: needs .turns with objects, and .mode multi_turn");
  }
  if (!params.Text("follow_up_prefix").empty() && !layout.has_follow_up) {
    return BadInput(".follow_up_prefix: needs .follow_up");
  }
  if (params.Bool("merge_by_id") && (!layout.id || !layout.turns.empty())) {
    return BadInput(
        ".merge_by_id: needs .id, the field that tells which lines are one, and no .turns");
  }
  if (!layout.split_at.empty() &&
      (layout.document.empty() || !params.Text("question").empty() || !layout.turns.empty())) {
    return BadInput(".split_at: needs .document, and no .question and no .turns");
  }
  if (layout.kind.has_value() == layout.kinds.empty()) {
    return BadInput(".kind: the field, and .kinds, what it can be, need each other");
  }
  if (layout.named.has_value() != layout.peers.has_value() ||
      (layout.named && (layout.choices || layout.turns.empty()))) {
    return BadInput(".peers: needs .named and .turns, and no .choices");
  }
  if (layout.classes_not_in && !layout.choices && layout.classes.empty()) {
    return BadInput(".classes_not_in: needs .choices or .classes");
  }
  if (layout.pairs.empty() == layout.pair_key.has_value()) {
    return BadInput(".pairs: the field, and .pair_key, the one with the key, need each other");
  }
  if (layout.pair_position >= 0 && layout.pairs.empty()) {
    return BadInput(".pair_position: needs .pairs, the field with the pairs");
  }
  if (!layout.answer_field.empty() &&
      (params.Text("answer_kind") != "text" || params.Bool("merge_by_id"))) {
    return BadInput(".answer_field: needs .answer_kind text, and no .merge_by_id");
  }
  if (layout.text_and_letter && !layout.choices && layout.classes.empty()) {
    return BadInput(".answer_kind: a letter needs .choices or .classes");
  }
  if (layout.first_index >= 0 && !layout.choices && layout.classes.empty()) {
    return BadInput(".answer_kind: an index needs .choices or .classes");
  }
  if (!layout.extract.empty()) {
    const auto rules = ExtractionRules();
    if (std::none_of(rules.begin(), rules.end(),
                     [&](const ExtractionRule& rule) { return rule.name == layout.extract; })) {
      return BadInput(StrCat(".answer_extract: unknown rule ", Quoted(layout.extract)));
    }
  }
  return {};
}

}  // namespace kvgauge

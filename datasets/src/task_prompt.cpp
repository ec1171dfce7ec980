// SPDX-License-Identifier: Apache-2.0
#include "src/task_prompt.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <utility>

#include "core/check.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

bool IsNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// "name", "name[3]" or either with "|rule".
bool ParseField(std::string_view text, PromptTemplate::Field& field) {
  if (const size_t bar = text.find('|'); bar != std::string_view::npos) {
    field.rule = text.substr(bar + 1);
    const std::vector<ExtractionRule> rules = ExtractionRules();
    if (std::none_of(rules.begin(), rules.end(),
                     [&](const ExtractionRule& rule) { return rule.name == field.rule; })) {
      return false;
    }
    text = text.substr(0, bar);
  }
  const size_t open = text.find('[');
  field.name = text.substr(0, open);
  if (open != std::string_view::npos) {
    const char* end = text.data() + text.size() - 1;
    if (text.back() != ']') return false;
    const auto parsed = std::from_chars(text.data() + open + 1, end, field.index);
    if (parsed.ec != std::errc() || parsed.ptr != end || field.index < 0) return false;
  }
  return !field.name.empty() && std::all_of(field.name.begin(), field.name.end(), IsNameByte);
}

// The first character boundary at or behind `at`.
size_t Boundary(std::string_view text, size_t at) {
  while (at < text.size() && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80) ++at;
  return std::min(at, text.size());
}

}  // namespace

Result<PromptTemplate> PromptTemplate::Parse(std::string_view text, std::string_view owner) {
  PromptTemplate made;
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c != '{' && c != '}') {
      plain += c;
    } else if (i + 1 < text.size() && text[i + 1] == c) {
      plain += c;
      ++i;
    } else {
      const size_t close = c == '{' ? text.find('}', i) : std::string_view::npos;
      Field field;
      if (close == std::string_view::npos ||
          !ParseField(text.substr(i + 1, close - i - 1), field)) {
        return BadInput(
            StrCat(owner, ": ", Quoted(text.substr(i, 20)),
                   " is not a field; write {name}, {name[0]} or {name|rule}, and {{ or }} for a "
                   "brace"));
      }
      made.texts_.push_back(std::exchange(plain, ""));
      made.fields_.push_back(std::move(field));
      i = close;
    }
  }
  made.texts_.push_back(std::move(plain));
  return made;
}

Result<PromptTemplate::Filled> PromptTemplate::Fill(const Lookup& lookup,
                                                    std::string_view mark) const {
  Filled filled;
  filled.text = texts_[0];
  for (size_t i = 0; i < fields_.size(); ++i) {
    KVG_ASSIGN(const std::string value, lookup(fields_[i]));
    if (fields_[i].name == mark) filled.field_begin = filled.text.size();
    filled.text += value;
    if (fields_[i].name == mark) filled.field_end = filled.text.size();
    filled.text += texts_[i + 1];
  }
  return filled;
}

std::vector<std::string> CutNames() { return {"none", "middle", "middle_joined", "head", "tail"}; }

Cut CutFromName(std::string_view name) {
  if (name == "middle") return Cut::kMiddle;
  if (name == "middle_joined") return Cut::kMiddleJoined;
  if (name == "head") return Cut::kHead;
  if (name == "tail") return Cut::kTail;
  KVG_CHECK(name == "none", StrCat("not a truncation: ", name));
  return Cut::kNone;
}

namespace {

Result<int64_t> CutHead(const TaskOptions& options, int64_t count, PromptText& prompt) {
  const std::string tail = prompt.separator + prompt.text.substr(prompt.question);
  KVG_ASSIGN(const std::vector<int32_t> tail_ids, options.codec->Encode(tail, false));
  KVG_ASSIGN(const std::vector<int32_t> ids,
             options.codec->Encode(prompt.text.substr(0, prompt.question), true));
  const int64_t room = options.max_prompt_tokens - static_cast<int64_t>(tail_ids.size());
  if (room < 1) {
    return BadInput(
        StrCat("the prompt limit must be above the ", tail_ids.size(), " tokens of the question"));
  }
  const auto kept = std::min(ids.size(), static_cast<size_t>(room));
  prompt.text = options.codec->Decode(std::span<const int32_t>(ids).first(kept), true);
  prompt.document_begin = std::min(prompt.document_begin, prompt.text.size());
  prompt.document_end = std::min(prompt.document_end, prompt.text.size());
  prompt.question = prompt.text.size() + prompt.separator.size();
  prompt.text += tail;
  return count;
}

Result<int64_t> CutTail(const TaskOptions& options, int64_t count, PromptText& prompt) {
  const std::string before = prompt.text.substr(0, prompt.document_begin);
  const std::string behind = prompt.text.substr(prompt.document_end);
  const size_t question = prompt.text.size() - prompt.question;
  KVG_ASSIGN(const std::vector<int32_t> before_ids, options.codec->Encode(before, true));
  KVG_ASSIGN(const std::vector<int32_t> behind_ids, options.codec->Encode(behind, false));
  KVG_ASSIGN(const std::vector<int32_t> ids,
             options.codec->Encode(prompt.text.substr(prompt.document_begin,
                                                      prompt.document_end - prompt.document_begin),
                                   false));
  const auto around = static_cast<int64_t>(before_ids.size() + behind_ids.size());
  const int64_t room = options.max_prompt_tokens - around;
  if (room < 1) {
    return BadInput(
        StrCat("the prompt limit must be above the ", around, " tokens around the document"));
  }
  const auto kept = std::min(ids.size(), static_cast<size_t>(room));
  prompt.text = before + options.codec->Decode(std::span<const int32_t>(ids).last(kept), true);
  prompt.document_end = prompt.text.size();
  prompt.text += behind;
  prompt.question = prompt.text.size() - question;
  return count;
}

}  // namespace

Result<int64_t> Truncate(Cut cut, const TaskOptions& options, PromptText& prompt) {
  const int64_t limit = options.max_prompt_tokens;
  if (limit <= 0 || cut == Cut::kNone) return int64_t{0};
  KVG_CHECK(options.codec != nullptr, "truncation needs the model's tokens");
  if (limit < 2) return BadInput("the prompt limit must be at least 2 tokens");
  KVG_ASSIGN(const std::vector<int32_t> ids, options.codec->Encode(prompt.text, true));
  const auto count = static_cast<int64_t>(ids.size());
  if (count <= limit) return count;

  const std::span<const int32_t> all(ids);
  if (cut == Cut::kHead) return CutHead(options, count, prompt);
  if (cut == Cut::kTail) return CutTail(options, count, prompt);
  const auto half = static_cast<size_t>(limit / 2);
  const std::string question = prompt.text.substr(prompt.question);
  const size_t behind_document = prompt.question - prompt.document_end;
  if (cut == Cut::kMiddle) {
    prompt.text = options.codec->Decode(all.first(half), true);
    prompt.text += options.codec->Decode(all.last(half), true);
  } else {
    std::vector<int32_t> kept(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(half));
    kept.insert(kept.end(), ids.end() - static_cast<std::ptrdiff_t>(limit / 2 + limit % 2),
                ids.end());
    prompt.text = options.codec->Decode(kept, true);
  }
  // The question ends the prompt as before, unless it was cut itself or decoding respelled it: then
  // as many bytes count as the question, as far as there are.
  const size_t size = prompt.text.size();
  prompt.question = prompt.text.ends_with(question)
                        ? size - question.size()
                        : Boundary(prompt.text, size - std::min(size, question.size()));
  prompt.document_begin = std::min(prompt.document_begin, prompt.question);
  prompt.document_end =
      std::max(prompt.document_begin, prompt.question - std::min(prompt.question, behind_document));
  return count;
}

void PlacePrompt(const PromptText& prompt, Sample& sample, Question& question) {
  sample.context = prompt.text.substr(0, prompt.question);
  question.text = prompt.text.substr(prompt.question);
  if (prompt.document_begin < prompt.document_end) {
    sample.marks.push_back({MarkKind::kContext, static_cast<int64_t>(prompt.document_begin),
                            static_cast<int64_t>(prompt.document_end)});
  }
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/run/sample_prompt.h"

#include <algorithm>

#include "core/check.h"
#include "core/strings.h"
#include "src/run/text_places.h"

namespace kvgauge {
namespace {

constexpr int64_t kExcerptBytes = 80;                              // on either side
constexpr size_t kMostPlaces = 8;                                  // of one answer
constexpr std::string_view kEarlierAnswer = "\uf8d0answer\uf8d1";  // stands for the model's own

int64_t CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  return end - a.begin();
}

bool Holds(std::string_view text, const std::vector<std::string>& answers) {
  return std::any_of(answers.begin(), answers.end(), [&](const std::string& answer) {
    return !answer.empty() && text.find(answer) != std::string_view::npos;
  });
}

}  // namespace

AnswerPlace FindAnswer(const Sample& sample) {
  AnswerPlace all, right;
  static const std::vector<std::string> kNone;
  const std::vector<std::string>& answers =
      sample.questions.empty() ? kNone : sample.questions[0].answers;
  const std::string_view context = sample.context;
  for (const Mark& mark : sample.marks) {
    if (mark.kind != MarkKind::kNeedle) continue;
    if (mark.picture >= 0) {
      if (sample.pictures[static_cast<size_t>(mark.picture)].question < 0) {
        right.pictures.push_back(mark.picture);
      }
      continue;
    }
    all.bytes.emplace_back(mark.begin, mark.end);
    const std::string_view needle =
        context.substr(static_cast<size_t>(mark.begin), static_cast<size_t>(mark.end - mark.begin));
    if (Holds(needle, answers)) right.bytes.emplace_back(mark.begin, mark.end);
  }
  AnswerPlace place = right.empty() ? all : right;
  if (place.empty()) {
    for (const std::string& answer : answers) {
      if (answer.size() < 2) continue;
      const size_t at = context.rfind(answer);
      if (at == std::string_view::npos) continue;
      place.bytes.emplace_back(static_cast<int64_t>(at), static_cast<int64_t>(at + answer.size()));
      break;
    }
  }
  std::sort(place.bytes.begin(), place.bytes.end());
  if (place.bytes.size() > kMostPlaces) place.bytes.resize(kMostPlaces);
  std::sort(place.pictures.begin(), place.pictures.end());
  place.pictures.erase(std::unique(place.pictures.begin(), place.pictures.end()),
                       place.pictures.end());
  if (place.pictures.size() > kMostPlaces) place.pictures.resize(kMostPlaces);
  return place;
}

std::string ExcerptAround(const Sample& sample, const AnswerPlace& place) {
  if (place.bytes.empty()) {
    return place.pictures.empty()
               ? ""
               : StrCat("[", sample.pictures[static_cast<size_t>(place.pictures[0])].name, "]");
  }
  const auto [begin, end] = place.bytes[0];
  const auto size = static_cast<int64_t>(sample.context.size());
  int64_t from = std::max<int64_t>(0, begin - kExcerptBytes);
  int64_t to = std::min(size, std::min(end, begin + kExcerptBytes) + kExcerptBytes);
  // Whole characters.
  const auto inside = [&](int64_t at) {
    return at > 0 && at < size &&
           (static_cast<uint8_t>(sample.context[static_cast<size_t>(at)]) & 0xc0u) == 0x80u;
  };
  while (inside(from)) --from;
  while (inside(to)) ++to;
  std::string text = from > 0 ? "..." : "";
  text += sample.context.substr(static_cast<size_t>(from), static_cast<size_t>(to - from));
  if (to < size) text += "...";
  return RepairUtf8(text);
}

Result<std::vector<int32_t>> PromptBuilder::StopIds(const Task& task,
                                                    std::span<const int64_t> eos_ids) const {
  std::vector<int32_t> ids(eos_ids.begin(), eos_ids.end());
  for (const std::string& text : task.stop.last_token_of) {
    KVG_ASSIGN(const std::vector<int32_t> encoded, tokenizer_.Encode(text, {.add_special = false}));
    if (!encoded.empty()) ids.push_back(encoded.back());
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

Result<PromptBuilder::Rendered> PromptBuilder::Render(const Sample& sample, int64_t question,
                                                      std::span<const ShownVisual> shown) const {
  if (shown.empty()) return RenderText(sample, sample.questions[static_cast<size_t>(question)]);
  KVG_CHECK(config_ != nullptr, "pictures need the model's configuration");
  KVG_ASSIGN(PicturePrompt prompt,
             RenderPicturePrompt(chat_, *config_, tokenizer_, sample, question, shown));
  Rendered rendered;
  rendered.text = std::move(prompt.text);
  rendered.context_end = prompt.context_end;
  rendered.plain = std::move(prompt.plain);
  rendered.pieces = std::move(prompt.context);
  if (sample.chat_template && !chat_.none()) {
    KVG_ASSIGN(const bool begins, BeginsWithSpecials(tokenizer_, rendered.text));
    rendered.add_special = !begins;
  }
  return rendered;
}

size_t PromptBuilder::PlaceOf(const Rendered& rendered, int64_t at, bool is_end) {
  const auto byte = static_cast<size_t>(at);
  if (rendered.pieces.empty()) {
    const size_t cut = std::min(byte, rendered.context_cut);
    return std::min(rendered.context + byte - cut, rendered.context_end);
  }
  size_t place = rendered.pieces[0].at;
  for (const PicturePrompt::Piece& piece : rendered.pieces) {
    if (byte < piece.begin || (is_end && byte == piece.begin)) break;
    place = piece.at + (std::min(byte, piece.end) - piece.begin);
  }
  return place;
}

Result<PromptBuilder::Rendered> PromptBuilder::RenderText(const Sample& sample,
                                                          const Question& question) const {
  const bool bare = !sample.chat_template || chat_.none();
  const bool own_place = !sample.system.empty() && !bare && chat_.takes_system();
  std::string content =
      sample.system.empty() || own_place ? "" : StrCat(sample.system, kBehindSystem);
  const size_t before = content.size(), upto = before + sample.context.size();
  content += sample.context + question.text;
  Rendered rendered;
  if (bare) {
    rendered.text = content + question.answer_prefix;
    rendered.plain = {{0, content.size()}};
    rendered.context = before;
    rendered.context_end = upto;
    return rendered;
  }
  std::vector<ChatMessage> messages = {{"user", content}};
  std::vector<SoughtPlaces> sought = {{0, {0, before, upto, content.size()}}};
  if (own_place) {
    messages.insert(messages.begin(), {"system", sample.system});
    sought[0].message = 1;
    sought.push_back({0, {0, sample.system.size()}});
  }
  KVG_ASSIGN(rendered.text, chat_.Render(messages, true));
  KVG_ASSIGN(const bool begins, BeginsWithSpecials(tokenizer_, rendered.text));
  rendered.add_special = !begins;
  KVG_ASSIGN(const std::optional<FoundPlaces> found,
             FindPlaces(chat_, messages, sought, rendered.text));
  rendered.located = found.has_value();
  if (!found) {
    KVG_TRY(RefuseSpecials(content + sample.system));
  } else {
    const std::vector<size_t>& user = found->at[0];
    rendered.plain = {{user[0], user[3]}};
    rendered.context = user[1];
    rendered.context_end = user[2];
    rendered.context_cut = found->cut[0] > before ? found->cut[0] - before : 0;
    if (own_place) rendered.plain.emplace_back(found->at[1][0], found->at[1][1]);
    std::sort(rendered.plain.begin(), rendered.plain.end());
  }
  rendered.text += question.answer_prefix;
  return rendered;
}

Status PromptBuilder::RefuseSpecials(std::string_view data) const {
  KVG_ASSIGN(const std::vector<int32_t> ids, tokenizer_.Encode(data, {.add_special = false}));
  const auto special =
      std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return tokenizer_.IsSpecial(id); });
  if (special == ids.end()) return {};
  return Unsupported(StrCat("chat template ", chat_.name(),
                            " changes its texts so that they cannot be found again, and the data "
                            "hold ",
                            Quoted(tokenizer_.TokenText(*special)),
                            ", which would become a special token"));
}

Result<std::string> PromptBuilder::WhyNoContext(const Sample& sample) const {
  // Prompts with pictures are located, or an error.
  if (sample.questions.empty() || !sample.pictures.empty()) return std::string();
  KVG_ASSIGN(const Rendered rendered, RenderText(sample, sample.questions[0]));
  if (rendered.located) return std::string();
  return StrCat("chat template ", chat_.name(),
                " changes its texts so that the end of the context cannot be told, expected "
                "compress_at prompt, or another template");
}

Result<std::vector<int32_t>> PromptBuilder::Encode(const Rendered& rendered) const {
  return EncodePrefix(rendered, rendered.text.size());
}

// Templates spell special tokens out, data must not. Where the sample's own texts hold none the
// text is encoded as a whole, as the checkpoint's own pipeline does it; else piece by piece.
Result<std::vector<int32_t>> PromptBuilder::EncodePrefix(const Rendered& rendered,
                                                         size_t end) const {
  const std::string_view text = std::string_view(rendered.text).substr(0, end);
  EncodeOptions plain = {.add_special = rendered.add_special, .parse_special = false};
  const bool whole = rendered.plain.size() == 1 &&
                     rendered.plain[0] == std::pair<size_t, size_t>(0, rendered.text.size());
  if (whole) return tokenizer_.Encode(text, plain);
  EncodeOptions special = plain;
  special.parse_special = true;
  KVG_ASSIGN(std::vector<int32_t> ids, tokenizer_.Encode(text, special));
  if (rendered.plain.empty()) return ids;
  const auto specials = [&](std::span<const int32_t> some) {
    return std::count_if(some.begin(), some.end(),
                         [&](int32_t id) { return tokenizer_.IsSpecial(id); });
  };
  // Pieces take turns, the template's first; any of them can be empty.
  std::vector<std::string_view> pieces;
  size_t from = 0;
  const auto cut = [&](size_t upto) {
    const size_t stop = std::max(from, std::min(upto, text.size()));
    pieces.push_back(text.substr(from, stop - from));
    from = stop;
  };
  for (const auto& [begin, stop] : rendered.plain) {
    cut(begin);
    cut(stop);
  }
  cut(text.size());
  std::vector<std::vector<int32_t>> encoded(pieces.size());
  int64_t framed = 0;  // special tokens of the template
  for (size_t i = 0; i < pieces.size(); i += 2) {
    special.add_special = rendered.add_special && i == 0;
    KVG_ASSIGN(encoded[i], tokenizer_.Encode(pieces[i], special));
    framed += specials(encoded[i]);
  }
  if (specials(ids) == framed) return ids;
  ids.clear();
  plain.add_special = false;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i % 2 == 1) {
      KVG_ASSIGN(encoded[i], tokenizer_.Encode(pieces[i], plain));
    }
    ids.insert(ids.end(), encoded[i].begin(), encoded[i].end());
  }
  return ids;
}

Result<std::vector<int32_t>> PromptBuilder::FollowUp(const Sample& sample,
                                                     const Question& question) const {
  Rendered next;
  next.add_special = false;
  if (sample.chat_template && !chat_.none()) {
    const std::vector<ChatMessage> messages = {
        {"user", "q"}, {"assistant", std::string(kEarlierAnswer)}, {"user", question.text}};
    KVG_ASSIGN(const std::string said, chat_.Render(messages, true));
    const size_t at = said.find(kEarlierAnswer);
    if (at == std::string::npos || said.find(kEarlierAnswer, at + 1) != std::string::npos) {
      return Unsupported(StrCat("chat template ", chat_.name(),
                                " leaves out earlier answers, or says them twice; a conversation "
                                "cannot go on behind one"));
    }
    const size_t from = at + kEarlierAnswer.size();
    KVG_ASSIGN(const std::optional<FoundPlaces> found,
               FindPlaces(chat_, messages, {{2, {0, question.text.size()}}}, said));
    next.text = said.substr(from);
    if (found && found->at[0][0] >= from) {
      next.plain = {{found->at[0][0] - from, found->at[0][1] - from}};
    } else {
      KVG_TRY(RefuseSpecials(question.text));
    }
  } else {
    next.text = question.text;
    next.plain = {{0, question.text.size()}};
  }
  next.text += question.answer_prefix;
  // Some tokenizers put a space in front of a text: it is encoded behind a full stop, whose tokens
  // are then taken off.
  Rendered behind = next;
  behind.text.insert(0, ".");
  for (auto& [begin, end] : behind.plain) ++begin, ++end;
  KVG_ASSIGN(const std::vector<int32_t> anchor, tokenizer_.Encode(".", {.add_special = false}));
  KVG_ASSIGN(const std::vector<int32_t> anchored, Encode(behind));
  if (CommonPrefix(anchor, anchored) == std::ssize(anchor)) {
    return std::vector<int32_t>(anchored.begin() + std::ssize(anchor), anchored.end());
  }
  return Encode(next);
}

namespace {

// The pictures of one prompt, in order.
std::vector<ShownVisual> ShownIn(const Sample& sample, int64_t question,
                                 std::span<const ShownVisual> shown) {
  std::vector<ShownVisual> own;
  for (size_t i = 0; i < shown.size(); ++i) {
    const int64_t of = sample.pictures[i].question;
    if (of < 0 || of == question) own.push_back(shown[i]);
  }
  return own;
}

// Spans of a prompt, with the rows that the sample's visuals have for them.
Result<std::vector<VisualSpan>> SpansIn(const ModelConfig& config, const Sample& sample,
                                        int64_t question, std::span<const int32_t> ids,
                                        std::span<const ShownVisual> shown) {
  const std::vector<ShownVisual> own = ShownIn(sample, question, shown);
  KVG_ASSIGN(std::vector<VisualSpan> spans, PlaceVisuals(config, ids, own));
  int64_t of_context = 0, of_others = 0;
  for (size_t i = 0; i < shown.size(); ++i) {
    const int64_t of = sample.pictures[i].question;
    if (of < 0) of_context += shown[i].layout.rows;
    if (of >= 0 && of < question) of_others += shown[i].layout.rows;
  }
  for (VisualSpan& span : spans) {
    if (span.embedding_row >= of_context) span.embedding_row += of_others;
  }
  return spans;
}

}  // namespace

Result<EngineSample> PromptBuilder::Build(const Sample& sample, const Task& task,
                                          const PromptRules& rules,
                                          std::span<const ShownVisual> shown) const {
  KVG_CHECK(shown.size() == sample.pictures.size(), "not every picture is shown");
  EngineSample built;
  built.id = sample.id;
  built.stop_ids = rules.stop_ids;
  const bool conversation = sample.mode == QuestionMode::kMultiTurn;
  std::vector<std::vector<int32_t>> prompts;
  int64_t shared = 0;
  for (size_t i = 0; i < sample.questions.size() && !(conversation && i > 0); ++i) {
    const auto number = static_cast<int64_t>(i);
    KVG_ASSIGN(const Rendered rendered, Render(sample, number, ShownIn(sample, number, shown)));
    if (!rendered.located && rules.needs_context) {
      KVG_ASSIGN(const std::string why, WhyNoContext(sample));
      return Unsupported(why);
    }
    KVG_ASSIGN(std::vector<int32_t> ids, Encode(rendered));
    if (i == 0) {
      // Where the end is not known all of the prompt is context, but for what must be fed.
      KVG_ASSIGN(
          const std::vector<int32_t> head,
          EncodePrefix(rendered, rendered.located ? rendered.context_end : rendered.text.size()));
      // A token that spans the end of the context belongs to the question, and one row of it must
      // be left to be fed.
      shared = std::min(CommonPrefix(head, ids), std::ssize(ids) - 1);
    } else {
      shared = std::min({shared, CommonPrefix(prompts[0], ids), std::ssize(ids) - 1});
    }
    prompts.push_back(std::move(ids));
  }
  shared = std::max<int64_t>(shared, 0);
  if (!prompts.empty()) {
    built.context.assign(prompts[0].begin(), prompts[0].begin() + shared);
  }
  for (size_t i = 0; i < sample.questions.size(); ++i) {
    const Question& question = sample.questions[i];
    EngineTurn turn;
    if (i < prompts.size()) {
      turn.ids.assign(prompts[i].begin() + shared, prompts[i].end());
      if (!shown.empty()) {
        KVG_ASSIGN(const std::vector<VisualSpan> spans,
                   SpansIn(*config_, sample, static_cast<int64_t>(i), prompts[i], shown));
        for (VisualSpan span : spans) {
          if (span.first < shared) {
            KVG_CHECK(span.first + span.count <= shared, "a picture lies over the context's end");
            if (i == 0) built.context_spans.push_back(span);
            continue;
          }
          span.first -= shared;
          turn.spans.push_back(span);
        }
      }
    } else {
      const auto shows = [&](const Picture& picture) {
        return picture.question == static_cast<int64_t>(i);
      };
      if (std::any_of(sample.pictures.begin(), sample.pictures.end(), shows)) {
        return Unsupported(StrCat("sample ", sample.id, ": question ", i + 1,
                                  " of a conversation shows a picture; only the first may"));
      }
      KVG_ASSIGN(turn.ids, FollowUp(sample, question));
      turn.continues = true;
    }
    turn.max_new_tokens = rules.max_new_tokens > 0      ? rules.max_new_tokens
                          : question.max_new_tokens > 0 ? question.max_new_tokens
                                                        : task.max_new_tokens;
    turn.min_new_tokens = task.stop.min_new_tokens;
    built.turns.push_back(std::move(turn));
  }
  return built;
}

Result<std::vector<std::pair<int64_t, int64_t>>> PromptBuilder::TokensOf(
    const Sample& sample, const AnswerPlace& place, const EngineSample& built,
    std::span<const ShownVisual> shown) const {
  std::vector<std::pair<int64_t, int64_t>> ranges;
  const std::vector<int32_t>& context = built.context;
  for (const VisualSpan& span : built.context_spans) {
    const auto in = std::find(place.pictures.begin(), place.pictures.end(), span.index);
    if (in != place.pictures.end()) ranges.emplace_back(span.first, span.first + span.count);
  }
  if (place.bytes.empty() || sample.questions.empty()) return ranges;
  KVG_ASSIGN(const Rendered rendered, Render(sample, 0, ShownIn(sample, 0, shown)));
  if (!rendered.located) return ranges;
  std::vector<std::pair<int64_t, int64_t>> texts;
  for (const auto& place_bytes : place.bytes) {
    KVG_ASSIGN(const std::vector<int32_t> before,
               EncodePrefix(rendered, PlaceOf(rendered, place_bytes.first, false)));
    KVG_ASSIGN(const std::vector<int32_t> upto,
               EncodePrefix(rendered, PlaceOf(rendered, place_bytes.second, true)));
    int64_t begin = CommonPrefix(before, context);
    int64_t end =
        std::min<int64_t>(std::max<int64_t>(std::ssize(upto), begin + 1), std::ssize(context));
    if (!texts.empty()) begin = std::max(begin, texts.back().second);
    if (begin < end) texts.emplace_back(begin, end);
  }
  ranges.insert(ranges.end(), texts.begin(), texts.end());
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

}  // namespace kvgauge

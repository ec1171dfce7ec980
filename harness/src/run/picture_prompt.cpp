// SPDX-License-Identifier: Apache-2.0
#include "src/run/picture_prompt.h"

#include <algorithm>
#include <optional>

#include "core/check.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/run/sample_prompt.h"
#include "src/run/text_places.h"

namespace kvgauge {
namespace {

// What the user's message says: texts[0], a picture, texts[1], a picture, ... texts may be empty.
struct Message {
  std::string system;  // in the template's place for it
  std::vector<std::string> texts;
  size_t context_begin = 0;  // in texts[0], behind a system text that has no place of its own
  size_t context_pictures = 0;
  size_t context_end = 0;  // in texts[context_pictures]
};

// A rendered message: marks of one placeholder each.
struct Marked {
  std::string text;
  std::vector<size_t> marks;  // where they begin, one for each picture
  // [begin, end) of each of the texts, and what was cut off its front.
  std::vector<std::pair<size_t, size_t>> texts;
  std::vector<size_t> cut;
  size_t context_end = 0;
};

Message MakeMessage(const Sample& sample, const Question& question, int64_t number,
                    bool own_system) {
  Message message;
  const std::string front =
      sample.system.empty() || own_system ? "" : StrCat(sample.system, kBehindSystem);
  if (own_system) message.system = sample.system;
  const std::string content = front + sample.context + question.text;
  const size_t upto = front.size() + sample.context.size();
  size_t from = 0;
  const auto take = [&](const Picture& picture) {
    const size_t at =
        (picture.question < 0 ? front.size() : upto) + static_cast<size_t>(picture.at);
    message.texts.push_back(content.substr(from, at - from));
    from = at;
  };
  for (const Picture& picture : sample.pictures) {
    if (picture.question < 0) take(picture);
  }
  message.context_begin = front.size();
  message.context_pictures = message.texts.size();
  message.context_end = upto - from;
  for (const Picture& picture : sample.pictures) {
    if (picture.question == number) take(picture);
  }
  message.texts.push_back(content.substr(from));
  return message;
}

Marked MarkBare(const Message& message, const std::string& before, const std::string& mark,
                const std::string& behind) {
  Marked out;
  for (size_t i = 0; i < message.texts.size(); ++i) {
    if (i > 0) {
      out.text += before;
      out.marks.push_back(out.text.size());
      out.text += mark + behind;
    }
    const size_t begin = out.text.size();
    out.text += message.texts[i];
    out.texts.emplace_back(begin, out.text.size());
    out.cut.push_back(0);
    if (i == message.context_pictures) out.context_end = begin + message.context_end;
  }
  return out;
}

// Where the texts came out, and the marks between them; nothing where that cannot be told. `sought`
// are the places of every text that is not empty: begin, end, and the context's end in its text.
std::optional<Marked> FindMarks(const Message& message, const std::vector<ChatMessage>& contents,
                                const std::vector<SoughtPlaces>& sought,
                                const std::string& rendered, const RenderTexts& render,
                                const std::string& mark) {
  const Result<std::optional<FoundPlaces>> found = FindPlaces(render, contents, sought, rendered);
  if (!found.ok() || !*found) return std::nullopt;
  std::vector<size_t> places, cuts;
  for (size_t i = 0; i < sought.size(); ++i) {
    places.insert(places.end(), (*found)->at[i].begin(), (*found)->at[i].end());
    cuts.push_back((*found)->cut[i]);
  }
  const size_t pictures = message.texts.size() - 1;
  Marked out;
  out.text = rendered;
  out.texts.resize(message.texts.size());
  out.cut.resize(message.texts.size());
  size_t place = 0, from = 0, waiting = 0;
  // Exactly the pictures between two texts have marks between them.
  const auto take_marks = [&](size_t upto) {
    size_t at = from;
    while ((at = rendered.find(mark, at)) != std::string::npos && at + mark.size() <= upto) {
      if (waiting == 0) return false;
      --waiting;
      out.marks.push_back(at);
      at += mark.size();
    }
    return waiting == 0;
  };
  for (size_t i = 0; i < message.texts.size(); ++i) {
    if (!message.texts[i].empty()) {
      const size_t begin = places[place++];
      if (i == message.context_pictures) out.context_end = places[place++];
      const size_t end = places[place++];
      if (!take_marks(begin)) return std::nullopt;
      out.texts[i] = {begin, end};
      out.cut[i] =
          cuts.size() == 1
              ? 0
              : cuts[static_cast<size_t>(std::count_if(
                    message.texts.begin(), message.texts.begin() + static_cast<ptrdiff_t>(i),
                    [](const std::string& text) { return !text.empty(); }))];
      from = end;
    }
    if (i < pictures) ++waiting;
  }
  if (!take_marks(rendered.size())) return std::nullopt;
  for (size_t i = 0; i < message.texts.size(); ++i) {
    if (!message.texts[i].empty()) continue;
    const size_t at = i == 0 ? out.marks[0] : out.marks[i - 1] + mark.size();
    out.texts[i] = {at, at};
    if (i == message.context_pictures) out.context_end = at;
  }
  return out;
}

Json TextPart(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

Json Conversation(const std::string& system, Json parts) {
  Json messages = Json::array();
  if (!system.empty()) {
    messages.push_back({{"role", "system"}, {"content", Json::array({TextPart(system)})}});
  }
  messages.push_back({{"role", "user"}, {"content", std::move(parts)}});
  return messages;
}

// Texts and pictures as parts, as the checkpoint's own processor takes them.
std::optional<Marked> MarkParts(const ChatTemplate& chat, const Message& message,
                                const std::string& mark) {
  std::vector<ChatMessage> contents;
  std::vector<SoughtPlaces> sought;
  for (size_t i = 0; i < message.texts.size(); ++i) {
    const std::string& text = message.texts[i];
    if (text.empty()) continue;
    sought.push_back({contents.size(), {0}});
    if (i == message.context_pictures) sought.back().at.push_back(message.context_end);
    sought.back().at.push_back(text.size());
    contents.push_back({"user", text});
  }
  const RenderTexts render = [&](const std::vector<ChatMessage>& texts) {
    Json parts = Json::array();
    size_t next = 0;
    for (size_t i = 0; i < message.texts.size(); ++i) {
      if (i > 0) parts.push_back({{"type", "image"}});
      if (!message.texts[i].empty()) parts.push_back(TextPart(texts[next++].content));
    }
    return chat.RenderJson(Conversation(message.system, std::move(parts)).dump(), {}, true);
  };
  const Result<std::string> rendered = render(contents);
  if (!rendered.ok()) return std::nullopt;
  return FindMarks(message, contents, sought, *rendered, render, mark);
}

// Everything as one text with marks in it; `as_part` or as the plain content of the message.
std::optional<Marked> MarkText(const ChatTemplate& chat, const Message& message, const Marked& bare,
                               const std::string& mark, bool as_part) {
  const std::vector<ChatMessage> contents = {{"user", bare.text}};
  std::vector<SoughtPlaces> sought = {{0, {}}};
  for (size_t i = 0; i < message.texts.size(); ++i) {
    if (message.texts[i].empty()) continue;
    sought[0].at.push_back(bare.texts[i].first);
    if (i == message.context_pictures) sought[0].at.push_back(bare.context_end);
    sought[0].at.push_back(bare.texts[i].second);
  }
  const RenderTexts render = [&](const std::vector<ChatMessage>& texts) {
    if (as_part) {
      return chat.RenderJson(
          Conversation(message.system, Json::array({TextPart(texts[0].content)})).dump(), {}, true);
    }
    std::vector<ChatMessage> messages = texts;
    if (!message.system.empty()) {
      messages.insert(messages.begin(), {"system", message.system});
    }
    return chat.Render(messages, true);
  };
  const Result<std::string> rendered = render(contents);
  if (!rendered.ok()) return std::nullopt;
  return FindMarks(message, contents, sought, *rendered, render, mark);
}

// Marks become what the family's processor makes of them, and places move with them.
Result<PicturePrompt> Expand(const Message& message, const Marked& marked,
                             const ModelConfig& config, const Tokenizer& tokenizer,
                             const std::string& mark, std::span<const ShownVisual> shown) {
  PicturePrompt out;
  std::vector<std::pair<size_t, size_t>> moved;  // of places from there on: by so much
  size_t from = 0;
  for (size_t i = 0; i < marked.marks.size(); ++i) {
    out.text += marked.text.substr(from, marked.marks[i] - from);
    KVG_ASSIGN(const std::string expanded,
               ExpandVisuals(config, tokenizer, mark, shown.subspan(i, 1)));
    out.text += expanded;
    from = marked.marks[i] + mark.size();
    moved.emplace_back(from, out.text.size());
  }
  out.text += marked.text.substr(from);
  const auto place = [&](size_t at) {
    size_t now = at;
    for (const auto& [old, fresh] : moved) {
      if (at >= old) now = fresh + (at - old);
    }
    return now;
  };
  out.context_end = place(marked.context_end);
  size_t context = 0;  // bytes of it before the text
  for (size_t i = 0; i < marked.texts.size(); ++i) {
    const size_t begin = place(marked.texts[i].first), end = place(marked.texts[i].second);
    if (begin < end) out.plain.emplace_back(begin, end);
    if (i > message.context_pictures) continue;
    const size_t skipped = i == 0 ? message.context_begin : 0;
    const size_t length =
        (i == message.context_pictures ? message.context_end : message.texts[i].size()) - skipped;
    const size_t cut = std::max(marked.cut[i], skipped) - skipped;
    const size_t at = begin + (skipped > marked.cut[i] ? skipped - marked.cut[i] : 0);
    out.context.push_back({context + std::min(cut, length), context + length, at});
    context += length;
  }
  return out;
}

}  // namespace

Result<PicturePrompt> RenderPicturePrompt(const ChatTemplate& chat, const ModelConfig& config,
                                          const Tokenizer& tokenizer, const Sample& sample,
                                          int64_t question, std::span<const ShownVisual> shown) {
  KVG_ASSIGN(const VisualMarks marks, MarksOf(config, tokenizer));
  const Question& asked = sample.questions[static_cast<size_t>(question)];
  const bool bare = !sample.chat_template || chat.none();
  const bool own_system = !sample.system.empty() && !bare && chat.takes_system();
  const Message message = MakeMessage(sample, asked, question, own_system);
  KVG_CHECK(message.texts.size() == shown.size() + 1, "pictures and what is shown differ");
  for (const std::string& text : message.texts) {
    for (const std::string& mark : {marks.image, marks.video}) {
      if (mark.empty() || text.find(mark) == std::string::npos) continue;
      return Unsupported(StrCat("sample ", sample.id, ": the data hold ", Quoted(mark),
                                ", which would become a picture"));
    }
  }
  // In Qwen's prompts a placeholder stands between two marks, which its template writes.
  const auto spelled = [&](int64_t id) {
    return id < 0 ? std::string() : tokenizer.TokenText(static_cast<int32_t>(id));
  };
  const Marked plain = MarkBare(message, spelled(config.visual_ids.vision_start), marks.image,
                                spelled(config.visual_ids.vision_end));
  std::optional<Marked> marked;
  if (bare) {
    marked = plain;
  } else {
    marked = MarkParts(chat, message, marks.image);
    if (!marked) marked = MarkText(chat, message, plain, marks.image, true);
    if (!marked) marked = MarkText(chat, message, plain, marks.image, false);
  }
  if (!marked) {
    return Unsupported(StrCat("chat template ", chat.name(),
                              " moves pictures or changes the texts between them, so that they "
                              "cannot be told apart; expected another template, or none"));
  }
  KVG_ASSIGN(PicturePrompt out, Expand(message, *marked, config, tokenizer, marks.image, shown));
  out.text += asked.answer_prefix;
  return out;
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/run/text_places.h"

#include <algorithm>
#include <utility>

#include "core/strings.h"

namespace kvgauge {
namespace {

// A private-use character on either side of a number: nothing that a template knows, and neither
// blank nor of any case. Texts that hold the first pair get the next one.
std::optional<std::string> FreeSign(const std::vector<ChatMessage>& messages) {
  for (char32_t code = 0xf8e0; code < 0xf8f0; ++code) {
    std::string sign;
    AppendUtf8(sign, code);
    const bool used = std::any_of(messages.begin(), messages.end(), [&](const ChatMessage& m) {
      return m.content.find(sign) != std::string::npos;
    });
    if (!used) return sign;
  }
  return std::nullopt;
}

// What Python's strip() leaves of a text: [begin, end).
std::pair<size_t, size_t> Core(std::string_view text) {
  // Every blank that Python knows, by its UTF-8.
  constexpr std::string_view kBlanks[] = {
      "\t",     "\n",     "\v",     "\f",     "\r",     "\x1c",   "\x1d",   "\x1e",
      "\x1f",   " ",      "\u0085", "\u00a0", "\u1680", "\u2000", "\u2001", "\u2002",
      "\u2003", "\u2004", "\u2005", "\u2006", "\u2007", "\u2008", "\u2009", "\u200a",
      "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"};
  size_t begin = 0, end = text.size();
  const auto step = [&](bool front) {
    const std::string_view left = text.substr(begin, end - begin);
    for (const std::string_view blank : kBlanks) {
      if (front ? left.starts_with(blank) : left.ends_with(blank)) return blank.size();
    }
    return size_t{0};
  };
  while (const size_t size = step(true)) begin += size;
  while (const size_t size = step(false)) end -= size;
  return {begin, end};
}

struct Attempt {
  const RenderTexts& render;
  const std::vector<ChatMessage>& messages;
  const std::vector<SoughtPlaces>& sought;
  const std::string& rendered;
  std::string sign;

  std::string Mark(size_t number) const { return StrCat(sign, number, sign); }

  // `inside`: places in the blanks at a text's ends are moved to the nearest place that is not.
  std::optional<FoundPlaces> Try(bool inside) const {
    std::vector<ChatMessage> marked = messages;
    FoundPlaces found;
    size_t number = 0;
    for (const SoughtPlaces& places : sought) {
      std::string& text = marked[places.message].content;
      const std::string plain = text;
      const auto [begin, end] = inside ? Core(plain) : std::pair<size_t, size_t>(0, plain.size());
      found.cut.push_back(begin);
      text.clear();
      size_t from = 0;
      for (const size_t at : places.at) {
        const size_t to = std::clamp(at, begin, std::max(begin, end));
        text += plain.substr(from, to - from);
        text += Mark(number++);
        from = to;
      }
      text += plain.substr(from);
    }
    const Result<std::string> said = render(marked);
    if (!said.ok()) return std::nullopt;
    return TakeOut(*said, std::move(found));
  }

  std::optional<FoundPlaces> TakeOut(const std::string& said, FoundPlaces found) const {
    std::string plain;
    std::vector<std::optional<size_t>> at;
    for (const SoughtPlaces& places : sought) at.resize(at.size() + places.at.size());
    size_t from = 0;
    for (size_t open = said.find(sign); open != std::string::npos; open = said.find(sign, from)) {
      const size_t close = said.find(sign, open + sign.size());
      if (close == std::string::npos) return std::nullopt;
      const std::string digits = said.substr(open + sign.size(), close - open - sign.size());
      plain += said.substr(from, open - from);
      from = close + sign.size();
      size_t number = 0;
      while (number < at.size() && std::to_string(number) != digits) ++number;
      if (number == at.size() || at[number]) return std::nullopt;
      at[number] = plain.size();
    }
    plain += said.substr(from);
    if (plain != rendered) return std::nullopt;
    size_t number = 0;
    for (const SoughtPlaces& places : sought) {
      std::vector<size_t>& out = found.at.emplace_back();
      for (size_t i = 0; i < places.at.size(); ++i, ++number) {
        if (!at[number] || (!out.empty() && *at[number] < out.back())) return std::nullopt;
        out.push_back(*at[number]);
      }
    }
    return found;
  }
};

}  // namespace

Result<std::optional<FoundPlaces>> FindPlaces(const RenderTexts& render,
                                              const std::vector<ChatMessage>& messages,
                                              const std::vector<SoughtPlaces>& sought,
                                              const std::string& rendered) {
  const std::optional<std::string> sign = FreeSign(messages);
  if (!sign) return std::optional<FoundPlaces>();
  const Attempt attempt{render, messages, sought, rendered, *sign};
  std::optional<FoundPlaces> found = attempt.Try(false);
  if (!found) found = attempt.Try(true);
  return found;
}

Result<std::optional<FoundPlaces>> FindPlaces(const ChatTemplate& chat,
                                              const std::vector<ChatMessage>& messages,
                                              const std::vector<SoughtPlaces>& sought,
                                              const std::string& rendered) {
  const RenderTexts render = [&](const std::vector<ChatMessage>& said) {
    return chat.Render(said, true);
  };
  return FindPlaces(render, messages, sought, rendered);
}

}  // namespace kvgauge

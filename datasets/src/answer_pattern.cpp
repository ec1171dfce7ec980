// SPDX-License-Identifier: Apache-2.0
#include "datasets/answer_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <optional>
#include <utility>

#include "core/check.h"
#include "core/strings.h"

namespace kvgauge {
namespace answer_patterns {
namespace {

constexpr uint32_t kMatchLimit = 1'000'000;
constexpr uint32_t kHeapLimitKib = 64 << 10;

struct Release {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
using Code = std::unique_ptr<pcre2_code, Release>;
using MatchContext = std::unique_ptr<pcre2_match_context, Release>;
using MatchData = std::unique_ptr<pcre2_match_data, Release>;

PCRE2_SPTR Bytes(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[160];
  if (pcre2_get_error_message(code, buffer, sizeof(buffer)) < 0) return StrCat("error ", code);
  return reinterpret_cast<const char*>(buffer);
}

class Pattern final : public AnswerPattern {
 public:
  Pattern(Settings settings, Code code, uint32_t groups)
      : settings_(std::move(settings)), code_(std::move(code)), groups_(groups) {
    context_.reset(pcre2_match_context_create(nullptr));
    KVG_CHECK(context_ != nullptr, "out of memory for a pattern");
    pcre2_set_match_limit(context_.get(), kMatchLimit);
    pcre2_set_heap_limit(context_.get(), kHeapLimitKib);
  }

  std::string Find(std::string_view given) const override {
    std::optional<std::string> found;
    const bool whole = Walk(given, [&](std::string match) {
      found = std::move(match);
      return settings_.last;
    });
    return found && whole ? *std::move(found) : settings_.fallback;
  }

  std::vector<std::string> FindAll(std::string_view given) const override {
    std::vector<std::string> all;
    Walk(given, [&](std::string match) {
      all.push_back(std::move(match));
      return true;
    });
    return all;
  }

 private:
  // Gives matches until `take` says no; false where looking took too many steps.
  template <class Take>
  bool Walk(std::string_view given, const Take& take) const {
    std::string repaired;
    if (FindInvalidUtf8(given) != std::string_view::npos) repaired = RepairUtf8(given);
    const std::string_view text = repaired.empty() ? given : repaired;
    const MatchData data(pcre2_match_data_create(groups_ + 1, nullptr));
    KVG_CHECK(data != nullptr, "out of memory for a match");
    uint32_t options = 0;
    for (size_t at = 0; at <= text.size();) {
      const int count = pcre2_match(code_.get(), Bytes(text), text.size(), at, options, data.get(),
                                    context_.get());
      if (count == PCRE2_ERROR_NOMATCH) {
        if (options == 0) break;
        options = 0;
        at = BehindCharacter(text, at);
        continue;
      }
      if (count < 0) return false;
      const PCRE2_SIZE* places = pcre2_get_ovector_pointer(data.get());
      if (!take(Chosen(text, places))) break;
      // Behind an empty match another one at its place must not be empty.
      options = places[0] == places[1] ? PCRE2_NOTEMPTY_ATSTART | PCRE2_ANCHORED : 0;
      at = places[1];
    }
    return true;
  }

  static size_t BehindCharacter(std::string_view text, size_t at) {
    ++at;
    while (at < text.size() && (static_cast<uint8_t>(text[at]) & 0xc0) == 0x80) ++at;
    return at;
  }

  // A group that took no part is the empty text.
  static std::string Group(std::string_view text, const PCRE2_SIZE* places, uint32_t group) {
    const PCRE2_SIZE begin = places[size_t{2} * group], end = places[size_t{2} * group + 1];
    return begin == PCRE2_UNSET || end < begin ? "" : std::string(text.substr(begin, end - begin));
  }

  std::string Chosen(std::string_view text, const PCRE2_SIZE* places) const {
    if (settings_.group >= 0) return Group(text, places, static_cast<uint32_t>(settings_.group));
    if (groups_ == 0) return Group(text, places, 0);
    for (uint32_t group = 1; group <= groups_; ++group) {
      std::string part = Group(text, places, group);
      if (!part.empty()) return part;
    }
    return "";
  }

  Settings settings_;
  Code code_;
  uint32_t groups_;
  MatchContext context_;
};

}  // namespace
}  // namespace answer_patterns

Result<std::shared_ptr<const AnswerPattern>> AnswerPattern::Compile(Settings settings) {
  using namespace answer_patterns;
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Without \C, which would match half a character.
  Code code(pcre2_compile(Bytes(settings.regex), settings.regex.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset,
                          nullptr));
  if (code == nullptr) {
    return BadInput(StrCat("regex: ", Quoted(settings.regex),
                           " is no regular expression: ", ErrorText(error), " at offset ", offset));
  }
  uint32_t groups = 0;
  pcre2_pattern_info(code.get(), PCRE2_INFO_CAPTURECOUNT, &groups);
  if (settings.group > static_cast<int>(groups)) {
    return BadInput(StrCat("group: ", settings.group, "; the pattern ", Quoted(settings.regex),
                           " has ", groups, groups == 1 ? " group" : " groups",
                           "; expected 0 for the whole match, or one of them"));
  }
  return std::shared_ptr<const AnswerPattern>(
      std::make_shared<Pattern>(std::move(settings), std::move(code), groups));
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/check.h"
#include "core/strings.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge {
namespace {

// A split pattern needs a handful of steps per match; this many means that it backtracks without
// end.
constexpr uint32_t kMatchLimit = 2'000'000;
constexpr uint32_t kHeapLimitKib = 64 << 10;
constexpr size_t kJitStackBytes = size_t{8} << 20;

// What one match call needs, per thread: none of it may be shared.
class MatchScratch {
 public:
  MatchScratch()
      : data_(pcre2_match_data_create(1, nullptr)),
        context_(pcre2_match_context_create(nullptr)),
        stack_(pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr)) {
    KVG_CHECK(data_ != nullptr && context_ != nullptr, "out of memory for a regex match");
    pcre2_set_match_limit(context_, kMatchLimit);
    pcre2_set_heap_limit(context_, kHeapLimitKib);
    if (stack_ != nullptr) pcre2_jit_stack_assign(context_, nullptr, stack_);
  }
  ~MatchScratch() {
    pcre2_jit_stack_free(stack_);
    pcre2_match_context_free(context_);
    pcre2_match_data_free(data_);
  }
  MatchScratch(const MatchScratch&) = delete;
  MatchScratch& operator=(const MatchScratch&) = delete;

  pcre2_match_data* data() { return data_; }
  pcre2_match_context* context() { return context_; }

 private:
  pcre2_match_data* data_;
  pcre2_match_context* context_;
  pcre2_jit_stack* stack_;  // null where the library was built without JIT
};

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[160];
  if (pcre2_get_error_message(code, buffer, sizeof(buffer)) < 0) return StrCat("error ", code);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

Result<Regex> Regex::Compile(std::string_view pattern, std::string_view where) {
  KVG_ASSIGN(const std::string translated, TranslateRegex(pattern, where));
  const std::unique_ptr<pcre2_compile_context, void (*)(pcre2_compile_context*)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  // Ruby's dot excludes the line feed alone, and its ^ and $ know no other line end.
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                    &offset, context.get());
  if (code == nullptr) {
    return BadInput(StrCat(where, ": the regular expression ", Quoted(pattern, 200),
                           " does not compile: ", ErrorText(error)));
  }
  // Without JIT the interpreter gives the same matches, only later.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  Regex regex;
  regex.where_ = where;
  regex.code_ = std::shared_ptr<const void>(code, [](const void* p) {
    pcre2_code_free(const_cast<pcre2_code*>(static_cast<const pcre2_code*>(p)));
  });
  return regex;
}

Status Regex::FindAll(std::string_view text, std::vector<Span>& out) const {
  thread_local MatchScratch scratch;
  out.clear();
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t at = 0;
  while (at <= text.size()) {
    const int found = pcre2_match(code, subject, text.size(), at, PCRE2_NO_UTF_CHECK,
                                  scratch.data(), scratch.context());
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return Unsupported(StrCat(where_, ": the regular expression gives up on a text of ",
                                text.size(), " bytes: ", ErrorText(found)));
    }
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(scratch.data());
    const Span match{range[0], range[1]};
    if (match.begin < match.end) {
      out.push_back(match);
      at = match.end;
      continue;
    }
    if (out.empty() || out.back().end != match.end) out.push_back(match);
    if (match.end >= text.size()) break;
    at = match.end + Utf8Width(text[match.end]);
  }
  return {};
}

}  // namespace kvgauge

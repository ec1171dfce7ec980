// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "src/text/tokenizer/bert_normalizer.h"
#include "src/text/tokenizer/json_fields.h"
#include "src/text/tokenizer/precompiled.h"
#include "src/text/tokenizer/regex.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge {
namespace {

// A Replace may grow a text to 32 times its size, or to this if that is more.
constexpr size_t kGrowthFloorBytes = size_t{16} << 20;
constexpr size_t kGrowthFactor = 32;

class UnicodeForm final : public NormalizerStep {
 public:
  UnicodeForm(bool compose, bool compatibility)
      : options_((compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                 (compatibility ? UTF8PROC_COMPAT : 0) | UTF8PROC_STABLE),
        // Composed forms leave everything below alone.
        first_affected_(!compose || compatibility ? 0x80 : 0x300) {}

  Status Apply(std::string& text) const override {
    if (!Affects(text)) return {};
    // Hugging Face normalises by Unicode 9.0: what came later neither decomposes, composes nor
    // moves, so that it parts the text into stretches that are normalised alone.
    std::string out;
    size_t begin = 0;
    for (size_t at = 0; at < text.size();) {
      const CodePoint c = CodePointAt(text, at);
      if (HasClass(c.value, kNewerThan9)) {
        KVG_TRY(Stretch(std::string_view(text).substr(begin, at - begin), out));
        out.append(text, at, c.width);
        begin = at + c.width;
      }
      at += c.width;
    }
    KVG_TRY(Stretch(std::string_view(text).substr(begin), out));
    text = std::move(out);
    return {};
  }

 private:
  bool Affects(std::string_view text) const {
    for (size_t at = 0; at < text.size();) {
      const CodePoint c = CodePointAt(text, at);
      if (c.value >= first_affected_) return true;
      at += c.width;
    }
    return false;
  }

  Status Stretch(std::string_view text, std::string& out) const {
    if (text.empty()) return {};
    utf8proc_uint8_t* mapped = nullptr;
    const utf8proc_ssize_t size =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                     static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                     static_cast<utf8proc_option_t>(options_));
    if (size < 0) {
      return ResourceError(StrCat("Unicode normalisation of ", text.size(),
                                  " bytes failed: ", utf8proc_errmsg(size)));
    }
    out.append(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
    std::free(mapped);
    return {};
  }

  int options_;
  char32_t first_affected_;
};

class Prepend final : public NormalizerStep {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  Status Apply(std::string& text) const override {
    if (!text.empty()) text.insert(0, prefix_);
    return {};
  }

 private:
  std::string prefix_;
};

class Replace final : public NormalizerStep {
 public:
  Replace(std::string literal, std::optional<Regex> regex, std::string content, std::string where)
      : literal_(std::move(literal)),
        regex_(std::move(regex)),
        content_(std::move(content)),
        where_(std::move(where)) {}

  Status Apply(std::string& text) const override {
    std::vector<Span> matches;
    if (regex_) {
      KVG_TRY(regex_->FindAll(text, matches));
    } else {
      for (size_t at = text.find(literal_); at != std::string::npos;
           at = text.find(literal_, at + literal_.size())) {
        matches.push_back({at, at + literal_.size()});
      }
    }
    if (matches.empty()) return {};
    const size_t limit = std::max(kGrowthFloorBytes, kGrowthFactor * text.size());
    if (matches.size() * content_.size() > limit) {
      return Unsupported(StrCat(where_, ": replacing ", matches.size(), " matches by ",
                                content_.size(), " bytes each would grow a text of ", text.size(),
                                " bytes past ", HumanBytes(static_cast<int64_t>(limit))));
    }
    std::string out;
    out.reserve(text.size() + matches.size() * content_.size());
    size_t at = 0;
    for (const Span& match : matches) {
      out.append(text, at, match.begin - at);
      out += content_;
      at = match.end;
    }
    out.append(text, at);
    text = std::move(out);
    return {};
  }

 private:
  std::string literal_;
  std::optional<Regex> regex_;
  std::string content_, where_;
};

class Strip final : public NormalizerStep {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  Status Apply(std::string& text) const override {
    size_t begin = 0, end = text.size();
    while (left_ && begin < end && HasClass(CodePointAt(text, begin).value, kSpace)) {
      begin += CodePointAt(text, begin).width;
    }
    while (right_ && end > begin && HasClass(CodePointBefore(text, end).value, kSpace)) {
      end -= CodePointBefore(text, end).width;
    }
    text = text.substr(begin, end - begin);
    return {};
  }
  bool CutsFront(std::string_view text) const override {
    return left_ && !text.empty() && HasClass(CodePointAt(text, 0).value, kSpace);
  }

 private:
  bool left_, right_;
};

Result<std::unique_ptr<NormalizerStep>> ParseReplace(const Json& json, const std::string& where) {
  KVG_ASSIGN(std::string content, StringField(json, "content", where));
  const Json* pattern = Member(json, "pattern");
  const std::string pattern_where = StrCat(where, ".pattern");
  if (pattern != nullptr && pattern->contains("String")) {
    KVG_ASSIGN(std::string literal, StringField(*pattern, "String", pattern_where));
    if (literal.empty()) return BadInput(StrCat(pattern_where, ".String is empty"));
    return std::unique_ptr<NormalizerStep>(
        std::make_unique<Replace>(std::move(literal), std::nullopt, std::move(content), where));
  }
  if (pattern != nullptr && pattern->contains("Regex")) {
    KVG_ASSIGN(const std::string text, StringField(*pattern, "Regex", pattern_where));
    KVG_ASSIGN(Regex regex, Regex::Compile(text, pattern_where));
    return std::unique_ptr<NormalizerStep>(
        std::make_unique<Replace>("", std::move(regex), std::move(content), where));
  }
  return BadInput(StrCat(pattern_where, " must be {\"String\": ...} or {\"Regex\": ...}"));
}

}  // namespace

std::unique_ptr<NormalizerStep> MakeUnicodeForm(bool compose, bool compatibility) {
  return std::make_unique<UnicodeForm>(compose, compatibility);
}

Status Normalizer::Add(const Json& json, const std::string& where, int depth) {
  KVG_ASSIGN(const std::string type, StringField(json, "type", where));
  KVG_TRY(CheckSteps(steps_.size(), depth, where));
  if (type == "Sequence") {
    const Json* list = Member(json, "normalizers");
    if (list == nullptr || !list->is_array()) {
      return BadInput(StrCat(where, ".normalizers is missing; a Sequence lists its steps there"));
    }
    for (size_t i = 0; i < list->size(); ++i) {
      KVG_TRY(Add((*list)[i], StrCat(where, ".normalizers[", i, "]"), depth + 1));
    }
    return {};
  }
  if (type == "NFC" || type == "NFD") {
    steps_.push_back(MakeUnicodeForm(type == "NFC", false));
  } else if (type == "NFKC" || type == "NFKD") {
    steps_.push_back(MakeUnicodeForm(type == "NFKC", true));
  } else if (type == "Prepend") {
    KVG_ASSIGN(std::string prefix, StringField(json, "prepend", where));
    steps_.push_back(std::make_unique<Prepend>(std::move(prefix)));
  } else if (type == "Replace") {
    KVG_ASSIGN(auto step, ParseReplace(json, where));
    steps_.push_back(std::move(step));
  } else if (type == "Strip") {
    KVG_ASSIGN(const bool left, BoolField(json, "strip_left", true, where));
    KVG_ASSIGN(const bool right, BoolField(json, "strip_right", true, where));
    steps_.push_back(std::make_unique<Strip>(left, right));
  } else if (type == "BertNormalizer") {
    KVG_ASSIGN(auto step, ParseBertNormalizer(json, where));
    steps_.push_back(std::move(step));
  } else if (type == "Precompiled") {
    KVG_ASSIGN(auto step, ParsePrecompiled(json, where));
    steps_.push_back(std::move(step));
  } else {
    return Unsupported(StrCat(where, ".type is ", Quoted(type),
                              "; supported normalizers are Sequence, NFC, NFD, NFKC, NFKD, "
                              "Prepend, Replace, Strip, BertNormalizer and Precompiled"));
  }
  return {};
}

Result<Normalizer> Normalizer::Parse(const Json& json, const std::string& where) {
  Normalizer normalizer;
  if (!json.is_null()) KVG_TRY(normalizer.Add(json, where, 0));
  return normalizer;
}

Status Normalizer::Apply(std::string& text, bool& at_start) const {
  for (const auto& step : steps_) {
    if (step->CutsFront(text)) at_start = false;
    KVG_TRY(step->Apply(text));
  }
  return {};
}

}  // namespace kvgauge

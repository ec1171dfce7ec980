// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/pre_tokenizer.h"

#include <utility>

#include "core/check.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/text/tokenizer/json_fields.h"
#include "src/text/tokenizer/split.h"
#include "src/text/tokenizer/unicode.h"
#include "src/text/tokenizer/vocabulary.h"

namespace kvgauge {
namespace {

// What \w is to the library that defined the Whitespace step: Rust's regex.
constexpr std::string_view kWhitespacePattern =
    R"([\p{Alphabetic}\p{L}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+|[^\p{Alphabetic}\p{L}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\s]+)";

class SplitStep final : public PreTokenizerStep {
 public:
  explicit SplitStep(Splitter splitter) : splitter_(std::move(splitter)) {}
  Status Apply(PieceList& list) const override {
    std::vector<Piece> out;
    std::vector<Span> spans;
    for (const Piece& piece : list.pieces) {
      KVG_TRY(splitter_.Split(piece.text, spans));
      for (const Span& span : spans) {
        out.push_back({piece.text.substr(span.begin, span.end - span.begin),
                       piece.at_start && span.begin == 0});
      }
    }
    list.pieces = std::move(out);
    return {};
  }

 private:
  Splitter splitter_;
};

// Replaces the text of every piece that `rewrite` has something new for.
template <class Rewrite>
void RewritePieces(PieceList& list, Rewrite rewrite) {
  for (Piece& piece : list.pieces) {
    std::string text;
    if (!rewrite(piece, text)) continue;
    list.owned.push_back(std::move(text));
    piece.text = list.owned.back();
  }
}

class PrefixSpaceStep final : public PreTokenizerStep {
 public:
  Status Apply(PieceList& list) const override {
    RewritePieces(list, [](const Piece& piece, std::string& text) {
      if (piece.text.starts_with(' ')) return false;
      text = StrCat(" ", piece.text);
      return true;
    });
    return {};
  }
};

class ToAlphabetStep final : public PreTokenizerStep {
 public:
  Status Apply(PieceList& list) const override {
    RewritePieces(list, [](const Piece& piece, std::string& text) {
      text = BytesToAlphabet(piece.text);
      return true;
    });
    return {};
  }
};

class FromAlphabetStep final : public PreTokenizerStep {
 public:
  Status Apply(PieceList& list) const override {
    RewritePieces(list, [](const Piece& piece, std::string& text) {
      std::optional<std::string> bytes = AlphabetToBytes(piece.text);
      KVG_CHECK(bytes.has_value(), "a step after ByteLevel may cut but not rewrite");
      text = std::move(*bytes);
      return true;
    });
    return {};
  }
};

enum class PrependScheme { kFirst, kAlways, kNever };

class MetaspaceSplit final : public PreTokenizerStep {
 public:
  MetaspaceSplit(std::string mark, PrependScheme scheme, bool split)
      : mark_(std::move(mark)),
        scheme_(scheme),
        split_(split),
        splitter_(Splitter::FromLiteral(mark_, SplitBehavior::kMergedWithNext, false)) {}

  Status Apply(PieceList& list) const override {
    RewritePieces(list, [&](const Piece& piece, std::string& text) {
      for (const char c : piece.text) {
        if (c == ' ') {
          text += mark_;
        } else {
          text += c;
        }
      }
      const bool wanted =
          scheme_ == PrependScheme::kAlways || (scheme_ == PrependScheme::kFirst && piece.at_start);
      if (wanted && !text.starts_with(mark_)) text.insert(0, mark_);
      return true;
    });
    return split_ ? splitter_.Apply(list) : Status();
  }

 private:
  std::string mark_;
  PrependScheme scheme_;
  bool split_;
  SplitStep splitter_;
};

Result<SplitBehavior> BehaviorField(const Json& json, const std::string& where) {
  const Json* member = Member(json, "behavior");
  // Steps that have a usual behaviour leave the key out.
  if (member == nullptr) return SplitBehavior::kIsolated;
  KVG_ASSIGN(const std::string name, StringField(json, "behavior", where));
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return WrongValue(where, "behavior", *member,
                    "known are Isolated, Removed, MergedWithPrevious, MergedWithNext, Contiguous");
}

Result<Splitter> ParseSplit(const Json& json, const std::string& where) {
  KVG_ASSIGN(const SplitBehavior behavior, BehaviorField(json, where));
  KVG_ASSIGN(const bool invert, BoolField(json, "invert", false, where));
  const Json* pattern = Member(json, "pattern");
  const std::string pattern_where = StrCat(where, ".pattern");
  if (pattern != nullptr && pattern->contains("String")) {
    KVG_ASSIGN(std::string literal, StringField(*pattern, "String", pattern_where));
    if (literal.empty()) return BadInput(StrCat(pattern_where, ".String is empty"));
    return Splitter::FromLiteral(std::move(literal), behavior, invert);
  }
  if (pattern != nullptr && pattern->contains("Regex")) {
    KVG_ASSIGN(const std::string text, StringField(*pattern, "Regex", pattern_where));
    return Splitter::FromRegex(text, behavior, invert, pattern_where);
  }
  return BadInput(StrCat(pattern_where, " must be {\"String\": ...} or {\"Regex\": ...}"));
}

Result<std::unique_ptr<PreTokenizerStep>> ParseMetaspace(const Json& json,
                                                         const std::string& where) {
  std::string mark(kSpaceMark);
  if (Member(json, "replacement") != nullptr) {
    KVG_ASSIGN(mark, StringField(json, "replacement", where));
    if (mark.empty() || Utf8Width(mark[0]) != mark.size()) {
      return BadInput(StrCat(where, ".replacement is ", Quoted(mark), "; it is one character"));
    }
  }
  PrependScheme scheme = PrependScheme::kAlways;
  if (const Json* member = Member(json, "prepend_scheme")) {
    if (*member == "first") {
      scheme = PrependScheme::kFirst;
    } else if (*member == "never") {
      scheme = PrependScheme::kNever;
    } else if (*member != "always") {
      return WrongValue(where, "prepend_scheme", *member, "known are first, always, never");
    }
  }
  // The key of older files; false there means never.
  KVG_ASSIGN(const bool prefix, BoolField(json, "add_prefix_space", true, where));
  if (!prefix) scheme = PrependScheme::kNever;
  KVG_ASSIGN(const bool split, BoolField(json, "split", true, where));
  return std::unique_ptr<PreTokenizerStep>(
      std::make_unique<MetaspaceSplit>(std::move(mark), scheme, split));
}

}  // namespace

Status PreTokenizer::AddByteLevel(bool add_prefix_space, bool use_regex, const std::string& where) {
  if (byte_level_) return Unsupported(StrCat(where, ": a second ByteLevel step"));
  byte_level_ = true;
  if (add_prefix_space) steps_.push_back(std::make_unique<PrefixSpaceStep>());
  if (use_regex) {
    KVG_ASSIGN(Splitter splitter, Splitter::FromRegex(TextOf(HotPattern::kGpt2),
                                                      SplitBehavior::kIsolated, false, where));
    steps_.push_back(std::make_unique<SplitStep>(std::move(splitter)));
  }
  return {};
}

Status PreTokenizer::Add(const Json& json, const std::string& where, int depth) {
  KVG_ASSIGN(const std::string type, StringField(json, "type", where));
  KVG_TRY(CheckSteps(steps_.size(), depth, where));
  if (type == "Sequence") {
    const Json* list = Member(json, "pretokenizers");
    if (list == nullptr || !list->is_array()) {
      return BadInput(StrCat(where, ".pretokenizers is missing; a Sequence lists its steps there"));
    }
    for (size_t i = 0; i < list->size(); ++i) {
      KVG_TRY(Add((*list)[i], StrCat(where, ".pretokenizers[", i, "]"), depth + 1));
    }
    return {};
  }
  if (byte_level_ && !mapped_ && type != "ByteLevel") {
    steps_.push_back(std::make_unique<ToAlphabetStep>());
    mapped_ = true;
  }
  const auto add_split = [&](Splitter splitter) {
    steps_.push_back(std::make_unique<SplitStep>(std::move(splitter)));
  };
  if (type == "Split") {
    KVG_ASSIGN(Splitter splitter, ParseSplit(json, where));
    add_split(std::move(splitter));
  } else if (type == "ByteLevel") {
    KVG_ASSIGN(const bool prefix, BoolField(json, "add_prefix_space", true, where));
    KVG_ASSIGN(const bool use_regex, BoolField(json, "use_regex", true, where));
    KVG_TRY(AddByteLevel(prefix, use_regex, where));
  } else if (type == "Digits") {
    KVG_ASSIGN(const bool individual, BoolField(json, "individual_digits", false, where));
    add_split(
        Splitter::FromDigits(individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
  } else if (type == "Punctuation") {
    KVG_ASSIGN(const SplitBehavior behavior, BehaviorField(json, where));
    add_split(Splitter::FromClasses(kOldPunctuation, behavior));
  } else if (type == "WhitespaceSplit") {
    add_split(Splitter::FromClasses(kSpace, SplitBehavior::kRemoved));
  } else if (type == "BertPreTokenizer") {
    add_split(Splitter::FromClasses(kSpace, SplitBehavior::kRemoved));
    add_split(Splitter::FromClasses(kOldPunctuation, SplitBehavior::kIsolated));
  } else if (type == "Whitespace") {
    KVG_ASSIGN(Splitter splitter,
               Splitter::FromRegex(kWhitespacePattern, SplitBehavior::kRemoved, true, where));
    add_split(std::move(splitter));
  } else if (type == "Metaspace") {
    if (byte_level_) return Unsupported(StrCat(where, ": Metaspace after ByteLevel"));
    KVG_ASSIGN(auto step, ParseMetaspace(json, where));
    steps_.push_back(std::move(step));
  } else {
    return Unsupported(StrCat(where, ".type is ", Quoted(type),
                              "; supported pre-tokenizers are Sequence, Split, ByteLevel, Digits, "
                              "Metaspace, Punctuation, Whitespace, WhitespaceSplit and "
                              "BertPreTokenizer"));
  }
  return {};
}

Result<PreTokenizer> PreTokenizer::Parse(const Json& json, const std::string& where) {
  PreTokenizer pre_tokenizer;
  if (!json.is_null()) KVG_TRY(pre_tokenizer.Add(json, where, 0));
  if (pre_tokenizer.mapped_) pre_tokenizer.steps_.push_back(std::make_unique<FromAlphabetStep>());
  return pre_tokenizer;
}

Status PreTokenizer::Apply(PieceList& list) const {
  for (const auto& step : steps_) KVG_TRY(step->Apply(list));
  return {};
}

}  // namespace kvgauge

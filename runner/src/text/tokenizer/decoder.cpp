// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/decoder.h"

#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "src/text/tokenizer/decoder_steps.h"
#include "src/text/tokenizer/json_fields.h"
#include "src/text/tokenizer/unicode.h"

namespace kvgauge {
namespace {

constexpr int64_t kMaxStrip = 1 << 20;
constexpr size_t kMaxReplacementBytes = 4096;

Result<std::string> CharacterField(const Json& json, std::string_view key,
                                   const std::string& where) {
  KVG_ASSIGN(std::string text, StringField(json, key, where));
  if (text.empty() || Utf8Width(text[0]) != text.size()) {
    return BadInput(StrCat(where, ".", key, " is ", Quoted(text), "; it is one character"));
  }
  return text;
}

Result<size_t> CountField(const Json& json, std::string_view key, const std::string& where) {
  KVG_ASSIGN(const int64_t count, IntField(json, key, where));
  if (count < 0 || count > kMaxStrip) {
    return WrongValue(where, key, *Member(json, key), StrCat("it lies in [0, ", kMaxStrip, "]"));
  }
  return static_cast<size_t>(count);
}

}  // namespace

class DecodeChain::Sink final : public DecodeStep {
 public:
  void Push(std::string text) override { text_ += text; }
  void Finish() override {}
  void MoveTo(std::string& out) {
    out += text_;
    text_.clear();
  }

 private:
  std::string text_;
};

DecodeChain::DecodeChain(std::vector<std::unique_ptr<DecodeStep>> steps)
    : steps_(std::move(steps)) {
  steps_.push_back(std::make_unique<Sink>());
  for (size_t i = 0; i + 1 < steps_.size(); ++i) steps_[i]->set_next(steps_[i + 1].get());
}

void DecodeChain::Push(std::string_view token, std::string& out) {
  steps_.front()->Push(std::string(token));
  static_cast<Sink&>(*steps_.back()).MoveTo(out);
}

void DecodeChain::Finish(std::string& out) {
  steps_.front()->Finish();
  static_cast<Sink&>(*steps_.back()).MoveTo(out);
}

Status Decoder::Add(const Json& json, const std::string& where, int depth) {
  KVG_ASSIGN(const std::string type, StringField(json, "type", where));
  KVG_TRY(CheckSteps(steps_.size(), depth, where));
  if (type == "Sequence") {
    const Json* list = Member(json, "decoders");
    if (list == nullptr || !list->is_array()) {
      return BadInput(StrCat(where, ".decoders is missing; a Sequence lists its steps there"));
    }
    for (size_t i = 0; i < list->size(); ++i) {
      KVG_TRY(Add((*list)[i], StrCat(where, ".decoders[", i, "]"), depth + 1));
    }
    return {};
  }
  DecoderStep step{.kind = DecoderKind::kFuse};
  if (type == "ByteLevel") {
    step.kind = DecoderKind::kByteLevel;
  } else if (type == "ByteFallback") {
    step.kind = DecoderKind::kByteFallback;
  } else if (type == "Fuse") {
    step.kind = DecoderKind::kFuse;
  } else if (type == "Replace") {
    step.kind = DecoderKind::kReplace;
    const Json* pattern = Member(json, "pattern");
    if (pattern == nullptr || !pattern->contains("String")) {
      return Unsupported(StrCat(where, ".pattern: a decoder replaces {\"String\": ...} only"));
    }
    KVG_ASSIGN(step.pattern, StringField(*pattern, "String", StrCat(where, ".pattern")));
    KVG_ASSIGN(step.content, StringField(json, "content", where));
    if (step.pattern.empty()) return BadInput(StrCat(where, ".pattern.String is empty"));
    if (step.content.size() > kMaxReplacementBytes) {
      return Unsupported(StrCat(where, ".content has ", step.content.size(), " bytes; at most ",
                                kMaxReplacementBytes));
    }
  } else if (type == "Strip") {
    step.kind = DecoderKind::kStrip;
    KVG_ASSIGN(step.pattern, CharacterField(json, "content", where));
    KVG_ASSIGN(step.start, CountField(json, "start", where));
    KVG_ASSIGN(step.stop, CountField(json, "stop", where));
  } else if (type == "Metaspace") {
    step.kind = DecoderKind::kMetaspace;
    step.pattern = kSpaceMark;
    if (Member(json, "replacement") != nullptr) {
      KVG_ASSIGN(step.pattern, CharacterField(json, "replacement", where));
    }
    KVG_ASSIGN(const bool prefix, BoolField(json, "add_prefix_space", true, where));
    const Json* scheme = Member(json, "prepend_scheme");
    step.drop_first = prefix && !(scheme != nullptr && *scheme == "never");
  } else if (type == "WordPiece") {
    step.kind = DecoderKind::kWordPiece;
    KVG_ASSIGN(step.pattern, StringField(json, "prefix", where));
    KVG_ASSIGN(step.clean_up, BoolField(json, "cleanup", true, where));
  } else {
    return Unsupported(StrCat(where, ".type is ", Quoted(type),
                              "; supported decoders are Sequence, ByteLevel, Replace, "
                              "ByteFallback, Fuse, Strip, Metaspace and WordPiece"));
  }
  steps_.push_back(std::move(step));
  return {};
}

Result<Decoder> Decoder::Parse(const Json& json, const std::string& where) {
  Decoder decoder;
  if (json.is_null()) {
    decoder.join_with_spaces_ = true;
    return decoder;
  }
  KVG_TRY(decoder.Add(json, where, 0));
  size_t growth = 1;
  for (const DecoderStep& step : decoder.steps_) {
    if (step.kind == DecoderKind::kReplace && step.content.size() > step.pattern.size()) {
      growth *= step.content.size();
    }
    if (growth > kMaxReplacementBytes) {
      return Unsupported(StrCat(where, ": its Replace steps together grow a text more than ",
                                kMaxReplacementBytes, " times"));
    }
  }
  return decoder;
}

Decoder Decoder::ByteLevel() {
  Decoder decoder;
  decoder.steps_.push_back({.kind = DecoderKind::kByteLevel});
  return decoder;
}

Decoder Decoder::SentencePiece(bool strip_prefix) {
  Decoder decoder;
  decoder.steps_.push_back(
      {.kind = DecoderKind::kReplace, .pattern = std::string(kSpaceMark), .content = " "});
  decoder.steps_.push_back({.kind = DecoderKind::kPieceBytes});
  decoder.steps_.push_back({.kind = DecoderKind::kFuse});
  if (strip_prefix) {
    decoder.steps_.push_back({.kind = DecoderKind::kStrip, .pattern = " ", .start = 1});
  }
  return decoder;
}

DecodeChain Decoder::Start(bool clean_up) const {
  std::vector<std::unique_ptr<DecodeStep>> steps;
  bool fused = false;
  for (const DecoderStep& step : steps_) {
    const bool whole = step.kind == DecoderKind::kReplace ||
                       step.kind == DecoderKind::kByteFallback ||
                       step.kind == DecoderKind::kByteLevel;
    // Stretches never part a character, so a pattern of one character needs no gathering.
    const bool one_character =
        step.kind == DecoderKind::kReplace && Utf8Width(step.pattern[0]) == step.pattern.size();
    if (fused && whole && !one_character) steps.push_back(MakeGatherStep());
    steps.push_back(MakeDecodeStep(step, fused));
    fused |= step.kind == DecoderKind::kFuse || step.kind == DecoderKind::kByteLevel;
  }
  if (join_with_spaces_) steps.push_back(MakeJoinStep());
  if (clean_up) steps.push_back(MakeCleanUpStep());
  return DecodeChain(std::move(steps));
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/decoder_steps.h"

#include <algorithm>
#include <utility>

#include "core/strings.h"
#include "core/utf8.h"
#include "src/text/tokenizer/unicode.h"
#include "src/text/tokenizer/vocabulary.h"

namespace kvgauge {
namespace {

std::string ReplaceAll(const std::string& text, std::string_view pattern,
                       std::string_view content) {
  std::string out;
  size_t at = 0;
  for (size_t found = text.find(pattern); found != std::string::npos;
       found = text.find(pattern, at)) {
    out.append(text, at, found - at);
    out += content;
    at = found + pattern.size();
  }
  out.append(text, at);
  return out;
}

class ReplaceStep final : public DecodeStep {
 public:
  ReplaceStep(std::string pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void Push(std::string text) override { next_->Push(ReplaceAll(text, pattern_, content_)); }

 private:
  std::string pattern_, content_;
};

// Bytes of the alphabet, decoded as one string; a token with other characters is its own text.
class ByteLevelStep final : public DecodeStep {
 public:
  void Push(std::string text) override {
    std::optional<std::string> bytes = AlphabetToBytes(text);
    bytes_ += bytes ? *bytes : text;
    Take(false);
  }
  void Finish() override {
    Take(true);
    next_->Finish();
  }

 private:
  void Take(bool last) {
    std::string out;
    TakeUtf8(bytes_, last, out);
    if (!out.empty()) next_->Push(std::move(out));
  }
  std::string bytes_;
};

// A run of <0xHH> tokens is text when all of it is well-formed, else one U+FFFD per byte: what the
// run means is known only at its end.
class ByteFallbackStep final : public DecodeStep {
 public:
  void Push(std::string text) override {
    if (const std::optional<uint8_t> byte = ByteOfFallbackToken(text)) {
      run_ += static_cast<char>(*byte);
      return;
    }
    Flush();
    next_->Push(std::move(text));
  }
  void Finish() override {
    Flush();
    next_->Finish();
  }

 private:
  void Flush() {
    if (run_.empty()) return;
    std::string out;
    if (FindInvalidUtf8(run_) == std::string_view::npos) {
      out = std::exchange(run_, {});
    } else {
      for (size_t i = 0; i < run_.size(); ++i) AppendUtf8(out, 0xfffd);
      run_.clear();
    }
    next_->Push(std::move(out));
  }
  std::string run_;
};

// As the SentencePiece library reads byte tokens: every ill-formed byte is a U+FFFD of its own, and
// well-formed neighbours stay. At most three bytes wait.
class PieceBytesStep final : public DecodeStep {
 public:
  void Push(std::string text) override {
    if (const std::optional<uint8_t> byte = ByteOfFallbackToken(text)) {
      run_ += static_cast<char>(*byte);
      Take(false);
      return;
    }
    Take(true);
    next_->Push(std::move(text));
  }
  void Finish() override {
    Take(true);
    next_->Finish();
  }

 private:
  void Take(bool last) {
    // TakeUtf8 tells which bytes could still become a character; the rest is settled.
    std::string open = run_, ignored;
    TakeUtf8(open, last, ignored);
    const size_t settled = run_.size() - open.size();
    if (settled == 0) return;
    // SentencePiece gives one U+FFFD for each byte that is part of no character.
    std::string out;
    for (std::string_view left = std::string_view(run_).substr(0, settled); !left.empty();) {
      const Utf8Start start = ReadUtf8(left);
      const size_t width = start.complete ? start.width : 1;
      if (start.complete) {
        out.append(left.substr(0, width));
      } else {
        AppendUtf8(out, 0xfffd);
      }
      left.remove_prefix(width);
    }
    run_.erase(0, settled);
    next_->Push(std::move(out));
  }
  std::string run_;
};

class FuseStep final : public DecodeStep {
 public:
  void Push(std::string text) override { next_->Push(std::move(text)); }
};

class GatherStep final : public DecodeStep {
 public:
  void Push(std::string text) override { all_ += text; }
  void Finish() override {
    next_->Push(std::exchange(all_, {}));
    next_->Finish();
  }

 private:
  std::string all_;
};

// Takes up to `start` marks off the front and `stop` off the end, of every token or of the one
// text.
class StripStep final : public DecodeStep {
 public:
  StripStep(std::string mark, size_t start, size_t stop, bool fused)
      : mark_(std::move(mark)), start_(start), stop_(stop), fused_(fused), left_(start) {}

  void Push(std::string text) override {
    if (!fused_) left_ = start_;
    std::string_view rest = text;
    while (left_ > 0 && rest.starts_with(mark_)) {
      rest.remove_prefix(mark_.size());
      --left_;
    }
    if (!rest.empty()) left_ = 0;
    held_ += rest;
    if (!fused_) {
      DropEnd();
      next_->Push(std::exchange(held_, {}));
      return;
    }
    // Marks at the end may be the last ones of the text.
    size_t end = held_.size();
    for (size_t i = 0; i < stop_ && EndsWithMark(end); ++i) end -= mark_.size();
    if (end == 0) return;
    std::string out = held_.substr(0, end);
    held_.erase(0, end);
    next_->Push(std::move(out));
  }
  void Finish() override {
    if (fused_) {
      DropEnd();
      if (!held_.empty()) next_->Push(std::exchange(held_, {}));
    }
    next_->Finish();
  }

 private:
  bool EndsWithMark(size_t end) const {
    return std::string_view(held_).substr(0, end).ends_with(mark_);
  }
  void DropEnd() {
    for (size_t i = 0; i < stop_ && EndsWithMark(held_.size()); ++i) {
      held_.resize(held_.size() - mark_.size());
    }
  }
  std::string mark_;
  size_t start_, stop_;
  bool fused_;
  size_t left_;  // marks that may still come off the front
  std::string held_;
};

class MetaspaceStep final : public DecodeStep {
 public:
  MetaspaceStep(std::string mark, bool drop_first, bool fused)
      : mark_(std::move(mark)), dropping_(drop_first), fused_(fused) {}
  void Push(std::string text) override {
    const std::string_view content = dropping_ ? "" : " ";
    if (!fused_) dropping_ = false;
    next_->Push(ReplaceAll(text, mark_, content));
  }

 private:
  std::string mark_;
  bool dropping_, fused_;
};

// Words with a space between each two; a token inside a word loses what says so.
class WordPieceStep final : public DecodeStep {
 public:
  WordPieceStep(std::string continues, bool clean_up)
      : continues_(std::move(continues)), clean_up_(clean_up) {}
  void Push(std::string text) override {
    if (first_) {
      first_ = false;
    } else if (text.starts_with(continues_)) {
      text.erase(0, continues_.size());
    } else {
      text.insert(0, " ");
    }
    // The library's own clean-up has one rule more.
    if (clean_up_) text = ReplaceAll(CleanUpSpaces(std::move(text)), " do not", " don't");
    next_->Push(std::move(text));
  }

 private:
  std::string continues_;
  bool clean_up_, first_ = true;
};

class JoinStep final : public DecodeStep {
 public:
  void Push(std::string text) override {
    next_->Push(first_ ? std::move(text) : StrCat(" ", text));
    first_ = false;
  }

 private:
  bool first_ = true;
};

// All patterns begin with a space, are at most four bytes long and hold only these characters.
constexpr std::string_view kCleanUpCharacters = " .?!,'ntmsver";
constexpr size_t kCleanUpReach = 4;

// Emits a text up to where no pattern can reach across: behind a character that is in no pattern,
// or where no pattern has begun lately.
class CleanUpStep final : public DecodeStep {
 public:
  void Push(std::string text) override {
    held_ += text;
    size_t cut = held_.size();
    while (cut > 0 && !IsBoundary(cut)) --cut;
    if (cut == 0) return;
    next_->Push(CleanUpSpaces(held_.substr(0, cut)));
    held_.erase(0, cut);
  }
  void Finish() override {
    if (!held_.empty()) next_->Push(CleanUpSpaces(std::exchange(held_, {})));
    next_->Finish();
  }

 private:
  bool IsBoundary(size_t at) const {
    if (kCleanUpCharacters.find(held_[at - 1]) == std::string_view::npos) return true;
    if (at < kCleanUpReach) return false;
    return held_.find(' ', at - kCleanUpReach) >= at;
  }
  std::string held_;
};

}  // namespace

std::string CleanUpSpaces(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},     {" ?", "?"},   {" !", "!"},   {" ,", ","},     {" ' ", "'"},
      {" n't", "n't"}, {" 'm", "'m"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [pattern, content] : kRules) text = ReplaceAll(text, pattern, content);
  return text;
}

std::unique_ptr<DecodeStep> MakeDecodeStep(const DecoderStep& step, bool fused) {
  switch (step.kind) {
    case DecoderKind::kByteLevel:
      return std::make_unique<ByteLevelStep>();
    case DecoderKind::kReplace:
      return std::make_unique<ReplaceStep>(step.pattern, step.content);
    case DecoderKind::kByteFallback:
      return std::make_unique<ByteFallbackStep>();
    case DecoderKind::kPieceBytes:
      return std::make_unique<PieceBytesStep>();
    case DecoderKind::kStrip:
      return std::make_unique<StripStep>(step.pattern, step.start, step.stop, fused);
    case DecoderKind::kMetaspace:
      return std::make_unique<MetaspaceStep>(step.pattern, step.drop_first, fused);
    case DecoderKind::kWordPiece:
      return std::make_unique<WordPieceStep>(step.pattern, step.clean_up);
    case DecoderKind::kFuse:
      break;
  }
  return std::make_unique<FuseStep>();
}

std::unique_ptr<DecodeStep> MakeGatherStep() { return std::make_unique<GatherStep>(); }
std::unique_ptr<DecodeStep> MakeJoinStep() { return std::make_unique<JoinStep>(); }
std::unique_ptr<DecodeStep> MakeCleanUpStep() { return std::make_unique<CleanUpStep>(); }

}  // namespace kvgauge

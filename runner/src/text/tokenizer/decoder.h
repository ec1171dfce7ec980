// SPDX-License-Identifier: Apache-2.0
// Token spellings back into text, one token at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"

namespace kvgauge {

// One stage of a running decode: takes tokens (after Fuse or ByteLevel: stretches of the one text)
// and hands what is certain to the next.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  virtual void Push(std::string text) = 0;
  virtual void Finish() { next_->Finish(); }
  void set_next(DecodeStep* next) { next_ = next; }

 protected:
  DecodeStep* next_ = nullptr;
};

// A running decode; belongs to one thread.
class DecodeChain {
 public:
  explicit DecodeChain(std::vector<std::unique_ptr<DecodeStep>> steps);
  DecodeChain(DecodeChain&&) = default;
  DecodeChain& operator=(DecodeChain&&) = default;

  // Appends what became certain.
  void Push(std::string_view token, std::string& out);
  void Finish(std::string& out);

 private:
  class Sink;
  std::vector<std::unique_ptr<DecodeStep>> steps_;
};

enum class DecoderKind {
  kByteLevel,
  kReplace,
  kByteFallback,
  kPieceBytes,
  kFuse,
  kStrip,
  kMetaspace,
  kWordPiece
};

struct DecoderStep {
  DecoderKind kind;
  std::string pattern = {},
              content = {};    // Replace; Strip and Metaspace: the character is `pattern`
  size_t start = 0, stop = 0;  // Strip: how many at most
  bool drop_first = false;     // Metaspace: marks of the first token vanish
  bool clean_up = false;       // WordPiece: of each token; `pattern` begins those inside words
};

// The recipe of a decode. Immutable and safe to share.
class Decoder {
 public:
  // `json`: the value of "decoder", null for none: tokens are then joined by spaces.
  static Result<Decoder> Parse(const Json& json, const std::string& where);
  static Decoder ByteLevel();
  static Decoder Plain() { return {}; }  // the spellings as they are, joined by nothing
  // SentencePiece: marks to spaces, byte tokens together, one leading space off if `strip_prefix`.
  static Decoder SentencePiece(bool strip_prefix);

  // With `clean_up`, the spaces before punctuation and English contractions are taken out.
  DecodeChain Start(bool clean_up) const;

 private:
  Status Add(const Json& json, const std::string& where, int depth);

  std::vector<DecoderStep> steps_;
  bool join_with_spaces_ = false;
};

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one piece: the adjacent pair of lowest rank is merged, the leftmost of
// equals, until no pair has a rank.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "src/text/tokenizer/vocabulary.h"

namespace kvgauge {

// How a piece becomes ids. Immutable and safe to share.
class PieceModel {
 public:
  virtual ~PieceModel() = default;
  // Appends the ids of `piece` (well-formed UTF-8; any bytes for a byte-level model).
  virtual void Encode(std::string_view piece, std::vector<int32_t>& out) const = 0;
  // What each unknown token of `piece` stands for, in order, where tokens are shown as that; empty:
  // they are shown as the unknown token.
  virtual std::vector<std::string> UnknownIn(std::string_view /*piece*/) const { return {}; }
};

struct BpeMerge {
  std::string left, right;
};

struct BpeOptions {
  bool byte_level = false;     // pieces are raw bytes, the vocabulary is spelled in the alphabet
  bool byte_fallback = false;  // unknown characters become <0xHH> tokens where all exist
  bool fuse_unk = false;
  bool ignore_merges = false;  // a piece that is a token is that token
  int32_t unk_id = -1;         // -1: unknown characters vanish
};

// `where` names the file and key for messages: "dir/tokenizer.json: model". The vocabulary must
// outlive the model.
Result<std::unique_ptr<PieceModel>> MakeBpe(const Vocabulary& vocabulary,
                                            std::span<const BpeMerge> merges,
                                            const BpeOptions& options, std::string_view where);

// tiktoken's order: any two symbols whose union is a token may be merged, of several the token of
// the lowest id first, and a piece that is a token is that token. `vocabulary` is spelled in the
// byte alphabet and has all 256 bytes; it must outlive the model.
std::unique_ptr<PieceModel> MakeRankedBpe(const Vocabulary& vocabulary);

}  // namespace kvgauge

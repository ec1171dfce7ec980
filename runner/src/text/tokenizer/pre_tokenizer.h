// SPDX-License-Identifier: Apache-2.0
// Cutting normalised text into the pieces that the model encodes one by one.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"

namespace kvgauge {

struct Piece {
  std::string_view text;
  bool at_start;  // begins where the input begins
};

// Pieces and the strings that rewritten ones live in. Views stay valid while the list lives.
struct PieceList {
  std::vector<Piece> pieces;
  std::deque<std::string> owned;
};

class PreTokenizerStep {
 public:
  virtual ~PreTokenizerStep() = default;
  virtual Status Apply(PieceList& list) const = 0;
};

// Immutable and safe to share.
class PreTokenizer {
 public:
  // `json`: the value of "pre_tokenizer", null for none. An unknown step is an error with its name.
  static Result<PreTokenizer> Parse(const Json& json, const std::string& where);

  Status Apply(PieceList& list) const;
  // True when the pieces are raw bytes for a byte-level model.
  bool byte_level() const { return byte_level_; }

 private:
  Status Add(const Json& json, const std::string& where, int depth);
  Status AddByteLevel(bool add_prefix_space, bool use_regex, const std::string& where);

  std::vector<std::unique_ptr<PreTokenizerStep>> steps_;
  bool byte_level_ = false;
  bool mapped_ = false;  // steps after ByteLevel read the alphabet, not bytes
};

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// A small trained encoder beside the measured model. It reads a text with a tokenizer of its own
// and says of each token how likely it belongs to the second of two classes, such as "stays".
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/params.h"
#include "core/result.h"

namespace kvgauge {

// The parameter of a stage that asks such an encoder: the directory of its checkpoint.
inline constexpr const char* kTaggerParam = "encoder";
ParamSpec TaggerParam();

// Facts about a checkpoint whose weights are not read yet. Immutable, shared by all copies of a
// method.
struct TaggerModel {
  std::string directory;      // where it was found
  std::string fingerprint;    // of config, tokenizer and weights; stands for the directory in keys
  int64_t weight_bytes = 0;   // as held in memory
  int64_t working_bytes = 0;  // of a pass over the longest text
};

struct TaggerToken {
  int32_t id = 0;
  std::string spelling;  // "##ing", "▁the"; or the characters that are unknown
  bool special = false;  // padding, unknown and the like; no mark is special
};

// How spellings say where words begin.
enum class WordSpelling {
  kContinued,  // tokens inside a word begin with "##"
  kBegun,      // tokens that begin a word begin with U+2581
};

// What an encoder reads before and behind a text.
enum class TextEdges {
  kOwn,    // its own first and last token
  kBerts,  // "[CLS]" and "[SEP]", which are unknown to a vocabulary without them
};

// One thread uses it at a time: it has working memory. Its answers depend on the text alone.
class TokenTagger {
 public:
  virtual ~TokenTagger() = default;
  virtual WordSpelling word_spelling() const = 0;
  // The most tokens of a pass, the two around the text included.
  virtual int64_t most_tokens() const = 0;

  // Marks are tokens that the vocabulary does not have, "[NEW0]", "[NEW1]", ...: a caller may write
  // them into a text in the place of what the tokenizer has no token for. The encoder reads each as
  // the mean of all tokens.
  static constexpr int64_t kMarks = 100;
  static std::string Mark(int64_t index);

  // The tokens of a text, without those around it.
  virtual Result<std::vector<TaggerToken>> Cut(std::string_view text) const = 0;
  // The text that spellings are, of tokens or of whole words.
  virtual std::string Join(std::span<const std::string> spellings) const = 0;
  // How likely each token of Cut is of the second class. What the longest pass does not take is
  // left out, the token behind the text first: so there may be fewer numbers than ids.
  virtual Result<std::vector<float>> Chances(std::span<const int32_t> ids, TextEdges edges) = 0;
};

// By directory, as TaggerModel has it.
using Taggers = std::map<std::string, std::shared_ptr<TokenTagger>>;

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// The tokenizer that tokenizer.json describes: added tokens, normalizer, pre-tokenizer, model,
// special tokens around the whole, decoder.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runner/tokenizer.h"
#include "src/text/tokenizer/added_tokens.h"
#include "src/text/tokenizer/bpe.h"
#include "src/text/tokenizer/decoder.h"
#include "src/text/tokenizer/normalizer.h"
#include "src/text/tokenizer/pre_tokenizer.h"
#include "src/text/tokenizer/vocabulary.h"

namespace kvgauge {

// Added tokens by id and by content, over a model's vocabulary. Shared by the tokenizer kinds.
class AddedVocabulary {
 public:
  // Keeps the first of two tokens with one content. `model_id`: the id that the model gives the
  // content, which the token's own must equal.
  Status Add(AddedToken token, std::optional<int32_t> model_id, size_t expected,
             std::string_view where);

  const AddedToken* Find(int32_t id) const;
  const AddedToken* Find(std::string_view content) const;
  bool IsSpecial(int32_t id) const;
  int64_t size() const { return tokens_.empty() ? 0 : int64_t{tokens_.rbegin()->first} + 1; }
  // Special ones first, each group in the order of the file: of two tokens with one spelling the
  // first counts.
  std::vector<const AddedToken*> InSearchOrder() const;

 private:
  std::map<int32_t, AddedToken> tokens_;
  std::vector<int32_t> order_;
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> ids_;
};

struct PipelineParts {
  std::string kind;
  std::unique_ptr<Vocabulary> vocabulary;  // the model's own
  std::unique_ptr<PieceModel> model;
  AddedVocabulary added;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::vector<int32_t> prefix, suffix;  // what the post-processor puts around a text
  Decoder decoder;
  bool clean_up = false;
  int32_t unk_id = -1;  // of a model with UnknownIn
};

class PipelineTokenizer final : public Tokenizer {
 public:
  static Result<std::unique_ptr<Tokenizer>> Make(PipelineParts parts, std::optional<int32_t> bos_id,
                                                 std::string fingerprint);

  Result<std::vector<int32_t>> Encode(std::string_view text,
                                      const EncodeOptions& options) const override;
  std::unique_ptr<Detokenizer> NewDetokenizer(const DecodeOptions& options) const override;
  std::string Kind() const override { return parts_.kind; }
  int64_t VocabSize() const override;
  std::string TokenText(int32_t id) const override;
  std::optional<int32_t> IdOf(std::string_view token_text) const override;
  bool IsSpecial(int32_t id) const override { return parts_.added.IsSpecial(id); }
  // As Encode without special tokens around the text, with what stands for each token: its
  // spelling, or the characters that are unknown (PieceModel::UnknownIn).
  Status Cut(std::string_view text, std::vector<int32_t>& ids,
             std::vector<std::string>& spellings) const;
  // The text that spellings decode to, of tokens or of several in one.
  std::string Join(std::span<const std::string> spellings) const;

 private:
  explicit PipelineTokenizer(PipelineParts parts) : parts_(std::move(parts)) {}
  // `spellings` may be null.
  Status EncodeInto(std::string_view text, bool take_special, std::vector<int32_t>& out,
                    std::vector<std::string>* spellings) const;
  Status EncodeText(std::string_view text, bool at_start, bool take_special,
                    std::vector<int32_t>& out, std::vector<std::string>* spellings) const;
  // Spells the ids of `piece` that have no spelling yet.
  void AddSpellings(std::string_view piece, std::span<const int32_t> ids,
                    std::vector<std::string>& spellings) const;

  PipelineParts parts_;
  AddedTokenFinder raw_finder_, normalized_finder_;
};

// A Detokenizer that sends the spelling of each id through a decode chain.
std::unique_ptr<Detokenizer> MakeDetokenizer(const Tokenizer& tokenizer, DecodeChain chain,
                                             bool skip_special);

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, exactly as the checkpoint's own tokenizer does it.
//
// A Tokenizer is immutable and safe to share between threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct EncodeOptions {
  bool add_special = true;    // BOS/EOS as the checkpoint's post-processor adds them
  bool parse_special = true;  // special tokens written in the text become their ids; data sets
                              // that must not inject control tokens turn this off
};

struct DecodeOptions {
  bool skip_special = true;  // special tokens vanish
  bool clean_up = true;      // spaces are taken out where the checkpoint's files ask for it
};

// One running decode. Belongs to one thread; the tokenizer must outlive it.
class Detokenizer {
 public:
  virtual ~Detokenizer() = default;
  // Appends the text that became certain.
  virtual void Push(int32_t id, std::string& out) = 0;
  virtual void Finish(std::string& out) = 0;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // `text` must be UTF-8; ill-formed bytes are replaced by U+FFFD first. Fails only when a pattern
  // of the checkpoint's own files gives up on the text; the message names it.
  virtual Result<std::vector<int32_t>> Encode(std::string_view text,
                                              const EncodeOptions& options = {}) const = 0;
  // Ids out of range decode to nothing. With skip_special, special tokens vanish.
  std::string Decode(std::span<const int32_t> ids, bool skip_special = true) const;
  // What the ids spell: special tokens stay, no space is cleaned up. For showing what was fed.
  std::string Spell(std::span<const int32_t> ids) const;
  virtual std::unique_ptr<Detokenizer> NewDetokenizer(const DecodeOptions& options) const = 0;

  virtual std::string Kind() const = 0;   // "byte-level BPE (tokenizer.json)", ...
  virtual int64_t VocabSize() const = 0;  // highest id + 1, added tokens included
  // The token's own spelling (▁ and byte marks kept), for messages and logs.
  virtual std::string TokenText(int32_t id) const = 0;
  virtual std::optional<int32_t> IdOf(std::string_view token_text) const = 0;
  virtual bool IsSpecial(int32_t id) const = 0;

  std::optional<int32_t> bos_id() const { return bos_id_; }
  const std::string& fingerprint() const { return fingerprint_; }  // SHA-256 of the files

 protected:
  std::optional<int32_t> bos_id_;
  std::string fingerprint_;
};

// A GGUF file, or a directory that holds one, has its vocabulary inside (docs/models.md). Elsewhere
// looks for tokenizer.json, tokenizer.model (SentencePiece or tiktoken), qwen.tiktoken, vocab.json
// with merges.txt, vocab.txt (WordPiece), and rwkv_vocab_*.txt (RWKV's own). A directory without
// any of them is an error that names them. tiktoken files and vocab.json hold no rules for cutting
// a text: these follow the class that tokenizer_config.json names, or else config.json; one that is
// not known is an error.
Result<std::unique_ptr<Tokenizer>> LoadTokenizer(const std::string& directory);
bool HasTokenizer(const std::string& directory);

// Decodes a stream of ids. All Push() results and Finish(), joined, are Decode(ids, skip_special):
// both run the same steps. What a later id could still change is held back: bytes of an unfinished
// character, a run of byte tokens, a space that clean-up may take out.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer, bool skip_special = true)
      : detokenizer_(tokenizer.NewDetokenizer({.skip_special = skip_special})) {}

  // The text that became certain with this id; may be empty.
  std::string Push(int32_t id);
  // What was held back, ill-formed bytes replaced.
  std::string Finish();

 private:
  std::unique_ptr<Detokenizer> detokenizer_;
};

}  // namespace kvgauge

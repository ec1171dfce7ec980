// SPDX-License-Identifier: Apache-2.0
// Encoders that classify the tokens of a text, as stages ask them (methods/token_tagger.h): BERT
// and XLM-RoBERTa with a head of two classes, from a Hugging Face directory with a tokenizer.
//
// All rows attend to each other. Weights and products are f32, whatever the file has. The result of
// a text depends on nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "kernels/ops.h"
#include "methods/token_tagger.h"

namespace kvgauge {

struct EncoderSpec;     // what config.json says
struct EncoderWeights;  // as the pass uses them
class PipelineTokenizer;
class Tokenizer;

// What is known of a checkpoint before it is loaded: reads no weight but for the fingerprint. A
// directory that holds no such encoder is an error that says what it is.
Result<std::shared_ptr<const TaggerModel>> LookAtTagger(const std::string& directory);

class TokenClassifier final : public TokenTagger {
 public:
  // Weights that are missing, misshapen, unknown or not finite are errors that name the tensor and
  // its file. It runs on `ops`, which outlives it.
  static Result<std::unique_ptr<TokenClassifier>> Load(const std::string& directory, Ops& ops);
  ~TokenClassifier() override;

  WordSpelling word_spelling() const override;
  int64_t most_tokens() const override;
  Result<std::vector<TaggerToken>> Cut(std::string_view text) const override;
  std::string Join(std::span<const std::string> spellings) const override;
  Result<std::vector<float>> Chances(std::span<const int32_t> ids, TextEdges edges) override;

  // The logits of that pass, [tokens, 2]: those of the tokens around the text are included.
  Result<std::vector<float>> Logits(std::span<const int32_t> ids,
                                    TextEdges edges = TextEdges::kOwn);
  int64_t weight_bytes() const { return weight_bytes_; }

 private:
  TokenClassifier(std::unique_ptr<EncoderSpec> spec, std::unique_ptr<Tokenizer> tokenizer,
                  Ops& ops);
  Status LoadWeights(const std::string& directory);
  std::vector<float> Run(std::span<const int32_t> ids);
  Tensor Embed(std::span<const int32_t> ids, Tensor x);

  std::unique_ptr<EncoderSpec> spec_;
  std::unique_ptr<Tokenizer> owner_;
  const PipelineTokenizer* tokenizer_;  // the same
  std::pair<int32_t, int32_t> around_;  // tokens before and behind a text
  Ops* ops_;
  std::unique_ptr<EncoderWeights> weights_;
  int64_t weight_bytes_ = 0;
};

}  // namespace kvgauge

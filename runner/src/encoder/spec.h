// SPDX-License-Identifier: Apache-2.0
// An encoder's sizes and the tensors of its checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "kernels/rows.h"
#include "methods/token_tagger.h"
#include "src/model/model_tensors.h"

namespace kvgauge {

struct EncoderSpec {
  std::string path;    // of config.json, for messages
  std::string prefix;  // of the names of its tensors
  WordSpelling word_spelling = WordSpelling::kContinued;
  int64_t vocab_size = 0, width = 0, ffn = 0, layers = 0, heads = 0;
  int64_t positions = 0;       // of the table
  int64_t first_position = 0;  // that a text's first token has
  int64_t types = 0;           // of segments: a text has the first
  Activation activation = Activation::kGelu;
  float norm_eps = 0;

  int64_t most_tokens() const { return positions - first_position; }
};

struct EncoderLayerTensors {
  LinearSpec qkv, output, up, down;
  NormSpec attention_norm, mlp_norm;
};

struct EncoderTensors {
  TensorSpec words, positions, types;
  NormSpec norm;
  std::vector<EncoderLayerTensors> layers;
  LinearSpec classifier;
};

// An error where the directory holds no encoder that puts tokens into two classes.
Result<EncoderSpec> ReadEncoderConfig(const std::string& directory);
EncoderTensors DescribeEncoder(const EncoderSpec& spec);
// Missing, misshapen and unknown tensors are errors. Reads no weight.
Status CheckEncoderWeights(const EncoderTensors& tensors, const EncoderSpec& spec,
                           const WeightSource& source);

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// "quantization_config" of a config.json: how the weights beside it are stored.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"

namespace kvgauge {

// How the rows that come to a matrix are rounded before they are multiplied, where a user wants it.
struct InputScheme {
  // What shares a scale: a row, a group of its columns, or everything (the file has the scale).
  enum class Scale { kRow, kGroup, kGiven };

  bool floats = false;  // e4m3, else integers of 8 bits
  Scale scale = Scale::kRow;
  int64_t group_size = 0;    // columns, kGroup
  bool symmetric = true;     // around 0; else integers with a zero point
  bool powers = false;       // scales are powers of two
  std::string refused = {};  // the key and why its rounding is not done; empty: it is
};

// How the matrices of one group of modules are stored.
struct QuantScheme {
  // What numbers share a scale.
  enum class Scale { kTensor, kChannel, kGroup, kBlock };

  // Names, "re:" patterns and classes of modules; empty: all that are stored so.
  std::vector<std::string> targets = {};
  std::string format = {};  // of compressed-tensors: "pack-quantized"
  int64_t bits = 8;
  bool floats = false;  // else integers
  bool symmetric = true;
  Scale scale = Scale::kTensor;
  int64_t group_size = 0;  // columns, kGroup
  int64_t block_rows = 0, block_columns = 0;
  bool ordered = false;  // a stored list says which group a column is in
  std::optional<InputScheme> inputs = std::nullopt;

  // "int4 in groups of 128, asymmetric, act order".
  std::string Title() const;
};

struct QuantizationConfig {
  enum class Method { kFp8, kCompressedTensors, kGptq, kAwq, kBitsAndBytes, kMxfp4 };

  Method method = Method::kFp8;
  std::string path;  // the config file, for messages
  std::vector<QuantScheme> schemes;
  // Modules that are stored as they were, and the key that says so.
  std::vector<std::string> plain_modules;
  std::string plain_key;
  // GPTQ: zero points are stored one smaller than they are.
  bool zero_less_one = false;
  // bitsandbytes: "nf4", "fp4" or "int8".
  std::string code;
  bool nested = false;  // its scales are quantised too

  // What a result's signature carries: "gptq: int4 in groups of 128".
  std::string Title() const;
  std::string_view name() const;
};

// That of a whole config.json; none where it has none. Keys that change numbers and are not
// understood are errors that name them.
Result<std::optional<QuantizationConfig>> ReadQuantization(const Json& config,
                                                           const std::string& origin);

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Where in a GGUF file each tensor of the checkpoint comes from.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/result.h"
#include "src/checkpoint/gguf/file.h"
#include "src/checkpoint/gguf/rows.h"

namespace kvgauge {

struct GgufOrigin {
  std::vector<const GgufTensor*> parts;  // at least one
  // The part's content is one of so many slices of its tensor, of equal size.
  int64_t slice = 0, slices = 1;
  RowOrder order = {};
  std::vector<int64_t> shape;  // that of the checkpoint
  bool plus_one = false;       // stored one larger
  bool logarithm = false;      // x is log(-x)
  bool unrounded = false;      // f32 whatever the model's type, where it lies in blocks
};

// By their names in the checkpoint. The origins view `file`. A tensor that its architecture does
// not have is an error, and so is one of a shape that the metadata does not allow.
Result<std::map<std::string, GgufOrigin>> FindGgufOrigins(const GgufFile& file);

}  // namespace kvgauge

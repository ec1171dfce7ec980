// SPDX-License-Identifier: Apache-2.0
// A model in several GGUF files, as llama.cpp's gguf-split and converter write it: which files it
// is, and their headers as one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "src/checkpoint/gguf/header.h"

namespace kvgauge {

// "dir/model-00002-of-00003.gguf": the second of three.
struct GgufPartName {
  std::string stem;  // "dir/model"
  int64_t number = 1, count = 1;

  // The path of part `number` of the same model.
  std::string PathOf(int64_t part) const;
};
// Nothing for a file that is not called so.
std::optional<GgufPartName> ParseGgufPartName(std::string_view path);

// How many files hold the model of this one, by its key split.count; 1 where it has none, or 0,
// which is what joining leaves there.
Result<int64_t> CountGgufParts(const GgufHeader& header, std::string_view path);

struct GgufPart {
  std::string path;
  GgufHeader header;
};

// The headers of a model's files in order, first to last, as one: the metadata of the first, and
// the tensors of all, sorted by name, each with the number of its file (from 0). Each file must say
// that it is this part of so many and how many tensors all have together, which must be true; no
// tensor may be in two; and what a later file has of metadata must be what the first one has.
// Precondition: at least one part.
Result<GgufHeader> JoinGgufParts(std::vector<GgufPart> parts);

}  // namespace kvgauge

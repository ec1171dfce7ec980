// SPDX-License-Identifier: Apache-2.0
// Tensors that lie in files as they are, whatever the container says about them: what
// safetensors and PyTorch's own files share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/files.h"
#include "core/result.h"
#include "runner/weights.h"

namespace kvgauge {

// A type of numbers under its name in safetensors.
struct NumberType {
  std::string_view name;
  uint64_t bits;
  std::optional<DType> dtype;  // none: known to the format, not to this project
};

// Null where no type has the name.
const NumberType* FindNumberType(std::string_view name);

struct StoredEntry {
  std::string name;
  std::string dtype_name;      // as safetensors names it
  std::optional<DType> dtype;  // none: known to the format, not to this project
  std::vector<int64_t> shape;
  // Bytes [begin, end) of the whole file.
  uint64_t begin = 0;
  uint64_t end = 0;
  // In elements, one a dimension. Empty where the numbers lie in the order of the shape; otherwise
  // the type has whole bytes, and every element lies in [begin, end).
  std::vector<int64_t> strides = {};
};

// Reads what a container says about its tensors and checks every claim against the size of the
// file. `origin` begins every message.
using ReadEntries = Result<std::vector<StoredEntry>> (*)(std::span<const uint8_t> file,
                                                         std::string_view origin);

// One kind of container in a checkpoint's directory.
struct StoredFormat {
  std::string_view single;  // name of the file that holds all
  std::string_view index;   // name of the file that lists shards
  std::string_view ending;  // of shards
  ReadEntries read;
};

Result<std::unique_ptr<WeightSource>> OpenStoredFile(const std::string& path, ReadEntries read);

// The single file or the shards; both at once, or neither, are an error.
Result<std::unique_ptr<WeightSource>> OpenStored(const std::string& directory,
                                                 const StoredFormat& format);

// Whether the directory has the single file or the index.
bool HasStored(const std::string& directory, const StoredFormat& format);

}  // namespace kvgauge

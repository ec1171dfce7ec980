// SPDX-License-Identifier: Apache-2.0
// Writes tensors and metadata as one safetensors file.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"

namespace kvgauge {

// Holds everything until Write; tensors lie in the file in the order they were added.
class SafetensorsFile {
 public:
  // Names differ; shapes hold as many numbers as there are values.
  void Add(const std::string& name, std::span<const float> values, std::vector<int64_t> shape);
  void Add(const std::string& name, std::span<const int64_t> values, std::vector<int64_t> shape);
  void SetMetadata(const std::string& key, std::string value) { metadata_[key] = std::move(value); }

  Status Write(const std::string& path) const;

 private:
  struct Entry {
    std::string name;
    const char* dtype;
    std::vector<int64_t> shape;
    int64_t begin, end;  // bytes of the data
  };
  void Append(const std::string& name, const char* dtype, std::vector<int64_t> shape,
              const void* values, size_t size_bytes);

  std::vector<Entry> entries_;
  std::map<std::string, std::string> metadata_;
  std::string data_;
};

}  // namespace kvgauge

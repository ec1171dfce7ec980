// SPDX-License-Identifier: Apache-2.0
// Whole-file reading and read-only memory maps.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"

namespace kvgauge {

// Precondition of use: config-sized files. Larger than `limit_bytes` is an error, not an
// allocation.
Result<std::string> ReadFile(const std::string& path, int64_t limit_bytes = int64_t{1} << 30);
// Writes to a temporary neighbour and renames it, so that a reader never sees half a file.
Status WriteFile(const std::string& path, std::string_view content);
bool FileExists(const std::string& path);
bool DirectoryExists(const std::string& path);
// What `errno` says against an action ("open") on `path`. A name that is not there is bad input.
Error SystemError(const std::string& path, std::string_view action);

// A file mapped read-only for as long as the object lives. Not copyable.
class MappedFile {
 public:
  static Result<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const uint8_t> bytes() const { return {data_, size_bytes_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, const uint8_t* data, size_t size_bytes)
      : path_(std::move(path)), data_(data), size_bytes_(size_bytes) {}

  std::string path_;
  const uint8_t* data_;
  size_t size_bytes_;
};

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "core/npy.h"

#include <utility>

#include "core/files.h"
#include "core/strings.h"

namespace kvgauge {

Result<NpyWriter> NpyWriter::Create(const std::string& path, int64_t rows, int64_t columns) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return SystemError(path, "create");
  std::string header =
      StrCat("{'descr': '<f4', 'fortran_order': False, 'shape': (", rows, ", ", columns, "), }");
  // Magic, version and length take 10 bytes; the whole header is a multiple of 64.
  header.append(63 - (10 + header.size()) % 64, ' ');
  header += '\n';
  const std::string magic("\x93NUMPY\x01\x00", 8);
  const auto size = static_cast<uint16_t>(header.size());
  const char length[2] = {static_cast<char>(size & 0xff), static_cast<char>(size >> 8)};
  NpyWriter writer(path, file, rows * columns);
  if (std::fwrite(magic.data(), 1, 8, file) != 8 || std::fwrite(length, 1, 2, file) != 2 ||
      std::fwrite(header.data(), 1, header.size(), file) != header.size()) {
    return SystemError(path, "write");
  }
  return writer;
}

NpyWriter::NpyWriter(NpyWriter&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, nullptr)),
      left_(other.left_) {}

NpyWriter::~NpyWriter() {
  if (file_ != nullptr) std::fclose(file_);
}

Status NpyWriter::Append(std::span<const float> values) {
  left_ -= static_cast<int64_t>(values.size());
  if (std::fwrite(values.data(), sizeof(float), values.size(), file_) != values.size()) {
    return SystemError(path_, "write");
  }
  return {};
}

Status NpyWriter::Finish() {
  if (left_ != 0) return IoError(StrCat(path_, ": ", left_, " values are missing"));
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (!closed) return SystemError(path_, "write");
  return {};
}

}  // namespace kvgauge

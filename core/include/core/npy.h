// SPDX-License-Identifier: Apache-2.0
// NumPy .npy files (format version 1.0), written row by row so that [tokens, vocab] never sits in
// memory at once.
#pragma once

#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include "core/result.h"

namespace kvgauge {

class NpyWriter {
 public:
  // Creates the file with its header for float32 [rows, columns].
  static Result<NpyWriter> Create(const std::string& path, int64_t rows, int64_t columns);
  NpyWriter(NpyWriter&& other) noexcept;
  NpyWriter& operator=(NpyWriter&&) = delete;
  ~NpyWriter();

  // values: whole rows.
  Status Append(std::span<const float> values);
  // Fails when fewer or more rows were written than announced.
  Status Finish();

 private:
  NpyWriter(std::string path, std::FILE* file, int64_t left)
      : path_(std::move(path)), file_(file), left_(left) {}

  std::string path_;
  std::FILE* file_;
  int64_t left_;  // values still to come
};

}  // namespace kvgauge

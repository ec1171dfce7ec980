// SPDX-License-Identifier: Apache-2.0
// Reading files of JSON lines that people made, without holding more than one line.
#pragma once

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "datasets/pairs.h"

namespace kvgauge {

// One line as an object; `origin` ("file:line") begins the messages, columns count characters.
Result<Json> ParsePairObject(const std::string& text, const std::string& origin);

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// Lines of a file; one that is too long is read past, not held.
class LineReader {
 public:
  explicit LineReader(std::FILE* file) : file_(file), buffer_(size_t{1} << 16) {}

  // False at the end of the file.
  bool Next(std::string& line, bool& too_long) {
    line.clear();
    too_long = false;
    bool any = false;
    while (true) {
      if (at_ == end_) {
        at_ = 0;
        end_ = std::fread(buffer_.data(), 1, buffer_.size(), file_);
        if (end_ == 0) return any;
      }
      any = true;
      const char* begin = buffer_.data() + at_;
      const auto* newline = static_cast<const char*>(std::memchr(begin, '\n', end_ - at_));
      const size_t size = newline != nullptr ? static_cast<size_t>(newline - begin) : end_ - at_;
      if (line.size() + size > static_cast<size_t>(kMaxPairBytes)) {
        too_long = true;
        line.clear();
      }
      if (!too_long) line.append(begin, size);
      at_ += size + (newline != nullptr ? 1 : 0);
      if (newline != nullptr) return true;
    }
  }

 private:
  std::FILE* file_;
  std::vector<char> buffer_;
  size_t at_ = 0, end_ = 0;
};

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Reading files of JSON lines that people made, without holding more than one line.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "core/result.h"
#include "datasets/metric.h"

namespace kvgauge {

// The lines of a file that are not blank, as the objects that they should hold.
class PairLines {
 public:
  static Result<PairLines> Open(const std::string& path);

  // Goes to the next line; false at the end, or where reading failed.
  bool Next();
  // Why Next gave false, if not for the end.
  Status status() const;
  // Back to before the first line; false where the file cannot be read twice (a pipe).
  bool Rewind();

  int64_t number() const { return number_; }  // of the line, from 1
  std::string origin() const;                 // "file:number", which begins messages
  // Errors name the column in characters. A line longer than kMaxPairBytes is one.
  Result<Json> Object() const;

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  PairLines(std::string path, std::FILE* file);
  bool ReadLine();

  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  std::vector<char> buffer_;
  size_t at_ = 0, end_ = 0;
  std::string line_;
  bool too_long_ = false;  // it was read past, not held
  int64_t number_ = 0;
};

// "prediction", "answers" and what else a metric sees of an object.
Result<MetricInput> PairOf(const Json& object, const std::string& origin);

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Reading files of JSON lines that people made, without holding more than one line.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
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

// What a line is read for. A task reads the whole response where a line also holds what was
// extracted from it; a program's test, which stands among the answers, may be blank.
enum class PairUse { kMetric, kTask, kProgram };

// "prediction", "answers" and what else a metric sees of an object.
Result<MetricInput> PairOf(const Json& object, const std::string& origin, PairUse use);

// Tells samples that a file holds twice by their "id" (or "_id"). Questions of one context may
// share it: what tells them apart is a key of kWithinId or one that scores are grouped by.
class SampleIds {
 public:
  explicit SampleIds(std::vector<std::string> by) : by_(std::move(by)) {}
  // An error that names the first line, where the sample was there before.
  Status Add(const Json& object, const PairLines& at);

 private:
  std::vector<std::string> by_;
  std::map<std::string, int64_t> first_lines_;
};

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Why cells of a run did not succeed, counted: a few lines for people instead of one a cell.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reports/store_rows.h"

namespace kvgauge {

// Reasons that differ in nothing but numbers count as one and show those of the first. Not
// thread-safe.
class ReasonTally {
 public:
  struct Line {
    SampleStatus status = SampleStatus::kFailed;
    std::string reason;  // of the first such cell
    int64_t cells = 0;
  };

  void Add(SampleStatus status, const std::string& reason, int64_t cells = 1);
  // The most frequent first; those that are as frequent in the order they came.
  std::vector<Line> Lines() const;

 private:
  struct Kind {
    std::string shape;  // the reason with its numbers taken out
    Line line;
  };
  std::vector<Kind> kinds_;
};

// "12 failed: REASON", at most so many lines, and one that counts the reasons left out.
std::vector<std::string> ReasonTexts(const std::vector<ReasonTally::Line>& lines, size_t most);

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Which rows of which tensors of a file are the rows of a tensor of the checkpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace kvgauge {

// Rows that stand side by side in the checkpoint, once in every group.
struct RowRun {
  size_t part = 0;        // which tensor of the file
  int64_t rows = 0;       // in each group
  int64_t first = 0;      // row of the part that the first group begins with
  int64_t head_rows = 0;  // above 0: heads of so many rows, which stand in pairs in the file
  // The part has this group's columns as rows: element j of row i is element i of row j there.
  bool across = false;
};

// For each group one run after the other. Without runs all rows are those of the first part.
struct RowOrder {
  int64_t groups = 1;
  std::vector<RowRun> runs;

  bool in_place() const { return runs.empty(); }
  int64_t rows_of_group() const;

  struct Place {
    const RowRun* run;
    int64_t group;
    int64_t in_run;  // of this group
    int64_t row;     // of the part; where the run goes across, none
  };
  // Precondition: !in_place(), and row < groups * rows_of_group().
  Place Of(int64_t row) const;
};

// All `rows` of one part, whose heads stand in pairs.
RowOrder PairedRows(int64_t rows, int64_t heads);

}  // namespace kvgauge

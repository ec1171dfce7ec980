// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/gguf/rows.h"

#include "core/check.h"

namespace kvgauge {
namespace {

// The row of the file that is row `row` of the checkpoint, where heads of `rows` rows stand in
// pairs: element j of half t is row 2 j + t there.
int64_t PairedRow(int64_t row, int64_t rows) {
  const int64_t half = rows / 2, in_head = row % rows;
  return row - in_head + in_head % half * 2 + in_head / half;
}

}  // namespace

int64_t RowOrder::rows_of_group() const {
  int64_t rows = 0;
  for (const RowRun& run : runs) rows += run.rows;
  return rows;
}

RowOrder::Place RowOrder::Of(int64_t row) const {
  const int64_t all = rows_of_group(), group = row / all;
  int64_t rest = row % all;
  for (const RowRun& run : runs) {
    if (rest >= run.rows) {
      rest -= run.rows;
      continue;
    }
    const int64_t at = group * run.rows + rest;
    return {&run, group, rest, run.first + (run.head_rows > 0 ? PairedRow(at, run.head_rows) : at)};
  }
  KVG_CHECK(false, "rows of a group that no run has");
  return {};
}

RowOrder PairedRows(int64_t rows, int64_t heads) {
  return {.groups = 1, .runs = {{.rows = rows, .head_rows = rows / heads}}};
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Launches of the second pass.
#pragma once

#include "cuda/attention_view.h"
#include "cuda/device/driver.h"
#include "cuda/pages_kernels.h"
#include "kernels/attention.h"

namespace kvgauge::cuda {

struct CaptureShape {
  DType dtype;
  int row_tiles;  // of 16 rows: 1 or 4
  SharedPlan shared;
};

// One page of a KV head. index0: the last entry the item's first row sees.
struct CapturePage {
  int segment, page, kv_head, index0;
};

// rows: first_row, token0, group, and count: of all rows times group.
struct WindowRequest {
  RowTile rows;
  const float* log_sum_exp;
  int64_t log_sum_exp_stride;
  float* out;  // [heads][row][column]
  int64_t head_stride, row_stride, columns, heads;
};
void CaptureWindow(const AttendCall& call, const CaptureShape& shape, const SegmentView* segments,
                   const CapturePage* pages, int64_t count, const WindowRequest& request,
                   Stream stream);

// rows: first_row, token0, and group 1; of the item, of which rows [first_row, first_row +
// row_count) are folded.
struct ColumnsRequest {
  RowTile rows;
  ColumnReduction kind;
  float threshold;
  int group, first_row, row_count;
  const float* weights;
  const float* log_sum_exp;
  int64_t log_sum_exp_stride;
  float* out;  // [heads][column]
  int64_t head_stride, columns, heads;
};
void CaptureColumns(const AttendCall& call, const CaptureShape& shape, const SegmentView* segments,
                    const CapturePage* pages, int64_t count, const ColumnsRequest& request,
                    Stream stream);

// AttentionOps::AddSinks: out [rows][heads][dim], the others [heads][rows].
struct SinkRequest {
  RowsView out;
  int64_t rows, heads, dim;
  const float* sinks;
  float* log_sum_exp;
  int64_t log_sum_exp_stride;
  float* entropy;  // or null
  int64_t entropy_stride;
};
void ShareWithSinks(const SinkRequest& request, Stream stream);

}  // namespace kvgauge::cuda

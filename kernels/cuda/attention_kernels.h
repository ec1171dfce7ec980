// SPDX-License-Identifier: Apache-2.0
// Launches of attention's kernels.
#pragma once

#include "cuda/attention_view.h"
#include "cuda/device/driver.h"

namespace kvgauge::cuda {

// One span of one segment, for one tile of rows: its fixed pages, or the others. place: of its
// states among those of all units of the call, in the order of merging.
struct SpanUnit {
  int segment, span, tile, place;
};
// The spans of a tile: places [first_unit, first_unit + units), ascending.
struct MergeJob {
  int64_t first_unit;
  int units, tile;
};

struct AttendTables {
  const SegmentView* segments;
  const RowTile* tiles;
};

struct RowResults {
  float* out;
  int64_t stride, head_stride;
  float* log_sum_exp;  // null: not wanted
  int64_t log_sum_exp_stride;
  float* entropy;
  int64_t entropy_stride;
};

// Sizes of a call to SpanAttention.
struct SpanShape {
  DType dtype;
  bool plain;     // all pages are 16-bit and multiplied as they lie, and come by stages
  int row_tiles;  // of 16 rows: 1 or 4
  int warps;      // 4, 8 or 16
  int value_stride;
  SharedPlan shared;
};
// The most that one block may use.
int64_t MostSharedBytes();
// Most dims of values, as stored, that a shape takes; most warps of a shape.
int MostValueDims(int row_tiles, int warps);

// Partial states of units: states [places][16 row_tiles], values [places][16
// row_tiles][value_stride]; the first are those of place first_unit.
void SpanAttention(const AttendCall& call, const AttendTables& tables, const SpanShape& shape,
                   const SpanUnit* units, int64_t count, int64_t first_unit, RowState* states,
                   float* values, Stream stream);
// The same of units of fixed pages.
FixedPlan FixedShared(int key_dim, int value_dim, int row_tiles);
void FixedSpans(const AttendCall& call, const AttendTables& tables, const SpanShape& shape,
                const SpanUnit* units, int64_t count, int64_t first_unit, RowState* states,
                float* values, Stream stream);
void MergeSpans(const AttendCall& call, const AttendTables& tables, const SpanShape& shape,
                const MergeJob* jobs, int64_t count, int64_t first_unit, const RowState* states,
                const float* values, const RowResults& results, Stream stream);

// Rows over 16-bit float pages, many at a time. A block takes a tile of rows over all segments of a
// head.
struct PrefillJob {
  int first_segment, segments, tile, unused;
};
struct PrefillWay {
  // Most rows of a tile; 0: these dims are not taken.
  int (*rows)(DType dtype, int key_dim, int value_dim);
  void (*attend)(const AttendCall& call, const AttendTables& tables, DType dtype,
                 const PrefillJob* jobs, int64_t count, const RowResults& results, Stream stream);
};
// What every device takes; and the same on warpgroup.h, for devices on which PrefillChoice found
// that it gives the same bits.
extern const PrefillWay kPortablePrefill, kWarpgroupPrefill;

}  // namespace kvgauge::cuda

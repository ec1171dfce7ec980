// SPDX-License-Identifier: Apache-2.0
#include "src/cache/rope_tables.h"

#include <numeric>
#include <vector>

namespace kvgauge {

Tensor MakeRotations(Ops& ops, const RopeFrequencies& frequencies, double factor,
                     const Tensor& positions, Buffer* memory) {
  const int64_t n = positions.shape[0], pairs = std::ssize(frequencies.inverse);
  *memory = ops.memory->Allocate((n + pairs + 2 * n * pairs) * 4);
  const Tensor all = memory->As(DType::kF32, {n + pairs + 2 * n * pairs});
  Tensor device_positions = all.Slice(0, n);
  device_positions.dtype = DType::kI32;
  const Tensor inverse = all.Slice(n, n + pairs);
  const Tensor tables = all.Slice(n + pairs, all.shape[0]).Reshape({2, n, pairs});
  const std::vector<float> narrow(frequencies.inverse.begin(), frequencies.inverse.end());
  ops.memory->Copy(positions, device_positions);
  ops.memory->Copy(View(narrow, {pairs}), inverse);
  ops.rows->RopeTable(device_positions.Reshape({n, 1}), inverse, {}, static_cast<float>(factor),
                      tables[0], tables[1]);
  return tables;
}

void RotateRows(Ops& ops, const RopeFrequencies& frequencies, RopeLayout layout,
                RopeDirection direction, const Tensor& positions, Tensor rows) {
  if (frequencies.inverse.empty() || positions.shape[0] == 0) return;
  Buffer memory;
  const double factor = direction == RopeDirection::kForward ? frequencies.attention_factor
                                                             : 1.0 / frequencies.attention_factor;
  const Tensor tables = MakeRotations(ops, frequencies, factor, positions, &memory);
  Tensor heads = rows;
  heads.rank = 3;
  heads.shape = {rows.shape[0], 1, rows.shape[1], 0};
  heads.stride = {rows.stride[0], rows.shape[1], 1, 0};
  ops.rows->Rope(tables[0], tables[1], layout, direction, heads);
}

RopeTables::RopeTables(Ops& ops, const RopeFrequencies& frequencies, RopeLayout layout,
                       int64_t capacity)
    : capacity_(capacity) {
  std::vector<int32_t> positions(static_cast<size_t>(capacity));
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<int32_t> every(static_cast<size_t>(kKvPageEntries));
  every.insert(every.end(), positions.begin(), positions.end());
  every_ = ops.memory->Allocate(std::ssize(every) * 4);
  ops.memory->Copy(View(every, {std::ssize(every)}), every_.As(DType::kI32, {std::ssize(every)}));
  const auto pairs = std::ssize(frequencies.inverse);
  Buffer rows_memory;
  const Tensor tables = MakeRotations(ops, frequencies, frequencies.attention_factor,
                                      View(positions, {capacity}), &rows_memory);
  // Angles of one position lie an odd number of cache lines apart: they are read together.
  constexpr int64_t kLineFloats = 16;
  const int64_t stride = ((capacity + kLineFloats - 1) / kLineFloats | 1) * kLineFloats;
  std::vector<float> rows(static_cast<size_t>(2 * capacity * pairs));
  std::vector<float> columns(static_cast<size_t>(2 * pairs * stride));
  ops.memory->Copy(tables, View(rows, {2, capacity, pairs}));
  for (int64_t t = 0; t < 2; ++t) {
    for (int64_t i = 0; i < capacity; ++i) {
      for (int64_t p = 0; p < pairs; ++p) {
        columns[static_cast<size_t>((t * pairs + p) * stride + i)] =
            rows[static_cast<size_t>((t * capacity + i) * pairs + p)];
      }
    }
  }
  memory_ = ops.memory->Allocate(2 * pairs * stride * 4);
  Tensor both = memory_.As(DType::kF32, {2, pairs, stride});
  ops.memory->Copy(View(columns, {2, pairs, stride}), both);
  both.shape[2] = capacity;
  rope_ = {.cos = both[0], .sin = both[1], .layout = layout};
}

}  // namespace kvgauge

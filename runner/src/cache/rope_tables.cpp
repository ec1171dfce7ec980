// SPDX-License-Identifier: Apache-2.0
#include "src/cache/rope_tables.h"

#include <algorithm>
#include <numeric>
#include <span>
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

void RowRotator::Rotate(const Tensor& positions, Tensor rows) {
  if (frequencies_.inverse.empty() || positions.shape[0] == 0) return;
  const bool readable = positions.device == Device::kHost;
  std::span<const int32_t> wanted;
  if (readable) wanted = {positions.i32(), static_cast<size_t>(positions.shape[0])};
  if (!readable || !std::equal(wanted.begin(), wanted.end(), turned_.begin(), turned_.end())) {
    const double factor = direction_ == RopeDirection::kForward
                              ? frequencies_.attention_factor
                              : 1.0 / frequencies_.attention_factor;
    tables_ = MakeRotations(ops_, frequencies_, factor, positions, &memory_);
    turned_.assign(wanted.begin(), wanted.end());
  }
  Tensor heads = rows;
  heads.rank = 3;
  heads.shape = {rows.shape[0], 1, rows.shape[1], 0};
  heads.stride = {rows.stride[0], rows.shape[1], 1, 0};
  ops_.rows->Rope(tables_[0], tables_[1], layout_, direction_, heads);
}

void RotateRows(Ops& ops, const RopeFrequencies& frequencies, RopeLayout layout,
                RopeDirection direction, const Tensor& positions, Tensor rows) {
  RowRotator(ops, frequencies, layout, direction).Rotate(positions, rows);
}

RopeTables::RopeTables(Ops& ops, const RopeFrequencies& frequencies, RopeLayout layout,
                       int64_t capacity)
    : frequencies_(frequencies), capacity_(capacity) {
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

std::shared_ptr<const RopeTables> RopeTablesStore::Get(Ops& ops, const RopeFrequencies& frequencies,
                                                       RopeLayout layout, int64_t positions,
                                                       int64_t capacity) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(held_, [](const auto& tables) { return tables.expired(); });
  for (const std::weak_ptr<const RopeTables>& held : held_) {
    std::shared_ptr<const RopeTables> tables = held.lock();
    if (tables != nullptr && tables->capacity() >= positions && tables->rope().layout == layout &&
        tables->frequencies() == frequencies) {
      return tables;
    }
  }
  auto made = std::make_shared<const RopeTables>(ops, frequencies, layout, capacity);
  held_.push_back(made);
  return made;
}

}  // namespace kvgauge

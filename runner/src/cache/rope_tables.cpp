// SPDX-License-Identifier: Apache-2.0
#include "src/cache/rope_tables.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

namespace kvgauge {

namespace {

int64_t AxesOf(const Tensor& positions) { return positions.rank == 2 ? positions.shape[1] : 1; }

}  // namespace

int64_t RotationNumbers(const RopeFrequencies& frequencies, const Tensor& positions) {
  const int64_t n = positions.shape[0], pairs = std::ssize(frequencies.inverse);
  const int64_t axes = AxesOf(positions), axis_count = axes > 1 ? pairs : 0;
  return axes * n + axis_count + pairs + 2 * n * pairs;
}

Tensor MakeRotations(Ops& ops, const RopeFrequencies& frequencies, double factor,
                     const Tensor& positions, Buffer* memory) {
  const int64_t numbers = RotationNumbers(frequencies, positions);
  *memory = ops.memory->Allocate(numbers * 4);
  return MakeRotations(ops, frequencies, factor, positions, memory->As(DType::kF32, {numbers}));
}

Tensor MakeRotations(Ops& ops, const RopeFrequencies& frequencies, double factor,
                     const Tensor& positions, const Tensor& memory) {
  const int64_t n = positions.shape[0], pairs = std::ssize(frequencies.inverse);
  const int64_t axes = AxesOf(positions), axis_count = axes > 1 ? pairs : 0;
  Tensor rest = memory;
  const auto take = [&](int64_t count) {
    const Tensor taken = rest.Slice(0, count);
    rest = rest.Slice(count, rest.shape[0]);
    return taken;
  };
  Tensor device_positions = take(axes * n), axis = take(axis_count);
  device_positions.dtype = axis.dtype = DType::kI32;
  const Tensor inverse = take(pairs);
  const Tensor tables = rest.Reshape({2, n, pairs});
  const std::vector<float> narrow(frequencies.inverse.begin(), frequencies.inverse.end());
  ops.memory->Copy(positions.Reshape({axes * n}), device_positions);
  ops.memory->Copy(View(narrow, {pairs}), inverse);
  if (axes > 1) ops.memory->Copy(View(frequencies.axis, {pairs}), axis);
  ops.rows->RopeTable(device_positions.Reshape({n, axes}), inverse, axes > 1 ? axis : Tensor(),
                      static_cast<float>(factor), tables[0], tables[1]);
  return tables;
}

Tensor PlacedPositions(Ops& ops, const RopeFrequencies& frequencies, const RopePlaces* places,
                       const Tensor& positions, std::vector<int32_t>* memory) {
  if (places == nullptr) return positions;
  const int64_t n = positions.shape[0], axes = frequencies.axis.empty() ? 1 : 3;
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  ops.memory->Copy(positions, View(tokens, {n}));
  memory->clear();
  for (const int32_t token : tokens) {
    const RopePosition place = places->At(token);
    memory->insert(memory->end(), place.begin(), place.begin() + axes);
  }
  return axes == 1 ? View(*memory, {n}) : View(*memory, {n, axes});
}

void RowRotator::Rotate(const Tensor& positions, Tensor rows) {
  if (frequencies_.inverse.empty() || positions.shape[0] == 0) return;
  const bool readable = positions.device == Device::kHost;
  std::span<const int32_t> wanted;
  if (readable) wanted = {positions.i32(), static_cast<size_t>(positions.shape[0])};
  if (!readable || !std::equal(wanted.begin(), wanted.end(), turned_.begin(), turned_.end())) {
    std::vector<int32_t> placed;
    tables_ =
        MakeRotations(ops_, frequencies_, RotationFactor(frequencies_, direction_),
                      PlacedPositions(ops_, frequencies_, places_, positions, &placed), &memory_);
    turned_.assign(wanted.begin(), wanted.end());
  }
  TurnRows(ops_, tables_, layout_, direction_, rows);
}

void TurnRows(Ops& ops, const Tensor& rotations, RopeLayout layout, RopeDirection direction,
              Tensor rows) {
  rows.rank = 3;
  rows.shape = {rows.shape[0], 1, rows.shape[1], 0};
  rows.stride = {rows.stride[0], rows.shape[2], 1, 0};
  ops.rows->Rope(rotations[0], rotations[1], layout, direction, rows);
}

void RotateRows(Ops& ops, const RopeFrequencies& frequencies, const RopePlaces* places,
                RopeLayout layout, RopeDirection direction, const Tensor& positions, Tensor rows) {
  RowRotator(ops, frequencies, places, layout, direction).Rotate(positions, rows);
}

RopeTables::RopeTables(Ops& ops, const RopeFrequencies& frequencies,
                       std::shared_ptr<const RopePlaces> places, RopeLayout layout,
                       int64_t capacity)
    : frequencies_(frequencies), places_(std::move(places)), capacity_(capacity) {
  std::vector<int32_t> positions(static_cast<size_t>(capacity));
  std::iota(positions.begin(), positions.end(), 0);
  std::vector<int32_t> every(static_cast<size_t>(kKvPageEntries));
  every.insert(every.end(), positions.begin(), positions.end());
  every_ = ops.memory->Allocate(std::ssize(every) * 4);
  ops.memory->Copy(View(every, {std::ssize(every)}), every_.As(DType::kI32, {std::ssize(every)}));
  const auto pairs = std::ssize(frequencies.inverse);
  Buffer rows_memory;
  std::vector<int32_t> placed;
  const Tensor tables = MakeRotations(
      ops, frequencies, frequencies.attention_factor,
      PlacedPositions(ops, frequencies, places_.get(), View(positions, {capacity}), &placed),
      &rows_memory);
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

std::shared_ptr<const RopeTables> RopeTablesStore::Get(
    Ops& ops, const RopeFrequencies& frequencies, const std::shared_ptr<const RopePlaces>& places,
    RopeLayout layout, int64_t positions, int64_t capacity) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(held_, [](const auto& tables) { return tables.expired(); });
  for (const std::weak_ptr<const RopeTables>& held : held_) {
    std::shared_ptr<const RopeTables> tables = held.lock();
    if (tables != nullptr && tables->capacity() >= positions && tables->rope().layout == layout &&
        tables->TurnsBy(frequencies, places.get())) {
      return tables;
    }
  }
  auto made = std::make_shared<const RopeTables>(ops, frequencies, places, layout, capacity);
  held_.push_back(made);
  return made;
}

}  // namespace kvgauge

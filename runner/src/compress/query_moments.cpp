// SPDX-License-Identifier: Apache-2.0
#include "src/compress/query_moments.h"

#include <algorithm>
#include <numeric>

#include "methods/tensors.h"
#include "src/cache/rope_tables.h"

namespace kvgauge {
namespace {

// Numbers that one chunk of `rows` rows needs beside the sums: queries turned back, one head's and
// the same transposed, one head's products, means of all heads twice.
int64_t WorkNumbers(const ModelConfig& config, int64_t rows) {
  const int64_t dim = config.key_dim, width = config.query_heads * dim;
  return rows * (width + 2 * dim) + 2 * dim * dim + 2 * width;
}

}  // namespace

QueryMoments::QueryMoments(const ModelConfig& config, int64_t from, const LayerDevices& devices)
    : config_(config),
      from_(from),
      devices_(devices),
      rows_(static_cast<size_t>(config.layer_count())),
      work_(devices.ranges().size()) {
  const int64_t dim = config.key_dim, heads = config.query_heads;
  for (int64_t layer = 0; layer < config.layer_count(); ++layer) {
    MemoryOps& memory = *devices_.of(layer).memory;
    means_.push_back(memory.Allocate(heads * dim * 4));
    products_.push_back(memory.Allocate(heads * dim * dim * 4));
  }
  std::vector<float> unit(static_cast<size_t>(dim * dim));
  for (int64_t i = 0; i < dim; ++i) unit[static_cast<size_t>(i * dim + i)] = 1.0f;
  for (const LayerDevices::Range& range : devices_.ranges()) {
    units_.push_back(range.ops->memory->Allocate(dim * dim * 4));
    range.ops->memory->Copy(View(unit, {dim, dim}), units_.back().As(DType::kF32, {dim, dim}));
  }
}

void QueryMoments::Add(int64_t layer, const Tensor& q, int64_t begin,
                       const RopeFrequencies& frequencies, const RopePlaces* places) {
  const int64_t end = begin + q.shape[0], first = std::max(begin, from_), n = end - first;
  if (n <= 0) return;
  const int64_t heads = config_.query_heads, dim = config_.key_dim, width = heads * dim;
  const int64_t bytes = WorkNumbers(config_, n) * 4;
  Ops& ops = devices_.of(layer);
  const size_t device = devices_.index_of(layer);
  if (work_[device].size_bytes() < bytes) work_[device] = ops.memory->Allocate(bytes);
  const Tensor work = work_[device].As(DType::kF32, {WorkNumbers(config_, n)});
  int64_t taken = 0;
  const auto take = [&](int64_t numbers) {
    taken += numbers;
    return work.Slice(taken - numbers, taken);
  };
  const Tensor raw = take(n * width).Reshape({n, heads, dim});
  const Tensor centred = take(n * dim).Reshape({n, dim});
  const Tensor across = take(n * dim).Reshape({dim, n});
  const Tensor products = take(dim * dim).Reshape({dim, dim});
  const Tensor outer = take(dim * dim).Reshape({dim, dim});
  const Tensor mean = take(width), change = take(width);

  ops.rows->Convert(q.Slice(first - begin, end - begin), raw);
  if (!frequencies.inverse.empty()) {
    std::vector<int32_t> positions(static_cast<size_t>(n)), placed;
    std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first));
    Buffer memory;
    const Tensor tables = MakeRotations(
        ops, frequencies, 1.0 / frequencies.attention_factor,
        PlacedPositions(ops, frequencies, places, View(positions, {n}), &placed), &memory);
    ops.rows->Rope(tables[0], tables[1], config_.rope->layout, RopeDirection::kInverse, raw);
  }
  const Tensor flat = raw.Reshape({n, width});
  ops.rows->ReduceColumns(flat, Reduction::kMean, mean);
  ops.rows->Combine(flat, mean, Binary::kSubtract, flat);

  // Two sets of rows become one: their products add, and so does that of how their means differ.
  int64_t& before = rows_[static_cast<size_t>(layer)];
  const auto na = static_cast<double>(before), nb = static_cast<double>(n);
  const Tensor total = means_[static_cast<size_t>(layer)].As(DType::kF32, {width});
  ops.rows->Combine(mean.Reshape({1, width}), total.Reshape({1, width}), Binary::kSubtract,
                    change.Reshape({1, width}));
  const Tensor unit = units_[device].As(DType::kF32, {1, dim, dim});
  const Tensor sums = Products(layer);
  for (int64_t h = 0; h < heads; ++h) {
    ops.rows->Convert(Columns(flat, h * dim, (h + 1) * dim), centred);
    // The identity times them transposed: exactly they, with rows and columns exchanged.
    ops.linear->MatMulNT(unit, centred.Reshape({1, n, dim}), 1.0f, across.Reshape({1, dim, n}));
    ops.linear->MatMulNN(across.Reshape({1, dim, n}), centred.Reshape({1, n, dim}), 1.0f,
                         products.Reshape({1, dim, dim}));
    ops.rows->Combine(sums[h], products, Binary::kAdd, sums[h]);
    if (before == 0) continue;
    const Tensor differ = change.Slice(h * dim, (h + 1) * dim);
    ops.linear->MatMulNN(differ.Reshape({1, dim, 1}), differ.Reshape({1, 1, dim}),
                         static_cast<float>(na * nb / (na + nb)), outer.Reshape({1, dim, dim}));
    ops.rows->Combine(sums[h], outer, Binary::kAdd, sums[h]);
  }
  ops.rows->Affine(change.Reshape({1, width}), static_cast<float>(nb / (na + nb)), 0.0f,
                   change.Reshape({1, width}));
  ops.rows->Combine(total.Reshape({1, width}), change.Reshape({1, width}), Binary::kAdd,
                    total.Reshape({1, width}));
  before += n;
}

Tensor QueryMoments::Products(int64_t layer) const {
  const int64_t dim = config_.key_dim;
  return products_[static_cast<size_t>(layer)].As(DType::kF32, {config_.query_heads, dim, dim});
}

Tensor QueryMoments::Mean(int64_t layer) const {
  KVG_CHECK(rows_[static_cast<size_t>(layer)] > 0, "moments of no row");
  return means_[static_cast<size_t>(layer)].As(DType::kF32, {config_.query_heads, config_.key_dim});
}

void QueryMoments::Covariance(int64_t layer, Tensor out) const {
  const int64_t rows = rows_[static_cast<size_t>(layer)];
  KVG_CHECK(rows > 0, "moments of no row");
  devices_.of(layer).rows->Affine(Products(layer),
                                  static_cast<float>(1.0 / static_cast<double>(rows)), 0.0f, out);
}

int64_t QueryMoments::bytes() const {
  int64_t bytes = 0;
  for (const auto* buffers : {&means_, &products_, &units_, &work_}) {
    for (const Buffer& buffer : *buffers) bytes += buffer.size_bytes();
  }
  return bytes;
}

int64_t QueryMoments::PlannedBytes(const ModelConfig& config, int64_t rows) {
  const int64_t dim = config.key_dim;
  return 4 * (config.layer_count() * config.query_heads * (dim + dim * dim) + dim * dim +
              WorkNumbers(config, rows));
}

}  // namespace kvgauge

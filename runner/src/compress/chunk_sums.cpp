// SPDX-License-Identifier: Apache-2.0
#include "src/compress/chunk_sums.h"

#include <algorithm>

#include "methods/tensors.h"

namespace kvgauge {
namespace {

// For one KV head: the queries of its group, the keys, and every query's scores.
int64_t ChunkWorkNumbers(const ModelConfig& config, int64_t chunk) {
  const int64_t group = config.query_heads / config.kv_heads;
  return chunk * ((group + 1) * config.key_dim + group * chunk);
}

}  // namespace

ChunkSums::ChunkSums(const ModelConfig& config, const KvCache& cache, const ChunkAttention& kind,
                     int64_t rows)
    : config_(config),
      cache_(cache),
      kind_(kind),
      begin_(std::max(cache.tokens(), kind.first)),
      end_(cache.tokens() + rows - kind.last),
      chunk_(kind.padded ? kind.rows : std::min(kind.rows, rows)),
      pending_(static_cast<size_t>(config.layer_count())),
      work_(cache.devices().ranges().size()) {
  for (int64_t layer = 0; layer < config.layer_count(); ++layer) {
    int64_t width = 0;
    for (const KvHead& head : cache.Layer(layer)) width = std::max(width, head.length());
    widths_.push_back(width + rows);
    sums_.push_back(cache.ops(layer).memory->Allocate(config.query_heads * widths_.back() * 4));
  }
}

void ChunkSums::Add(int64_t layer, const Tensor& q) {
  Ops& ops = cache_.ops(layer);
  KVG_CHECK(q.stride[1] == q.shape[2], "heads of a query row must lie side by side");
  const int64_t row = config_.query_heads * config_.key_dim;
  Tensor all = q;
  all.rank = 2;
  all.shape = {q.shape[0], row, 0, 0};
  all.stride = {q.stride[0], 1, 0, 0};
  const int64_t end = cache_.tokens(), begin = end - q.shape[0], to = std::min(end, end_);
  Buffer& memory = pending_[static_cast<size_t>(layer)];
  for (int64_t at = std::max(begin, begin_); at < to;) {
    const int64_t first = begin_ + (at - begin_) / kind_.rows * kind_.rows;
    const int64_t last = std::min(first + kind_.rows, end_), stop = std::min(last, to);
    const Tensor rows = all.Slice(at - begin, stop - begin);
    if (at == first && stop == last) {
      Fold(layer, rows, first);
    } else {
      if (memory.size_bytes() == 0) memory = ops.memory->Allocate(chunk_ * row * 4);
      const Tensor pending = memory.As(DType::kF32, {chunk_, row});
      ops.rows->Convert(rows, pending.Slice(at - first, stop - first));
      if (stop == last) Fold(layer, pending.Slice(0, last - first), first);
    }
    at = stop;
  }
}

void ChunkSums::Fold(int64_t layer, const Tensor& rows, int64_t begin) {
  const int64_t n = rows.shape[0], count = kind_.padded ? kind_.rows : n;
  const int64_t dim = config_.key_dim, group = config_.query_heads / cache_.kv_heads();
  Ops& ops = cache_.ops(layer);
  Buffer& memory = work_[cache_.devices().index_of(layer)];
  if (memory.size_bytes() == 0) {
    memory = ops.memory->Allocate(ChunkWorkNumbers(config_, chunk_) * 4);
  }
  const Tensor work = memory.As(DType::kF32, {ChunkWorkNumbers(config_, chunk_)});
  int64_t taken = 0;
  const auto take = [&](int64_t m, int64_t width) {
    taken += m * width;
    return work.Slice(taken - m * width, taken).Reshape({m, width});
  };
  const Tensor queries = take(group * count, dim), keys = take(count, dim);
  const Tensor scores = take(group * count, count);
  if (n < count) {
    ops.rows->Fill(0.0f, queries);
    ops.rows->Fill(0.0f, keys);
  }
  const Tensor sums = sums_[static_cast<size_t>(layer)].As(
      DType::kF32, {config_.query_heads, widths_[static_cast<size_t>(layer)]});
  for (int64_t h = 0; h < cache_.kv_heads(); ++h) {
    const int64_t entry = cache_.length(layer, h) - (cache_.tokens() - begin);
    cache_.ReadKeys(layer, h, entry, keys.Slice(0, n));
    for (int64_t g = 0; g < group; ++g) {
      const int64_t from = (h * group + g) * dim;
      ops.rows->Convert(Columns(rows, from, from + dim), queries.Slice(g * count, g * count + n));
    }
    ops.linear->MatMulNT(queries.Reshape({1, group * count, dim}), keys.Reshape({1, count, dim}),
                         1.0f, scores.Reshape({1, group * count, count}));
    ops.rows->Softmax(scores, 1.0f, scores);
    for (int64_t g = 0; g < group; ++g) {
      ops.rows->ReduceColumns(Columns(scores.Slice(g * count, (g + 1) * count), 0, n),
                              Reduction::kSum, sums[h * group + g].Slice(entry, entry + n));
    }
  }
}

Tensor ChunkSums::Of(int64_t layer) const {
  const auto index = static_cast<size_t>(layer);
  return sums_[index].As(DType::kF32, {config_.query_heads, widths_[index]});
}

int64_t ChunkSums::bytes() const {
  int64_t bytes = 0;
  for (const auto* buffers : {&sums_, &pending_, &work_}) {
    for (const Buffer& buffer : *buffers) bytes += buffer.size_bytes();
  }
  return bytes;
}

int64_t ChunkSums::PlannedBytes(const ModelConfig& config, const ChunkAttention& kind,
                                int64_t rows) {
  const int64_t chunk = kind.padded ? kind.rows : std::min(kind.rows, rows);
  const int64_t of_layer = config.query_heads * (rows + chunk * config.key_dim);
  return 4 * (config.layer_count() * of_layer + ChunkWorkNumbers(config, chunk));
}

}  // namespace kvgauge

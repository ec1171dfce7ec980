// SPDX-License-Identifier: Apache-2.0
// Attention over heads of several segments: a scene says what each segment holds, and runs every
// operation of a backend over it. The numbers come from the scene's seed alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernels/attention.h"
#include "support/compare.h"

namespace kvgauge {

struct SegmentSpec {
  int64_t length = 0;
};

struct Scene {
  std::string name;
  DType dtype = DType::kF32;
  int64_t key_dim = 64, value_dim = 64;
  int64_t group = 2;  // query heads per KV head
  int64_t rows = 1;
  float softcap = 0;
  int64_t window = 0;
  std::vector<std::vector<SegmentSpec>> heads;
  uint64_t seed = 1;

  int64_t kv_heads() const { return std::ssize(heads); }
  int64_t query_heads() const { return kv_heads() * group; }
  int64_t columns() const {
    int64_t most = 0;
    for (const std::vector<SegmentSpec>& head : heads) {
      int64_t sum = 0;
      for (const SegmentSpec& s : head) sum += s.length;
      most = std::max(most, sum);
    }
    return most;
  }
  AttentionShape Shape() const {
    AttentionShape shape;
    shape.format = {dtype, key_dim, value_dim};
    shape.query_heads = query_heads();
    shape.kv_heads = kv_heads();
    shape.scale = 1.0f / std::sqrt(static_cast<float>(key_dim));
    shape.softcap = softcap;
    shape.window = window;
    return shape;
  }
  std::vector<float> Queries() const {
    return RandomValues(rows * query_heads() * key_dim, seed, 0.7f);
  }
};

// The memory of a scene, laid out by one backend.
class SceneCache {
 public:
  SceneCache(AttentionOps& ops, const Scene& scene) {
    segments_.resize(scene.heads.size());
    for (size_t h = 0; h < scene.heads.size(); ++h) {
      for (size_t s = 0; s < scene.heads[h].size(); ++s) {
        AddSegment(ops, scene, h, scene.heads[h][s], scene.seed + 10 + 100 * h + 10 * s);
      }
    }
    for (const std::vector<KvSegment>& head : segments_) {
      heads_.push_back({head.data(), std::ssize(head)});
    }
  }

  std::span<const KvHead> heads() const { return heads_; }

 private:
  void AddSegment(AttentionOps& ops, const Scene& scene, size_t head, const SegmentSpec& spec,
                  uint64_t seed) {
    KvSegment segment;
    segment.length = spec.length;
    const KvFormat format = scene.Shape().format;
    segment.key_pages = Pages(spec.length, ops.KeyPageBytes(format));
    segment.value_pages = Pages(spec.length, ops.ValuePageBytes(format));
    const KvTarget target = {segment.key_pages, segment.value_pages, 0};
    const std::vector<float> keys = RandomValues(spec.length * format.key_dim, seed, 0.7f);
    const std::vector<float> values = RandomValues(spec.length * format.value_dim, seed + 1);
    ops.WriteKv(format, View(keys, {spec.length, 1, format.key_dim}),
                View(values, {spec.length, 1, format.value_dim}), {&target, 1});
    segments_[head].push_back(segment);
  }

  void* const* Pages(int64_t entries, int64_t page_bytes) {
    std::vector<void*> pages;
    for (int64_t p = 0; p * kKvPageEntries < entries; ++p) {
      buffers_.push_back(HostBuffer(page_bytes));
      pages.push_back(buffers_.back().data());
    }
    pages_.push_back(std::move(pages));
    return pages_.back().data();
  }

  std::vector<Buffer> buffers_;
  std::vector<std::vector<void*>> pages_;
  std::vector<std::vector<KvSegment>> segments_;
  std::vector<KvHead> heads_;
};

struct SceneResults {
  std::vector<float> out, lse, entropy, window, columns[4];
};

inline Tensor MakeFilled(std::vector<float>& memory, std::initializer_list<int64_t> dims) {
  int64_t count = 1;
  for (const int64_t d : dims) count *= d;
  memory.assign(static_cast<size_t>(count), -7.0f);  // anything left unwritten shows
  return View(memory, dims);
}

// Every operation over all rows.
inline SceneResults RunScene(AttentionOps& ops, const Scene& scene) {
  const SceneCache cache(ops, scene);
  const AttentionShape shape = scene.Shape();
  const int64_t heads = scene.query_heads(), rows = scene.rows, columns = scene.columns() + 3;
  const std::vector<float> queries = scene.Queries();
  const Tensor q = View(queries, {rows, heads, scene.key_dim});
  SceneResults r;
  AttentionItem item;
  item.rows = rows;
  item.heads = cache.heads();
  const Tensor lse = MakeFilled(r.lse, {heads, rows});
  ops.Attend(shape, {&item, 1}, q, MakeFilled(r.out, {rows, heads, scene.value_dim}),
             {lse, MakeFilled(r.entropy, {heads, rows})});
  ops.WindowProbabilities(shape, item, q, lse, MakeFilled(r.window, {heads, rows, columns}));
  const std::vector<float> weights = RandomValues(rows, scene.seed + 3);
  constexpr ColumnReduction kKinds[] = {ColumnReduction::kSum, ColumnReduction::kSumSquares,
                                        ColumnReduction::kMax, ColumnReduction::kCountAbove};
  for (int i = 0; i < 4; ++i) {
    ColumnRequest request;
    request.kind = kKinds[i];
    request.threshold = 0.01f;
    request.first_row = i == 0 ? 0 : rows / 3;
    request.rows = rows - request.first_row;
    if (i % 2 == 1) request.row_weights = View(weights, {rows}).Slice(0, request.rows);
    ops.ReduceColumns(shape, item, q, lse, request, MakeFilled(r.columns[i], {heads, columns}));
  }
  return r;
}

}  // namespace kvgauge

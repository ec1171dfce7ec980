// SPDX-License-Identifier: Apache-2.0
// Attention over heads of several segments: a scene says what each segment holds, and runs every
// operation of a backend over it. The numbers come from the scene's seed alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/rng.h"
#include "kernels/attention.h"
#include "kernels/codec_stream.h"
#include "support/compare.h"

namespace kvgauge {

// RandomValues, drawn once: the generator takes longer than what is tested with its numbers.
inline std::vector<float> SceneValues(int64_t count, uint64_t seed, float scale = 1.0f) {
  static const std::vector<float> pool = RandomValues(1 << 17, 5);
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = scale * pool[(i + seed * 7919 + i / pool.size()) % pool.size()];
  }
  return values;
}

enum class Turned { kNo, kStraight, kScattered };
enum class Mask { kNone, kOnes, kSome };

struct SegmentSpec {
  int64_t length = 0;
  int64_t skip = 0;  // slots before entry 0, which hold numbers of no entry
  bool bias = false, key_scale = false, value_scale = false;
  bool read_bias = false;  // of each query head
  Turned turned = Turned::kNo;
  Mask mask = Mask::kNone;
  bool positions = false;
  int64_t key_rank = 0, value_rank = 0;  // > 0: latents
  bool values_in_keys = false;
  float key_shift = 0;  // added to every 16th dim of all keys: a loud channel
  // The first entries of a stream are coded.
  std::optional<KvCodec> key_codec, value_codec;
  int64_t keys_coded = 0, values_coded = 0;
};

inline std::vector<SegmentSpec> Lengths(std::initializer_list<int64_t> lengths) {
  std::vector<SegmentSpec> segments;
  for (const int64_t length : lengths) {
    segments.push_back({});
    segments.back().length = length;
  }
  return segments;
}

struct Scene {
  std::string name;
  DType dtype = DType::kF32;
  int64_t key_dim = 64, value_dim = 64;
  int64_t group = 2;  // query heads per KV head
  int64_t rows = 1;
  float softcap = 0;
  int64_t window = 0;
  bool chunked = false;
  RopeLayout rope = RopeLayout::kHalf;
  int64_t rope_pairs = 0;
  std::vector<std::vector<SegmentSpec>> heads;
  float query_size = 0.7f;
  uint64_t seed = 1;
  bool sinks = false;     // a logit without a value for each query head
  bool by_entry = false;  // KvFormat::by_entry of all pages

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
    shape.format = {dtype, key_dim, value_dim, by_entry};
    shape.query_heads = query_heads();
    shape.kv_heads = kv_heads();
    shape.scale = 1.0f / std::sqrt(static_cast<float>(key_dim));
    shape.softcap = softcap;
    shape.window = window;
    shape.chunked = chunked;
    return shape;
  }
  // From far below every score to far above.
  std::vector<float> Sinks() const {
    return sinks ? SceneValues(query_heads(), seed + 9, 6.0f) : std::vector<float>();
  }
  std::vector<float> Queries() const {
    return SceneValues(rows * query_heads() * key_dim, seed, query_size);
  }
};

// [length, dim]
inline std::vector<float> KeysOf(const SegmentSpec& spec, int64_t dim, uint64_t seed) {
  std::vector<float> keys = SceneValues(spec.length * dim, seed, 0.7f);
  for (int64_t i = 0; i < std::ssize(keys); ++i) {
    if (i % dim % 16 == 3) keys[static_cast<size_t>(i)] += spec.key_shift;
  }
  return keys;
}
inline uint64_t SegmentSeed(const Scene& scene, size_t head, size_t segment) {
  return scene.seed + 10 + 100 * head + 10 * segment;
}

// The memory of a scene, laid out by one backend.
class SceneCache {
 public:
  static constexpr int64_t kPositions = 3000;

  SceneCache(AttentionOps& ops, CodecOps& codecs, const Scene& scene)
      : codecs_(codecs),
        shape_(scene.Shape()),
        cos_(scene.rope_pairs * kPositions),
        sin_(scene.rope_pairs * kPositions),
        sinks_(scene.Sinks()) {
    for (size_t i = 0; i < cos_.size(); ++i) {
      const double angle =
          static_cast<double>(i % kPositions) / std::pow(1.5, static_cast<double>(i / kPositions));
      cos_[i] = static_cast<float>(std::cos(angle));
      sin_[i] = static_cast<float>(std::sin(angle));
    }
    rope_ = {View(cos_, {scene.rope_pairs, kPositions}), View(sin_, {scene.rope_pairs, kPositions}),
             scene.rope};
    shape_.rope = &rope_;
    if (scene.sinks) shape_.sinks = View(sinks_, {scene.query_heads()});
    segments_.resize(scene.heads.size());
    for (size_t h = 0; h < scene.heads.size(); ++h) {
      for (size_t s = 0; s < scene.heads[h].size(); ++s) {
        AddSegment(ops, scene, h, scene.heads[h][s], SegmentSeed(scene, h, s));
      }
    }
    for (const std::vector<KvSegment>& head : segments_) {
      heads_.push_back({head.data(), std::ssize(head)});
    }
  }

  SceneCache(const SceneCache&) = delete;

  std::span<const KvHead> heads() const { return heads_; }
  const AttentionShape& shape() const { return shape_; }
  // The position of the first of the rows that end where positions end.
  int64_t token_position(int64_t rows) const { return next_position_ - rows; }

 private:
  void AddSegment(AttentionOps& ops, const Scene& scene, size_t head, const SegmentSpec& spec,
                  uint64_t seed) {
    KvSegment segment;
    const int64_t n = segment.length = spec.length;
    segment.by_entry = scene.by_entry;
    KvFormat format = scene.Shape().format;
    if (spec.key_rank > 0) {
      segment.key_basis = Basis(format.key_dim, spec.key_rank, seed + 5);
      format.key_dim = spec.key_rank;
    }
    if (spec.value_rank > 0) {
      segment.value_basis = Basis(format.value_dim, spec.value_rank, seed + 6);
      format.value_dim = spec.value_rank;
    }
    const std::vector<float> keys = KeysOf(spec, format.key_dim, seed);
    const std::vector<float> values = SceneValues(n * format.value_dim, seed + 1);
    const Tensor key_rows = View(keys, {n, 1, format.key_dim});
    const Tensor value_rows = View(values, {n, 1, format.value_dim});
    segment.values_in_keys = spec.values_in_keys;
    segment.keys = Code(spec.key_codec, keys, spec.keys_coded);
    segment.values = Code(spec.value_codec, values, spec.values_coded);
    const int64_t slots = n + (segment.skip = spec.skip);
    segment.key_pages = Pages(spec.keys_coded, slots, ops.KeyPageBytes(format));
    if (!spec.values_in_keys) {
      segment.value_pages = Pages(spec.values_coded, slots, ops.ValuePageBytes(format));
    }
    // Both sides are written from where the later of them begins; the rest of the other one alone.
    // Pages are written side by side, and so each is memory of its own.
    std::vector<Buffer> spare_pages(static_cast<size_t>(slots / kKvPageEntries + 1));
    std::vector<void*> spare;
    for (Buffer& page : spare_pages) {
      page = HostBuffer(std::max(ops.KeyPageBytes(format), ops.ValuePageBytes(format)));
      spare.push_back(page.data());
    }
    const KvTarget key_target = {segment.key_pages, spare.data(), spec.skip + spec.keys_coded};
    const KvTarget value_target = {spare.data(), segment.value_pages,
                                   spec.skip + spec.values_coded};
    ops.WriteKv(format, key_rows.Slice(spec.keys_coded, n),
                spec.values_in_keys ? Tensor() : value_rows.Slice(spec.keys_coded, n),
                {&key_target, 1});
    if (!spec.values_in_keys) {
      ops.WriteKv(format, key_rows.Slice(spec.values_coded, n),
                  value_rows.Slice(spec.values_coded, n), {&value_target, 1});
    }

    if (spec.skip > 0) {  // what lay there before: loud, so that it shows where it is read
      const std::vector<float> gone_keys(static_cast<size_t>(spec.skip * format.key_dim), 30.0f);
      const std::vector<float> gone_values(static_cast<size_t>(spec.skip * format.value_dim),
                                           30.0f);
      const KvTarget both = {segment.key_pages, segment.value_pages, 0};
      ops.WriteKv(
          format, View(gone_keys, {spec.skip, 1, format.key_dim}),
          spec.values_in_keys ? Tensor() : View(gone_values, {spec.skip, 1, format.value_dim}),
          {&both, 1});
    }
    if (spec.bias) segment.bias = Floats(n, seed + 2);
    if (spec.key_scale) segment.key_scale = Floats(n, seed + 3);
    if (spec.value_scale) segment.value_scale = Floats(n, seed + 4);
    Rng rng(seed, 9);
    if (spec.turned != Turned::kNo) {
      std::vector<int32_t>& at = integers_.emplace_back(spec.skip);
      for (int64_t e = 0; e < n; ++e) {
        at.push_back(static_cast<int32_t>(spec.turned == Turned::kStraight
                                              ? kPositions - n + e
                                              : static_cast<int64_t>(rng.NextBelow(kPositions))));
      }
      segment.rotation = at.data();
    }
    if (spec.positions) {
      std::vector<int32_t>& at = integers_.emplace_back();
      for (int64_t e = 0; e < n; ++e) {
        // The rows are neighbours; what comes before them has gaps.
        const bool row =
            e >= n - scene.rows && segments_[head].size() + 1 == scene.heads[head].size();
        next_position_ += row ? 1 : 1 + static_cast<int64_t>(rng.NextBelow(4));
        at.push_back(static_cast<int32_t>(next_position_));
      }
      ++next_position_;
      segment.positions = at.data();
    }
    if (spec.mask != Mask::kNone) AddMask(scene, spec, segment, rng);
    if (spec.read_bias) {
      std::vector<const float*> heads;
      for (int64_t g = 0; g < scene.group; ++g) {
        heads.push_back(Floats(slots, seed + 1000 + static_cast<uint64_t>(g)));
      }
      biases_.push_back(std::move(heads));
      segment.read_bias = biases_.back().data();
    }
    segments_[head].push_back(segment);
  }

  // Every head of a page reads some entries, or one head, or none; pages that none reads are
  // taken away.
  void AddMask(const Scene& scene, const SegmentSpec& spec, KvSegment& segment, Rng& rng) {
    const int64_t pages = (spec.skip + spec.length + kKvPageEntries - 1) / kKvPageEntries;
    std::vector<const uint64_t*> heads;
    for (int64_t g = 0; g < scene.group; ++g) {
      words_.emplace_back(pages, ~uint64_t{0});
      heads.push_back(words_.back().data());
    }
    for (int64_t p = 0; spec.mask == Mask::kSome && p < pages; ++p) {
      const uint64_t kind = rng.NextBelow(4);
      for (int64_t g = 0; g < scene.group; ++g) {
        uint64_t& word = words_[words_.size() - scene.group + g][p];
        if (kind == 0 || (kind == 1 && g > 0)) word = 0;
        if (kind > 1) word = rng.NextBelow(~uint64_t{0}) & rng.NextBelow(~uint64_t{0});
      }
      if (kind == 0) {
        const_cast<void**>(segment.key_pages)[p] = nullptr;
        if (segment.value_pages != nullptr) const_cast<void**>(segment.value_pages)[p] = nullptr;
      }
    }
    masks_.push_back(std::move(heads));
    segment.read = masks_.back().data();
  }

  Tensor Basis(int64_t dim, int64_t rank, uint64_t seed) {
    floats_.push_back(SceneValues(dim * rank, seed, 1.0f / std::sqrt(static_cast<float>(rank))));
    return View(floats_.back(), {dim, rank});
  }
  const float* Floats(int64_t count, uint64_t seed) {
    std::vector<float>& values = floats_.emplace_back();
    Rng rng(seed, 8);
    for (int64_t i = 0; i < count; ++i) {
      values.push_back(0.3f + static_cast<float>(rng.NextBelow(1000)) / 900.0f);
    }
    return values.data();
  }

  KvCoded Code(const std::optional<KvCodec>& codec, const std::vector<float>& rows,
               int64_t entries) {
    if (entries == 0) return {};
    streams_.push_back(std::make_unique<CodecStream>(codecs_, *codec, entries));
    streams_.back()->Encode({rows.begin(), rows.begin() + entries * codec->dim});
    return {&*codec, streams_.back()->pages(), entries};
  }

  // Float pages of entries [coded, entries); those before are null.
  void* const* Pages(int64_t coded, int64_t entries, int64_t page_bytes) {
    std::vector<void*> pages;
    for (int64_t p = 0; p * kKvPageEntries < entries; ++p) {
      if (coded >= std::min(entries, (p + 1) * kKvPageEntries)) {
        pages.push_back(nullptr);
        continue;
      }
      buffers_.push_back(HostBuffer(page_bytes));
      pages.push_back(buffers_.back().data());
    }
    pages_.push_back(std::move(pages));
    return pages_.back().data();
  }

  CodecOps& codecs_;
  AttentionShape shape_;
  std::vector<float> cos_, sin_, sinks_;
  DeferredRope rope_;
  int64_t next_position_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<std::vector<void*>> pages_;
  std::vector<std::unique_ptr<CodecStream>> streams_;
  std::vector<std::vector<float>> floats_;
  std::vector<std::vector<int32_t>> integers_;
  std::vector<std::vector<uint64_t>> words_;
  std::vector<std::vector<const uint64_t*>> masks_;
  std::vector<std::vector<const float*>> biases_;
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
inline SceneResults RunScene(AttentionOps& ops, CodecOps& codecs, const Scene& scene) {
  const SceneCache cache(ops, codecs, scene);
  const AttentionShape& shape = cache.shape();
  const int64_t heads = scene.query_heads(), rows = scene.rows, columns = scene.columns() + 3;
  const std::vector<float> queries = scene.Queries();
  const Tensor q = View(queries, {rows, heads, scene.key_dim});
  SceneResults r;
  AttentionItem item;
  item.rows = rows;
  item.token_position = cache.token_position(rows);
  item.heads = cache.heads();
  const Tensor lse = MakeFilled(r.lse, {heads, rows});
  ops.Attend(shape, {&item, 1}, q, MakeFilled(r.out, {rows, heads, scene.value_dim}),
             {lse, MakeFilled(r.entropy, {heads, rows})});
  ops.WindowProbabilities(shape, item, q, lse, MakeFilled(r.window, {heads, rows, columns}));
  const std::vector<float> weights = SceneValues(rows, scene.seed + 3);
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

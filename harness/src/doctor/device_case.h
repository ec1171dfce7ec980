// SPDX-License-Identifier: Apache-2.0
// What checks and timings of a backend work on: seeded tensors, a cache, the steps of a model.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "core/rng.h"
#include "kernels/ops.h"

namespace kvgauge {

inline std::vector<float> CaseNoise(int64_t count, uint64_t seed) {
  Rng rng(seed, 0);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = static_cast<float>(2 * rng.NextDouble() - 1);
  return values;
}

// Tensors of one case on one backend.
class CaseTensors {
 public:
  explicit CaseTensors(Ops& ops) : ops_(ops) {}

  Ops& ops() { return ops_; }
  Tensor New(std::initializer_list<int64_t> dims, DType dtype = DType::kF32) {
    const int64_t bytes = std::max<int64_t>(Tensor(nullptr, dtype, dims).SizeBytes(), 1);
    memory_.push_back(ops_.memory->Allocate(bytes));
    return memory_.back().As(dtype, dims);
  }
  Tensor Random(std::initializer_list<int64_t> dims, uint64_t seed) {
    const Tensor t = New(dims);
    const std::vector<float> values = CaseNoise(t.Numel(), seed);
    ops_.memory->Copy(View(values, {t.Numel()}), t.Reshape({t.Numel()}));
    return t;
  }
  Tensor Integers(const std::vector<int32_t>& values) {
    const auto count = static_cast<int64_t>(values.size());
    const Tensor t = New({count}, DType::kI32);
    ops_.memory->Copy(View(values, {count}), t);
    return t;
  }
  std::unique_ptr<PackedMatrix> Weights(int64_t n, int64_t k, DType dtype, uint64_t seed) {
    const std::vector<float> values = CaseNoise(n * k, seed);
    const Tensor part = View(values, {n, k});
    return ops_.linear->Pack({&part, 1}, dtype);
  }
  std::vector<float> Floats(const Tensor& t) {
    Tensor wide = t;
    if (t.dtype != DType::kF32) {
      wide = New({t.shape[0], t.shape[1]});
      ops_.rows->Convert(t, wide);
    }
    std::vector<float> values(static_cast<size_t>(wide.Numel()));
    ops_.memory->Copy(wide, View(values, {wide.Numel()}));
    return values;
  }
  std::vector<float> Indices(const Tensor& t) {
    std::vector<int32_t> values(static_cast<size_t>(t.Numel()));
    ops_.memory->Copy(t, View(values, {t.Numel()}));
    return {values.begin(), values.end()};
  }
  void* Block(int64_t size_bytes) {
    memory_.push_back(ops_.memory->Allocate(size_bytes));
    return memory_.back().data();
  }
  // The same in the memory of the host, cut from larger pieces as a cache does it.
  void* BlockOnHost(int64_t size_bytes) {
    constexpr int64_t kPiece = int64_t{4} << 20, kAlignment = 64;
    size_bytes = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (size_bytes > left_) {
      left_ = std::max(size_bytes, kPiece);
      memory_.push_back(ops_.memory->AllocateOnHost(left_));
      next_ = static_cast<char*>(memory_.back().data());
    }
    left_ -= size_bytes;
    return std::exchange(next_, next_ + size_bytes);
  }

 private:
  Ops& ops_;
  std::vector<Buffer> memory_;
  char* next_ = nullptr;  // of the last piece on the host
  int64_t left_ = 0;
};

// Where a cache lies: where its backend computes, or in the memory of the host.
enum class Lies { kThere, kOnHost };

// One sequence's cache of random keys and values, and query rows at its end.
class CacheCase {
 public:
  CacheCase(CaseTensors& stage, KvFormat format, int64_t query_heads, int64_t kv_heads,
            int64_t entries, int64_t rows, KvCodec codec = {}, Lies lies = Lies::kThere)
      : stage_(stage), codec_(codec), values_codec_(codec), format_(format), rows_(rows) {
    const int64_t pages = (entries + kKvPageEntries - 1) / kKvPageEntries;
    codec_.dim = format.key_dim;
    values_codec_.dim = format.value_dim;
    values_codec_.side = KvSide::kValues;
    const int64_t coded = codec_.coded() ? entries / kKvPageEntries * kKvPageEntries : 0;
    shape_ = {.format = format,
              .query_heads = query_heads,
              .kv_heads = kv_heads,
              .scale = 1.0f / std::sqrt(static_cast<float>(format.key_dim))};
    pages_.resize(static_cast<size_t>(kv_heads));
    segments_.resize(static_cast<size_t>(kv_heads));
    const Tensor keys = stage.Random({std::min(entries, kChunk), format.key_dim}, 7);
    const Tensor values = stage.Random({std::min(entries, kChunk), format.value_dim}, 8);
    for (size_t h = 0; h < pages_.size(); ++h) {
      Pages& own = pages_[h];
      for (int64_t p = 0; p < pages; ++p) {
        const bool is_coded = p * kKvPageEntries < coded;
        const auto block = [&](bool wanted, int64_t bytes) {
          if (!wanted) return static_cast<void*>(nullptr);
          return lies == Lies::kOnHost ? stage.BlockOnHost(bytes) : stage.Block(bytes);
        };
        Ops& ops = stage.ops();
        own.keys.push_back(block(!is_coded, ops.attention->KeyPageBytes(format)));
        own.values.push_back(block(!is_coded, ops.attention->ValuePageBytes(format)));
        own.coded_keys.push_back(block(is_coded, is_coded ? ops.codecs->PageBytes(codec_) : 0));
        own.coded_values.push_back(
            block(is_coded, is_coded ? ops.codecs->PageBytes(values_codec_) : 0));
      }
      for (int64_t first = 0; first < entries;) {
        const int64_t end = first < coded ? coded : entries;
        const int64_t count = std::min(kChunk, end - first);
        Fill(own, first, keys.Slice(0, count), values.Slice(0, count), first < coded);
        first += count;
      }
      KvSegment& segment = segments_[h];
      segment.key_pages = own.keys.data();
      segment.value_pages = own.values.data();
      segment.length = entries;
      if (coded > 0) {
        segment.keys = {&codec_, {.codes = own.coded_keys.data()}, coded};
        segment.values = {&values_codec_, {.codes = own.coded_values.data()}, coded};
      }
      heads_.push_back({&segment, 1});
    }
    q_ = stage.Random({rows, query_heads, format.key_dim}, 9);
    out_ = stage.New({rows, query_heads, format.value_dim});
    log_sums_ = stage.New({query_heads, rows});
    item_ = {.rows = rows, .heads = heads_};
  }
  CacheCase(const CacheCase&) = delete;
  CacheCase& operator=(const CacheCase&) = delete;

  Tensor Attend() {
    AttentionCapture capture;
    capture.log_sum_exp = log_sums_;
    stage_.ops().attention->Attend(shape_, {&item_, 1}, q_, out_, capture);
    return out_.Reshape({rows_ * shape_.query_heads, format_.value_dim});
  }
  // The queries of the one row that attends next.
  Tensor Queries() const { return q_.Reshape({1, q_.shape[1] * q_.shape[2]}); }
  Tensor ColumnSums() {
    const int64_t entries = segments_[0].length;
    item_.first_position = entries - rows_;
    if (sums_.empty()) sums_ = stage_.New({shape_.query_heads, entries});
    ColumnRequest request;
    request.rows = rows_;
    stage_.ops().attention->ReduceColumns(shape_, item_, q_, log_sums_, request, sums_);
    return sums_;
  }
  // After Attend.
  Tensor Window() {
    const int64_t entries = segments_[0].length;
    item_.first_position = entries - rows_;
    const Tensor out = stage_.New({shape_.query_heads, rows_, entries});
    stage_.ops().attention->WindowProbabilities(shape_, item_, q_, log_sums_, out);
    return out.Reshape({shape_.query_heads * rows_, entries});
  }
  // Keys and values of entries of the first head, in any order.
  Tensor Gathered(const std::vector<int32_t>& index) {
    const auto n = static_cast<int64_t>(index.size());
    const int64_t dim = format_.key_dim;
    const Tensor out = stage_.New({2, n, dim});
    stage_.ops().attention->GatherKv(format_, segments_[0], stage_.Integers(index), out[0], out[1]);
    return out.Reshape({2 * n, dim});
  }
  // What one Attend must read of the cache.
  double bytes() const {
    const int64_t coded = segments_[0].keys.entries, plain = segments_[0].length - coded;
    const int64_t dims = format_.key_dim + format_.value_dim;
    double one = static_cast<double>(plain * dims * SizeOf(format_.dtype));
    if (coded > 0) {
      one += static_cast<double>(CodedBytes(codec_, coded).logical() +
                                 CodedBytes(values_codec_, coded).logical());
    }
    return one * static_cast<double>(segments_.size());
  }

 private:
  static constexpr int64_t kChunk = 4096;
  struct Pages {
    std::vector<void*> keys, values, coded_keys, coded_values;
  };

  void Fill(Pages& own, int64_t first, const Tensor& keys, const Tensor& values, bool coded) {
    Ops& ops = stage_.ops();
    if (coded) {
      ops.codecs->Encode(codec_, keys, first, {.codes = own.coded_keys.data()});
      ops.codecs->Encode(values_codec_, values, first, {.codes = own.coded_values.data()});
      return;
    }
    const KvTarget target = {own.keys.data(), own.values.data(), first};
    ops.attention->WriteKv(format_, keys.Reshape({keys.shape[0], 1, format_.key_dim}),
                           values.Reshape({values.shape[0], 1, format_.value_dim}), {&target, 1});
  }

  CaseTensors& stage_;
  KvCodec codec_, values_codec_;
  KvFormat format_;
  int64_t rows_;
  AttentionShape shape_;
  std::vector<Pages> pages_;
  std::vector<KvSegment> segments_;
  std::vector<KvHead> heads_;
  AttentionItem item_;
  Tensor q_, out_, log_sums_, sums_;
};

inline KvCodec AffineCodec(int bits, CodeAxis axis, int64_t group) {
  KvCodec codec;
  codec.kind = KvCodecKind::kAffine;
  codec.bits = bits;
  codec.axis = axis;
  codec.group = group;
  return codec;
}
inline KvCodec CodecOfKind(KvCodecKind kind) {
  KvCodec codec;
  codec.kind = kind;
  return codec;
}

// Decode steps of one sequence: layers that share their weights and a cache, as long as a step of a
// model of that width.
class StepCase {
 public:
  StepCase(CaseTensors& stage, int64_t heads, int64_t head_dim, int64_t layers, int64_t entries,
           Lies lies = Lies::kThere)
      : ops_(stage.ops()),
        layers_(layers),
        width_(heads * head_dim),
        ffn_(width_ * 7 / 2),
        cached_(stage, {DType::kF16, head_dim, head_dim}, heads, std::max<int64_t>(heads / 4, 1),
                entries, 1, {}, lies),
        query_(stage.Weights(width_, width_, DType::kBF16, 21)),
        output_(stage.Weights(width_, width_, DType::kBF16, 22)),
        up_(stage.Weights(2 * ffn_, width_, DType::kBF16, 23)),
        down_(stage.Weights(width_, ffn_, DType::kBF16, 24)),
        gain_(stage.Random({width_}, 25)),
        x_(stage.New({1, width_})),
        normed_(stage.New({1, width_}, DType::kBF16)),
        gated_(stage.New({1, 2 * ffn_})),
        active_(stage.New({1, ffn_}, DType::kBF16)) {}

  void Submit(const std::vector<float>& input) {
    ops_.memory->Copy(View(input, {1, width_}), x_);
    for (int64_t layer = 0; layer < layers_; ++layer) {
      ops_.rows->RmsNorm(x_, gain_, 0, 1e-5f, normed_);
      ops_.linear->MatMul(normed_, *query_, {}, MatMulMode::kSet, cached_.Queries());
      const Tensor attended = cached_.Attend().Reshape({1, width_});
      ops_.linear->MatMul(attended, *output_, {}, MatMulMode::kAdd, x_);
      ops_.rows->RmsNorm(x_, gain_, 0, 1e-5f, normed_);
      ops_.linear->MatMul(normed_, *up_, {}, MatMulMode::kSet, gated_);
      ops_.rows->GatedActivate(gated_, Activation::kSilu, active_);
      ops_.linear->MatMul(active_, *down_, {}, MatMulMode::kAdd, x_);
    }
  }
  int64_t width() const { return width_; }
  const Tensor& result() const { return x_; }
  // What one step must read.
  double bytes() const {
    const int64_t weights = query_->bytes() + output_->bytes() + up_->bytes() + down_->bytes();
    return static_cast<double>(layers_) * (static_cast<double>(weights) + cached_.bytes());
  }

 private:
  Ops& ops_;
  int64_t layers_, width_, ffn_;
  CacheCase cached_;
  std::unique_ptr<PackedMatrix> query_, output_, up_, down_;
  Tensor gain_, x_, normed_, gated_, active_;
};

}  // namespace kvgauge

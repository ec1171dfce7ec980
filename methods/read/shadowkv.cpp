// SPDX-License-Identifier: Apache-2.0
// Reads the chunks of the prompt whose mean key gets most attention, and those that no mean stands
// for.
//
// Paper: ShadowKV, arXiv:2410.21465; after bytedance/ShadowKV. Needs the query of each decode step.
// The prompt but its last `local` chunks, and what fills no chunk, is cut into chunks. The mean of
// a chunk's keys is its landmark. The `outliers` chunks that hold the key least like its landmark
// are always read. A softmax over the landmarks of the others makes shares of a query head's
// products; the largest of a KV head's query heads chooses chunks of `tokens` entries for all of
// them. The end of the prompt, and what is decoded, is always read.
#include <algorithm>
#include <limits>

#include "kernels/buffer_bytes.h"
#include "methods/attention.h"
#include "methods/registry.h"
#include "methods/repeating_reader.h"
#include "methods/repeating_view.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class ShadowKv final : public Reader, public RepeatingReader {
 public:
  explicit ShadowKv(const Params& params)
      : chunk_(params.Int("chunk")),
        picks_(std::max<int64_t>(1, params.Int("tokens") / params.Int("chunk"))),
        outliers_(params.Int("outliers")),
        local_(params.Int("local")) {}

  struct Head {
    int64_t chunks = 0, sure = 0;
    Buffer landmarks;  // [chunks, key_dim] of the cache's type
    Buffer outliers;   // [sure] i32, ascending

    Tensor Outliers() const { return outliers.As(DType::kI32, {sure}); }
  };

  struct Index final : State {
    std::vector<Head> heads;

    int64_t bytes() const override {
      int64_t sum = 0;
      for (const Head& head : heads)
        sum += head.landmarks.size_bytes() + head.outliers.size_bytes();
      return sum;
    }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    const ModelShape own = shape.OfLayer(layer);
    const int64_t chunks = std::max<int64_t>(0, entries / chunk_ - local_);
    return own.kv_heads * (HostBufferBytes(chunks * own.key_dim * SizeOf(own.cache_dtype)) +
                           HostBufferBytes(std::min(outliers_, chunks) * SizeOf(DType::kI32)));
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto index = std::make_unique<Index>();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) index->heads.push_back(Divide(view, h));
    return index;
  }

  void Append(LayerView&, std::span<const int64_t>, State&) const override {}

  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    auto& heads = static_cast<Index&>(state).heads;
    for (size_t h = 0; h < heads.size(); ++h) {
      Head& head = heads[h];
      KVG_TRY(fields.Number("chunks of a head", 0, view.lengths()[h] / chunk_, &head.chunks));
      KVG_TRY(fields.Number("chunks that are always read", 0, head.chunks, &head.sure));
      KVG_TRY(fields.Memory("keys that stand for chunks", view.ops(), view.shape().cache_dtype,
                            head.chunks * view.shape().key_dim, &head.landmarks));
      KVG_TRY(fields.Indices("chunks that are always read", view.ops(), head.sure, head.chunks,
                             &head.outliers));
    }
    return {};
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    const auto& index = static_cast<const Index&>(state);
    const auto whole = [this](const Head& head) { return head.chunks <= head.sure + picks_; };
    if (std::all_of(index.heads.begin(), index.heads.end(), whole)) return false;
    const int64_t group = view.shape().group();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const Head& head = index.heads[static_cast<size_t>(h)];
      const int64_t length = view.lengths()[h], begin = h * group, first = head.chunks * chunk_;
      if (length == 0) continue;
      const Tensor own = Columns(words.Slice(begin, begin + group), 0, (length + 63) / 64);
      const auto mark = [&](const Tensor& runs, int64_t run) {
        Tensor all = runs.Reshape({1, runs.shape[0]});
        all.shape[0] = group;
        all.stride[0] = 0;
        view.ops().select->MarkRuns(all, run, length, own);
      };
      if (head.chunks > 0) mark(Choose(view, h, head, q.Slice(begin, begin + group)), chunk_);
      if (first < length) mark(GrowingNumbers(view, length - first, first), 1);
    }
    return true;
  }

 private:
  Tensor Landmarks(const Head& head, const ModelShape& shape) const {
    return head.landmarks.As(shape.cache_dtype, {head.chunks, shape.key_dim});
  }

  Head Divide(LayerView& view, int64_t h) const {
    Ops& ops = view.ops();
    const ModelShape& shape = view.shape();
    const int64_t dim = shape.key_dim;
    Head head;
    head.chunks = std::max<int64_t>(0, view.lengths()[h] / chunk_ - local_);
    if (head.chunks == 0) return head;
    head.sure = std::min(outliers_, head.chunks);
    head.landmarks = ops.memory->Allocate(head.chunks * dim * SizeOf(shape.cache_dtype));
    const Tensor keys = view.Keys(h).Slice(0, head.chunks * chunk_);
    // Row i of every chunk.
    const auto strided = [&](int64_t i) {
      Tensor rows = keys.Slice(i, keys.shape[0]);
      rows.shape[0] = head.chunks;
      rows.stride[0] = chunk_ * keys.stride[0];
      return rows;
    };
    const Tensor means = view.Scratch(DType::kF32, {head.chunks, dim});
    ops.rows->Convert(strided(0), means);
    for (int64_t i = 1; i < chunk_; ++i) {
      ops.rows->Combine(means, strided(i), Binary::kAdd, means);
    }
    ops.rows->Affine(means, 1.0f / static_cast<float>(chunk_), 0.0f, means);
    ops.rows->Convert(means, Landmarks(head, shape));
    if (head.sure == 0) return head;

    // The least cosine of a key with the mean of its chunk, times -1: outliers are the largest.
    const Tensor length = view.Scratch(DType::kF32, {head.chunks});
    const Tensor cosine = view.Scratch(DType::kF32, {head.chunks});
    const Tensor lengths = view.Scratch(DType::kF32, {head.chunks});
    const Tensor part = view.Scratch(DType::kF32, {head.chunks, dim});
    const Tensor unlike = view.Scratch(DType::kF32, {1, head.chunks});
    const Tensor tiny = Filled(view, head.chunks, 1e-16f);
    ops.rows->Fill(-1.0f, unlike);
    ops.rows->ReduceRows(means, Reduction::kNorm, length);
    for (int64_t i = 0; i < chunk_; ++i) {
      ops.rows->Combine(strided(i), means, Binary::kMultiply, part);
      ops.rows->ReduceRows(part, Reduction::kSum, cosine);
      ops.rows->ReduceRows(strided(i), Reduction::kNorm, lengths);
      ops.rows->Combine(lengths, length, Binary::kMultiply, lengths);
      ops.rows->Combine(lengths, tiny, Binary::kMax, lengths);
      ops.rows->Combine(cosine, lengths, Binary::kDivide, cosine);
      ops.rows->Affine(cosine, -1.0f, 0.0f, cosine);
      ops.rows->Combine(unlike[0], cosine, Binary::kMax, unlike[0]);
    }
    head.outliers = ops.memory->Allocate(head.sure * SizeOf(DType::kI32));
    ops.memory->Copy(Best(view, unlike, head.sure), head.Outliers());
    return head;
  }

  // Chunks for all of the group, ascending: [n] i32. q: [group, key_dim]
  Tensor Choose(LayerView& view, int64_t h, const Head& head, const Tensor& q) const {
    RowOps& rows = *view.ops().rows;
    const int64_t group = q.shape[0], dim = q.shape[1], chunks = head.chunks;
    const Tensor query = view.Scratch(DType::kF32, {group, dim});
    const Tensor landmarks = view.Scratch(DType::kF32, {chunks, dim});
    const Tensor shares = view.Scratch(DType::kF32, {group, chunks});
    const Tensor best = view.Scratch(DType::kF32, {1, chunks});
    rows.Convert(q, query);
    rows.Convert(Landmarks(head, view.shape()), landmarks);
    view.ops().linear->MatMulNT(query.Reshape({1, group, dim}), landmarks.Reshape({1, chunks, dim}),
                                1.0f, shares.Reshape({1, group, chunks}));
    LogitsOfProducts(view, shares);
    HideFromNewest(view, h, 0, chunk_, chunks, shares);
    for (int64_t g = 0; g < group; ++g) {
      SetOutliers(view, head, -std::numeric_limits<float>::infinity(), shares[g]);
    }
    rows.Softmax(shares, 1.0f, shares);
    rows.ReduceColumns(shares, Reduction::kMax, best[0]);
    SetOutliers(view, head, kForcedScore, best[0]);
    return Best(view, best, std::min(chunks, head.sure + picks_));
  }

  static void SetOutliers(LayerView& view, const Head& head, float value, const Tensor& chunks) {
    if (head.sure == 0) return;
    view.ops().select->Scatter(AsColumn(Filled(view, head.sure, value)), head.Outliers(),
                               AsColumn(chunks));
  }

  int64_t chunk_, picks_, outliers_, local_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "shadowkv",
    .paper = "arXiv:2410.21465",
    .summary = "reads the chunks whose mean key gets most attention, and those it stands for worst",
    .departures = {"outliers and the end of the prompt are read as the store holds them; the "
                   "reference keeps their keys whole",
                   "landmarks are means of the keys that are held, and have the cache's type",
                   "the softmax is at the model's scale; the reference's code divides by the root "
                   "of 128 whatever the model"},
    .bytes = "key_dim / chunk of the cache's type an entry of the prompt and head, and 4 an "
             "outlier, beside the cache",
    .params = {IntParam("chunk", 8, 1, 1024, "entries of a chunk"),
               IntParam("tokens", 2048, 1, 1 << 24, "entries of chosen chunks that are read"),
               IntParam("outliers", 48, 0, 1 << 20, "chunks that are always read"),
               IntParam("local", 4, 0, 1 << 20, "last chunks of the prompt, always read")},
    .make = Make<ShadowKv>(),
});

}  // namespace
}  // namespace kvgauge

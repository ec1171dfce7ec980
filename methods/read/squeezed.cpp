// SPDX-License-Identifier: Apache-2.0
// Reads the clusters of the prompt's keys to whose entries a query gives more than a threshold.
//
// Paper: Squeezed Attention, arXiv:2411.09688; after SqueezeAILab/SqueezedAttention. Needs the
// queries of the last `local` prompt rows, and the query of each decode step. Keys of the prompt
// before its last `local` are clustered by direction, one cluster for every 1 / `clusters` of them.
// By the means C of the clusters and their sizes N, a query q gives an entry of cluster i
// exp(q . C_i) / sum over j of N_j exp(q . C_j). The layer's threshold is the quantile of what the
// last `local` rows so give on average to the entries, for each query head, at which they would
// read `share` of them. Heads with flat attention then read more than others. The last `local`
// entries of the prompt, and what is decoded, are always read.
#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/buffer_bytes.h"
#include "methods/attention.h"
#include "methods/key_clusters.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Squeezed final : public Reader {
 public:
  explicit Squeezed(const Params& params)
      : share_(params.Real("share")),
        clusters_(params.Real("clusters")),
        local_(params.Int("local")),
        iterations_(static_cast<int>(params.Int("iterations"))) {}

  Needs needs() const override { return {.window = local_}; }

  struct Index final : State {
    std::vector<KeyClusters> heads;
    std::optional<float> threshold;

    int64_t bytes() const override {
      int64_t sum = 0;
      for (const KeyClusters& head : heads) {
        sum += head.means.size_bytes() + head.sizes.size_bytes() + head.assignment.size_bytes();
      }
      return sum;
    }
    bool empty() const {
      const auto none = [](const KeyClusters& head) { return head.count == 0; };
      return std::all_of(heads.begin(), heads.end(), none);
    }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    const ModelShape own = shape.OfLayer(layer);
    const int64_t members = std::max<int64_t>(0, entries - local_);
    const int64_t clusters = ClustersOf(members);
    return own.kv_heads * (HostBufferBytes(clusters * own.key_dim * SizeOf(DType::kF32)) +
                           HostBufferBytes(clusters * SizeOf(DType::kF32)) +
                           HostBufferBytes(members * SizeOf(DType::kI32)));
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto index = std::make_unique<Index>();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t members = std::max<int64_t>(0, view.lengths()[h] - local_);
      index->heads.push_back(ClusterKeys(view, h, 0, members, ClustersOf(members), iterations_));
    }
    if (!view.decoding() && !index->empty()) {
      index->threshold = Threshold(view, *index, view.WindowQueries(local_));
    }
    return index;
  }

  void Append(LayerView&, std::span<const int64_t>, State&) const override {}

  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    auto& index = static_cast<Index&>(state);
    for (size_t h = 0; h < index.heads.size(); ++h) {
      KVG_TRY(index.heads[h].Fields(view, view.lengths()[h], fields));
    }
    bool any = index.threshold.has_value();
    KVG_TRY(fields.Flag("whether there is a threshold", &any));
    double threshold = any ? double{index.threshold.value_or(0)} : 0;
    if (any) KVG_TRY(fields.Real("threshold", &threshold));
    if (!fields.reads()) return {};
    index.threshold.reset();
    if (any) index.threshold = static_cast<float>(threshold);
    return {};
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    auto& index = static_cast<Index&>(state);
    if (share_ >= 1 || index.empty()) return false;
    const int64_t heads = q.shape[0], group = view.shape().group(), dim = q.shape[1];
    // Where a stage acted since the prompt, the first row that follows sets the threshold.
    if (!index.threshold) index.threshold = Threshold(view, index, q.Reshape({1, heads, dim}));
    const Tensor above = view.Scratch(DType::kF32, {heads});
    std::vector<Tensor> given;  // [1, clusters] of each query head
    for (int64_t h = 0; h < heads; ++h) {
      const KeyClusters& clusters = index.heads[static_cast<size_t>(h / group)];
      given.emplace_back();
      if (clusters.count == 0) continue;
      given.back() = Given(view, clusters, q.Slice(h, h + 1));
      const Tensor over = view.Scratch(DType::kF32, {1, clusters.count});
      view.ops().rows->Fill(*index.threshold, over);
      view.ops().rows->Combine(over, given.back(), Binary::kLess, over);
      view.ops().rows->Combine(over, clusters.Sizes(), Binary::kMultiply, over);
      view.ops().rows->ReduceRows(over, Reduction::kSum, above.Slice(h, h + 1));
    }
    const std::vector<float> counts = Fetch(view.ops(), above);
    for (int64_t h = 0; h < heads; ++h) {
      const KeyClusters& clusters = index.heads[static_cast<size_t>(h / group)];
      const int64_t length = view.lengths()[static_cast<size_t>(h / group)];
      const auto count = std::lround(counts[static_cast<size_t>(h)]);
      const Tensor own = Columns(words.Slice(h, h + 1), 0, (length + 63) / 64);
      if (count > 0) {
        const Tensor entries = view.Scratch(DType::kF32, {1, clusters.members});
        ToEntries(view, clusters, given[static_cast<size_t>(h)], entries);
        MarkAll(view, Best(view, entries, count), length, own);
      }
      if (length == clusters.members) continue;
      const auto first = static_cast<int32_t>(clusters.members);
      MarkAll(view, Numbers(view, length - clusters.members, first), length, own);
    }
    return true;
  }

 private:
  int64_t ClustersOf(int64_t members) const {
    const auto count = static_cast<int64_t>(clusters_ * static_cast<double>(members) + 1e-9);
    return std::min(members, std::max<int64_t>(count, 1));
  }

  static void MarkAll(LayerView& view, const Tensor& entries, int64_t length, const Tensor& words) {
    if (length == 0) return;
    view.ops().select->MarkRuns(entries.Reshape({1, entries.shape[0]}), 1, length, words);
  }

  static void ToEntries(LayerView& view, const KeyClusters& clusters, const Tensor& given,
                        const Tensor& entries) {
    view.ops().select->Gather(given.Reshape({clusters.count, 1}), clusters.Assignment(),
                              entries.Reshape({clusters.members, 1}));
  }

  // What an entry of each cluster gets from each row of queries, about: [rows, clusters]. Rows of q
  // may be strided.
  static Tensor Given(LayerView& view, const KeyClusters& clusters, const Tensor& q) {
    Ops& ops = view.ops();
    const int64_t rows = q.shape[0], dim = q.shape[1], count = clusters.count;
    const Tensor query = view.Scratch(DType::kF32, {rows, dim});
    const Tensor given = view.Scratch(DType::kF32, {rows, count});
    const Tensor sizes = view.Scratch(DType::kF32, {1, count});
    ops.rows->Convert(q, query);
    ops.linear->MatMulNT(query.Reshape({1, rows, dim}),
                         clusters.Means(dim).Reshape({1, count, dim}), 1.0f,
                         given.Reshape({1, rows, count}));
    LogitsOfProducts(view, given);
    const Tensor held = clusters.Sizes().Reshape({1, count});
    ops.rows->Activate(held, Activation::kLog, sizes);  // -inf where there is none
    ops.rows->Combine(given, sizes[0], Binary::kAdd, given);
    ops.rows->Softmax(given, 1.0f, given);
    ops.rows->Combine(held, Filled(view, count, 1.0f), Binary::kMax, sizes);
    ops.rows->Combine(given, sizes[0], Binary::kDivide, given);
    return given;
  }

  // queries: [rows, query_heads, key_dim]
  float Threshold(LayerView& view, const Index& index, const Tensor& queries) const {
    const int64_t heads = queries.shape[1], group = view.shape().group();
    int64_t total = 0;
    for (const KeyClusters& head : index.heads) total += group * head.members;
    const Tensor all = view.Scratch(DType::kF32, {1, total});
    int64_t at = 0;
    for (int64_t h = 0; h < heads; ++h) {
      const KeyClusters& clusters = index.heads[static_cast<size_t>(h / group)];
      if (clusters.count == 0) continue;
      Tensor own(queries[0][h].data, DType::kF32, {queries.shape[0], queries.shape[2]},
                 queries.device);
      own.dtype = queries.dtype;
      own.stride[0] = queries.stride[0];
      const Tensor mean = view.Scratch(DType::kF32, {1, clusters.count});
      view.ops().rows->ReduceColumns(Given(view, clusters, own), Reduction::kMean, mean[0]);
      ToEntries(view, clusters, mean, Columns(all, at, at + clusters.members));
      at += clusters.members;
    }
    // Between the two numbers around the quantile, in proportion.
    const double place = (1 - share_) * static_cast<double>(total - 1);
    const auto below = static_cast<int64_t>(place);
    const float low = LeastOfBest(view, all, total - below);
    if (below + 1 == total) return low;
    const float high = LeastOfBest(view, all, total - below - 1);
    return low + static_cast<float>(place - static_cast<double>(below)) * (high - low);
  }

  static float LeastOfBest(LayerView& view, const Tensor& all, int64_t count) {
    const Tensor best = view.Scratch(DType::kF32, {count, 1});
    const Tensor least = view.Scratch(DType::kF32, {1});
    view.ops().select->Gather(all.Reshape({all.shape[1], 1}), Best(view, all, count), best);
    view.ops().rows->ReduceColumns(best, Reduction::kMin, least);
    return Fetch(view.ops(), least)[0];
  }

  double share_, clusters_;
  int64_t local_;
  int iterations_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "squeezed",
    .paper = "arXiv:2411.09688",
    .summary = "reads the clusters of entries to which a query gives more than a threshold",
    .departures =
        {"the threshold is a layer's, where the reference has one for all layers",
         "clusters start from evenly spaced keys, and there is one level of them",
         "all of a prompt but its end is the context that is clustered; what the question "
         "then looks at is read in full"},
    .bytes = "4 + 4 * (key_dim + 1) * clusters an entry of the prompt and head, beside the cache",
    .params = {RealParam("share", 0.3, 0.001, 1,
                         "share of the prompt that its last rows would read, on average"),
               RealParam("clusters", 0.05, 0.0001, 1, "clusters for each entry"),
               IntParam("local", 100, 1, 4096, "last rows of the prompt, whose entries are read"),
               IntParam("iterations", 20, 1, 1000, "rounds of clustering")},
    .make = Make<Squeezed>(),
});

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Reads the clusters of prompt entries whose mean key matches the query best; nothing is evicted.
//
// Paper: ClusterKV, arXiv:2412.03213. Needs the query of each decode step. Keys of the prompt after
// the first `sinks` are clustered by direction, one cluster for every `span` of them; each query
// head takes the clusters with the largest product of query and mean key until it reads `tokens`
// entries, of the last cluster only the earliest. First entries and decoded ones are always read.
#include <algorithm>

#include "core/strings.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// One head's entries [sinks, sinks + members) and the cluster that each is in.
struct Clusters {
  int64_t count = 0, members = 0;
  Buffer means;       // [count, key_dim] f32
  Buffer assignment;  // [members] i32
};

class ClusterKv final : public Reader {
 public:
  explicit ClusterKv(const Params& params)
      : tokens_(params.Int("tokens")),
        sinks_(params.Int("sinks")),
        span_(params.Int("span")),
        iterations_(static_cast<int>(params.Int("iterations"))),
        dense_layers_(params.Int("dense_layers")) {}

  Status Check(const ModelShape&) const override {
    if (sinks_ < tokens_) return {};
    return BadInput(StrCat("sinks ", sinks_, " are all of the ", tokens_,
                           " tokens that may be read; lower sinks or raise tokens"));
  }

  struct Index final : State {
    std::vector<Clusters> heads;  // empty: everything is read

    int64_t bytes() const override {
      int64_t sum = 0;
      for (const Clusters& head : heads) {
        sum += head.means.size_bytes() + head.assignment.size_bytes();
      }
      return sum;
    }
  };

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto index = std::make_unique<Index>();
    const auto fits = [this](int64_t length) { return length <= tokens_; };
    if (view.layer() < dense_layers_ ||
        std::all_of(view.lengths().begin(), view.lengths().end(), fits)) {
      return index;
    }
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) index->heads.push_back(Cluster(view, h));
    return index;
  }

  void Append(LayerView&, std::span<const int64_t>, State&) const override {}

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    const auto& index = static_cast<const Index&>(state);
    if (index.heads.empty()) return false;
    const int64_t group = view.shape().group();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], begin = h * group, end = begin + group;
      if (length == 0) continue;
      const Tensor chosen = Choose(view, index.heads[h], q.Slice(begin, end), length);
      view.ops().select->MarkRuns(chosen, 1, length,
                                  Columns(words.Slice(begin, end), 0, (length + 63) / 64));
    }
    return true;
  }

 private:
  Clusters Cluster(LayerView& view, int64_t head) const {
    Ops& ops = view.ops();
    const int64_t dim = view.shape().key_dim, n = view.lengths()[head];
    Clusters clusters;
    clusters.members = std::max<int64_t>(0, n - sinks_);
    clusters.count = (clusters.members + span_ - 1) / span_;
    if (clusters.count == 0) return clusters;
    const int64_t members = clusters.members, count = clusters.count;
    clusters.means = ops.memory->Allocate(count * dim * SizeOf(DType::kF32));
    clusters.assignment = ops.memory->Allocate(members * SizeOf(DType::kI32));
    const Tensor means = clusters.means.As(DType::kF32, {count, dim});
    const Tensor assignment = clusters.assignment.As(DType::kI32, {members});
    const Tensor keys = view.Keys(head, sinks_);
    const Tensor directions = view.Scratch(DType::kF32, {members, dim});
    ops.rows->RmsNorm(keys, Filled(view, dim, 1.0f), 0.0f, 1e-20f, directions);
    std::vector<int32_t> start;
    for (int64_t c = 0; c < count; ++c) {
      start.push_back(static_cast<int32_t>(c * members / count));
    }
    const Tensor centres = view.Scratch(DType::kF32, {count, dim});
    ops.select->Gather(directions, Upload(view, start), centres);
    ops.algebra->KMeans(directions, iterations_, centres, assignment);
    // What a query is compared with are means of the keys themselves.
    const Tensor sizes = view.Scratch(DType::kF32, {count, 1});
    const Tensor all = view.Scratch(DType::kF32, {count, dim});
    ops.select->ScatterAdd(keys, assignment, Tensor(), means);
    ops.select->ScatterAdd(AsColumn(Filled(view, members, 1.0f)), assignment, Tensor(), sizes);
    const Tensor row = sizes.Reshape({1, count});
    ops.rows->Combine(row, Filled(view, count, 1.0f), Binary::kMax, row);
    ops.linear->MatMulNN(sizes.Reshape({1, count, 1}), Filled(view, dim, 1.0f).Reshape({1, 1, dim}),
                         1.0f, all.Reshape({1, count, dim}));
    ops.rows->Combine(means, all, Binary::kDivide, means);
    return clusters;
  }

  // Entries that each of the group reads: [group, read] i32. q: [group, key_dim]
  Tensor Choose(LayerView& view, const Clusters& clusters, const Tensor& q, int64_t length) const {
    Ops& ops = view.ops();
    const int64_t group = q.shape[0], dim = q.shape[1], members = clusters.members;
    const int64_t first = std::min(sinks_, length), decoded = length - first - members;
    const int64_t read = first + decoded + std::min(members, tokens_ - sinks_);
    const Tensor scores = view.Scratch(DType::kF32, {group, length});
    ops.rows->Fill(kForcedScore, scores);
    if (members > 0) {
      const Tensor means = clusters.means.As(DType::kF32, {clusters.count, dim});
      const Tensor assignment = clusters.assignment.As(DType::kI32, {members});
      const Tensor query = view.Scratch(DType::kF32, {group, dim});
      ops.rows->Convert(q, query);
      const Tensor products = view.Scratch(DType::kF32, {clusters.count, 1});
      for (int64_t g = 0; g < group; ++g) {
        ops.linear->MatMulNT(means.Reshape({1, clusters.count, dim}), query[g].Reshape({1, 1, dim}),
                             1.0f, products.Reshape({1, clusters.count, 1}));
        ops.select->Gather(products, assignment, AsColumn(scores[g].Slice(first, first + members)));
      }
    }
    const std::vector<int32_t> counts(static_cast<size_t>(group), static_cast<int32_t>(read));
    const Tensor chosen = view.Scratch(DType::kI32, {group, read});
    ops.select->TopK(scores, Upload(view, counts), chosen);
    return chosen;
  }

  int64_t tokens_, sinks_, span_;
  int iterations_;
  int64_t dense_layers_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "clusterkv",
    .paper = "arXiv:2412.03213",
    .summary = "reads the clusters of entries whose mean key matches the query best",
    .departures = {"clusters start from evenly spaced keys",
                   "decoded entries are always read, as in the released code",
                   "prompts that fit `tokens` are read whole"},
    .bytes = "4 + 4 * key_dim / span an entry of the prompt and head, beside the cache",
    .params = {IntParam("tokens", 1024, 1, 1 << 24, "entries of the prompt that are read"),
               IntParam("sinks", 16, 0, 4096, "first entries, always read and among `tokens`"),
               IntParam("span", 80, 1, 1 << 16, "entries for each cluster, on average"),
               IntParam("iterations", 20, 1, 1000, "rounds of clustering"),
               IntParam("dense_layers", 2, 0, 1000, "first layers that read everything")},
    .make = Make<ClusterKv>(),
});

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Reads the clusters of prompt entries whose mean key matches the query best; nothing is evicted.
//
// Paper: ClusterKV, arXiv:2412.03213. Needs the query of each decode step. Keys of the prompt after
// the first `sinks` are clustered by direction, one cluster for every `span` of them; each query
// head takes the clusters with the largest product of query and mean key until it reads `tokens`
// entries, of the last cluster only the earliest. First entries and decoded ones are always read.
#include <algorithm>

#include "core/strings.h"
#include "methods/attention.h"
#include "methods/key_clusters.h"
#include "methods/registry.h"
#include "methods/repeating_reader.h"
#include "methods/repeating_view.h"
#include "methods/tensors.h"
#include "methods/turn_taking_reader.h"

namespace kvgauge {
namespace {

class ClusterKv final : public Reader, public TurnTakingReader, public RepeatingReader {
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
    std::vector<KeyClusters> heads;  // empty: everything is read

    int64_t bytes() const override {
      int64_t sum = 0;
      for (const KeyClusters& head : heads) {
        sum += head.means.size_bytes() + head.assignment.size_bytes();
      }
      return sum;
    }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    if (layer < dense_layers_ || entries <= tokens_) return 0;
    const ModelShape own = shape.OfLayer(layer);
    const int64_t members = std::max<int64_t>(0, entries - sinks_);
    return own.kv_heads * KeyClusters::MostBytes(ClustersOf(members), members, own.key_dim);
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto index = std::make_unique<Index>();
    const auto fits = [this](int64_t length) { return length <= tokens_; };
    if (view.layer() < dense_layers_ ||
        std::all_of(view.lengths().begin(), view.lengths().end(), fits)) {
      return index;
    }
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t members = std::max<int64_t>(0, view.lengths()[h] - sinks_);
      KeyClusters clusters =
          ClusterKeys(view, h, sinks_, members, ClustersOf(members), iterations_);
      clusters.sizes = Buffer();  // which nothing reads
      index->heads.push_back(std::move(clusters));
    }
    return index;
  }

  void Append(LayerView&, std::span<const int64_t>, State&) const override {}

  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    auto& heads = static_cast<Index&>(state).heads;
    bool any = !heads.empty();
    KVG_TRY(fields.Flag("whether entries are in clusters", &any));
    if (fields.reads()) {
      heads.clear();
      heads.resize(any ? static_cast<size_t>(view.shape().kv_heads) : 0);
    }
    for (size_t h = 0; h < heads.size(); ++h) {
      const int64_t most = std::max<int64_t>(0, view.lengths()[h] - sinks_);
      KVG_TRY(heads[h].Fields(view, most, fields));
      heads[h].sizes = Buffer();
    }
    return {};
  }

  bool ReadsFew(int64_t layer, int64_t length) const override {
    return layer >= dense_layers_ && AreFew(tokens_, length);
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    const auto& index = static_cast<const Index&>(state);
    if (index.heads.empty()) return false;
    const int64_t group = view.shape().group();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h], begin = h * group, end = begin + group;
      if (length == 0) continue;
      const Tensor chosen = Choose(view, h, index.heads[h], q.Slice(begin, end), length);
      view.ops().select->MarkRuns(chosen, 1, length,
                                  Columns(words.Slice(begin, end), 0, (length + 63) / 64));
    }
    return true;
  }

 private:
  int64_t ClustersOf(int64_t members) const { return (members + span_ - 1) / span_; }

  // Entries that each of the group reads: [group, read or more] i32; -1: none. q: [group, key_dim]
  Tensor Choose(LayerView& view, int64_t head, const KeyClusters& clusters, const Tensor& q,
                int64_t length) const {
    Ops& ops = view.ops();
    const int64_t group = q.shape[0], dim = q.shape[1], members = clusters.members;
    const int64_t first = std::min(sinks_, length), decoded = length - first - members;
    const int64_t read = first + decoded + std::min(members, tokens_ - sinks_);
    const Tensor scores = view.Scratch(DType::kF32, {group, GrowingColumns(view, length)});
    ops.rows->Fill(kForcedScore, scores);
    if (members > 0) {
      const Tensor means = clusters.Means(dim), assignment = clusters.Assignment();
      const Tensor query = view.Scratch(DType::kF32, {group, dim});
      ops.rows->Convert(q, query);
      const Tensor products = view.Scratch(DType::kF32, {clusters.count, 1});
      for (int64_t g = 0; g < group; ++g) {
        ops.linear->MatMulNT(means.Reshape({1, clusters.count, dim}), query[g].Reshape({1, 1, dim}),
                             1.0f, products.Reshape({1, clusters.count, 1}));
        ops.select->Gather(products, assignment, AsColumn(scores[g].Slice(first, first + members)));
      }
      HideFromNewest(view, head, first, 1, members, Columns(scores, first, first + members));
    }
    const std::vector<int32_t> counts(static_cast<size_t>(group), static_cast<int32_t>(read));
    const Tensor chosen = view.Scratch(DType::kI32, {group, GrowingColumns(view, read)});
    ops.select->TopK(Columns(scores, 0, length), Upload(view, counts), chosen);
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
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge

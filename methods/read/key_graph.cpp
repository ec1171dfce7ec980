// SPDX-License-Identifier: Apache-2.0
// Reads the entries that a search in a graph of their keys finds, on the host; nothing is evicted.
//
// Paper: RetrievalAttention, arXiv:2409.10516, with the graph that it names, RoarGraph,
// arXiv:2408.08933; after matchyc/RoarGraph. Needs the queries of the prompt's last `rows` rows,
// and the query of each decode step. The first `sinks` entries of the prompt, its last `local` ones
// and what is decoded are always read. Each query head has a graph of the others
// (kernels/key_graph.h), made behind the prompt. It links the keys that are among the `nearest` of
// one query, and each key to what a search for it passes. In a decode step a search goes on from
// the nearest key that it has seen to those that are linked to it, until it has followed the links
// of the `beam` nearest; the head reads the best `tokens` of these.
#include "kernels/key_graph.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/buffer_bytes.h"
#include "methods/joining_reader.h"
#include "methods/registry.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class KeyGraphReader final : public Reader {
 public:
  explicit KeyGraphReader(const Params& params)
      : tokens_(params.Int("tokens")),
        sinks_(params.Int("sinks")),
        local_(params.Int("local")),
        rows_(params.Int("rows")),
        nearest_(params.Int("nearest")),
        beam_(std::max(params.Int("beam"), tokens_)),
        rule_{.degree = params.Int("degree"), .build_beam = params.Int("build_beam")} {}

  Needs needs() const override { return {.window = rows_}; }

  struct Index final : State {
    std::vector<int64_t> members;       // [kv_heads] entries behind the sinks
    std::vector<Buffer> keys;           // [kv_heads] of [members, key_dim] f32, on the host
    std::vector<KeyGraph> graphs;       // [query_heads]
    std::vector<KeyGraph::Walk> walks;  // [query_heads]

    int64_t bytes() const override {
      int64_t sum = 0;
      for (const Buffer& own : keys) sum += own.size_bytes();
      for (const KeyGraph& graph : graphs) sum += graph.bytes();
      for (const KeyGraph::Walk& walk : walks) sum += walk.bytes();
      return sum;
    }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    const ModelShape own = shape.OfLayer(layer);
    const int64_t members = std::max<int64_t>(0, entries - sinks_ - local_);
    if (members <= tokens_ || SeesWindow(own, layer)) return 0;
    return own.kv_heads * HostBufferBytes(members * own.key_dim * SizeOf(DType::kF32)) +
           own.query_heads *
               (KeyGraph::MostBytes(members, rule_) + KeyGraph::Walk::BytesOf(members, beam_));
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto index = std::make_unique<Index>();
    for (const int64_t length : view.lengths()) {
      index->members.push_back(std::max<int64_t>(0, length - sinks_ - local_));
    }
    const auto most = std::max_element(index->members.begin(), index->members.end());
    if (*most <= tokens_ || SeesWindow(view.shape(), view.layer())) return index;
    FetchKeys(view, *index);
    Link(view, *index);
    return index;
  }

  void Append(LayerView&, std::span<const int64_t>, State&) const override {}

  bool saves() const override { return true; }
  // Begin made graphs without queries, of entries that have come since as well.
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    auto& index = static_cast<Index&>(state);
    const int64_t dim = view.shape().key_dim;
    bool any = !index.graphs.empty();
    KVG_TRY(fields.Flag("whether there are graphs of keys", &any));
    if (fields.reads() && !any) {
      index.keys.clear();
      index.graphs.clear();
      index.walks.clear();
    }
    if (fields.reads() && any) {
      index.keys.resize(index.members.size());
      index.graphs.resize(static_cast<size_t>(view.shape().query_heads));
      index.walks.resize(index.graphs.size());
    }
    for (size_t h = 0; h < index.members.size(); ++h) {
      const int64_t most = std::max<int64_t>(0, view.lengths()[h] - sinks_);
      KVG_TRY(fields.Number("entries that are searched", 0, most, &index.members[h]));
      if (!any) continue;
      const int64_t n = index.members[h];
      if (fields.reads()) index.keys[h] = HostBuffer(n * dim * SizeOf(DType::kF32));
      if (n == 0) continue;
      KVG_TRY(fields.Rows("keys of a graph", view.ops(), index.keys[h].As(DType::kF32, {n, dim})));
    }
    for (size_t head = 0; head < index.graphs.size(); ++head) {
      const int64_t n = index.members[head / static_cast<size_t>(view.shape().group())];
      if (n > 0) KVG_TRY(GraphFields(view.ops(), n, index.graphs[head], fields));
      if (fields.reads()) index.walks[head] = KeyGraph::Walk(n, beam_);
    }
    return {};
  }

  bool ReadsFew(int64_t, int64_t length) const override {
    return AreFew(sinks_ + local_ + tokens_, length);
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    auto& index = static_cast<Index&>(state);
    if (index.graphs.empty()) return false;
    Ops& ops = view.ops();
    const int64_t heads = q.shape[0], dim = q.shape[1], group = view.shape().group();
    const Tensor query = view.Scratch(DType::kF32, {heads, dim});
    ops.rows->Convert(q, query);
    const std::vector<float> queries = Fetch(ops, query);
    std::vector<int32_t> found(static_cast<size_t>(heads * tokens_), -1);
    ops.tasks->ForEach(heads, SearchCost_ns(dim), [&](int64_t head) {
      Search(index, head, head / group, queries.data() + head * dim, found.data() + head * tokens_);
    });
    const Tensor chosen = Upload(view, found).Reshape({heads, tokens_});
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[static_cast<size_t>(h)];
      if (length == 0) continue;
      const Tensor own = words.Slice(h * group, (h + 1) * group);
      ops.select->MarkRuns(chosen.Slice(h * group, (h + 1) * group), 1, length,
                           Columns(own, 0, (length + 63) / 64));
      MarkEnds(view, sinks_, sinks_ + index.members[static_cast<size_t>(h)], length, own);
    }
    return true;
  }

 private:
  static constexpr int64_t kRowsTogether = 256;

  Status GraphFields(Ops& ops, int64_t keys, KeyGraph& graph, StateFields& fields) const {
    int64_t entry = graph.entry();
    bool linked = graph.linked();
    KVG_TRY(fields.Number("the first key of searches", 0, keys - 1, &entry));
    KVG_TRY(fields.Flag("whether keys are linked", &linked));
    std::vector<int32_t> counts(linked ? static_cast<size_t>(keys) : 0);
    for (size_t key = 0; !fields.reads() && key < counts.size(); ++key) {
      counts[key] = static_cast<int32_t>(graph.Links(static_cast<int64_t>(key)).size());
    }
    const int64_t most = std::min(keys, 2 * rule_.degree + 1);
    if (linked) KVG_TRY(fields.IndexRows("links of keys", ops, most, View(counts, {keys})));
    std::vector<int32_t> links(graph.links().begin(), graph.links().end());
    if (fields.reads()) links.resize(std::accumulate(counts.begin(), counts.end(), size_t{0}));
    if (!links.empty()) {
      KVG_TRY(fields.IndexRows("linked keys", ops, keys, View(links, {std::ssize(links)})));
    }
    if (fields.reads()) {
      graph = KeyGraph::Of(keys, static_cast<int32_t>(entry), counts, std::move(links));
    }
    return {};
  }

  static bool SeesWindow(const ModelShape& shape, int64_t layer) {
    return shape.windows[static_cast<size_t>(layer)] > 0;
  }
  // About: products of some links of each key that a search passes.
  double SearchCost_ns(int64_t dim) const {
    constexpr double kNumber_ns = 0.3;
    return kNumber_ns * static_cast<double>(beam_ * rule_.degree * dim);
  }

  void FetchKeys(LayerView& view, Index& index) const {
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t n = index.members[static_cast<size_t>(h)], dim = view.shape().key_dim;
      index.keys.push_back(HostBuffer(n * dim * SizeOf(DType::kF32)));
      if (n == 0) continue;
      view.ops().memory->Copy(view.Keys(h, sinks_).Slice(0, n),
                              index.keys.back().As(DType::kF32, {n, dim}));
    }
  }

  // The nearest keys of each of a head's queries, on the host.
  struct NearestKeys {
    int64_t rows = 0, count = 0;
    std::vector<int32_t> all, best;  // [rows, count], [rows]
  };

  void Link(LayerView& view, Index& index) const {
    const int64_t heads = view.shape().query_heads, group = view.shape().group();
    const int64_t dim = view.shape().key_dim;
    // Once tokens were decoded there are no queries of the prompt, nor links without them.
    std::vector<NearestKeys> nearest(static_cast<size_t>(heads));
    if (!view.decoding()) nearest = Rank(view, index.members);
    view.ops().memory->Synchronize();
    index.graphs.resize(static_cast<size_t>(heads));
    index.walks.resize(static_cast<size_t>(heads));
    const auto longest =
        static_cast<double>(*std::max_element(index.members.begin(), index.members.end()));
    view.ops().tasks->ForEach(heads, longest * SearchCost_ns(dim), [&](int64_t head) {
      const auto at = static_cast<size_t>(head), kv_head = static_cast<size_t>(head / group);
      const int64_t n = index.members[kv_head];
      if (n == 0) return;
      const NearestKeys& own = nearest[at];
      const Tensor all = own.rows > 0 ? View(own.all, {own.rows, own.count}) : Tensor();
      const Tensor best = own.rows > 0 ? View(own.best, {own.rows}) : Tensor();
      index.graphs[at] =
          KeyGraph::Build(index.keys[kv_head].As(DType::kF32, {n, dim}), all, best, rule_);
      index.walks[at] = KeyGraph::Walk(n, beam_);
    });
  }

  // One for each query head.
  std::vector<NearestKeys> Rank(LayerView& view, std::span<const int64_t> members) const {
    Ops& ops = view.ops();
    const Tensor queries = view.WindowQueries(std::min(rows_, view.tokens()));
    const int64_t rows = queries.shape[0], heads = queries.shape[1], dim = queries.shape[2];
    const int64_t most = std::min(rows, kRowsTogether), group = view.shape().group();
    const int64_t longest = *std::max_element(members.begin(), members.end());
    const Tensor some = view.Scratch(DType::kF32, {most, dim});
    const Tensor products = view.Scratch(DType::kF32, {most * longest});
    const Tensor chosen = view.Scratch(DType::kI32, {rows * std::min(nearest_, longest)});
    const Tensor best = view.Scratch(DType::kI32, {rows});
    std::vector<NearestKeys> out(static_cast<size_t>(heads));
    for (int64_t head = 0; head < heads; ++head) {
      const int64_t n = members[static_cast<size_t>(head / group)];
      if (n == 0) continue;
      NearestKeys& own = out[static_cast<size_t>(head)];
      own.rows = rows;
      own.count = std::min(nearest_, n);
      const Tensor keys = view.Keys(head / group, sinks_).Slice(0, n);
      Tensor query(queries[0][head].data, DType::kF32, {rows, dim}, queries.device);
      query.dtype = queries.dtype;
      query.stride[0] = queries.stride[0];
      const Tensor all = chosen.Slice(0, rows * own.count).Reshape({rows, own.count});
      const std::vector<int32_t> count(static_cast<size_t>(most), static_cast<int32_t>(own.count));
      const Tensor counts = Upload(view, count);
      for (int64_t first = 0; first < rows; first += most) {
        const int64_t m = std::min(most, rows - first);
        const Tensor part = products.Slice(0, m * n).Reshape({m, n});
        ops.rows->Convert(query.Slice(first, first + m), some.Slice(0, m));
        ops.linear->MatMulNT(some.Slice(0, m).Reshape({1, m, dim}), keys.Reshape({1, n, dim}), 1.0f,
                             part.Reshape({1, m, n}));
        ops.select->TopK(part, counts.Slice(0, m), all.Slice(first, first + m));
        ops.rows->ArgMax(part, best.Slice(first, first + m));
      }
      own.all.resize(static_cast<size_t>(rows * own.count));
      own.best.resize(static_cast<size_t>(rows));
      ops.memory->Copy(all, View(own.all, {rows, own.count}));
      ops.memory->Copy(best, View(own.best, {rows}));
    }
    return out;
  }

  // out: [tokens] entries of the head; what is not found stays.
  void Search(Index& index, int64_t head, int64_t kv_head, const float* query, int32_t* out) const {
    const KeyGraph& graph = index.graphs[static_cast<size_t>(head)];
    if (graph.keys() <= tokens_) {
      std::iota(out, out + graph.keys(), static_cast<int32_t>(sinks_));
      return;
    }
    KeyGraph::Walk& walk = index.walks[static_cast<size_t>(head)];
    const Buffer& keys = index.keys[static_cast<size_t>(kv_head)];
    const int64_t dim = keys.size_bytes() / (graph.keys() * SizeOf(DType::kF32));
    graph.Search(keys.As(DType::kF32, {graph.keys(), dim}), query, beam_, walk);
    const auto found =
        walk.found().first(std::min(walk.found().size(), static_cast<size_t>(tokens_)));
    for (size_t i = 0; i < found.size(); ++i) {
      out[i] = static_cast<int32_t>(sinks_) + found[i].key;
    }
  }

  int64_t tokens_, sinks_, local_, rows_, nearest_, beam_;
  KeyGraph::Rule rule_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "key_graph",
    .paper = "arXiv:2409.10516",
    .summary = "reads the entries that a best-first search in a graph of their keys finds",
    .departures =
        {("the queries of the last `rows` rows of the prompt make the graphs, where the paper's "
          "are "
          "all"),
         ("how large the paper's graphs and beams are is not published: `nearest`, `degree` and "
          "`build_beam` are those with which RoarGraph's repository builds its own, whose searches "
          "have beams of 10 to 2000"),
         "links to the first key that RoarGraph's code adds to lists that overflow are left out",
         "the index has keys of its own, f32, where the paper's points to those of the cache",
         "layers with a sliding window read all that they see",
         ("where a stage evicts in decode there are no queries of a prompt, and a search looks at "
          "every key")},
    .bytes = "4 * key_dim an entry of the prompt and KV head, and up to 8 * degree + 4 for each "
             "query head of it, beside the cache",
    .params = {IntParam("tokens", 100, 1, 1 << 20, "entries that are searched for"),
               IntParam("sinks", 128, 0, 1 << 20, "first entries, always read"),
               IntParam("local", 512, 1, 1 << 20, "last entries of the prompt, always read"),
               IntParam("rows", 2048, 1, 1 << 20,
                        "last rows of the prompt whose queries make the graphs"),
               IntParam("nearest", 100, 1, 1 << 16, "keys of a query that are linked"),
               IntParam("degree", 35, 1, 4096,
                        "links that a key has by queries, and as many again by searches"),
               IntParam("build_beam", 500, 1, 1 << 20, "beam of the searches that make a graph"),
               IntParam("beam", 200, 1, 1 << 20,
                        "nearest keys seen whose links a search follows; `tokens` at least")},
    .make = Make<KeyGraphReader>(),
});

}  // namespace
}  // namespace kvgauge

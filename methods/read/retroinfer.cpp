// SPDX-License-Identifier: Apache-2.0
// Reads the clusters of entries that get most attention, and estimates what the next ones give.
//
// Paper: RetroInfer, arXiv:2505.02922; after microsoft/RetrievalAttention. Needs the query of each
// decode step. The keys of the prompt but its first `sinks` and last `local`, less their mean, are
// clustered by their products with centres of unit length, `segment` tokens at a time; at last each
// key joins the best centre of all. A softmax over the mean keys of the clusters, summed over the
// query heads of a KV head, ranks them. What is in the best clusters is read. Each entry of the
// next ones counts as the mean of its cluster: in the softmax's denominator exp(q . mean key) times
// the size, in its numerator the sum of the values. The others count as nothing; what is decoded is
// read.
#include <algorithm>
#include <cmath>

#include "kernels/buffer_bytes.h"
#include "methods/attention.h"
#include "methods/joining_reader.h"
#include "methods/registry.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"
#include "methods/turn_taking_reader.h"

namespace kvgauge {
namespace {

class RetroInfer final : public JoiningReader, public TurnTakingReader {
 public:
  explicit RetroInfer(const Params& params)
      : span_(params.Int("span")),
        segment_(params.Int("segment")),
        sinks_(params.Int("sinks")),
        local_(params.Int("local")),
        iterations_(params.Int("iterations")),
        share_(params.Real("share")),
        estimated_(params.Real("estimated")) {}

  struct Head {
    int64_t members = 0, count = 0, dim = 0, value_dim = 0;
    Buffer keys;        // [count, key_dim] f32: means
    Buffer values;      // [count, value_dim] f32: means
    Buffer log_sizes;   // [count] f32, -inf where a cluster is empty
    Buffer assignment;  // [members] i32
    Buffer rest;        // [group, count] f32: logits of what is estimated in this step, else -inf

    int64_t bytes() const {
      return keys.size_bytes() + values.size_bytes() + log_sizes.size_bytes() +
             assignment.size_bytes() + rest.size_bytes();
    }
    Tensor Keys() const { return keys.As(DType::kF32, {count, dim}); }
    Tensor Values() const { return values.As(DType::kF32, {count, value_dim}); }
    Tensor LogSizes() const { return log_sizes.As(DType::kF32, {count}); }
    Tensor Assignment() const { return assignment.As(DType::kI32, {members}); }
  };

  struct Index final : State {
    std::vector<Head> heads;

    int64_t bytes() const override {
      int64_t sum = 0;
      for (const Head& head : heads) sum += head.bytes();
      return sum;
    }
    bool empty() const {
      const auto none = [](const Head& head) { return head.members == 0; };
      return std::all_of(heads.begin(), heads.end(), none);
    }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    const ModelShape own = shape.OfLayer(layer);
    const int64_t members = std::max<int64_t>(0, entries - sinks_ - local_);
    // Segments of a head with fewer entries may have more clusters together, never more than these.
    const int64_t clusters = std::min(members, std::max(Segments(entries), Spans(entries)));
    const auto each = [&](int64_t count) { return HostBufferBytes(4 * count); };
    return own.kv_heads * (each(clusters * own.key_dim) + each(clusters * own.value_dim) +
                           each(clusters) + each(members) + each(own.group() * clusters));
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto index = std::make_unique<Index>();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) index->heads.push_back(Divide(view, h));
    return index;
  }

  void Append(LayerView&, std::span<const int64_t>, State&) const override {}

  bool saves() const override { return true; }
  // A step sets the rest.
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    Ops& ops = view.ops();
    auto& heads = static_cast<Index&>(state).heads;
    for (size_t h = 0; h < heads.size(); ++h) {
      Head& head = heads[h];
      const int64_t most = std::max<int64_t>(0, view.lengths()[h] - sinks_);
      KVG_TRY(fields.Number("entries in clusters", 0, most, &head.members));
      if (head.members == 0) continue;
      KVG_TRY(fields.Number("clusters of a head", 1, head.members, &head.count));
      KVG_TRY(
          fields.Memory("keys of clusters", ops, DType::kF32, head.count * head.dim, &head.keys));
      KVG_TRY(fields.Memory("values of clusters", ops, DType::kF32, head.count * head.value_dim,
                            &head.values));
      KVG_TRY(fields.Memory("sizes of clusters", ops, DType::kF32, head.count, &head.log_sizes));
      KVG_TRY(
          fields.Indices("clusters of entries", ops, head.members, head.count, &head.assignment));
      if (!fields.reads()) continue;
      head.rest = ops.memory->Allocate(view.shape().group() * head.count * SizeOf(DType::kF32));
    }
    return {};
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    auto& index = static_cast<Index&>(state);
    if (share_ >= 1 || index.empty()) return false;
    const int64_t group = view.shape().group();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const Head& head = index.heads[static_cast<size_t>(h)];
      const int64_t length = view.lengths()[h], begin = h * group, end = begin + group;
      if (length == 0) continue;
      const Tensor own = words.Slice(begin, end);
      if (head.members > 0) Choose(view, head, q.Slice(begin, end), own);
      MarkEnds(view, sinks_, sinks_ + head.members, length, own);
    }
    return true;
  }

  void Join(LayerView& view, State& state, const Tensor&, const Tensor& log_sum_exp,
            Tensor out) const override {
    const auto& index = static_cast<const Index&>(state);
    const int64_t group = view.shape().group();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const Head& head = index.heads[static_cast<size_t>(h)];
      if (head.members == 0) continue;
      const int64_t begin = h * group, end = begin + group;
      JoinSoftmax(view, log_sum_exp.Slice(begin, end),
                  head.rest.As(DType::kF32, {group, head.count}), head.Values(),
                  out.Slice(begin, end));
    }
  }

 private:
  static constexpr int64_t kRowsTogether = 1024;

  // How many segments a head of `length` entries has, and how many clusters each of them.
  int64_t Segments(int64_t length) const {
    const double segments =
        std::nearbyint(static_cast<double>(length) / static_cast<double>(segment_));
    return std::max<int64_t>(1, static_cast<int64_t>(segments));
  }
  int64_t Spans(int64_t length) const {
    const double spans = std::nearbyint(static_cast<double>(length) / static_cast<double>(span_));
    return static_cast<int64_t>(spans);
  }
  int64_t ClustersOfSegment(int64_t length, int64_t members) const {
    const int64_t segments = Segments(length);
    const int64_t wanted = std::max<int64_t>(1, Spans(length) / segments);
    return std::min(wanted, std::max<int64_t>(1, members / segments));
  }
  static int64_t ShareOf(double share, int64_t count) {
    return static_cast<int64_t>(std::nearbyint(share * static_cast<double>(count)));
  }
  int64_t Read(int64_t count) const {
    return std::min(count, std::max<int64_t>(1, ShareOf(share_, count)));
  }
  int64_t Estimated(int64_t count) const {
    return std::min(ShareOf(estimated_, count), count - Read(count));
  }

  Head Divide(LayerView& view, int64_t h) const {
    Ops& ops = view.ops();
    const int64_t length = view.lengths()[h];
    Head head;
    head.dim = view.shape().key_dim;
    head.value_dim = view.shape().value_dim;
    head.members = std::max<int64_t>(0, length - sinks_ - local_);
    const int64_t segments = Segments(length);
    if (head.members < segments) head.members = 0;
    if (head.members == 0) return head;
    const int64_t of_segment = ClustersOfSegment(length, head.members);
    head.count = segments * of_segment;
    const auto allocate = [&](int64_t numbers) { return ops.memory->Allocate(4 * numbers); };
    head.keys = allocate(head.count * head.dim);
    head.values = allocate(head.count * head.value_dim);
    head.log_sizes = allocate(head.count);
    head.assignment = allocate(head.members);
    head.rest = allocate(view.shape().group() * head.count);

    const Tensor keys = view.Keys(h, sinks_).Slice(0, head.members);
    const Tensor values = view.Values(h, sinks_).Slice(0, head.members);
    const Tensor mean = view.Scratch(DType::kF32, {head.dim});
    const Tensor centred = view.Scratch(DType::kF32, {head.members, head.dim});
    ops.rows->ReduceColumns(keys, Reduction::kMean, mean);
    ops.rows->Combine(keys, mean, Binary::kSubtract, centred);
    const Tensor centres = view.Scratch(DType::kF32, {head.count, head.dim});
    ops.select->Gather(centred, Upload(view, Spaced(head.members, head.count)), centres);
    const int64_t piece = head.members / segments;
    for (int64_t s = 0; s < segments; ++s) {
      const Tensor rows = centred.Slice(s * piece, (s + 1) * piece);
      const Tensor own = centres.Slice(s * of_segment, (s + 1) * of_segment);
      for (int64_t i = 1; i < iterations_; ++i) Move(view, rows, own);
    }
    Assign(view, centred, centres, head.Assignment());
    const Tensor sizes = Sizes(view, head.Assignment(), head.count);
    MeansOf(view, keys, head.Assignment(), sizes, head.Keys());
    MeansOf(view, values, head.Assignment(), sizes, head.Values());
    ops.rows->Activate(sizes.Reshape({1, head.count}), Activation::kLog,
                       head.LogSizes().Reshape({1, head.count}));
    return head;
  }

  // In the middles of `count` even pieces.
  static std::vector<int32_t> Spaced(int64_t members, int64_t count) {
    std::vector<int32_t> places;
    const double step = static_cast<double>(members) / static_cast<double>(count);
    for (int64_t c = 0; c < count; ++c) {
      const double place = static_cast<double>(c) * step + step / 2;
      places.push_back(static_cast<int32_t>(place));
    }
    return places;
  }

  // The centre with the largest product.
  static void Assign(LayerView& view, const Tensor& rows, const Tensor& centres,
                     const Tensor& assignment) {
    const int64_t n = rows.shape[0], dim = rows.shape[1], count = centres.shape[0];
    const int64_t most = std::min(n, kRowsTogether);
    const Tensor products = view.Scratch(DType::kF32, {most, count});
    for (int64_t first = 0; first < n; first += most) {
      const int64_t m = std::min(most, n - first);
      const Tensor part = products.Slice(0, m);
      view.ops().linear->MatMulNT(rows.Slice(first, first + m).Reshape({1, m, dim}),
                                  centres.Reshape({1, count, dim}), 1.0f,
                                  part.Reshape({1, m, count}));
      view.ops().rows->ArgMax(part, assignment.Slice(first, first + m));
    }
  }

  static Tensor Sizes(LayerView& view, const Tensor& assignment, int64_t count) {
    const Tensor sizes = view.Scratch(DType::kF32, {count, 1});
    view.ops().select->ScatterAdd(AsColumn(Filled(view, assignment.shape[0], 1.0f)), assignment,
                                  Tensor(), sizes);
    return sizes.Reshape({count});
  }

  // out: zero on entry, and where a cluster is empty.
  static void MeansOf(LayerView& view, const Tensor& rows, const Tensor& assignment,
                      const Tensor& sizes, const Tensor& out) {
    const int64_t count = out.shape[0];
    Ops& ops = view.ops();
    const Tensor least = view.Scratch(DType::kF32, {1, count});
    ops.select->ScatterAdd(rows, assignment, Tensor(), out);
    ops.rows->Combine(sizes.Reshape({1, count}), Filled(view, count, 1.0f), Binary::kMax, least);
    ops.rows->Combine(out, Spread(view, least[0], out.shape[1]), Binary::kDivide, out);
  }

  // A round of clustering: centres become the directions of what joined them; one that nothing
  // joined stays.
  static void Move(LayerView& view, const Tensor& rows, const Tensor& centres) {
    Ops& ops = view.ops();
    const int64_t n = rows.shape[0], count = centres.shape[0], dim = centres.shape[1];
    const Tensor assignment = view.Scratch(DType::kI32, {n});
    const Tensor sums = view.Scratch(DType::kF32, {count, dim});
    const Tensor lengths = view.Scratch(DType::kF32, {1, count});
    const Tensor stays = view.Scratch(DType::kF32, {1, count});
    Assign(view, rows, centres, assignment);
    ops.select->ScatterAdd(rows, assignment, Tensor(), sums);
    ops.rows->ReduceRows(sums, Reduction::kNorm, lengths[0]);
    // 1 where the sum is nothing.
    ops.rows->Combine(lengths, Filled(view, count, 1e-30f), Binary::kLess, stays);
    ops.rows->Combine(lengths, Filled(view, count, 1e-30f), Binary::kMax, lengths);
    ops.rows->Combine(sums, Spread(view, lengths[0], dim), Binary::kDivide, sums);
    ops.rows->Combine(centres, Spread(view, stays[0], dim), Binary::kMultiply, centres);
    ops.rows->Combine(centres, sums, Binary::kAdd, centres);
  }

  // Marks the entries of the best clusters, and leaves the logits of the next ones in head.rest.
  void Choose(LayerView& view, const Head& head, const Tensor& q, const Tensor& words) const {
    Ops& ops = view.ops();
    const int64_t group = q.shape[0], count = head.count, n = head.members;
    const Tensor query = view.Scratch(DType::kF32, {group, head.dim});
    const Tensor shares = view.Scratch(DType::kF32, {group, count});
    const Tensor votes = view.Scratch(DType::kF32, {1, count});
    const Tensor logits = head.rest.As(DType::kF32, {group, count});
    ops.rows->Convert(q, query);
    ops.linear->MatMulNT(query.Reshape({1, group, head.dim}),
                         head.Keys().Reshape({1, count, head.dim}), 1.0f,
                         logits.Reshape({1, group, count}));
    LogitsOfProducts(view, logits);
    const Tensor none = view.Scratch(DType::kF32, {1, count});
    const Tensor sizes = head.LogSizes();
    // The log size of an empty cluster is -inf, so that it has no share.
    ops.rows->Combine(logits, sizes, Binary::kAdd, logits);
    ops.rows->Combine(sizes.Reshape({1, count}), Filled(view, count, 0.0f), Binary::kMax, none);
    ops.rows->Combine(logits, none[0], Binary::kSubtract, shares);
    ops.rows->Softmax(shares, 1.0f, shares);
    ops.rows->ReduceColumns(shares, Reduction::kSum, votes[0]);

    const Tensor best = Among(view, votes, Read(count));
    const Tensor next = Among(view, votes, Read(count) + Estimated(count));
    const Tensor entries = view.Scratch(DType::kF32, {1, n});
    ops.select->Gather(AsColumn(best[0]), head.Assignment(), AsColumn(entries[0]));
    MarkWhere(view, entries, sinks_, words);
    // The log of what is neither read nor too far down the ranks is 0, else -inf.
    ops.rows->Combine(next, best[0], Binary::kSubtract, next);
    ops.rows->Activate(next, Activation::kLog, next);
    ops.rows->Combine(logits, next[0], Binary::kAdd, logits);
  }

  // 1 for the best `many` of votes [1, count], 0 for others.
  static Tensor Among(LayerView& view, const Tensor& votes, int64_t many) {
    const Tensor is = view.Scratch(DType::kF32, {1, votes.shape[1]});
    view.ops().select->Scatter(AsColumn(Filled(view, many, 1.0f)), Best(view, votes, many),
                               AsColumn(is[0]));
    return is;
  }

  int64_t span_, segment_, sinks_, local_, iterations_;
  double share_, estimated_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "retroinfer",
    .paper = "arXiv:2505.02922",
    .summary = "reads the best clusters of entries, and estimates the next ones by their means",
    .departures = {"prompts of any length are clustered, where the reference reads up to 16452 "
                   "tokens whole",
                   "what is decoded is read, where the reference clusters it by 1024 tokens",
                   "the number of clusters is no multiple of 8, which the reference's kernels need",
                   "where the layer has a sliding window, estimates count hidden entries, too"},
    .bytes = "4 + 4 * (key_dim + value_dim + 1 + group) / span an entry of the prompt and head, "
             "beside the cache",
    .params = {IntParam("span", 16, 1, 4096, "entries for each cluster"),
               IntParam("segment", 8192, 64, 1 << 24, "tokens that are clustered together"),
               RealParam("share", 0.018, 0, 1,
                         "share of the clusters that is read, but one at least"),
               RealParam("estimated", 0.232, 0, 1, "share of the clusters that is estimated"),
               IntParam("sinks", 4, 0, 1 << 20, "first entries, always read"),
               IntParam("local", 64, 1, 1 << 20, "last entries of the prompt, always read"),
               IntParam("iterations", 10, 1, 1000, "rounds of clustering")},
    .make = Make<RetroInfer>(),
});

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Reads the sentences of the prompt whose mean key matches the queries of the sentence that is
// being written best; nothing is evicted.
//
// Paper: SentenceKV, arXiv:2504.00970. Needs the query of each decode step and the classes of
// tokens. A sentence ends with a token of punctuation. The queries of the answer's current sentence
// are averaged; each query head takes the sentences with the largest product of that mean and their
// mean key until it reads `tokens` entries, of the last sentence only the earliest. The first
// `sinks` and the last `local` entries of the prompt and all that is decoded are always read.
#include <algorithm>

#include "kernels/buffer_bytes.h"
#include "methods/attention.h"
#include "methods/copied_reader.h"
#include "methods/registry.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"
#include "methods/tried_steps.h"

namespace kvgauge {
namespace {

// For one head, the sentences of its first `entries` entries.
struct HeadSentences {
  int64_t entries = 0, count = 0;
  Buffer means;   // [count, key_dim] f32
  Buffer ends;    // [count] i32, the last entry of each
  Buffer end_of;  // [entries] i32, the last entry of the sentence that an entry is in
};

class Sentences final : public Reader, public CopiedReader {
 public:
  explicit Sentences(const Params& params)
      : tokens_(params.Int("tokens")), sinks_(params.Int("sinks")), local_(params.Int("local")) {}

  Needs needs() const override { return {.token_classes = true}; }

  struct Index final : State {
    // Empty: everything is read. Forks share them, and nobody changes them.
    std::shared_ptr<std::vector<HeadSentences>> heads;
    TriedSteps steps;
    Buffer queries;    // [query_heads, key_dim] f32, summed over the sentence
    int64_t rows = 0;  // summed so far

    int64_t bytes() const override {
      int64_t sum = 0;
      for (const HeadSentences& head : *heads) {
        sum += head.means.size_bytes() + head.ends.size_bytes() + head.end_of.size_bytes();
      }
      return sum;
    }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    if (entries <= sinks_ + local_ + tokens_) return 0;
    // Sentences have ten to twenty tokens. A plan for ones of a single token each would count as
    // much as the cache itself.
    constexpr int64_t kFewestTokens = 4;
    const int64_t count = (entries + kFewestTokens - 1) / kFewestTokens;
    const ModelShape own = shape.OfLayer(layer);
    return own.kv_heads * (HostBufferBytes(count * own.key_dim * SizeOf(DType::kF32)) +
                           HostBufferBytes(count * SizeOf(DType::kI32)) +
                           HostBufferBytes(entries * SizeOf(DType::kI32)));
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto index = std::make_unique<Index>();
    const ModelShape& shape = view.shape();
    const int64_t most = sinks_ + local_ + tokens_;
    if (std::all_of(view.lengths().begin(), view.lengths().end(),
                    [most](int64_t length) { return length <= most; })) {
      index->heads = std::make_shared<std::vector<HeadSentences>>();
      return index;
    }
    index->queries =
        view.ops().memory->Allocate(shape.query_heads * shape.key_dim * SizeOf(DType::kF32));
    std::vector<HeadSentences> heads;
    for (int64_t h = 0; h < shape.kv_heads; ++h) heads.push_back(Divide(view, h));
    index->heads = std::make_shared<std::vector<HeadSentences>>(std::move(heads));
    return index;
  }

  std::unique_ptr<State> Copy(const State& state, Ops& ops) const override {
    const auto& from = static_cast<const Index&>(state);
    auto index = std::make_unique<Index>();
    index->heads = from.heads;
    index->steps = from.steps;
    index->queries = CopyOf(from.queries, ops);
    index->rows = from.rows;
    return index;
  }

  void Append(LayerView&, std::span<const int64_t>, State&) const override {}

  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    auto& index = static_cast<Index&>(state);
    Ops& ops = view.ops();
    const ModelShape& shape = view.shape();
    bool any = !index.heads->empty();
    KVG_TRY(fields.Flag("whether there are sentences", &any));
    std::vector<HeadSentences> read(any ? static_cast<size_t>(shape.kv_heads) : 0);
    for (size_t h = 0; h < read.size(); ++h) {
      KVG_TRY(FieldsOf(view, h, fields.reads() ? read[h] : (*index.heads)[h], fields));
    }
    if (fields.reads()) {
      index.heads = std::make_shared<std::vector<HeadSentences>>(std::move(read));
    }
    if (!any) return {};
    KVG_TRY(index.steps.Fields(view, fields));
    KVG_TRY(fields.Number("rows of the sentence", 0, view.tokens(), &index.rows));
    return fields.Memory("queries of the sentence", ops, DType::kF32,
                         shape.query_heads * shape.key_dim, &index.queries);
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    auto& index = static_cast<Index&>(state);
    if (index.heads->empty()) return false;
    Ops& ops = view.ops();
    const ModelShape& shape = view.shape();
    const int64_t heads = shape.query_heads, dim = shape.key_dim, group = shape.group();
    const Tensor sum = index.queries.As(DType::kF32, {heads, dim});
    const Tensor query = view.Scratch(DType::kF32, {heads, dim});
    if (index.steps.Try(view)) {
      ops.rows->Convert(q, query);
      if (index.rows > 0) ops.rows->Combine(query, sum, Binary::kAdd, query);
      ops.memory->Copy(query, sum);
      ++index.rows;
    }
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      const int64_t length = view.lengths()[h], begin = h * group, end = begin + group;
      if (length == 0) continue;
      const Tensor chosen =
          Choose(view, h, (*index.heads)[static_cast<size_t>(h)], sum.Slice(begin, end), length);
      ops.select->MarkRuns(chosen, 1, length,
                           Columns(words.Slice(begin, end), 0, (length + 63) / 64));
    }
    if (EndsSentence(view)) index.rows = 0;
    return true;
  }

 private:
  static Status FieldsOf(LayerView& view, size_t h, HeadSentences& head, StateFields& fields) {
    Ops& ops = view.ops();
    KVG_TRY(fields.Number("entries in sentences", 0, view.lengths()[h], &head.entries));
    KVG_TRY(fields.Number("sentences of a head", std::min<int64_t>(1, head.entries), head.entries,
                          &head.count));
    KVG_TRY(fields.Memory("mean keys of sentences", ops, DType::kF32,
                          head.count * view.shape().key_dim, &head.means));
    KVG_TRY(fields.Indices("ends of sentences", ops, head.count, head.entries, &head.ends));
    return fields.Indices("ends of entries' sentences", ops, head.entries, head.entries,
                          &head.end_of);
  }

  // Whether the token of the row that is decoded is one of punctuation.
  static bool EndsSentence(LayerView& view) {
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[h];
      if (length == 0) continue;
      return Fetch(view.ops(), view.OfClass(TokenClass::kPunctuation, h, length - 1))[0] > 0;
    }
    return false;
  }

  static HeadSentences Divide(LayerView& view, int64_t head) {
    Ops& ops = view.ops();
    const int64_t n = view.lengths()[head], dim = view.shape().key_dim;
    HeadSentences own;
    own.entries = n;
    if (n == 0) return own;
    // The last entry ends what is left open.
    const Tensor marks = view.Scratch(DType::kF32, {1, n}), sum = view.Scratch(DType::kF32, {1});
    ops.rows->Convert(view.OfClass(TokenClass::kPunctuation, head).Reshape({1, n}), marks);
    const Tensor last = Columns(marks, n - 1, n);
    ops.rows->Fill(1.0f, last);
    ops.rows->ReduceRows(marks, Reduction::kSum, sum);
    own.count = static_cast<int64_t>(Fetch(ops, sum)[0]);
    own.means = ops.memory->Allocate(own.count * dim * SizeOf(DType::kF32));
    own.ends = ops.memory->Allocate(own.count * SizeOf(DType::kI32));
    own.end_of = ops.memory->Allocate(n * SizeOf(DType::kI32));
    const Tensor ends = own.ends.As(DType::kI32, {own.count});
    const Tensor end_of = own.end_of.As(DType::kI32, {n});
    ops.memory->Copy(Best(view, marks, own.count), ends);
    ops.select->Following(ends, Numbers(view, n, -1), end_of.Reshape({1, n}));

    const Tensor sums = view.Scratch(DType::kF32, {n, dim}), sizes = view.Scratch(DType::kF32, {n});
    const Tensor means = own.means.As(DType::kF32, {own.count, dim});
    const Tensor counts = view.Scratch(DType::kF32, {own.count});
    ops.select->ScatterAdd(view.Keys(head), end_of, {}, sums);
    ops.select->ScatterAdd(AsColumn(Filled(view, n, 1.0f)), end_of, {}, AsColumn(sizes));
    ops.select->Gather(sums, ends, means);
    ops.select->Gather(AsColumn(sizes), ends, AsColumn(counts));
    ops.rows->Combine(means, Spread(view, counts, dim), Binary::kDivide, means);
    return own;
  }

  // Entries that each of the group reads: [group, read] i32. q: [group, key_dim]
  Tensor Choose(LayerView& view, int64_t head, const HeadSentences& own, const Tensor& q,
                int64_t length) const {
    Ops& ops = view.ops();
    const int64_t group = q.shape[0], dim = q.shape[1], n = own.entries;
    const int64_t first = std::min(sinks_, n), last = std::max(first, n - local_);
    const int64_t read = length - (last - first) + std::min(tokens_, last - first);
    const Tensor scores = view.Scratch(DType::kF32, {group, length});
    ops.rows->Fill(kForcedScore, scores);
    if (last > first) {
      const Tensor products = view.Scratch(DType::kF32, {group, own.count});
      const Tensor at_ends = view.Scratch(DType::kF32, {n});
      const Tensor end_of = own.end_of.As(DType::kI32, {n}).Slice(first, last);
      ops.linear->MatMulNT(q.Reshape({1, group, dim}),
                           own.means.As(DType::kF32, {1, own.count, dim}), 1.0f,
                           products.Reshape({1, group, own.count}));
      for (int64_t g = 0; g < group; ++g) {
        ops.select->Scatter(AsColumn(products[g]), own.ends.As(DType::kI32, {own.count}),
                            AsColumn(at_ends));
        ops.select->Gather(AsColumn(at_ends), end_of, AsColumn(scores[g].Slice(first, last)));
      }
      HideFromNewest(view, head, first, 1, Columns(scores, first, last));
    }
    const std::vector<int32_t> counts(static_cast<size_t>(group), static_cast<int32_t>(read));
    const Tensor chosen = view.Scratch(DType::kI32, {group, read});
    ops.select->TopK(scores, Upload(view, counts), chosen);
    return chosen;
  }

  int64_t tokens_, sinks_, local_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "sentences",
    .paper = "arXiv:2504.00970",
    .summary = "reads the sentences whose mean key matches the current sentence's queries best",
    .departures = {"every entry of the prompt is held, where the reference first keeps some by "
                   "SnapKV's scores",
                   "sentences of the answer are always read"},
    .bytes =
        "4 an entry of the prompt, 4 + 4 * key_dim a sentence, for each head, beside the cache",
    .params = {IntParam("tokens", 1024, 1, 1 << 24, "entries of chosen sentences that are read"),
               IntParam("sinks", 32, 0, 1 << 20, "first entries, always read"),
               IntParam("local", 32, 0, 1 << 20, "last entries of the prompt, always read")},
    .make = Make<Sentences>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Reads those entries of the prompt that the last steps' queries gave most to, chosen anew every
// few steps, and all that was decoded since.
//
// Paper: LoopServe, arXiv:2507.13681, its decode. No public code. Needs the query of each decode
// step. The first `steps` steps read everything. From then on, every `steps` steps, the shares that
// the queries of the last `steps` steps give to the prompt's entries are summed, over the query
// heads of a KV head too, and the best `tokens` are read until the next time.
#include <algorithm>

#include "kernels/buffer_bytes.h"
#include "methods/attention.h"
#include "methods/copied_reader.h"
#include "methods/joining_reader.h"
#include "methods/registry.h"
#include "methods/repeating_reader.h"
#include "methods/repeating_view.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"
#include "methods/tried_steps.h"

namespace kvgauge {
namespace {

class LoopServeReads final : public Reader, public CopiedReader, public RepeatingReader {
 public:
  explicit LoopServeReads(const Params& params)
      : steps_(params.Int("steps")), tokens_(params.Int("tokens")) {}

  struct Progress final : State {
    TriedSteps steps;
    int64_t chosen_at = 0;        // the step of the last choice
    int64_t chosen_before = 0;    // `chosen_at` as the step begins
    std::vector<int64_t> prompt;  // [kv_heads] entries that were held before the first
    std::vector<int64_t> first;   // [kv_heads] of a head's entries
    Buffer queries;               // [steps, query_heads, key_dim] f32 of the last ones
    Buffer entries;               // [all heads' entries] i32, ascending for each

    int64_t bytes() const override { return queries.size_bytes() + entries.size_bytes(); }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    const ModelShape own = shape.OfLayer(layer);
    const int64_t read = std::max<int64_t>(own.kv_heads * std::min(entries, tokens_), 1);
    return HostBufferBytes(steps_ * own.query_heads * own.key_dim * SizeOf(DType::kF32)) +
           HostBufferBytes(read * SizeOf(DType::kI32));
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    const ModelShape& shape = view.shape();
    auto progress = std::make_unique<Progress>();
    progress->prompt.assign(view.lengths().begin(), view.lengths().end());
    progress->queries = view.ops().memory->Allocate(steps_ * shape.query_heads * shape.key_dim *
                                                    SizeOf(DType::kF32));
    AllocateEntries(view, *progress);
    return progress;
  }
  void Append(LayerView&, std::span<const int64_t>, State&) const override {}

  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    auto& progress = static_cast<Progress&>(state);
    const ModelShape& shape = view.shape();
    KVG_TRY(progress.steps.Fields(view, fields));
    KVG_TRY(fields.Number("step of the last choice", 0, view.tokens(), &progress.chosen_at));
    for (size_t h = 0; h < progress.prompt.size(); ++h) {
      KVG_TRY(fields.Number("entries of the prompt", 0, view.lengths()[h], &progress.prompt[h]));
    }
    if (fields.reads()) AllocateEntries(view, progress);
    KVG_TRY(
        fields.Rows("queries of the last steps", view.ops(),
                    progress.queries.As(DType::kF32, {steps_, shape.query_heads * shape.key_dim})));
    // Before the first choice there are none.
    for (size_t h = 0; progress.steps.before() >= steps_ && h < progress.prompt.size(); ++h) {
      KVG_TRY(fields.IndexRows("entries that are read", view.ops(), progress.prompt[h],
                               EntriesOf(progress, h)));
    }
    return {};
  }

  std::unique_ptr<State> Copy(const State& state, Ops& ops) const override {
    const auto& from = static_cast<const Progress&>(state);
    auto progress = std::make_unique<Progress>();
    progress->steps = from.steps;
    progress->chosen_at = from.chosen_at;
    progress->prompt = from.prompt;
    progress->first = from.first;
    progress->queries = CopyOf(from.queries, ops);
    progress->entries = CopyOf(from.entries, ops);
    return progress;
  }

  void BeginStep(State& state) const override {
    auto& progress = static_cast<Progress&>(state);
    progress.chosen_before = progress.chosen_at;
  }
  void UndoStep(State& state) const override {
    auto& progress = static_cast<Progress&>(state);
    progress.chosen_at = progress.chosen_before;
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    auto& progress = static_cast<Progress&>(state);
    const auto fits = [this](int64_t length) { return length <= tokens_; };
    if (std::all_of(progress.prompt.begin(), progress.prompt.end(), fits)) return false;
    const ModelShape& shape = view.shape();
    const Tensor ring =
        progress.queries.As(DType::kF32, {steps_, shape.query_heads, shape.key_dim});
    progress.steps.Try(view);
    const int64_t taken = progress.steps.before();
    const bool chosen = taken >= steps_;
    // A step that is tried again has its choice, and its query in the ring.
    const bool chooses = chosen && taken % steps_ == 0 && taken != progress.chosen_at;
    for (int64_t h = 0; chosen && h < shape.kv_heads; ++h) {
      const auto head = static_cast<size_t>(h);
      const int64_t prompt = progress.prompt[head];
      const Tensor entries = EntriesOf(progress, head);
      if (chooses && entries.shape[0] > 0) ChooseAnew(view, h, ring, prompt, entries);
      const Tensor of_head = words.Slice(h * shape.group(), (h + 1) * shape.group());
      MarkChosenAndLater(view, entries, prompt, view.lengths()[head], of_head);
    }
    if (chooses) progress.chosen_at = taken;
    KeepQuery(view, q, taken % steps_, ring);
    return chosen;
  }

 private:
  // A device repeats this for the next step, whose place is sent with it.
  void KeepQuery(LayerView& view, const Tensor& q, int64_t at, const Tensor& ring) const {
    Ops& ops = view.ops();
    if (Repeating(view) == nullptr) return ops.rows->Convert(q, ring[at]);
    const auto place = static_cast<int32_t>(at);
    const int64_t heads = ring.shape[1], numbers = heads * ring.shape[2];
    const Tensor row = view.Scratch(DType::kF32, {heads, ring.shape[2]});
    ops.rows->Convert(q, row);
    ops.select->Scatter(row.Reshape({1, numbers}), Upload(view, std::span(&place, 1)),
                        ring.Reshape({steps_, numbers}));
  }

  // For as many of the prompt as are read.
  void AllocateEntries(LayerView& view, Progress& progress) const {
    int64_t all = 0;
    progress.first.clear();
    for (const int64_t length : progress.prompt) {
      progress.first.push_back(all);
      all += std::min(length, tokens_);
    }
    progress.entries = view.ops().memory->Allocate(std::max<int64_t>(all, 1) * SizeOf(DType::kI32));
  }
  Tensor EntriesOf(const Progress& progress, size_t head) const {
    const int64_t first = progress.first[head];
    return progress.entries.As(DType::kI32, {progress.entries.size_bytes() / SizeOf(DType::kI32)})
        .Slice(first, first + std::min(progress.prompt[head], tokens_));
  }

  void ChooseAnew(LayerView& view, int64_t head, const Tensor& ring, int64_t prompt,
                  const Tensor& entries) const {
    Ops& ops = view.ops();
    const int64_t group = view.shape().group(), dim = view.shape().key_dim;
    const Tensor rows = view.Scratch(DType::kF32, {steps_, dim});
    const Tensor given = view.Scratch(DType::kF32, {group * steps_, prompt});
    const Tensor sums = view.Scratch(DType::kF32, {1, prompt});
    const Tensor keys = KeysWithRoom(view, head, 0).Slice(0, prompt).Reshape({1, prompt, dim});
    for (int64_t i = 0; i < group; ++i) {
      Tensor of_query = ring;  // [steps, key_dim] of one query head
      of_query.data = ring.f32() + (head * group + i) * dim;
      of_query.rank = 2;
      of_query.shape = {steps_, dim, 0, 0};
      of_query.stride = {ring.stride[0], 1, 0, 0};
      ops.rows->Convert(of_query, rows);
      const Tensor part = given.Slice(i * steps_, (i + 1) * steps_);
      ops.linear->MatMulNT(rows.Reshape({1, steps_, dim}), keys, 1.0f,
                           part.Reshape({1, steps_, prompt}));
      const QueryRows before = {.position = view.tokens() - 1 - steps_, .apart = 1};
      AttentionOfProducts(view, head, 0, before, part, part);
    }
    ops.rows->ReduceColumns(given, Reduction::kSum, sums[0]);
    ops.memory->Copy(Best(view, sums, entries.shape[0]), entries);
  }

  int64_t steps_, tokens_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "loopserve",
    .paper = "arXiv:2507.13681",
    .summary = "entries of the prompt that the last steps gave most to, chosen every few steps",
    .departures = {"the first steps, which have no window of decoded tokens, read everything",
                   "shares are those among the prompt's entries; there is no public code to say "
                   "whether what was decoded counts",
                   "what is not read stays held: it may be chosen later"},
    .bytes = "4 for each query number of `steps` steps and each of `tokens` entries and KV heads, "
             "beside the cache",
    .params = {IntParam("steps", 16, 1, 1 << 16,
                        "steps from one choice to the next, and whose "
                        "queries make it"),
               IntParam("tokens", 1024, 1, 1 << 24, "entries of the prompt that are read")},
    .make = Make<LoopServeReads>(),
});

}  // namespace
}  // namespace kvgauge

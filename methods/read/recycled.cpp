// SPDX-License-Identifier: Apache-2.0
// Every few steps reads everything; until the next such step only the entries that then had most
// attention, and what came since.
//
// Paper: Recycled Attention, arXiv:2411.05787. Needs the query of each decode step. At the first
// step and every `stride` steps after it the row's attention is summed over the query heads of a KV
// head, and the `tokens` best entries are what is read of the past in the steps between.
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

class Recycled final : public Reader, public CopiedReader, public RepeatingReader {
 public:
  explicit Recycled(const Params& params)
      : tokens_(params.Int("tokens")), stride_(params.Int("stride")) {}

  struct Chosen final : State {
    TriedSteps steps;              // since the sequence began, or a reducer acted
    std::vector<int64_t> lengths;  // of the heads at the last full step
    Buffer entries;                // [kv_heads, tokens] i32 at that step

    int64_t bytes() const override { return entries.size_bytes(); }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t) const override {
    return HostBufferBytes(shape.OfLayer(layer).kv_heads * tokens_ * SizeOf(DType::kI32));
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto chosen = std::make_unique<Chosen>();
    chosen->entries =
        view.ops().memory->Allocate(view.shape().kv_heads * tokens_ * SizeOf(DType::kI32));
    return chosen;
  }
  void Append(LayerView&, std::span<const int64_t>, State&) const override {}

  std::unique_ptr<State> Copy(const State& state, Ops& ops) const override {
    const auto& from = static_cast<const Chosen&>(state);
    auto chosen = std::make_unique<Chosen>();
    chosen->steps = from.steps;
    chosen->lengths = from.lengths;
    chosen->entries = CopyOf(from.entries, ops);
    return chosen;
  }

  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    auto& chosen = static_cast<Chosen&>(state);
    const int64_t heads = view.shape().kv_heads;
    KVG_TRY(chosen.steps.Fields(view, fields));
    bool any = !chosen.lengths.empty();
    KVG_TRY(fields.Flag("whether a step has chosen", &any));
    if (any != (chosen.steps.before() >= 0)) {
      return BadInput("state of the method: steps without a choice, or a choice without a step");
    }
    if (!any) return {};
    KVG_TRY(
        fields.Numbers("entries at the last full step", heads, 0, view.width(), &chosen.lengths));
    const Tensor entries = chosen.entries.As(DType::kI32, {heads, tokens_});
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t length = chosen.lengths[static_cast<size_t>(h)];
      KVG_TRY(fields.IndexRows("entries that are read again", view.ops(), length,
                               entries[h].Slice(0, std::min(length, tokens_))));
    }
    return {};
  }

  // Steps that read everything take half as long again of such pages, which those between repay.
  bool ReadsFew(int64_t, int64_t length) const override {
    return stride_ > 2 && AreFew(tokens_, length);
  }

  bool Select(LayerView& view, State& state, const Tensor& q, Tensor words) const override {
    auto& chosen = static_cast<Chosen&>(state);
    const auto lengths = view.lengths();
    chosen.steps.Try(view);
    const bool full = chosen.steps.before() % stride_ == 0;
    if (full) chosen.lengths.assign(lengths.begin(), lengths.end());
    const auto fits = [this](int64_t length) { return length <= tokens_; };
    if (std::all_of(chosen.lengths.begin(), chosen.lengths.end(), fits)) return false;
    const int64_t heads = view.shape().kv_heads, group = view.shape().group();
    for (int64_t h = 0; h < heads; ++h) {
      const Tensor of_head = chosen.entries.As(DType::kI32, {heads, tokens_})[h];
      const int64_t begin = h * group, then = chosen.lengths[static_cast<size_t>(h)];
      const int64_t held = std::min(then, tokens_);
      if (full) {
        Remember(view, h, q.Slice(begin, begin + group), of_head.Slice(0, held));
      } else {
        MarkChosenAndLater(view, of_head.Slice(0, held), then, lengths[h],
                           words.Slice(begin, begin + group));
      }
    }
    return !full;
  }

 private:
  static void Remember(LayerView& view, int64_t head, const Tensor& q, const Tensor& entries) {
    Ops& ops = view.ops();
    const int64_t n = view.lengths()[head], group = q.shape[0], dim = q.shape[1];
    if (n == 0) return;
    const Tensor query = view.Scratch(DType::kF32, {group, dim});
    const Tensor keys = KeysWithRoom(view, head, 0);
    const int64_t room = keys.shape[0];
    const Tensor given = view.Scratch(DType::kF32, {group, room});
    const Tensor sum = view.Scratch(DType::kF32, {1, room});
    ops.rows->Convert(q, query);
    ops.linear->MatMulNT(query.Reshape({1, group, dim}), keys.Reshape({1, room, dim}), 1.0f,
                         given.Reshape({1, group, room}));
    AttentionOfProducts(view, head, 0, QueryRows::Newest(view), n, given);
    ops.rows->ReduceColumns(given, Reduction::kSum, sum[0]);
    ops.memory->Copy(Best(view, Columns(sum, 0, n), entries.shape[0]), entries);
  }

  int64_t tokens_, stride_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "recycled",
    .paper = "arXiv:2411.05787",
    .summary = "every few steps reads everything, between them what then had most attention",
    .departures = {"full steps are counted; the paper also offers to compare queries",
                   "chosen entries are read where they lie, where the paper copies them"},
    .bytes = "4 for each of `tokens` entries and KV heads, beside the cache",
    .params = {IntParam("tokens", 2048, 1, 1 << 24, "entries that are read between full steps"),
               IntParam("stride", 10, 1, 1 << 20, "steps from one full step to the next")},
    .make = Make<Recycled>(),
});

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Reads the entries that all heads of a layer vote for; nothing is evicted.
//
// Paper: TokenSelect, arXiv:2411.02886. Needs the query of each decode step. The first `sinks` and
// the last `local` entries are always read; over those between, each query head gives shares by a
// softmax of query times key, and the `tokens` entries with the largest sum of shares are read by
// every head of the layer.
// Products stay as they are, as in the reference's code (`scaled`: they have the model's scale, cap
// and window).
#include <algorithm>

#include "methods/attention.h"
#include "methods/registry.h"
#include "methods/repeating_reader.h"
#include "methods/repeating_view.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class TokenSelect final : public Reader, public RepeatingReader {
 public:
  explicit TokenSelect(const Params& params)
      : tokens_(params.Int("tokens")),
        sinks_(params.Int("sinks")),
        local_(params.Int("local")),
        scaled_(params.Bool("scaled")) {}

  struct Nothing final : State {
    int64_t bytes() const override { return 0; }
  };

  std::unique_ptr<State> Begin(LayerView&) const override { return std::make_unique<Nothing>(); }
  void Append(LayerView&, std::span<const int64_t>, State&) const override {}
  bool saves() const override { return true; }
  Status Fields(LayerView&, State&, StateFields&) const override { return {}; }

  bool ReadsFew(int64_t, int64_t length) const override {
    return AreFew(sinks_ + local_ + tokens_, length);
  }

  bool Select(LayerView& view, State&, const Tensor& q, Tensor words) const override {
    const auto lengths = view.lengths();
    const auto fits = [this](int64_t length) { return length <= sinks_ + local_ + tokens_; };
    if (std::all_of(lengths.begin(), lengths.end(), fits)) return false;
    const bool whole = std::all_of(lengths.begin(), lengths.end(),
                                   [&](int64_t length) { return length == view.tokens(); });
    const int64_t group = view.shape().group();
    Tensor together;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = lengths[h], begin = h * group, end = begin + group;
      if (length == 0) continue;
      const Tensor votes = Votes(view, h, q.Slice(begin, end));
      if (whole) {
        if (together.empty()) together = view.Scratch(DType::kF32, {1, votes.shape[1]});
        view.ops().rows->Combine(together, votes, Binary::kAdd, together);
        continue;
      }
      Mark(view, Columns(votes, 0, length), words.Slice(begin, end));
    }
    if (whole) Mark(view, Columns(together, 0, view.tokens()), words);
    return true;
  }

 private:
  // [1, length or more]; what is read anyway has no votes. q: [group, key_dim]
  Tensor Votes(LayerView& view, int64_t head, const Tensor& q) const {
    Ops& ops = view.ops();
    const int64_t length = view.lengths()[head], group = q.shape[0], dim = q.shape[1];
    const int64_t between = length - sinks_ - local_;
    if (between <= 0) return view.Scratch(DType::kF32, {1, length});
    const Tensor query = view.Scratch(DType::kF32, {group, dim});
    ops.rows->Convert(q, query);
    Tensor keys = KeysWithRoom(view, head, sinks_);
    if (Repeating(view) == nullptr) keys = keys.Slice(0, between);
    const int64_t room = keys.shape[0];
    const Tensor shares = view.Scratch(DType::kF32, {group, room});
    ops.linear->MatMulNT(query.Reshape({1, group, dim}), keys.Reshape({1, room, dim}), 1.0f,
                         shares.Reshape({1, group, room}));
    if (scaled_) {
      AttentionOfProducts(view, head, sinks_, QueryRows::Newest(view), between, shares);
    } else {
      const Tensor own = Columns(shares, 0, between);
      ops.rows->Softmax(own, 1.0f, own);
    }
    const Tensor votes = view.Scratch(DType::kF32, {1, std::max(length, sinks_ + room)});
    ops.rows->ReduceColumns(shares, Reduction::kSum, votes[0].Slice(sinks_, sinks_ + room));
    return votes;
  }

  // For all rows of `words` alike. votes: [1, length]
  void Mark(LayerView& view, const Tensor& votes, Tensor words) const {
    Ops& ops = view.ops();
    const int64_t length = votes.shape[1], heads = words.shape[0];
    const int64_t first = std::min(sinks_, length), last = std::min(local_, length - first);
    // Above any sum of shares.
    ops.rows->FillColumns(kForcedScore, 0, first, votes);
    ops.rows->FillColumns(kForcedScore, length - last, length, votes);
    const int64_t read = std::min(length, first + last + tokens_);
    const auto count = static_cast<int32_t>(read);
    Tensor chosen =
        view.Scratch(DType::kI32, {1, ChoiceColumns(view, read, sinks_ + local_ + tokens_)});
    ops.select->TopK(votes, Upload(view, std::span(&count, 1)), chosen);
    chosen.shape[0] = heads;
    chosen.stride[0] = 0;
    ops.select->MarkRuns(chosen, 1, length, Columns(words, 0, (length + 63) / 64));
  }

  int64_t tokens_, sinks_, local_;
  bool scaled_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "tokenselect",
    .paper = "arXiv:2411.02886",
    .summary = "reads the entries that all heads of a layer vote for",
    .departures =
        {"the prompt is read with full attention", "a choice is never reused for a similar query",
         "query heads meet the keys of their own KV head",
         "heads that hold different entries, as some were evicted, vote KV head by KV head"},
    .params = {IntParam("tokens", 2048, 1, 1 << 24, "entries that are voted for"),
               IntParam("sinks", 128, 0, 1 << 20, "first entries, always read"),
               IntParam("local", 512, 1, 1 << 20, "last entries, always read"),
               BoolParam("scaled", false, "votes are by the model's scale, cap and window")},
    .make = Make<TokenSelect>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge

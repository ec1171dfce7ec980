// SPDX-License-Identifier: Apache-2.0
// Reads everything, and lowers the highest scores that a row gives to pictures.
//
// Paper: CalibQuant, arXiv:2502.14882; after insuhan/calibquant. Needs what entries show and the
// query of each decode step. Codes of one bit make some scores too high. So the scores of a row
// with all rows of pictures, from the least to the largest, are mapped evenly to [least, largest -
// lower] before the softmax over them and the text. Rows of the prompt attend as ever.
#include <algorithm>
#include <limits>

#include "kernels/buffer_bytes.h"
#include "methods/attention.h"
#include "methods/joining_reader.h"
#include "methods/registry.h"
#include "methods/repeating_reader.h"
#include "methods/repeating_view.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class LoweredPictures final : public JoiningReader, public RepeatingReader {
 public:
  explicit LoweredPictures(const Params& params)
      : lower_(static_cast<float>(params.Real("lower"))) {}

  Needs needs() const override { return {.modality = true}; }

  struct Head {
    int64_t length = 0;  // when the texts were found; what came since is text
    int64_t count = 0;   // of texts
    Buffer texts;        // [count] i32, ascending
    Buffer pictures;     // [length - count] i32: the others

    Tensor Texts() const { return texts.As(DType::kI32, {count}); }
    Tensor Pictures() const { return pictures.As(DType::kI32, {length - count}); }
  };

  struct Index final : State {
    std::vector<Head> heads;  // empty: nothing is shown, and everything is read as it is

    int64_t bytes() const override {
      int64_t sum = 0;
      for (const Head& head : heads) sum += head.texts.size_bytes() + head.pictures.size_bytes();
      return sum;
    }
  };

  int64_t MostBytes(const ModelShape& shape, int64_t layer, int64_t entries) const override {
    // Two lists may each have a part of a line of memory more.
    return shape.OfLayer(layer).kv_heads *
           (HostBufferBytes(entries * SizeOf(DType::kI32)) + HostBufferBytes(1));
  }

  std::unique_ptr<State> Begin(LayerView& view) const override {
    auto index = std::make_unique<Index>();
    Ops& ops = view.ops();
    bool shows = false;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      Head& head = index->heads.emplace_back();
      head.length = view.lengths()[static_cast<size_t>(h)];
      if (head.length == 0) continue;
      const Tensor text = view.OfModality(Modality::kText, h).Reshape({1, head.length});
      const Tensor sum = view.Scratch(DType::kF32, {1});
      ops.rows->ReduceRows(text, Reduction::kSum, sum);
      head.count = static_cast<int64_t>(Fetch(ops, sum)[0]);
      shows = shows || head.count < head.length;
      if (head.count > 0) {
        head.texts = ops.memory->Allocate(head.count * SizeOf(DType::kI32));
        ops.memory->Copy(Best(view, text, head.count), head.Texts());
      }
      FindPictures(view, head);
    }
    if (!shows) index->heads.clear();
    return index;
  }

  void Append(LayerView&, std::span<const int64_t>, State&) const override {}
  bool saves() const override { return true; }
  Status Fields(LayerView& view, State& state, StateFields& fields) const override {
    // A text has no fields: files of before pictures were saved have none.
    if (view.VisualSpans().empty()) return {};
    auto& index = static_cast<Index&>(state);
    bool shows = !index.heads.empty();
    KVG_TRY(fields.Flag("whether pictures are shown", &shows));
    index.heads.resize(shows ? static_cast<size_t>(view.shape().kv_heads) : 0);
    for (size_t h = 0; h < index.heads.size(); ++h) {
      Head& head = index.heads[h];
      KVG_TRY(fields.Number("entries of a head's prompt", 0, view.lengths()[h], &head.length));
      KVG_TRY(fields.Number("texts of a head's prompt", 0, head.length, &head.count));
      KVG_TRY(fields.Indices("texts of a head's prompt", view.ops(), head.count, head.length,
                             &head.texts));
      FindPictures(view, head);
    }
    return {};
  }

  bool Select(LayerView& view, State& state, const Tensor&, Tensor words) const override {
    const auto& index = static_cast<const Index&>(state);
    if (index.heads.empty()) return false;
    const int64_t group = view.shape().group();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const Head& head = index.heads[static_cast<size_t>(h)];
      const int64_t length = view.lengths()[static_cast<size_t>(h)];
      const Tensor own = words.Slice(h * group, (h + 1) * group);
      MarkEnds(view, 0, head.length, length, own);
      if (head.count == 0) continue;
      Tensor texts = head.Texts().Reshape({1, head.count});
      texts.shape[0] = group;
      texts.stride[0] = 0;
      view.ops().select->MarkRuns(texts, 1, length, Columns(own, 0, (length + 63) / 64));
    }
    return true;
  }

  void MarkJoined(LayerView& view, State& state, Tensor words) const override {
    const auto& index = static_cast<const Index&>(state);
    const int64_t group = view.shape().group();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const Head& head = index.heads[static_cast<size_t>(h)];
      if (head.count == head.length) continue;
      const int64_t length = view.lengths()[static_cast<size_t>(h)];
      Tensor pictures = head.Pictures().Reshape({1, head.length - head.count});
      pictures.shape[0] = group;
      pictures.stride[0] = 0;
      view.ops().select->MarkRuns(
          pictures, 1, length,
          Columns(words.Slice(h * group, (h + 1) * group), 0, (length + 63) / 64));
    }
  }

  void Join(LayerView& view, State& state, const Tensor& q, const Tensor& log_sum_exp,
            Tensor out) const override {
    const auto& index = static_cast<const Index&>(state);
    Ops& ops = view.ops();
    const int64_t group = view.shape().group(), dim = q.shape[1];
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const Head& head = index.heads[static_cast<size_t>(h)];
      if (head.count == head.length) continue;
      const int64_t n = view.lengths()[static_cast<size_t>(h)];
      const int64_t begin = h * group, end = begin + group;
      const Tensor query = view.Scratch(DType::kF32, {group, dim});
      const Tensor keys = KeysWithRoom(view, h, 0);
      const int64_t room = keys.shape[0];
      const Tensor logits = view.Scratch(DType::kF32, {group, room});
      ops.rows->Convert(q.Slice(begin, end), query);
      ops.linear->MatMulNT(query.Reshape({1, group, dim}), keys.Reshape({1, room, dim}), 1.0f,
                           logits.Reshape({1, group, room}));
      LogitsOfProducts(view, logits);
      Lower(view, Hidden(view, h, head, room), n, logits);
      JoinSoftmax(view, log_sum_exp.Slice(begin, end), logits, n, ValuesWithRoom(view, h, 0),
                  out.Slice(begin, end));
    }
  }

 private:
  static constexpr float kFar = 1e30f;  // beyond every score
  static constexpr float kLeastRange = 1e-8f;

  static void FindPictures(LayerView& view, Head& head) {
    if (head.count == head.length) return;
    MemoryOps& memory = *view.ops().memory;
    head.pictures = memory.Allocate((head.length - head.count) * SizeOf(DType::kI32));
    memory.Copy(
        head.count == 0 ? Numbers(view, head.length) : Complement(view, head.Texts(), head.length),
        head.Pictures());
  }

  // 0 for entries of pictures that the newest token sees, -inf for others. [room], of which the
  // first are those of entries
  static Tensor Hidden(LayerView& view, int64_t h, const Head& head, int64_t room) {
    Ops& ops = view.ops();
    const Tensor hidden = Filled(view, room, -std::numeric_limits<float>::infinity());
    ops.select->Scatter(view.Scratch(DType::kF32, {head.length - head.count, 1}), head.Pictures(),
                        AsColumn(hidden));
    HideFromNewest(view, h, 0, 1, view.lengths()[static_cast<size_t>(h)],
                   hidden.Reshape({1, room}));
    return hidden;
  }

  // Maps the scores of each row that are not hidden; the others become -inf. logits: [rows, count
  // or more]
  void Lower(LayerView& view, const Tensor& hidden, int64_t count, const Tensor& logits) const {
    RowOps& rows = *view.ops().rows;
    const int64_t m = logits.shape[0], n = logits.shape[1];
    const Tensor seen = view.Scratch(DType::kF32, {m, n}), own = Columns(seen, 0, count);
    const Tensor most = view.Scratch(DType::kF32, {1, m});
    const Tensor least = view.Scratch(DType::kF32, {1, m});
    const Tensor slope = view.Scratch(DType::kF32, {1, m});
    const Tensor range = view.Scratch(DType::kF32, {1, m});
    rows.Combine(logits, hidden, Binary::kAdd, seen);
    rows.ReduceRows(own, Reduction::kMax, most[0]);
    rows.Affine(logits, -1.0f, 0.0f, seen);
    rows.Combine(seen, hidden, Binary::kAdd, seen);
    rows.ReduceRows(own, Reduction::kMax, least[0]);
    // A row that sees no picture has finite ends, too: what it maps is hidden afterwards.
    for (const Tensor& end : {most, least}) {
      rows.Combine(end, Filled(view, m, -kFar), Binary::kMax, end);
    }
    rows.Combine(most, least, Binary::kAdd, range);  // `least` is less the least
    rows.Affine(range, 1.0f, -lower_, slope);
    rows.Affine(range, 1.0f, kLeastRange, range);
    rows.Combine(slope, range, Binary::kDivide, slope);
    const Tensor base = Spread(view, least[0], n);
    rows.Combine(logits, base, Binary::kAdd, logits);
    rows.Combine(logits, Spread(view, slope[0], n), Binary::kMultiply, logits);
    rows.Combine(logits, base, Binary::kSubtract, logits);
    rows.Combine(logits, hidden, Binary::kAdd, logits);
  }

  float lower_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "calibquant",
    .paper = "arXiv:2502.14882",
    .summary = "reads everything, and lowers the highest scores of pictures",
    .bytes = "4 an entry of the prompt and head, beside the cache",
    .params = {RealParam("lower", 3, 0, 1000, "by so much the highest score of a picture falls")},
    .make = Make<LoweredPictures>(),
});

}  // namespace
}  // namespace kvgauge

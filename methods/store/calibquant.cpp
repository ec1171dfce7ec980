// SPDX-License-Identifier: Apache-2.0
// Entries of pictures and videos as few-bit levels of their channels; text stays as it is.
//
// Paper: CalibQuant, arXiv:2502.14882; after insuhan/calibquant. Needs what entries show. The
// levels of a channel are even steps between its least and its largest number over all of the
// prompt's entries of pictures in a head, both times a share below 1, so that rare large numbers do
// not push the levels apart; numbers beyond them take the outer levels. read.calibquant is its
// other half.
#include <algorithm>

#include "core/strings.h"
#include "methods/layouts/classes.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// The classes of entries.
constexpr int32_t kShown = 0, kText = 1;

class CalibQuant final : public Store {
 public:
  explicit CalibQuant(const Params& params)
      : bits_(params.Int("bits")),
        shares_{static_cast<float>(params.Real("key_share")),
                static_cast<float>(params.Real("value_share"))},
        wait_(params.Int("wait")) {}

  Needs needs() const override { return {.modality = true}; }
  bool classifies() const override { return true; }

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim == 0) return {};
    return BadInput("codes entries of heads, and this model keeps latents in their place");
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    Classes layout;
    layout.classes.resize(2);
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const bool keys = side == KvSide::kKeys;
      KvCodec codec;
      codec.side = side;
      codec.dim = keys ? shape.key_dim : shape.value_dim;
      codec.dtype = shape.cache_dtype;
      Classes::Class& text = layout.classes[kText];
      (keys ? text.keys : text.values) = codec;
      // A level is a codeword of one dim, so that each channel has its own.
      codec.kind = KvCodecKind::kVectors;
      codec.bits = static_cast<int>(bits_);
      codec.group = 1;
      Classes::Class& shown = layout.classes[kShown];
      (keys ? shown.keys : shown.values) = codec;
    }
    // How much of a prompt shows pictures is unknown; prices are those of its pictures.
    layout.classes[kShown].share = 1;
    layout.waiting = wait_;
    return PlanOf(std::move(layout));
  }

  void Calibrate(LayerView& view, StorePlan& plan) const override {
    Classes layout = *plan.Get<Classes>();
    bool shows = false;
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) shows = shows || !Shown(view, h).empty();
    if (!shows) {
      // Nothing will be coded, so there is nothing to keep levels for.
      layout.classes[kShown] = layout.classes[kText];
      plan = PlanOf(std::move(layout), plan.turn);
      return;
    }
    layout.classes[kShown].key_table = Levels(view, KvSide::kKeys);
    layout.classes[kShown].value_table = Levels(view, KvSide::kValues);
    plan = PlanOf(std::move(layout), plan.turn);
  }

  void Classify(LayerView& view, const ClassInput& input, Tensor classes) const override {
    Ops& ops = view.ops();
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const int64_t length = view.lengths()[static_cast<size_t>(h)];
      const int64_t classed = input.classed[static_cast<size_t>(h)];
      if (classed == length) continue;
      const Tensor fresh = classes[h].Slice(classed, length);
      ops.memory->Copy(Numbers(view, length - classed, kText, 0), fresh);
      // Levels are those of the prompt's pictures; later ones have none.
      if (classed > 0) continue;
      const Tensor shown = Shown(view, h);
      if (shown.empty()) continue;
      ops.select->Scatter(AsColumn(Numbers(view, shown.shape[0], kShown, 0)), shown,
                          AsColumn(fresh));
    }
  }

 private:
  // The entries of a head that are no text: [n] i32 ascending, or empty.
  static Tensor Shown(LayerView& view, int64_t head) {
    const int64_t length = view.lengths()[static_cast<size_t>(head)];
    if (length == 0) return {};
    Ops& ops = view.ops();
    const Tensor text = view.OfModality(Modality::kText, head).Reshape({1, length});
    const Tensor sum = view.Scratch(DType::kF32, {1});
    ops.rows->ReduceRows(text, Reduction::kSum, sum);
    const auto count = static_cast<int64_t>(Fetch(ops, sum)[0]);
    if (count == length) return {};
    return count == 0 ? Numbers(view, length) : Complement(view, Best(view, text, count), length);
  }

  // [kv_heads, dim * levels]; zeros for heads without pictures, whose entries are never coded.
  Tensor Levels(LayerView& view, KvSide side) const {
    Ops& ops = view.ops();
    const ModelShape& shape = view.shape();
    const bool keys = side == KvSide::kKeys;
    const int64_t dim = keys ? shape.key_dim : shape.value_dim, count = int64_t{1} << bits_;
    const Tensor table = view.Scratch(DType::kF32, {shape.kv_heads, dim * count});
    const Tensor ends = view.Scratch(DType::kF32, {2, dim});
    const Tensor level = view.Scratch(DType::kF32, {1, dim});
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      const Tensor shown = Shown(view, h);
      if (shown.empty()) continue;
      const Tensor rows = view.Scratch(DType::kF32, {shown.shape[0], dim});
      ops.select->Gather(keys ? view.Keys(h) : view.Values(h), shown, rows);
      ops.rows->ReduceColumns(rows, Reduction::kMin, ends[0]);
      ops.rows->ReduceColumns(rows, Reduction::kMax, ends[1]);
      ops.rows->Affine(ends, shares_[static_cast<size_t>(side)], 0.0f, ends);
      const Tensor low = ends.Slice(0, 1), high = ends.Slice(1, 2);
      ops.rows->Combine(high, low, Binary::kSubtract, high);
      const Tensor of_head = table[h].Reshape({dim, count});
      for (int64_t i = 0; i < count; ++i) {
        const float share = static_cast<float>(i) / static_cast<float>(count - 1);
        ops.rows->Affine(high, share, 0.0f, level);
        ops.rows->Combine(level, low, Binary::kAdd, level);
        ops.rows->Convert(level.Reshape({dim, 1}), Columns(of_head, i, i + 1));
      }
    }
    return table;
  }

  int64_t bits_;
  float shares_[2];  // by side
  int64_t wait_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "calibquant",
    .paper = "arXiv:2502.14882",
    .summary = "rows of pictures as few-bit levels of their channels, text uncoded",
    .departures =
        {"levels are f32, two to the power of `bits` for each channel, in place of a scale and a "
         "zero in f16",
         "the rows of several pictures have levels together, and text between them stays uncoded; "
         "the reference codes one run of rows behind a fixed number of tokens",
         "pictures of later turns stay uncoded"},
    .bytes = "(key_dim + value_dim) * bits / 8 a row of a picture, each side a whole number of "
             "bytes; 4 * 2^bits for each channel of a head and side; text uncoded",
    .params = {IntParam("bits", 1, 1, 4, "bits of a code"),
               RealParam("key_share", 0.5, 0.01, 1,
                         "of the range of a key's channel that the levels span; the reference "
                         "takes 1 where there are more bits than one"),
               RealParam("value_share", 0.3, 0.01, 1, "the same of a value's channel"),
               IntParam("wait", 64, 1, 1 << 20,
                        "new entries that are put beside the text at a "
                        "time")},
    .make = Make<CalibQuant>(),
});

}  // namespace
}  // namespace kvgauge

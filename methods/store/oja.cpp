// SPDX-License-Identifier: Apache-2.0
// The first and the newest entries whole, those between as coordinates in a basis of their head
// that learns: from the prompt's salient entries before these are stored, and from new entries.
//
// Paper: OjaKV, arXiv:2509.21623, first version. Needs the attention of the last `window` prompt
// rows, keys, and a side-file of principal directions over some texts to begin with; without one
// those of the prompt.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "core/strings.h"
#include "methods/basis_change.h"
#include "methods/directions.h"
#include "methods/layouts/learning_basis.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class Oja final : public Store {
 public:
  explicit Oja(const Params& params)
      : shares_{params.Real("key_rank"), params.Real("value_rank")},
        sinks_(params.Int("sinks")),
        recent_(params.Int("recent")),
        every_(params.Int("every")),
        salient_(params.Int("salient")),
        window_(params.Int("window")),
        first_step_(static_cast<float>(params.Real("first_step"))),
        step_(static_cast<float>(params.Real("step"))),
        turns_(params.Text("older") == "turned"),
        raw_(params.Bool("raw_keys")) {}

  Needs needs() const override {
    return {.window = first_step_ > 0 ? window_ : 0, .raw_keys = raw_};
  }
  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    if (raw_ && shape.rotary_dim == 0) {
      return BadInput("raw_keys: keys of this model are never rotated; leave it out");
    }
    for (int64_t l = 0; calibration_ != nullptr && l < shape.layers; ++l) {
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        const int64_t dim = DimOf(shape, side);
        const std::string name = TableOf(side, l);
        KVG_TRY(calibration_->Find(name, std::array{shape.kv_heads, dim, dim}));
        KVG_TRY(CheckOrthogonal(StrCat(calibration_->path, ": table '", name, "'"),
                                calibration_->tables.find(name)->second.values, dim));
      }
    }
    return {};
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    LearningBasis layout;
    layout.key_rank = RankOf(shape, KvSide::kKeys);
    layout.value_rank = RankOf(shape, KvSide::kValues);
    layout.sinks = sinks_;
    layout.recent = recent_;
    layout.every = every_;
    layout.step = step_;
    layout.turns = turns_;
    return PlanOf(std::move(layout), {.raw = raw_});
  }

  void Calibrate(LayerView& view, StorePlan& plan) const override {
    LearningBasis layout = *plan.Get<LearningBasis>();
    layout.key_basis = Learned(view, KvSide::kKeys, layout.key_rank);
    layout.value_basis = Learned(view, KvSide::kValues, layout.value_rank);
    plan = PlanOf(std::move(layout), plan.turn);
  }

 private:
  static std::string TableOf(KvSide side, int64_t layer) {
    return StrCat(side == KvSide::kKeys ? "keys." : "values.", layer, ".there");
  }
  static int64_t DimOf(const ModelShape& shape, KvSide side) {
    return side == KvSide::kKeys ? shape.key_dim : shape.value_dim;
  }
  int64_t RankOf(const ModelShape& shape, KvSide side) const {
    const double share = shares_[static_cast<size_t>(side)];
    const auto dim = static_cast<double>(DimOf(shape, side));
    return std::max<int64_t>(1, std::llround(share * dim));
  }

  // [kv_heads * dim, rank]
  Tensor Learned(LayerView& view, KvSide side, int64_t rank) const {
    Ops& ops = view.ops();
    const int64_t heads = view.shape().kv_heads, dim = DimOf(view.shape(), side);
    const Tensor bases = view.Scratch(DType::kF32, {heads * dim, rank});
    for (int64_t h = 0; h < heads; ++h) {
      const Tensor own = bases.Slice(h * dim, (h + 1) * dim);
      const Tensor rows = side == KvSide::kValues ? view.Values(h)
                          : raw_                  ? view.RawKeys(h)
                                                  : view.Keys(h);
      if (calibration_ == nullptr) {
        ops.memory->Copy(LeadingDirections(view, rows, rank), own);
      } else {
        const std::vector<float>& all =
            calibration_->tables.find(TableOf(side, view.layer()))->second.values;
        const Tensor whole = Upload(view, std::span(all).subspan(h * dim * dim, dim * dim));
        ops.rows->Convert(Columns(whole.Reshape({dim, dim}), 0, rank), own);
      }
      const Tensor taught = Salient(view, h, rows);
      if (first_step_ > 0 && taught.shape[0] > 0) OjaStep(ops, taught, first_step_, own);
    }
    return bases;
  }

  // The rows that teach a basis, of those that become coordinates: the ones with the most attention
  // of the window, all query heads of the head. Where entries have left, all: a score chose them.
  Tensor Salient(LayerView& view, int64_t head, const Tensor& rows) const {
    Ops& ops = view.ops();
    const int64_t n = rows.shape[0], dim = rows.shape[1], group = view.shape().group();
    const int64_t begin = std::min(n, sinks_), end = std::max(begin, n - recent_);
    const int64_t count = std::min(salient_, end - begin);
    const auto gone = [&](int64_t length) { return length != view.tokens(); };
    if (count == end - begin || std::any_of(view.lengths().begin(), view.lengths().end(), gone)) {
      return rows.Slice(begin, end);
    }
    const Tensor attention = view.WindowAttention(window_);
    const Tensor sums = view.Scratch(DType::kF32, {group, end - begin});
    const Tensor scores = view.Scratch(DType::kF32, {1, end - begin});
    for (int64_t g = 0; g < group; ++g) {
      ops.rows->ReduceColumns(Columns(attention[head * group + g], begin, end), Reduction::kSum,
                              sums[g]);
    }
    ops.rows->ReduceColumns(sums, Reduction::kSum, scores[0]);
    const Tensor taught = view.Scratch(DType::kF32, {count, dim});
    ops.select->Gather(rows.Slice(begin, end), Best(view, scores, count), taught);
    return taught;
  }

  std::array<double, 2> shares_;  // by side
  int64_t sinks_, recent_, every_, salient_, window_;
  float first_step_, step_;
  bool turns_, raw_;
  std::shared_ptr<const Calibration> calibration_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "oja",
    .paper = "arXiv:2509.21623",
    .summary = "coordinates in bases that learn by Oja's rule; first and newest entries whole",
    .departures =
        {"without a side-file bases begin as the prompt's principal directions",
         "a step takes the mean of x x^T as it is; QR makes the basis orthonormal again",
         "how many entries are salient, which rows find them and how often steps come is ours",
         "entries become coordinates `every` at a time, when a step is due",
         "attention of the prompt reads whole entries"},
    .bytes = "first and newest entries whole; for each side of others rank * bytes of the cache's "
             "type; a basis 4 * dim * rank a head",
    .params = {RealParam("key_rank", 0.6, 0.001, 1, "share of a key's numbers"),
               RealParam("value_rank", 0.6, 0.001, 1, "the same of values"),
               IntParam("sinks", 32, 0, 4096, "first entries that stay whole"),
               IntParam("recent", 32, 0, 1 << 20, "newest entries that are whole"),
               IntParam("every", 32, 1, 4096, "new entries that teach the basis together"),
               IntParam("salient", 128, 1, 1 << 20, "entries of the prompt that teach it"),
               IntParam("window", 32, 1, 4096, "last prompt rows whose attention finds them"),
               RealParam("first_step", 0.1, 0, 1000, "size of the prompt's step; 0: none"),
               RealParam("step", 0.05, 0, 1000, "size of later steps; 0: none"),
               ChoiceParam("older", "kept", {"kept", "turned"},
                           "coordinates in an older basis stay as they are, or become what the new "
                           "one holds of what they stood for"),
               BoolParam("raw_keys", false, "bases are of keys before rotation"),
               CalibrationParam()},
    .make = Make<Oja>(),
    .calibrate = MakeCalibrator<BasisCalibrator>,
    .calibrated_params = {"raw_keys"},
});

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Heads that look far back stay whole; all others hold the first and the last entries alone.
//
// Paper: DuoAttention, arXiv:2410.10819. Needs a calibration, or mean queries and keys before
// rotation of the prompt itself. The reference learns a gate for each head. Where that is not at
// hand, kvpress tells heads apart by their mean query and mean key: both at all of 500 positions,
// the last query's attention to the keys, and the area under its sum from the first position on; a
// KV head has the mean over its query heads, and over the texts. Heads with the largest are
// retrieval heads. A table of learned gates does as well: a side-file is only a number for each
// head. A streaming head holds `streaming` entries; with the scorer recency and first entries
// protected.
#include "methods/head_numbers.h"
#include "methods/head_reach.h"
#include "methods/registry.h"
#include "methods/whole_heads.h"

namespace kvgauge {
namespace {

class Duo final : public Allocator {
 public:
  explicit Duo(const Params& params)
      : streaming_(params.Int("streaming")), learned_(!params.Text(kCalibrationParam).empty()) {}

  Needs needs() const override { return learned_ ? Needs{} : ReachNeeds(); }

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    if (calibration_ != nullptr) {
      const Result<std::vector<float>> gates = HeadNumbers(*calibration_, shape);
      return gates.ok() ? Status() : gates.error();
    }
    if (shape.rotary_dim == 0 || shape.latent_dim > 0) {
      return BadInput(
          "tells heads by how their queries and keys turn, and those of this model do not, or in "
          "part; give a calibration with a number for each head");
    }
    return {};
  }

  Status CheckBudget(const AllocationInput& input) const override {
    return CheckHoldWhole(input, streaming_);
  }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    return HoldWhole(input, streaming_, [&] { return Gates(input); });
  }

 private:
  // [layers * kv_heads]
  std::vector<float> Gates(const AllocationInput& input) const {
    if (calibration_ != nullptr) {
      const Result<std::vector<float>> learned = HeadNumbers(*calibration_, *input.shape);
      KVG_CHECK(learned.ok(), "a calibration that was not checked");
      return *learned;
    }
    std::vector<float> gates;
    for (LayerView* view : input.views) {
      const std::vector<float> reaches = HeadReaches(*view);
      gates.insert(gates.end(), reaches.begin(), reaches.end());
    }
    return gates;
  }

  int64_t streaming_;
  bool learned_;
  std::shared_ptr<const Calibration> calibration_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "duo",
    .paper = "arXiv:2410.10819",
    .summary = "heads that look far back stay whole, others hold first and last entries alone",
    .departures =
        {"heads are told apart by mean queries and keys, as kvpress does where gates were "
         "not learned; a side-file may hold learned ones",
         "as many heads stay whole as the budget allows; what is left over stays unspent",
         "streaming heads keep what is decoded; the prompt is read in full, but with "
         "attend.streaming_heads"},
    .params = {IntParam("streaming", 384, 1, 1 << 20, "entries that a streaming head holds"),
               CalibrationParam()},
    .make = Make<Duo>(),
    .calibrate = MakeCalibrator<ReachCalibrator>,
    .import = ImportHeadGates,
});

}  // namespace
}  // namespace kvgauge

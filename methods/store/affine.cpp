// SPDX-License-Identifier: Apache-2.0
// Plain n-bit codes, each side as one likes: the baseline under the published quantisers.
//
// No paper of its own; 8 bits over a whole entry is the int8 cache of many engines. Needs nothing,
// or a calibration for coordinates that are learned. With Hadamard coordinates it is the cache of
// QuaRot (arXiv:2404.00456), with learned ones that of SpinQuant (arXiv:2405.16406) and FlatQuant
// (arXiv:2410.09426).
#include <algorithm>

#include "methods/basis_change.h"
#include "methods/layouts/coded.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class Affine final : public Store {
 public:
  explicit Affine(const Params& params) : params_(params), basis_(params) {}

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    KVG_TRY(basis_.Check(shape, calibration_.get()));
    if (!params_.Bool("raw_keys") || shape.rotary_dim > 0) return {};
    return BadInput("raw_keys: keys of this model are never rotated; leave it out");
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    Coded layout(shape);
    Fill("key", layout.keys);
    Fill("value", layout.values);
    const int64_t recent = params_.Int("keep_recent");
    layout.seal_keys = SealWhole(layout.keys, recent);
    layout.seal_values = SealWhole(layout.values, recent);
    layout.sinks = params_.Int("sinks");
    return basis_.Plan(shape, layer, std::move(layout), {.raw = params_.Bool("raw_keys")},
                       calibration_);
  }

 private:
  void Fill(const std::string& side, KvCodec& codec) const {
    const int64_t bits = params_.Int(side + "_bits"), group = params_.Int(side + "_group");
    if (bits == 0) return;
    codec.kind = KvCodecKind::kAffine;
    codec.bits = static_cast<int>(bits);
    codec.axis = params_.Text(side + "_axis") == "channel" ? CodeAxis::kChannel : CodeAxis::kToken;
    codec.symmetric = params_.Bool("symmetric");
    codec.clip = static_cast<float>(params_.Real(side + "_clip"));
    const int64_t whole = codec.axis == CodeAxis::kChannel ? 64 : codec.dim;
    codec.group = group == 0 ? whole : group;
  }

  Params params_;
  BasisChoice basis_;
  std::shared_ptr<const Calibration> calibration_;
};

std::vector<ParamSpec> Specs() {
  std::vector<ParamSpec> specs;
  for (const std::string side : {"key", "value"}) {
    specs.push_back(IntParam(side + "_bits", 8, 0, 8, "1, 2, 3, 4 or 8; 0: uncoded"));
    specs.push_back(ChoiceParam(side + "_axis", "token", {"token", "channel"},
                                "groups run over dims of an entry, or over entries of a dim"));
    specs.push_back(IntParam(side + "_group", 0, 0, 4096,
                             "numbers that share a scale; 0: a whole entry, or 64 entries"));
    specs.push_back(RealParam(side + "_clip", 1, 0.01, 1,
                              "both ends of a range along an entry are multiplied by it"));
  }
  specs.push_back(BoolParam("symmetric", false, "no zero points"));
  specs.push_back(IntParam("keep_recent", 0, 0, 1 << 20, "newest entries that stay uncoded"));
  specs.push_back(BoolParam("raw_keys", false, "keys are coded before rotation"));
  specs.push_back(IntParam("sinks", 0, 0, 4096, "first entries that stay uncoded"));
  for (ParamSpec& spec : BasisParams(LearnedBasis::kFromSideFile)) specs.push_back(std::move(spec));
  specs.push_back(CalibrationParam());
  return specs;
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "affine",
    .summary = "plain n-bit codes with scale and zero",
    .bytes = "for each side: dim * (bits / 8 + 4 / group); 2 / group without zeros; matrices of "
             "coordinates once a model",
    .params = Specs(),
    .make = Make<Affine>(),
    .goes_by_layer = true,
    .calibrate = MakeCalibrator<BasisCalibrator>,
    .calibrated_params = {"raw_keys"},
});

}  // namespace
}  // namespace kvgauge

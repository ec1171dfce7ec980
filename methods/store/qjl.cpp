// SPDX-License-Identifier: Apache-2.0
// Keys as the signs of random projections and a length, values as low-bit codes.
//
// Paper: QJL, arXiv:2406.03482. Needs nothing. A key k becomes the signs of S^T k for S of `blocks`
// random orthogonal squares; a query q meets sqrt(pi / 2) / m * |k| * (S^T q) . signs, which is q .
// k on average. That is what codes of one bit with the root of the mean square as scale do to the
// coordinates S^T k, since their mean square is |k|^2.
#include <array>
#include <cmath>
#include <utility>

#include "core/strings.h"
#include "methods/basis_change.h"
#include "methods/kivi_layout.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// The root of pi / 2.
constexpr std::array<float, 2> kSigns = {-1.2533141f, 1.2533141f};

class Qjl final : public Store {
 public:
  explicit Qjl(const Params& params)
      : blocks_(params.Int("blocks")),
        first_blocks_(params.Int("first_blocks")),
        first_layers_(params.Int("first_layers")),
        value_bits_(params.Int("value_bits")),
        group_(params.Int("group")),
        residual_(params.Int("residual")),
        seed_(static_cast<uint64_t>(params.Int("seed"))) {}

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim > 0) {
      return BadInput("sketches keys of heads, and this model keeps latents of its own");
    }
    return CheckKiviLayout(shape, group_, residual_);
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    const auto bits = static_cast<int>(value_bits_);
    Coded layout = KiviLayout(shape, bits, bits, group_, residual_);
    const int64_t blocks = layer < first_layers_ ? first_blocks_ : blocks_;
    const int64_t stored = blocks * shape.key_dim;
    KvCodec& keys = layout.keys;
    keys.kind = KvCodecKind::kCodebook;
    keys.bits = 1;
    keys.axis = CodeAxis::kToken;
    keys.range = CodeRange::kRms;
    keys.group = stored;
    keys.levels = View(std::span<const float>(kSigns), {std::ssize(kSigns)});
    BasisChange sketch =
        RandomBasis(shape.key_dim, stored, std::sqrt(static_cast<double>(shape.key_dim)),
                    seed_ * 4096 + static_cast<uint64_t>(layer));
    return PlanOf(Transformed(std::move(layout), std::move(sketch), {}));
  }

 private:
  int64_t blocks_, first_blocks_, first_layers_, value_bits_, group_, residual_;
  uint64_t seed_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "qjl",
    .paper = "arXiv:2406.03482",
    .summary = "signs of random projections of keys with their lengths, n-bit values",
    .departures = {"outlier channels have no sketch of their own",
                   "keys that wait to be sketched are kept as projections, `blocks` times as many "
                   "numbers as they have",
                   "attention of the prompt reads uncoded entries"},
    .bytes = "keys: blocks * key_dim / 8 + 2; values: value_dim * (bits / 8 + 4 / group); up to "
             "`residual` entries uncoded; projections once a model",
    .params = {IntParam("blocks", 2, 1, 8, "projections for each number of a key"),
               IntParam("first_blocks", 4, 1, 8, "of the first layers"),
               IntParam("first_layers", 15, 0, 1024, "layers with `first_blocks`"),
               IntParam("value_bits", 2, 1, 8, "bits of a value's code: 1, 2, 3, 4 or 8"),
               IntParam("group", 32, 16, 64, "numbers of a value that share a scale"),
               IntParam("residual", 128, 16, 4096,
                        "keys are sketched so many at a time; so many newest values are uncoded"),
               IntParam("seed", 42, 0, 1 << 30, "of the projections")},
    .make = Make<Qjl>(),
});

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Low-bit codes, with the largest numbers kept apart and a low-rank correction of what remains.
//
// Paper: GEAR, arXiv:2403.05527. Needs nothing. Keys and values are coded `chunk` entries at a
// time.
#include <algorithm>

#include "core/strings.h"
#include "methods/layouts/coded.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class Gear final : public Store {
 public:
  explicit Gear(const Params& params)
      : bits_(params.Int("bits")),
        group_(params.Int("group")),
        rank_(params.Int("rank")),
        chunk_(params.Int("chunk")),
        outliers_(params.Real("outliers")) {}

  Status Check(const ModelShape& shape) const override {
    if (chunk_ % 64 != 0) return BadInput(StrCat("chunk ", chunk_, " must be a multiple of 64"));
    const int64_t dim = std::min(shape.key_dim, shape.value_dim);
    if (rank_ <= dim) return {};
    return BadInput(StrCat("rank ", rank_, " is above the ", dim, " dims of an entry"));
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    Coded layout(shape);
    for (KvCodec* codec : {&layout.keys, &layout.values}) {
      codec->kind = KvCodecKind::kAffine;
      codec->bits = static_cast<int>(bits_);
      codec->outlier_share = outliers_;
      codec->rank = rank_;
    }
    layout.keys.axis = CodeAxis::kChannel;
    layout.keys.group = group_;
    layout.values.group = std::min(group_, shape.value_dim);
    layout.seal_keys = layout.seal_values = {.unit = chunk_, .keep_recent = 0};
    return PlanOf(std::move(layout));
  }

 private:
  int64_t bits_, group_, rank_, chunk_;
  double outliers_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "gear",
    .paper = "arXiv:2403.05527",
    .summary = "n-bit codes, sparse outliers, and a low-rank correction of the error",
    .departures = {"one rank for the prompt and for later chunks",
                   "outliers are a share of the entries they are taken from",
                   "a group of entries is at most 64"},
    .bytes = "(key_dim + value_dim) * (bits / 8 + 4 / group + 4 * outliers), and 2 * rank * "
             "(entries + dim) for each side and coded chunk",
    .params = {IntParam("bits", 2, 1, 8, "bits of a code: 1, 2, 3, 4 or 8"),
               IntParam("group", 64, 16, 64, "numbers that share a scale: 16, 32 or 64"),
               IntParam("rank", 4, 0, 64, "of the correction; 0: none"),
               RealParam("outliers", 0.02, 0, 0.5, "share of numbers that are kept as they are"),
               IntParam("chunk", 64, 64, 4096, "entries that are coded at a time")},
    .make = Make<Gear>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge

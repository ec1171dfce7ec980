// SPDX-License-Identifier: Apache-2.0
// Pairs of neighbouring layers share the directions of their keys and values; each keeps its norms.
//
// Paper: MiniCache, arXiv:2405.14366. Needs nothing. From the middle layer on, layers share in
// pairs: directions are interpolated on the sphere at `weight`; the `retain` keys that differ most
// stay apart in both, and so do the `retain` values.
#include <algorithm>

#include "core/strings.h"
#include "methods/layouts/shared_directions.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class MiniCache final : public Store {
 public:
  explicit MiniCache(const Params& params)
      : from_(params.Real("from")),
        weight_(params.Real("weight")),
        retain_(params.Real("retain")),
        later_(params.Text("later") == "share"),
        bits_(static_cast<int>(params.Int("bits"))),
        group_(params.Int("group")) {}

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    if (shape.layers < 2) return BadInput("shares between layers, and this model has one");
    const auto from = static_cast<int64_t>(from_ * static_cast<double>(shape.layers));
    // The first pair is this layer and the next one, which shares with the one before it.
    const int64_t first = std::clamp<int64_t>(from + 1, 1, shape.layers - 1);
    if (layer < first || (layer - first) % 2 != 0) return StorePlan();
    SharedDirections layout;
    layout.weight = weight_;
    layout.retain = retain_;
    layout.later = later_;
    layout.bits = bits_;
    layout.group = group_;
    return PlanOf(std::move(layout));
  }

 private:
  double from_, weight_, retain_;
  bool later_;
  int bits_;
  int64_t group_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "minicache",
    .version = 4,  // 4: a set of retained keys and one of values
    .paper = "arXiv:2405.14366",
    .summary = "neighbouring layers share directions of keys and values",
    .departures =
        {"only shared directions are coded, each by itself; the paper's 5.02 times goes with 4-bit "
         "codes of all entries in all layers",
         "a share of the prompt's keys and of its values, those that differ most, stays apart, "
         "by count; no later entry does",
         "norms are f32, 4 bytes each, where the paper counts 2: of a head of 128 dims "
         "and f16 that is 1 / 64 of what a pair takes"},
    .bytes =
        "of a pair, entry and head: half of its numbers, 4 norms of 4 bytes (counted as biases), "
        "and what is retained twice",
    .params = {RealParam("from", 0.5, 0, 1, "depth where sharing begins, as a share of the layers"),
               RealParam("weight", 0.6, 0, 1, "of the upper layer's direction"),
               RealParam("retain", 0.05, 0, 1,
                         "share of the prompt's keys, and of its values, that stay apart"),
               ChoiceParam("later", "share", {"share", "keep"},
                           "whether decoded entries share as well, or stay as they are"),
               IntParam("bits", 0, 0, 8,
                        "of a shared direction's number: 1, 2, 3, 4 or 8; 0: uncoded"),
               IntParam("group", 0, 0, 4096, "numbers of a direction that share a scale; 0: all")},
    .make = Make<MiniCache>(),
});

}  // namespace
}  // namespace kvgauge

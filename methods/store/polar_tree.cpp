// SPDX-License-Identifier: Apache-2.0
// Turned entries as a radius and angles of angles.
//
// Paper: PolarQuant, arXiv:2502.02617. Needs nothing. Behind a random rotation numbers are nearly
// normal. Blocks of 16 of them become 8 angles and 8 radii, these 4 angles and 4 radii, and so on
// to one radius, which is kept. The densities of the angles are known, so their levels need no
// range: the first angles have 16 even ones, the others the best four for densities sin(2 t)^1, 3
// and 7.
#include <utility>

#include "methods/basis_change.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class PolarTree final : public Store {
 public:
  explicit PolarTree(const Params& params)
      : recent_(params.Int("keep_recent")), sinks_(params.Int("sinks")), basis_(params) {}

  Status Check(const ModelShape& shape) const override { return basis_.Check(shape, nullptr); }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    Coded layout(shape);
    layout.keys.kind = layout.values.kind = KvCodecKind::kPolarTree;
    layout.seal_keys = SealWhole(layout.keys, recent_);
    layout.seal_values = SealWhole(layout.values, recent_);
    layout.sinks = sinks_;
    return basis_.Plan(shape, layer, std::move(layout), {}, nullptr);
  }

 private:
  int64_t recent_, sinks_;
  BasisChoice basis_;
};

std::vector<ParamSpec> PolarTreeParams() {
  std::vector<ParamSpec> specs = {
      IntParam("keep_recent", 0, 0, 1 << 20, "newest entries that stay uncoded"),
      IntParam("sinks", 0, 0, 4096, "first entries that stay uncoded")};
  for (ParamSpec& spec : BasisParams(LearnedBasis::kNo)) specs.push_back(std::move(spec));
  return specs;
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "polar_tree",
    .paper = "arXiv:2502.02617",
    .summary = "turned entries as radii of 16 numbers and angles, level by level",
    .departures = {"levels of angles are those of the known densities, not found in the prompt",
                   "entries after the prompt are coded, too",
                   "attention of the prompt reads uncoded entries"},
    .bytes = "for each side: dim / 16 * (46 / 8 + 2); matrices of coordinates once a model",
    .params = PolarTreeParams(),
    .make = Make<PolarTree>(),
});

}  // namespace
}  // namespace kvgauge

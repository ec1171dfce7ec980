// SPDX-License-Identifier: Apache-2.0
// Attention from all prompt rows, the same for all heads of a layer; while decoding only the entry
// at a fixed distance from the end scores low.
//
// Paper: Elastic Cache, ECCV 2024, arXiv:2407.18121. Needs the column sums of prompt attention.
// Departures: entries by the order of their scores, as in the paper; the released code takes one
// argsort for their ranks.
#include <algorithm>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class ElasticCache final : public Scorer {
 public:
  explicit ElasticCache(const Params& params) : distance_(params.Int("distance")) {}

  Needs needs() const override { return {.column_sums = true}; }
  bool any_time() const override { return true; }

  void Score(LayerView& view, Tensor out) const override {
    RowOps& ops = *view.ops().rows;
    for (int64_t h = 0; h < out.shape[0]; ++h) {
      const int64_t n = view.lengths()[h];
      if (!view.decoding()) {
        ops.ReduceColumns(view.ColumnSums(), Reduction::kMean, out[h]);
      } else if (n > 0) {
        // With one entry too many, the place is `distance` before the end of those that stay.
        const int64_t at = std::max<int64_t>(0, n - 1 - distance_);
        const Tensor own = out.Slice(h, h + 1), one = Columns(own, at, at + 1);
        ops.Fill(1.0f, own);
        ops.Fill(0.0f, one);
      }
    }
  }

 private:
  int64_t distance_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "elastic_cache",
    .paper = "arXiv:2407.18121",
    .summary =
        "attention from all prompt rows and heads; in decode the entry at a fixed place goes",
    .departures = {"entries by the order of their scores, as in the paper; the released code takes "
                   "one argsort for their ranks"},
    .params = {IntParam("distance", 25, 1, 1 << 20,
                        "how far before the end of what stays the entry is that a step gives up")},
    .make = Make<ElasticCache>(),
});

}  // namespace
}  // namespace kvgauge

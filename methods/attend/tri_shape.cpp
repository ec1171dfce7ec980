// SPDX-License-Identifier: Apache-2.0
// Rows of a prompt see its first entries and their own neighbourhood; the last rows see everything.
//
// Paper: SCBench, arXiv:2412.10319 (Tri-shape; without the last rows, A-shape); after
// microsoft/MInference. The rows that answer begin from look at the whole prompt, so it costs as
// much as a few rows more.
#include <algorithm>

#include "methods/registry.h"

namespace kvgauge {
namespace {

class TriShape final : public Attend {
 public:
  explicit TriShape(const Params& params)
      : sinks_(params.Int("sinks")), window_(params.Int("window")), last_(params.Int("last")) {}

  PromptSight Choose(LayerView& view, const Tensor& queries) const override {
    const int64_t rows = queries.shape[0];
    PromptSight sight;
    sight.whole_from = rows - std::min(last_, rows - 1);
    sight.heads.resize(static_cast<size_t>(view.shape().query_heads),
                       {.kind = HeadSight::Kind::kBand,
                        .sinks = sinks_,
                        .window = window_,
                        .columns = {},
                        .distances = {},
                        .blocks = {}});
    return sight;
  }

 private:
  int64_t sinks_, window_, last_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAttend,
    .id = "tri_shape",
    .paper = "arXiv:2412.10319",
    .summary = "the first entries, those just before each row, and everything for the last rows",
    .params = {IntParam("sinks", 128, 0, 1 << 20, "first entries that every row sees"),
               IntParam("window", 3968, 1, 1 << 20,
                        "entries before a row that it sees, its own "
                        "included"),
               IntParam("last", 100, 0, 1 << 20, "last rows that see everything; 0: A-shape")},
    .make = Make<TriShape>(),
});

}  // namespace
}  // namespace kvgauge

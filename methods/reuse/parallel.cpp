// SPDX-License-Identifier: Apache-2.0
// Chunks are read side by side, each behind the prompt's beginning alone; what follows attends to
// them by a softmax of its own, with a temperature and a scale.
//
// Paper: APE, arXiv:2502.05431; after Infini-AI-Lab/APE.
#include "methods/registry.h"
#include "methods/reuse.h"

namespace kvgauge {
namespace {

class ReadParallel final : public Reuse {
 public:
  explicit ReadParallel(const Params& params)
      : chunk_(params.Int("chunk")),
        temperature_(params.Real("temperature")),
        scale_(params.Real("scale")) {}

  ReusedTexts texts() const override { return ReusedTexts::kSideBySide; }
  int64_t chunk_tokens() const override { return chunk_; }
  SideBySide attention() const override {
    return {.temperature = static_cast<float>(temperature_), .scale = static_cast<float>(scale_)};
  }

 private:
  int64_t chunk_;
  double temperature_, scale_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReuse,
    .id = "parallel",
    .paper = "arXiv:2502.05431",
    .summary = "chunks beside each other, attended to by a softmax of their own",
    .bytes = "caches of chunks that lie in the store, which are no part of the sequence",
    .params = {IntParam("chunk", 256, 1, 1 << 20,
                        "the most tokens of a chunk, where the task marks no passages"),
               RealParam("temperature", 0.9, 0.01, 10, "divides products with keys of chunks"),
               RealParam("scale", 0.9, 0, 10,
                         "with the temperature, multiplies the log of their "
                         "sum")},
    .make = Make<ReadParallel>(),
});

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// When the prompt is read, with the first decode step and every `steps` after it, and whenever a
// head is above its allocation.
//
// Paper: ThinKV, arXiv:2510.01290, whose thoughts begin at those steps (score.thoughts).
#include "methods/registry.h"

namespace kvgauge {
namespace {

class Refresh final : public Trigger {
 public:
  explicit Refresh(const Params& params) : steps_(params.Int("steps")) {}
  bool AfterPrefill() const override { return true; }
  bool AfterStep(int64_t steps, int64_t excess) const override {
    return excess > 0 || (steps - 1) % steps_ == 0;
  }
  bool in_decode() const override { return true; }

 private:
  int64_t steps_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kTrigger,
    .id = "refresh",
    .summary = "when the prompt is read, every so many decode steps, and above the allocation",
    .params = {IntParam("steps", 128, 1, 1 << 20, "decode steps from one time to the next")},
    .make = Make<Refresh>(),
});

}  // namespace
}  // namespace kvgauge

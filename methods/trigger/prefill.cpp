// SPDX-License-Identifier: Apache-2.0
// Once, when the prompt is read; what is decoded afterwards is kept.
#include "methods/registry.h"

namespace kvgauge {
namespace {

class Prefill final : public Trigger {
 public:
  explicit Prefill(const Params&) {}
  bool AfterPrefill() const override { return true; }
  bool AfterStep(int64_t, int64_t) const override { return false; }
  bool in_decode() const override { return false; }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kTrigger,
    .id = "prefill",
    .summary = "once, when the prompt is read",
    .make = Make<Prefill>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// When the prompt is read, and after every decode step that leaves a head above its allocation.
// `slack` lets a head grow by so many entries first, so that evictions come in batches. A share of
// the prompt is a number of entries that stays, as in the references; with `growth` share it is a
// share of all tokens seen, so that the allocation grows with the answer.
#include "methods/registry.h"

namespace kvgauge {
namespace {

class EveryStep final : public Trigger {
 public:
  explicit EveryStep(const Params& params)
      : slack_(params.Int("slack")), grows_(params.Text("growth") == "share") {}
  bool AfterPrefill() const override { return true; }
  bool AfterStep(int64_t, int64_t excess) const override { return excess > slack_; }
  bool in_decode() const override { return true; }
  bool budget_grows() const override { return grows_; }

 private:
  int64_t slack_;
  bool grows_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kTrigger,
    .id = "every_step",
    .version = 2,
    .summary = "when the prompt is read, and after decode steps that leave a head above its "
               "allocation",
    .params = {IntParam("slack", 0, 0, 1 << 20, "entries above the allocation that are let be"),
               ChoiceParam("growth", "none", {"none", "share"},
                           "none: what a budget gives the prompt stays; share: decoded tokens add "
                           "the budget's share of theirs")},
    .make = Make<EveryStep>(),
});

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// When the prompt is read, unless `prompt` is off, and then every `steps` decode steps, which leave
// a head above its allocation. As kvpress's DecodingPress does it. With `again` heads are given
// entries anew each time, by the scores of that moment. `growth` as of every_step.
#include "methods/registry.h"

namespace kvgauge {
namespace {

class Interval final : public Trigger {
 public:
  explicit Interval(const Params& params)
      : steps_(params.Int("steps")),
        prompt_(params.Bool("prompt")),
        again_(params.Bool("again")),
        grows_(params.Text("growth") == "share") {}
  bool AfterPrefill() const override { return prompt_; }
  bool AfterStep(int64_t steps, int64_t excess) const override {
    return excess > 0 && steps % steps_ == 0;
  }
  bool in_decode() const override { return true; }
  bool budget_grows() const override { return grows_; }
  bool allocates_again() const override { return again_; }

 private:
  int64_t steps_;
  bool prompt_, again_, grows_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kTrigger,
    .id = "interval",
    .summary = "when the prompt is read, and every so many decode steps",
    .params = {IntParam("steps", 512, 1, 1 << 20, "decode steps from one time to the next"),
               BoolParam("prompt", true, "false: the prompt stays whole until the first of them"),
               BoolParam("again", false, "give heads entries anew each time"),
               ChoiceParam("growth", "none", {"none", "share"},
                           "none: what a budget gives the prompt stays; share: decoded tokens add "
                           "the budget's share of theirs")},
    .make = Make<Interval>(),
});

}  // namespace
}  // namespace kvgauge

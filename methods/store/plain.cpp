// SPDX-License-Identifier: Apache-2.0
// Entries stay as they are, in the cache's type; what may differ is where a key's angle comes from.
//
// `slot` counts positions in the cache (StreamingLLM, arXiv:2309.17453), `clipped` keeps a key's
// own position, but never further than `position_limit` from the query (LM-Infinite,
// arXiv:2308.16137), `read` keeps it, too, unless a reader says where what it reads stands (ReKV,
// arXiv:2503.00540). All three keep keys before rotation.
#include "methods/layouts/plain.h"

#include "core/strings.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

class PlainStore final : public Store {
 public:
  explicit PlainStore(const Params& params)
      : position_(params.Text("position") == "slot"      ? PositionPolicy::kSlot
                  : params.Text("position") == "clipped" ? PositionPolicy::kClipped
                                                         : PositionPolicy::kOriginal),
        raw_(params.Text("position") != "original"),
        position_limit_(params.Int("position_limit")) {}

  Status Check(const ModelShape&) const override {
    if (position_ != PositionPolicy::kClipped || position_limit_ > 0) return {};
    return BadInput("position 'clipped' needs a position_limit above 0, such as 2048");
  }

  Result<StorePlan> Plan(const ModelShape&, int64_t) const override {
    return PlanOf(Plain(), {.raw = raw_, .position = position_, .position_limit = position_limit_});
  }

 private:
  PositionPolicy position_;
  bool raw_;
  int64_t position_limit_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "plain",
    .summary = "entries as they are, in the cache's type",
    .bytes = "(key_dim + value_dim) * bytes of the cache's type",
    .params = {ChoiceParam("position", "original", {"original", "slot", "clipped", "read"},
                           "where a key's angle comes from"),
               IntParam("position_limit", 0, 0, 1 << 30,
                        "clipped: the furthest a key can be from the query")},
    .make = Make<PlainStore>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Every head of every layer holds the same number of entries. Needs nothing.
#include <algorithm>

#include "methods/registry.h"

namespace kvgauge {
namespace {

class Uniform final : public Allocator {
 public:
  explicit Uniform(const Params&) {}

  bool any_time() const override { return true; }
  bool evens_heads() const override { return true; }
  Result<Allocation> Allocate(const AllocationInput& input) const override {
    Allocation all;
    for (int64_t layer = 0; layer < input.shape->layers; ++layer) {
      const auto heads = static_cast<size_t>(input.shape->OfLayer(layer).kv_heads);
      all.emplace_back(heads, std::min(input.per_head, input.length));
    }
    return all;
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "uniform",
    .summary = "the same for every head of every layer",
    .make = Make<Uniform>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge

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
    const auto layers = static_cast<size_t>(input.shape->layers);
    const auto heads = static_cast<size_t>(input.shape->kv_heads);
    return Allocation(layers, std::vector<int64_t>(heads, std::min(input.per_head, input.length)));
  }
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "uniform",
    .summary = "the same for every head of every layer",
    .make = Make<Uniform>(),
});

}  // namespace
}  // namespace kvgauge

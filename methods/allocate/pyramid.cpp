// SPDX-License-Identifier: Apache-2.0
// Lower layers hold more entries than upper ones, on a straight line.
//
// Paper: PyramidKV, arXiv:2406.02069. Needs nothing. With B entries beside the protected ones in
// each head on average, the last layer gets B / beta and the first as much more as the others less.
// With `group`, WindowKV's form (arXiv:2503.17922), the line goes over groups of layers.
#include <algorithm>

#include "methods/registry.h"
#include "methods/split_by_weight.h"

namespace kvgauge {
namespace {

class Pyramid final : public Allocator {
 public:
  explicit Pyramid(const Params& params)
      : beta_(params.Int("beta")), group_(params.Int("group")), compat_(params.Bool("compat")) {}

  Status Check(const ModelShape&) const override {
    if (!compat_ || group_ == 1) return {};
    return BadInput("compat is the rounding of single layers; leave it out with a group");
  }

  bool takes_chunks() const override { return true; }
  bool evens_heads() const override { return true; }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    const int64_t layers = input.shape->layers, kept = input.protected_entries;
    const int64_t base = std::min(input.per_head, input.length) - kept;
    const int64_t free = input.length - kept;
    std::vector<int64_t> shares(static_cast<size_t>(layers), base);
    // Short prompts and single layers have nothing to shift; the reference leaves them level too.
    if (layers > 1 && base > 0 && input.length >= 2 * base) {
      shares = compat_ ? Reference(layers, base, free) : Exact(layers, base, free);
    }
    Allocation allocation;
    for (const int64_t share : shares) {
      allocation.emplace_back(static_cast<size_t>(input.shape->kv_heads), share + kept);
    }
    return allocation;
  }

 private:
  std::vector<int64_t> Exact(int64_t layers, int64_t base, int64_t free) const {
    const auto mean = static_cast<double>(base);
    const double top =
        std::min(2 * mean - mean / static_cast<double>(beta_), static_cast<double>(free));
    const int64_t groups = (layers + group_ - 1) / group_;
    const double step = groups == 1 ? 0 : 2 * (top - mean) / static_cast<double>(groups - 1);
    std::vector<double> line;
    for (int64_t l = 0; l < layers; ++l) {
      const int64_t group = l / group_;
      line.push_back(groups == 1 ? mean : top - step * static_cast<double>(group));
    }
    return SplitByWeight(line, layers * base, 0, free);
  }

  std::vector<int64_t> Reference(int64_t layers, int64_t base, int64_t free) const {
    int64_t least = base / beta_, most = 2 * base - least;
    if (most >= free) {
      most = free;
      least = 2 * base - most;
    }
    const int64_t step = (most - least) / (layers - 1);
    std::vector<int64_t> shares;
    for (int64_t l = 0; l < layers; ++l) shares.push_back(most - l * step);
    return shares;
  }

  int64_t beta_, group_;
  bool compat_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "pyramid",
    .paper = "arXiv:2406.02069",
    .summary = "lower layers hold more entries than upper ones",
    .departures = {"the sum over layers is exactly the budget; compat spends what the reference "
                   "spends"},
    .params = {IntParam("beta", 20, 1, 10000, "the last layer gets the mean divided by this"),
               IntParam("group", 1, 1, 1024,
                        "neighbouring layers that hold alike; the last group gets that mean"),
               BoolParam("compat", false, "round as the reference does, which exceeds the budget")},
    .make = Make<Pyramid>(),
});

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Each head has the least of five policies that recovers most of its attention: special tokens,
// punctuation as well, entries that draw much attention as well, the last entries as well, or all.
//
// Paper: FastGen, arXiv:2310.01801. Needs the scores of score.fastgen, which tell by their whole
// part which policies an entry is in, and the attention of the last `window` prompt rows. A policy
// recovers the share of the last rows' attention that goes to its entries, averaged over rows and
// the query heads of a KV head; a head has the first that recovers `recovery`.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>

#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Scores are of [policy, policy + 0.5]: so many policies lack the entry, counted from the largest.
constexpr int kPolicies = 5;

class FastGenPolicies final : public Allocator {
 public:
  explicit FastGenPolicies(const Params& params)
      : recovery_(params.Real("recovery")), window_(params.Int("window")) {}

  Needs needs() const override { return {.window = window_}; }
  bool needs_scores() const override { return true; }
  std::string_view reads_scores_of() const override { return "fastgen"; }

  Result<Allocation> Allocate(const AllocationInput& input) const override {
    const int64_t layers = input.shape->layers, heads = input.shape->kv_heads;
    Allocation allocation(static_cast<size_t>(layers),
                          std::vector<int64_t>(static_cast<size_t>(heads), input.length));
    if (input.per_head >= input.length) return allocation;
    std::vector<Head> all;
    for (int64_t l = 0; l < layers; ++l) {
      const std::vector<Head> measured = Measure(*input.views[l], input.scores[l]);
      all.insert(all.end(), measured.begin(), measured.end());
    }
    const double threshold = Threshold(all, layers * heads * input.per_head);
    for (size_t i = 0; i < all.size(); ++i) {
      // Where even the least policies are more than there is, all are cut alike.
      const int64_t wanted =
          threshold < 0 ? std::min(all[i].entries[0], input.per_head) : all[i].EntriesAt(threshold);
      allocation[i / static_cast<size_t>(heads)][i % static_cast<size_t>(heads)] = wanted;
    }
    return allocation;
  }

 private:
  // By policy, the least first: entries, and the share of attention they recover.
  struct Head {
    std::array<int64_t, kPolicies> entries;
    std::array<double, kPolicies> recovers;

    int64_t EntriesAt(double threshold) const {
      for (size_t i = 0; i + 1 < entries.size(); ++i) {
        if (recovers[i] >= threshold) return entries[i];
      }
      return entries.back();
    }
  };

  // The heads of a layer. scores: [kv_heads, n or more], protected entries +inf, so in every
  // policy.
  std::vector<Head> Measure(LayerView& view, const Tensor& scores) const {
    Ops& ops = view.ops();
    const int64_t heads = view.shape().kv_heads, group = view.shape().group(), n = view.width();
    const Tensor attention = view.WindowAttention(std::min(window_, n));
    const int64_t rows = attention.shape[1];
    const Tensor drawn = view.Scratch(DType::kF32, {1, n}), in = view.Scratch(DType::kF32, {1, n});
    const Tensor found = view.Scratch(DType::kF32, {heads * kPolicies * 2});
    for (int64_t h = 0; h < heads; ++h) {
      ops.rows->ReduceColumns(
          attention.Slice(h * group, (h + 1) * group).Reshape({group * rows, n}), Reduction::kMean,
          drawn[0]);
      for (int64_t policy = 0; policy < kPolicies; ++policy) {
        // A kind's scores go up to half a kind more.
        const float least = static_cast<float>(kPolicies - 1 - policy) - 0.25f;
        ops.rows->Combine(Filled(view, n, least).Reshape({1, n}),
                          Columns(scores.Slice(h, h + 1), 0, n), Binary::kLess, in);
        const int64_t at = 2 * (h * kPolicies + policy);
        ops.rows->ReduceRows(in, Reduction::kSum, found.Slice(at, at + 1));
        ops.rows->Combine(in, drawn, Binary::kMultiply, in);
        ops.rows->ReduceRows(in, Reduction::kSum, found.Slice(at + 1, at + 2));
      }
    }
    const std::vector<float> numbers = Fetch(ops, found);
    std::vector<Head> measured(static_cast<size_t>(heads));
    for (size_t i = 0; i < measured.size() * kPolicies; ++i) {
      measured[i / kPolicies].entries[i % kPolicies] = std::llround(numbers[2 * i]);
      measured[i / kPolicies].recovers[i % kPolicies] = double{numbers[2 * i + 1]};
    }
    return measured;
  }

  // The largest recovery, at most what is asked for, at which all heads fit; -1: at none.
  double Threshold(const std::vector<Head>& heads, int64_t total) const {
    const auto fits = [&](double threshold) {
      return total >= std::accumulate(heads.begin(), heads.end(), int64_t{0},
                                      [&](int64_t sum, const Head& head) {
                                        return sum + head.EntriesAt(threshold);
                                      });
    };
    if (fits(recovery_)) return recovery_;
    // What heads hold changes only where a policy recovers just enough.
    std::vector<double> steps = {0.0};
    for (const Head& head : heads) {
      for (const double recovered : head.recovers) {
        if (recovered < recovery_) steps.push_back(recovered);
      }
    }
    std::sort(steps.begin(), steps.end(), std::greater<>());
    const auto found = std::find_if(steps.begin(), steps.end(), fits);
    return found == steps.end() ? -1.0 : *found;
  }

  double recovery_;
  int64_t window_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "fastgen",
    .version = 2,
    .paper = "arXiv:2310.01801",
    .summary = "each head has the least of five policies that recovers its attention",
    .departures = {"recovery is measured on the last prompt rows",
                   "heads that ask for more than the budget recover less, by one threshold for "
                   "all; what is left stays unspent",
                   "with the whole budget nothing is given up", "heads keep what is decoded"},
    .params = {RealParam("recovery", 0.95, 0, 1,
                         "share of its attention that a head's policy recovers"),
               IntParam("window", 32, 1, 4096, "prompt rows that tell")},
    .make = Make<FastGenPolicies>(),
});

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Each head has the least of five policies that recovers most of its attention: special tokens,
// punctuation as well, entries that draw much attention as well, the last entries as well, or all.
//
// Paper: FastGen, arXiv:2310.01801. Needs the classes of tokens, the column sums of prompt
// attention and the attention of the last `window` prompt rows. The policies are nested, so the
// score is the first of them that an entry is in, and among its own kind the mean attention it
// drew; the allocator says how many of them a head has. `heavy` and `recent` are shares of the
// prompt. A policy recovers the share of the last rows' attention that goes to its entries,
// averaged over rows and the query heads of a KV head; a head has the first that recovers
// `recovery`. Departures: recovery is measured on the last prompt rows, which the last entries
// belong to, where the paper takes all rows with a window of their own each; where heads ask for
// more than the budget together, they recover less, all by one lower threshold, and what is left
// stays unspent; with the whole budget nothing is given up; heads keep what is decoded.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>

#include "methods/registry.h"
#include "methods/score_reduction.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Scores are of [policy, policy + 1): so many policies lack the entry, counted from the largest.
constexpr int kPolicies = 5;

struct Shares {
  double heavy, recent;

  static Shares From(const Params& params) { return {params.Real("heavy"), params.Real("recent")}; }
  int64_t Of(double share, int64_t length) const {
    return std::min(length, static_cast<int64_t>(std::ceil(share * static_cast<double>(length))));
  }
};

std::vector<ParamSpec> ShareParams(std::vector<ParamSpec> more = {}) {
  std::vector<ParamSpec> params = {
      RealParam("heavy", 0.3, 0, 1, "share of the prompt that draws most attention"),
      RealParam("recent", 0.3, 0, 1, "share of the prompt that is last")};
  params.insert(params.end(), more.begin(), more.end());
  return params;
}

Needs Signals() { return {.column_sums = true, .token_classes = true}; }

// Attention that the entries of each KV head drew, by row that could see them: [kv_heads, n].
Tensor MeanAttention(LayerView& view) {
  Ops& ops = view.ops();
  const int64_t heads = view.shape().kv_heads, n = view.width();
  const Tensor mean = view.Scratch(DType::kF32, {heads, n});
  ScoreReduction().Apply(view, view.ColumnSums(), mean);
  std::vector<float> shares(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    shares[static_cast<size_t>(i)] = 1.0f / static_cast<float>(n - i);
  }
  ops.rows->Combine(mean, Upload(view, std::span<const float>(shares)), Binary::kMultiply, mean);
  return mean;
}

// 4: special, 3: punctuation, 2: much attention, 1: last, 0: none of these. [1, n]
Tensor KindsOf(LayerView& view, const Shares& shares, int64_t head, const Tensor& mean) {
  Ops& ops = view.ops();
  const int64_t n = mean.shape[1];
  const Tensor kinds = view.Scratch(DType::kF32, {1, n});
  const Tensor last = Columns(kinds, n - shares.Of(shares.recent, n), n);
  if (last.shape[1] > 0) ops.rows->Fill(1.0f, last);
  if (const int64_t heavy = shares.Of(shares.heavy, n); heavy > 0) {
    const Tensor is_heavy = view.Scratch(DType::kF32, {1, n});
    ops.select->Scatter(AsColumn(Filled(view, heavy, 2.0f)), Best(view, mean, heavy),
                        AsColumn(is_heavy[0]));
    ops.rows->Combine(kinds, is_heavy, Binary::kMax, kinds);
  }
  for (const auto& [of, kind] :
       {std::pair(TokenClass::kPunctuation, 3.0f), std::pair(TokenClass::kSpecial, 4.0f)}) {
    const Tensor is = view.OfClass(of, head).Reshape({1, n});
    ops.rows->Affine(is, kind, 0.0f, is);
    ops.rows->Combine(kinds, is, Binary::kMax, kinds);
  }
  return kinds;
}

class FastGenScore final : public Scorer {
 public:
  explicit FastGenScore(const Params& params) : shares_(Shares::From(params)) {}

  Needs needs() const override { return Signals(); }

  void Score(LayerView& view, Tensor out) const override {
    RowOps& rows = *view.ops().rows;
    const Tensor mean = MeanAttention(view);
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const Tensor own = mean.Slice(h, h + 1);
      const Tensor kinds = KindsOf(view, shares_, h, own);
      // A share of attention may round to a little more than 1.
      rows.Affine(own, 0.5f, 0.0f, own);
      rows.Combine(kinds, own, Binary::kAdd, out.Slice(h, h + 1));
    }
  }

 private:
  Shares shares_;
};

class FastGenPolicies final : public Allocator {
 public:
  explicit FastGenPolicies(const Params& params)
      : shares_(Shares::From(params)),
        recovery_(params.Real("recovery")),
        window_(params.Int("window")) {}

  Needs needs() const override {
    Needs needs = Signals();
    needs.window = window_;
    return needs;
  }
  bool needs_scores() const override { return true; }

  Result<Allotment> Allocate(const AllocationInput& input) const override {
    const int64_t layers = input.shape->layers, heads = input.shape->kv_heads;
    Allotment allotment(static_cast<size_t>(layers),
                        std::vector<int64_t>(static_cast<size_t>(heads), input.length));
    if (input.per_head >= input.length) return allotment;
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
      allotment[i / static_cast<size_t>(heads)][i % static_cast<size_t>(heads)] = wanted;
    }
    return allotment;
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

  // The heads of a layer. scores: [kv_heads, n], protected entries +inf.
  std::vector<Head> Measure(LayerView& view, const Tensor& scores) const {
    Ops& ops = view.ops();
    const int64_t heads = view.shape().kv_heads, group = view.shape().group(), n = view.width();
    const int64_t rows = std::min(window_, n);
    const Tensor mean = MeanAttention(view);
    const Tensor attention = view.WindowAttention(rows);
    const Tensor drawn = view.Scratch(DType::kF32, {1, n}), in = view.Scratch(DType::kF32, {1, n});
    const Tensor forced = Filled(view, n, kForcedFrom).Reshape({1, n});
    const Tensor found = view.Scratch(DType::kF32, {heads * kPolicies * 2});
    for (int64_t h = 0; h < heads; ++h) {
      ops.rows->ReduceColumns(
          attention.Slice(h * group, (h + 1) * group).Reshape({group * rows, n}), Reduction::kMean,
          drawn[0]);
      const Tensor kinds = KindsOf(view, shares_, h, mean.Slice(h, h + 1));
      // What is protected is in every policy.
      ops.rows->Combine(forced, scores.Slice(h, h + 1), Binary::kLess, in);
      ops.rows->Affine(in, static_cast<float>(kPolicies), 0.0f, in);
      ops.rows->Combine(kinds, in, Binary::kMax, kinds);
      for (int64_t policy = 0; policy < kPolicies; ++policy) {
        const float least = static_cast<float>(kPolicies - 1 - policy) - 0.5f;
        ops.rows->Combine(Filled(view, n, least).Reshape({1, n}), kinds, Binary::kLess, in);
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

  Shares shares_;
  double recovery_;
  int64_t window_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "fastgen",
    .paper = "arXiv:2310.01801",
    .summary = "special tokens, then punctuation, what draws attention, the last ones, all others",
    .departures = {"one set of entries per KV head, by the mean of its query heads"},
    .params = ShareParams(),
    .make = Make<FastGenScore>(),
});

KVG_REGISTER_STAGE({
    .kind = StageKind::kAllocate,
    .id = "fastgen",
    .paper = "arXiv:2310.01801",
    .summary = "each head has the least of five policies that recovers its attention",
    .departures = {"recovery is measured on the last prompt rows",
                   "heads that ask for more than the budget recover less, by one threshold for "
                   "all; what is left stays unspent",
                   "with the whole budget nothing is given up", "heads keep what is decoded"},
    .params = ShareParams({RealParam("recovery", 0.95, 0, 1,
                                     "share of its attention that a head's policy recovers"),
                           IntParam("window", 32, 1, 4096, "prompt rows that tell")}),
    .make = Make<FastGenPolicies>(),
});

}  // namespace
}  // namespace kvgauge

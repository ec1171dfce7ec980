// SPDX-License-Identifier: Apache-2.0
// Thoughts give up entries step by step: all of them when a transition begins, and the oldest of
// the least important while a layer is above its budget.
//
// Paper: ThinKV, arXiv:2510.01290. Needs keys, and the scores of score.thoughts. Each step takes a
// thought to the next number of `schedule` that is below what it holds; the last one is left. What
// stays are the entries nearest to the centres of as many clusters of the thought's keys, those of
// all heads taken together, so that heads keep the same tokens. Clusters begin with evenly spaced
// entries. Parts of the prompt go last, and the running thought behind them. Where the ends of the
// schedule do not fit the budget, thoughts in that order have none.
#include "methods/thoughts.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "core/strings.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// A share of the mean squared distance from a thought's mean. Entries that are not farther from a
// centre than the nearest by more than this are as near: the mean of two is as far from both.
constexpr double kAsNear = 1e-3;

struct HeldThought {
  ThoughtKind kind = ThoughtKind::kPrompt;
  std::vector<int32_t> members = {};
  int64_t size = 0;  // how many of them stay
};

// "64,32"; empty where it is no list of falling positive numbers.
std::vector<int64_t> ScheduleOf(const std::string& text) {
  std::vector<int64_t> numbers;
  for (const std::string& part : Split(text, ',')) {
    const std::string_view bare = Trim(part);
    int64_t number = 0;
    const auto read = std::from_chars(bare.data(), bare.data() + bare.size(), number);
    const bool falls = number > 0 && (numbers.empty() || number < numbers.back());
    if (read.ec != std::errc() || read.ptr != bare.data() + bare.size() || !falls) return {};
    numbers.push_back(number);
  }
  return numbers;
}

class ThoughtSteps final : public LayerReducer {
 public:
  explicit ThoughtSteps(const Params& params)
      : schedule_(ScheduleOf(params.Text("schedule"))), rounds_(params.Int("rounds")) {}

  std::string_view reads_scores_of() const override { return "thoughts"; }

  Status Check(const ModelShape&) const override {
    if (!schedule_.empty()) return {};
    return BadInput("schedule: expected positive numbers that fall, such as 64,32,16,8,4");
  }

  std::vector<HeadPlan> Reduce(LayerView& view, const ReduceInput& input, State*) const override {
    const int64_t n = view.lengths()[0], allowed = input.allocated[0];
    std::map<int64_t, HeldThought> thoughts;  // by where they begin
    std::vector<int32_t> kept;
    const std::vector<float> scores = Fetch(view.ops(), input.scores[0].Slice(0, n));
    for (int64_t i = 0; i < n; ++i) {
      const float score = scores[static_cast<size_t>(i)];
      if (score >= kForcedFrom) {
        kept.push_back(static_cast<int32_t>(i));
        continue;
      }
      const auto kind = static_cast<int64_t>(score);
      HeldThought& own =
          thoughts[static_cast<int64_t>((score - static_cast<float>(kind)) / kThoughtStart)];
      own.kind = static_cast<ThoughtKind>(std::clamp<int64_t>(kind, 0, 3));
      own.members.push_back(static_cast<int32_t>(i));
      ++own.size;
    }
    HeldThought* running = nullptr;
    if (!thoughts.empty() && thoughts.rbegin()->second.kind != ThoughtKind::kPrompt) {
      running = &thoughts.rbegin()->second;
    }
    if (running != nullptr && running->kind == ThoughtKind::kTransition &&
        thoughts.rbegin()->first == view.tokens() - 1) {
      for (auto& [start, one] : thoughts) {
        if (&one != running && one.kind != ThoughtKind::kPrompt) one.size = Lower(one.size);
      }
    }
    Fit(thoughts, running, allowed - std::ssize(kept));
    for (auto& [start, one] : thoughts) {
      const bool whole = one.size == std::ssize(one.members);
      for (const int32_t i : whole ? one.members : Nearest(view, one)) kept.push_back(i);
    }
    std::ranges::sort(kept);
    HeadPlan plan;
    plan.keep = Upload(view, kept);
    return std::vector<HeadPlan>(static_cast<size_t>(view.shape().kv_heads), plan);
  }

 private:
  int64_t Lower(int64_t size) const {
    const auto next = std::ranges::find_if(schedule_, [&](int64_t to) { return to < size; });
    return next == schedule_.end() ? size : *next;
  }

  void Fit(std::map<int64_t, HeldThought>& thoughts, const HeldThought* running,
           int64_t allowed) const {
    std::vector<HeldThought*> order;
    int64_t excess = -allowed;
    for (auto& [start, one] : thoughts) {
      order.push_back(&one);
      excess += one.size;
    }
    std::ranges::stable_sort(
        order, {}, [&](const HeldThought* one) { return std::pair(one == running, one->kind); });
    for (HeldThought* one : order) {
      while (excess > 0) {
        const int64_t to = Lower(one->size);
        if (to == one->size) break;
        excess -= one->size - to;
        one->size = to;
      }
    }
    for (HeldThought* one : order) {
      const int64_t leave = std::clamp<int64_t>(excess, 0, one->size);
      one->size -= leave;
      excess -= leave;
    }
  }

  // At most `size` of its members.
  std::vector<int32_t> Nearest(LayerView& view, const HeldThought& thought) const {
    const int64_t m = std::ssize(thought.members), count = thought.size;
    if (count == 0) return {};
    Ops& ops = view.ops();
    const int64_t heads = view.shape().kv_heads, dim = view.shape().key_dim, all = heads * dim;
    const Tensor keys = view.Scratch(DType::kF32, {m, all}), at = Upload(view, thought.members);
    for (int64_t h = 0; h < heads; ++h) {
      ops.select->Gather(view.Keys(h), at, Columns(keys, h * dim, (h + 1) * dim));
    }
    const Tensor mean = view.Scratch(DType::kF32, {all});
    ops.rows->ReduceColumns(keys, Reduction::kMean, mean);
    ops.rows->Combine(keys, mean, Binary::kSubtract, keys);
    std::vector<int32_t> begin;
    for (int64_t c = 0; c < count; ++c) begin.push_back(static_cast<int32_t>(c * m / count));
    const Tensor centres = view.Scratch(DType::kF32, {count, all});
    ops.select->Gather(keys, Upload(view, begin), centres);
    ops.algebra->KMeans(keys, static_cast<int>(rounds_), centres, view.Scratch(DType::kI32, {m}));

    // Minus the squared distance, but for what is the centre's alone: 2 x c - x^2.
    const Tensor near = view.Scratch(DType::kF32, {count, m});
    const Tensor squares = view.Scratch(DType::kF32, {m}),
                 best = view.Scratch(DType::kF32, {count});
    ops.linear->MatMulNT(centres.Reshape({1, count, all}), keys.Reshape({1, m, all}), 2.0f,
                         near.Reshape({1, count, m}));
    ops.rows->ReduceRows(keys, Reduction::kSumSquares, squares);
    ops.rows->Combine(near, squares, Binary::kSubtract, near);
    ops.rows->ReduceRows(near, Reduction::kMax, best);
    double spread = 0;
    for (const float square : Fetch(ops, squares)) spread += double{square};
    const auto as_near = static_cast<float>(kAsNear * spread / static_cast<double>(m));
    ops.rows->Affine(best.Reshape({1, count}), 1.0f, -as_near, best.Reshape({1, count}));
    ops.rows->Combine(near, Spread(view, best, m), Binary::kLess, near);
    ops.rows->Affine(near, -1.0f, 1.0f, near);
    const Tensor first = view.Scratch(DType::kI32, {count});
    const Tensor places = view.Scratch(DType::kF32, {count});
    ops.rows->ArgMax(near, first);
    ops.rows->Convert(first.Reshape({1, count}), places.Reshape({1, count}));
    std::set<int32_t> found;
    for (const float place : Fetch(ops, places)) {
      found.insert(thought.members[static_cast<size_t>(place)]);
    }
    return {found.begin(), found.end()};
  }

  std::vector<int64_t> schedule_;
  int64_t rounds_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReduce,
    .id = "thoughts",
    .paper = "arXiv:2510.01290",
    .summary = "thoughts give up entries step by step, at transitions and above the budget",
    .departures =
        {"an entry that is nearest to two centres counts once; of equally near ones the first "
         "stays; clusters begin with evenly spaced entries",
         "parts of the prompt give up entries where thoughts cannot give more",
         "a budget below the ends of the schedule drops whole thoughts"},
    .params = {ChoiceParam("schedule", "64,32,16,8,4", {},
                           "entries of a thought, from one step to the next"),
               IntParam("rounds", 10, 0, 1000, "rounds of the clustering")},
    .make = Make<ThoughtSteps>(),
});

}  // namespace
}  // namespace kvgauge

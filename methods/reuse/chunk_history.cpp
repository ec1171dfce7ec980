// SPDX-License-Identifier: Apache-2.0
// Chunks as an earlier prompt left them, behind other chunks. How much of a chunk is computed again
// follows from how much it attended to others there, and how many of these stand before it now.
//
// Paper: Cache-Craft, arXiv:2502.15734, equations 3 to 14, with Kevin-Yang1/OmniKV 1415cbb, which
// restates them in torch. Where there are several earlier prompts, each chunk comes from the one
// that leaves least to compute.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "core/rng.h"
#include "methods/historic_reuse.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// The share of the pairs in both orders that stand the other way round.
double OtherWayRound(std::span<const int64_t> before, std::span<const int64_t> now) {
  std::vector<std::ptrdiff_t> places;
  for (const int64_t text : before) {
    const auto at = std::find(now.begin(), now.end(), text);
    if (at != now.end()) places.push_back(at - now.begin());
  }
  const auto count = static_cast<double>(places.size());
  if (count < 2) return 0;
  double turned = 0;
  for (size_t i = 0; i < places.size(); ++i) {
    for (size_t j = i + 1; j < places.size(); ++j) turned += places[i] > places[j] ? 1 : 0;
  }
  return turned / (count * (count - 1) / 2);
}

class ChunkHistory final : public HistoricReuse {
 public:
  explicit ChunkHistory(const Params& params)
      : chunk_(params.Int("chunk")),
        requests_(params.Int("requests")),
        seed_(params.Int("seed")),
        alpha_(params.Real("alpha")),
        beginning_(params.Bool("beginning")) {}

  int64_t chunk_tokens() const override { return chunk_; }

  std::vector<std::vector<int64_t>> Orders(int64_t chunks) const override {
    std::vector<std::vector<int64_t>> orders;
    for (int64_t request = 0; request < requests_; ++request) {
      Rng rng(static_cast<uint64_t>(seed_), static_cast<uint64_t>(request));
      std::vector<int64_t>& order = orders.emplace_back(static_cast<size_t>(chunks));
      std::iota(order.begin(), order.end(), 1);
      for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.NextBelow(i)]);
    }
    return orders;
  }

  Choice ChooseEarlier(const EarlierPrompts& earlier) const override {
    const int64_t texts = std::ssize(earlier.edges) - 1;
    const std::vector<float> sums = SumsOf(earlier);
    Choice choice;
    for (int64_t chunk = 1; chunk < texts; ++chunk) {
      std::vector<int64_t> now(static_cast<size_t>(chunk));
      std::iota(now.begin(), now.end(), 0);
      int64_t best = 0;
      double least = 2;
      for (int64_t p = 0; p < std::ssize(earlier.prompts); ++p) {
        const auto at = static_cast<size_t>((p * texts + chunk) * texts);
        const double share = ShareToFix(earlier, p, chunk, now,
                                        std::span(sums).subspan(at, static_cast<size_t>(texts)));
        if (share >= least) continue;
        least = share;
        best = p;
      }
      choice.prompts.push_back(best);
      Add(earlier, best, chunk, least, choice.rows);
    }
    return choice;
  }

 private:
  // What stood before a chunk in an earlier prompt.
  std::vector<int64_t> Before(const EarlierPrompt& prompt, int64_t chunk) const {
    std::vector<int64_t> before;
    if (beginning_) before.push_back(0);
    const auto end = std::find(prompt.order.begin(), prompt.order.end(), chunk);
    before.insert(before.end(), prompt.order.begin(), end);
    return before;
  }

  // What chunks paid to texts, [prompts, texts, texts]; rows of text 0 are undefined.
  static std::vector<float> SumsOf(const EarlierPrompts& earlier) {
    Ops& ops = *earlier.ops;
    const int64_t texts = std::ssize(earlier.edges) - 1, prompts = std::ssize(earlier.prompts);
    const int64_t numbers = prompts * texts * texts;
    const Buffer memory = ops.memory->Allocate(numbers * 4);
    const Tensor all = memory.As(DType::kF32, {prompts * texts, texts});
    ops.memory->Clear(all);
    for (int64_t p = 0; p < prompts; ++p) {
      for (int64_t chunk = 1; chunk < texts; ++chunk) {
        ops.rows->ReduceRows(PaidBy(earlier, p, chunk), Reduction::kSum, all[p * texts + chunk]);
      }
    }
    std::vector<float> sums(static_cast<size_t>(numbers));
    ops.memory->Copy(all, View(sums, {prompts * texts, texts}));
    return sums;
  }

  static Tensor PaidBy(const EarlierPrompts& earlier, int64_t prompt, int64_t chunk) {
    const auto at = static_cast<size_t>(chunk);
    return Columns(earlier.prompts[static_cast<size_t>(prompt)].paid, earlier.edges[at],
                   earlier.edges[at + 1]);
  }

  // The paper's cache fix overhead: the share of a chunk's tokens that are computed again.
  double ShareToFix(const EarlierPrompts& earlier, int64_t prompt, int64_t chunk,
                    std::span<const int64_t> now, std::span<const float> paid) const {
    const auto length = [&](int64_t text) {
      const auto at = static_cast<size_t>(text);
      return static_cast<double>(earlier.edges[at + 1] - earlier.edges[at]);
    };
    const std::vector<int64_t> before = Before(earlier.prompts[static_cast<size_t>(prompt)], chunk);
    double outside = 0, whole = 0, still = 0;
    for (const int64_t text : before) {
      const double sum = paid[static_cast<size_t>(text)];
      outside += sum / length(text);
      whole += sum;
      if (std::find(now.begin(), now.end(), text) != now.end()) still += sum;
    }
    const double inside = paid[static_cast<size_t>(chunk)] / length(chunk);
    const double overlap = whole > 0 ? still / whole * (1 - OtherWayRound(before, now)) : 1;
    const double impact = 1 / (1 + std::exp(-outside / inside));
    return std::clamp(alpha_ * impact * (1 - overlap), 0.0, 1.0);
  }

  // The tokens of a chunk that paid most to what stood before it.
  void Add(const EarlierPrompts& earlier, int64_t prompt, int64_t chunk, double share,
           std::vector<int32_t>& rows) const {
    Ops& ops = *earlier.ops;
    const Tensor paid = PaidBy(earlier, prompt, chunk);
    const int64_t length = paid.shape[1];
    const auto count = static_cast<int64_t>(std::ceil(share * static_cast<double>(length)));
    if (count == 0) return;
    const Buffer memory = ops.memory->Allocate((length + count + 1) * 4);
    const Tensor all = memory.As(DType::kF32, {length + count + 1});
    const Tensor scores = all.Slice(0, length).Reshape({1, length});
    Tensor indices = all.Slice(length, length + count + 1);
    indices.dtype = DType::kI32;
    const Tensor chosen = indices.Slice(0, count), counts = indices.Slice(count, count + 1);
    ops.memory->Clear(scores);
    for (const int64_t text : Before(earlier.prompts[static_cast<size_t>(prompt)], chunk)) {
      ops.rows->Combine(scores, paid[text].Reshape({1, length}), Binary::kAdd, scores);
    }
    const auto wanted = static_cast<int32_t>(count);
    ops.memory->Copy(View(std::span(&wanted, 1), {1}), counts);
    ops.select->TopK(scores, counts, chosen.Reshape({1, count}));
    std::vector<int32_t> host(static_cast<size_t>(count));
    ops.memory->Copy(chosen, View(host, {count}));
    const auto first = static_cast<int32_t>(earlier.edges[static_cast<size_t>(chunk)]);
    for (const int32_t row : host) rows.push_back(first + row);
  }

  int64_t chunk_, requests_, seed_;
  double alpha_;
  bool beginning_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kReuse,
    .id = "chunk_history",
    .paper = "arXiv:2502.15734",
    .summary = "chunks as earlier prompts left them; what leaned on other chunks is computed again",
    .departures = {"the earlier prompts are made up, of the same chunks in drawn orders, since "
                   "samples of a run are independent; a server has those that came",
                   "chosen tokens are computed again in all layers; the paper stops with the "
                   "chunks that the question turns out not to attend to"},
    .bytes = "caches of earlier prompts that lie in the store, which are no part of the sequence",
    .params = {IntParam("chunk", 256, 1, 1 << 20,
                        "the most tokens of a chunk, where the task marks no passages"),
               IntParam("requests", 1, 1, 4,
                        "earlier prompts; a chunk comes from the one that leaves least to do"),
               IntParam("seed", 0, 0, 1 << 30, "of the orders of chunks in the earlier prompts"),
               RealParam("alpha", 1, 0, 1e6, "weighs the share that is computed again"),
               BoolParam("beginning", true,
                         "whether the prompt's beginning counts as a chunk that stands before")},
    .make = Make<ChunkHistory>(),
});

}  // namespace
}  // namespace kvgauge

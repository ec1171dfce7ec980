// SPDX-License-Identifier: Apache-2.0
// Heads that look far back see the whole prompt; all others see its first entries and those just
// before each row.
//
// Paper: LServe, arXiv:2502.14866, whose streaming heads are those of DuoAttention,
// arXiv:2410.10819; after mit-han-lab/omniserve. A share of all KV heads streams: those with the
// least gates of a side-file. Without one the prompt itself tells heads apart, in each layer alone,
// since a layer's rows go on before the next layer is known: those stream whose last rows pay least
// to what a streaming head would not see. The paper draws streaming heads in blocks; its code sees
// tokens.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "methods/calibration.h"
#include "methods/head_reach.h"
#include "methods/prompt_attention.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr int64_t kSightBlock = 128;  // of the reference's kernels

// By head, whether it is among the least of `numbers`: as many as lie below their quantile `share`,
// of equal ones the earlier.
std::vector<char> LeastHeads(std::span<const float> numbers, double share) {
  const auto all = std::ssize(numbers);
  const auto below = static_cast<int64_t>(std::ceil(share * static_cast<double>(all - 1)));
  const int64_t streaming = share >= 1 ? all : std::clamp<int64_t>(below, 0, all);
  std::vector<size_t> order(numbers.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return numbers[a] < numbers[b]; });
  std::vector<char> least(numbers.size());
  for (int64_t i = 0; i < streaming; ++i) least[order[static_cast<size_t>(i)]] = 1;
  return least;
}

class StreamingHeads final : public Attend {
 public:
  explicit StreamingHeads(const Params& params)
      : share_(params.Real("share")),
        sinks_(params.Int("sinks")),
        window_(params.Int("window")),
        rows_(params.Int("rows")),
        blocks_(params.Bool("blocks")) {}

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }
  Status Check(const ModelShape& shape) const override {
    if (calibration_ == nullptr) return {};
    const Result<std::vector<float>> gates = HeadNumbers(*calibration_, shape);
    return gates.ok() ? Status() : gates.error();
  }

  PromptSight Choose(LayerView& view, const Tensor& queries) const override {
    const ModelShape& shape = view.shape();
    PromptSight sight;
    sight.heads.resize(static_cast<size_t>(shape.query_heads));
    if (queries.shape[0] <= sinks_ + window_) return sight;  // the band is everything
    const std::vector<char> streaming = Streaming(view, queries);
    HeadSight band;
    if (blocks_) {
      sight.block = kSightBlock;
      band = InBlocks(queries.shape[0]);
    } else {
      band.kind = HeadSight::Kind::kBand;
      band.sinks = sinks_;
      band.window = window_;
    }
    for (int64_t h = 0; h < shape.query_heads; ++h) {
      if (streaming[static_cast<size_t>(h / shape.group())] == 0) continue;
      sight.heads[static_cast<size_t>(h)] = band;
    }
    return sight;
  }

 private:
  // As many whole blocks as hold the first entries, and the last ones.
  HeadSight InBlocks(int64_t prompt) const {
    const auto needed = [](int64_t entries) { return (entries + kSightBlock - 1) / kSightBlock; };
    const int64_t first = needed(sinks_), last = needed(window_);
    const int64_t blocks = needed(prompt), words = SightWords(prompt, kSightBlock);
    HeadSight sight;
    sight.kind = HeadSight::Kind::kBlocks;
    sight.blocks.assign(static_cast<size_t>(blocks * words), 0);
    for (int64_t row = 0; row < blocks; ++row) {
      for (int64_t block = 0; block <= row; ++block) {
        if (block >= first && block <= row - last) continue;
        sight.blocks[static_cast<size_t>(row * words + block / 64)] |= uint64_t{1} << (block % 64);
      }
    }
    return sight;
  }

  // [kv_heads] of the layer
  std::vector<char> Streaming(LayerView& view, const Tensor& queries) const {
    if (calibration_ == nullptr) return LeastHeads(Beyond(view, queries), share_);
    const Result<std::vector<float>> gates = HeadNumbers(*calibration_, view.shape());
    KVG_CHECK(gates.ok(), "a calibration that was not checked");
    const std::vector<char> all = LeastHeads(*gates, share_);
    const auto of_layer = all.begin() + view.layer() * view.shape().kv_heads;
    return {of_layer, of_layer + view.shape().kv_heads};
  }

  // What the last rows of each KV head pay to entries that none of them would see. [kv_heads]
  std::vector<float> Beyond(LayerView& view, const Tensor& queries) const {
    const ModelShape& shape = view.shape();
    const int64_t prompt = queries.shape[0], rows = std::min(rows_, prompt);
    const int64_t end = prompt - rows - window_ + 1;
    std::vector<float> of_heads(static_cast<size_t>(shape.kv_heads));
    if (end <= sinks_) return of_heads;
    LastRowShares last(view, queries, rows);
    const Tensor paid = view.Scratch(DType::kF32, {shape.query_heads});
    for (int64_t h = 0; h < shape.query_heads; ++h) {
      last.Compute(h);
      const Tensor beyond = last.Columns().Slice(sinks_, end).Reshape({1, end - sinks_});
      view.ops().rows->ReduceRows(beyond, Reduction::kSum, paid.Slice(h, h + 1));
    }
    const std::vector<float> of_queries = Fetch(view.ops(), paid);
    for (int64_t h = 0; h < shape.query_heads; ++h) {
      of_heads[static_cast<size_t>(h / shape.group())] += of_queries[static_cast<size_t>(h)];
    }
    return of_heads;
  }

  double share_;
  int64_t sinks_, window_, rows_;
  bool blocks_;
  std::shared_ptr<const Calibration> calibration_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAttend,
    .id = "streaming_heads",
    .paper = "arXiv:2502.14866",
    .summary = "heads that look far back see all, others the first entries and those before a row",
    .departures =
        {"of equal gates the earlier head streams, and gates beyond 0 and 1 keep their order; the "
         "reference draws",
         "without a side-file heads are told apart by what their last rows pay to far entries, in "
         "each layer alone; the reference asks for gates"},
    .params = {RealParam("share", 0.5, 0, 1, "of the KV heads that stream"),
               IntParam("sinks", 128, 0, 1 << 20, "first entries that a streaming head sees"),
               IntParam("window", 8192, 1, 1 << 20,
                        "entries before a row that it sees, its own included"),
               IntParam("rows", 64, 1, 1 << 16,
                        "last rows whose attention tells heads apart, without a side-file"),
               BoolParam("blocks", false, "whole blocks of 128 rows and entries, as in the paper"),
               CalibrationParam()},
    .make = Make<StreamingHeads>(),
    .calibrate = MakeCalibrator<ReachCalibrator>,
    .import = ImportHeadGates,
});

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// As many columns and diagonals of blocks as hold a share of the last block's attention; heads
// whose means foretell where it goes see the blocks that means choose as well.
//
// Paper: FlexPrefill, arXiv:2502.20766; after bytedance/FlexPrefill. A head is of the second kind
// if the shares that the mean of its last queries gives to mean keys are close to those that the
// queries give, by the root of the Jensen-Shannon divergence.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/strings.h"
#include "methods/attention.h"
#include "methods/coverage.h"
#include "methods/prompt_attention.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Entries that the reference counts as one block when it turns numbers of entries into blocks,
// whatever the size of its blocks.
constexpr int64_t kCounted = 128;

class FlexPrefill final : public Attend {
 public:
  explicit FlexPrefill(const Params& params)
      : gamma_(params.Real("gamma")),
        tau_(params.Real("tau")),
        least_(params.Int("least")),
        most_(params.Int("most")),
        block_(params.Int("block")) {}

  Status Check(const ModelShape&) const override {
    if (block_ % kSightRun == 0) return {};
    return BadInput(StrCat("block is ", block_, "; expected a multiple of ", kSightRun));
  }

  PromptSight Choose(LayerView& view, const Tensor& queries) const override {
    PromptSight sight;
    sight.block = block_;
    const int64_t prompt = queries.shape[0], heads = view.shape().query_heads;
    sight.heads.resize(static_cast<size_t>(heads));
    if (prompt <= std::max(2 * block_, LeastBlocks() * block_) || gamma_ >= 1) return sight;
    LastRowShares last(view, queries, block_);
    Tensor key_means;
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t group = view.shape().group();
      if (h % group == 0) key_means = BlockMeans(view, view.Keys(h / group, 0), block_);
      last.Compute(h);
      ChooseFor(view, last, HeadOf(queries, h), key_means, sight.heads[static_cast<size_t>(h)]);
    }
    return sight;
  }

 private:
  int64_t LeastBlocks() const { return (least_ + block_ - 1) / block_; }
  int64_t MostBlocks(int64_t blocks) const {
    return most_ == 0 ? blocks : std::min(blocks, (most_ + block_ - 1) / block_);
  }

  // How many blocks of lines are taken, whose shares [prompt] sum to 1.
  int64_t CountOf(LayerView& view, const Tensor& shares, int64_t blocks) const {
    const int64_t entries = CoveringCount(view, shares.Reshape({1, shares.shape[0]}), gamma_);
    return std::min(std::max(entries / kCounted + 1, LeastBlocks()), MostBlocks(blocks));
  }

  std::vector<double> ByBlock(LayerView& view, const Tensor& shares) const {
    const int64_t n = shares.shape[0], blocks = (n + block_ - 1) / block_;
    const Tensor sums = view.Scratch(DType::kF32, {blocks});
    for (int64_t b = 0; b < blocks; ++b) {
      const Tensor part = shares.Slice(b * block_, std::min(n, (b + 1) * block_));
      view.ops().rows->ReduceRows(part.Reshape({1, part.shape[0]}), Reduction::kSum,
                                  sums.Slice(b, b + 1));
    }
    const std::vector<float> host = Fetch(view.ops(), sums);
    return {host.begin(), host.end()};
  }

  // Shares among mean keys of rows of queries that have no mask but `causal`. [rows, blocks]
  std::vector<float> SharesOfMeans(LayerView& view, const Tensor& rows, const Tensor& key_means,
                                   bool causal) const {
    const int64_t count = rows.shape[0], blocks = key_means.shape[0], dim = rows.shape[1];
    const Tensor shares = view.Scratch(DType::kF32, {count, blocks});
    view.ops().linear->MatMulNT(rows.Reshape({1, count, dim}), key_means.Reshape({1, blocks, dim}),
                                1.0f, shares.Reshape({1, count, blocks}));
    LogitsOfProducts(view, shares);
    for (int64_t i = 0; causal && i + 1 < count; ++i) {
      view.ops().rows->Fill(-std::numeric_limits<float>::infinity(),
                            shares[i].Slice(i + 1, blocks));
    }
    view.ops().rows->Softmax(shares, 1.0f, shares);
    return Fetch(view.ops(), shares);
  }

  // The root of the Jensen-Shannon divergence. NaN where a share is 0, as in the reference: such a
  // head is of the first kind.
  static double Divergence(std::span<const float> p, std::span<const double> q) {
    double sum = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      const double a = double{p[i]}, b = q[i], middle = (a + b) / 2;
      sum += 0.5 * a * std::log(a / middle) + 0.5 * b * std::log(b / middle);
    }
    return std::sqrt(sum);
  }

  void ChooseFor(LayerView& view, LastRowShares& last, const Tensor& queries,
                 const Tensor& key_means, HeadSight& head) const {
    Ops& ops = view.ops();
    const int64_t prompt = queries.shape[0], dim = queries.shape[1];
    const int64_t blocks = key_means.shape[0], words = SightWords(prompt, block_);
    const auto share = static_cast<float>(1.0 / static_cast<double>(block_));
    const auto shares_of = [&](const Tensor& sums) {
      ops.rows->Affine(sums.Reshape({1, prompt}), share, 0.0f, sums.Reshape({1, prompt}));
      return sums;
    };
    const Tensor columns = shares_of(last.Columns()), diagonals = shares_of(last.Diagonals());
    int64_t column_blocks = CountOf(view, columns, blocks);
    int64_t diagonal_blocks = CountOf(view, diagonals, blocks);
    std::vector<double> by_column = ByBlock(view, columns), by_diagonal = ByBlock(view, diagonals);

    const Tensor rows = view.Scratch(DType::kF32, {block_, dim});
    ops.rows->Convert(queries.Slice(prompt - block_, prompt), rows);
    const Tensor mean = view.Scratch(DType::kF32, {1, dim});
    ops.rows->ReduceColumns(rows, Reduction::kMean, mean.Reshape({dim}));
    const bool by_means = Divergence(SharesOfMeans(view, mean, key_means, false), by_column) < tau_;
    if (by_means) column_blocks = diagonal_blocks = LeastBlocks();

    head.kind = HeadSight::Kind::kBlocks;
    head.blocks.assign(static_cast<size_t>(blocks * words), 0);
    const auto see = [&](int64_t row, int64_t block) {
      head.blocks[static_cast<size_t>(row * words + block / 64)] |= uint64_t{1} << (block % 64);
    };
    const auto best = [](std::vector<double>& sums, size_t always, int64_t count) {
      sums[always] = std::numeric_limits<double>::infinity();
      std::vector<int64_t> order = FallingOrder(sums);
      order.resize(static_cast<size_t>(std::min(count, std::ssize(order))));
      return order;
    };
    for (const int64_t block : best(by_column, 0, column_blocks)) {
      for (int64_t row = block; row < blocks; ++row) see(row, block);
    }
    for (const int64_t at : best(by_diagonal, by_diagonal.size() - 1, diagonal_blocks)) {
      const int64_t distance = blocks - 1 - at;
      for (int64_t row = distance; row < blocks; ++row) see(row, row - distance);
    }
    for (int64_t row = 0; row < blocks; ++row) {
      see(row, 0);
      see(row, row);
    }
    if (!by_means) return;

    const Tensor all = view.Scratch(DType::kF32, {prompt, dim});
    ops.rows->Convert(queries, all);
    const std::vector<float> shares =
        SharesOfMeans(view, BlockMeans(view, all, block_), key_means, true);
    const std::vector<double> wide(shares.begin(), shares.end());
    double reached = 0;
    for (const int64_t at : FallingOrder(wide)) {
      reached += wide[static_cast<size_t>(at)];
      if (reached > gamma_ * static_cast<double>(blocks)) break;
      if (at % blocks <= at / blocks) see(at / blocks, at % blocks);
    }
  }

  double gamma_, tau_;
  int64_t least_, most_, block_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAttend,
    .id = "flexprefill",
    .paper = "arXiv:2502.20766",
    .summary = "blocks along the columns and diagonals that hold a share of the last attention",
    .departures = {"products have the model's scale and cap; the reference divides by the root of "
                   "the head dim"},
    .params = {RealParam("gamma", 0.9, 0, 1, "share of attention to be covered; 1: all is seen"),
               RealParam("tau", 0.1, 0, 1,
                         "divergence below which a head sees the blocks that means choose"),
               IntParam("least", 512, 1, 1 << 24, "entries of columns, and of diagonals, at least"),
               IntParam("most", 0, 0, 1 << 24, "the same at most; 0: no bound"),
               IntParam("block", 128, 64, 1 << 16, "rows and entries of a block")},
    .make = Make<FlexPrefill>(),
});

}  // namespace
}  // namespace kvgauge

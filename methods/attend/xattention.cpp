// SPDX-License-Identifier: Apache-2.0
// Blocks of entries whose antidiagonals of products promise most of each block of rows' attention.
//
// Paper: XAttention, arXiv:2503.16428; after mit-han-lab/x-attention. A row of a stride of queries,
// taken backwards, times a stride of keys is the sum of products along an antidiagonal. Softmax
// over these, summed by block, estimates what a block is given. The first block and the rows' own
// are always seen, then the largest until they have `threshold` of all.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/strings.h"
#include "methods/attention.h"
#include "methods/prompt_attention.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class XAttention final : public Attend {
 public:
  explicit XAttention(const Params& params)
      : stride_(params.Int("stride")),
        block_(params.Int("block")),
        threshold_(params.Real("threshold")),
        norm_(params.Real("norm")),
        compat_(params.Bool("compat")) {}

  Status Check(const ModelShape&) const override {
    if (block_ % kSightRun == 0 && block_ % stride_ == 0) return {};
    return BadInput(StrCat("block is ", block_, "; expected a multiple of ", kSightRun,
                           " and of the stride, ", stride_));
  }

  PromptSight Choose(LayerView& view, const Tensor& queries) const override {
    PromptSight sight;
    sight.block = block_;
    sight.heads.resize(static_cast<size_t>(view.shape().query_heads));
    if (threshold_ >= 1) return sight;
    const int64_t prompt = queries.shape[0], blocks = (prompt + block_ - 1) / block_;
    Work work(view, blocks * block_ / stride_, stride_ * view.shape().key_dim, block_ / stride_);
    const int64_t group = view.shape().group();
    for (int64_t h = 0; h < std::ssize(sight.heads); ++h) {
      if (h % group == 0) {
        const Tensor keys = view.Keys(h / group, 0);
        view.ops().memory->Copy(
            keys, work.keys.Reshape({blocks * block_, keys.shape[1]}).Slice(0, prompt));
      }
      Backwards(view, HeadOf(queries, h), work);
      ChooseFor(view, prompt, work, sight.heads[static_cast<size_t>(h)]);
    }
    return sight;
  }

 private:
  struct Work {
    Work(LayerView& view, int64_t rows, int64_t width, int64_t per_block)
        : keys(view.Scratch(DType::kF32, {rows, width})),
          queries(view.Scratch(DType::kF32, {rows, width})),
          products(view.Scratch(DType::kF32, {per_block, rows})),
          given(view.Scratch(DType::kF32, {per_block})),
          sums(view.Scratch(DType::kF32, {rows / per_block, rows / per_block})) {
      std::vector<float> hidden(static_cast<size_t>(per_block * per_block));
      for (int64_t i = 0; i < per_block; ++i) {
        for (int64_t j = i + 1; j < per_block; ++j) {
          hidden[static_cast<size_t>(i * per_block + j)] = -std::numeric_limits<float>::infinity();
        }
      }
      mask = Upload(view, std::span<const float>(hidden)).Reshape({per_block, per_block});
    }
    Tensor keys, queries;  // [strides, stride * key_dim], zeros behind the prompt
    Tensor products;       // [strides of a block, strides]
    Tensor given;          // [strides of a block]: what each gives to a block
    Tensor sums;           // [blocks, blocks]
    Tensor mask;           // of a block's own strides
  };

  // Each stride of a head's queries, last row first.
  void Backwards(LayerView& view, const Tensor& of_head, Work& work) const {
    const int64_t prompt = of_head.shape[0], dim = of_head.shape[1];
    const int64_t rows = work.queries.shape[0] * stride_;
    std::vector<int32_t> from(static_cast<size_t>(rows));
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t row = i / stride_ * stride_ + stride_ - 1 - i % stride_;
      from[static_cast<size_t>(i)] = row < prompt ? static_cast<int32_t>(row) : -1;
    }
    view.ops().select->Gather(of_head, Upload(view, std::span<const int32_t>(from)),
                              work.queries.Reshape({rows, dim}));
  }

  void ChooseFor(LayerView& view, int64_t prompt, Work& work, HeadSight& head) const {
    Ops& ops = view.ops();
    const int64_t per_block = work.products.shape[0], width = work.keys.shape[1];
    const int64_t blocks = work.sums.shape[0];
    // Strides that hold some of the prompt; others give and get nothing.
    const int64_t strides = (prompt + stride_ - 1) / stride_;
    const auto shrink = static_cast<float>(1.0 / (static_cast<double>(stride_) * norm_));
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t first = b * per_block, seen = std::min(first + per_block, strides);
      const int64_t rows = seen - first;
      const Tensor products =
          Tensor(work.products.data, DType::kF32, {1, rows, seen}, work.products.device);
      const Tensor logits = products.Reshape({rows, seen});
      ops.linear->MatMulNT(work.queries.Slice(first, seen).Reshape({1, rows, width}),
                           work.keys.Slice(0, seen).Reshape({1, seen, width}), shrink, products);
      LogitsOfProducts(view, logits);
      const Tensor own = Columns(logits, first, seen);
      ops.rows->Combine(own, Columns(work.mask.Slice(0, rows), 0, rows), Binary::kAdd, own);
      ops.rows->Softmax(logits, 1.0f, logits);
      const Tensor sums = work.sums[b];
      for (int64_t c = 0; c <= b; ++c) {
        const Tensor part = Columns(logits, c * per_block, std::min((c + 1) * per_block, seen));
        const Tensor given = work.given.Slice(0, rows);
        ops.rows->ReduceRows(part, Reduction::kSum, given);
        ops.rows->ReduceRows(given.Reshape({1, rows}), Reduction::kSum, sums.Slice(c, c + 1));
      }
    }
    const std::vector<float> sums = Fetch(ops, work.sums);
    const int64_t words = SightWords(prompt, block_);
    head.kind = HeadSight::Kind::kBlocks;
    head.blocks.assign(static_cast<size_t>(blocks * words), 0);
    for (int64_t b = 0; b < blocks; ++b) {
      for (const int64_t block : Seen(std::span(sums).subspan(static_cast<size_t>(b * blocks),
                                                              static_cast<size_t>(b + 1)))) {
        head.blocks[static_cast<size_t>(b * words + block / 64)] |= uint64_t{1} << (block % 64);
      }
    }
  }

  // Which of the blocks up to the rows' own they see.
  std::vector<int64_t> Seen(std::span<const float> given) const {
    const int64_t own = std::ssize(given) - 1;
    double all = 0;
    for (const float share : given) all += double{share};
    std::vector<int64_t> seen = {own};
    // What is reached before each of the others, and before the last of them was added.
    double reached = double{given[static_cast<size_t>(own)]}, before = 0;
    if (!compat_ && own > 0) {
      seen.push_back(0);
      reached += double{given[0]};
    }
    std::vector<double> others(given.begin(), given.end());
    for (const int64_t block : seen) others[static_cast<size_t>(block)] = -1;
    for (const int64_t block : FallingOrder(others)) {
      const double share = others[static_cast<size_t>(block)];
      if (share < 0 || (compat_ ? before : reached) >= all * threshold_) break;
      seen.push_back(block);
      before = reached;
      reached += share;
    }
    // The reference marks it in place of every block that is not chosen.
    if (compat_) seen.push_back(0);
    return seen;
  }

  int64_t stride_, block_;
  double threshold_, norm_;
  bool compat_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kAttend,
    .id = "xattention",
    .paper = "arXiv:2503.16428",
    .summary = "blocks with the largest sums along antidiagonals of products",
    .departures = {"products have the model's scale and cap; the reference divides by the root of "
                   "the head dim"},
    .params = {IntParam("stride", 16, 1, 1 << 10, "rows and entries of an antidiagonal"),
               IntParam("block", 128, 64, 1 << 16, "rows and entries of a block"),
               RealParam("threshold", 0.9, 0, 1,
                         "share of the estimated attention that the chosen blocks have; 1: all is "
                         "seen"),
               RealParam("norm", 1, 0.001, 1000, "what the products are divided by besides"),
               BoolParam("compat", false,
                         "true: as the reference chooses up to 16384 tokens, where the first block "
                         "is seen but does not count, and one block more is")},
    .make = Make<XAttention>(),
});

}  // namespace
}  // namespace kvgauge

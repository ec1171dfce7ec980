// SPDX-License-Identifier: Apache-2.0
#include "methods/prompt_attention.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "methods/attention.h"
#include "methods/tensors.h"

namespace kvgauge {

Tensor HeadOf(const Tensor& rows, int64_t head) {
  Tensor one = rows;
  one.data = static_cast<char*>(rows.data) + head * rows.stride[1] * SizeOf(rows.dtype);
  one.rank = 2;
  one.shape = {rows.shape[0], rows.shape[2], 0, 0};
  one.stride = {rows.stride[0], 1, 0, 0};
  return one;
}

LastRowShares::LastRowShares(LayerView& view, const Tensor& queries, int64_t rows)
    : view_(view), queries_(queries), rows_(rows), prompt_(queries.shape[0]) {
  of_head_ = view.Scratch(DType::kF32, {rows_, view.shape().key_dim});
  logits_ = view.Scratch(DType::kF32, {rows_, prompt_});
  padded_ = view.Scratch(DType::kF32, {rows_, rows_ + prompt_});
  columns_ = view.Scratch(DType::kF32, {prompt_});
  diagonals_ = view.Scratch(DType::kF32, {prompt_});
  std::vector<float> hidden(static_cast<size_t>(rows_ * rows_));
  for (int64_t i = 0; i < rows_; ++i) {
    for (int64_t j = i + 1; j < rows_; ++j) {
      hidden[static_cast<size_t>(i * rows_ + j)] = -std::numeric_limits<float>::infinity();
    }
  }
  mask_ = Upload(view, std::span<const float>(hidden)).Reshape({rows_, rows_});
}

Tensor LastRowShares::Shares() const { return kvgauge::Columns(padded_, rows_, rows_ + prompt_); }

void LastRowShares::Compute(int64_t query_head) {
  Ops& ops = view_.ops();
  const int64_t dim = view_.shape().key_dim;
  const Tensor rows = HeadOf(queries_, query_head).Slice(prompt_ - rows_, prompt_);
  ops.rows->Convert(rows, of_head_);
  const Tensor keys = view_.Keys(query_head / view_.shape().group(), 0);
  ops.linear->MatMulNT(of_head_.Reshape({1, rows_, dim}), keys.Reshape({1, prompt_, dim}), 1.0f,
                       logits_.Reshape({1, rows_, prompt_}));
  LogitsOfProducts(view_, logits_);
  const Tensor own = kvgauge::Columns(logits_, prompt_ - rows_, prompt_);
  ops.rows->Combine(own, mask_, Binary::kAdd, own);
  ops.rows->Softmax(logits_, 1.0f, Shares());
}

Tensor LastRowShares::Columns() const {
  view_.ops().rows->ReduceColumns(Shares(), Reduction::kSum, columns_);
  return columns_;
}

// A view whose rows begin one number later each has diagonals as columns. The zeros before each row
// are what diagonals meet before entry 0.
Tensor LastRowShares::Diagonals() const {
  Tensor along = padded_;
  along.data = padded_.f32() + 1;
  along.shape = {rows_, prompt_, 0, 0};
  along.stride = {rows_ + prompt_ + 1, 1, 0, 0};
  view_.ops().rows->ReduceColumns(along, Reduction::kSum, diagonals_);
  return diagonals_;
}

RowShares::RowShares(LayerView& view, const Tensor& queries, std::vector<int32_t> rows)
    : view_(view), queries_(queries), rows_(std::move(rows)), prompt_(queries.shape[0]) {
  index_ = Upload(view, std::span<const int32_t>(rows_));
  of_head_ = view.Scratch(DType::kF32, {count(), view.shape().key_dim});
  logits_ = view.Scratch(DType::kF32, {count(), prompt_});
  shares_ = view.Scratch(DType::kF32, {count(), prompt_});
}

void RowShares::Compute(int64_t query_head) {
  Ops& ops = view_.ops();
  const int64_t dim = view_.shape().key_dim;
  ops.select->Gather(HeadOf(queries_, query_head), index_, of_head_);
  const Tensor keys = view_.Keys(query_head / view_.shape().group(), 0);
  ops.linear->MatMulNT(of_head_.Reshape({1, count(), dim}), keys.Reshape({1, prompt_, dim}), 1.0f,
                       logits_.Reshape({1, count(), prompt_}));
  LogitsOfProducts(view_, logits_);
  // Behind a row its shares stay 0.
  for (int64_t i = 0; i < count(); ++i) {
    ops.rows->Softmax(Seen(logits_, i), 1.0f, Seen(shares_, i));
  }
}

std::vector<int32_t> DrawRows(LayerView& view, uint64_t stream, int64_t count, int64_t most) {
  count = std::min(count, most);
  if (count <= 0) return {};
  const Tensor numbers = view.Scratch(DType::kF32, {most});
  view.ops().rows->Uniform(view.seed(), stream | static_cast<uint64_t>(view.layer()),
                           Numbers(view, most), numbers);
  std::vector<int32_t> rows(static_cast<size_t>(count));
  view.ops().memory->Copy(Best(view, numbers.Reshape({1, most}), count), View(rows, {count}));
  return rows;
}

Tensor BlockMeans(LayerView& view, const Tensor& x, int64_t block) {
  const int64_t n = x.shape[0], blocks = (n + block - 1) / block;
  const Tensor means = view.Scratch(DType::kF32, {blocks, x.shape[1]});
  for (int64_t b = 0; b < blocks; ++b) {
    view.ops().rows->ReduceColumns(x.Slice(b * block, std::min(n, (b + 1) * block)),
                                   Reduction::kMean, means[b]);
  }
  return means;
}

std::vector<int64_t> FallingOrder(std::span<const double> shares) {
  std::vector<int64_t> order(shares.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return shares[static_cast<size_t>(a)] > shares[static_cast<size_t>(b)];
  });
  return order;
}

}  // namespace kvgauge

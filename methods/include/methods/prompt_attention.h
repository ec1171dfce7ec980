// SPDX-License-Identifier: Apache-2.0
// Attention that stages of kind `attend` estimate before any is computed: that of a prompt's last
// rows in full, that of some of its rows, and block means.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "methods/attend.h"

namespace kvgauge {

// What the last `rows` rows of a prompt attend to, one query head after the other, in memory of its
// own that the next head's takes again.
class LastRowShares {
 public:
  // queries: [prompt, query_heads, key_dim], as Attend::Choose has them. rows <= the prompt.
  LastRowShares(LayerView& view, const Tensor& queries, int64_t rows);

  // Computes the shares of one head: causal, and scaled and capped as the model does.
  void Compute(int64_t query_head);
  int64_t rows() const { return rows_; }
  // [rows, prompt], strided.
  Tensor Shares() const;
  // How much all rows of the head give each entry. [prompt]
  Tensor Columns() const;
  // Number i is what is given along the diagonal that ends at entry i in the last row. [prompt]
  Tensor Diagonals() const;

 private:
  LayerView& view_;
  const Tensor& queries_;
  const int64_t rows_, prompt_;
  Tensor of_head_, logits_, padded_, mask_, columns_, diagonals_;
};

// What some rows of a prompt attend to, one query head after the other in the same memory.
class RowShares {
 public:
  // rows: ascending, of the prompt. queries: as above.
  RowShares(LayerView& view, const Tensor& queries, std::vector<int32_t> rows);

  // Computes the shares of one head: causal, and scaled and capped as the model does.
  void Compute(int64_t query_head);
  int64_t count() const { return std::ssize(rows_); }
  // The row that number i of them is.
  int64_t row(int64_t i) const { return rows_[static_cast<size_t>(i)]; }
  // [count, prompt], 0 behind each row.
  const Tensor& shares() const { return shares_; }
  // Memory of that size, free until the next Compute.
  const Tensor& scratch() const { return logits_; }
  // The entries up to the row itself, of number i: [1, row + 1] of some [count, prompt].
  Tensor Seen(const Tensor& of, int64_t i) const {
    return of[i].Slice(0, row(i) + 1).Reshape({1, row(i) + 1});
  }

 private:
  LayerView& view_;
  const Tensor& queries_;
  const std::vector<int32_t> rows_;
  const int64_t prompt_;
  Tensor index_, of_head_, logits_, shares_;
};

// `count` of the first `most` rows, ascending, as many as there are: drawn by the view's seed,
// `stream` and the layer.
std::vector<int32_t> DrawRows(LayerView& view, uint64_t stream, int64_t count, int64_t most);

// One head of [rows, heads, dim], strided: [rows, dim].
Tensor HeadOf(const Tensor& rows, int64_t head);
// The mean of each block of so many rows of x [n, d], the last one of those that there are:
// [blocks, d].
Tensor BlockMeans(LayerView& view, const Tensor& x, int64_t block);
// Indices of blocks by falling share, of equals the lower first. On the host.
std::vector<int64_t> FallingOrder(std::span<const double> shares);

}  // namespace kvgauge

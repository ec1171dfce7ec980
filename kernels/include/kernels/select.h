// SPDX-License-Identifier: Apache-2.0
// Choosing and moving entries: top-k, gather, scatter, pooling, successors, ranges of channels.
// Tensors are f32 unless said otherwise; rows of matrices may be strided. An index or count out of
// range is a broken precondition; on the host it is checked.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace kvgauge {

enum class Pooling {
  kAverage,  // the zero padding counts, so scores shrink at both ends
  kMax,      // the padding does not count; a NaN in the window gives NaN
};

// How a router's logits choose experts.
struct ExpertRule {
  int64_t groups = 1;        // of neighbouring experts; a divisor of their number
  int64_t top_groups = 1;    // whose best expert is best; those of other groups count as 0
  bool renormalize = false;  // the weights of a row sum to 1; otherwise they are scaled
  double scaling = 1.0;
  // Shares are sigmoids instead of a softmax. Experts are chosen, and groups ranked by the sum of
  // their two best, by share + correction; weights are shares, and what sums to 1 is scaled too.
  bool sigmoid = false;
  // Experts are taken one after the other (SparseMixer-2 as it is run): each is the one with the
  // largest logit l of those that are left, and its weight is its share of a softmax over those
  // left whose logit x has (l - x) / max(|x|, l) <= tolerance. Groups, correction, renormalize and
  // scaling have no part in it.
  bool in_turn = false;
  double tolerance = 0.0;
};

class SelectOps {
 public:
  virtual ~SelectOps() = default;

  // For each row the indices of its `counts[row]` largest values, in ascending order of index.
  // Among equals the lower index wins; +inf is always first and NaN last. scores: [rows, n];
  // counts: [rows] i32 in [0, n]; out: [rows, width] i32, width >= every count, the rest of a row
  // is filled with -1.
  void TopK(const Tensor& scores, const Tensor& counts, Tensor out);

  // out[i, :] = source[index[i], :]. Any dtype; source: [n, d]; index: [m] i32 in range, or -1: a
  // row of zeros.
  void Gather(const Tensor& source, const Tensor& index, Tensor out);
  // out[index[i], :] = source[i, :]. Any dtype; indices distinct.
  void Scatter(const Tensor& source, const Tensor& index, Tensor out);
  // out[index[i], :] += weight[i] * source[i, :], in ascending order of i; weight may be empty (1).
  // An index of -1 is skipped.
  void ScatterAdd(const Tensor& source, const Tensor& index, const Tensor& weight, Tensor out);

  // One-dimensional pooling along each row, stride 1, padding kernel/2; kernel is odd, so the
  // length stays. x, out: [rows, n]; out is not x.
  void Pool(const Tensor& x, int64_t kernel, Pooling mode, Tensor out);

  // out[j, i] = the (j+1)-th of the values in `sorted` that are greater than value[i], or -1 where
  // there are fewer. sorted: [k] i32 ascending; value: [n] i32; out: [count, n] i32.
  void Following(const Tensor& sorted, const Tensor& value, Tensor out);

  // Sets bits [run * i, run * (i + 1)) below n for every i of a row of `index`; -1 is skipped. Bit
  // e of word p stands for 64 p + e. index: [rows, k] i32; words: [rows, ceil(n / 64)] i64, other
  // bits stay.
  void MarkRuns(const Tensor& index, int64_t run, int64_t n, Tensor words);

  // For each row of logits: the k experts that the rule takes, those with the largest share, in
  // ascending order of expert, and their weights. Among equals the lower one wins. logits: [m,
  // experts]; correction: [experts] where the rule is of sigmoids, else empty; index: [m, k] i32;
  // weight: [m, k]; both contiguous, k <= experts of the groups that are chosen.
  void ChooseExperts(const Tensor& logits, const ExpertRule& rule, const Tensor& correction,
                     Tensor index, Tensor weight);
  // out[i, :] += sum over j of weight[i, j] * source[k * i + j, :], one after the other, ascending.
  // source: [m * k, d]; weight: [m, k]; out: [m, d].
  void AddWeighted(const Tensor& source, const Tensor& weight, Tensor out);

  // out[i] = base[i] + how many bits of row i of `words` are set. words: [rows, n] i64; base, out:
  // [rows] i64.
  void CountBits(const Tensor& words, const Tensor& base, Tensor out);
  // out[g] = base[g] + how many bits of [range[g, 0], range[g, 1]) are set in any row of group g;
  // a group is as many neighbouring rows as `words` has for each of `out`. words: [groups * rows,
  // n] i64; range: [groups, 2] i32, contiguous, ascending within 0 .. 64 n; base, out: [groups]
  // i64.
  void CountAnyBits(const Tensor& words, const Tensor& range, const Tensor& base, Tensor out);
  // Bit skip + i of a row of `out` is bit first + i of that row of `words`; bits without a source
  // are 0. words: [rows, n] i64; out: [rows, m] i64, contiguous.
  void MoveBits(const Tensor& words, int64_t first, int64_t skip, Tensor out);
  // out[i, j] = 1 where bit first + j of row i of `words` is set, else 0; bits behind the words are
  // not. words: [rows, n] i64; out: [rows, m].
  void ReadBits(const Tensor& words, int64_t first, Tensor out);
  // out[i] = max(x[i], least). x, out: [n] i32; out may be x.
  void AtLeast(const Tensor& x, int32_t least, Tensor out);

  // The range of each column without its `trim` smallest and `trim` largest values, 2 trim < n.
  // x: [n, d]; low, high: [d]. NaN counts as the smallest.
  void ColumnRanges(const Tensor& x, int64_t trim, Tensor low, Tensor high);

 private:
  virtual void DoTopK(const Tensor& scores, const Tensor& counts, Tensor out) = 0;
  virtual void DoGather(const Tensor& source, const Tensor& index, Tensor out) = 0;
  virtual void DoScatter(const Tensor& source, const Tensor& index, Tensor out) = 0;
  virtual void DoScatterAdd(const Tensor& source, const Tensor& index, const Tensor& weight,
                            Tensor out) = 0;
  virtual void DoPool(const Tensor& x, int64_t kernel, Pooling mode, Tensor out) = 0;
  virtual void DoFollowing(const Tensor& sorted, const Tensor& value, Tensor out) = 0;
  virtual void DoMarkRuns(const Tensor& index, int64_t run, int64_t n, Tensor words) = 0;
  virtual void DoChooseExperts(const Tensor& logits, const ExpertRule& rule,
                               const Tensor& correction, Tensor index, Tensor weight) = 0;
  virtual void DoAddWeighted(const Tensor& source, const Tensor& weight, Tensor out) = 0;
  virtual void DoCountBits(const Tensor& words, const Tensor& base, Tensor out) = 0;
  virtual void DoCountAnyBits(const Tensor& words, const Tensor& range, const Tensor& base,
                              Tensor out) = 0;
  virtual void DoMoveBits(const Tensor& words, int64_t first, int64_t skip, Tensor out) = 0;
  virtual void DoReadBits(const Tensor& words, int64_t first, Tensor out) = 0;
  virtual void DoAtLeast(const Tensor& x, int32_t least, Tensor out) = 0;
  virtual void DoColumnRanges(const Tensor& x, int64_t trim, Tensor low, Tensor high) = 0;
};

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Readers that answer for a part of the entries themselves: with weights of single entries, or
// with an estimate of many. The two results are joined by their softmax denominators.
#pragma once

#include "methods/stages.h"

namespace kvgauge {

class JoiningReader : public Reader {
 public:
  bool corrects() const override { return true; }
  // Called in place of Correct, after attention over the entries of a Select that did not return
  // false, with the same queries. Changes `out`, [query_heads, value_dim], the result of attention,
  // in place. log_sum_exp: [query_heads], the natural log of each head's softmax denominator over
  // what it read.
  virtual void Join(LayerView& view, State& state, const Tensor& q, const Tensor& log_sum_exp,
                    Tensor out) const = 0;
  // Entries that Join reads besides those of Select, which count as read. words as of Select, zero
  // on entry.
  virtual void MarkJoined(LayerView&, State&, Tensor) const {}
};

// `result` [rows, dim], whose denominators have these logs, becomes that of a softmax over its
// entries and those of `logits` [rows, n], whose values are [n, dim]. Rows of -inf alone add
// nothing. logits: used up.
void JoinSoftmax(LayerView& view, const Tensor& log_sum_exp, const Tensor& logits,
                 const Tensor& values, const Tensor& result);
// The same where the first `count` columns are those of entries and the others mean nothing; values
// behind those of entries are finite.
void JoinSoftmax(LayerView& view, const Tensor& log_sum_exp, const Tensor& logits, int64_t count,
                 const Tensor& values, const Tensor& result);
// The same where the softmax over the others is done: theirs are the logs `sums` [rows] and the
// results `other` [rows, dim], which are used up.
void JoinResults(LayerView& view, const Tensor& log_sum_exp, const Tensor& sums,
                 const Tensor& other, const Tensor& result);

// Lets all rows of `words` [rows, ceil(length / 64)] read a head's entries before `first` and those
// from `last` on.
void MarkEnds(LayerView& view, int64_t first, int64_t last, int64_t length, const Tensor& words);
// Lets all rows of `words` read `entries` [n] i32 of a head's first `then`, and those from `then`
// on. entries: ascending.
void MarkChosenAndLater(LayerView& view, const Tensor& entries, int64_t then, int64_t length,
                        const Tensor& words);
// Lets row i read the entries first + j for which marks[i, j] is 1, not 0; what it may read before
// `first` is forgotten. marks: [rows, n], or one row for all; it waits for the device.
void MarkWhere(LayerView& view, const Tensor& marks, int64_t first, const Tensor& words);

}  // namespace kvgauge

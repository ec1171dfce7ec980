// SPDX-License-Identifier: Apache-2.0
// Attention as the model itself would have it, from products of queries and keys.
#pragma once

#include <cstdint>

#include "methods/layer_view.h"

namespace kvgauge {

// Where rows of queries are: row i at `position` + i * `apart`.
struct QueryRows {
  int64_t position = 0;
  int64_t apart = 0;

  // All rows are of the newest token.
  static QueryRows Newest(const LayerView& view) { return {view.tokens() - 1, 0}; }
  // They are the last `rows` tokens, in order.
  static QueryRows Last(const LayerView& view, int64_t rows) { return {view.tokens() - rows, 1}; }
};

// Caps logits where the model does.
void CapLogits(LayerView& view, const Tensor& logits);
// Products of queries and keys become logits: times the model's scale, and capped.
void LogitsOfProducts(LayerView& view, const Tensor& products);

// Where heads have logits without a value (AttentionShape::sinks), shares that stages make are
// those among entries; those that the view has count them.
//
// Products of rows of queries with keys become shares: times the model's scale, capped where the
// model caps them, then a softmax of each row. products: [rows, n], used up; may be `out`.
void SoftmaxOfProducts(LayerView& view, const Tensor& products, const Tensor& out);

// The same where the keys are those of a head's entries from `first` on: what the layer's sliding
// window hides from a row gets 0.
void AttentionOfProducts(LayerView& view, int64_t head, int64_t first, QueryRows rows,
                         const Tensor& products, const Tensor& out);
// The same in place, where the first `count` columns are those of entries and the others mean
// nothing.
void AttentionOfProducts(LayerView& view, int64_t head, int64_t first, QueryRows rows,
                         int64_t count, const Tensor& products);

// The same of products that have their scale.
void AttentionOfLogits(LayerView& view, int64_t head, int64_t first, QueryRows rows,
                       const Tensor& logits, const Tensor& out);
void AttentionOfLogits(LayerView& view, int64_t head, int64_t first, QueryRows rows, int64_t count,
                       const Tensor& logits);

// What the layer's sliding window hides from the newest token gets -inf. scores: [rows, runs], one
// for each `run` of a head's entries from `first` on; a run is hidden with its last entry.
void HideFromNewest(LayerView& view, int64_t head, int64_t first, int64_t run,
                    const Tensor& scores);
// The same where the first `count` columns are those of runs and the others mean nothing.
void HideFromNewest(LayerView& view, int64_t head, int64_t first, int64_t run, int64_t count,
                    const Tensor& scores);

}  // namespace kvgauge

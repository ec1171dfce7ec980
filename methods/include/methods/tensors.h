// SPDX-License-Identifier: Apache-2.0
// Small steps between host and device that stages share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/check.h"
#include "methods/layer_view.h"

namespace kvgauge {

// Copies of host values as [n] on the view's device; they live as long as the view.
Tensor Upload(LayerView& view, std::span<const int32_t> values);
Tensor Upload(LayerView& view, std::span<const float> values);
// Copies a short f32 result to the host, and waits for it. Precondition: contiguous.
std::vector<float> Fetch(Ops& ops, const Tensor& values);
// A buffer of its own with the same bytes.
Buffer CopyOf(const Buffer& buffer, Ops& ops);

// Columns [begin, end) of a matrix; rows stay where they are.
inline Tensor Columns(const Tensor& matrix, int64_t begin, int64_t end) {
  KVG_CHECK(matrix.rank == 2 && begin >= 0 && begin <= end && end <= matrix.shape[1],
            "columns out of range");
  Tensor out = matrix;
  out.data = static_cast<char*>(matrix.data) + begin * SizeOf(matrix.dtype);
  out.shape[1] = end - begin;
  return out;
}
// [n] as [n, 1], for the operations that move rows.
inline Tensor AsColumn(const Tensor& vector) { return vector.Reshape({vector.shape[0], 1}); }

// The score of an entry that must be kept: above all others, and finite. Scores of at least
// kForcedFrom are forced.
inline constexpr float kForcedScore = 1e30f;
inline constexpr float kForcedFrom = 1e29f;

// The ascending indices ([count] i32) of the best `count` of scores [1, n].
Tensor Best(LayerView& view, const Tensor& scores, int64_t count);
// [n] f32 of equal values.
Tensor Filled(LayerView& view, int64_t n, float value);
// For one head's entries [1, n]: 1 + position where an entry is text, else 0. The view's method
// declared Needs::modality.
void ScoreText(LayerView& view, int64_t head, const Tensor& out);
// Standard Gumbel numbers into out [n], a function of the view's seed, `stream` and positions[i]
// alone. The best of scores with these added is a draw by the scores' softmax.
void Gumbel(LayerView& view, uint64_t stream, const Tensor& positions, const Tensor& out);
// The ascending indices of the entries [0, length) that `keep` ([k] i32, ascending) does not name.
Tensor Complement(LayerView& view, const Tensor& keep, int64_t length);

// Each number of a column over a row: [m, w]. column: [m], contiguous.
Tensor Spread(LayerView& view, const Tensor& column, int64_t w);
// [m, w]: 1 at the largest number of each row of `rows` [m, w], the first among equals; else 0.
Tensor MarkBest(LayerView& view, const Tensor& rows);
// How many of scores [1, n] are forced.
int64_t CountForced(LayerView& view, const Tensor& scores);
// [n] i32: first, first + step, first + 2 step ..
Tensor Numbers(LayerView& view, int64_t n, int32_t first = 0, int32_t step = 1);

}  // namespace kvgauge

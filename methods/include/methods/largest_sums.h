// SPDX-License-Identifier: Apache-2.0
// How many of its largest numbers a row needs to reach a sum.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "methods/layer_view.h"

namespace kvgauge {

// The sum of the counts[r] largest numbers of each row r. numbers: [rows, n] f32; counts: each in
// [0, n], one of them at least 1.
std::vector<float> SumsOfLargest(LayerView& view, const Tensor& numbers,
                                 std::span<const int32_t> counts);

// For each row the least count, at least 1, whose SumsOfLargest reaches goals[r], found by
// bisection; most[r] where none below it does. numbers: [rows, n] f32, none negative.
std::vector<int32_t> FewestLargest(LayerView& view, const Tensor& numbers,
                                   std::span<const float> goals, std::vector<int32_t> most);

// Marks for each query head the fewest entries that together are given `share`, the largest first,
// but no more than `most`. given: [query_heads, width], 0 beyond a head's own entries; words as
// Reader::Select has them.
void MarkFewest(LayerView& view, const Tensor& given, float share, int64_t most,
                const Tensor& words);
// The same where query head q takes most[q] at most; one of them is at least 1.
void MarkFewest(LayerView& view, const Tensor& given, float share, std::vector<int32_t> most,
                const Tensor& words);

}  // namespace kvgauge

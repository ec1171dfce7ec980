// SPDX-License-Identifier: Apache-2.0
#include "methods/largest_sums.h"

#include <algorithm>
#include <utility>

#include "methods/tensors.h"

namespace kvgauge {

std::vector<float> SumsOfLargest(LayerView& view, const Tensor& numbers,
                                 std::span<const int32_t> counts) {
  Ops& ops = view.ops();
  const int64_t rows = numbers.shape[0];
  const int32_t width = *std::max_element(counts.begin(), counts.end());
  const Tensor index = view.Scratch(DType::kI32, {rows, width});
  const Tensor best = view.Scratch(DType::kF32, {rows, width});
  const Tensor sums = view.Scratch(DType::kF32, {rows});
  ops.select->TopK(numbers, Upload(view, counts), index);
  // An index of -1, behind the end of a shorter row, gathers zeros.
  for (int64_t r = 0; r < rows; ++r) {
    ops.select->Gather(AsColumn(numbers[r]), index[r], AsColumn(best[r]));
  }
  ops.rows->ReduceRows(best, Reduction::kSum, sums);
  return Fetch(ops, sums);
}

std::vector<int32_t> FewestLargest(LayerView& view, const Tensor& numbers,
                                   std::span<const float> goals, std::vector<int32_t> most) {
  std::vector<int32_t> too_few(most.size(), 0), enough = std::move(most);
  while (true) {
    std::vector<int32_t> middle = enough;
    bool open = false;
    for (size_t r = 0; r < middle.size(); ++r) {
      if (enough[r] - too_few[r] <= 1) continue;
      open = true;
      middle[r] = too_few[r] + (enough[r] - too_few[r] + 1) / 2;
    }
    if (!open) return enough;
    const std::vector<float> sums = SumsOfLargest(view, numbers, middle);
    for (size_t r = 0; r < middle.size(); ++r) {
      if (enough[r] - too_few[r] <= 1) continue;
      (sums[r] >= goals[r] ? enough : too_few)[r] = middle[r];
    }
  }
}

void MarkFewest(LayerView& view, const Tensor& given, float share, int64_t most,
                const Tensor& words) {
  const int64_t group = view.shape().group();
  std::vector<int32_t> limits;
  for (int64_t q = 0; q < given.shape[0]; ++q) {
    const int64_t length = view.lengths()[static_cast<size_t>(q / group)];
    limits.push_back(static_cast<int32_t>(std::min(length, most)));
  }
  MarkFewest(view, given, share, std::move(limits), words);
}

void MarkFewest(LayerView& view, const Tensor& given, float share, std::vector<int32_t> most,
                const Tensor& words) {
  const int64_t heads = given.shape[0], group = view.shape().group();
  const std::vector<float> goals(most.size(), share);
  const std::vector<int32_t> counts = FewestLargest(view, given, goals, std::move(most));
  const Tensor chosen =
      view.Scratch(DType::kI32, {heads, *std::max_element(counts.begin(), counts.end())});
  view.ops().select->TopK(given, Upload(view, counts), chosen);
  for (int64_t begin = 0; begin < heads; begin += group) {
    const int64_t length = view.lengths()[static_cast<size_t>(begin / group)], end = begin + group;
    if (length == 0) continue;
    view.ops().select->MarkRuns(chosen.Slice(begin, end), 1, length,
                                Columns(words.Slice(begin, end), 0, (length + 63) / 64));
  }
}

}  // namespace kvgauge

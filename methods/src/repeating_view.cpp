// SPDX-License-Identifier: Apache-2.0
#include "methods/repeating_view.h"

#include <numeric>
#include <vector>

#include "methods/tensors.h"

namespace kvgauge {

RepeatingView* Repeating(LayerView& view) {
  return view.ops().device == Device::kHost ? nullptr : dynamic_cast<RepeatingView*>(&view);
}

Tensor KeysWithRoom(LayerView& view, int64_t head, int64_t first) {
  RepeatingView* const repeating = Repeating(view);
  return repeating != nullptr ? repeating->RoomyKeys(head, first) : view.Keys(head, first);
}

Tensor ValuesWithRoom(LayerView& view, int64_t head, int64_t first) {
  RepeatingView* const repeating = Repeating(view);
  return repeating != nullptr ? repeating->RoomyValues(head, first) : view.Values(head, first);
}

int64_t ChoiceColumns(const LayerView& view, int64_t count, int64_t most) {
  return view.ops().device == Device::kHost ? count : most;
}

int64_t GrowingColumns(const LayerView& view, int64_t count) {
  constexpr int64_t kAtOnce = 64;
  return ChoiceColumns(view, count, (count + kAtOnce - 1) / kAtOnce * kAtOnce);
}

Tensor GrowingNumbers(LayerView& view, int64_t count, int64_t first) {
  std::vector<int32_t> numbers(static_cast<size_t>(GrowingColumns(view, count)), -1);
  std::iota(numbers.begin(), numbers.begin() + count, static_cast<int32_t>(first));
  return Upload(view, numbers);
}

}  // namespace kvgauge

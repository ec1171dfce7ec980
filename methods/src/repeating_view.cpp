// SPDX-License-Identifier: Apache-2.0
#include "methods/repeating_view.h"

namespace kvgauge {

RepeatingView* Repeating(LayerView& view) {
  return view.ops().device == Device::kHost ? nullptr : dynamic_cast<RepeatingView*>(&view);
}

Tensor KeysWithRoom(LayerView& view, int64_t head, int64_t first) {
  RepeatingView* const repeating = Repeating(view);
  return repeating != nullptr ? repeating->RoomyKeys(head, first) : view.Keys(head, first);
}

int64_t ChoiceColumns(const LayerView& view, int64_t count, int64_t most) {
  return view.ops().device == Device::kHost ? count : most;
}

}  // namespace kvgauge

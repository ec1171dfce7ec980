// SPDX-License-Identifier: Apache-2.0
// Entries as readers see them whose steps are to be alike.
#pragma once

#include <cstdint>

#include "methods/layer_view.h"

namespace kvgauge {

// A LayerView of a device is one. It gives the device the same to do from step to step, where
// attention sees the numbers that are stored, be they floats or codes. Keys that are turned, made
// from latents, or multiplied by a norm, when they are read are the exception.
class RepeatingView {
 public:
  virtual ~RepeatingView() = default;
  // [rows, dim]: as LayerView::Keys or Values, and the last entry's again in the rows that have no
  // entry. At least one has one, and no entry is behind them.
  virtual Tensor Filled(KvSide side, int64_t head, int64_t first, int64_t rows) = 0;
  // The newest entry's key before rotation: [1, key_dim].
  virtual Tensor NewestRawKey(int64_t head) = 0;
  // As LayerView::Positions, with numbers behind them that mean nothing, so that as many come until
  // the head begins another 64 entries.
  virtual Tensor RoomyPositions(int64_t head, int64_t first) = 0;
  // As LayerView::Keys, with rows behind them that mean nothing, so that as many come until a head
  // begins another 64 entries. They lie where those of the head before lay.
  virtual Tensor RoomyKeys(int64_t head, int64_t first) = 0;
  // LayerView::Values, with rows of 0 behind them in the same way.
  virtual Tensor RoomyValues(int64_t head, int64_t first) = 0;
  // Whether entry i of the head is at position i.
  virtual bool InOrder(int64_t head) const = 0;
};

// The view as that, if it is one of a device; otherwise null.
RepeatingView* Repeating(LayerView& view);
// RoomyKeys where there are some, else LayerView::Keys.
Tensor KeysWithRoom(LayerView& view, int64_t head, int64_t first);
// RoomyValues where there are some, else LayerView::Values.
Tensor ValuesWithRoom(LayerView& view, int64_t head, int64_t first);
// How many columns a choice of up to `most` has that is of `count` now.
int64_t ChoiceColumns(const LayerView& view, int64_t count, int64_t most);
// Columns for `count` numbers, one more of which may come in each step: a device has as many until
// another 64 begin.
int64_t GrowingColumns(const LayerView& view, int64_t count);
// So many i32: `first` and the next numbers, `count` of them, and -1 behind them.
Tensor GrowingNumbers(LayerView& view, int64_t count, int64_t first);

}  // namespace kvgauge

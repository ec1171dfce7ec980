// SPDX-License-Identifier: Apache-2.0
// Thin stages that look at the rows themselves, and may make rows of rows that leave: what goes on
// is some rows, and sums of others.
#pragma once

#include "methods/thin.h"

namespace kvgauge {

// The numbers of the rows that are left; the view is of the layer that they have passed.
struct ThinRows {
  Tensor hidden;  // [rows, hidden_size] f32: what the layer above would read
  Tensor inputs;  // [prompt, hidden_size] f32: what the first layer read, rows that have left too
  Tensor normed;  // [rows, hidden_size] f32: what the head would read of `hidden`
};

// A made row stands at the place of a row that does not go on itself, and holds a weighted sum.
struct RowsOn {
  Tensor kept;         // [kept] i32, as Choose gives them
  Tensor made = {};    // [made] i32: the rows whose places they take, ascending, none of them kept
  Tensor shares = {};  // [made, rows] f32: of each row's `hidden`
};

class MergingThin : public Thin {
 public:
  // Which of the numbers beside `hidden` it looks at; the others are empty.
  virtual bool wants_inputs() const { return true; }
  virtual bool wants_normed() const { return false; }
  // Called in the stead of Choose.
  virtual RowsOn Pass(LayerView& view, const ThinRows& rows) const = 0;

  Tensor Choose(LayerView& view) const final {
    KVG_CHECK(false, "rows that are made go on by Pass");
    return view.Positions(0);
  }
  bool reads_again() const final { return false; }
};

}  // namespace kvgauge

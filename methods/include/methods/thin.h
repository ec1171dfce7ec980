// SPDX-License-Identifier: Apache-2.0
// Stages that let rows of a prompt go between two layers of its prefill: later layers neither
// compute nor hold them.
//
// Rows that go on keep their positions, unless the stage says otherwise. The last row always goes
// on, since it gives the first token of the answer. A method with such a stage shares its prefill
// only with methods that have the same one.
#pragma once

#include <cstdint>
#include <vector>

#include "methods/stages.h"

namespace kvgauge {

class Thin : public Stage {
 public:
  // The layers that fewer rows reach, ascending, from 1 (0: methods/rewriting_thin.h and
  // encoding_thin.h) to the last one. A row that has left does not come back. Where rows are read
  // again it may be the number of layers: the stage chooses when all of them have been passed.
  // Precondition: Check.
  virtual std::vector<int64_t> Layers(const ModelShape& shape) const = 0;
  // True if the rows that go on are read again from the first layer, by themselves: what was read
  // before is forgotten. Such a stage has one layer.
  virtual bool reads_again() const { return false; }
  // True if rows that are read again stand next to each other for rotation, as a prompt of their
  // own: each row that has left moves what is behind it up by one. Only text may leave then.
  virtual bool closes_up() const { return false; }
  // Which rows go on to the layer above view.layer(), when all that are left have passed that one:
  // [kept] i32, ascending indices of its entries, the last one among them. All heads hold the same
  // entries, one for each row. The view has the signals of a prefill that needs() declares, of this
  // layer and those below; it is of no decode step.
  virtual Tensor Choose(LayerView& view) const = 0;
};

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Readers that keep something of what a reducer lets go: entries are folded into a state of
// constant size as they leave, and every step's attention is corrected by it.
#pragma once

#include <span>

#include "core/result.h"
#include "methods/copied_reader.h"
#include "methods/joining_reader.h"

namespace kvgauge {

// Begin is called once for a sequence and layer, before the first entry leaves or behind the
// prompt. The state lives as long as the sequence, reductions and turns included. Join is called in
// every decode step, whatever Select gave. A copy shares nothing that changes.
class AbsorbingReader : public JoiningReader, public CopiedReader {
 public:
  // leaving: [kv_heads] of [n] i32, ascending, some empty: entries that the view still holds and
  // that are gone behind this call.
  virtual Status Absorb(LayerView& view, std::span<const Tensor> leaving, State& state) const = 0;
  // What the reader's weights take, which all sequences share.
  virtual int64_t WeightBytes(const ModelShape& shape) const = 0;
};

}  // namespace kvgauge

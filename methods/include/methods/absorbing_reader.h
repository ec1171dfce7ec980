// SPDX-License-Identifier: Apache-2.0
// Readers that keep something of what a reducer lets go: entries are folded into a state of
// constant size as they leave, and every step's attention is corrected by it.
#pragma once

#include <memory>
#include <span>

#include "core/result.h"
#include "methods/joining_reader.h"

namespace kvgauge {

// Begin is called once for a sequence and layer, before the first entry leaves or behind the
// prompt. The state lives as long as the sequence, reductions and turns included. Join is called in
// every decode step, whatever Select gave.
class AbsorbingReader : public JoiningReader {
 public:
  // leaving: [kv_heads] of [n] i32, ascending, some empty: entries that the view still holds and
  // that are gone behind this call.
  virtual Status Absorb(LayerView& view, std::span<const Tensor> leaving, State& state) const = 0;
  // For a fork of the sequence, which goes on by itself.
  virtual std::unique_ptr<State> Copy(const State& state, Ops& ops) const = 0;
  // What the reader's weights take, which all sequences share.
  virtual int64_t WeightBytes(const ModelShape& shape) const = 0;
};

}  // namespace kvgauge

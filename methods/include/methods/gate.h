// SPDX-License-Identifier: Apache-2.0
// Scores that a small trained network gives an entry from the input of its layer's attention alone,
// where the entry is made.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "kernels/ops.h"
#include "methods/model_shape.h"

namespace kvgauge {

// The weights of a gate on one device, and working memory. One thread.
class LoadedGate {
 public:
  virtual ~LoadedGate() = default;
  // x: [rows, hidden_size] f32, as Needs::gates says. out: [rows, kv_heads] f32.
  virtual void Fold(int64_t layer, const Tensor& x, Tensor out) = 0;
  virtual int64_t bytes() const = 0;
};

class Gate {
 public:
  virtual ~Gate() = default;
  // Equal for gates that compute the same.
  virtual std::string key() const = 0;
  // Ops outlives what is loaded.
  virtual std::unique_ptr<LoadedGate> Load(const ModelShape& shape, Ops& ops) const = 0;
  // Bytes that it then has, for the plan of a run.
  virtual int64_t PlannedBytes(const ModelShape& shape) const = 0;
  // A gate in Needs::step_gates reads the rows that enter this one layer, before it norms them, and
  // the views of all layers show what it gives. -1: it reads each layer's inputs, for its own view.
  virtual int64_t rows_of() const { return -1; }
};

// A gate that a stage needs.
struct GateNeed {
  std::shared_ptr<const Gate> gate;

  std::strong_ordering operator<=>(const GateNeed& other) const {
    return gate->key() <=> other.gate->key();
  }
  bool operator==(const GateNeed& other) const { return gate->key() == other.gate->key(); }
};

}  // namespace kvgauge

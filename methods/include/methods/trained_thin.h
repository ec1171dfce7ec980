// SPDX-License-Identifier: Apache-2.0
// Thin stages that choose by trained weights of their own.
#pragma once

#include "methods/condensing_thin.h"
#include "methods/merging_thin.h"

namespace kvgauge {

class TrainedThin : public MergingThin {
 public:
  bool wants_inputs() const override { return false; }
  // Bytes of the weights, which count as bytes of the method. Precondition: Check.
  virtual int64_t WeightBytes(const ModelShape& shape) const = 0;
  // Bytes that it takes beside them while it chooses among `rows`, for the plan of a run.
  virtual int64_t WorkingBytes(const ModelShape& shape, int64_t rows) const = 0;
};

// Bytes of the weights that a thin stage of any kind has; 0: none. Null: there is no stage.
inline int64_t TrainedBytes(const Thin* thin, const ModelShape& shape) {
  if (const auto* trained = dynamic_cast<const TrainedThin*>(thin)) {
    return trained->WeightBytes(shape);
  }
  const auto* condensing = dynamic_cast<const CondensingThin*>(thin);
  return condensing == nullptr ? 0 : condensing->WeightBytes(shape);
}

}  // namespace kvgauge

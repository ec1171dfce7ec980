// SPDX-License-Identifier: Apache-2.0
// A gate of one linear map for each layer, or two with an activation between them, from the input
// of the layer's attention to a number for each KV head.
#pragma once

#include <memory>
#include <string>

#include "kernels/rows.h"
#include "methods/gate_scorer.h"

namespace kvgauge {

class MlpGate final : public Gate {
 public:
  struct Form {
    std::string name;
    bool one_map = false;
    // Numbers between two maps; 0: an eighth of the model's.
    int64_t inner = 0;
    Activation activation = Activation::kGelu;
    bool log_sigmoid = false;  // of what the last map gives
  };

  MlpGate(const Params& params, Form form) : tables(params), form_(std::move(form)) {}

  // "layers.3.0.weight": a layer's first map.
  static std::string Table(int64_t layer, std::string_view part);

  std::string key() const override;
  GateTables::Dims DimsOf(const ModelShape& shape) const;
  std::unique_ptr<LoadedGate> Load(const ModelShape& shape, Ops& ops) const override;
  int64_t PlannedBytes(const ModelShape& shape) const override {
    return GateTables::Bytes(DimsOf(shape));
  }

  GateTables tables;

 private:
  const Form form_;
};

// Scores by such a gate.
class MlpGateScorer : public GateScorer {
 public:
  MlpGateScorer(const Params& params, MlpGate::Form form)
      : gate_(std::make_shared<MlpGate>(params, std::move(form))) {
    Set(gate_);
  }

  void Use(std::shared_ptr<const Calibration> calibration) override {
    gate_->tables.Use(std::move(calibration));
  }
  Status Check(const ModelShape& shape) const override {
    return gate_->tables.Check(gate_->DimsOf(shape));
  }

 private:
  std::shared_ptr<MlpGate> gate_;
};

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Base of scores that a trained gate gives: the side-file with its weights, and the scores of
// prompt and answer.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "methods/calibration.h"
#include "methods/gate.h"
#include "methods/registry.h"

namespace kvgauge {

// Weights of a gate by name, as a side-file has them, or drawn from a fixed seed: a floor for
// trained ones.
class GateTables {
 public:
  // Dims of every table that the model needs, by name.
  using Dims = std::map<std::string, std::vector<int64_t>>;

  explicit GateTables(const Params& params);

  // What every stage with such weights declares.
  static std::vector<ParamSpec> Declare(std::vector<ParamSpec> others = {});

  void Use(std::shared_ptr<const Calibration> calibration) { file_ = std::move(calibration); }
  Status Check(const Dims& dims) const;
  // The bytes of all tables, as a device holds them.
  static int64_t Bytes(const Dims& dims);
  // [values of the table]. Precondition: Check.
  std::vector<float> Read(const std::string& name, const std::vector<int64_t>& dims) const;
  // The same on the device of `ops`: the file's own numbers where that is the host, else a copy in
  // `memory`. [numbers], as long as this, and `memory`.
  Tensor On(Ops& ops, const std::string& name, const std::vector<int64_t>& dims,
            Buffer& memory) const;
  // Equal for equal weights.
  std::string key() const;

 private:
  bool random_;
  std::shared_ptr<const Calibration> file_;
};

// An entry keeps the number that its gate gave it.
class GateScorer : public Scorer {
 public:
  Needs needs() const final { return {.gates = {{gate_}}}; }
  bool ages() const override { return true; }
  void Score(LayerView& view, Tensor out) const final;
  void Age(LayerView& view, Tensor scores) const final;

 protected:
  void Set(std::shared_ptr<const Gate> gate) { gate_ = std::move(gate); }

 private:
  std::shared_ptr<const Gate> gate_;
};

}  // namespace kvgauge

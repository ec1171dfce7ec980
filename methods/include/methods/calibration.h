// SPDX-License-Identifier: Apache-2.0
// Tables that a stage learns from text before anything is measured: once for each model, stored in
// a side-file that method files name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/params.h"
#include "core/result.h"
#include "methods/calibration_table.h"
#include "methods/layer_view.h"
#include "methods/needs.h"

namespace kvgauge {

// A side-file in memory: immutable, shared by all stages that a method makes.
struct Calibration {
  using Table = CalibrationTable;
  using Tables = CalibrationTables;

  std::string path = {};    // for messages
  std::string digest = {};  // of the file, hex SHA-256
  // Fingerprint of the checkpoint it was made on.
  std::string model = {}, model_name = {};
  std::string stage = {};  // "store.kvquant"
  int stage_version = 0;
  std::string params = {};  // of the stage, those the tables depend on: canonical JSON
  Tables tables = {};

  // A view of a table; an error where there is none of that name and shape.
  Result<Tensor> Find(std::string_view name, std::span<const int64_t> shape) const;
};

// Learns from prefills of texts, each text alone. It runs once, offline, so it may keep sums on the
// host.
class Calibrator {
 public:
  virtual ~Calibrator() = default;
  // How often the texts are run through the model, and what is captured. Asked again behind each
  // pass.
  virtual int passes() const { return 1; }
  virtual Needs needs(int pass) const = 0;
  // The tokens that are prefilled for a text: the text itself, or a probe made from it that is not
  // longer.
  virtual std::vector<int32_t> Reads(std::span<const int32_t> text) const {
    return {text.begin(), text.end()};
  }
  // In a pass over a model whose layers have a cache each: the layer whose cache each layer reads,
  // as for WeightView::ShareCaches; views are then those of layers that have one. Empty: its own.
  virtual std::vector<int64_t> ReadsCaches(int) const { return {}; }
  // One layer of one text, whole; passes, texts and layers come in order.
  virtual void Observe(int pass, LayerView& view) = 0;
  // Whether ObserveLast is called in a pass, for each text behind its layers: with what the head
  // reads, [tokens, hidden_size] f32 on the device of `ops`.
  virtual bool wants_last(int) const { return false; }
  virtual void ObserveLast(int, const Tensor&, Ops&) {}
  // After all passes.
  virtual Calibration::Tables Finish(Ops& ops) = 0;
};

// For StageSpec::calibrate.
template <class T>
std::unique_ptr<Calibrator> MakeCalibrator(const Params& params, const ModelShape& shape,
                                           std::span<const int64_t> lengths) {
  return std::make_unique<T>(params, shape, lengths);
}

}  // namespace kvgauge

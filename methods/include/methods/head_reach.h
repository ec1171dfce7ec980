// SPDX-License-Identifier: Apache-2.0
// Which heads look far back, as DuoAttention's methods tell them apart: by gates that its authors
// learned, or as kvpress does where there are none, by what a head's mean query would attend to.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "methods/calibration.h"
#include "methods/head_numbers.h"
#include "methods/layer_view.h"

namespace kvgauge {

// What HeadReaches asks of a prompt.
Needs ReachNeeds();
// How much each KV head of a layer looks far back, 0 to 1: the area under the sum of the attention
// that its mean query pays from the last of 500 positions to its mean key at all of them, the mean
// over the query heads of a KV head. The model turns all dims of its keys.
std::vector<float> HeadReaches(LayerView& view);

// A table of these, the mean over the texts, as head_numbers.h has it.
class ReachCalibrator final : public Calibrator {
 public:
  ReachCalibrator(const Params& params, const ModelShape& shape, std::span<const int64_t> lengths);

  Needs needs(int pass) const override;
  void Observe(int pass, LayerView& view) override;
  Calibration::Tables Finish(Ops& ops) override;

 private:
  HeadMeans means_;
};

// The released full_attention_heads.tsv, a row for each layer and a number for each KV head, as
// such a table.
Result<Calibration::Tables> ImportHeadGates(const Calibration::Tables& published);

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// A number for each KV head of a model, as side-files hold it: table "heads", [layers, kv_heads].
#pragma once

#include <cstdint>
#include <vector>

#include "methods/calibration.h"
#include "methods/model_shape.h"

namespace kvgauge {

// [layers * kv_heads]; an error where the side-file has no such table of this model's shape.
Result<std::vector<float>> HeadNumbers(const Calibration& calibration, const ModelShape& shape);

// By KV head of a layer, the share of the attention of the last `window` prompt rows that goes to
// entries which may be given up. Precondition: the window was declared. scores: [kv_heads, n],
// whose forced ones are protected.
std::vector<float> AttentionBeyond(LayerView& view, const Tensor& scores, int64_t window);

// Means over the texts of a calibration.
class HeadMeans {
 public:
  HeadMeans(const ModelShape& shape, int64_t texts);
  // Adds to a head's number for one text; several calls add up.
  void Add(int64_t layer, int64_t head, double number);
  Calibration::Tables ToTables() const;

 private:
  int64_t layers_, heads_;
  double texts_;
  std::vector<double> sums_;  // [layers * kv_heads]
};

}  // namespace kvgauge

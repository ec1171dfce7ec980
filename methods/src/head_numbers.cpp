// SPDX-License-Identifier: Apache-2.0
#include "methods/head_numbers.h"

#include <array>

namespace kvgauge {
namespace {

constexpr const char* kHeadTable = "heads";

}  // namespace

Result<std::vector<float>> HeadNumbers(const Calibration& calibration, const ModelShape& shape) {
  KVG_ASSIGN(const Tensor table,
             calibration.Find(kHeadTable, std::array{shape.layers, shape.kv_heads}));
  return std::vector<float>(table.f32(), table.f32() + table.Numel());
}

HeadMeans::HeadMeans(const ModelShape& shape, int64_t texts)
    : layers_(shape.layers),
      heads_(shape.kv_heads),
      texts_(static_cast<double>(texts)),
      sums_(static_cast<size_t>(layers_ * heads_)) {}

void HeadMeans::Add(int64_t layer, int64_t head, double number) {
  sums_[static_cast<size_t>(layer * heads_ + head)] += number / texts_;
}

Calibration::Tables HeadMeans::ToTables() const {
  Calibration::Tables tables;
  tables[kHeadTable] = {{layers_, heads_}, std::vector<float>(sums_.begin(), sums_.end())};
  return tables;
}

}  // namespace kvgauge

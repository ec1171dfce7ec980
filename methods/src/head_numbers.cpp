// SPDX-License-Identifier: Apache-2.0
#include "methods/head_numbers.h"

#include <algorithm>
#include <array>

#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr const char* kHeadTable = "heads";

}  // namespace

Result<std::vector<float>> HeadNumbers(const Calibration& calibration, const ModelShape& shape) {
  KVG_ASSIGN(const Tensor table,
             calibration.Find(kHeadTable, std::array{shape.layers, shape.kv_heads}));
  return std::vector<float>(table.f32(), table.f32() + table.Numel());
}

std::vector<float> AttentionBeyond(LayerView& view, const Tensor& scores, int64_t window) {
  Ops& ops = view.ops();
  const int64_t heads = view.shape().kv_heads, group = view.shape().group(), n = view.width();
  const Tensor attention = view.WindowAttention(std::min(window, n));
  const int64_t rows = attention.shape[1];
  const Tensor drawn = view.Scratch(DType::kF32, {1, n}), open = view.Scratch(DType::kF32, {1, n});
  const Tensor forced = Filled(view, n, kForcedFrom).Reshape({1, n});
  const Tensor shares = view.Scratch(DType::kF32, {heads});
  for (int64_t h = 0; h < heads; ++h) {
    ops.rows->ReduceColumns(attention.Slice(h * group, (h + 1) * group).Reshape({group * rows, n}),
                            Reduction::kMean, drawn[0]);
    ops.rows->Combine(Columns(scores.Slice(h, h + 1), 0, n), forced, Binary::kLess, open);
    ops.rows->Combine(drawn, open, Binary::kMultiply, drawn);
    ops.rows->ReduceRows(drawn, Reduction::kSum, shares.Slice(h, h + 1));
  }
  return Fetch(ops, shares);
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

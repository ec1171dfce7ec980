// SPDX-License-Identifier: Apache-2.0
// From hidden states to rows of the text model's width.
#include "src/vision/layout.h"
#include "src/vision/pass.h"

namespace kvgauge {
namespace {

constexpr float kLayerNormEps = 1e-5f;  // of a projector's own norm

}  // namespace

Tensor VisionPass::Pool(const Tensor& features, int64_t stride, bool largest) {
  const int64_t rows = tower_.grid_rows(), columns = tower_.grid_columns();
  const int64_t to_rows = rows / stride, to_columns = columns / stride;
  const int64_t tiles = features.shape[0] / (rows * columns), width = features.shape[1];
  const int64_t count = tiles * to_rows * to_columns;
  const Tensor pooled = Take(VisionSlot::kMerged, DType::kF32, {count, width});
  const Tensor next = Take(VisionSlot::kInner, DType::kF32, {count, width});
  for (int64_t i = 0; i < stride * stride; ++i) {
    std::vector<int32_t> index;
    for (int64_t t = 0; t < tiles; ++t) {
      for (int64_t y = 0; y < to_rows; ++y) {
        for (int64_t x = 0; x < to_columns; ++x) {
          const int64_t row = (t * rows + y * stride + i / stride) * columns;
          index.push_back(static_cast<int32_t>(row + x * stride + i % stride));
        }
      }
    }
    GatherRows(features, index, i == 0 ? pooled : next);
    if (i > 0) {
      ops_.rows->Combine(pooled, next, largest ? Binary::kMax : Binary::kAdd, pooled);
    }
  }
  if (!largest) {
    ops_.rows->Affine(pooled, 1.0f / static_cast<float>(stride * stride), 0, pooled);
  }
  return pooled;
}

Tensor VisionPass::SideBySide(const Tensor& features) {
  const int64_t rows = tower_.grid_rows(), columns = tower_.grid_columns(), side = spec_.merge;
  const int64_t tiles = features.shape[0] / (rows * columns), width = features.shape[1];
  std::vector<int32_t> index;
  for (int64_t t = 0; t < tiles; ++t) {
    for (int64_t top = 0; top < rows; top += side) {
      for (int64_t left = 0; left < columns; left += side) {
        for (int64_t i = 0; i < side * side; ++i) {
          const int64_t row = (t * rows + top + i / side) * columns;
          index.push_back(static_cast<int32_t>(row + left + i % side));
        }
      }
    }
  }
  const Tensor ordered = Take(VisionSlot::kMerged, DType::kF32, {std::ssize(index), width});
  GatherRows(features, index, ordered);
  return ordered.Reshape({std::ssize(index) / (side * side), side * side * width});
}

Tensor VisionPass::Merge(const MergerWeights& merger, bool norm_merged, const Tensor& x) {
  const int64_t unit = spec_.merge * spec_.merge;
  const int64_t count = x.shape[0] / unit, merged = unit * tower_.width;
  Tensor normed;
  if (norm_merged) {
    normed = Take(VisionSlot::kMerged, dtype_, {count, merged});
    Apply(merger.norm, x.Reshape({count, merged}), normed);
  } else {
    const Tensor rows = Take(VisionSlot::kMerged, dtype_, {x.shape[0], tower_.width});
    Apply(merger.norm, x, rows);
    normed = rows.Reshape({count, merged});
  }
  const Tensor inner = Take(VisionSlot::kInner, DType::kF32, {count, merged});
  Multiply(normed, merger.first, MatMulMode::kSet, inner);
  ops_.rows->Activate(inner, Activation::kGelu, inner);
  const Tensor out = Take(VisionSlot::kOutput, DType::kF32, {count, spec_.hidden_size});
  Multiply(inner, merger.second, MatMulMode::kSet, out);
  return out;
}

Tensor VisionPass::InOrder(const Tensor& merged) {
  if (plan_.order.empty()) return merged;
  const int64_t unit = spec_.merge * spec_.merge;
  std::vector<int32_t> place(static_cast<size_t>(merged.shape[0]));
  for (size_t i = 0; i < place.size(); ++i) {
    const int64_t from = plan_.order[i * static_cast<size_t>(unit)] / unit;
    place[static_cast<size_t>(from)] = static_cast<int32_t>(i);
  }
  const Tensor ordered =
      Take(VisionSlot::kOrdered, DType::kF32, {merged.shape[0], merged.shape[1]});
  GatherRows(merged, place, ordered);
  return ordered;
}

Tensor VisionPass::Project(const Tensor& features) {
  const MergerWeights& projector = weights_.projector;
  const int64_t hidden = spec_.hidden_size;
  const auto two = [&](const Tensor& rows) {
    const Tensor inner = Take(VisionSlot::kInner, DType::kF32, {rows.shape[0], hidden});
    Multiply(rows, projector.first, MatMulMode::kSet, inner);
    ops_.rows->Activate(inner, spec_.projector_activation, inner);
    const Tensor out = Take(VisionSlot::kOutput, DType::kF32, {rows.shape[0], hidden});
    Multiply(inner, projector.second, MatMulMode::kSet, out);
    return out;
  };
  const auto one = [&](const Tensor& rows) {
    const Tensor out = Take(VisionSlot::kOutput, DType::kF32, {rows.shape[0], hidden});
    Multiply(rows, projector.first, MatMulMode::kSet, out);
    return out;
  };
  switch (spec_.projector) {
    case ProjectorKind::kTwoLayers: {
      const bool video = modality_ == Modality::kVideo;
      if (!video || spec_.video_pooling == VideoPooling::kNone ||
          spec_.video_pooling == VideoPooling::kBilinear) {
        return two(features);
      }
      const bool largest = spec_.video_pooling == VideoPooling::kMax;
      const Tensor pooled = Pool(features, spec_.video_stride, largest);
      return two(pooled);
    }
    case ProjectorKind::kShuffledTwo: {
      const Tensor rows = SideBySide(features);
      ops_.rows->LayerNorm(rows, projector.norm.weight, projector.norm.bias, kLayerNormEps, rows);
      return two(rows);
    }
    case ProjectorKind::kShuffledOne:
      return one(SideBySide(features));
    case ProjectorKind::kPooledOne: {
      const Tensor rows = Pool(features, spec_.merge, false);
      ops_.rows->RmsNorm(rows, projector.norm.weight, 1.0f, tower_.norm_eps, rows);
      return one(rows);
    }
    case ProjectorKind::kMerger:
      return InOrder(Merge(projector, false, features));
  }
  KVG_CHECK(false, "unknown projector");
  return {};
}

}  // namespace kvgauge

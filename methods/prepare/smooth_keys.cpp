// SPDX-License-Identifier: Apache-2.0
// Loud key channels become quieter and the queries' louder in return, so that codes of few bits
// lose less; without codes nothing changes.
//
// Paper: QServe, arXiv:2405.04532 (SmoothAttention). Needs a calibration, or nothing but weights.
// Channel c of a KV head is divided by lambda = (largest |k_c|)^alpha in the key projection, and
// the query projections of its group are multiplied by it. Both channels of a rotary pair take the
// larger of their numbers, so that the rotation goes through. The calibration has the largest
// absolute number of every channel of the keys as attention sees them, over its texts; without one
// the length of the projection's row stands for it. Departures: without a calibration the weights
// tell; the value side's rotation is left out.
#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>

#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

std::string LoudName(int64_t layer) { return StrCat("keys.", layer); }

class SmoothKeys final : public Prepare {
 public:
  explicit SmoothKeys(const Params& params) : alpha_(params.Real("alpha")) {}

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim > 0) {
      return BadInput("scales channels of keys, and this model keeps latents in their place");
    }
    if (shape.key_norm) {
      return BadInput(
          "keys of this model are normed after their projection, which undoes a scale of it");
    }
    for (int64_t layer = 0; layer < shape.layers && calibration_ != nullptr; ++layer) {
      KVG_ASSIGN(const Tensor loud, Loud(shape, layer));
      const std::span<const float> all(loud.f32(), static_cast<size_t>(loud.Numel()));
      const auto fits = [](float x) { return std::isfinite(x) && x >= 0; };
      if (std::all_of(all.begin(), all.end(), fits)) continue;
      return BadInput(StrCat(calibration_->path, ": table '", LoudName(layer),
                             "' holds a number that is no finite number of at least 0"));
    }
    return {};
  }

  Status Transform(WeightView& weights) const override {
    const ModelShape& shape = weights.shape();
    for (int64_t l = 0; l < shape.layers; ++l) {
      KVG_ASSIGN(const std::vector<float> scales, Scales(weights, l));
      std::vector<float> keys, queries;
      for (const float scale : scales) keys.push_back(1.0f / scale);
      for (int64_t q = 0; q < shape.query_heads; ++q) {
        const auto begin = scales.begin() + q / shape.group() * shape.key_dim;
        queries.insert(queries.end(), begin, begin + shape.key_dim);
      }
      KVG_TRY(ScaleRows(weights, l, WeightView::Matrix::kKey, keys));
      KVG_TRY(ScaleRows(weights, l, WeightView::Matrix::kQuery, queries));
    }
    return {};
  }

 private:
  Result<Tensor> Loud(const ModelShape& shape, int64_t layer) const {
    return calibration_->Find(LoudName(layer), std::array{shape.kv_heads, shape.key_dim});
  }

  // [kv_heads * key_dim], the same for both channels of a rotary pair.
  Result<std::vector<float>> Scales(WeightView& weights, int64_t layer) const {
    const ModelShape& shape = weights.shape();
    std::vector<float> loud;
    if (calibration_ != nullptr) {
      KVG_ASSIGN(const Tensor table, Loud(shape, layer));
      loud.assign(table.f32(), table.f32() + table.Numel());
    } else {
      KVG_ASSIGN(const Tensor rows, weights.Read(layer, WeightView::Matrix::kKey));
      const Buffer memory = weights.ops().memory->Allocate(rows.shape[0] * SizeOf(DType::kF32));
      const Tensor lengths = memory.As(DType::kF32, {rows.shape[0]});
      weights.ops().rows->ReduceRows(rows, Reduction::kNorm, lengths);
      loud = Fetch(weights.ops(), lengths);
    }
    const bool halves = shape.rope_layout == RopeLayout::kHalf;
    const int64_t pairs = shape.rotary_dim / 2;
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      float* head = loud.data() + h * shape.key_dim;
      for (int64_t i = 0; i < pairs; ++i) {
        float& one = head[halves ? i : 2 * i];
        float& other = head[halves ? i + pairs : 2 * i + 1];
        one = other = std::max(one, other);
      }
    }
    for (float& scale : loud) {
      // A channel of nothing but zeros stays as it is.
      scale = scale > 0 ? static_cast<float>(std::pow(double{scale}, alpha_)) : 1.0f;
    }
    return loud;
  }

  static Status ScaleRows(WeightView& weights, int64_t layer, WeightView::Matrix matrix,
                          const std::vector<float>& scales) {
    Ops& ops = weights.ops();
    KVG_ASSIGN(const Tensor rows, weights.Read(layer, matrix));
    KVG_ASSIGN(const Tensor bias, weights.ReadBias(layer, matrix));
    const int64_t m = rows.shape[0], n = rows.shape[1];
    const Buffer memory = ops.memory->Allocate((m * n + m) * SizeOf(DType::kF32));
    const Tensor all = memory.As(DType::kF32, {m * n + m});
    const Tensor scaled = all.Slice(0, m * n).Reshape({m, n});
    const Tensor scaled_bias = all.Slice(m * n, m * n + m).Reshape({m, 1});
    for (int64_t i = 0; i < m; ++i) {
      const float scale = scales[static_cast<size_t>(i)];
      ops.rows->Affine(rows.Slice(i, i + 1), scale, 0.0f, scaled.Slice(i, i + 1));
      if (bias.empty()) continue;
      ops.rows->Affine(bias.Slice(i, i + 1).Reshape({1, 1}), scale, 0.0f,
                       scaled_bias.Slice(i, i + 1));
    }
    KVG_TRY(weights.Write(layer, matrix, scaled));
    return bias.empty() ? Status() : weights.WriteBias(layer, matrix, scaled_bias.Reshape({m}));
  }

  double alpha_;
  std::shared_ptr<const Calibration> calibration_;
};

// The largest absolute number of every key channel.
class SmoothKeysCalibrator final : public Calibrator {
 public:
  SmoothKeysCalibrator(const Params&, const ModelShape& shape, std::span<const int64_t>)
      : shape_(shape), layers_(static_cast<size_t>(shape.layers)) {
    for (auto& loud : layers_) loud.resize(static_cast<size_t>(shape.kv_heads * shape.key_dim));
  }

  Needs needs(int) const override { return {}; }

  void Observe(int, LayerView& view) override {
    std::vector<float>& loud = layers_[static_cast<size_t>(view.layer())];
    const Tensor ends = view.Scratch(DType::kF32, {2, shape_.key_dim});
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      view.ops().rows->ReduceColumns(view.Keys(h), Reduction::kMin, ends[0]);
      view.ops().rows->ReduceColumns(view.Keys(h), Reduction::kMax, ends[1]);
      const std::vector<float> both = Fetch(view.ops(), ends);
      for (int64_t c = 0; c < 2 * shape_.key_dim; ++c) {
        float& most = loud[static_cast<size_t>(h * shape_.key_dim + c % shape_.key_dim)];
        most = std::max(most, std::abs(both[static_cast<size_t>(c)]));
      }
    }
  }

  Calibration::Tables Finish(Ops&) override {
    Calibration::Tables tables;
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      tables[LoudName(static_cast<int64_t>(layer))] = {{shape_.kv_heads, shape_.key_dim},
                                                       std::move(layers_[layer])};
    }
    return tables;
  }

 private:
  const ModelShape shape_;
  std::vector<std::vector<float>> layers_;  // [kv_heads * key_dim]
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kPrepare,
    .id = "smooth_keys",
    .paper = "arXiv:2405.04532",
    .summary = "loud key channels become quieter and the queries' louder in return",
    .departures = {"without a calibration the lengths of the projection's rows tell",
                   "values are not rotated"},
    .params = {RealParam("alpha", 0.5, 0, 1, "power of a channel's largest number; 0: no change"),
               CalibrationParam()},
    .make = Make<SmoothKeys>(),
    .calibrate = MakeCalibrator<SmoothKeysCalibrator>,
});

}  // namespace
}  // namespace kvgauge

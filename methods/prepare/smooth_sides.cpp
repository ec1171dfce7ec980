// SPDX-License-Identifier: Apache-2.0
// Loud channels of keys and values become quieter, and what they meet louder in return; without
// codes nothing changes.
//
// Papers: SmoothQuant, arXiv:2211.10438 (rule "migrate": a channel is divided by (its largest
// number)^alpha / (the largest it meets)^(1 - alpha)); Outlier Suppression+, arXiv:2304.09145 (rule
// "cut": by its largest number over a threshold, where that is above 1). Keys meet queries, values
// the columns of the output projection. Needs a calibration, or nothing but weights: then lengths
// of the projections' rows stand for largest numbers, and their median for the threshold. Both
// channels of a rotary pair take the larger of their numbers.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

using WeightMatrix = WeightView::Matrix;

constexpr float kLeastLoud = 1e-5f;

std::string SmoothName(const char* what, int64_t layer) { return StrCat(what, ".", layer); }

void TiePairs(const ModelShape& shape, std::vector<float>& keys) {
  const bool halves = shape.rope_layout == RopeLayout::kHalf;
  const int64_t pairs = shape.rotary_dim / 2;
  for (int64_t h = 0; h < shape.kv_heads; ++h) {
    float* head = keys.data() + h * shape.key_dim;
    for (int64_t i = 0; i < pairs; ++i) {
      float& one = head[halves ? i : 2 * i];
      float& other = head[halves ? i + pairs : 2 * i + 1];
      one = other = std::max(one, other);
    }
  }
}

// The largest of each run of `shared` rows of [n][dim]; n is a multiple of it.
std::vector<float> OfGroups(const std::vector<float>& of_heads, int64_t dim, int64_t shared) {
  const auto heads = std::ssize(of_heads) / dim;
  std::vector<float> out(static_cast<size_t>(heads / shared * dim));
  for (int64_t i = 0; i < std::ssize(of_heads); ++i) {
    float& most = out[static_cast<size_t>(i / dim / shared * dim + i % dim)];
    most = std::max(most, of_heads[static_cast<size_t>(i)]);
  }
  return out;
}

class SmoothSides final : public Prepare {
 public:
  explicit SmoothSides(const Params& params)
      : cut_(params.Text("rule") == "cut"), alpha_(params.Real("alpha")) {}

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim > 0) {
      return BadInput("scales channels of heads, and this model keeps latents in their place");
    }
    if (shape.key_norm) {
      return BadInput(
          "keys of this model are normed after their projection, which undoes a scale of it");
    }
    for (int64_t layer = 0; layer < shape.layers && calibration_ != nullptr; ++layer) {
      for (const char* what : {"keys", "queries", "values"}) {
        const int64_t dim = what[0] == 'v' ? shape.value_dim : shape.key_dim;
        KVG_TRY(CheckTable(SmoothName(what, layer), {shape.kv_heads, dim}));
      }
      for (const char* what : {"keys.cut", "values.cut"}) {
        KVG_TRY(CheckTable(SmoothName(what, layer), {1, 1}));
      }
    }
    return {};
  }

  Status Transform(WeightView& weights) const override {
    const ModelShape& shape = weights.shape();
    for (int64_t l = 0; l < shape.layers; ++l) {
      std::vector<float> keys, queries, values, met;
      KVG_TRY(RowSizes(weights, l, WeightMatrix::kKey, &keys));
      KVG_TRY(RowSizes(weights, l, WeightMatrix::kQuery, &queries));
      KVG_TRY(RowSizes(weights, l, WeightMatrix::kValue, &values));
      KVG_TRY(OutputColumns(weights, l, &met));
      queries = OfGroups(queries, shape.key_dim, shape.group());
      met = OfGroups(met, shape.value_dim, shape.group());
      float key_cut = MedianOf(keys), value_cut = MedianOf(values);
      if (calibration_ != nullptr) {
        KVG_TRY(Take(SmoothName("keys", l), {shape.kv_heads, shape.key_dim}, &keys));
        KVG_TRY(Take(SmoothName("queries", l), {shape.kv_heads, shape.key_dim}, &queries));
        KVG_TRY(Take(SmoothName("values", l), {shape.kv_heads, shape.value_dim}, &values));
        std::vector<float> one;
        KVG_TRY(Take(SmoothName("keys.cut", l), {1, 1}, &one));
        key_cut = one[0];
        KVG_TRY(Take(SmoothName("values.cut", l), {1, 1}, &one));
        value_cut = one[0];
      }
      TiePairs(shape, keys);
      TiePairs(shape, queries);
      const std::vector<float> of_keys = ScalesOf(keys, queries, key_cut);
      const std::vector<float> of_values = ScalesOf(values, met, value_cut);
      KVG_TRY(ScaleRows(weights, l, WeightMatrix::kKey, of_keys, 1, true));
      KVG_TRY(ScaleRows(weights, l, WeightMatrix::kQuery, of_keys, shape.group(), false));
      KVG_TRY(ScaleRows(weights, l, WeightMatrix::kValue, of_values, 1, true));
      KVG_TRY(ScaleColumns(weights, l, of_values));
    }
    return {};
  }

 private:
  Status CheckTable(const std::string& name, std::array<int64_t, 2> sizes) const {
    KVG_ASSIGN(const Tensor table, calibration_->Find(name, sizes));
    for (int64_t i = 0; i < table.Numel(); ++i) {
      if (std::isfinite(table.f32()[i]) && table.f32()[i] >= 0) continue;
      return BadInput(StrCat(calibration_->path, ": table '", name,
                             "' holds a number that is no finite number of at least 0"));
    }
    return {};
  }
  Status Take(const std::string& name, std::array<int64_t, 2> sizes,
              std::vector<float>* numbers) const {
    KVG_ASSIGN(const Tensor table, calibration_->Find(name, sizes));
    numbers->assign(table.f32(), table.f32() + table.Numel());
    return {};
  }

  static Status RowSizes(WeightView& weights, int64_t layer, WeightMatrix matrix,
                         std::vector<float>* sizes) {
    KVG_ASSIGN(const Tensor rows, weights.Read(layer, matrix));
    const Buffer memory = weights.ops().memory->Allocate(rows.shape[0] * SizeOf(DType::kF32));
    const Tensor lengths = memory.As(DType::kF32, {rows.shape[0]});
    weights.ops().rows->ReduceRows(rows, Reduction::kNorm, lengths);
    *sizes = Fetch(weights.ops(), lengths);
    return {};
  }
  // The largest weight in size that each number of a head's output meets.
  static Status OutputColumns(WeightView& weights, int64_t layer, std::vector<float>* most) {
    KVG_ASSIGN(const Tensor rows, weights.Read(layer, WeightMatrix::kOutput));
    const std::vector<float> numbers = Fetch(weights.ops(), rows);
    most->assign(static_cast<size_t>(rows.shape[1]), 0);
    for (size_t i = 0; i < numbers.size(); ++i) {
      float& largest = (*most)[i % most->size()];
      largest = std::max(largest, std::abs(numbers[i]));
    }
    return {};
  }

  static float MedianOf(std::vector<float> numbers) {
    const auto middle = numbers.begin() + std::ssize(numbers) / 2;
    std::nth_element(numbers.begin(), middle, numbers.end());
    return *middle;
  }

  std::vector<float> ScalesOf(const std::vector<float>& loud, const std::vector<float>& met,
                              float cut) const {
    std::vector<float> scales;
    for (size_t i = 0; i < loud.size(); ++i) {
      const double own = std::max(loud[i], kLeastLoud), other = std::max(met[i], kLeastLoud);
      const double scale = cut_ ? (cut > 0 ? std::max(own / double{cut}, 1.0) : 1.0)
                                : std::pow(own, alpha_) / std::pow(other, 1 - alpha_);
      scales.push_back(static_cast<float>(std::max(scale, double{kLeastLoud})));
    }
    return scales;
  }

  // Rows of heads, `shared` heads of the matrix to one of the scales.
  static Status ScaleRows(WeightView& weights, int64_t layer, WeightMatrix matrix,
                          const std::vector<float>& scales, int64_t shared, bool divide) {
    const ModelShape& shape = weights.shape();
    const int64_t dim = matrix == WeightMatrix::kValue ? shape.value_dim : shape.key_dim;
    KVG_ASSIGN(const Tensor rows, weights.Read(layer, matrix));
    KVG_ASSIGN(const Tensor bias, weights.ReadBias(layer, matrix));
    const auto factor = [&](int64_t row) {
      const float scale = scales[static_cast<size_t>(row / dim / shared * dim + row % dim)];
      return divide ? 1.0f / scale : scale;
    };
    std::vector<float> numbers = Fetch(weights.ops(), rows);
    for (int64_t i = 0; i < std::ssize(numbers); ++i) {
      numbers[static_cast<size_t>(i)] *= factor(i / rows.shape[1]);
    }
    KVG_TRY(Put(weights, layer, matrix, numbers, rows.shape[0], rows.shape[1]));
    if (bias.empty()) return {};
    std::vector<float> added = Fetch(weights.ops(), bias);
    for (int64_t i = 0; i < std::ssize(added); ++i) added[static_cast<size_t>(i)] *= factor(i);
    const Buffer memory = weights.ops().memory->Allocate(std::ssize(added) * SizeOf(DType::kF32));
    const Tensor scaled = memory.As(DType::kF32, {std::ssize(added)});
    weights.ops().memory->Copy(View(added, {std::ssize(added)}), scaled);
    return weights.WriteBias(layer, matrix, scaled);
  }

  static Status ScaleColumns(WeightView& weights, int64_t layer, const std::vector<float>& scales) {
    const ModelShape& shape = weights.shape();
    KVG_ASSIGN(const Tensor rows, weights.Read(layer, WeightMatrix::kOutput));
    std::vector<float> numbers = Fetch(weights.ops(), rows);
    const int64_t width = rows.shape[1], dim = shape.value_dim;
    for (int64_t i = 0; i < std::ssize(numbers); ++i) {
      const int64_t column = i % width;
      numbers[static_cast<size_t>(i)] *=
          scales[static_cast<size_t>(column / dim / shape.group() * dim + column % dim)];
    }
    return Put(weights, layer, WeightMatrix::kOutput, numbers, rows.shape[0], width);
  }

  static Status Put(WeightView& weights, int64_t layer, WeightMatrix matrix,
                    const std::vector<float>& numbers, int64_t m, int64_t n) {
    const Buffer memory = weights.ops().memory->Allocate(m * n * SizeOf(DType::kF32));
    const Tensor out = memory.As(DType::kF32, {m, n});
    weights.ops().memory->Copy(View(numbers, {m, n}), out);
    return weights.Write(layer, matrix, out);
  }

  bool cut_;
  double alpha_;
  std::shared_ptr<const Calibration> calibration_;
};

// First the largest number of every channel; then the threshold, of some, at which codes of 4 bits
// lose least of the entries.
class SmoothSidesCalibrator final : public Calibrator {
 public:
  SmoothSidesCalibrator(const Params&, const ModelShape& shape, std::span<const int64_t>)
      : shape_(shape), layers_(static_cast<size_t>(shape.layers)) {
    for (Layer& layer : layers_) {
      layer.keys.resize(static_cast<size_t>(shape.kv_heads * shape.key_dim));
      layer.queries.resize(layer.keys.size());
      layer.values.resize(static_cast<size_t>(shape.kv_heads * shape.value_dim));
    }
  }

  int passes() const override { return 2; }
  Needs needs(int pass) const override { return {.window = pass == 0 ? kMostQueries : 0}; }

  void Observe(int pass, LayerView& view) override {
    Layer& layer = layers_[static_cast<size_t>(view.layer())];
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      const std::vector<float> keys = Fetch(view.ops(), view.Keys(h));
      const std::vector<float> values = Fetch(view.ops(), view.Values(h));
      if (pass == 0) {
        Widen(keys, h * shape_.key_dim, shape_.key_dim, layer.keys);
        Widen(values, h * shape_.value_dim, shape_.value_dim, layer.values);
      } else {
        AddErrors(keys, layer.keys.data() + h * shape_.key_dim, shape_.key_dim, layer.keys,
                  layer.key_errors);
        AddErrors(values, layer.values.data() + h * shape_.value_dim, shape_.value_dim,
                  layer.values, layer.value_errors);
      }
    }
    if (pass > 0) return;
    const Tensor window = view.WindowQueries(std::min(kMostQueries, view.tokens()));
    const std::vector<float> queries = Fetch(view.ops(), window);
    const int64_t row = shape_.query_heads * shape_.key_dim;
    for (int64_t i = 0; i < std::ssize(queries); ++i) {
      const int64_t at = i % row, head = at / shape_.key_dim / shape_.group();
      float& most = layer.queries[static_cast<size_t>(head * shape_.key_dim + at % shape_.key_dim)];
      most = std::max(most, std::abs(queries[static_cast<size_t>(i)]));
    }
  }

  Calibration::Tables Finish(Ops&) override {
    Calibration::Tables tables;
    for (int64_t l = 0; l < shape_.layers; ++l) {
      const Layer& layer = layers_[static_cast<size_t>(l)];
      tables[SmoothName("keys", l)] = {{shape_.kv_heads, shape_.key_dim}, layer.keys};
      tables[SmoothName("queries", l)] = {{shape_.kv_heads, shape_.key_dim}, layer.queries};
      tables[SmoothName("values", l)] = {{shape_.kv_heads, shape_.value_dim}, layer.values};
      tables[SmoothName("keys.cut", l)] = {{1, 1}, {BestCut(layer.keys, layer.key_errors)}};
      tables[SmoothName("values.cut", l)] = {{1, 1}, {BestCut(layer.values, layer.value_errors)}};
    }
    return tables;
  }

 private:
  static constexpr int64_t kMostQueries = 512;
  static constexpr int kCuts = 20;
  using Errors = std::array<double, kCuts>;
  struct Layer {
    std::vector<float> keys, queries, values;  // [kv_heads * dim]
    Errors key_errors = {}, value_errors = {};
  };

  static void Widen(const std::vector<float>& rows, int64_t first, int64_t dim,
                    std::vector<float>& most) {
    for (int64_t i = 0; i < std::ssize(rows); ++i) {
      float& largest = most[static_cast<size_t>(first + i % dim)];
      largest = std::max(largest, std::abs(rows[static_cast<size_t>(i)]));
    }
  }

  // Thresholds are even shares of the largest number of the layer.
  static double CutOf(const std::vector<float>& most, int cut) {
    const double largest = *std::max_element(most.begin(), most.end());
    return largest * (cut + 1) / kCuts;
  }
  static float BestCut(const std::vector<float>& most, const Errors& errors) {
    const auto best = std::min_element(errors.begin(), errors.end()) - errors.begin();
    return static_cast<float>(CutOf(most, static_cast<int>(best)));
  }

  static void AddErrors(const std::vector<float>& rows, const float* loud, int64_t dim,
                        const std::vector<float>& most, Errors& errors) {
    for (int cut = 0; cut < kCuts; ++cut) {
      const double threshold = CutOf(most, cut);
      for (int64_t at = 0; at < std::ssize(rows); at += dim) {
        double low = 0, high = 0;
        const auto scaled = [&](int64_t d) {
          const double scale = threshold > 0 ? std::max(loud[d] / threshold, 1.0) : 1.0;
          return std::pair(rows[static_cast<size_t>(at + d)] / scale, scale);
        };
        for (int64_t d = 0; d < dim; ++d) {
          const double v = scaled(d).first;
          low = d == 0 ? v : std::min(low, v);
          high = d == 0 ? v : std::max(high, v);
        }
        const double step = (high - low) / 15;
        for (int64_t d = 0; d < dim && step > 0; ++d) {
          const auto [v, scale] = scaled(d);
          const double off = (std::nearbyint((v - low) / step) * step + low - v) * scale;
          errors[static_cast<size_t>(cut)] += off * off;
        }
      }
    }
  }

  const ModelShape shape_;
  std::vector<Layer> layers_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kPrepare,
    .id = "smooth_sides",
    .paper = "arXiv:2211.10438",
    .summary = "loud channels of keys and values become quieter, what they meet louder",
    .departures =
        {"without a calibration the lengths of the projections' rows tell",
         "both channels of a rotary pair have one scale, so that the rotation goes through",
         "channels are not shifted, which the authors leave out, too, where projections "
         "have no bias",
         "the threshold is that of 20 at which codes of 4 bits lose least of the entries, "
         "where the authors compare outputs"},
    .params = {ChoiceParam("rule", "migrate", {"migrate", "cut"}, "how a channel's scale is found"),
               RealParam("alpha", 0.5, 0, 1, "migrate: power of a channel's largest number"),
               CalibrationParam()},
    .make = Make<SmoothSides>(),
    .calibrate = MakeCalibrator<SmoothSidesCalibrator>,
});

}  // namespace
}  // namespace kvgauge

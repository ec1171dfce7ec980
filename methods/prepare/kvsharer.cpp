// SPDX-License-Identifier: Apache-2.0
// Layers attend to the keys and values of an earlier layer that are as unlike theirs as possible.
//
// Paper: KVSharer, arXiv:2410.18517 (yangyifei729/KVSharer 39e5c191, test_llama.ipynb). Needs a
// calibration, or nothing but weights. Keys and values of some texts are averaged over the texts;
// two layers are as far apart as their entries are, on average. Pairs are tried from the farthest
// on: the upper layer of the pair reads what the lower one reads, and whoever read the upper one
// follows it. A pair stays if what the head then reads is like what it read before: the mean
// cosine over the texts is above a threshold. Without a side-file a sample of the projections
// stands for keys and values, and no pair is tried.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/layer_map.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr const char* kMapTable = "layers";
constexpr int64_t kSampledColumns = 64;

// How many layers of a model read another's cache.
int64_t SharedOf(const Params& params, const ModelShape& shape) {
  return std::min(params.Int("shared"), shape.layers / 2);
}

// Pairs of layers in the order in which they are tried.
class LayerPairs {
 public:
  // samples[layer]: what stands for its keys, then for its values, rows of those widths.
  struct Sample {
    std::vector<float> keys, values;
  };
  LayerPairs(const std::vector<Sample>& samples, int64_t key_width, int64_t value_width,
             bool dissimilar) {
    const auto layers = std::ssize(samples);
    struct Pair {
      int64_t upper, lower;
      double distance;
    };
    std::vector<Pair> pairs;
    for (int64_t upper = 0; upper < layers; ++upper) {
      for (int64_t lower = 0; lower < upper; ++lower) {
        const Sample &a = samples[static_cast<size_t>(upper)],
                     &b = samples[static_cast<size_t>(lower)];
        pairs.push_back({upper, lower,
                         (MeanDistance(a.keys, b.keys, key_width) +
                          MeanDistance(a.values, b.values, value_width)) /
                             2});
      }
    }
    std::stable_sort(pairs.begin(), pairs.end(), [&](const Pair& a, const Pair& b) {
      return dissimilar ? a.distance > b.distance : a.distance < b.distance;
    });
    for (const Pair& pair : pairs) pairs_.emplace_back(pair.upper, pair.lower);
  }
  LayerPairs() = default;

  // The next map to try on top of `map`; empty: there is none.
  LayerMap Next(const LayerMap& map) {
    while (next_ < pairs_.size()) {
      const auto& [upper, lower] = pairs_[next_++];
      if (map[static_cast<size_t>(upper)] != upper) continue;
      LayerMap tried = map;
      Share(tried, upper, lower);
      return tried;
    }
    return {};
  }

 private:
  static double MeanDistance(const std::vector<float>& a, const std::vector<float>& b,
                             int64_t width) {
    double sum = 0;
    const auto rows = std::ssize(a) / width;
    for (int64_t row = 0; row < rows; ++row) {
      double squares = 0;
      for (int64_t i = row * width; i < (row + 1) * width; ++i) {
        const double apart = double{a[static_cast<size_t>(i)]} - b[static_cast<size_t>(i)];
        squares += apart * apart;
      }
      sum += std::sqrt(squares);
    }
    return sum / static_cast<double>(rows);
  }

  std::vector<std::pair<int64_t, int64_t>> pairs_;
  size_t next_ = 0;
};

class KvSharer final : public Prepare {
 public:
  explicit KvSharer(const Params& params)
      : params_(params), dissimilar_(params.Text("order") == "dissimilar") {}

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    KVG_TRY(CheckLayerMap(OwnCaches(shape.layers), shape));
    if (calibration_ != nullptr) {
      KVG_ASSIGN(const LayerMap map, Learned(shape));
      const Status fits = CheckLayerMap(map, shape);
      if (!fits.ok()) return fits.error().Wrap(calibration_->path);
      return {};
    }
    for (size_t layer = 1; layer < shape.windows.size(); ++layer) {
      if (shape.windows[layer] == shape.windows[0]) continue;
      return BadInput(
          "layers of this model see different windows, so that not any two of them can share a "
          "cache; give a map to prepare.share_layers");
    }
    return {};
  }

  ModelShape ShapeAfter(const ModelShape& shape) const override {
    if (calibration_ != nullptr) return ShapeWithMap(*Learned(shape), shape);
    // Any map of so many gives the same shape.
    LayerMap map = OwnCaches(shape.layers);
    for (int64_t i = 0; i < SharedOf(params_, shape); ++i) {
      Share(map, shape.layers - 1 - i, 0);
    }
    return ShapeWithMap(map, shape);
  }

  Status Transform(WeightView& weights) const override {
    const ModelShape& shape = weights.shape();
    if (calibration_ != nullptr) {
      KVG_ASSIGN(const LayerMap learned, Learned(shape));
      return weights.ShareCaches(learned);
    }
    std::vector<LayerPairs::Sample> samples(static_cast<size_t>(shape.layers));
    for (int64_t layer = 0; layer < shape.layers; ++layer) {
      LayerPairs::Sample& sample = samples[static_cast<size_t>(layer)];
      KVG_ASSIGN(sample.keys, Sampled(weights, layer, WeightView::Matrix::kKey));
      KVG_ASSIGN(sample.values, Sampled(weights, layer, WeightView::Matrix::kValue));
    }
    const int64_t width = std::min(kSampledColumns, shape.hidden_size);
    LayerPairs pairs(samples, width, width, dissimilar_);
    LayerMap map = OwnCaches(shape.layers);
    for (int64_t i = 0; i < SharedOf(params_, shape); ++i) map = pairs.Next(map);
    return weights.ShareCaches(map);
  }

 private:
  Result<LayerMap> Learned(const ModelShape& shape) const {
    const int64_t layers[] = {shape.layers};
    KVG_ASSIGN(const Tensor table, calibration_->Find(kMapTable, layers));
    LayerMap map;
    for (int64_t i = 0; i < shape.layers; ++i) {
      const float read = table.f32()[i];
      if (read != std::floor(read) || read < 0) {
        return BadInput(StrCat(calibration_->path, ": table '", kMapTable, "' holds ", read,
                               "; expected the number of a layer"));
      }
      map.push_back(static_cast<int64_t>(read));
    }
    return map;
  }

  // Some columns of a projection: [rows, kSampledColumns], or all of them.
  static Result<std::vector<float>> Sampled(WeightView& weights, int64_t layer,
                                            WeightView::Matrix matrix) {
    KVG_ASSIGN(const Tensor rows, weights.Read(layer, matrix));
    const std::vector<float> all = Fetch(weights.ops(), rows);
    const int64_t width = rows.shape[1], taken = std::min(kSampledColumns, width);
    std::vector<float> sample;
    for (int64_t row = 0; row < rows.shape[0]; ++row) {
      for (int64_t i = 0; i < taken; ++i) {
        sample.push_back(all[static_cast<size_t>(row * width + i * width / taken)]);
      }
    }
    return sample;
  }

  Params params_;
  bool dissimilar_;
  std::shared_ptr<const Calibration> calibration_;
};

class KvSharerCalibrator final : public Calibrator {
 public:
  KvSharerCalibrator(const Params& params, const ModelShape& shape,
                     std::span<const int64_t> lengths)
      : shape_(shape),
        shared_(SharedOf(params, shape)),
        threshold_(params.Real("threshold")),
        dissimilar_(params.Text("order") == "dissimilar"),
        texts_(std::ssize(lengths)),
        tokens_(std::min(params.Int("tokens"), *std::min_element(lengths.begin(), lengths.end()))),
        means_(static_cast<size_t>(shape.layers)),
        map_(OwnCaches(shape.layers)) {
    const int64_t heads = shape.kv_heads * tokens_;
    for (LayerPairs::Sample& mean : means_) {
      mean.keys.resize(static_cast<size_t>(heads * shape.key_dim));
      mean.values.resize(static_cast<size_t>(heads * shape.value_dim));
    }
  }

  // One for each map that is tried, behind the first, which tries none.
  int passes() const override { return passes_; }
  Needs needs(int) const override { return {}; }
  std::vector<int32_t> Reads(std::span<const int32_t> text) const override {
    return {text.begin(), text.begin() + tokens_};
  }
  std::vector<int64_t> ReadsCaches(int) const override { return tried_; }

  void Observe(int pass, LayerView& view) override {
    if (pass > 0) return;
    LayerPairs::Sample& mean = means_[static_cast<size_t>(view.layer())];
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      Add(view, view.Keys(h), h, mean.keys);
      Add(view, view.Values(h), h, mean.values);
    }
  }

  bool wants_last(int) const override { return true; }
  void ObserveLast(int pass, const Tensor& rows, Ops& ops) override {
    std::vector<float> last = Fetch(ops, rows);
    if (pass == 0) {
      before_.push_back(std::move(last));
      if (std::ssize(before_) < texts_) return;
      const auto texts = static_cast<float>(texts_);
      for (LayerPairs::Sample& mean : means_) {
        for (std::vector<float>* numbers : {&mean.keys, &mean.values}) {
          for (float& number : *numbers) number /= texts;
        }
      }
      pairs_ = LayerPairs(means_, shape_.key_dim, shape_.value_dim, dissimilar_);
    } else {
      cosines_ += Cosine(before_[static_cast<size_t>(seen_)], last);
      if (++seen_ < texts_) return;
      if (cosines_ / static_cast<double>(texts_) > threshold_) {
        map_ = tried_;
        --shared_;
      }
    }
    seen_ = 0;
    cosines_ = 0;
    tried_ = shared_ > 0 ? pairs_.Next(map_) : LayerMap();
    if (!tried_.empty()) ++passes_;
  }

  Calibration::Tables Finish(Ops&) override {
    Calibration::Tables tables;
    Calibration::Table& table = tables[kMapTable];
    table.shape = {shape_.layers};
    for (const int64_t read : map_) table.values.push_back(static_cast<float>(read));
    return tables;
  }

 private:
  static void Add(LayerView& view, const Tensor& rows, int64_t head, std::vector<float>& sum) {
    const std::vector<float> added = Fetch(view.ops(), rows);
    const size_t begin = static_cast<size_t>(head) * added.size();
    for (size_t i = 0; i < added.size(); ++i) sum[begin + i] += added[i];
  }
  static double Cosine(const std::vector<float>& a, const std::vector<float>& b) {
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      ab += double{a[i]} * b[i];
      aa += double{a[i]} * a[i];
      bb += double{b[i]} * b[i];
    }
    return ab / std::sqrt(aa * bb);
  }

  ModelShape shape_;
  int64_t shared_;  // still to be found
  double threshold_;
  bool dissimilar_;
  int64_t texts_, tokens_;
  std::vector<LayerPairs::Sample> means_;   // [layers] of [kv_heads, tokens, dim]
  std::vector<std::vector<float>> before_;  // [texts] of [tokens, hidden_size]
  LayerPairs pairs_;
  LayerMap map_, tried_;
  int passes_ = 1;
  int64_t seen_ = 0;  // texts of this pass
  double cosines_ = 0;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kPrepare,
    .id = "kvsharer",
    .paper = "arXiv:2410.18517",
    .summary = "layers read the keys and values of an earlier layer that are unlike theirs",
    .departures = {"at most half of a model's layers read another's cache",
                   "texts are cut to one length, where the reference leaves those of other lengths "
                   "out of the mean",
                   "without a side-file the maps follow from weights and none is tried"},
    .bytes = "nothing for layers that read another's",
    .params = {IntParam("shared", 4, 1, 4096, "layers that read another's cache"),
               RealParam("threshold", 0.5, -1, 1, "a map is kept above this mean cosine"),
               IntParam("tokens", 64, 1, 1 << 20, "of each calibration text"),
               ChoiceParam("order", "dissimilar", {"dissimilar", "similar"},
                           "which pairs of layers are tried first"),
               CalibrationParam()},
    .make = Make<KvSharer>(),
    .calibrate = MakeCalibrator<KvSharerCalibrator>,
    .calibrated_params = {"shared", "threshold", "tokens", "order"},
});

}  // namespace
}  // namespace kvgauge

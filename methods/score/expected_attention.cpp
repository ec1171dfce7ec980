// SPDX-License-Identifier: Apache-2.0
// The attention that queries to come are expected to pay, were they drawn as the prompt's were:
// normally distributed before rotation, turned by the mean rotation of the next positions.
//
// Paper: Expected Attention, arXiv:2510.00636; after kvpress's ExpectedAttentionPress. Needs mean
// and covariance of the prompt's queries before rotation. With the model's scale s of products a
// key's expected weight is exp(s mean . k + s^2 k . covariance . k / 2), made a share of the whole
// by a softmax, averaged over the query heads of a group and multiplied by the length of the value.
// A calibration holds mean and covariance over texts instead, as kvpress's
// ExpectedAttentionStatsPress does.
#include <algorithm>
#include <string>

#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/query_anchor.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

std::string MomentName(int64_t layer, bool covariance) {
  return StrCat(covariance ? "covariance." : "mean.", layer);
}

std::vector<int64_t> MomentDims(const ModelShape& shape, bool covariance) {
  std::vector<int64_t> dims = {shape.query_heads, shape.key_dim};
  if (covariance) dims.push_back(shape.key_dim);
  return dims;
}

class ExpectedAttention final : public Scorer {
 public:
  explicit ExpectedAttention(const Params& params)
      : sinks_(params.Int("sinks")),
        future_(params.Int("future")),
        epsilon_(static_cast<float>(params.Real("epsilon"))),
        covariance_(params.Bool("covariance")),
        value_norm_(params.Bool("value_norm")),
        learned_(!params.Text(kCalibrationParam).empty()) {}

  Needs needs() const override {
    Needs needs = {.products = true};
    if (!learned_) needs.query_moments = {sinks_};
    return needs;
  }

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    for (int64_t layer = 0; layer < shape.layers && calibration_ != nullptr; ++layer) {
      KVG_TRY(Table(shape, layer, false));
      if (covariance_) KVG_TRY(Table(shape, layer, true));
    }
    if (shape.latent_dim == 0) return {};
    return BadInput(
        "takes queries before rotation, and those of this model's latent attention are rotated in "
        "part; use it with separate query and key projections");
  }

  bool takes_uneven() const override { return true; }
  // Decode steps keep no moments of queries; those of a calibration are there.
  bool any_time() const override { return learned_; }

  void Score(LayerView& view, Tensor out) const override {
    Ops& ops = view.ops();
    const ModelShape& shape = view.shape();
    const int64_t most = view.width() - sinks_, dim = shape.key_dim, group = shape.group();
    if (most <= 0) return ops.rows->Fill(1.0f, out);
    const Tensor mean = Mean(view), rotation = MeanRotationToCome(view, future_);
    const Tensor covariance = covariance_ ? Covariance(view) : Tensor();
    const Room room(view, most);
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      const int64_t n = view.lengths()[static_cast<size_t>(h)], body = n - sinks_;
      if (body <= 0) continue;
      const Tensor keys = view.Keys(h, sinks_);
      const Tensor weights = room.weights.Slice(0, group * body).Reshape({group, body});
      const Tensor means = mean.Slice(h * group, (h + 1) * group);
      Tensor spreads;
      if (covariance_) spreads = covariance.Slice(h * group, (h + 1) * group);
      // A core keeps a run of keys near while all that is to be done with them is done.
      constexpr int64_t kRun = 512;
      constexpr double kProduct_ns = 0.01;
      const int64_t run = ops.device == Device::kHost ? kRun : body;
      const auto products = static_cast<double>(group * run * dim * dim);
      ops.tasks->ForEach((body + run - 1) / run, kProduct_ns * products, [&](int64_t i) {
        ScoreKeys(view, keys, i * run, std::min((i + 1) * run, body), rotation, means, spreads,
                  room, weights);
      });
      ops.rows->Softmax(weights, 1.0f, weights);
      const Tensor scores = out[h].Slice(sinks_, n);
      ops.rows->ReduceColumns(weights, Reduction::kMean, scores);
      if (value_norm_) TimesValues(view, h, scores.Reshape({1, body}));
    }
    RaiseFirst(view, sinks_, out);
  }

 private:
  // Working memory for the keys of one head, each run of which has its part.
  struct Room {
    Room(LayerView& view, int64_t most)
        : turned(view.Scratch(DType::kF32, {most, view.shape().key_dim})),
          spread(view.Scratch(DType::kF32, {most, view.shape().key_dim})),
          products(view.Scratch(DType::kF32, {view.shape().group() * most})),
          energy(view.Scratch(DType::kF32, {most})),
          weights(view.Scratch(DType::kF32, {view.shape().group() * most})) {}

    Tensor turned, spread, products, energy, weights;
  };

  // What queries of these means and spreads score keys [begin, end), turned back by `rotation`.
  // keys: [n, dim]; means: [group, dim]; spreads: [group, dim, dim] or empty; weights: [group, n].
  static void ScoreKeys(const LayerView& view, const Tensor& keys, int64_t begin, int64_t end,
                        const Tensor& rotation, const Tensor& means, const Tensor& spreads,
                        const Room& room, const Tensor& weights) {
    Ops& ops = view.ops();
    const int64_t count = end - begin, dim = keys.shape[1], group = means.shape[0];
    const float scale = view.shape().attention_scale;
    const Tensor turned = room.turned.Slice(begin, end), spread = room.spread.Slice(begin, end);
    const Tensor energy = room.energy.Slice(begin, end);
    const Tensor products = room.products.Slice(group * begin, group * end).Reshape({group, count});
    const Tensor own = turned.Reshape({1, count, dim});
    ops.rows->Convert(keys.Slice(begin, end), turned);
    if (!rotation.empty()) {
      // One row of as many heads as there are keys: all turn alike.
      ops.rows->Rope(rotation.Slice(0, 1), rotation.Slice(1, 2), view.shape().rope_layout,
                     RopeDirection::kInverse, own);
    }
    ops.linear->MatMulNT(means.Reshape({1, group, dim}), own, scale,
                         products.Reshape({1, group, count}));
    if (spreads.empty()) {
      ops.rows->Convert(products, Columns(weights, begin, end));
      return;
    }
    for (int64_t g = 0; g < group; ++g) {
      ops.linear->MatMulNN(own, spreads[g].Reshape({1, dim, dim}), 0.5f * scale * scale,
                           spread.Reshape({1, count, dim}));
      ops.rows->Combine(spread, turned, Binary::kMultiply, spread);
      ops.rows->ReduceRows(spread, Reduction::kSum, energy);
      ops.rows->Combine(products.Slice(g, g + 1), energy.Reshape({1, count}), Binary::kAdd,
                        Columns(weights.Slice(g, g + 1), begin, end));
    }
  }

  Result<Tensor> Table(const ModelShape& shape, int64_t layer, bool covariance) const {
    const std::vector<int64_t> dims = MomentDims(shape, covariance);
    return calibration_->Find(MomentName(layer, covariance), dims);
  }

  Tensor Mean(LayerView& view) const {
    if (calibration_ == nullptr) return view.QueryMean(sinks_);
    return Learned(view, false).Reshape({view.shape().query_heads, view.shape().key_dim});
  }

  Tensor Covariance(LayerView& view) const {
    if (calibration_ == nullptr) return view.QueryCovariance(sinks_);
    const int64_t dim = view.shape().key_dim;
    return Learned(view, true).Reshape({view.shape().query_heads, dim, dim});
  }

  Tensor Learned(LayerView& view, bool covariance) const {
    const Result<Tensor> table = Table(view.shape(), view.layer(), covariance);
    KVG_CHECK(table.ok(), "a calibration that was not checked");
    return Upload(view, std::span<const float>(table->f32(), static_cast<size_t>(table->Numel())));
  }

  // scores: [1, n] of the entries after the sinks.
  void TimesValues(LayerView& view, int64_t head, Tensor scores) const {
    Ops& ops = view.ops();
    const int64_t n = scores.shape[1];
    const Tensor lengths = view.Scratch(DType::kF32, {1, n});
    ops.rows->ReduceRows(view.Values(head, sinks_), Reduction::kNorm, lengths.Reshape({n}));
    if (epsilon_ > 0) ops.rows->Affine(scores, 1.0f, epsilon_, scores);
    ops.rows->Combine(scores, lengths, Binary::kMultiply, scores);
  }

  int64_t sinks_, future_;
  float epsilon_;
  bool covariance_, value_norm_, learned_;
  std::shared_ptr<const Calibration> calibration_;
};

// Moments of the queries of all texts together, each text without its first tokens.
class ExpectedAttentionCalibrator final : public Calibrator {
 public:
  ExpectedAttentionCalibrator(const Params& params, const ModelShape& shape,
                              std::span<const int64_t>)
      : shape_(shape), sinks_(params.Int("sinks")), layers_(static_cast<size_t>(shape.layers)) {}

  Needs needs(int) const override { return {.query_moments = {sinks_}}; }

  void Observe(int, LayerView& view) override {
    const auto rows = static_cast<double>(view.tokens() - sinks_);
    if (rows < 2) return;
    const auto heads = static_cast<size_t>(shape_.query_heads);
    const auto dim = static_cast<size_t>(shape_.key_dim);
    const std::vector<float> mean = Fetch(view.ops(), view.QueryMean(sinks_));
    const std::vector<float> covariance = Fetch(view.ops(), view.QueryCovariance(sinks_));
    Moments& sums = layers_[static_cast<size_t>(view.layer())];
    sums.first.resize(heads * dim);
    sums.second.resize(heads * dim * dim);
    sums.rows += rows;
    for (size_t h = 0; h < heads; ++h) {
      for (size_t a = 0; a < dim; ++a) {
        const double own = mean[h * dim + a];
        sums.first[h * dim + a] += rows * own;
        for (size_t b = 0; b < dim; ++b) {
          const size_t at = (h * dim + a) * dim + b;
          sums.second[at] += rows * (covariance[at] + own * mean[h * dim + b]);
        }
      }
    }
  }

  Calibration::Tables Finish(Ops&) override {
    Calibration::Tables tables;
    const auto dim = static_cast<size_t>(shape_.key_dim);
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      const Moments& sums = layers_[layer];
      std::vector<float> mean(sums.first.size()), covariance(sums.second.size());
      for (size_t i = 0; i < mean.size(); ++i) {
        const double own = sums.first[i] / sums.rows;
        mean[i] = static_cast<float>(own);
        const size_t head = i / dim * dim;
        for (size_t b = 0; b < dim; ++b) {
          const double other = sums.first[head + b] / sums.rows;
          covariance[i * dim + b] =
              static_cast<float>(sums.second[i * dim + b] / sums.rows - own * other);
        }
      }
      const auto at = static_cast<int64_t>(layer);
      tables[MomentName(at, false)] = {MomentDims(shape_, false), std::move(mean)};
      tables[MomentName(at, true)] = {MomentDims(shape_, true), std::move(covariance)};
    }
    return tables;
  }

 private:
  // One layer's sums over rows.
  struct Moments {
    double rows = 0;
    std::vector<double> first;   // [query_heads, key_dim]
    std::vector<double> second;  // [query_heads, key_dim, key_dim]
  };

  const ModelShape shape_;
  const int64_t sinks_;
  std::vector<Moments> layers_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kScore,
    .id = "expected_attention",
    .version = 2,
    .paper = "arXiv:2510.00636",
    .summary = "attention that queries like the prompt's are expected to pay",
    .params = {IntParam("future", 512, 1, 1 << 20, "positions to come over which angles are meant"),
               IntParam("sinks", 4, 0, 4096,
                        "first tokens: their queries are left out, they score above all others"),
               RealParam("epsilon", 0, 0, 1, "added to shares before values count"),
               BoolParam("covariance", true, "whether the spread of queries counts"),
               BoolParam("value_norm", true, "whether scores are times the length of the value"),
               CalibrationParam()},
    .make = Make<ExpectedAttention>(),
    .calibrate = MakeCalibrator<ExpectedAttentionCalibrator>,
    .calibrated_params = {"sinks"},
});

}  // namespace
}  // namespace kvgauge

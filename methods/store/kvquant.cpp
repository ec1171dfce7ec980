// SPDX-License-Identifier: Apache-2.0
// Codes into unevenly spaced levels: keys before rotation with a fixed range for each channel and
// numbers beyond it kept apart, values with a range for each entry.
//
// Paper: KVQuant, arXiv:2401.18079. Needs keys before rotation. A channel's range leaves out
// `outliers` of its numbers: of those of calibration texts, or, without a calibration, of the
// prompt's own. Levels are the weighted k-means of what calibration texts have within their ranges,
// one set for the keys of a layer and one for its values, and the best there is, not a local one;
// without a calibration they are those that are best for normal numbers.
// Weights are what an error does to first order: one of a key moves a score by the query it meets,
// so channels weigh by the mean square of queries; one of a value moves the output by the attention
// its entry is paid, so entries weigh by the squares of that. Quantizers of the authors' code,
// whose levels weigh errors by Fisher information, are imported. With Q-Norm codes are those of the
// nearest level as before, but stand for levels that give the coded numbers of the texts the mean
// and the spread that they had.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/layouts/coded.h"
#include "methods/level_histogram.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Lloyd-Max levels of the normal distribution cut at its 0.5 % and 99.5 % points, scaled to [-1,
// 1].
constexpr std::array<float, 2> kLevels1 = {-0.301547f, 0.301547f};
constexpr std::array<float, 4> kLevels2 = {-0.554432f, -0.167985f, 0.167985f, 0.554432f};
constexpr std::array<float, 8> kLevels3 = {-0.744945f, -0.478627f, -0.272013f, -0.088527f,
                                           0.088527f,  0.272013f,  0.478627f,  0.744945f};
constexpr std::array<float, 16> kLevels4 = {
    -0.865545f, -0.690053f, -0.552038f, -0.434060f, -0.328142f, -0.229812f, -0.136178f, -0.045118f,
    0.045118f,  0.136178f,  0.229812f,  0.328142f,  0.434060f,  0.552038f,  0.690053f,  0.865545f};

std::span<const float> Levels(int64_t bits) {
  switch (bits) {
    case 1:
      return kLevels1;
    case 2:
      return kLevels2;
    case 3:
      return kLevels3;
    default:
      return kLevels4;
  }
}

// What Q-Norm multiplies those levels by: how far normal numbers spread, of how far the levels do
// that they become.
constexpr std::array<float, 4> kSpread = {1.238059f, 1.057189f, 1.014654f, 1.003711f};

// Halfway between levels.
std::vector<float> EdgesOf(std::span<const float> levels) {
  std::vector<float> edges;
  for (size_t i = 1; i < levels.size(); ++i) edges.push_back(0.5f * (levels[i - 1] + levels[i]));
  return edges;
}

// Q-Norm of ascending levels: `levels` becomes what codes stand for.
void Normalize(float scale, float offset, std::vector<float>& levels) {
  for (float& level : levels) level = level * scale + offset;
}

// Levels of normal numbers with Q-Norm, and the edges between them before it.
struct NormedLevels {
  std::array<float, 16> levels = {};
  std::array<float, 15> edges = {};
};

constexpr NormedLevels Normed(std::span<const float> levels, float spread) {
  NormedLevels normed;
  for (size_t i = 0; i < levels.size(); ++i) normed.levels[i] = levels[i] * spread;
  for (size_t i = 1; i < levels.size(); ++i) {
    normed.edges[i - 1] = 0.5f * (levels[i - 1] + levels[i]);
  }
  return normed;
}

// Of 1 to 4 bits.
constexpr std::array<NormedLevels, 4> kNormed = {
    Normed(kLevels1, kSpread[0]), Normed(kLevels2, kSpread[1]), Normed(kLevels3, kSpread[2]),
    Normed(kLevels4, kSpread[3])};

std::string TableName(int64_t layer, const char* what) { return StrCat(what, ".", layer); }

// The number of entries before the first that is coded.
int64_t FirstCoded(int64_t length, int64_t sinks) { return length > sinks ? sinks : 0; }

Tensor CodedKeys(LayerView& view, int64_t head, int64_t first) {
  return view.shape().rotary_dim > 0 ? view.RawKeys(head, first) : view.Keys(head, first);
}

class KvQuant final : public Store {
 public:
  explicit KvQuant(const Params& params)
      : bits_(params.Int("bits")),
        sinks_(params.Int("sinks")),
        outliers_(params.Real("outliers")),
        value_outliers_(params.Real("value_outliers")),
        norm_(params.Bool("norm")) {}

  Needs needs() const override { return {.raw_keys = true}; }

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    for (int64_t layer = 0; layer < shape.layers && calibration_ != nullptr; ++layer) {
      KVG_TRY(CheckEdges(layer));
      KVG_TRY(CheckLevels(layer, "keys.levels"));
      KVG_TRY(CheckLevels(layer, "values.levels"));
      KVG_ASSIGN(const Tensor low, Table(layer, "keys.low", {shape.kv_heads, shape.key_dim}));
      KVG_ASSIGN(const Tensor high, Table(layer, "keys.high", {shape.kv_heads, shape.key_dim}));
      for (int64_t i = 0; i < low.Numel(); ++i) {
        if (low.f32()[i] <= high.f32()[i]) continue;
        return BadInput(StrCat(calibration_->path, ": the range of key channel ", i, " of layer ",
                               layer, " is from ", low.f32()[i], " to ", high.f32()[i],
                               "; keys.low.", layer, " must not be above keys.high.", layer));
      }
    }
    return {};
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    Coded layout(shape);
    const size_t size = size_t{1} << bits_;
    const auto count = static_cast<int64_t>(size);
    const NormedLevels& normed = kNormed[static_cast<size_t>(bits_) - 1];
    const std::span<const float> levels =
        norm_ ? std::span(normed.levels).first(size) : Levels(bits_);
    for (KvCodec* codec : {&layout.keys, &layout.values}) {
      codec->kind = KvCodecKind::kCodebook;
      codec->bits = static_cast<int>(bits_);
      codec->levels = View(levels, {count});
      if (norm_) codec->table = View(std::span(normed.edges).first(size - 1), {count - 1});
    }
    if (calibration_ != nullptr) {
      KVG_ASSIGN(layout.keys.levels, Table(layer, "keys.levels", {count}));
      KVG_ASSIGN(layout.values.levels, Table(layer, "values.levels", {count}));
      if (norm_) {
        KVG_ASSIGN(layout.keys.table, Table(layer, "keys.edges", {count - 1}));
        KVG_ASSIGN(layout.values.table, Table(layer, "values.edges", {count - 1}));
      }
      KVG_ASSIGN(layout.ranges.low, Table(layer, "keys.low", {shape.kv_heads, shape.key_dim}));
      KVG_ASSIGN(layout.ranges.high, Table(layer, "keys.high", {shape.kv_heads, shape.key_dim}));
      layout.ranges.constant = true;
    }
    layout.keys.axis = CodeAxis::kChannel;
    layout.values.group = shape.value_dim;
    layout.values.outlier_share = value_outliers_;
    layout.seal_keys = SealWhole(layout.keys);
    layout.seal_values = SealWhole(layout.values);
    layout.sinks = sinks_;
    return PlanOf(std::move(layout), {.raw = shape.rotary_dim > 0});
  }

  void Calibrate(LayerView& view, StorePlan& plan) const override {
    Coded layout = *plan.Get<Coded>();
    if (layout.ranges.constant) return;
    const int64_t heads = view.shape().kv_heads, dim = view.shape().key_dim;
    layout.ranges.low = view.Scratch(DType::kF32, {heads, dim});
    layout.ranges.high = view.Scratch(DType::kF32, {heads, dim});
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t length = view.lengths()[h], first = FirstCoded(length, sinks_);
      if (length == 0) continue;
      const auto trim = static_cast<int64_t>(outliers_ / 2 * static_cast<double>(length - first));
      const Tensor keys = plan.turn.raw ? view.RawKeys(h, first) : view.Keys(h, first);
      view.ops().select->ColumnRanges(keys, trim, layout.ranges.low[h], layout.ranges.high[h]);
    }
    plan = PlanOf(std::move(layout), plan.turn);
  }

 private:
  Result<Tensor> Table(int64_t layer, const char* what,
                       std::initializer_list<int64_t> shape) const {
    return calibration_->Find(TableName(layer, what), {shape.begin(), shape.size()});
  }

  // A side-file has edges if it was made with Q-Norm.
  Status CheckEdges(int64_t layer) const {
    const bool has = calibration_->tables.contains(TableName(layer, "keys.edges"));
    if (has == norm_) return {};
    return BadInput(StrCat(calibration_->path, has ? " was made with Q-Norm; set norm=true"
                                                   : " was made without Q-Norm; set norm=false, or "
                                                     "make one with norm=true"));
  }

  Status CheckLevels(int64_t layer, const char* what) const {
    const int64_t count = int64_t{1} << bits_;
    KVG_ASSIGN(const Tensor levels, Table(layer, what, {count}));
    for (int64_t i = 1; i < count; ++i) {
      if (levels.f32()[i] > levels.f32()[i - 1]) continue;
      return BadInput(StrCat(calibration_->path, ": table '", TableName(layer, what), "': level ",
                             i, " is ", levels.f32()[i], " behind ", levels.f32()[i - 1],
                             "; levels must ascend"));
    }
    return {};
  }

  int64_t bits_, sinks_;
  double outliers_, value_outliers_;
  bool norm_;
  std::shared_ptr<const Calibration> calibration_;
};

// Two passes over the texts: what the ranges are, and what lies within them. With Q-Norm a third:
// what becomes of it.
class KvQuantCalibrator final : public Calibrator {
 public:
  KvQuantCalibrator(const Params& params, const ModelShape& shape, std::span<const int64_t> lengths)
      : shape_(shape),
        levels_(int64_t{1} << params.Int("bits")),
        sinks_(params.Int("sinks")),
        norm_(params.Bool("norm")),
        layers_(static_cast<size_t>(shape.layers)) {
    int64_t entries = 0;
    for (const int64_t length : lengths) entries += length - FirstCoded(length, sinks_);
    const double share = params.Real("outliers") / 2;
    ends_ = 1 + static_cast<size_t>(share * static_cast<double>(entries));
    const auto channels = static_cast<size_t>(shape.kv_heads * shape.key_dim);
    for (Layer& layer : layers_) {
      layer.lowest.resize(channels);
      layer.highest.resize(channels);
      layer.queries.resize(channels);
    }
  }

  int passes() const override { return norm_ ? 3 : 2; }
  Needs needs(int pass) const override {
    if (pass == 0) return {.window = kQueries, .raw_keys = true};
    if (pass == 2) return {.raw_keys = true};
    return {.column_squares = true, .raw_keys = true};
  }

  void Observe(int pass, LayerView& view) override {
    Layer& layer = layers_[static_cast<size_t>(view.layer())];
    if (pass == 0) {
      for (int64_t h = 0; h < shape_.kv_heads; ++h) KeepEnds(view, h, layer);
      AddQueries(view, layer);
      return;
    }
    if (layer.low.empty()) EndFirstPass(layer);
    if (pass == 1) {
      const std::vector<float> squares = Fetch(view.ops(), view.ColumnSquares());
      ForKeys(view, layer, [&](double x, double weight) { layer.keys.Add(x, weight); });
      ForValues(view, squares, [&](double x, double weight) { layer.values.Add(x, weight); });
      return;
    }
    if (layer.key_moments.levels.empty()) {
      layer.key_moments.Begin(layer.keys.Best(levels_));
      layer.value_moments.Begin(layer.values.Best(levels_));
    }
    ForKeys(view, layer, [&](double x, double) { layer.key_moments.Add(x); });
    ForValues(view, {}, [&](double x, double) { layer.value_moments.Add(x); });
  }

  Calibration::Tables Finish(Ops&) override {
    Calibration::Tables tables;
    for (size_t l = 0; l < layers_.size(); ++l) {
      const Layer& layer = layers_[l];
      const auto add = [&](const char* what, std::vector<int64_t> shape,
                           std::vector<float> values) {
        tables[TableName(static_cast<int64_t>(l), what)] = {std::move(shape), std::move(values)};
      };
      add("keys.low", {shape_.kv_heads, shape_.key_dim}, layer.low);
      add("keys.high", {shape_.kv_heads, shape_.key_dim}, layer.high);
      const auto add_levels = [&](const std::string& side, const LevelHistogram& seen,
                                  const Moments& moments) {
        std::vector<float> levels = seen.Best(levels_);
        if (norm_) {
          add((side + ".edges").c_str(), {levels_ - 1}, EdgesOf(levels));
          moments.Normalize(levels);
        }
        add((side + ".levels").c_str(), {levels_}, std::move(levels));
      };
      add_levels("keys", layer.keys, layer.key_moments);
      add_levels("values", layer.values, layer.value_moments);
    }
    return tables;
  }

 private:
  // The last so many queries of a text speak for all.
  static constexpr int64_t kQueries = 512;

  // Sums of numbers, and of the levels that they become.
  struct Moments {
    std::vector<float> levels = {}, edges = {};
    double count = 0, sum = 0, squares = 0, coded_sum = 0, coded_squares = 0;

    void Begin(std::vector<float> best) {
      levels = std::move(best);
      edges = EdgesOf(levels);
    }
    void Add(double x) {
      const auto code = std::lower_bound(edges.begin(), edges.end(), x) - edges.begin();
      const double level = levels[static_cast<size_t>(code)];
      count += 1;
      sum += x;
      squares += x * x;
      coded_sum += level;
      coded_squares += level * level;
    }
    // Levels with the numbers' mean and spread; as they are if all numbers have one.
    void Normalize(std::vector<float>& best) const {
      if (count == 0) return;
      const double mean = sum / count, coded = coded_sum / count;
      const double spread = squares / count - mean * mean;
      const double coded_spread = coded_squares / count - coded * coded;
      if (spread <= 0 || coded_spread <= 0) return;
      const double scale = std::sqrt(spread / coded_spread);
      kvgauge::Normalize(static_cast<float>(scale), static_cast<float>(mean - coded * scale), best);
    }
  };

  struct Layer {
    std::vector<std::vector<float>> lowest, highest;  // [channels]: ends_ of each, or a few more
    std::vector<double> queries;                      // [channels] sums of squares
    std::vector<float> low, high;                     // [channels] after the first pass
    LevelHistogram keys, values;
    Moments key_moments, value_moments;
  };

  void KeepEnds(LayerView& view, int64_t head, Layer& layer) const {
    const int64_t length = view.lengths()[head], first = FirstCoded(length, sinks_);
    const int64_t dim = shape_.key_dim;
    const std::vector<float> keys = Fetch(view.ops(), CodedKeys(view, head, first));
    for (int64_t c = 0; c < dim; ++c) {
      const auto channel = static_cast<size_t>(head * dim + c);
      std::vector<float>& lowest = layer.lowest[channel];
      std::vector<float>& highest = layer.highest[channel];
      for (auto i = static_cast<size_t>(c); i < keys.size(); i += static_cast<size_t>(dim)) {
        lowest.push_back(keys[i]);
        highest.push_back(keys[i]);
      }
      Cut(lowest, std::less<>());
      Cut(highest, std::greater<>());
    }
  }

  // Leaves the first `ends_` by that order, the last of them at the end.
  template <class Order>
  void Cut(std::vector<float>& numbers, Order order) const {
    if (numbers.size() < ends_) return;
    const auto last = numbers.begin() + static_cast<int64_t>(ends_) - 1;
    std::nth_element(numbers.begin(), last, numbers.end(), order);
    numbers.resize(ends_);
  }

  void AddQueries(LayerView& view, Layer& layer) const {
    const Tensor queries = view.WindowQueries(std::min(kQueries, view.tokens()));
    const int64_t dim = shape_.key_dim, row = shape_.query_heads * dim;
    const std::vector<float> values = Fetch(view.ops(), queries);
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t at = static_cast<int64_t>(i) % row;
      const int64_t channel = at / dim / shape_.group() * dim + at % dim;
      layer.queries[static_cast<size_t>(channel)] += double{values[i]} * values[i];
    }
  }

  // Queries were seen rotated, and turning moves squares between the two channels of a pair.
  void SharePairs(std::vector<double>& squares) const {
    const int64_t pairs = shape_.rotary_dim / 2;
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      double* head = squares.data() + h * shape_.key_dim;
      for (int64_t i = 0; i < pairs; ++i) {
        const bool half = shape_.rope_layout == RopeLayout::kHalf;
        double& a = head[half ? i : 2 * i];
        double& b = head[half ? i + pairs : 2 * i + 1];
        a = b = (a + b) / 2;
      }
    }
  }

  void EndFirstPass(Layer& layer) const {
    for (size_t c = 0; c < layer.queries.size(); ++c) {
      const auto last = [&](const std::vector<float>& ends) {
        return ends.size() < ends_ ? 0.0f : ends[ends_ - 1];
      };
      layer.low.push_back(last(layer.lowest[c]));
      layer.high.push_back(last(layer.highest[c]));
    }
    SharePairs(layer.queries);
  }

  // Calls add(number in units of its range, weight) for every number within its range.
  template <class Adder>
  void ForKeys(LayerView& view, const Layer& layer, Adder add) const {
    const int64_t dim = shape_.key_dim;
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      const int64_t first = FirstCoded(view.lengths()[h], sinks_);
      const std::vector<float> keys = Fetch(view.ops(), CodedKeys(view, h, first));
      for (size_t i = 0; i < keys.size(); ++i) {
        const auto c = static_cast<size_t>(h * dim) + i % static_cast<size_t>(dim);
        const double low = layer.low[c], high = layer.high[c], half = (high - low) / 2;
        if (half <= 0 || keys[i] < low || keys[i] > high) continue;
        add((keys[i] - low) / half - 1, layer.queries[c] * half * half);
      }
    }
  }

  // `squares` of the attention that entries are paid, or none: all weigh nothing.
  template <class Adder>
  void ForValues(LayerView& view, std::span<const float> squares, Adder add) const {
    const int64_t dim = shape_.value_dim, width = squares.empty() ? 0 : view.width();
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      const int64_t first = FirstCoded(view.lengths()[h], sinks_);
      const std::vector<float> values = Fetch(view.ops(), view.Values(h, first));
      for (int64_t entry = 0; entry < std::ssize(values) / dim; ++entry) {
        double weight = 0;
        for (int64_t q = h * shape_.group(); width > 0 && q < (h + 1) * shape_.group(); ++q) {
          weight += squares[static_cast<size_t>(q * width + first + entry)];
        }
        const std::span<const float> row(values.data() + entry * dim, static_cast<size_t>(dim));
        const auto [low, high] = std::minmax_element(row.begin(), row.end());
        const double half = (double{*high} - *low) / 2;
        if (half <= 0) continue;
        for (const float x : row) add((x - *low) / half - 1, weight * half * half);
      }
    }
  }

  const ModelShape shape_;
  const int64_t levels_, sinks_;
  const bool norm_;
  size_t ends_ = 1;  // how many numbers at either end of a channel must be known
  std::vector<Layer> layers_;
};

// What the authors' code pickles, a tuple for each projection, numbered: upper and lower ends of
// the ranges, levels in any order and, with Q-Norm, what they are multiplied by and what is added.
class Quantizers {
 public:
  explicit Quantizers(const CalibrationTables& published) : published_(&published) {}

  Status Take(int64_t layer, const char* projection, const char* side, CalibrationTables& tables) {
    const std::string name = StrCat("model.layers.", layer, ".self_attn.", projection, ".");
    KVG_ASSIGN(std::vector<float> levels, Numbers(name + "2", 0));
    std::sort(levels.begin(), levels.end());
    const auto count = std::ssize(levels);
    const bool norm = published_->contains(name + "3");
    if (norm) {
      KVG_ASSIGN(const std::vector<float> scale, Numbers(name + "3", 1));
      KVG_ASSIGN(const std::vector<float> offset, Numbers(name + "4", 1));
      if (!(scale[0] > 0)) {
        return BadInput(StrCat("'", name, "3' is ", scale[0], "; levels are multiplied by it"));
      }
      tables[TableName(layer, (std::string(side) + ".edges").c_str())] = {{count - 1},
                                                                          EdgesOf(levels)};
      Normalize(scale[0], offset[0], levels);
    }
    tables[TableName(layer, (std::string(side) + ".levels").c_str())] = {{count},
                                                                         std::move(levels)};
    return {};
  }

  Status TakeRanges(int64_t layer, const ModelShape& shape, CalibrationTables& tables) {
    const std::string name = StrCat("model.layers.", layer, ".self_attn.k_proj.");
    for (const auto& [number, what] : {std::pair{"0", "keys.high"}, {"1", "keys.low"}}) {
      KVG_ASSIGN(std::vector<float> ends, Numbers(name + number, shape.kv_heads * shape.key_dim));
      tables[TableName(layer, what)] = {{shape.kv_heads, shape.key_dim}, std::move(ends)};
    }
    return {};
  }

 private:
  // All of a tensor; `count` of them, unless that is 0.
  Result<std::vector<float>> Numbers(const std::string& name, int64_t count) const {
    const auto found = published_->find(name);
    if (found == published_->end()) return BadInput(StrCat("has no tensor '", name, "'"));
    const std::vector<float>& values = found->second.values;
    const auto bad =
        std::find_if(values.begin(), values.end(), [](float x) { return !std::isfinite(x); });
    if (bad != values.end()) return BadInput(StrCat("'", name, "' holds ", *bad));
    if (!values.empty() && (count == 0 || std::ssize(values) == count)) return values;
    return BadInput(StrCat("'", name, "' holds ", values.size(), " numbers; right are ",
                           count == 0 ? std::string("levels") : StrCat(count), " of this model"));
  }

  const CalibrationTables* published_;
};

Result<CalibrationTables> ImportKvQuant(const CalibrationTables& published, WeightView& weights) {
  CalibrationTables tables;
  Quantizers quantizers(published);
  for (int64_t l = 0; l < weights.shape().layers; ++l) {
    KVG_TRY(quantizers.TakeRanges(l, weights.shape(), tables));
    KVG_TRY(quantizers.Take(l, "k_proj", "keys", tables));
    KVG_TRY(quantizers.Take(l, "v_proj", "values", tables));
  }
  return tables;
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "kvquant",
    .paper = "arXiv:2401.18079",
    .summary = "unevenly spaced levels; keys before rotation, by channel, with outliers",
    .departures =
        {"uncalibrated key ranges are the prompt's own, levels a normal distribution's",
         "levels weigh errors by queries and attention; imported ones by Fisher information",
         "Q-Norm without a calibration is that of normal numbers",
         "a value's range and its outliers are those of its head; keys' outliers are not capped",
         "keys wait uncoded until a page of 64 is full"},
    .bytes = "(key_dim + value_dim) * bits / 8 + 4 for the range of a value + 4 for each outlier; "
             "8 * key_dim a head for the ranges of keys, once a model with a calibration",
    .params = {IntParam("bits", 4, 1, 4, "bits of a code"),
               RealParam("outliers", 0.01, 0, 0.4, "share of key numbers that are kept apart"),
               RealParam("value_outliers", 0, 0, 0.4,
                         "the same of values, which are then coded 64 at a time"),
               BoolParam("norm", false, "Q-Norm: levels that keep the numbers' mean and spread"),
               IntParam("sinks", 5, 0, 4096, "first entries that stay uncoded"),
               CalibrationParam()},
    .make = Make<KvQuant>(),
    .calibrate = MakeCalibrator<KvQuantCalibrator>,
    .calibrated_params = {"bits", "norm", "outliers", "sinks"},
    .import_with = ImportKvQuant,
});

}  // namespace
}  // namespace kvgauge

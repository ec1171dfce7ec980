// SPDX-License-Identifier: Apache-2.0
// Keys without the channels that a learned mask gives up, the same ones for every prompt.
//
// Paper: LeanK, arXiv:2508.02215. Needs a side-file: masks, imported from the authors' training, or
// by how large the channels of queries and keys are over some texts. A head keeps a multiple of
// `round_to` channels, each head its own number. The first and the last entries of the prompt stay
// whole, and so do later ones.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "core/rng.h"
#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/layouts/narrow_keys.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

std::string MaskTable(int64_t layer) { return StrCat("channels.", layer); }

class LeanK final : public Store {
 public:
  explicit LeanK(const Params& params)
      : sinks_(params.Int("sinks")),
        recent_(params.Int("recent")),
        drawn_(params.Text("masks") == "random") {}

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    if (calibration_ == nullptr && !drawn_) {
      return BadInput(
          "needs masks of key channels; import the authors', or make some with `kvgauge "
          "calibrate`");
    }
    for (int64_t l = 0; calibration_ != nullptr && l < shape.layers; ++l) {
      const int64_t dims[] = {shape.kv_heads, shape.key_dim};
      KVG_ASSIGN(const Tensor mask, calibration_->Find(MaskTable(l), dims));
      for (int64_t i = 0; i < mask.Numel(); ++i) {
        if (mask.f32()[i] == 0 || mask.f32()[i] == 1) continue;
        return BadInput(StrCat(calibration_->path, ": ", MaskTable(l), ": ", mask.f32()[i],
                               "; a mask holds 0 and 1 alone"));
      }
    }
    return {};
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    NarrowKeys layout;
    layout.sinks = sinks_;
    layout.recent = recent_;
    std::vector<std::vector<int32_t>> kept;
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      kept.push_back(ChannelsOf(shape, layer, h));
      layout.kept.push_back(std::ssize(kept.back()));
    }
    layout.dim = *std::max_element(layout.kept.begin(), layout.kept.end());
    if (*std::min_element(layout.kept.begin(), layout.kept.end()) == shape.key_dim) {
      return StorePlan();
    }
    return PlanOf(std::move(layout));
  }

  void Calibrate(LayerView& view, StorePlan& plan) const override {
    const auto* planned = plan.Get<NarrowKeys>();
    if (planned == nullptr) return;
    NarrowKeys layout = *planned;
    const ModelShape& shape = view.shape();
    std::vector<int32_t> channels(static_cast<size_t>(shape.kv_heads * layout.dim), -1);
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      const std::vector<int32_t> own = ChannelsOf(shape, view.layer(), h);
      std::copy(own.begin(), own.end(), channels.begin() + h * layout.dim);
    }
    layout.channels =
        Upload(view, std::span<const int32_t>(channels)).Reshape({shape.kv_heads, layout.dim});
    plan = PlanOf(std::move(layout), plan.turn);
  }

 private:
  // Ascending. A head that keeps none keeps the first: a stream has one number at least.
  std::vector<int32_t> ChannelsOf(const ModelShape& shape, int64_t layer, int64_t head) const {
    std::vector<int32_t> channels;
    Rng rng(static_cast<uint64_t>(layer), static_cast<uint64_t>(head));
    for (int64_t c = 0; c < shape.key_dim; ++c) {
      const bool stays =
          calibration_ == nullptr ? rng.NextBelow(3) > 0 : Mask(shape, layer, head, c) > 0;
      if (stays) channels.push_back(static_cast<int32_t>(c));
    }
    if (channels.empty()) channels.push_back(0);
    return channels;
  }
  float Mask(const ModelShape& shape, int64_t layer, int64_t head, int64_t channel) const {
    const std::vector<float>& all = calibration_->tables.find(MaskTable(layer))->second.values;
    return all[static_cast<size_t>(head * shape.key_dim + channel)];
  }

  int64_t sinks_, recent_;
  bool drawn_;
  std::shared_ptr<const Calibration> calibration_;
};

// Masks that nobody trained: a channel counts by the mean square of its keys times that of its
// queries, and a layer's largest stay; each head's number is rounded to a multiple.
class LeanKCalibrator final : public Calibrator {
 public:
  LeanKCalibrator(const Params& params, const ModelShape& shape, std::span<const int64_t>)
      : shape_(shape),
        pruned_(params.Real("pruned")),
        round_to_(std::min(params.Int("round_to"), shape.key_dim)),
        sums_(static_cast<size_t>(shape.layers)) {
    const auto numbers = static_cast<size_t>(shape.kv_heads * shape.key_dim);
    for (Sums& sums : sums_) {
      sums.keys.resize(numbers);
      sums.queries.resize(numbers);
    }
  }

  Needs needs(int) const override { return {.window = kQueries}; }

  void Observe(int, LayerView& view) override {
    const int64_t dim = shape_.key_dim, group = shape_.group();
    Sums& sums = sums_[static_cast<size_t>(view.layer())];
    const std::vector<float> queries =
        Fetch(view.ops(), view.WindowQueries(std::min(kQueries, view.tokens())));
    for (int64_t i = 0; i < std::ssize(queries); ++i) {
      const int64_t head = i / dim % shape_.query_heads / group;
      sums.queries[static_cast<size_t>(head * dim + i % dim)] +=
          std::pow(double{queries[static_cast<size_t>(i)]}, 2);
    }
    for (int64_t h = 0; h < shape_.kv_heads; ++h) {
      const std::vector<float> keys = Fetch(view.ops(), view.Keys(h));
      for (int64_t i = 0; i < std::ssize(keys); ++i) {
        sums.keys[static_cast<size_t>(h * dim + i % dim)] +=
            std::pow(double{keys[static_cast<size_t>(i)]}, 2);
      }
    }
  }

  Calibration::Tables Finish(Ops&) override {
    Calibration::Tables tables;
    for (int64_t l = 0; l < shape_.layers; ++l) {
      tables[MaskTable(l)] = {{shape_.kv_heads, shape_.key_dim},
                              MaskOf(sums_[static_cast<size_t>(l)])};
    }
    return tables;
  }

 private:
  static constexpr int64_t kQueries = 512;
  struct Sums {
    std::vector<double> keys, queries;  // [kv_heads, key_dim]
  };

  std::vector<float> MaskOf(const Sums& sums) const {
    const int64_t dim = shape_.key_dim, all = shape_.kv_heads * dim;
    std::vector<int64_t> order(static_cast<size_t>(all));
    std::iota(order.begin(), order.end(), 0);
    const auto worth = [&](int64_t i) {
      return sums.keys[static_cast<size_t>(i)] * sums.queries[static_cast<size_t>(i)];
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return worth(a) > worth(b); });
    std::vector<int64_t> counts(static_cast<size_t>(shape_.kv_heads));
    const int64_t stay = std::llround((1 - pruned_) * static_cast<double>(all));
    for (int64_t i = 0; i < stay; ++i)
      ++counts[static_cast<size_t>(order[static_cast<size_t>(i)] / dim)];
    for (int64_t& count : counts) {
      count = std::min(dim, (count + round_to_ / 2) / round_to_ * round_to_);
    }
    std::vector<float> mask(static_cast<size_t>(all));
    for (const int64_t at : order) {
      int64_t& left = counts[static_cast<size_t>(at / dim)];
      if (left == 0) continue;
      --left;
      mask[static_cast<size_t>(at)] = 1.0f;
    }
    return mask;
  }

  const ModelShape shape_;
  const double pruned_;
  const int64_t round_to_;
  std::vector<Sums> sums_;  // [layers]
};

// The authors' pattern: a mask of all heads' channels for each layer, [layers, kv_heads * key_dim]
// or [layers, kv_heads, key_dim].
Result<CalibrationTables> ImportLeanK(const CalibrationTables& published, WeightView& weights) {
  const ModelShape& shape = weights.shape();
  const int64_t numbers = shape.kv_heads * shape.key_dim;
  if (published.size() != 1) {
    return BadInput(
        StrCat("holds ", published.size(), " tensors; right is one mask [layers, ", numbers, "]"));
  }
  const auto& [name, table] = *published.begin();
  if (table.shape.empty() || table.shape[0] != shape.layers ||
      std::ssize(table.values) != shape.layers * numbers) {
    return BadInput(StrCat("'", name, "' holds ", table.values.size(), " numbers; right are [",
                           shape.layers, ", ", numbers, "] of this model"));
  }
  CalibrationTables tables;
  for (int64_t l = 0; l < shape.layers; ++l) {
    const auto begin = table.values.begin() + l * numbers;
    const std::vector<float> mask(begin, begin + numbers);
    const auto other =
        std::find_if(mask.begin(), mask.end(), [](float x) { return x != 0 && x != 1; });
    if (other != mask.end()) {
      return BadInput(
          StrCat("'", name, "': layer ", l, " has ", *other, "; a mask holds 0 and 1 alone"));
    }
    tables[MaskTable(l)] = {{shape.kv_heads, shape.key_dim}, mask};
  }
  return tables;
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "leank",
    .paper = "arXiv:2508.02215",
    .summary = "keys without the channels that a learned mask gives up",
    .departures = {"decoded entries stay whole; the reference narrows them once 128 are more than "
                   "the recent ones",
                   "masks by `kvgauge calibrate` are counted, not trained",
                   "values of heads that keep no channel stay"},
    .bytes =
        "channels of a head * bytes of the cache's type for a key, whole ones for the first, the "
        "last and later entries; 4 bytes a head for each channel that stays, as a matrix in memory "
        "4 * key dims",
    .params = {IntParam("sinks", 128, 0, 1 << 20, "first entries whose keys stay whole"),
               IntParam("recent", 768, 0, 1 << 20, "last entries whose keys stay whole"),
               RealParam("pruned", 0.5, 0, 0.95, "share of channels that a calibration gives up"),
               IntParam("round_to", 32, 1, 1024, "a calibration's heads keep multiples of this"),
               ChoiceParam("masks", "learned", {"learned", "random"},
                           "of the side-file; or drawn, for tests alone"),
               CalibrationParam()},
    .make = Make<LeanK>(),
    .calibrate = MakeCalibrator<LeanKCalibrator>,
    .calibrated_params = {"pruned", "round_to"},
    .import_with = ImportLeanK,
});

}  // namespace
}  // namespace kvgauge

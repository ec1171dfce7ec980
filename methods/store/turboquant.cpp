// SPDX-License-Identifier: Apache-2.0
// Randomly turned entries in levels that are best for normal numbers, with the length of each.
//
// Paper: TurboQuant, arXiv:2504.19874. Needs nothing. A random rotation makes the coordinates of
// any entry nearly normal, of one variance: that of its mean square, which is stored. The form for
// inner products takes one bit of a number from the levels, and keeps the length of the error that
// they leave and the signs of its projections, so that products with it are right on average.
#include <array>
#include <utility>

#include "core/strings.h"
#include "methods/basis_change.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Lloyd-Max levels of the standard normal distribution.
constexpr std::array<float, 2> kNormalLevels1 = {-0.7978846f, 0.7978846f};
constexpr std::array<float, 4> kNormalLevels2 = {-1.5104176f, -0.4527800f, 0.4527800f, 1.5104176f};
constexpr std::array<float, 8> kNormalLevels3 = {-2.1519457f, -1.3439093f, -0.7560053f, -0.2450942f,
                                                 0.2450942f,  0.7560053f,  1.3439093f,  2.1519457f};
constexpr std::array<float, 16> kNormalLevels4 = {
    -2.7325896f, -2.0690172f, -1.6180464f, -1.2562312f, -0.9423405f, -0.6567591f,
    -0.3880483f, -0.1283950f, 0.1283950f,  0.3880483f,  0.6567591f,  0.9423405f,
    1.2562312f,  1.6180464f,  2.0690172f,  2.7325896f};

std::span<const float> NormalLevelsOf(int64_t bits) {
  switch (bits) {
    case 1:
      return kNormalLevels1;
    case 2:
      return kNormalLevels2;
    case 3:
      return kNormalLevels3;
    default:
      return kNormalLevels4;
  }
}

class TurboQuant final : public Store {
 public:
  explicit TurboQuant(const Params& params)
      : key_bits_(params.Int("key_bits")),
        value_bits_(params.Int("value_bits")),
        products_(params.Text("form") == "products"),
        recent_(params.Int("keep_recent")),
        sinks_(params.Int("sinks")),
        basis_(params) {}

  Status Check(const ModelShape& shape) const override {
    if (products_ && key_bits_ < 2) {
      return BadInput(StrCat("key_bits ", key_bits_,
                             ": a bit is for signs of the error, so form 'products' needs 2"));
    }
    return basis_.Check(shape, nullptr);
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    Coded layout(shape);
    Fill(products_ ? key_bits_ - 1 : key_bits_, layout.keys);
    if (products_) layout.keys.kind = KvCodecKind::kSketched;
    Fill(value_bits_, layout.values);
    layout.seal_keys = SealWhole(layout.keys, recent_);
    layout.seal_values = SealWhole(layout.values, recent_);
    layout.sinks = sinks_;
    return basis_.Plan(shape, layer, std::move(layout), {}, nullptr);
  }

 private:
  static void Fill(int64_t bits, KvCodec& codec) {
    const std::span<const float> levels = NormalLevelsOf(bits);
    codec.kind = KvCodecKind::kCodebook;
    codec.bits = static_cast<int>(bits);
    codec.range = CodeRange::kRms;
    codec.group = codec.dim;
    codec.levels = View(levels, {std::ssize(levels)});
  }

  int64_t key_bits_, value_bits_;
  bool products_;
  int64_t recent_, sinks_;
  BasisChoice basis_;
};

std::vector<ParamSpec> TurboQuantParams() {
  std::vector<ParamSpec> specs = {
      IntParam("key_bits", 4, 1, 4, "bits of a key's number"),
      IntParam("value_bits", 4, 1, 4, "bits of a value's number"),
      ChoiceParam("form", "mean_square", {"mean_square", "products"},
                  "what codes of keys are best for; values are coded for the mean square"),
      IntParam("keep_recent", 0, 0, 1 << 20, "newest entries that stay uncoded"),
      IntParam("sinks", 0, 0, 4096, "first entries that stay uncoded")};
  for (ParamSpec& spec : BasisParams(LearnedBasis::kNo)) specs.push_back(std::move(spec));
  return specs;
}

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "turboquant",
    .paper = "arXiv:2504.19874",
    .summary = "turned entries in levels for normal numbers, with the length of each",
    .departures = {"levels are a normal distribution's, not those of a coordinate of the sphere, "
                   "which it tends to",
                   "signs of the error are those of its Hadamard transform, not of Gaussian "
                   "projections; behind the random rotation both have the same mean",
                   "no more bits for outlier channels, so whole bits alone",
                   "attention of the prompt reads uncoded entries"},
    .bytes = "for each side: dim * bits / 8 + 2, keys in the form for products 2 more; matrices of "
             "coordinates once a model",
    .params = TurboQuantParams(),
    .make = Make<TurboQuant>(),
    .goes_by_layer = true,
});

}  // namespace
}  // namespace kvgauge

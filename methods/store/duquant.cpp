// SPDX-License-Identifier: Apache-2.0
// Codes behind two rotations of blocks of channels, with a permutation between them.
//
// Paper: DuQuant, arXiv:2406.01721. Needs a calibration, or nothing. The first rotation spreads a
// loud channel over its block; the permutation deals channels to blocks in zigzag, the loudest
// first, so that no block is louder than another; the second spreads again. Rotations are Hadamard
// blocks with random signs. The calibration has the largest number of every channel behind the
// first rotation; without one channels are dealt in their own order.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "core/rng.h"
#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/divisors.h"
#include "methods/layouts/transformed.h"
#include "methods/registry.h"
#include "methods/shared_numbers.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Orthogonal blocks [dim, dim]: of Sylvester's matrix, its rows signed at random.
std::vector<double> SignedBlocks(int64_t dim, int64_t block, uint64_t seed) {
  Rng rng(seed, 7);
  std::vector<double> matrix(static_cast<size_t>(dim * dim));
  const double unit = 1 / std::sqrt(static_cast<double>(block));
  for (int64_t i = 0; i < dim; ++i) {
    const bool negative = rng.NextBelow(2) == 1;
    for (int64_t j = i / block * block; j < (i / block + 1) * block; ++j) {
      const bool odd = __builtin_parityll(static_cast<uint64_t>(i % block & j % block)) != 0;
      matrix[static_cast<size_t>(i * dim + j)] = odd != negative ? -unit : unit;
    }
  }
  return matrix;
}

// Where each channel goes: the loudest first, dealt to blocks to and fro.
std::vector<int64_t> DealChannels(std::span<const float> loud, int64_t block) {
  const auto dim = std::ssize(loud);
  const int64_t blocks = dim / block;
  std::vector<int64_t> order(loud.size()), place(loud.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return loud[static_cast<size_t>(a)] > loud[static_cast<size_t>(b)];
  });
  for (int64_t i = 0; i < dim; ++i) {
    const int64_t round = i / blocks, step = i % blocks;
    const int64_t to = round % 2 == 0 ? step : blocks - 1 - step;
    place[static_cast<size_t>(order[static_cast<size_t>(i)])] = to * block + round;
  }
  return place;
}

std::string LoudChannels(KvSide side, int64_t layer) {
  return StrCat(side == KvSide::kKeys ? "keys.loud." : "values.loud.", layer);
}
uint64_t RotationSeed(uint64_t seed, KvSide side, int64_t layer, uint64_t which) {
  return ((seed * 4096 + static_cast<uint64_t>(layer)) * 2 + static_cast<uint64_t>(side)) * 2 +
         which;
}
int64_t SideDim(const ModelShape& shape, KvSide side) {
  return side == KvSide::kKeys ? shape.key_dim : shape.value_dim;
}

class DuQuant final : public Store {
 public:
  explicit DuQuant(const Params& params)
      : key_bits_(params.Int("key_bits")),
        value_bits_(params.Int("value_bits")),
        block_(params.Int("block")),
        recent_(params.Int("keep_recent")),
        sinks_(params.Int("sinks")),
        seed_(static_cast<uint64_t>(params.Int("seed"))) {}

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim > 0) {
      return BadInput("rotates entries of heads, and this model keeps latents in their place");
    }
    if ((block_ & (block_ - 1)) != 0) {
      return BadInput(StrCat("block ", block_, ": must be a power of two"));
    }
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      if (SideDim(shape, side) % block_ != 0) {
        return BadInput(StrCat("block ", block_, " does not divide the ", SideDim(shape, side),
                               " dims of an entry; expected a power of two of ",
                               DivisorsOf(SideDim(shape, side))));
      }
    }
    return {};
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t layer) const override {
    Coded layout(shape);
    Fill(key_bits_, layout.keys);
    Fill(value_bits_, layout.values);
    layout.seal_keys = SealWhole(layout.keys, recent_);
    layout.seal_values = SealWhole(layout.values, recent_);
    layout.sinks = sinks_;
    KVG_ASSIGN(BasisChange of_keys, Rotations(shape, KvSide::kKeys, layer));
    KVG_ASSIGN(BasisChange of_values, Rotations(shape, KvSide::kValues, layer));
    return PlanOf(Transformed(std::move(layout), std::move(of_keys), std::move(of_values)));
  }

 private:
  static void Fill(int64_t bits, KvCodec& codec) {
    codec.kind = KvCodecKind::kAffine;
    codec.bits = static_cast<int>(bits);
    codec.group = codec.dim;
  }

  // A matrix [dim, dim] for each head: the first rotation, its columns dealt, times the second.
  Result<BasisChange> Rotations(const ModelShape& shape, KvSide side, int64_t layer) const {
    const int64_t dim = SideDim(shape, side);
    BasisChange change;
    change.dim = change.stored = dim;
    if (calibration_ == nullptr) {
      change.heads = 1;
      change.there = SharedNumbers(
          StrCat("duquant ", dim, " ", block_, " ", RotationSeed(seed_, side, layer, 0)),
          [&] { return Rotation(std::vector<float>(Size(dim)), side, layer); });
      return change;
    }
    change.heads = shape.kv_heads;
    change.source = StrCat(calibration_->path, ": ", LoudChannels(side, layer));
    const int64_t sizes[] = {shape.kv_heads, dim};
    KVG_ASSIGN(const Tensor table, calibration_->Find(LoudChannels(side, layer), sizes));
    auto all = std::make_shared<std::vector<float>>();
    for (int64_t head = 0; head < change.heads; ++head) {
      const std::span<const float> loud(table[head].f32(), Size(dim));
      for (const float v : loud) {
        if (std::isfinite(v) && v >= 0) continue;
        return BadInput(StrCat(change.source, ": holds ", v,
                               ", which is no finite number of at "
                               "least 0"));
      }
      const std::vector<float> one = Rotation(loud, side, layer);
      all->insert(all->end(), one.begin(), one.end());
    }
    change.there = std::move(all);
    return change;
  }

  static size_t Size(int64_t count) { return static_cast<size_t>(count); }

  std::vector<float> Rotation(std::span<const float> loud, KvSide side, int64_t layer) const {
    const auto dim = std::ssize(loud);
    const std::vector<double> first =
        SignedBlocks(dim, block_, RotationSeed(seed_, side, layer, 0));
    const std::vector<double> second =
        SignedBlocks(dim, block_, RotationSeed(seed_, side, layer, 1));
    const std::vector<int64_t> place = DealChannels(loud, block_);
    std::vector<float> rotation;
    rotation.reserve(Size(dim * dim));
    for (int64_t i = 0; i < dim; ++i) {
      for (int64_t j = 0; j < dim; ++j) {
        double sum = 0;
        for (int64_t k = i / block_ * block_; k < (i / block_ + 1) * block_; ++k) {
          sum += first[Size(i * dim + k)] * second[Size(place[Size(k)] * dim + j)];
        }
        rotation.push_back(static_cast<float>(sum));
      }
    }
    return rotation;
  }

  int64_t key_bits_, value_bits_, block_, recent_, sinks_;
  uint64_t seed_;
  std::shared_ptr<const Calibration> calibration_;
};

// The largest number of every channel behind the first rotation.
class DuQuantCalibrator final : public Calibrator {
 public:
  DuQuantCalibrator(const Params& params, const ModelShape& shape, std::span<const int64_t>)
      : shape_(shape),
        block_(params.Int("block")),
        seed_(static_cast<uint64_t>(params.Int("seed"))),
        layers_(static_cast<size_t>(shape.layers)) {}

  Needs needs(int) const override { return {}; }

  void Observe(int, LayerView& view) override {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const int64_t dim = SideDim(shape_, side);
      const std::vector<double> first =
          SignedBlocks(dim, block_, RotationSeed(seed_, side, view.layer(), 0));
      std::vector<float>& loud =
          layers_[static_cast<size_t>(view.layer())][static_cast<size_t>(side)];
      loud.resize(static_cast<size_t>(shape_.kv_heads * dim));
      for (int64_t h = 0; h < shape_.kv_heads; ++h) {
        const Tensor rows = side == KvSide::kKeys ? view.Keys(h) : view.Values(h);
        const std::vector<float> numbers = Fetch(view.ops(), rows);
        for (int64_t at = 0; at < std::ssize(numbers); at += dim) {
          for (int64_t j = 0; j < dim; ++j) {
            double sum = 0;
            for (int64_t i = j / block_ * block_; i < (j / block_ + 1) * block_; ++i) {
              sum += double{numbers[static_cast<size_t>(at + i)]} *
                     first[static_cast<size_t>(i * dim + j)];
            }
            float& most = loud[static_cast<size_t>(h * dim + j)];
            most = std::max(most, static_cast<float>(std::abs(sum)));
          }
        }
      }
    }
  }

  Calibration::Tables Finish(Ops&) override {
    Calibration::Tables tables;
    for (int64_t layer = 0; layer < shape_.layers; ++layer) {
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        tables[LoudChannels(side, layer)] = {
            {shape_.kv_heads, SideDim(shape_, side)},
            std::move(layers_[static_cast<size_t>(layer)][static_cast<size_t>(side)])};
      }
    }
    return tables;
  }

 private:
  const ModelShape shape_;
  const int64_t block_;
  const uint64_t seed_;
  std::vector<std::array<std::vector<float>, 2>> layers_;  // [sides] of [kv_heads * dim]
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "duquant",
    .paper = "arXiv:2406.01721",
    .summary = "codes behind two rotations of blocks, with a permutation between them",
    .departures = {"the authors' cache has no rotations, which are of the inputs of projections",
                   "rotations are Hadamard blocks with random signs, not found greedily",
                   "no smoothing before them", "attention of the prompt reads uncoded entries"},
    .bytes = "for each side: dim * bits / 8 + 4; matrices once a model",
    .params = {IntParam("key_bits", 4, 1, 8, "1, 2, 3, 4 or 8"),
               IntParam("value_bits", 4, 1, 8, "1, 2, 3, 4 or 8"),
               IntParam("block", 16, 2, 512, "channels that are rotated together; a power of two"),
               IntParam("keep_recent", 0, 0, 1 << 20, "newest entries that stay uncoded"),
               IntParam("sinks", 0, 0, 4096, "first entries that stay uncoded"),
               IntParam("seed", 0, 0, 1 << 30, "of the signs"), CalibrationParam()},
    .make = Make<DuQuant>(),
    .calibrate = MakeCalibrator<DuQuantCalibrator>,
    .calibrated_params = {"block", "seed"},
});

}  // namespace
}  // namespace kvgauge

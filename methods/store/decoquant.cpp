// SPDX-License-Identifier: Apache-2.0
// Codes of entries in a small basis that is found in the prompt and shared by all blocks of
// neighbouring channels.
//
// Paper: DecoQuant, arXiv:2405.12591. Needs nothing. Channels are taken in blocks of 16, and all
// blocks of all entries and heads are the rows X of a tall matrix. Of X = U diag(s) V^T the large
// factor F = U diag(sqrt(s)) is coded and the small one G = diag(sqrt(s)) V^T stays whole: that is
// what the two-tensor decomposition with full bond comes to. So an entry's block x is stored as
// x V diag(1 / sqrt(s)), and attention turns queries and outputs by G.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "methods/directions.h"
#include "methods/layouts/transformed.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

class DecoQuant final : public Store {
 public:
  explicit DecoQuant(const Params& params)
      : bits_{static_cast<int>(params.Int("key_bits")), static_cast<int>(params.Int("value_bits"))},
        block_(params.Int("block")),
        recent_(params.Int("keep_recent")) {}

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim > 0) {
      return BadInput("takes channels of heads in blocks, and this model keeps latents");
    }
    if (shape.key_dim % block_ == 0 && shape.value_dim % block_ == 0) return {};
    return BadInput(StrCat("block ", block_, ": must divide the model's ", shape.key_dim, " and ",
                           shape.value_dim, " dims of keys and values"));
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    Coded coded(shape);
    for (KvCodec* codec : {&coded.keys, &coded.values}) {
      codec->kind = KvCodecKind::kAffine;
      codec->bits = bits_[codec == &coded.keys ? 0 : 1];
      codec->symmetric = true;
      codec->group = codec->dim;
    }
    coded.seal_keys = SealWhole(coded.keys, recent_);
    coded.seal_values = SealWhole(coded.values, recent_);
    // Until Calibrate has seen the prompt: as it is.
    const auto as_it_is = [](int64_t dim) {
      BasisChange change;
      change.dim = change.stored = dim;
      auto unit = std::make_shared<std::vector<float>>(static_cast<size_t>(dim * dim));
      for (int64_t i = 0; i < dim; ++i) (*unit)[static_cast<size_t>(i * dim + i)] = 1.0f;
      change.there = std::move(unit);
      return change;
    };
    return PlanOf(
        Transformed(std::move(coded), as_it_is(shape.key_dim), as_it_is(shape.value_dim)));
  }

  void Calibrate(LayerView& view, StorePlan& plan) const override {
    const auto* planned = plan.Get<Transformed>();
    if (planned == nullptr) return;
    Transformed layout = *planned;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      BasisChange& change = side == KvSide::kKeys ? layout.key_change : layout.value_change;
      Factor(view, Products(view, side, change.dim), change);
    }
    plan = PlanOf(std::move(layout), plan.turn);
  }

 private:
  // X^T X of all blocks, [block, block].
  std::vector<double> Products(LayerView& view, KvSide side, int64_t dim) const {
    std::vector<double> sum(static_cast<size_t>(block_ * block_));
    for (int64_t h = 0; h < view.shape().kv_heads; ++h) {
      const Tensor rows = side == KvSide::kKeys ? view.Keys(h) : view.Values(h);
      const std::vector<float> products = Fetch(view.ops(), ColumnProducts(view, rows));
      for (int64_t begin = 0; begin < dim; begin += block_) {
        for (int64_t i = 0; i < block_; ++i) {
          for (int64_t j = 0; j < block_; ++j) {
            sum[static_cast<size_t>(i * block_ + j)] +=
                double{products[static_cast<size_t>((begin + i) * dim + begin + j)]};
          }
        }
      }
    }
    return sum;
  }

  void Factor(LayerView& view, const std::vector<double>& sum, BasisChange& change) const {
    const int64_t n = block_, dim = change.dim;
    const std::vector<float> products(sum.begin(), sum.end());
    const Tensor values = view.Scratch(DType::kF32, {n}),
                 vectors = view.Scratch(DType::kF32, {n, n});
    view.ops().algebra->Eigenvectors(Upload(view, std::span<const float>(products)).Reshape({n, n}),
                                     values, vectors);
    const std::vector<float> squares = Fetch(view.ops(), values);
    const std::vector<float> directions = Fetch(view.ops(), vectors);  // one a row
    const double largest = std::max(double{squares[0]}, 1e-30);
    auto there = std::make_shared<std::vector<float>>(static_cast<size_t>(dim * dim));
    auto back = std::make_shared<std::vector<float>>(there->size());
    for (int64_t begin = 0; begin < dim; begin += n) {
      for (int64_t k = 0; k < n; ++k) {
        // The square root of a singular value; f32 knows none that are smaller.
        const double square = std::max(double{squares[static_cast<size_t>(k)]}, 1e-12 * largest);
        const double root = std::pow(square, 0.25);
        for (int64_t i = 0; i < n; ++i) {
          const double v = directions[static_cast<size_t>(k * n + i)];
          const auto at = static_cast<size_t>((begin + i) * dim + begin + k);
          (*there)[at] = static_cast<float>(v / root);
          (*back)[at] = static_cast<float>(v * root);
        }
      }
    }
    change.there = std::move(there);
    change.back = std::move(back);
    change.constant = false;
  }

  std::array<int, 2> bits_;  // by side
  int64_t block_, recent_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "decoquant",
    .paper = "arXiv:2405.12591",
    .summary = "codes in a basis of 16 channels that is found in the prompt",
    .departures = {"a scale for each entry of a head, where the reference has one for all heads",
                   "the prompt's basis goes on in decode, where each flush finds another",
                   "attention of the prompt reads uncoded entries"},
    .bytes = "for each side: dim * bits / 8 + 2; matrices once a prompt: 8 * dim * dim for each "
             "layer and side, of which 4 * block * block are not zeros or repeated",
    .params = {IntParam("key_bits", 4, 2, 8, "2, 3, 4 or 8"),
               IntParam("value_bits", 4, 2, 8, "the same of values"),
               IntParam("block", 16, 2, 1024, "neighbouring channels that share the basis"),
               IntParam("keep_recent", 0, 0, 1 << 20, "newest entries that stay uncoded")},
    .make = Make<DecoQuant>(),
});

}  // namespace
}  // namespace kvgauge

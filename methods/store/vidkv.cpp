// SPDX-License-Identifier: Apache-2.0
// Keys as signs of Fourier coordinates and, where channels are wide, 2 bits; values as three levels
// of their channel.
//
// Paper: VidKV, arXiv:2503.16257; after KD-TAO/VidKV. Needs nothing. The channels of a layer's keys
// whose numbers range widest over the prompt, in all heads, have 2 bits. The others are turned by a
// Fourier transform over themselves, and of a coordinate its sign is kept, with its mean size over
// `group` entries. A value is minus the mean size of its channel, 0 or the mean size, 0 within half
// of it.
#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "methods/layouts/transformed.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

constexpr int kWideBits = 2;

// The real Fourier transform of n numbers, orthonormal: [n, n]. Columns are the mean, then real and
// imaginary part of each frequency, then the alternating sum where n is even.
std::vector<float> RealFourier(int64_t n) {
  const auto count = static_cast<double>(n);
  std::vector<double> cosines, sines;
  for (int64_t i = 0; i < n; ++i) {
    const double angle = 2 * std::numbers::pi * static_cast<double>(i) / count;
    cosines.push_back(std::cos(angle));
    sines.push_back(std::sin(angle));
  }
  std::vector<float> matrix;
  matrix.reserve(static_cast<size_t>(n * n));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const int64_t frequency = (j + 1) / 2;
      const auto at = static_cast<size_t>(frequency * i % n);
      const bool alone = j == 0 || 2 * frequency == n;
      const double part = alone || j % 2 == 1 ? cosines[at] : -sines[at];
      matrix.push_back(static_cast<float>(std::sqrt((alone ? 1 : 2) / count) * part));
    }
  }
  return matrix;
}

class VidKv final : public Store {
 public:
  explicit VidKv(const Params& params)
      : share_(params.Real("key_share")),
        value_bits_(params.Int("value_bits")),
        group_(params.Int("group")),
        residual_(params.Int("residual")) {}

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim > 0) {
      return BadInput("codes channels of keys and values, and this model keeps latents of its own");
    }
    if (residual_ % group_ == 0) return {};
    return BadInput(StrCat("residual ", residual_, " must be a multiple of group ", group_));
  }

  Result<StorePlan> Plan(const ModelShape& shape, int64_t) const override {
    Coded layout(shape);
    layout.keys.kind = KvCodecKind::kMeanSizes;
    layout.keys.bits = kWideBits;
    layout.keys.group = group_;
    layout.keys.stages = Narrow(shape);
    layout.values.kind = value_bits_ == 0 ? KvCodecKind::kMeanSizes : KvCodecKind::kAffine;
    layout.values.axis = value_bits_ == 0 ? CodeAxis::kToken : CodeAxis::kChannel;
    layout.values.bits = static_cast<int>(value_bits_);
    layout.values.group = group_;
    layout.values.stages = 0;
    layout.seal_keys = layout.seal_values = {.unit = residual_, .keep_recent = 0};
    if (Narrow(shape) == 0) return PlanOf(std::move(layout));
    // Until Calibrate has seen the prompt: the last channels are wide.
    std::vector<int64_t> channels(static_cast<size_t>(shape.key_dim));
    std::iota(channels.begin(), channels.end(), 0);
    return PlanOf(Transformed(std::move(layout), Turned(shape, channels), {}));
  }

  void Calibrate(LayerView& view, StorePlan& plan) const override {
    const auto* planned = plan.Get<Transformed>();
    if (planned == nullptr) return;
    Transformed layout = *planned;
    layout.key_change = Turned(view.shape(), NarrowFirst(view));
    plan = PlanOf(std::move(layout), plan.turn);
  }

 private:
  // Channels that have signs.
  int64_t Narrow(const ModelShape& shape) const {
    return shape.key_dim - static_cast<int64_t>(static_cast<double>(shape.key_dim) * share_);
  }

  // The channels, the narrow ones first, both kinds ascending. Entries that are not coded yet have
  // no say, unless none is.
  std::vector<int64_t> NarrowFirst(LayerView& view) const {
    Ops& ops = view.ops();
    const ModelShape& shape = view.shape();
    const int64_t dim = shape.key_dim, narrow = Narrow(shape);
    const Tensor ends = view.Scratch(DType::kF32, {2 * shape.kv_heads, dim});
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      const int64_t length = view.lengths()[static_cast<size_t>(h)];
      const int64_t coded = length / residual_ * residual_;
      if (length == 0) continue;
      const Tensor rows = view.Keys(h).Slice(0, coded > 0 ? coded : length);
      ops.rows->ReduceColumns(rows, Reduction::kMax, ends[2 * h]);
      ops.rows->ReduceColumns(rows, Reduction::kMin, ends[2 * h + 1]);
    }
    const std::vector<float> found = Fetch(ops, ends);
    std::vector<float> width;
    for (int64_t c = 0; c < dim; ++c) {
      float low = 0, high = 0;
      for (int64_t h = 0, any = 0; h < shape.kv_heads; ++h) {
        if (view.lengths()[static_cast<size_t>(h)] == 0) continue;
        const float most = found[static_cast<size_t>(2 * h * dim + c)];
        const float least = found[static_cast<size_t>((2 * h + 1) * dim + c)];
        high = any == 0 ? most : std::max(high, most);
        low = any == 0 ? least : std::min(low, least);
        any = 1;
      }
      width.push_back(high - low);
    }
    std::vector<int64_t> channels(static_cast<size_t>(dim));
    std::iota(channels.begin(), channels.end(), 0);
    std::stable_sort(channels.begin(), channels.end(), [&](int64_t a, int64_t b) {
      return width[static_cast<size_t>(a)] > width[static_cast<size_t>(b)];
    });
    std::rotate(channels.begin(), channels.end() - narrow, channels.end());
    std::sort(channels.begin(), channels.begin() + narrow);
    std::sort(channels.begin() + narrow, channels.end());
    return channels;
  }

  // One matrix for all heads: the transform of the first channels, then the others as they are.
  BasisChange Turned(const ModelShape& shape, const std::vector<int64_t>& channels) const {
    const int64_t dim = shape.key_dim, narrow = Narrow(shape);
    const std::vector<float> transform = RealFourier(narrow);
    auto matrix = std::make_shared<std::vector<float>>(static_cast<size_t>(dim * dim));
    for (int64_t i = 0; i < dim; ++i) {
      float* row = matrix->data() + channels[static_cast<size_t>(i)] * dim;
      if (i >= narrow) row[i] = 1.0f;
      if (i < narrow) std::copy_n(transform.data() + i * narrow, narrow, row);
    }
    BasisChange change;
    change.there = std::move(matrix);
    change.dim = change.stored = dim;
    change.constant = false;
    return change;
  }

  double share_;
  int64_t value_bits_, group_, residual_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "vidkv",
    .paper = "arXiv:2503.16257",
    .summary = "keys as signs of Fourier coordinates and 2 bits, values as three levels",
    .departures =
        {"the reference's own reader takes signs for 0 and the size, three levels without it",
         "mirrored halves of the transform are stored once: 1 bit a number, there 2",
         "five numbers of three levels take a byte, 1.6 bits each; the reference takes 2",
         "entries are coded once; the reference codes all that was read whenever 128 wait",
         "entries of pictures that a question asks for do not keep 2 bits (the paper's option)",
         "the transform is a matrix: 4 bytes for each pair of channels of a layer"},
    .bytes =
        "key_dim * ((1 - key_share) * (1 / 8 + 2 / group) + key_share * (2 / 8 + 4 / group)) + "
        "value_dim * (1 / 5 + 2 / group); 4 * key_dim^2 a layer; up to `residual` uncoded",
    .params = {RealParam("key_share", 0.5, 0, 1, "share of the channels of keys that have 2 bits"),
               IntParam("value_bits", 0, 0, 8,
                        "1, 2, 3, 4 or 8: even steps of a channel; 0: three levels"),
               IntParam("group", 32, 16, 64, "entries that share a size: 16, 32 or 64"),
               IntParam("residual", 32, 16, 4096, "entries are coded so many at a time")},
    .make = Make<VidKv>(),
});

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Channels put into groups by likeness, so that those that share a scale have ranges alike.
//
// Paper: SKVQ, arXiv:2405.06219. Needs keys before rotation. Channels of a head are clustered by
// their least and largest numbers, over calibration texts or, without a calibration, in the prompt.
// Both ends of a group's range are clipped; scales and zeros are floats of 8 bits, rounded after
// codes were computed with them. The first entries and the newest stay as they are.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "core/strings.h"
#include "methods/calibration.h"
#include "methods/divisors.h"
#include "methods/layouts/coded.h"
#include "methods/registry.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

struct ChannelRange {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
};

// The number of each channel's cluster: k-means of (low, high) from channels at even shares of the
// order of their widths, of equal ones the first; ties go to the lower cluster.
std::vector<float> ClusterChannels(const std::vector<ChannelRange>& channels, int64_t count) {
  constexpr int kMostRounds = 100;
  const auto n = std::ssize(channels);
  std::vector<size_t> order(channels.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return channels[a].high - channels[a].low < channels[b].high - channels[b].low;
  });
  std::vector<ChannelRange> centres;
  for (int64_t c = 0; c < count; ++c) {
    centres.push_back(channels[order[static_cast<size_t>((2 * c + 1) * n / (2 * count))]]);
  }
  std::vector<float> cluster(channels.size(), -1.0f);
  for (int round = 0; round < kMostRounds; ++round) {
    bool moved = false;
    for (size_t i = 0; i < channels.size(); ++i) {
      size_t best = 0;
      double least = 0;
      for (size_t c = 0; c < centres.size(); ++c) {
        const double low = channels[i].low - centres[c].low;
        const double high = channels[i].high - centres[c].high;
        const double distance = low * low + high * high;
        if (c == 0 || distance < least) best = c, least = distance;
      }
      moved |= cluster[i] != static_cast<float>(best);
      cluster[i] = static_cast<float>(best);
    }
    if (!moved) break;
    for (size_t c = 0; c < centres.size(); ++c) {
      double low = 0, high = 0, members = 0;
      for (size_t i = 0; i < channels.size(); ++i) {
        if (cluster[i] != static_cast<float>(c)) continue;
        low += channels[i].low;
        high += channels[i].high;
        members += 1;
      }
      if (members > 0) centres[c] = {low / members, high / members};
    }
  }
  return cluster;
}

Tensor ChannelRows(LayerView& view, KvSide side, int64_t head, int64_t first) {
  if (side == KvSide::kValues) return view.Values(head, first);
  return view.shape().rotary_dim > 0 ? view.RawKeys(head, first) : view.Keys(head, first);
}

// Widens the ranges of the channels by the entries of the head from `first` on.
void Widen(LayerView& view, KvSide side, int64_t head, int64_t first, ChannelRange* channels) {
  if (view.lengths()[static_cast<size_t>(head)] <= first) return;
  const Tensor rows = ChannelRows(view, side, head, first);
  const int64_t dim = rows.shape[1];
  const Tensor ends = view.Scratch(DType::kF32, {2, dim});
  view.ops().rows->ReduceColumns(rows, Reduction::kMin, ends[0]);
  view.ops().rows->ReduceColumns(rows, Reduction::kMax, ends[1]);
  const std::vector<float> both = Fetch(view.ops(), ends);
  for (int64_t c = 0; c < dim; ++c) {
    channels[c].low = std::min(channels[c].low, double{both[static_cast<size_t>(c)]});
    channels[c].high = std::max(channels[c].high, double{both[static_cast<size_t>(dim + c)]});
  }
}

int64_t GroupsIn(int64_t dim, int64_t group) { return std::max<int64_t>(1, dim / group); }
int64_t DimOf(const ModelShape& shape, KvSide side) {
  return side == KvSide::kKeys ? shape.key_dim : shape.value_dim;
}
std::string ClustersName(KvSide side, int64_t layer) {
  return StrCat(side == KvSide::kKeys ? "keys.clusters." : "values.clusters.", layer);
}

class Skvq final : public Store {
 public:
  explicit Skvq(const Params& params)
      : key_bits_(params.Int("key_bits")),
        value_bits_(params.Int("value_bits")),
        group_(params.Int("group")),
        sinks_(params.Int("sinks")),
        recent_(params.Int("keep_recent")),
        clip_(params.Real("clip")) {}

  Needs needs() const override { return {.raw_keys = true}; }

  void Use(std::shared_ptr<const Calibration> calibration) override {
    calibration_ = std::move(calibration);
  }

  Status Check(const ModelShape& shape) const override {
    if (shape.latent_dim > 0) {
      return BadInput("groups channels of heads, and this model keeps latents in their place");
    }
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const int64_t dim = DimOf(shape, side);
      if (dim % std::min(group_, dim) == 0) continue;
      return BadInput(StrCat("group ", group_, " does not divide the ", dim,
                             " dims of an entry; they make whole groups: expected ",
                             DivisorsOf(dim)));
    }
    for (int64_t layer = 0; calibration_ != nullptr && layer < shape.layers; ++layer) {
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        KVG_TRY(CheckClusters(shape, side, layer));
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
    layout.tables.found = calibration_ == nullptr;
    if (calibration_ != nullptr) {
      KVG_ASSIGN(layout.tables.keys, Clusters(shape, KvSide::kKeys, layer));
      KVG_ASSIGN(layout.tables.values, Clusters(shape, KvSide::kValues, layer));
    }
    return PlanOf(std::move(layout), {.raw = shape.rotary_dim > 0});
  }

  void Calibrate(LayerView& view, StorePlan& plan) const override {
    if (calibration_ != nullptr) return;
    Coded layout = *plan.Get<Coded>();
    layout.tables.keys = Found(view, KvSide::kKeys);
    layout.tables.values = Found(view, KvSide::kValues);
    plan = PlanOf(std::move(layout), plan.turn);
  }

 private:
  void Fill(int64_t bits, KvCodec& codec) const {
    codec.kind = KvCodecKind::kClusters;
    codec.bits = static_cast<int>(bits);
    codec.stages = GroupsIn(codec.dim, group_);
    codec.clip = static_cast<float>(clip_);
  }

  Result<Tensor> Clusters(const ModelShape& shape, KvSide side, int64_t layer) const {
    const int64_t sizes[] = {shape.kv_heads, DimOf(shape, side)};
    return calibration_->Find(ClustersName(side, layer), sizes);
  }

  // Every channel is in one of the groups.
  Status CheckClusters(const ModelShape& shape, KvSide side, int64_t layer) const {
    KVG_ASSIGN(const Tensor clusters, Clusters(shape, side, layer));
    const int64_t dim = DimOf(shape, side), groups = GroupsIn(dim, group_);
    for (int64_t i = 0; i < clusters.Numel(); ++i) {
      const float group = clusters.f32()[i];
      if (group >= 0 && group < static_cast<float>(groups) && group == std::floor(group)) continue;
      return BadInput(StrCat(calibration_->path, ": table '", ClustersName(side, layer),
                             "': channel ", i % dim, " of head ", i / dim, " is in group ", group,
                             "; groups are whole numbers from 0 to ", groups - 1));
    }
    return {};
  }

  Tensor Found(LayerView& view, KvSide side) const {
    const int64_t heads = view.shape().kv_heads, dim = DimOf(view.shape(), side);
    std::vector<float> all;
    for (int64_t h = 0; h < heads; ++h) {
      std::vector<ChannelRange> channels(static_cast<size_t>(dim));
      const int64_t length = view.lengths()[static_cast<size_t>(h)];
      Widen(view, side, h, length > sinks_ ? sinks_ : 0, channels.data());
      if (length == 0) channels.assign(channels.size(), {0, 0});
      const std::vector<float> one = ClusterChannels(channels, GroupsIn(dim, group_));
      all.insert(all.end(), one.begin(), one.end());
    }
    const Tensor out = view.Scratch(DType::kF32, {heads, dim});
    view.ops().memory->Copy(View(all, {heads, dim}), out);
    return out;
  }

  int64_t key_bits_, value_bits_, group_, sinks_, recent_;
  double clip_;
  std::shared_ptr<const Calibration> calibration_;
};

// Ranges of all channels over the texts.
class SkvqCalibrator final : public Calibrator {
 public:
  SkvqCalibrator(const Params& params, const ModelShape& shape, std::span<const int64_t>)
      : shape_(shape), group_(params.Int("group")), sinks_(params.Int("sinks")) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const int64_t channels = shape.layers * shape.kv_heads * DimOf(shape, side);
      ranges_[static_cast<size_t>(side)].resize(static_cast<size_t>(channels));
    }
  }

  Needs needs(int) const override { return {.raw_keys = true}; }

  void Observe(int, LayerView& view) override {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const int64_t dim = DimOf(shape_, side);
      for (int64_t h = 0; h < shape_.kv_heads; ++h) {
        const int64_t length = view.lengths()[static_cast<size_t>(h)];
        Widen(
            view, side, h, length > sinks_ ? sinks_ : 0,
            ranges_[static_cast<size_t>(side)].data() + (view.layer() * shape_.kv_heads + h) * dim);
      }
    }
  }

  Calibration::Tables Finish(Ops&) override {
    Calibration::Tables tables;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const int64_t dim = DimOf(shape_, side);
      auto from = ranges_[static_cast<size_t>(side)].begin();
      for (int64_t layer = 0; layer < shape_.layers; ++layer) {
        std::vector<float> all;
        for (int64_t h = 0; h < shape_.kv_heads; ++h, from += dim) {
          const std::vector<float> one = ClusterChannels({from, from + dim}, GroupsIn(dim, group_));
          all.insert(all.end(), one.begin(), one.end());
        }
        tables[ClustersName(side, layer)] = {{shape_.kv_heads, dim}, std::move(all)};
      }
    }
    return tables;
  }

 private:
  const ModelShape shape_;
  const int64_t group_, sinks_;
  std::vector<ChannelRange> ranges_[2];  // [layers][kv_heads][dim]
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kStore,
    .id = "skvq",
    .paper = "arXiv:2405.06219",
    .summary = "channels in groups by likeness, clipped ranges, scales of 8 bits",
    .departures = {"groups are of channels of one head, so that heads have pages of their own",
                   "without a calibration groups are those of the prompt",
                   "clusters start at channels of evenly spaced widths, not at drawn ones",
                   "attention of the prompt reads uncoded entries"},
    .bytes = "for each side: dim * bits / 8 + 2 * dim / group an entry; 4 * dim a head for the "
             "groups of channels",
    .params = {IntParam("key_bits", 2, 1, 4, "bits of a key's number"),
               IntParam("value_bits", 2, 1, 4, "bits of a value's number"),
               IntParam("group", 128, 1, 4096,
                        "channels for each group: so many groups as that makes; at most an entry"),
               RealParam("clip", 0.96, 0.01, 1, "both ends of a range are multiplied by it"),
               IntParam("sinks", 5, 0, 4096, "first entries that stay uncoded"),
               IntParam("keep_recent", 128, 0, 1 << 20, "newest entries that stay uncoded"),
               CalibrationParam()},
    .make = Make<Skvq>(),
    .calibrate = MakeCalibrator<SkvqCalibrator>,
    .calibrated_params = {"group", "sinks"},
});

}  // namespace
}  // namespace kvgauge

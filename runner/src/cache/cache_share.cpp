// SPDX-License-Identifier: Apache-2.0
// Two layers that share the directions of their keys and values (MiniCache, arXiv:2405.14366).
//
// Of each entry both layers keep one direction, between theirs on the sphere, and a magnitude each.
// Entries whose directions differ most stay as they are, in a part of their own before the others.
// What comes later waits in a third part, and shares when it is sealed if the plan says so.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/strings.h"
#include "kernels/sphere.h"
#include "src/cache/cache_layer.h"

namespace kvgauge {
namespace {

// One side of one head in both layers, on the host.
struct Pair {
  int64_t dim = 0;
  std::vector<float> lower, upper;                    // [n, dim]
  std::vector<double> lower_norm, upper_norm, angle;  // [n]

  void Measure() {
    const int64_t n = std::ssize(lower) / dim;
    for (int64_t i = 0; i < n; ++i) {
      const Arc arc = ArcOf(i);
      lower_norm.push_back(arc.a_norm);
      upper_norm.push_back(arc.b_norm);
      angle.push_back(arc.angle);
    }
  }
  Arc ArcOf(int64_t i) const {
    return Arc(&lower[static_cast<size_t>(i * dim)], &upper[static_cast<size_t>(i * dim)], dim);
  }
};

std::vector<float> Rows(const std::vector<float>& all, int64_t dim,
                        std::span<const int32_t> picked) {
  std::vector<float> rows;
  for (const int32_t i : picked) {
    const float* row = &all[static_cast<size_t>(i * dim)];
    rows.insert(rows.end(), row, row + dim);
  }
  return rows;
}

std::vector<int32_t> Pick(const std::vector<int32_t>& all, std::span<const int32_t> picked) {
  std::vector<int32_t> numbers;
  for (const int32_t i : picked) numbers.push_back(all[static_cast<size_t>(i)]);
  return numbers;
}

std::vector<float> Narrow(const std::vector<double>& all, std::span<const int32_t> picked) {
  std::vector<float> numbers;
  for (const int32_t i : picked) numbers.push_back(static_cast<float>(all[static_cast<size_t>(i)]));
  return numbers;
}

}  // namespace

std::vector<float> CacheLayer::HostRows(KvSide side, int64_t head, int64_t first) const {
  const int64_t n = length(head) - first, dim = HeadDim(side);
  std::vector<float> host(static_cast<size_t>(n * dim));
  if (n == 0) return host;
  const Buffer memory = ops().memory->Allocate(n * dim * 4);
  const Tensor rows = memory.As(DType::kF32, {n, dim});
  Read(side, head, first, rows);
  ops().memory->Copy(rows, View(host, {n, dim}));
  return host;
}

Status CacheLayer::AppendHost(Stream& stream, const std::vector<float>& rows) const {
  const int64_t dim = stream.spec().dim, n = std::ssize(rows) / dim;
  if (n == 0) return {};
  const Buffer memory = ops().memory->Allocate(n * dim * 4);
  const Tensor device = memory.As(DType::kF32, {n, dim});
  ops().memory->Copy(View(rows, {n, dim}), device);
  return stream.Append(device);
}

Status CacheLayer::Share(CacheLayer& lower, CacheLayer& upper, const StorePlan& plan) {
  const auto plain = [](const CacheLayer& layer) {
    return layer.parts_.size() == 1 && !layer.split_ && !layer.plan_.raw_keys &&
           layer.key_bases_.empty() && layer.narrow_bases_.empty() && layer.value_bases_.empty() &&
           !layer.setup_->values_in_keys;
  };
  if (!plain(lower) || !plain(upper) || plan.keys.coded() || plan.values.coded()) {
    return Unsupported(
        "share_from_layer: only rotated, uncoded keys and values on the device can "
        "be shared");
  }
  if (!(plan.share_weight >= 0 && plan.share_weight <= 1) ||
      !(plan.share_retain >= 0 && plan.share_retain <= 1)) {
    return BadInput(StrCat("share_weight ", plan.share_weight, ", share_retain ", plan.share_retain,
                           ": both must be 0 to 1"));
  }
  const CacheLayer old_lower(lower), old_upper(upper);
  for (CacheLayer* layer : {&lower, &upper}) {
    layer->parts_.clear();
    for (int part = 0; part < 3; ++part) layer->parts_.push_back(layer->NewPart(PartKind::kPlain));
  }
  for (int64_t h = 0; h < lower.setup_->kv_heads; ++h) {
    const auto at = static_cast<size_t>(h);
    const std::vector<int32_t> positions = old_lower.Positions(h);
    if (positions != old_upper.Positions(h)) {
      return Unsupported(
          StrCat("share_from_layer: KV head ", h, " holds other entries in the layer before"));
    }
    std::array<Pair, 2> pairs;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      Pair& pair = pairs[static_cast<size_t>(side)];
      pair.dim = lower.HeadDim(side);
      pair.lower = old_lower.HostRows(side, h);
      pair.upper = old_upper.HostRows(side, h);
      pair.Measure();
    }
    // An entry is one key and one value: it stays when the two together differ most.
    const int64_t n = std::ssize(positions);
    std::vector<int32_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    const auto distance = [&](int32_t i) {
      return pairs[0].angle[static_cast<size_t>(i)] + pairs[1].angle[static_cast<size_t>(i)];
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return distance(a) > distance(b); });
    const auto retained =
        static_cast<int64_t>(std::floor(plan.share_retain * static_cast<double>(n) + 0.5));
    std::sort(order.begin(), order.begin() + retained);
    std::sort(order.begin() + retained, order.end());
    const auto kept = std::span<const int32_t>(order).first(static_cast<size_t>(retained));
    const auto shared = std::span<const int32_t>(order).subspan(static_cast<size_t>(retained));
    for (CacheLayer* layer : {&lower, &upper}) {
      KVG_ASSIGN(Head head, layer->GatheredHead(h, order, {}));
      head.has_positions = layer->heads_[at].has_positions || retained > 0;
      if (head.has_positions) KVG_TRY(head.positions.Assign(Pick(positions, order)));
      layer->heads_[at] = std::move(head);
    }
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const Pair& pair = pairs[static_cast<size_t>(side)];
      std::vector<float> directions(shared.size() * static_cast<size_t>(pair.dim));
      for (size_t i = 0; i < shared.size(); ++i) {
        pair.ArcOf(shared[i]).Between(plan.share_weight,
                                      &directions[i * static_cast<size_t>(pair.dim)]);
      }
      KVG_TRY(lower.AppendHost(lower.SharedStream(side, 0, h), Rows(pair.lower, pair.dim, kept)));
      KVG_TRY(upper.AppendHost(upper.SharedStream(side, 0, h), Rows(pair.upper, pair.dim, kept)));
      KVG_TRY(lower.AppendHost(lower.SharedStream(side, 1, h), directions));
      upper.SharedStream(side, 1, h) = lower.SharedStream(side, 1, h);
      for (CacheLayer* layer : {&lower, &upper}) {
        Head& head = layer->heads_[at];
        EntryArray& scales = side == KvSide::kKeys ? head.key_scales : head.value_scales;
        KVG_TRY(scales.Assign(Narrow(layer == &lower ? pair.lower_norm : pair.upper_norm, shared)));
      }
    }
  }
  for (CacheLayer* layer : {&lower, &upper}) {
    layer->sharing_ = layer == &lower ? Sharing::kOwner : Sharing::kBorrower;
    layer->plan_.share_weight = plan.share_weight;
    layer->plan_.share_later = plan.share_later;
    layer->read_words_.clear();
    layer->last_rows_ = 0;
    layer->Publish();
  }
  return {};
}

Status CacheLayer::ShareLater(CacheLayer& lower, CacheLayer& upper, Buffer* memory) {
  if (!lower.plan_.share_later) return {};
  for (int64_t h = 0; h < lower.setup_->kv_heads; ++h) {
    const int64_t n = lower.parts_[2].keys[static_cast<size_t>(h)].length();
    if (n == 0) continue;
    const int64_t first = lower.length(h) - n;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const int64_t dim = lower.HeadDim(side), numbers = n * (3 * dim + 2);
      if (memory->size_bytes() < numbers * 4) *memory = lower.ops().memory->Allocate(numbers * 4);
      const Tensor all = memory->As(DType::kF32, {numbers});
      const auto matrix = [&](int64_t i) {
        return all.Slice(i * n * dim, (i + 1) * n * dim).Reshape({n, dim});
      };
      const Tensor norms = all.Slice(3 * n * dim, numbers).Reshape({2, n});
      lower.Read(side, h, first, matrix(0));
      upper.Read(side, h, first, matrix(1));
      lower.ops().algebra->DirectionsBetween(matrix(0), matrix(1), lower.plan_.share_weight,
                                             matrix(2), norms[0], norms[1]);
      Stream& shared = lower.SharedStream(side, 1, h);
      KVG_TRY(shared.Append(matrix(2)));
      upper.SharedStream(side, 1, h) = shared;
      for (CacheLayer* layer : {&lower, &upper}) {
        Head& head = layer->heads_[static_cast<size_t>(h)];
        EntryArray& scales = side == KvSide::kKeys ? head.key_scales : head.value_scales;
        KVG_TRY(scales.Reserve(scales.size() + n));
        lower.ops().memory->Copy(norms[layer == &lower ? 0 : 1], scales.Extend(n));
        Stream& fresh = layer->SharedStream(side, 2, h);
        fresh = Stream(fresh.spec(), *layer->pool_);
      }
    }
  }
  for (CacheLayer* layer : {&lower, &upper}) {
    layer->read_words_.clear();
    layer->last_rows_ = 0;
    layer->Publish();
  }
  return {};
}

void CacheLayer::ScaleShared(KvSide side, int64_t head, int64_t first, Tensor rows) const {
  const int64_t begin = StreamsOf(parts_[0], side)[static_cast<size_t>(head)].length();
  const int64_t end = begin + StreamsOf(parts_[1], side)[static_cast<size_t>(head)].length();
  const int64_t from = std::max(begin, first), to = std::min(end, first + rows.shape[0]);
  if (from >= to) return;
  const Head& one = heads_[static_cast<size_t>(head)];
  const Tensor scales = (side == KvSide::kKeys ? one.key_scales : one.value_scales).view();
  const int64_t n = to - from, dim = rows.shape[1];
  std::vector<int32_t> every(static_cast<size_t>(n));
  std::iota(every.begin(), every.end(), 0);
  const Buffer memory = ops().memory->Allocate(n * (dim + 1) * 4);
  const Tensor all = memory.As(DType::kF32, {n * (dim + 1)});
  const Tensor directions = all.Slice(0, n * dim).Reshape({n, dim});
  Tensor index = all.Slice(n * dim, n * (dim + 1));
  index.dtype = DType::kI32;
  ops().memory->Copy(View(every, {n}), index);
  const Tensor part = rows.Slice(from - first, to - first);
  ops().memory->Copy(part, directions);
  ops().rows->Fill(0.0f, part);
  ops().select->ScatterAdd(directions, index, scales.Slice(from - begin, to - begin), part);
}

}  // namespace kvgauge

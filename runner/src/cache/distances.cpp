// SPDX-License-Identifier: Apache-2.0
#include "src/cache/distances.h"

#include <algorithm>
#include <vector>

#include "core/rounding.h"
#include "src/cache/cache_layer.h"

namespace kvgauge {

namespace {

float DistanceOf(float slope, int64_t position, float rounded_scale) {
  const auto at = static_cast<float>(position);
  if (rounded_scale == 0.0f) return slope * at;
  const auto rounded = [](float value) { return Rounded(DType::kBF16, value); };
  return rounded_scale * rounded(rounded(slope) * rounded(at));
}

}  // namespace

DistanceTable::DistanceTable(Ops& ops, std::span<const float> slopes, float rounded_scale,
                             int64_t capacity)
    : heads_(std::ssize(slopes)), capacity_(capacity) {
  std::vector<float> numbers;
  numbers.reserve(static_cast<size_t>(heads_ * capacity));
  for (const float slope : slopes) {
    for (int64_t p = 0; p < capacity; ++p) numbers.push_back(DistanceOf(slope, p, rounded_scale));
  }
  memory_ = ops.memory->Allocate(heads_ * capacity * 4);
  ops.memory->Copy(View(numbers, {heads_, capacity}), memory_.As(DType::kF32, {heads_, capacity}));
}

void DistanceTable::At(Ops& ops, int64_t query_head, const Tensor& positions,
                       const Tensor& out) const {
  const int64_t n = positions.shape[0];
  ops.select->Gather(Of(query_head).Reshape({capacity_, 1}), positions, out.Reshape({n, 1}));
}

bool CacheLayer::CountsBySlot(const HeadEntries& head) { return !head.has_positions; }

// Rows of the memory are as long as it allows, so that what was placed stays where it is.
Tensor CacheLayer::PlacedDistances(int64_t query_head) const {
  const int64_t heads = setup().query_heads, stride = distance_memory_.size_bytes() / 4 / heads;
  return distance_memory_.As(DType::kF32, {heads, stride})[query_head];
}

void CacheLayer::PublishDistances() {
  if (setup().slopes.empty() || width() == 0) return;
  KVG_CHECK(distances_ != nullptr && distances_->capacity() >= tokens_,
            "distances of positions that no table reaches");
  const auto parts = std::ssize(entries_.parts);
  const int64_t heads = setup().query_heads, group = heads / setup().kv_heads;
  int64_t longest = 0;
  for (const HeadEntries& head : entries_.heads) {
    if (!CountsBySlot(head)) longest = std::max(longest, head.length);
  }
  if (distance_memory_.size_bytes() < heads * longest * 4) {
    distance_memory_ = ops().memory->Allocate(heads * (longest + longest / 2) * 4);
    placed_.clear();
  }
  distance_starts_.assign(static_cast<size_t>(heads * parts), nullptr);
  for (int64_t h = 0; h < setup().kv_heads; ++h) {
    const bool by_slot = CountsBySlot(entries_.heads[static_cast<size_t>(h)]);
    for (int64_t g = 0; g < group; ++g) {
      const Tensor all = by_slot ? distances_->Of(h * group + g) : PlacedDistances(h * group + g);
      int64_t first = 0;
      for (int64_t p = 0; p < parts; ++p) {
        const int64_t at = h * parts + p;
        distance_starts_[static_cast<size_t>(at * group + g)] = all.f32() + first;
        first += segments_[static_cast<size_t>(at)].length;
      }
    }
  }
  if (!read_biases_.empty()) return;
  for (size_t i = 0; i < segments_.size(); ++i) {
    KVG_CHECK(segments_[i].skip == 0, "distances count entries, not slots");
    segments_[i].read_bias = &distance_starts_[i * static_cast<size_t>(group)];
  }
}

void CacheLayer::PlaceDistances() {
  if (setup().slopes.empty()) return;
  const int64_t group = setup().query_heads / setup().kv_heads;
  placed_.resize(entries_.heads.size(), 0);
  for (size_t h = 0; h < entries_.heads.size(); ++h) {
    const HeadEntries& head = entries_.heads[h];
    if (CountsBySlot(head) || placed_[h] == head.length) continue;
    const Tensor positions = head.positions.view().Slice(placed_[h], head.length);
    for (int64_t g = 0; g < group; ++g) {
      const int64_t query_head = static_cast<int64_t>(h) * group + g;
      distances_->At(ops(), query_head, positions,
                     PlacedDistances(query_head).Slice(placed_[h], head.length));
    }
    placed_[h] = head.length;
  }
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Plans of decode steps on a device, executed without the host knowing what stays. It knows how
// many entries do, and that decides what it counts by: lengths, slots that are skipped, and pages
// that are given back.
#include <algorithm>
#include <array>
#include <numeric>

#include "src/cache/cache_layer.h"

namespace kvgauge {
namespace {

// Entries that a head's list may reach; beyond, a matrix of what merges is the better way.
constexpr int64_t kMostTargets = 4096;

bool MayMerge(const MergeList& merge) {
  if (merge.empty()) return merge.self.empty();
  return merge.from.shape[0] * merge.spread <= kMostTargets;
}

KvMerge MergeOf(const MergeList& merge) {
  return {.from = merge.from,
          .to = merge.to,
          .weight = merge.weight,
          .self = merge.self,
          .spread = merge.spread};
}

}  // namespace

bool CacheLayer::CanReduceOnDevice(std::span<const HeadPlan> plan) const {
  if (entries_.pool->OnHost() || entries_.parts.size() > 1 || !layout_->CheckReduce(plan).ok())
    return false;
  for (const std::vector<Stream>* streams : {&entries_.parts[0].keys, &entries_.parts[0].values}) {
    if (streams->empty()) continue;  // values in keys
    if (std::ssize(*streams) != setup().kv_heads) return false;
    const int64_t dim = streams->front().spec().dim;
    const bool alike = std::all_of(streams->begin(), streams->end(), [&](const Stream& stream) {
      return stream.coded() == 0 && stream.spec().dim == dim;
    });
    if (!alike) return false;
  }
  for (size_t h = 0; h < plan.size(); ++h) {
    const HeadPlan& one = plan[h];
    if (one.keep.empty() || one.keep.shape[0] == 0 ||
        one.keep.shape[0] > entries_.heads[h].length || !one.keep.IsContiguous() ||
        !one.log_weight.empty() || !MayMerge(one.keys) || !MayMerge(one.values)) {
      return false;
    }
  }
  return true;
}

Result<bool> CacheLayer::ReduceOnDevice(std::span<const HeadPlan> plan, const Tensor& outcome) {
  KVG_CHECK(std::ssize(plan) == setup().kv_heads, "a plan for each head");
  if (!CanReduceOnDevice(plan)) return false;
  // What can fail comes first and changes no entry.
  LayerPart& part = entries_.parts[0];
  for (std::vector<Stream>* streams : {&part.keys, &part.values}) {
    for (Stream& stream : *streams) {
      // Pages that are shared, without room for others: built anew there may be room.
      if (!stream.OwnAll().ok()) return false;
    }
  }
  for (size_t h = 0; h < entries_.heads.size(); ++h) {
    HeadEntries& head = entries_.heads[h];
    if (!head.has_positions && plan[h].keep.shape[0] < head.length) {
      std::vector<int32_t> positions(static_cast<size_t>(head.length));
      std::iota(positions.begin(), positions.end(), 0);
      KVG_TRY(head.positions.Assign(positions));
      head.has_positions = true;
    }
    for (EntryArray* array : head.arrays()) KVG_TRY(array->Reserve(array->size()));
  }

  const bool up = MaySkip(), values = !part.values.empty();
  KvFormat format = setup().format;
  format.by_entry = entries_.by_entry;
  format.key_dim = part.keys[0].spec().dim;
  if (values) format.value_dim = part.values[0].spec().dim;
  std::vector<KvKeep> keeps;
  for (size_t h = 0; h < plan.size(); ++h) {
    KvKeep& keep = keeps.emplace_back();
    keep.index = plan[h].keep;
    keep.length = entries_.heads[h].length;
    keep.first = part.keys[h].skip();
    keep.up = up;
    keep.key_pages = part.keys[h].float_pages();
    keep.keys = MergeOf(plan[h].keys);
    if (values) {
      keep.value_pages = part.values[h].float_pages();
      keep.values = MergeOf(plan[h].values);
    }
    const auto held = entries_.heads[h].arrays();
    for (size_t i = 0; i < held.size(); ++i) keep.numbers[i] = held[i]->view();
  }
  ops().attention->KeepKv(format, keeps, outcome);

  for (size_t h = 0; h < plan.size(); ++h) {
    const int64_t count = keeps[h].index.shape[0];
    part.keys[h].Shrink(count, up);
    if (values) part.values[h].Shrink(count, up);
    for (EntryArray* array : entries_.heads[h].arrays()) array->Truncate(count);
    entries_.heads[h].length = count;
  }
  Republish();
  return true;
}

}  // namespace kvgauge

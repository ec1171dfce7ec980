// SPDX-License-Identifier: Apache-2.0
#include "runner/kv_cache.h"

#include <algorithm>
#include <utility>

namespace kvgauge {

KvCache::KvCache(const ModelConfig& config, DType dtype, RopeFrequencies frequencies, Ops& ops)
    : format_{.dtype = dtype, .key_dim = config.key_dim, .value_dim = config.value_dim},
      frequencies_(std::move(frequencies)),
      ops_(&ops),
      layers_(static_cast<size_t>(config.layer_count())) {
  for (LayerStore& layer : layers_) {
    layer.key_pages.resize(static_cast<size_t>(config.kv_heads));
    layer.value_pages.resize(static_cast<size_t>(config.kv_heads));
    layer.segments.resize(static_cast<size_t>(config.kv_heads));
    for (const KvSegment& segment : layer.segments) layer.heads.push_back({&segment, 1});
  }
}

void KvCache::Reserve(int64_t entries) {
  const int64_t wanted = (entries + kKvPageEntries - 1) / kKvPageEntries;
  if (wanted <= pages_) return;
  // At least an eighth more, so that token-wise growth allocates rarely.
  const int64_t pages = pages_ == 0 ? wanted : std::max(wanted, pages_ + pages_ / 8);
  const int64_t more = pages - pages_;
  const int64_t key_bytes = ops_->attention->KeyPageBytes(format_);
  const int64_t value_bytes = ops_->attention->ValuePageBytes(format_);
  const auto heads = static_cast<int64_t>(layers_.empty() ? 0 : layers_[0].heads.size());
  for (LayerStore& layer : layers_) {
    // One slab a layer, head by head: what a head reads lies in one piece.
    Buffer slab = ops_->memory->Allocate(heads * more * (key_bytes + value_bytes));
    auto* next = static_cast<char*>(slab.data());
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t p = 0; p < more; ++p, next += key_bytes) layer.key_pages[h].push_back(next);
      for (int64_t p = 0; p < more; ++p, next += value_bytes) layer.value_pages[h].push_back(next);
      layer.segments[h].key_pages = layer.key_pages[h].data();
      layer.segments[h].value_pages = layer.value_pages[h].data();
    }
    slabs_.push_back(std::move(slab));
  }
  pages_ = pages;
}

void KvCache::SetLength(int64_t length) {
  KVG_CHECK(length <= pages_ * kKvPageEntries, "cache length past its pages");
  length_ = length;
  for (LayerStore& layer : layers_) {
    for (KvSegment& segment : layer.segments) segment.length = length;
  }
}

std::vector<KvTarget> KvCache::Targets(int64_t layer, int64_t first_entry) const {
  std::vector<KvTarget> targets;
  for (const KvSegment& segment : layers_[layer].segments) {
    targets.push_back({segment.key_pages, segment.value_pages, first_entry});
  }
  return targets;
}

int64_t KvCache::payload_bytes() const {
  int64_t heads = 0;
  for (const LayerStore& layer : layers_) heads += static_cast<int64_t>(layer.heads.size());
  return heads * length_ * (format_.key_dim + format_.value_dim) * SizeOf(format_.dtype);
}

int64_t KvCache::resident_bytes() const {
  int64_t bytes = 0;
  for (const Buffer& slab : slabs_) bytes += slab.size_bytes();
  return bytes;
}

}  // namespace kvgauge

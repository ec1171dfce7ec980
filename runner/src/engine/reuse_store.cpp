// SPDX-License-Identifier: Apache-2.0
#include "runner/reuse_store.h"

#include <algorithm>
#include <utility>

namespace kvgauge {

const KvCache* ReuseStore::FindChunk(std::span<const int32_t> ids, int64_t lead,
                                     const RopeFrequencies& turns) {
  for (auto at = kept_.begin(); at != kept_.end(); ++at) {
    if (!at->chunk || at->lead != lead || at->turns != turns ||
        !std::equal(ids.begin(), ids.end(), at->ids.begin(), at->ids.end())) {
      continue;
    }
    kept_.splice(kept_.begin(), kept_, at);
    return &*kept_.front().cache;
  }
  return nullptr;
}

const KvCache* ReuseStore::FindPrefix(std::span<const int32_t> ids, const RopeFrequencies& turns,
                                      int64_t* tokens) {
  auto best = kept_.end();
  *tokens = 0;
  for (auto at = kept_.begin(); at != kept_.end(); ++at) {
    if (at->chunk || at->turns != turns) continue;
    const auto ends = std::mismatch(ids.begin(), ids.end(), at->ids.begin(), at->ids.end());
    const int64_t common = ends.first - ids.begin();
    if (common <= *tokens) continue;
    *tokens = common;
    best = at;
  }
  if (best == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, best);
  return &*kept_.front().cache;
}

const KvCache* ReuseStore::Put(Kept kept) {
  tokens_ += std::ssize(kept.ids);
  kept_.push_front(std::move(kept));
  while (tokens_ > most_tokens_ && kept_.size() > 1) {
    tokens_ -= std::ssize(kept_.back().ids);
    kept_.pop_back();
  }
  return &*kept_.front().cache;
}

int64_t ReuseStore::bytes() const {
  int64_t sum = 0;
  for (const Kept& kept : kept_) sum += kept.cache->Bytes().resident();
  return sum;
}

}  // namespace kvgauge

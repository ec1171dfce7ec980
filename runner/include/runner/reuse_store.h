// SPDX-License-Identifier: Apache-2.0
// Caches of texts that were read before, by the ids of their tokens: whole prompts, of which later
// ones share the beginning, and chunks that were read by themselves.
//
// A store belongs to one model and to the pools of its caches. Blocks are shared with the sequences
// that go on with them, until one of them writes. What was used longest ago goes first, whether or
// not anything will ask for it again, so what a sequence finds depends on what came before; what it
// then holds does not. For one thread.
#pragma once

#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <vector>

#include "runner/kv_cache.h"

namespace kvgauge {

class ReuseStore {
 public:
  // Holds caches of `most_tokens` tokens together, and the newest one whatever its length. They lie
  // in `pools`, which outlive the store.
  ReuseStore(CachePools& pools, int64_t most_tokens) : pools_(pools), most_tokens_(most_tokens) {}

  struct Kept {
    std::vector<int32_t> ids;  // of all tokens that the cache has seen
    RopeFrequencies turns;     // of the sequence: the same text is another where these differ
    bool chunk = false;        // read by itself, keys before rotation
    int64_t lead = 0;          // its first tokens that are not its own
    std::optional<KvCache> cache;
  };

  // The cache of this text; null where there is none. Valid until the next Put.
  const KvCache* FindChunk(std::span<const int32_t> ids, int64_t lead,
                           const RopeFrequencies& turns);
  // The cache that has most tokens in common with the beginning of `ids`, and how many that are.
  const KvCache* FindPrefix(std::span<const int32_t> ids, const RopeFrequencies& turns,
                            int64_t* tokens);
  const KvCache* Put(Kept kept);

  CachePools& pools() const { return pools_; }
  int64_t tokens() const { return tokens_; }
  // As if each cache were alone.
  int64_t bytes() const;

 private:
  CachePools& pools_;
  int64_t most_tokens_;
  int64_t tokens_ = 0;
  std::list<Kept> kept_;  // the newest first
};

}  // namespace kvgauge

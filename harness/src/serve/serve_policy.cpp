// SPDX-License-Identifier: Apache-2.0
#include "src/serve/serve_policy.h"

#include <algorithm>

#include "core/strings.h"

namespace kvgauge {
namespace {

using P = ServePolicy;

const std::vector<ServePolicy>& AllServePolicies() {
  static const std::vector<ServePolicy> policies = {
      {.name = "fcfs", .what = "first come, first served, with chunked prefill", .field = "Orca"},
      {.name = "whole_prompts",
       .what = "fcfs; decoding waits while a prompt is read",
       .chunk_rows = 0},
      {.name = "shortest",
       .what = "the shortest request first, by its known length",
       .order = P::Order::kShortest},
      {.name = "recompute",
       .what = "admits by what is held now; makes room by dropping the newest cache",
       .preempt = P::Preempt::kRecompute},
      {.name = "swap",
       .what = "admits by what is held now; makes room by moving the newest cache to the host",
       .preempt = P::Preempt::kSwap},
      {.name = "queues",
       .what = "queues of falling priority that preempt; caches wait on the host",
       .field = "FastServe",
       .order = P::Order::kQueues,
       .preempt = P::Preempt::kSwap},
      {.name = "radix",
       .what = "a tree of prefixes, kept until memory is needed",
       .field = "RadixAttention",
       .share = P::Share::kRadix},
      {.name = "chunk_tree",
       .what = "a tree of whole pages that live requests share",
       .field = "ChunkAttention",
       .share = P::Share::kChunks},
      {.name = "keep_host",
       .what = "a conversation's cache waits on the host, dropped where that is full",
       .field = "Pensieve",
       .keep = P::Keep::kHost},
      {.name = "keep_disk",
       .what = "a conversation's cache waits on the host, or on disk where that is full",
       .field = "CachedAttention",
       .keep = P::Keep::kDisk},
  };
  return policies;
}

}  // namespace

std::span<const ServePolicy> ServePolicies() { return AllServePolicies(); }

Result<ServePolicy> FindServePolicy(std::string_view name) {
  std::vector<std::string> known;
  for (const ServePolicy& policy : AllServePolicies()) {
    if (policy.name == name) return policy;
    known.push_back(policy.name);
  }
  return BadInput(StrCat("--policies: ", Quoted(name), " is not known", DidYouMean(name, known),
                         "; expected ", Join(known, ", ")));
}

}  // namespace kvgauge

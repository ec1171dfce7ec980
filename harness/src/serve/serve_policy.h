// SPDX-License-Identifier: Apache-2.0
// Who is served when, and where caches wait meanwhile: the policies of `bench capacity`. None of
// them changes a token of any request.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace kvgauge {

struct ServePolicy {
  enum class Order {
    kArrival,   // first come, first served
    kShortest,  // the shortest prompt and answer first, of those that wait; lengths are known
    kQueues,    // queues of falling priority; who has had its share of one goes to the next
  };
  // What makes room when sequences have grown into all memory.
  enum class Preempt {
    kNone,       // it does not happen: a sequence is admitted with all it will hold
    kRecompute,  // the newest one's cache is dropped and made again
    kSwap,       // it is moved to the host and back
  };
  // Prompts that begin alike read the beginning once.
  enum class Share {
    kNone,
    kRadix,   // a tree of tokens that keeps what was read, until memory is needed
    kChunks,  // a tree of whole pages that live sequences share
  };
  // A conversation's cache between two of its turns.
  enum class Keep {
    kNone,  // dropped: the next turn reads everything again
    kHost,  // in host memory; what does not fit there is dropped, the oldest first
    kDisk,  // in host memory; what does not fit there goes to disk
  };

  std::string name = "fcfs";
  std::string what = {};   // for people
  std::string field = {};  // the rows of configs/field.json that it stands for; "": none
  Order order = Order::kArrival;
  Preempt preempt = Preempt::kNone;
  Share share = Share::kNone;
  Keep keep = Keep::kNone;
  // Rows of a prompt that are read beside decode steps; 0: prompts are read whole, and the others
  // wait.
  int64_t chunk_rows = 512;
};

// Queues of ServePolicy::kQueues: how long the first one's turn is, in decode steps; every other
// one has twice that of the queue before it. Reading a prompt counts as a step for each
// kStepRows of it, and a sequence joins the first queue whose turn is long enough for that.
inline constexpr int64_t kServeQueues = 6;
inline constexpr int64_t kFirstTurnSteps = 16;
inline constexpr int64_t kStepRows = 64;
// Who was not served for so many passes goes to the first queue again.
inline constexpr int64_t kStarvedPasses = 4096;

std::span<const ServePolicy> ServePolicies();
// An unknown name is an error with the known ones.
Result<ServePolicy> FindServePolicy(std::string_view name);

}  // namespace kvgauge

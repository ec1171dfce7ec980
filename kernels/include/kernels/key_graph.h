// SPDX-License-Identifier: Apache-2.0
// A graph of keys, made of queries, in which a best-first search finds the keys that have the
// largest products with a query: RoarGraph, arXiv:2408.08933.
//
// All of it is computed on the host, by the same code whatever the device: each hop of a search
// waits for the one before it. Products are sums of one order; among equal ones the lower index is
// the nearer. So one graph and one search have one result everywhere. A graph may be searched by
// several threads at once, each with a Walk of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/tensor.h"

namespace kvgauge {

class KeyGraph {
 public:
  struct Rule {
    int64_t degree = 35;       // links of a key from queries, and as many more from searches
    int64_t build_beam = 500;  // of the searches that connect the graph
  };

  struct Reached {
    float product = 0;
    int32_t key = 0;
    bool passed = false;  // its links were followed
  };

  // The working memory of one search at a time, and what the last one found.
  class Walk {
   public:
    Walk() = default;
    Walk(int64_t keys, int64_t beam);
    // The best first.
    std::span<const Reached> found() const { return held_; }
    // Whether the product with that key was made.
    bool Saw(int64_t key) const {
      return (seen_[static_cast<size_t>(key / 64)] >> (key % 64) & 1) != 0;
    }
    int64_t bytes() const;
    // The bytes() of a walk of that size.
    static int64_t BytesOf(int64_t keys, int64_t beam);

   private:
    friend class KeyGraph;
    void Begin(int64_t keys, int64_t beam);
    bool See(int32_t key);  // false if it was seen
    void Hold(float product, int32_t key);
    int32_t Next();  // the nearest whose links were not followed, or -1

    std::vector<uint64_t> seen_;
    std::vector<Reached> held_;
    size_t beam_ = 0, next_ = 0;
  };

  KeyGraph() = default;
  // keys: [n, dim] f32, n >= 1, the graph's only while it is made. For each query the indices of
  // its nearest keys, nearest: [queries, m] i32, in any order, and the nearest of them, best:
  // [queries] i32. All on the host and contiguous. Without queries there are no links, and a search
  // looks at every key.
  static KeyGraph Build(const Tensor& keys, const Tensor& nearest, const Tensor& best, Rule rule);

  // A graph that was made before. counts: how many of `links` each key has; empty: there are none.
  static KeyGraph Of(int64_t keys, int32_t entry, std::span<const int32_t> counts,
                     std::vector<int32_t> links);

  // Follows the links of the nearest key that it has seen, until those of the `beam` nearest have
  // been followed. keys: as of Build; query: [dim]. `passed`, if not null, gets the keys whose
  // links were followed, in order.
  void Search(const Tensor& keys, const float* query, int64_t beam, Walk& walk,
              std::vector<int32_t>* passed = nullptr) const;

  int64_t keys() const { return keys_; }
  int32_t entry() const { return entry_; }
  bool linked() const { return !first_.empty(); }
  std::span<const int32_t> Links(int64_t key) const;
  std::span<const int32_t> links() const { return links_; }  // of all keys, one after the other
  int64_t bytes() const;
  // At most the bytes() of what Build makes of so many keys.
  static int64_t MostBytes(int64_t keys, Rule rule);

 private:
  class Builder;

  int64_t keys_ = 0;
  int32_t entry_ = 0;
  std::vector<int32_t> first_;  // [keys + 1] where a key's links begin; empty: there are none
  std::vector<int32_t> links_;
};

}  // namespace kvgauge

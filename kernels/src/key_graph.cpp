// SPDX-License-Identifier: Apache-2.0
// After index_bipartite.cpp of matchyc/RoarGraph, as one thread runs it. Where that reads behind
// the end of a list, since all that a search passed is linked already, there is nothing to add; and
// the links to key 0 that it adds when a list overflows are left out.
#include "kernels/key_graph.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "core/check.h"

namespace kvgauge {
namespace {

using Reached = KeyGraph::Reached;

// What every processor has registers for.
using Four [[gnu::vector_size(16)]] = float;

// Sixteen sums side by side, then their halves together: one order on every machine. A NaN is the
// farthest.
float Product(const float* a, const float* b, int64_t dim) {
  Four sums[4] = {};
  int64_t d = 0;
  for (; d + 16 <= dim; d += 16) {
    for (int64_t i = 0; i < 4; ++i) {
      Four x, y;
      std::memcpy(&x, a + d + 4 * i, sizeof(x));
      std::memcpy(&y, b + d + 4 * i, sizeof(y));
      sums[i] += x * y;
    }
  }
  for (int64_t i = 0; d < dim; ++d, ++i) sums[i / 4][i % 4] += a[d] * b[d];
  const Four four = (sums[0] + sums[2]) + (sums[1] + sums[3]);
  const float sum = (four[0] + four[2]) + (four[1] + four[3]);
  return sum == sum ? sum : -std::numeric_limits<float>::infinity();
}

bool Nearer(const Reached& a, const Reached& b) {
  return a.product > b.product || (a.product == b.product && a.key < b.key);
}

const float* Row(const Tensor& keys, int64_t key) { return keys.f32() + key * keys.shape[1]; }

// The key that is nearest to the mean of all.
int32_t Middle(const Tensor& keys) {
  const int64_t n = keys.shape[0], dim = keys.shape[1];
  std::vector<double> mean(static_cast<size_t>(dim));
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t d = 0; d < dim; ++d) mean[static_cast<size_t>(d)] += double{Row(keys, i)[d]};
  }
  for (double& x : mean) x /= static_cast<double>(n);
  int32_t nearest = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < n; ++i) {
    double away = 0;
    for (int64_t d = 0; d < dim; ++d) {
      const double step = mean[static_cast<size_t>(d)] - double{Row(keys, i)[d]};
      away += step * step;
    }
    if (away < least) {
      least = away;
      nearest = static_cast<int32_t>(i);
    }
  }
  return nearest;
}

// Lists of at most `capacity` keys, one for each key.
class LinkLists {
 public:
  LinkLists(int64_t keys, int64_t capacity)
      : capacity_(capacity),
        counts_(static_cast<size_t>(keys)),
        links_(static_cast<size_t>(keys * capacity)) {}

  std::span<const int32_t> Of(int64_t key) const {
    return {links_.data() + key * capacity_,
            static_cast<size_t>(counts_[static_cast<size_t>(key)])};
  }
  bool Has(int64_t key, int32_t other) const {
    const auto links = Of(key);
    return std::find(links.begin(), links.end(), other) != links.end();
  }
  // False if the list is full.
  bool Add(int64_t key, int32_t other) {
    int32_t& count = counts_[static_cast<size_t>(key)];
    if (count == capacity_) return false;
    links_[static_cast<size_t>(key * capacity_ + count)] = other;
    ++count;
    return true;
  }
  void Set(int64_t key, std::span<const Reached> links) {
    counts_[static_cast<size_t>(key)] = 0;
    for (const Reached& link : links) Add(key, link.key);
  }

 private:
  int64_t capacity_;
  std::vector<int32_t> counts_, links_;
};

}  // namespace

KeyGraph::Walk::Walk(int64_t keys, int64_t beam) : seen_(static_cast<size_t>((keys + 63) / 64)) {
  held_.reserve(static_cast<size_t>(std::min(keys, beam) + 1));
}

int64_t KeyGraph::Walk::bytes() const {
  return static_cast<int64_t>(seen_.size() * sizeof(uint64_t) + held_.capacity() * sizeof(Reached));
}

int64_t KeyGraph::Walk::BytesOf(int64_t keys, int64_t beam) {
  return (keys + 63) / 64 * static_cast<int64_t>(sizeof(uint64_t)) +
         (std::min(keys, beam) + 1) * static_cast<int64_t>(sizeof(Reached));
}

void KeyGraph::Walk::Begin(int64_t keys, int64_t beam) {
  seen_.assign(static_cast<size_t>((keys + 63) / 64), 0);
  held_.clear();
  beam_ = static_cast<size_t>(beam);
  next_ = 0;
}

bool KeyGraph::Walk::See(int32_t key) {
  uint64_t& word = seen_[static_cast<size_t>(key / 64)];
  const uint64_t bit = uint64_t{1} << (key % 64);
  if ((word & bit) != 0) return false;
  word |= bit;
  return true;
}

void KeyGraph::Walk::Hold(float product, int32_t key) {
  const Reached reached{product, key, false};
  if (held_.size() == beam_ && !Nearer(reached, held_.back())) return;
  const auto at = std::upper_bound(held_.begin(), held_.end(), reached, Nearer);
  next_ = std::min(next_, static_cast<size_t>(at - held_.begin()));
  held_.insert(at, reached);
  if (held_.size() > beam_) held_.pop_back();
}

int32_t KeyGraph::Walk::Next() {
  while (next_ < held_.size() && held_[next_].passed) ++next_;
  if (next_ == held_.size()) return -1;
  held_[next_].passed = true;
  return held_[next_].key;
}

class KeyGraph::Builder {
 public:
  Builder(const Tensor& keys, Rule rule)
      : keys_(keys),
        count_(keys.shape[0]),
        degree_(rule.degree),
        beam_(rule.build_beam),
        entry_(Middle(keys)),
        links_(count_, degree_),
        more_(count_, 2 * degree_) {}

  void JoinAll(const Tensor& nearest, const Tensor& best) {
    for (int64_t q = 0; q < nearest.shape[0]; ++q) {
      Join(best.i32()[q], {nearest[q].i32(), static_cast<size_t>(nearest.shape[1])});
    }
    for (int64_t key = 0; key < count_; ++key) LinkBack(key);
  }

  // Searches for each key, and links it to what they pass.
  void Connect() {
    for (int64_t key = 0; key < count_; ++key) {
      for (const int32_t other : links_.Of(key)) more_.Add(key, other);
    }
    Walk walk(count_, beam_);
    std::vector<int32_t> passed;
    for (int64_t key = 0; key < count_; ++key) {
      passed.clear();
      WalkLinks(
          keys_, Row(keys_, key), entry_, [this](int64_t at) { return more_.Of(at); },
          static_cast<int32_t>(key), beam_, walk, &passed);
      SetPassing(key, passed);
      for (const int32_t other : more_.Of(key)) {
        if (more_.Has(other, static_cast<int32_t>(key)) ||
            more_.Add(other, static_cast<int32_t>(key))) {
          continue;
        }
        Gather(other, more_.Of(other), static_cast<int32_t>(key));
        TakeFirst(0);
        Extend(other, 1, pool_.size());
        more_.Set(other, taken_);
      }
    }
    for (int64_t key = 0; key < count_; ++key) {
      if (std::ssize(more_.Of(key)) <= degree_) continue;
      const auto links = more_.Of(key);
      passed.assign(links.begin(), links.end());
      SetPassing(key, passed);
    }
  }

  KeyGraph Finish() const {
    KeyGraph graph;
    graph.keys_ = count_;
    graph.entry_ = entry_;
    graph.first_.reserve(static_cast<size_t>(count_ + 1));
    graph.first_.push_back(0);
    for (int64_t key = 0; key < count_; ++key) {
      const auto links = links_.Of(key);
      graph.links_.insert(graph.links_.end(), links.begin(), links.end());
      for (const int32_t other : more_.Of(key)) {
        if (!links_.Has(key, other)) graph.links_.push_back(other);
      }
      graph.first_.push_back(static_cast<int32_t>(graph.links_.size()));
    }
    graph.links_.shrink_to_fit();
    return graph;
  }

  template <class LinksOf>
  static void WalkLinks(const Tensor& keys, const float* query, int32_t entry, LinksOf links_of,
                        int32_t hidden, int64_t beam, Walk& walk, std::vector<int32_t>* passed) {
    const int64_t dim = keys.shape[1];
    walk.Begin(keys.shape[0], beam);
    walk.See(entry);
    walk.Hold(Product(Row(keys, entry), query, dim), entry);
    for (int32_t key = walk.Next(); key >= 0; key = walk.Next()) {
      if (passed != nullptr) passed->push_back(key);
      for (const int32_t other : links_of(key)) {
        if (other == hidden || !walk.See(other)) continue;
        walk.Hold(Product(Row(keys, other), query, dim), other);
      }
    }
  }

 private:
  float Between(int64_t a, int64_t b) const {
    return Product(Row(keys_, a), Row(keys_, b), keys_.shape[1]);
  }

  // pool_: `others`, and `one` if not negative, without `key`, the nearest to it first.
  void Gather(int64_t key, std::span<const int32_t> others, int32_t one = -1) {
    pool_.clear();
    for (const int32_t other : others) {
      if (other != key) pool_.push_back({Between(key, other), other});
    }
    if (one >= 0) pool_.push_back({Between(key, one), one});
    std::sort(pool_.begin(), pool_.end(), Nearer);
  }
  // taken_ becomes that one of pool_, if there is one.
  void TakeFirst(size_t at) {
    taken_.clear();
    if (at < pool_.size()) taken_.push_back(pool_[at]);
  }
  bool Full() const { return std::ssize(taken_) == degree_; }
  // Takes of pool_[begin, end) what no taken key is nearer to than `key` is.
  void Extend(int64_t key, size_t begin, size_t end) {
    for (size_t i = begin; i < end && !Full(); ++i) {
      const Reached& one = pool_[i];
      const auto hides = [&](const Reached& other) {
        return other.key == one.key || Between(one.key, other.key) > one.product;
      };
      if (one.key != key && std::none_of(taken_.begin(), taken_.end(), hides)) {
        taken_.push_back(one);
      }
    }
  }
  void Fill(int32_t other) {
    const auto same = [other](const Reached& one) { return one.key == other; };
    if (!Full() && std::none_of(taken_.begin(), taken_.end(), same)) {
      taken_.push_back({0, other});
    }
  }

  // Links the nearest key of a query to the others that are near the query.
  void Join(int32_t pivot, std::span<const int32_t> nearest) {
    Gather(pivot, nearest);
    TakeFirst(0);
    Extend(pivot, 1, pool_.size());
    for (const Reached& other : pool_) Fill(other.key);
    links_.Set(pivot, taken_);
    LinkBack(pivot);
  }

  void LinkBack(int64_t key) {
    const auto own = static_cast<int32_t>(key);
    for (const int32_t other : links_.Of(key)) {
      if (links_.Has(other, own) || links_.Add(other, own)) continue;
      const auto held = links_.Of(other);
      Gather(other, held, own);
      TakeFirst(0);
      Extend(other, 1, pool_.size());
      for (const int32_t one : held) Fill(one);
      Fill(own);
      links_.Set(other, taken_);
    }
  }

  // Links to what a search for `key` passed: from the nearest on that queries did not link, then
  // those before it.
  void SetPassing(int64_t key, std::span<const int32_t> passed) {
    Gather(key, passed);
    size_t first = 0;
    while (first < pool_.size() && links_.Has(key, pool_[first].key)) ++first;
    TakeFirst(first);
    if (!taken_.empty()) {
      Extend(key, first + 1, pool_.size());
      Extend(key, 1, first);
    }
    more_.Set(key, taken_);
  }

  const Tensor& keys_;
  const int64_t count_, degree_, beam_;
  const int32_t entry_;
  LinkLists links_, more_;  // from queries; from searches
  std::vector<Reached> pool_, taken_;
};

KeyGraph KeyGraph::Build(const Tensor& keys, const Tensor& nearest, const Tensor& best, Rule rule) {
  KVG_CHECK(
      keys.rank == 2 && keys.shape[0] > 0 && keys.IsContiguous() && keys.device == Device::kHost,
      "a graph needs keys in rows, on the host");
  if (nearest.empty() || nearest.shape[0] == 0) {
    KeyGraph graph;
    graph.keys_ = keys.shape[0];
    return graph;
  }
  KVG_CHECK(rule.degree > 0 && rule.build_beam > 0, "a graph without links");
  KVG_CHECK(nearest.rank == 2 && nearest.IsContiguous() && best.IsContiguous() &&
                best.Numel() == nearest.shape[0],
            "a graph needs the nearest keys of each query");
  Builder builder(keys, rule);
  builder.JoinAll(nearest, best);
  builder.Connect();
  return builder.Finish();
}

KeyGraph KeyGraph::Of(int64_t keys, int32_t entry, std::span<const int32_t> counts,
                      std::vector<int32_t> links) {
  KeyGraph graph;
  graph.keys_ = keys;
  graph.entry_ = entry;
  graph.links_ = std::move(links);
  if (counts.empty()) return graph;
  graph.first_.push_back(0);
  for (const int32_t count : counts) graph.first_.push_back(graph.first_.back() + count);
  KVG_CHECK(std::ssize(counts) == keys && graph.first_.back() == std::ssize(graph.links_),
            "links of every key");
  return graph;
}

void KeyGraph::Search(const Tensor& keys, const float* query, int64_t beam, Walk& walk,
                      std::vector<int32_t>* passed) const {
  KVG_CHECK(keys.shape[0] == keys_ && beam > 0, "a search among other keys");
  if (linked()) {
    const auto links = [this](int64_t key) { return Links(key); };
    return Builder::WalkLinks(keys, query, entry_, links, -1, beam, walk, passed);
  }
  walk.Begin(keys_, beam);
  for (int32_t key = 0; key < static_cast<int32_t>(keys_); ++key) {
    walk.See(key);
    walk.Hold(Product(Row(keys, key), query, keys.shape[1]), key);
  }
}

std::span<const int32_t> KeyGraph::Links(int64_t key) const {
  if (!linked()) return {};
  const int32_t first = first_[static_cast<size_t>(key)];
  return {links_.data() + first, static_cast<size_t>(first_[static_cast<size_t>(key + 1)] - first)};
}

int64_t KeyGraph::bytes() const {
  return static_cast<int64_t>((first_.size() + links_.size()) * sizeof(int32_t));
}

int64_t KeyGraph::MostBytes(int64_t keys, Rule rule) {
  // No key is linked to itself, nor twice to another.
  const int64_t links = std::min(keys - 1, 2 * rule.degree);
  return keys == 0 ? 0 : (keys + 1 + keys * links) * static_cast<int64_t>(sizeof(int32_t));
}

}  // namespace kvgauge

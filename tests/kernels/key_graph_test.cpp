// SPDX-License-Identifier: Apache-2.0
#include "kernels/key_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "support/compare.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

// The nearest keys of queries, by plain loops in double.
struct GraphOfQueries {
  GraphOfQueries(const std::vector<float>& keys, const std::vector<float>& queries, int64_t width,
                 int64_t count)
      : dim(width), n(std::ssize(keys) / width), of_query(count), rows(keys) {
    for (int64_t q = 0; q < std::ssize(queries) / dim; ++q) {
      const std::vector<int32_t> order = Ordered(queries.data() + q * dim);
      nearest.insert(nearest.end(), order.begin(), order.begin() + of_query);
      best.push_back(order[0]);
    }
  }

  std::vector<int32_t> Ordered(const float* query) const {
    std::vector<double> products;
    for (int64_t i = 0; i < n; ++i) {
      double sum = 0;
      for (int64_t d = 0; d < dim; ++d) sum += double{rows[i * dim + d]} * query[d];
      products.push_back(sum);
    }
    std::vector<int32_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return products[a] > products[b]; });
    return order;
  }
  Tensor Keys() const { return View(rows, {n, dim}); }
  KeyGraph Build(KeyGraph::Rule rule) const {
    const int64_t queries = std::ssize(best);
    return KeyGraph::Build(Keys(), View(nearest, {queries, of_query}), View(best, {queries}), rule);
  }

  int64_t dim, n, of_query;
  std::vector<float> rows;
  std::vector<int32_t> nearest, best;
};

std::vector<int32_t> FoundKeys(const KeyGraph::Walk& walk) {
  std::vector<int32_t> keys;
  for (const KeyGraph::Reached& reached : walk.found()) keys.push_back(reached.key);
  return keys;
}

std::vector<float> Elsewhere(int64_t count, uint64_t seed) {
  std::vector<float> queries = RandomValues(count * 16, seed);
  for (size_t i = 0; i < queries.size(); ++i) queries[i] += i % 16 < 4 ? 2.0f : -0.5f;
  return queries;
}

TEST(KeyGraphTest, LinksAreOfQueriesThenOfSearches) {
  // East, north, west, south, and half of north-east, which is nearest to the middle of all.
  const std::vector<float> keys = {1, 0, 0, 1, -1, 0, 0, -1, 0.5f, 0.5f};
  // One query, to the north-east: products 1, 1, -1, -1, 1.
  const GraphOfQueries of(keys, {1, 1}, 2, 3);
  ASSERT_THAT(of.nearest, ElementsAre(0, 1, 4));
  const KeyGraph graph = of.Build({.degree = 2, .build_beam = 4});
  EXPECT_EQ(graph.entry(), 4);
  // Its nearest is 0, which takes 4, and then 1, to which 4 is nearer, only to fill its list. Both
  // link back. A search for 3 passes 0 and 2, which do not hide each other.
  EXPECT_THAT(graph.Links(0), ElementsAre(4, 1, 3));
  // A search for 1 passes 4, then 0, to which 4 is nearer; the search for 2 takes 1 alone.
  EXPECT_THAT(graph.Links(1), ElementsAre(0, 4, 2));
  EXPECT_THAT(graph.Links(2), ElementsAre(1, 3));
  EXPECT_THAT(graph.Links(3), ElementsAre(0, 2));
  EXPECT_THAT(graph.Links(4), ElementsAre(0, 1));
  // 6 ends and 12 links.
  EXPECT_EQ(graph.bytes(), 4 * (6 + 12));
}

TEST(KeyGraphTest, FindsNearlyAllThatAScanFinds) {
  const GraphOfQueries of(RandomValues(300 * 16, 1), Elsewhere(200, 2), 16, 20);
  const KeyGraph graph = of.Build({.degree = 12, .build_beam = 60});
  const KeyGraph none = KeyGraph::Build(of.Keys(), Tensor(), Tensor(), {});
  EXPECT_TRUE(graph.linked());
  EXPECT_FALSE(none.linked());
  EXPECT_EQ(none.bytes(), 0);
  KeyGraph::Walk walk(300, 10), scan;
  const std::vector<float> searches = Elsewhere(30, 3);
  int64_t hits = 0;
  for (int64_t q = 0; q < 30; ++q) {
    const float* query = searches.data() + 16 * q;
    const std::vector<int32_t> order = of.Ordered(query);
    none.Search(of.Keys(), query, 10, scan);
    EXPECT_EQ(FoundKeys(scan), std::vector<int32_t>(order.begin(), order.begin() + 10));
    graph.Search(of.Keys(), query, 10, walk);
    const std::vector<int32_t> found = FoundKeys(walk);
    ASSERT_EQ(found.size(), 10u);
    for (int64_t i = 0; i < 10; ++i) {
      hits += std::find(found.begin(), found.end(), order[i]) != found.end() ? 1 : 0;
    }
    // What it found it saw, and it did not see all.
    int64_t seen = 0;
    for (int64_t key = 0; key < 300; ++key) seen += walk.Saw(key) ? 1 : 0;
    for (const int32_t key : found) EXPECT_TRUE(walk.Saw(key));
    EXPECT_LT(seen, 250);
  }
  EXPECT_GE(hits, 270);
}

TEST(KeyGraphTest, WhatWasSearchedBeforeLeavesNoTrace) {
  const GraphOfQueries of(RandomValues(100 * 16, 4), Elsewhere(60, 5), 16, 9);
  const KeyGraph graph = of.Build({.degree = 5, .build_beam = 20}), again = of.Build({5, 20});
  ASSERT_EQ(graph.bytes(), again.bytes());
  for (int64_t key = 0; key < 100; ++key) {
    EXPECT_TRUE(std::ranges::equal(graph.Links(key), again.Links(key))) << key;
    EXPECT_LE(graph.Links(key).size(), 10u);
    EXPECT_EQ(std::ranges::count(graph.Links(key), key), 0);
  }
  const std::vector<float> searches = Elsewhere(2, 6);
  KeyGraph::Walk used, fresh;
  graph.Search(of.Keys(), searches.data(), 40, used);
  graph.Search(of.Keys(), searches.data() + 16, 7, used);
  again.Search(of.Keys(), searches.data() + 16, 7, fresh);
  EXPECT_EQ(FoundKeys(used), FoundKeys(fresh));
  for (int64_t key = 0; key < 100; ++key) EXPECT_EQ(used.Saw(key), fresh.Saw(key)) << key;
}

TEST(KeyGraphTest, AmongEqualsTheLowerIndexIsNearer) {
  const std::vector<float> keys(40 * 16, 0.25f);
  const GraphOfQueries of(keys, Elsewhere(8, 7), 16, 6);
  const KeyGraph graph = of.Build({.degree = 3, .build_beam = 8});
  EXPECT_EQ(graph.entry(), 0);
  KeyGraph::Walk walk;
  graph.Search(of.Keys(), keys.data(), 4, walk);
  const std::vector<int32_t> found = FoundKeys(walk);
  EXPECT_TRUE(std::ranges::is_sorted(found));
  const KeyGraph none = KeyGraph::Build(of.Keys(), Tensor(), Tensor(), {});
  none.Search(of.Keys(), keys.data(), 4, walk);
  EXPECT_THAT(FoundKeys(walk), ElementsAre(0, 1, 2, 3));
}

TEST(KeyGraphTest, KeysThatAreNoNumbersAreTheFarthest) {
  std::vector<float> keys = RandomValues(50 * 16, 8);
  keys[16 * 20] = std::numeric_limits<float>::quiet_NaN();
  const KeyGraph none = KeyGraph::Build(View(keys, {50, 16}), Tensor(), Tensor(), {});
  KeyGraph::Walk walk;
  const std::vector<float> query = RandomValues(16, 9);
  none.Search(View(keys, {50, 16}), query.data(), 50, walk);
  EXPECT_EQ(FoundKeys(walk).back(), 20);
  const std::vector<int32_t> nearest = {1, 2, 20, 3}, best = {2};
  const KeyGraph graph =
      KeyGraph::Build(View(keys, {50, 16}), View(nearest, {1, 4}), View(best, {1}), {4, 10});
  graph.Search(View(keys, {50, 16}), query.data(), 10, walk);
  EXPECT_FALSE(walk.found().empty());
}

TEST(KeyGraphTest, OneKeyIsFound) {
  const std::vector<float> key = {1, 2, 3};
  const std::vector<int32_t> only = {0, 0};
  const KeyGraph graph =
      KeyGraph::Build(View(key, {1, 3}), View(only, {2, 1}), View(only, {2}), {});
  KeyGraph::Walk walk(1, 5);
  graph.Search(View(key, {1, 3}), key.data(), 5, walk);
  ASSERT_EQ(walk.found().size(), 1u);
  EXPECT_FLOAT_EQ(walk.found()[0].product, 14);
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "core/rng.h"
#include "src/serve/prefix_tree.h"

namespace kvgauge {
namespace {

int64_t FullBytesOf(int64_t tokens) { return (tokens + 63) / 64 * 64 * 10; }

// Payloads are the number of tokens that they hold.
PrefixTree MakeTree() {
  return {FullBytesOf, [](const PrefixTree::Payload& payload, int64_t tokens) {
            EXPECT_LE(tokens, *static_cast<int64_t*>(payload.get()));
            return PrefixTree::Payload(std::make_shared<int64_t>(tokens));
          }};
}

PrefixTree::Payload Holds(int64_t tokens) { return std::make_shared<int64_t>(tokens); }

TEST(PrefixTreeTest, FindsTheLongestBeginning) {
  PrefixTree tree = MakeTree();
  const std::vector<TokenRun> a = {{1, 100}, {2, 50}}, b = {{1, 100}, {3, 50}},
                              c = {{1, 60}, {4, 9}};
  EXPECT_EQ(tree.Find(a, 150).tokens, 0);
  ASSERT_TRUE(tree.Insert(a, 150, Holds(150)).ok());
  EXPECT_EQ(tree.Find(a, 150).tokens, 150);
  EXPECT_EQ(tree.Find(a, 149).tokens, 149);
  EXPECT_EQ(tree.Find(b, 150).tokens, 100);
  EXPECT_EQ(tree.Find(c, 69).tokens, 60);
  ASSERT_TRUE(tree.Insert(b, 150, Holds(150)).ok());
  ASSERT_TRUE(tree.Insert(c, 69, Holds(69)).ok());  // cuts the first run in two
  EXPECT_EQ(tree.nodes(), 5);
  for (const auto& prompt : {a, b, c}) {
    int64_t tokens = 0;
    for (const TokenRun& run : prompt) tokens += run.tokens;
    const PrefixTree::Match match = tree.Find(prompt, tokens);
    EXPECT_EQ(match.tokens, tokens);
    EXPECT_GE(*static_cast<int64_t*>(PrefixTree::PayloadOf(match.node).get()), tokens);
  }
}

TEST(PrefixTreeTest, PinnedNodesStayAndTheOldestGoFirst) {
  PrefixTree tree = MakeTree();
  const std::vector<TokenRun> a = {{1, 64}, {2, 64}}, b = {{1, 64}, {3, 64}}, c = {{9, 64}};
  ASSERT_TRUE(tree.Insert(a, 128, Holds(128)).ok());
  ASSERT_TRUE(tree.Insert(b, 128, Holds(128)).ok());
  ASSERT_TRUE(tree.Insert(c, 64, Holds(64)).ok());
  EXPECT_EQ(tree.bytes(), 4 * 640);
  const PrefixTree::Match held = tree.Find(b, 128);
  tree.Pin(held.node);
  EXPECT_EQ(tree.pinned_bytes(), 2 * 640);
  EXPECT_TRUE(tree.EvictOne());  // that of a
  EXPECT_EQ(tree.Find(a, 128).tokens, 64);
  EXPECT_TRUE(tree.EvictOne());
  EXPECT_EQ(tree.Find(c, 64).tokens, 0);
  EXPECT_FALSE(tree.EvictOne());
  tree.Unpin(held.node);
  EXPECT_TRUE(tree.EvictOne());
  EXPECT_TRUE(tree.EvictOne());
  EXPECT_FALSE(tree.EvictOne());
  EXPECT_EQ(tree.bytes(), 0);
  EXPECT_EQ(tree.nodes(), 0);
}

// Against a list of all prompts: what is found is the longest common beginning, bytes are those
// that were announced, and what is pinned never goes.
TEST(PrefixTreeTest, AgreesWithAList) {
  PrefixTree tree = MakeTree();
  Rng rng(7, 1);
  std::vector<std::pair<std::vector<TokenRun>, PrefixTree::Node*>> pinned;
  for (int i = 0; i < 3000; ++i) {
    std::vector<TokenRun> prompt;
    int64_t tokens = 0;
    for (uint64_t run = 0; run < 1 + rng.NextBelow(4); ++run) {
      prompt.push_back({rng.NextBelow(3) + 10 * run, 1 + static_cast<int64_t>(rng.NextBelow(150))});
      tokens += prompt.back().tokens;
    }
    const int64_t before = tree.bytes(), missing = tree.MissingBytes(prompt, tokens);
    const Result<PrefixTree::Node*> node = tree.Insert(prompt, tokens, Holds(tokens));
    ASSERT_TRUE(node.ok());
    EXPECT_EQ(tree.bytes(), before + missing);
    EXPECT_EQ(tree.MissingBytes(prompt, tokens), 0);
    EXPECT_EQ(tree.Find(prompt, tokens).tokens, tokens);
    if (rng.NextBelow(4) == 0) {
      tree.Pin(*node);
      pinned.emplace_back(prompt, *node);
    }
    if (pinned.size() > 5) {
      const size_t gone = rng.NextBelow(pinned.size());
      tree.Unpin(pinned[gone].second);
      pinned.erase(pinned.begin() + static_cast<int64_t>(gone));
    }
    while (tree.bytes() > 20000 && tree.EvictOne()) {
    }
    EXPECT_LE(tree.pinned_bytes(), tree.bytes());
    for (const auto& [held, at] : pinned) {
      int64_t size = 0;
      for (const TokenRun& run : held) size += run.tokens;
      ASSERT_EQ(tree.Find(held, size).tokens, size);
    }
  }
  for (const auto& [held, at] : pinned) tree.Unpin(at);
  EXPECT_EQ(tree.pinned_bytes(), 0);
  while (tree.EvictOne()) {
  }
  EXPECT_EQ(tree.bytes(), 0);
}

}  // namespace
}  // namespace kvgauge

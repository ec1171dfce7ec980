// SPDX-License-Identifier: Apache-2.0
// Prompts that begin alike, as a radix tree whose nodes hold caches.
//
// An edge is a run of tokens of one content (trace.h), so a long prompt is a few nodes. Every node
// holds the cache of all tokens from the root to its end; it shares the blocks before its beginning
// with its parent's. Bytes count each node's own pages; a page that two nodes lie in counts twice.
// Pinned nodes, and those above them, stay. For one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "src/serve/trace.h"

namespace kvgauge {

class PrefixTree {
 public:
  // What a node holds; null where runs are planned and not executed.
  using Payload = std::shared_ptr<void>;
  // The first `tokens` of what a payload holds.
  using Cut = std::function<Result<Payload>(const Payload& payload, int64_t tokens)>;
  struct Node;
  struct Match {
    Node* node = nullptr;  // null: nothing is known
    int64_t tokens = 0;
  };

  // `full_bytes`: of so many tokens in whole pages.
  PrefixTree(std::function<int64_t(int64_t tokens)> full_bytes, Cut cut);
  ~PrefixTree();

  // The longest known beginning, of at most `most` tokens. It counts as used.
  Match Find(std::span<const TokenRun> prompt, int64_t most);
  // The cache of all tokens up to the node's end.
  static const Payload& PayloadOf(const Node* node);
  // A sequence reads this node: it and all above it stay. Null is ignored.
  void Pin(Node* node);
  void Unpin(Node* node);

  // By how many bytes Insert would grow.
  int64_t MissingBytes(std::span<const TokenRun> prompt, int64_t tokens) const;
  // The first `tokens` of a prompt, which `payload` holds. The deepest node; null for no tokens.
  Result<Node*> Insert(std::span<const TokenRun> prompt, int64_t tokens, const Payload& payload);
  // Gives up the node that was used least recently among those without pins and children; false:
  // there is none.
  bool EvictOne();
  // Gives up this node and those above it as far as nothing else needs them.
  void RemoveUnused(Node* node);

  int64_t bytes() const { return bytes_; }
  int64_t pinned_bytes() const { return pinned_bytes_; }
  int64_t nodes() const { return nodes_; }

 private:
  Result<Node*> Split(Node* node, int64_t run_tokens);
  Node* AddNode(Node* parent, const TokenRun& run, Payload payload);
  void Remove(Node* node);
  void Touch(Node* node);
  int64_t OwnBytes(int64_t begin, int64_t end) const;

  // Where a prompt's first `tokens` lead: whole nodes down to `node`, and `part` tokens of the
  // child `next` behind it. `rest` is what is left of the run that begins there.
  struct Walk {
    Node* node = nullptr;
    Node* next = nullptr;
    int64_t part = 0;
    size_t run = 0;
    TokenRun rest = {};
    int64_t tokens = 0;  // matched
  };
  Walk Follow(std::span<const TokenRun> prompt, int64_t tokens) const;

  std::function<int64_t(int64_t)> full_bytes_;
  Cut cut_;
  std::unique_ptr<Node> root_;
  std::map<int64_t, Node*> idle_;  // leaves without pins, by last use
  int64_t clock_ = 0;
  int64_t bytes_ = 0, pinned_bytes_ = 0, nodes_ = 0;
};

}  // namespace kvgauge

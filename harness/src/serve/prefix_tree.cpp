// SPDX-License-Identifier: Apache-2.0
#include "src/serve/prefix_tree.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "kernels/attention.h"

namespace kvgauge {

struct PrefixTree::Node {
  Node* parent = nullptr;
  TokenRun run;
  int64_t begin = 0;  // tokens before it
  Payload payload;
  using Key = std::pair<uint64_t, int64_t>;  // a content, and where in it
  std::map<Key, std::unique_ptr<Node>> children;
  int64_t pins = 0;  // its own and those of all below it
  int64_t used = 0;

  int64_t end() const { return begin + run.tokens; }
};

PrefixTree::PrefixTree(std::function<int64_t(int64_t)> full_bytes, Cut cut)
    : full_bytes_(std::move(full_bytes)), cut_(std::move(cut)), root_(std::make_unique<Node>()) {}
PrefixTree::~PrefixTree() = default;

int64_t PrefixTree::OwnBytes(int64_t begin, int64_t end) const {
  const int64_t whole = begin / kKvPageEntries * kKvPageEntries;
  return full_bytes_(end) - (whole > 0 ? full_bytes_(whole) : 0);
}

const PrefixTree::Payload& PrefixTree::PayloadOf(const Node* node) { return node->payload; }

// Keeps idle_ right: call after whatever changes pins, children or use.
void PrefixTree::Touch(Node* node) {
  if (node == root_.get()) return;
  idle_.erase(node->used);
  node->used = ++clock_;
  if (node->pins == 0 && node->children.empty()) idle_[node->used] = node;
}

PrefixTree::Walk PrefixTree::Follow(std::span<const TokenRun> prompt, int64_t tokens) const {
  Walk walk;
  walk.node = root_.get();
  for (; walk.run < prompt.size(); ++walk.run) {
    walk.rest = prompt[walk.run];
    while (walk.rest.tokens > 0 && walk.tokens < tokens) {
      const auto child = walk.node->children.find({walk.rest.content, walk.rest.first});
      if (child == walk.node->children.end()) return walk;
      Node* node = child->second.get();
      const int64_t same = std::min({walk.rest.tokens, node->run.tokens, tokens - walk.tokens});
      walk.tokens += same;
      walk.rest.first += same;
      walk.rest.tokens -= same;
      if (same < node->run.tokens) {
        walk.next = node;
        walk.part = same;
        return walk;
      }
      walk.node = node;
    }
    if (walk.tokens >= tokens) return walk;
  }
  return walk;
}

PrefixTree::Match PrefixTree::Find(std::span<const TokenRun> prompt, int64_t most) {
  const Walk walk = Follow(prompt, most);
  Node* node = walk.next != nullptr ? walk.next : walk.node;
  if (walk.tokens == 0) return {};
  for (Node* at = node; at != root_.get(); at = at->parent) Touch(at);
  return {node, walk.tokens};
}

void PrefixTree::Pin(Node* node) {
  for (; node != nullptr && node != root_.get(); node = node->parent) {
    if (node->pins++ == 0) pinned_bytes_ += OwnBytes(node->begin, node->end());
    Touch(node);
  }
}

void PrefixTree::Unpin(Node* node) {
  for (; node != nullptr && node != root_.get(); node = node->parent) {
    KVG_CHECK(node->pins > 0, "a node that is not pinned");
    if (--node->pins == 0) pinned_bytes_ -= OwnBytes(node->begin, node->end());
    Touch(node);
  }
}

int64_t PrefixTree::MissingBytes(std::span<const TokenRun> prompt, int64_t tokens) const {
  const Walk walk = Follow(prompt, tokens);
  int64_t bytes = 0;
  // A node that is cut in two counts a page more where the cut is inside of one.
  if (walk.next != nullptr && walk.tokens < tokens) {
    const Node& cut = *walk.next;
    bytes += OwnBytes(cut.begin, walk.tokens) + OwnBytes(walk.tokens, cut.end()) -
             OwnBytes(cut.begin, cut.end());
  }
  int64_t begin = walk.tokens;
  for (size_t i = walk.run; i < prompt.size() && begin < tokens; ++i) {
    const int64_t run = i == walk.run ? walk.rest.tokens : prompt[i].tokens;
    const int64_t end = std::min(begin + run, tokens);
    if (end > begin) bytes += OwnBytes(begin, end);
    begin = end;
  }
  return bytes;
}

PrefixTree::Node* PrefixTree::AddNode(Node* parent, const TokenRun& run, Payload payload) {
  auto node = std::make_unique<Node>();
  Node* raw = node.get();
  raw->parent = parent;
  raw->run = run;
  raw->begin = parent->end();
  raw->payload = std::move(payload);
  parent->children[{run.content, run.first}] = std::move(node);
  bytes_ += OwnBytes(raw->begin, raw->end());
  ++nodes_;
  Touch(parent);
  Touch(raw);
  return raw;
}

// The upper part, a new node; `node` stays the lower one, for those who pinned it.
Result<PrefixTree::Node*> PrefixTree::Split(Node* node, int64_t run_tokens) {
  KVG_ASSIGN(Payload payload, cut_(node->payload, node->begin + run_tokens));
  Node* parent = node->parent;
  const auto at = parent->children.find({node->run.content, node->run.first});
  std::unique_ptr<Node> lower = std::move(at->second);
  const int64_t whole_bytes = OwnBytes(lower->begin, lower->end());
  auto upper = std::make_unique<Node>();
  Node* raw = upper.get();
  raw->parent = parent;
  raw->run = node->run;
  raw->run.tokens = run_tokens;
  raw->begin = node->begin;
  raw->payload = std::move(payload);
  raw->pins = node->pins;
  lower->parent = raw;
  lower->begin += run_tokens;
  lower->run.first += run_tokens;
  lower->run.tokens -= run_tokens;
  const int64_t more_bytes =
      OwnBytes(raw->begin, raw->end()) + OwnBytes(lower->begin, lower->end()) - whole_bytes;
  bytes_ += more_bytes;
  if (raw->pins > 0) pinned_bytes_ += more_bytes;
  ++nodes_;
  raw->children[{lower->run.content, lower->run.first}] = std::move(lower);
  at->second = std::move(upper);
  Touch(raw);
  return raw;
}

Result<PrefixTree::Node*> PrefixTree::Insert(std::span<const TokenRun> prompt, int64_t tokens,
                                             const Payload& payload) {
  Walk walk = Follow(prompt, tokens);
  if (walk.tokens >= tokens) {
    Node* known = walk.next != nullptr ? walk.next : walk.node;
    if (known == root_.get()) return nullptr;
    for (Node* at = known; at != root_.get(); at = at->parent) Touch(at);
    return known;
  }
  Node* node = walk.node;
  if (walk.next != nullptr) {
    KVG_ASSIGN(node, Split(walk.next, walk.part));
  }
  int64_t begin = walk.tokens;
  for (size_t i = walk.run; i < prompt.size() && begin < tokens; ++i) {
    TokenRun run = i == walk.run ? walk.rest : prompt[i];
    run.tokens = std::min(run.tokens, tokens - begin);
    if (run.tokens == 0) continue;
    begin += run.tokens;
    Payload own = payload;
    if (begin < tokens) {
      KVG_ASSIGN(own, cut_(payload, begin));
    }
    node = AddNode(node, run, std::move(own));
  }
  return node == root_.get() ? nullptr : node;
}

void PrefixTree::Remove(Node* node) {
  KVG_CHECK(node->pins == 0 && node->children.empty(), "a node that somebody needs");
  bytes_ -= OwnBytes(node->begin, node->end());
  --nodes_;
  idle_.erase(node->used);
  Node* parent = node->parent;
  parent->children.erase({node->run.content, node->run.first});
  if (parent == root_.get() || parent->pins > 0 || !parent->children.empty()) return;
  idle_[parent->used] = parent;
}

bool PrefixTree::EvictOne() {
  if (idle_.empty()) return false;
  Remove(idle_.begin()->second);
  return true;
}

void PrefixTree::RemoveUnused(Node* node) {
  while (node != nullptr && node != root_.get() && node->pins == 0 && node->children.empty()) {
    Node* parent = node->parent;
    Remove(node);
    node = parent;
  }
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// A trie over bytes in one flat hash table of edges.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace kvgauge {

class ByteTrie {
 public:
  static constexpr int32_t kNone = -1;

  ByteTrie() : slots_(64), values_(1, kNone) {}

  // The first value given for a key stays. Precondition: value >= 0.
  void Insert(std::string_view key, int32_t value);
  // The child of `node` along `byte`, or kNone. The root is 0.
  int32_t Step(int32_t node, uint8_t byte) const;
  int32_t ValueAt(int32_t node) const { return values_[node]; }

 private:
  struct Slot {
    int64_t edge = kNone;  // node << 8 | byte
    int32_t child = kNone;
  };
  size_t Find(int64_t edge) const;
  void Grow();

  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t used_ = 0;
  std::vector<int32_t> values_;  // per node
};

}  // namespace kvgauge

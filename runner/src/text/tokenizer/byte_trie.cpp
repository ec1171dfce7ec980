// SPDX-License-Identifier: Apache-2.0
#include "src/text/tokenizer/byte_trie.h"

#include <utility>

namespace kvgauge {

size_t ByteTrie::Find(int64_t edge) const {
  const size_t mask = slots_.size() - 1;
  size_t at = (static_cast<uint64_t>(edge) * 0x9e3779b97f4a7c15u >> 20) & mask;
  while (slots_[at].edge != kNone && slots_[at].edge != edge) at = (at + 1) & mask;
  return at;
}

void ByteTrie::Grow() {
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(slots_.size() * 2));
  for (const Slot& slot : old) {
    if (slot.edge != kNone) slots_[Find(slot.edge)] = slot;
  }
}

void ByteTrie::Insert(std::string_view key, int32_t value) {
  int32_t node = 0;
  for (const char c : key) {
    const int64_t edge = static_cast<int64_t>(node) << 8 | static_cast<uint8_t>(c);
    size_t at = Find(edge);
    if (slots_[at].edge == kNone) {
      if (2 * (used_ + 1) > slots_.size()) {
        Grow();
        at = Find(edge);
      }
      slots_[at] = {edge, static_cast<int32_t>(values_.size())};
      values_.push_back(kNone);
      ++used_;
    }
    node = slots_[at].child;
  }
  if (values_[node] == kNone) values_[node] = value;
}

int32_t ByteTrie::Step(int32_t node, uint8_t byte) const {
  return slots_[Find(static_cast<int64_t>(node) << 8 | byte)].child;
}

}  // namespace kvgauge

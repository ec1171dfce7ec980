// SPDX-License-Identifier: Apache-2.0
#include "src/python_set.h"

#include <algorithm>

namespace kvgauge {
namespace {

// Open addressing: short runs of neighbours, then jumps that take in more and more of the hash.
class NumberSet {
 public:
  void Add(int64_t value) {
    int64_t& slot = SlotOf(value);
    if (slot == value) return;
    slot = value;
    ++used_;
    const auto mask = static_cast<int64_t>(slots_.size()) - 1;
    if (used_ * 5 < mask * 3) return;
    // Tables up to 50,000 entries grow to more than four times these, larger ones to twice.
    const int64_t least = used_ > 50'000 ? used_ * 2 : used_ * 4;
    size_t size = kLeastSlots;
    while (static_cast<int64_t>(size) <= least) size *= 2;
    std::vector<int64_t> before(size, kEmpty);
    before.swap(slots_);
    for (const int64_t moved : before) {
      if (moved != kEmpty) SlotOf(moved) = moved;
    }
  }
  std::vector<int64_t> InOrder() const {
    std::vector<int64_t> values;
    std::copy_if(slots_.begin(), slots_.end(), std::back_inserter(values),
                 [](int64_t slot) { return slot != kEmpty; });
    return values;
  }

 private:
  static constexpr size_t kLeastSlots = 8, kNeighbours = 9;
  static constexpr int64_t kEmpty = -1;

  // Where the value is, or the empty slot where it comes to stand.
  int64_t& SlotOf(int64_t value) {
    const size_t mask = slots_.size() - 1;
    auto hash = static_cast<uint64_t>(value);
    size_t at = hash & mask;
    while (true) {
      const size_t last = at + kNeighbours <= mask ? at + kNeighbours : at;
      for (size_t slot = at; slot <= last; ++slot) {
        if (slots_[slot] == kEmpty || slots_[slot] == value) return slots_[slot];
      }
      hash >>= 5;
      at = (at * 5 + 1 + hash) & mask;
    }
  }

  std::vector<int64_t> slots_ = std::vector<int64_t>(kLeastSlots, kEmpty);
  int64_t used_ = 0;
};

}  // namespace

std::vector<int64_t> PythonSetOrder(std::span<const int64_t> values) {
  NumberSet set;
  for (const int64_t value : values) set.Add(value);
  return set.InOrder();
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/python_random.h"

#include <bit>
#include <numeric>
#include <set>

namespace kvgauge {

PythonRandom::PythonRandom(uint64_t seed) {
  std::vector<uint32_t> key = {static_cast<uint32_t>(seed)};
  if (seed >> 32 != 0) key.push_back(static_cast<uint32_t>(seed >> 32));
  const auto spread = [](uint32_t word) { return word ^ (word >> 30); };
  state_[0] = 19650218U;
  for (uint32_t i = 1; i < kWords; ++i) {
    state_[i] = 1812433253U * spread(state_[i - 1]) + i;
  }
  size_t i = 1;
  const auto step = [&] {
    if (++i < kWords) return;
    state_[0] = state_[kWords - 1];
    i = 1;
  };
  // Python's keys are far shorter than the state.
  for (size_t n = 0; n < kWords; ++n) {
    const size_t j = n % key.size();
    state_[i] =
        (state_[i] ^ (spread(state_[i - 1]) * 1664525U)) + key[j] + static_cast<uint32_t>(j);
    step();
  }
  for (size_t n = 1; n < kWords; ++n) {
    state_[i] = (state_[i] ^ (spread(state_[i - 1]) * 1566083941U)) - static_cast<uint32_t>(i);
    step();
  }
  state_[0] = 0x80000000U;
}

uint32_t PythonRandom::Next() {
  if (at_ == kWords) {
    constexpr size_t kAhead = 397;
    for (size_t i = 0; i < kWords; ++i) {
      const uint32_t mixed = (state_[i] & 0x80000000U) | (state_[(i + 1) % kWords] & 0x7fffffffU);
      state_[i] = state_[(i + kAhead) % kWords] ^ (mixed >> 1) ^ (mixed % 2 * 0x9908b0dfU);
    }
    at_ = 0;
  }
  uint32_t word = state_[at_++];
  word ^= word >> 11;
  word ^= (word << 7) & 0x9d2c5680U;
  word ^= (word << 15) & 0xefc60000U;
  return word ^ (word >> 18);
}

uint32_t PythonRandom::Bits(int bits) { return Next() >> (32 - bits); }

uint64_t PythonRandom::Below(uint64_t bound) {
  const int bits = std::bit_width(bound);
  uint64_t drawn = Bits(bits);
  while (drawn >= bound) drawn = Bits(bits);
  return drawn;
}

std::vector<size_t> PythonRandom::Sample(size_t size, size_t count) {
  // Python copies the population where that is smaller than a set of what was drawn.
  size_t set_size = 21;
  if (count > 5) {
    size_t power = 1;
    while (power < count * 3) power *= 4;
    set_size += power;
  }
  std::vector<size_t> drawn;
  drawn.reserve(count);
  if (size <= set_size) {
    std::vector<size_t> pool(size);
    std::iota(pool.begin(), pool.end(), size_t{0});
    for (size_t i = 0; i < count; ++i) {
      const size_t at = Below(size - i);
      drawn.push_back(pool[at]);
      pool[at] = pool[size - i - 1];
    }
    return drawn;
  }
  std::set<size_t> taken;
  while (drawn.size() < count) {
    const size_t at = Below(size);
    if (taken.insert(at).second) drawn.push_back(at);
  }
  return drawn;
}

}  // namespace kvgauge

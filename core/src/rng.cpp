// SPDX-License-Identifier: Apache-2.0
#include "core/rng.h"

#include <cmath>
#include <numbers>

#include "core/check.h"

namespace kvgauge {

std::array<uint32_t, 4> Rng::At(uint64_t counter) const {
  // The 128-bit counter is (counter, stream); the 64-bit key is the seed.
  uint32_t c0 = static_cast<uint32_t>(counter);
  uint32_t c1 = static_cast<uint32_t>(counter >> 32);
  uint32_t c2 = static_cast<uint32_t>(stream_);
  uint32_t c3 = static_cast<uint32_t>(stream_ >> 32);
  uint32_t k0 = static_cast<uint32_t>(seed_);
  uint32_t k1 = static_cast<uint32_t>(seed_ >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

uint32_t Rng::NextU32() {
  if (next_word_ == 4) {
    words_ = At(counter_++);
    next_word_ = 0;
  }
  return words_[next_word_++];
}

uint64_t Rng::NextU64() {
  const uint64_t low = NextU32();
  return low | uint64_t{NextU32()} << 32;
}

double Rng::NextDouble() { return static_cast<double>(NextU64() >> 11) * 0x1p-53; }

uint64_t Rng::NextBelow(uint64_t bound) {
  KVG_CHECK(bound > 0, "NextBelow needs a positive bound");
  // Values under 2^64 mod bound would favour small results; draw again.
  const uint64_t reject_below = (0 - bound) % bound;
  uint64_t value = NextU64();
  while (value < reject_below) value = NextU64();
  return value % bound;
}

double Rng::NextGaussian() {
  const double u = 1.0 - NextDouble();  // (0, 1]
  const double angle = 2.0 * std::numbers::pi * NextDouble();
  return std::sqrt(-2.0 * std::log(u)) * std::cos(angle);
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: value = f(seed, stream, counter). No state is shared, so results
// never depend on thread count or order of use. Philox-4x32-10 (Salmon et al., SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace kvgauge {

class Rng {
 public:
  Rng(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}

  // The four 32-bit words at one counter value; pure.
  std::array<uint32_t, 4> At(uint64_t counter) const;

  uint32_t NextU32();
  uint64_t NextU64();
  // Uniform in [0, 1), 53 bits.
  double NextDouble();
  // Uniform in [0, bound), unbiased. Precondition: bound > 0.
  uint64_t NextBelow(uint64_t bound);
  // Standard normal (Box-Muller).
  double NextGaussian();

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t counter_ = 0;
  std::array<uint32_t, 4> words_ = {};
  int next_word_ = 4;
};

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Python's module `random` after random.seed(n): sets whose samples were drawn by it can be drawn
// again. MT19937 (Matsumoto and Nishimura 1998), seeded by array; the draws of CPython 3.8 to 3.13.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace kvgauge {

class PythonRandom {
 public:
  explicit PythonRandom(uint64_t seed);

  // random.getrandbits(bits). Precondition: 0 < bits <= 32.
  uint32_t Bits(int bits);
  // random.randrange(bound), and the place that random.choice takes of `bound` entries.
  // Precondition: 0 < bound <= 2^32 - 1.
  uint64_t Below(uint64_t bound);
  // The places that random.sample(range(size), count) takes. Precondition: count <= size.
  std::vector<size_t> Sample(size_t size, size_t count);
  // random.shuffle.
  template <class T>
  void Shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[Below(i)]);
  }

 private:
  static constexpr size_t kWords = 624;
  uint32_t Next();

  std::array<uint32_t, kWords> state_ = {};
  size_t at_ = kWords;
};

}  // namespace kvgauge

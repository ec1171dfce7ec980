// SPDX-License-Identifier: Apache-2.0
// Codewords for entries or runs of their dims: drawn at random, or learned from rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvgauge {

// Words of a code: `stages` are added, each of `runs` runs has its own; see KvCodec::table for the
// order of the numbers and for commuting words, of which there is one run.
struct CodewordShape {
  int64_t dim = 0, width = 0, stages = 1;
  int bits = 0;
  bool commuting = false;
  int64_t apart = 1;

  int64_t runs() const { return dim / width; }
  int64_t numbers() const;
};

// Normal numbers, for rows whose numbers have mean 0 and variance 1: those of each stage as large
// as random coding of what the stages before leave has them.
std::vector<float> DrawnWords(const CodewordShape& shape, uint64_t seed, uint64_t stream);

// What lessens the squared error of rows [n][dim]: stage by stage on what is left, `rounds` times
// each row to the nearest word and each word to the mean of its rows; commuting words to the least
// squares over all of them. Starts from DrawnWords, scaled to the rows of each stage.
std::vector<float> LearnedWords(const CodewordShape& shape, std::span<const float> rows, int rounds,
                                uint64_t seed, uint64_t stream);

}  // namespace kvgauge

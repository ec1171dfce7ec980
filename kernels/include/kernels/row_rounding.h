// SPDX-License-Identifier: Apache-2.0
// Rows of numbers that codes of 8 bits stand for, as quantised checkpoints want the inputs of their
// matrices.
#pragma once

#include <cstdint>

namespace kvgauge {

struct RowRounding {
  enum class Codes { kInt8, kE4m3 };

  Codes codes = Codes::kInt8;
  int64_t group = 0;    // columns that share a scale, the last ones maybe fewer; 0: all of a row
  float scale = 0;      // of all rows; 0: each has its own (RowScale)
  bool powers = false;  // own scales are powers of two, rounded up

  friend bool operator==(const RowRounding&, const RowRounding&) = default;
};

// The scale of numbers of which `largest` is the largest size. Int8: largest / 127.5, so that its
// code is 127 or -128. E4m3: largest / 448. 1 where that is 0. Infinite where `largest` is.
float RowScale(const RowRounding& rounding, float largest);

// to = scale * code of from / scale, rounded to the nearest code, ties to the even one, and to the
// last one where there is none so large. No zero is negative. Numbers whose own scale is not finite
// all become NaN. The slow twin of what backends do, with the same bits. May be the same memory.
void RoundRow(const RowRounding& rounding, const float* from, int64_t count, float* to);

}  // namespace kvgauge

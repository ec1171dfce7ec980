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
  float scale = 0;      // of all rows; 0: each has its own (RowScale, SpanCodes)
  float zero = 0;       // int8: the code of 0 by that scale, a whole number from -128 to 127
  bool powers = false;  // own scales are powers of two, rounded up
  bool spans = false;   // int8: own codes are those of the span of the numbers (SpanCodes)

  friend bool operator==(const RowRounding&, const RowRounding&) = default;
};

// The scale of numbers of which `largest` is the largest size. Int8: largest / 127.5, so that its
// code is 127 or -128. E4m3: largest / 448. 1 where that is 0. Infinite where `largest` is.
float RowScale(const RowRounding& rounding, float largest);

// A number's code is number / scale + zero, rounded; it stands for (code - zero) * scale.
struct ScaleAndZero {
  float scale = 1, zero = 0;
};

// Int8 for numbers from -below to above, neither less than 0: a 255th of the span for each code, 0
// at a whole one. The scale is infinite where the span is, and finite ends may be that far apart.
ScaleAndZero SpanCodes(float below, float above);

// to = the number that the code of from stands for, rounded to the nearest code, ties to the even
// one, and to the last one where there is none so large. No zero is negative. Numbers whose own
// scale is not finite all become NaN. The slow twin of what backends do, with the same bits. May be
// the same memory.
void RoundRow(const RowRounding& rounding, const float* from, int64_t count, float* to);

}  // namespace kvgauge

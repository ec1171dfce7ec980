// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "core/check.h"
#include "kernels/rounded_products.h"

namespace kvgauge {
namespace {

constexpr float kMostE4m3 = 448.0f;
constexpr int kLeastExponent = -6;  // of e4m3: below it numbers lie evenly
constexpr int kMantissaBits = 3;

float NearestE4m3(float value) {
  if (std::isnan(value)) return value;
  const float held = std::clamp(value, -kMostE4m3, kMostE4m3);
  const int exponent = held == 0.0f ? kLeastExponent : std::max(std::ilogb(held), kLeastExponent);
  const int step = exponent - kMantissaBits;
  return std::ldexp(std::nearbyint(std::ldexp(held, -step)), step);
}

float NearestInt8(float value) {
  return std::isnan(value) ? value : std::nearbyint(std::clamp(value, -128.0f, 127.0f));
}

}  // namespace

float RowScale(const RowRounding& rounding, float largest) {
  const float scale = largest / (rounding.codes == RowRounding::Codes::kInt8 ? 127.5f : kMostE4m3);
  if (scale == 0.0f) return 1.0f;
  if (!rounding.powers || !std::isfinite(scale)) return scale;
  int exponent = 0;
  const float part = std::frexp(scale, &exponent);
  return std::ldexp(1.0f, part == 0.5f ? exponent - 1 : exponent);
}

ScaleAndZero SpanCodes(float below, float above) {
  const float scale = (above + below) / 255.0f;
  if (scale == 0.0f) return {};
  return {.scale = scale,
          .zero = std::nearbyint(std::clamp(below / scale - 128.0f, -128.0f, 127.0f))};
}

void RoundRow(const RowRounding& rounding, const float* from, int64_t count, float* to) {
  const int64_t group = rounding.group > 0 ? rounding.group : std::max<int64_t>(count, 1);
  for (int64_t begin = 0; begin < count; begin += group) {
    const int64_t end = std::min(begin + group, count);
    ScaleAndZero by{.scale = rounding.scale, .zero = rounding.zero};
    if (by.scale == 0.0f) {
      // Sizes in order of their bits, where NaN is behind all others.
      uint32_t below = 0, above = 0;
      for (int64_t i = begin; i < end; ++i) {
        uint32_t& side = std::signbit(from[i]) ? below : above;
        side = std::max(side, std::bit_cast<uint32_t>(std::fabs(from[i])));
      }
      const auto largest = std::bit_cast<float>(std::max(below, above));
      by = rounding.spans ? SpanCodes(std::bit_cast<float>(below), std::bit_cast<float>(above))
                          : ScaleAndZero{.scale = RowScale(rounding, largest)};
    }
    for (int64_t i = begin; i < end; ++i) {
      const float value = from[i] / by.scale + by.zero;
      const float code =
          rounding.codes == RowRounding::Codes::kInt8 ? NearestInt8(value) : NearestE4m3(value);
      to[i] = (code - by.zero + 0.0f) * by.scale;  // no zero is negative
    }
  }
}

void RoundedProducts::RoundRowsOf(PackedMatrix& matrix, const RowRounding& rounding) {
  KVG_CHECK(rounding.group >= 0 && std::isfinite(rounding.scale) && rounding.scale >= 0.0f,
            "groups and scales of rounded rows are not negative");
  const bool around_zero = !rounding.spans && rounding.zero == 0.0f;
  KVG_CHECK(around_zero || rounding.codes == RowRounding::Codes::kInt8,
            "only int8 has a code of 0 that is not 0");
  DoRoundRowsOf(matrix, rounding);
}

}  // namespace kvgauge

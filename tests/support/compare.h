// SPDX-License-Identifier: Apache-2.0
// Test helpers: seeded inputs with outliers, and comparisons in which a NaN never passes.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "core/rng.h"

namespace kvgauge {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Normal values, a few of them 20 times larger: uniform data would hide scaling faults.
inline std::vector<float> RandomValues(int64_t count, uint64_t seed, float scale = 1.0f) {
  Rng rng(seed, 7);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) {
    v = scale * static_cast<float>(rng.NextGaussian());
    if (rng.NextBelow(64) == 0) v *= 20.0f;
  }
  return values;
}

// |got - want| <= bound for every element, in the form that a NaN fails; equal infinities and
// NaN where NaN is wanted pass.
inline ::testing::AssertionResult AllWithin(std::span<const float> got, std::span<const float> want,
                                            double bound) {
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure() << got.size() << " values, expected " << want.size();
  }
  for (size_t i = 0; i < got.size(); ++i) {
    const float g = got[i], w = want[i];
    const bool same = g == w || (std::isnan(g) && std::isnan(w));
    if (!same && !(std::abs(double{g} - double{w}) <= bound)) {
      return ::testing::AssertionFailure()
             << "element " << i << ": " << g << ", expected " << w << " within " << bound;
    }
  }
  return ::testing::AssertionSuccess();
}

// The same of `rows` rows of a mixture of experts, where rounding may move a close choice: of one
// row in six, which then stays within `moved`.
inline ::testing::AssertionResult RowsOfMixtureWithin(std::span<const float> got,
                                                      std::span<const float> want, size_t rows,
                                                      double bound, double moved) {
  const ::testing::AssertionResult all = AllWithin(got, want, moved);
  if (!all) return all;
  const size_t width = want.size() / rows;
  size_t others = 0;
  for (size_t i = 0; i < rows; ++i) {
    const size_t begin = i * width;
    if (!AllWithin(got.subspan(begin, width), want.subspan(begin, width), bound)) ++others;
  }
  if (6 * others <= rows) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << others << " of " << rows << " rows are not within " << bound;
}

// Logits of a model in f16 or bf16, against those of f32 whose largest and smallest differ by
// `range`.
inline ::testing::AssertionResult NarrowLogitsWithin(std::span<const float> got,
                                                     std::span<const float> want, size_t rows,
                                                     double range, bool mixture) {
  return mixture ? RowsOfMixtureWithin(got, want, rows, range * 5e-2, range * 0.25)
                 : AllWithin(got, want, range * 5e-2);
}

// Bit equality; the failure names the first difference.
inline ::testing::AssertionResult SameBits(std::span<const float> got,
                                           std::span<const float> want) {
  if (got.size() != want.size()) {
    return ::testing::AssertionFailure() << got.size() << " values, expected " << want.size();
  }
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::memcmp(&got[i], &want[i], sizeof(float)) != 0) {
      return ::testing::AssertionFailure()
             << "element " << i << ": " << got[i] << ", expected the bits of " << want[i];
    }
  }
  return ::testing::AssertionSuccess();
}

inline double Norm(std::span<const float> values) {
  double sum = 0;
  for (const float v : values) sum += double{v} * v;
  return std::sqrt(sum);
}

}  // namespace kvgauge

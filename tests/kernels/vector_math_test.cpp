// SPDX-License-Identifier: Apache-2.0
#include "cpu/isa/vector_math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "cpu/attention/attention_kernels.h"
#include "cpu/cpu.h"

namespace kvgauge {
namespace {

constexpr float kInfinite = std::numeric_limits<float>::infinity();

std::vector<std::pair<std::string, const AttentionKernels*>> Kernels() {
  std::vector<std::pair<std::string, const AttentionKernels*>> kernels = {
      {"portable", &PortableAttentionKernels()}};
#if defined(__x86_64__)
  for (const Isa isa : SupportedIsas()) {
    if (isa == Isa::kAvx2) kernels.emplace_back("avx2", &Avx2AttentionKernels());
    if (isa == Isa::kAvx512) kernels.emplace_back("avx512", &Avx512AttentionKernels());
    if (isa == Isa::kAvx512Bf16) {
      kernels.emplace_back("avx512_bf16", &Avx512Bf16AttentionKernels());
    }
  }
#endif
  return kernels;
}

// Distance in units of the last place of `want`.
double Ulps(float got, double want) {
  const float rounded = static_cast<float>(want);
  const float size = std::max(std::abs(rounded), std::numeric_limits<float>::min());
  return std::abs(got - want) / (std::nextafter(size, kInfinite) - size);
}

TEST(VectorMath, ExpAndTanhAreAccurate) {
  std::vector<float> x, got;
  for (int i = 0; i < 400000; ++i) x.push_back(-88.0f + static_cast<float>(i) * 4.0001e-4f);
  for (const float special : {0.0f, -0.0f, -kInfinite, -1e30f, 1e-20f, -1e-6f})
    x.push_back(special);
  got.resize(x.size());
  for (const auto& [name, kernels] : Kernels()) {
    SCOPED_TRACE(name);
    kernels->exp(x.data(), std::ssize(x), got.data());
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (x[i] < kExpUnderflow) {
        ASSERT_EQ(got[i], 0.0f) << x[i];
      } else {
        worst = std::max(worst, Ulps(got[i], std::exp(double{x[i]})));
      }
    }
    EXPECT_LT(worst, 2.5);
    EXPECT_EQ(got[400000], 1.0f);

    std::vector<float> y;
    for (int i = 0; i < 200000; ++i) y.push_back(-10.0f + static_cast<float>(i) * 1.0001e-4f);
    for (const float v : {0.0f, 1e-20f, 40.0f, -kInfinite}) y.push_back(v);
    got.resize(y.size());
    kernels->tanh(y.data(), std::ssize(y), got.data());
    worst = 0;
    for (size_t i = 0; i < y.size(); ++i)
      worst = std::max(worst, Ulps(got[i], std::tanh(double{y[i]})));
    EXPECT_LT(worst, 3.0);

    float nan = std::numeric_limits<float>::quiet_NaN();
    kernels->exp(&nan, 1, got.data());
    EXPECT_TRUE(std::isnan(got[0]));
    kernels->tanh(&nan, 1, got.data());
    EXPECT_TRUE(std::isnan(got[0]));
    got.resize(x.size());
  }
}

}  // namespace
}  // namespace kvgauge

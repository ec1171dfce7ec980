// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "runner/weights.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<TensorSpec> Specs() {
  return {{"w.b", {300, 700}, TensorSpec::Init::kNormal, 0.02f},
          {"w.a", {300, 700}, TensorSpec::Init::kNormal, 0.02f},
          {"norm", {64}, TensorSpec::Init::kOnes},
          {"bias", {64}, TensorSpec::Init::kZeros}};
}

std::vector<float> Values(const WeightSource& source, const std::string& name) {
  const Result<WeightTensor> tensor = source.Get(name);
  EXPECT_TRUE(tensor.ok());
  const float* values = tensor->view.f32();
  return {values, values + tensor->view.Numel()};
}

TEST(RandomWeights, HaveTheMomentsOfTheirSpec) {
  const auto source = MakeRandomWeights(Specs(), 1, DType::kF32);
  EXPECT_THAT(source->Names(), ElementsAre("bias", "norm", "w.a", "w.b"));
  EXPECT_EQ(source->OriginOf("norm"), "random:1");
  double sum = 0, squares = 0, fourths = 0, neighbours = 0;
  const std::vector<float> values = Values(*source, "w.a");
  for (size_t i = 0; i < values.size(); ++i) {
    const double z = values[i] / 0.02;
    sum += z;
    squares += z * z;
    fourths += z * z * z * z;
    if (i > 0) neighbours += z * values[i - 1] / 0.02;
  }
  const double n = static_cast<double>(values.size());
  EXPECT_NEAR(sum / n, 0.0, 5.0 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1.0, 0.015);
  EXPECT_NEAR(fourths / n, 2.7, 0.05);  // a sum of four uniforms; a normal has 3
  EXPECT_NEAR(neighbours / n, 0.0, 5.0 / std::sqrt(n));
  EXPECT_EQ(Values(*source, "norm"), std::vector<float>(64, 1.0f));
  EXPECT_EQ(Values(*source, "bias"), std::vector<float>(64, 0.0f));
}

TEST(RandomWeights, DependOnSeedAndNameAlone) {
  const auto one = MakeRandomWeights(Specs(), 1, DType::kF32);
  const auto two = MakeRandomWeights(Specs(), 2, DType::kF32);
  const auto alone =
      MakeRandomWeights({{"w.a", {300, 700}, TensorSpec::Init::kNormal, 0.02f}}, 1, DType::kF32);
  EXPECT_EQ(Values(*one, "w.a"), Values(*one, "w.a"));
  EXPECT_EQ(Values(*one, "w.a"), Values(*alone, "w.a"));
  EXPECT_NE(Values(*one, "w.a"), Values(*one, "w.b"));
  EXPECT_NE(Values(*one, "w.a"), Values(*two, "w.a"));
  // Pinned, from another implementation: stored scores name these weights by their seed.
  EXPECT_EQ(Values(*one, "w.a")[0], 0x1.8b66b6p-6f);
  EXPECT_EQ(Values(*one, "w.a")[1], 0x1.a59056p-6f);
  EXPECT_EQ(Values(*one, "w.a")[209999], -0x1.69ffa6p-7f);
}

TEST(RandomWeights, ThreadsDoNotChangeThem) {
  const auto source = MakeRandomWeights(Specs(), 1, DType::kF32);
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const std::vector<float> serial = Values(*source, "w.a");
  omp_set_num_threads(4);
  const std::vector<float> parallel = Values(*source, "w.a");
  omp_set_num_threads(threads);
  EXPECT_EQ(serial, parallel);
}

TEST(RandomWeights, NarrowTypesAreTheRoundedValues) {
  const std::vector<float> wide = Values(*MakeRandomWeights(Specs(), 1, DType::kF32), "w.a");
  const auto bf16 = MakeRandomWeights(Specs(), 1, DType::kBF16)->Get("w.a");
  const auto f16 = MakeRandomWeights(Specs(), 1, DType::kF16)->Get("w.a");
  ASSERT_TRUE(bf16.ok() && f16.ok());
  EXPECT_EQ(bf16->view.DebugString(), "bf16[300, 700]");
  for (size_t i = 0; i < wide.size(); ++i) {
    ASSERT_EQ(bf16->view.As<uint16_t>()[i], F32ToBf16(wide[i]));
    ASSERT_EQ(f16->view.As<uint16_t>()[i], F32ToF16(wide[i]));
  }
}

TEST(RandomWeights, FingerprintNamesWhatTheyAreMadeFrom) {
  const std::string base = MakeRandomWeights(Specs(), 1, DType::kF32)->Fingerprint();
  EXPECT_EQ(MakeRandomWeights(Specs(), 1, DType::kF32)->Fingerprint(), base);
  EXPECT_NE(MakeRandomWeights(Specs(), 2, DType::kF32)->Fingerprint(), base);
  EXPECT_NE(MakeRandomWeights(Specs(), 1, DType::kBF16)->Fingerprint(), base);
  std::vector<TensorSpec> specs = Specs();
  specs[0].stddev = 0.03f;
  EXPECT_NE(MakeRandomWeights(specs, 1, DType::kF32)->Fingerprint(), base);
}

TEST(RandomWeights, UnknownNamesAndImpossibleSizesAreErrors) {
  const auto source = MakeRandomWeights(
      {{"huge", {int64_t{1} << 40, int64_t{1} << 40}, TensorSpec::Init::kZeros}}, 1, DType::kF32);
  EXPECT_THAT(source->Get("hug").error().message, HasSubstr("did you mean 'huge'?"));
  EXPECT_EQ(source->Get("huge").error().code, ErrorCode::kResource);
}

}  // namespace
}  // namespace kvgauge

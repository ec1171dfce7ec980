// SPDX-License-Identifier: Apache-2.0
#include "runner/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>

#include "core/json.h"

namespace kvgauge {
namespace {

constexpr double kTolerance = 1e-6;  // relative

void ExpectNear(double got, double want) {
  EXPECT_TRUE(std::abs(got - want) <= kTolerance * std::abs(want)) << got << ", expected " << want;
}

RopeConfig Llama3(int64_t rotary_dim, double factor) {
  RopeConfig config;
  config.kind = RopeKind::kLlama3;
  config.rotary_dim = rotary_dim;
  config.theta = 5e5;
  config.max_position = 131072;
  config.original_max_position = 8192;
  config.factor = factor;
  config.low_freq_factor = 1.0;
  config.high_freq_factor = 4.0;
  return config;
}

double Unscaled(const RopeConfig& config, size_t i) {
  return std::pow(config.theta, -2.0 * static_cast<double>(i) / double(config.rotary_dim));
}

// How many leading frequencies are untouched, and from which index on they are divided.
void ExpectBands(const RopeConfig& config, size_t kept, size_t divided_from) {
  const RopeFrequencies rope = ComputeRope(config, 100);
  for (size_t i = 0; i < rope.inverse.size(); ++i) {
    const double f = Unscaled(config, i);
    SCOPED_TRACE(i);
    if (i < kept) {
      ExpectNear(rope.inverse[i], f);
    } else if (i >= divided_from) {
      ExpectNear(rope.inverse[i], f / config.factor);
    } else {
      EXPECT_LT(rope.inverse[i], f);
      EXPECT_GT(rope.inverse[i], f / config.factor);
    }
  }
}

TEST(Rope, Llama31) {
  const RopeConfig config = Llama3(128, 8.0);
  ExpectBands(config, 29, 35);
  const RopeFrequencies rope = ComputeRope(config, 1);
  ExpectNear(rope.inverse[1], 0.814617234);
  ExpectNear(rope.inverse[29], 0.00216657076);
  ExpectNear(rope.inverse[34], 0.000178507813);
  ExpectNear(rope.inverse[63], 3.06892599e-07);
  EXPECT_EQ(rope.attention_factor, 1.0);
}

TEST(Rope, Llama32) {
  const RopeConfig config = Llama3(64, 32.0);
  ExpectBands(config, 15, 18);
  const RopeFrequencies rope = ComputeRope(config, 1);
  ExpectNear(rope.inverse[15], 0.00129054793);
  ExpectNear(rope.inverse[17], 9.7082878e-05);
  ExpectNear(rope.inverse[31], 9.41830673e-08);
}

TEST(Rope, Qwen25Yarn) {
  RopeConfig config;
  config.kind = RopeKind::kYarn;
  config.rotary_dim = 128;
  config.theta = 1e6;
  config.max_position = config.original_max_position = 32768;
  config.factor = 4.0;  // counts, though the two lengths say 1
  const RopeFrequencies rope = ComputeRope(config, 1);
  ExpectNear(rope.inverse[31], 0.000802959728);
  ExpectNear(rope.inverse[40], 4.44569853e-05);
  ExpectNear(rope.inverse[63], 3.1023444e-07);
  ExpectNear(rope.attention_factor, 1.138629436);
}

TEST(Rope, DeepseekYarn) {
  RopeConfig config;
  config.kind = RopeKind::kYarn;
  config.rotary_dim = 64;
  config.theta = 1e4;
  config.original_max_position = 4096;
  config.factor = 40.0;
  config.mscale = config.mscale_all_dim = 0.707;
  const RopeFrequencies rope = ComputeRope(config, 1);
  ExpectNear(rope.inverse[10], 0.0562341325);
  ExpectNear(rope.inverse[16], 0.0055);
  ExpectNear(rope.inverse[23], 3.33380358e-05);
  EXPECT_EQ(rope.attention_factor, 1.0);
}

TEST(Rope, LongropePicksTheSetFromTheTotalLength) {
  RopeConfig config;
  config.kind = RopeKind::kLongrope;
  config.rotary_dim = 96;
  config.max_position = 131072;
  config.original_max_position = 4096;
  config.factor = 32.0;
  config.short_factor.assign(48, 1.5);
  config.long_factor.assign(48, 4.0);
  const RopeFrequencies at_limit = ComputeRope(config, 4096);
  const RopeFrequencies past_limit = ComputeRope(config, 4097);
  ExpectNear(at_limit.inverse[7], Unscaled(config, 7) / 1.5);
  ExpectNear(past_limit.inverse[7], Unscaled(config, 7) / 4.0);
  ExpectNear(at_limit.attention_factor, 1.190238);
  ExpectNear(past_limit.attention_factor, 1.190238);
  EXPECT_TRUE(RopeDependsOnLength(config));
  config.short_factor = config.long_factor;
  EXPECT_FALSE(RopeDependsOnLength(config));
}

TEST(Rope, DynamicGrowsTheBasePastTheTrainedLength) {
  RopeConfig config;
  config.kind = RopeKind::kDynamic;
  config.rotary_dim = 128;
  config.max_position = 2048;
  config.factor = 2.0;
  EXPECT_TRUE(RopeDependsOnLength(config));
  EXPECT_EQ(ComputeRope(config, 1).inverse, ComputeRope(config, 2048).inverse);
  ExpectNear(ComputeRope(config, 2048).inverse[3], Unscaled(config, 3));
  // At twice the length: theta * (2 * 2 - 1)^(128 / 126).
  config.theta = 1e4;
  const double theta = 1e4 * std::pow(3.0, 128.0 / 126.0);
  ExpectNear(ComputeRope(config, 4096).inverse[63], std::pow(theta, -126.0 / 128.0));
}

TEST(Rope, KindsHaveTheNamesOfConfigs) {
  EXPECT_EQ(NameOf(RopeKind::kDefault), "default");
  EXPECT_EQ(NameOf(RopeKind::kLongrope), "longrope");
}

RopeConfig FromGolden(const Json& config) {
  const Json& block = config.at("rope_parameters");
  RopeConfig rope;
  for (const RopeKind kind : {RopeKind::kDefault, RopeKind::kLinear, RopeKind::kDynamic,
                              RopeKind::kLlama3, RopeKind::kYarn, RopeKind::kLongrope}) {
    if (block.at("rope_type") == NameOf(kind)) rope.kind = kind;
  }
  const double part = config.value("partial_rotary_factor", 1.0);
  rope.rotary_dim = static_cast<int64_t>(config.at("head_dim").get<double>() * part);
  rope.theta = block.at("rope_theta");
  rope.max_position = config.at("max_position_embeddings");
  rope.original_max_position =
      config.value("original_max_position_embeddings",
                   block.value("original_max_position_embeddings", rope.max_position));
  const double ratio = double(rope.max_position) / double(rope.original_max_position);
  rope.factor = block.value("factor", ratio);
  if (block.contains("attention_factor")) rope.attention_factor = block["attention_factor"];
  rope.low_freq_factor = block.value("low_freq_factor", 1.0);
  rope.high_freq_factor = block.value("high_freq_factor", 4.0);
  rope.beta_fast = block.value("beta_fast", 32.0);
  rope.beta_slow = block.value("beta_slow", 1.0);
  rope.mscale = block.value("mscale", 0.0);
  rope.mscale_all_dim = block.value("mscale_all_dim", 0.0);
  rope.truncate = block.value("truncate", true);
  rope.short_factor = block.value("short_factor", std::vector<double>());
  rope.long_factor = block.value("long_factor", std::vector<double>());
  return rope;
}

TEST(Rope, AgreesWithTransformersInEveryGoldenCase) {
  const std::filesystem::path folder = std::filesystem::path(KVG_TEST_DATA) / "golden" / "rope";
  int cases = 0;
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    const Result<Json> golden = ReadJsonFile(file.path());
    ASSERT_TRUE(golden.ok()) << golden.error().message;
    for (const Json& row : golden->at("cases")) {
      SCOPED_TRACE(file.path().filename().string() + ": " + row.at("name").get<std::string>());
      const Json& length = row.at("total_length");
      const RopeFrequencies rope =
          ComputeRope(FromGolden(row.at("config")), length.is_null() ? 1 : length.get<int64_t>());
      const std::vector<double> want = row.at("inv_freq");
      ASSERT_EQ(rope.inverse.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) ExpectNear(rope.inverse[i], want[i]);
      ExpectNear(rope.attention_factor, row.at("attention_factor"));
      ++cases;
    }
  }
  EXPECT_GE(cases, 30);
}

}  // namespace
}  // namespace kvgauge

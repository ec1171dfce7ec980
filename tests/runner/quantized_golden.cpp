// SPDX-License-Identifier: Apache-2.0
// Quantised Hub directories against the libraries that write them, or against packing by the
// published layouts (tests/golden/quantized, scripts/goldens/make_quantized).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/files.h"
#include "core/json.h"
#include "core/sha256.h"
#include "runner/generate.h"
#include "support/compare.h"
#include "support/fixtures.h"
#include "support/test_ops.h"

namespace kvgauge {
namespace {

const std::string kQuantized = std::string(KVG_TEST_DATA) + "/golden/quantized/";

class QuantizedModel : public ::testing::TestWithParam<std::string> {};

TEST_P(QuantizedModel, WeightsAreTheReferencesToTheBit) {
  const std::string path = kQuantized + GetParam();
  const Result<Json> expected = ReadJsonFile(path + "/weights.json");
  ASSERT_TRUE(expected.ok() && !expected->empty());
  const auto source = OpenWeights(path, DType::kF32);
  ASSERT_TRUE(source.ok()) << source.error().message;
  for (const auto& [name, digest] : expected->items()) {
    const Result<WeightTensor> weight = (*source)->Get(name);
    ASSERT_TRUE(weight.ok()) << weight.error().message;
    const Result<WeightInfo> told = (*source)->Describe(name);
    ASSERT_TRUE(told.ok());
    const Tensor& view = weight->view;
    EXPECT_EQ(told->dtype, DType::kF32);
    EXPECT_EQ(told->shape,
              std::vector<int64_t>(view.shape.begin(), view.shape.begin() + view.rank));
    Sha256 hash;
    hash.Update(view.data, static_cast<size_t>(view.SizeBytes()));
    EXPECT_EQ(hash.Finish(), digest.get<std::string>()) << name;
  }
}

TEST_P(QuantizedModel, LogitsAreTheReferences) {
  const std::string path = kQuantized + GetParam();
  const auto expected = OpenSafetensorsFile(path + "/expected.safetensors");
  ASSERT_TRUE(expected.ok());
  const std::vector<int32_t> ids = ReadIds(**expected, "ids");
  const std::vector<float> want = ReadFixture<float>(**expected, "logits", DType::kF32);
  const auto [low, high] = std::minmax_element(want.begin(), want.end());
  const double range = double{*high} - double{*low};
  const std::unique_ptr<Ops> ops = MakeTestOps("cpu", 2);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    ModelOptions options;
    options.dtype = dtype;
    const Result<std::unique_ptr<Model>> model = Model::Load(path, options, *ops);
    ASSERT_TRUE(model.ok()) << model.error().message;
    EXPECT_FALSE((*model)->config().weight_format.empty());
    KvCache cache = (*model)->NewCache(std::ssize(ids));
    std::vector<float> got;
    const Status status = Prefill(**model, Prompt::FromTokens(ids), cache, Model::kChunkRows, true,
                                  [&](const Tensor& rows) -> Status {
                                    const std::vector<float> some = HostFloats(*ops, rows);
                                    got.insert(got.end(), some.begin(), some.end());
                                    return {};
                                  });
    ASSERT_TRUE(status.ok());
    EXPECT_TRUE(dtype == DType::kF32 ? AllWithin(got, want, range * 1e-4)
                                     : NarrowLogitsWithin(got, want, ids.size(), range,
                                                          (*model)->config().moe.has_value()));
  }
}

// A directory says how the inputs of its matrices are rounded, and libraries do so.
TEST_P(QuantizedModel, LogitsByRoundedRowsAreTheReferences) {
  const std::string path = kQuantized + GetParam();
  const auto expected = OpenSafetensorsFile(path + "/expected.safetensors");
  ASSERT_TRUE(expected.ok());
  const std::vector<int32_t> ids = ReadIds(**expected, "ids");
  const std::vector<float> plain = ReadFixture<float>(**expected, "logits", DType::kF32);
  const auto [low, high] = std::minmax_element(plain.begin(), plain.end());
  const double range = double{*high} - double{*low};
  const std::unique_ptr<Ops> ops = MakeTestOps("cpu", 2);
  const bool told = GetParam().starts_with("fp8") || FileExists(path + "/rounded.safetensors");
  bool moe = false;
  const auto logits = [&](DType dtype) {
    ModelOptions options;
    options.dtype = dtype;
    options.product_rows = ProductRows::kFile;
    const Result<std::unique_ptr<Model>> model = Model::Load(path, options, *ops);
    EXPECT_EQ(model.ok(), told) << GetParam();
    std::vector<float> got;
    if (!model.ok()) {
      EXPECT_THAT(model.error().message, ::testing::HasSubstr("input_activations"));
      return got;
    }
    moe = (*model)->config().moe.has_value();
    KvCache cache = (*model)->NewCache(std::ssize(ids));
    const Status status = Prefill(**model, Prompt::FromTokens(ids), cache, Model::kChunkRows, true,
                                  [&](const Tensor& rows) -> Status {
                                    const std::vector<float> some = HostFloats(*ops, rows);
                                    got.insert(got.end(), some.begin(), some.end());
                                    return {};
                                  });
    EXPECT_TRUE(status.ok());
    return got;
  };
  const std::vector<float> got = logits(DType::kF32);
  if (!told) return;
  // Those of the dequantised rows are neither the same nor far away.
  EXPECT_FALSE(AllWithin(got, plain, range * 1e-3));
  EXPECT_TRUE(AllWithin(got, plain, range * 0.25));
  if (!FileExists(path + "/rounded.safetensors")) return;
  const auto rounded = OpenSafetensorsFile(path + "/rounded.safetensors");
  ASSERT_TRUE(rounded.ok());
  const std::vector<float> want = ReadFixture<float>(**rounded, "logits", DType::kF32);
  EXPECT_TRUE(AllWithin(got, want, range * 1e-4));
  EXPECT_TRUE(NarrowLogitsWithin(logits(DType::kBF16), want, ids.size(), range, moe));
}

INSTANTIATE_TEST_SUITE_P(All, QuantizedModel,
                         ::testing::ValuesIn(FixtureDirectories("golden/quantized")),
                         [](const auto& named) { return named.param; });

}  // namespace
}  // namespace kvgauge

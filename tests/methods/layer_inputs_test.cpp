// SPDX-License-Identifier: Apache-2.0
// Caches of layer inputs: what they promise and what they refuse.
#include "methods/layouts/layer_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fake_view.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

std::string InputsRefusal(const ModelShape& shape, bool has_bases) {
  const auto store = MakeStage<Store>(StageKind::kStore, "layer_inputs");
  StoreUse use;
  use.shape = &shape;
  use.has_bases = has_bases;
  const Status fits = store->Plan(shape, 0)->layout->Check(use);
  return fits.ok() ? "" : fits.error().message;
}

TEST(LayerInputsTest, RefuseWhatAProductDoesNotMakeAgain) {
  ModelShape shape = SmallShape(1, 2, 1, 32);
  shape.hidden_size = 64;
  EXPECT_EQ(InputsRefusal(shape, true), "");
  EXPECT_THAT(InputsRefusal(shape, false), HasSubstr("\"prepare\": {\"id\": \"projections\"}"));
  shape.key_norm = true;
  EXPECT_THAT(InputsRefusal(shape, true), HasSubstr("normed after their projection"));
  shape.key_norm = false;
  shape.latent_dim = 16;
  EXPECT_THAT(InputsRefusal(shape, true), HasSubstr("latents of its own"));
}

// Half of what two heads of 32 numbers a side take, and 4 bits with a scale and a zero.
TEST(LayerInputsTest, AnInputStandsForKeysAndValues) {
  ModelShape shape = SmallShape(1, 2, 1, 32);
  shape.hidden_size = 64;
  const auto whole = MakeStage<Store>(StageKind::kStore, "layer_inputs");
  const int64_t number = SizeOf(shape.cache_dtype);
  EXPECT_EQ(whole->Plan(shape, 0)->layout->HeadBytes(shape, 10), 10 * 32 * number);
  EXPECT_EQ(whole->Plan(shape, 0)->layout->EntryBits(shape), 8 * 32 * number);
  const auto coded =
      MakeStage<Store>(StageKind::kStore, "layer_inputs", R"({"bits": 4, "group": 128})");
  EXPECT_EQ(coded->Plan(shape, 0)->layout->HeadBytes(shape, 10), 10 * (32 + 4) / 2.0);
  EXPECT_EQ(coded->Plan(shape, 0)->layout->EntryBits(shape), 4 * 32);
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Methods on the golden checkpoints of families: keys may lie without rotation in some layers,
// slide in others, be normed or shared by all heads.
#include <gmock/gmock.h>

#include <cmath>

#include "core/json.h"
#include "runner/config_cases.h"
#include "runner/engine_fixture.h"
#include "support/fixtures.h"

namespace kvgauge {
namespace {

class FamilyMethods : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ops_ = MakeTestOps("cpu", 1);
    ModelOptions options;
    options.dtype = DType::kF32;
    Result<std::unique_ptr<Model>> model =
        Model::Load(StrCat(KVG_TEST_DATA, "/golden/models/", GetParam()), options, *ops_);
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = std::move(model).value();
  }

  CellResult Run(const std::string& method, double share,
                 const std::vector<std::string>& overrides) {
    const Method loaded = Shipped(method, overrides);
    const Contender contender = {
        .method = &loaded, .budget = Fraction(share), .model = model_.get()};
    const EngineSample sample = {
        .id = method,
        .turns = {{.ids = RandomIds(96, 7, model_->config().vocab_size), .max_new_tokens = 8}}};
    CellResult cell = RunEngine({contender}, {}, {sample}).at({0, 0});
    EXPECT_TRUE(cell.status.ok()) << method << ": " << cell.status.error().message;
    return cell;
  }

  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
};

TEST_P(FamilyMethods, SelectAndQuantise) {
  const CellResult full = Run("full", 1, {});
  EXPECT_EQ(full.record.engagement, Engagement::kIdentity);
  ASSERT_EQ(full.turns[0].ids.size(), 8u);

  const ModelShape shape = model_->shape();
  if (shape.layers == 0 || shape.entry_tokens > 1) {
    for (const char* method : {"snapkv", "int8"}) {
      const Status status = CheckMethod(Shipped(method, {}), shape, Fraction(0.5), 96);
      ASSERT_FALSE(status.ok()) << method;
      EXPECT_THAT(status.error().message,
                  ::testing::HasSubstr(shape.layers == 0 ? "this model has no cache"
                                                         : "only its full cache is run"));
    }
    return;
  }
  if (model_->shape().made_keys) {
    for (const char* method : {"snapkv", "int8", "streaming_llm"}) {
      const Status status = CheckMethod(Shipped(method, {}), model_->shape(), Fraction(0.5), 96);
      ASSERT_FALSE(status.ok()) << method;
      EXPECT_THAT(status.error().message, ::testing::HasSubstr("only its full cache is run"));
    }
    return;
  }
  const CellResult some = Run("snapkv", 0.5, {"score.window=8", "protect.recent=8"});
  EXPECT_EQ(some.record.engagement, Engagement::kEngaged) << some.record.reason;
  EXPECT_LT(some.record.bytes.payload, full.record.bytes.payload);
  EXPECT_EQ(some.turns[0].ids.size(), 8u);
  // All of the budget is the full cache.
  EXPECT_EQ(Run("snapkv", 1, {"score.window=8", "protect.recent=8"}).turns[0].ids,
            full.turns[0].ids);

  const CellResult bits = Run("int8", 1, {});
  EXPECT_EQ(bits.record.engagement, Engagement::kEngaged) << bits.record.reason;
  EXPECT_LT(bits.record.bytes.payload, full.record.bytes.payload);

  // Keys that are turned back and turned again, by the place in the cache; those of latent
  // attention are not.
  if (model_->config().mla || !model_->config().rope) return;
  const CellResult slots = Run("streaming_llm", 0.5, {});
  EXPECT_EQ(slots.record.engagement, Engagement::kEngaged) << slots.record.reason;
}

std::vector<std::string> Goldens() {
  std::vector<std::string> names;
  for (const auto& [family, golden] : kGoldenFamilies) names.push_back(golden);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Families, FamilyMethods, ::testing::ValuesIn(Goldens()),
                         [](const auto& golden) { return golden.param; });

}  // namespace
}  // namespace kvgauge

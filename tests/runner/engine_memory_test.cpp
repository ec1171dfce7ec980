// SPDX-License-Identifier: Apache-2.0
// Memory of the engine: what is planned, refused, and used again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runner/engine.h"
#include "runner/engine_fixture.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

TEST_F(EngineTest, RefusesWhatCannotFit) {
  const std::vector<EngineSample> samples = {Sample(400, 1)};
  Engine engine({At(full_, 1), At(snapkv_, 0.5)}, {.max_memory_bytes = 1 << 20});
  const Status refused = engine.Run(samples, [](CellResult) { return Status(); });
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResource);
  EXPECT_THAT(refused.error().message, HasSubstr("--max-memory is 1.0 MiB"));

  const Result<MemoryPlan> free = Engine({At(full_, 1)}, {}).PlanMemory(samples);
  ASSERT_TRUE(free.ok());
  // The same before the weights are loaded.
  const Model& model = *At(full_, 1).model;
  const PlannedModel planned = {
      .config = &model.config(),
      .caches = &model.cache_config(),
      .shape = model.shape(),
      .checkpoint_shape = model.checkpoint_shape(),
      .weight_bytes = PlannedWeightBytes(model.config(), model.dtype(), model.dtype()),
      .ops = &model.ops()};
  const PlannedContender contender = {
      .method = At(full_, 1).method, .budget = {}, .model = &planned};
  const SampleLength length = LengthOf(samples[0], CompressAt::kPrompt);
  const Result<MemoryPlan> before = PlanMemory({&contender, 1}, {&length, 1}, {});
  ASSERT_TRUE(before.ok());
  EXPECT_NEAR(static_cast<double>(before->total_bytes()), static_cast<double>(free->total_bytes()),
              0.02 * static_cast<double>(free->total_bytes()));
  EXPECT_EQ(before->lane_bytes, free->lane_bytes);
  EXPECT_EQ(free->pool_lanes, 64);
  // A host without a limit has its memory for one: no bound where the one cell fits, and a refusal
  // where it does not.
  const int64_t single = before->total_bytes() - 63 * before->lane_bytes;
  const Result<MemoryPlan> fits = PlanMemory({&contender, 1}, {&length, 1}, {}, single);
  ASSERT_TRUE(fits.ok()) << fits.error().message;
  EXPECT_EQ(fits->cache_limit_bytes, 0);
  const Result<MemoryPlan> large = PlanMemory({&contender, 1}, {&length, 1}, {}, single - 1);
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code, ErrorCode::kResource);
  EXPECT_THAT(large.error().message, HasSubstr("this machine has"));
  // Just enough for one contender at a time: slower, the same answers.
  const int64_t tight = free->total_bytes() - 63 * free->lane_bytes;
  const std::vector<Contender> contenders = {At(full_, 1), At(full_, 1)};
  const Cells cells = RunEngine(contenders, {.max_memory_bytes = tight}, samples);
  EXPECT_EQ(cells.at({0, 0}).turns[0].ids,
            RunEngine(contenders, {}, samples).at({0, 1}).turns[0].ids);
}

TEST_F(EngineTest, PlansTheScoresOfEveryScorer) {
  const Method knorm = Shipped("knorm"), keydiff = Shipped("keydiff");
  const std::vector<EngineSample> samples = {Sample(400, 1)};
  const auto planned = [&](const std::vector<Contender>& contenders) {
    const Result<MemoryPlan> plan = Engine(contenders, {}).PlanMemory(samples);
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    return plan->snapshot_bytes;
  };
  const ModelShape shape = model_.shape();
  const int64_t scores = shape.layers * shape.kv_heads * 400 * 4;
  const int64_t none = planned({At(full_, 1)}), one = planned({At(knorm, 0.5)});
  EXPECT_EQ(one - none, scores);
  // No parameter of either distinguishes one from the other.
  EXPECT_EQ(planned({At(knorm, 0.5), At(keydiff, 0.5)}) - one, scores);
  // Contenders of one scorer share what it computes.
  EXPECT_EQ(planned({At(knorm, 0.5), At(knorm, 0.2)}), one);
}

// The backend is asked for the scratch of rows that a file rounds, and only then.
TEST_F(EngineTest, PlansTheScratchOfRowsAsAFileRoundsThem) {
  class Asked final : public MemoryOps {
   public:
    Buffer Allocate(int64_t) override { return {}; }
    void Copy(const Tensor&, Tensor) override {}
    void Clear(Tensor) override {}
    void Synchronize() override {}
    int64_t ScratchBytes(const PassSize& size) const override {
      asked = size;
      return 0;
    }
    mutable PassSize asked;
  };
  Ops ops;
  ops.memory = std::make_unique<Asked>();
  const PassSize& asked = static_cast<const Asked&>(*ops.memory).asked;
  ModelConfig config = model_.config();
  PlannedModel planned = {.config = &config,
                          .caches = &config,
                          .shape = model_.shape(),
                          .checkpoint_shape = model_.shape(),
                          .ops = &ops};
  const PlannedContender contender = {
      .method = &full_, .budget = {}, .model = &planned, .original = &planned};
  const SampleLength length = LengthOf(Sample(40, 1), CompressAt::kPrompt);
  const auto plan = [&] { return PlanMemory({&contender, 1}, {&length, 1}, {}).ok(); };
  ASSERT_TRUE(plan());
  EXPECT_EQ(asked.rounded_number_bytes, 0);
  EXPECT_EQ(asked.chosen, 0);
  planned.product_rows = ProductRows::kFile;
  ASSERT_TRUE(plan());
  EXPECT_EQ(asked.rounded_number_bytes, SizeOf(planned.shape.cache_dtype));
  EXPECT_EQ(asked.chosen, 0);
  config.moe = MoeConfig{.experts_per_token = 3};
  ASSERT_TRUE(plan());
  EXPECT_EQ(asked.chosen, 3);
  EXPECT_EQ(asked.chosen_in, config.hidden_size);
  config.moe->expert_ffn_size = config.hidden_size + 1;
  ASSERT_TRUE(plan());
  EXPECT_EQ(asked.chosen_in, config.hidden_size + 1);
}

// Contenders are planned by what their store takes, not as full caches.
TEST_F(EngineTest, PlansContendersByTheirStores) {
  const Method kivi = Shipped("kivi_2bit"), think = Shipped("think");
  const std::vector<EngineSample> samples = {Sample(4000, 1)};
  const auto planned = [&](const Method& method) {
    const Result<MemoryPlan> plan = Engine({At(method, 0)}, {}).PlanMemory(samples);
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    return plan->lane_bytes;
  };
  const int64_t full = planned(full_);
  EXPECT_LT(planned(kivi), full / 2);
  EXPECT_GT(planned(kivi), full / 16);
  EXPECT_EQ(planned(think), full);  // its keys are whole while they are converted
}

TEST_F(EngineTest, MemoryOfOneRunServesTheNext) {
  const std::vector<Contender> contenders = {At(full_, 1), At(snapkv_, 0.5)};
  const std::vector<EngineSample> samples = {Sample(60, 1), Sample(90, 2)};
  BlockPool& pool = model_.pools().of(Tier::kDevice);
  RunEngine(contenders, {}, samples);
  EXPECT_EQ(pool.used_bytes(), 0);
  const int64_t peak = pool.peak_bytes();
  EXPECT_GT(peak, 0);
  RunEngine(contenders, {}, samples);
  EXPECT_EQ(pool.peak_bytes(), peak);
  // What is bounded has memory of its own, as more of it shows.
  const std::vector<EngineSample> longer = {Sample(700, 3)};
  RunEngine(contenders, {.max_memory_bytes = int64_t{1} << 32}, longer);
  EXPECT_EQ(pool.peak_bytes(), peak);
  RunEngine(contenders, {}, longer);
  EXPECT_GT(pool.peak_bytes(), peak);
}

}  // namespace
}  // namespace kvgauge

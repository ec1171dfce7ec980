// SPDX-License-Identifier: Apache-2.0
// Layers that hold their inputs answer as the full cache does, in the bytes of an input.
#include <gtest/gtest.h>

#include "runner/engine_fixture.h"

namespace kvgauge {
namespace {

class HeldInputsTest : public EngineTest {
 protected:
  TinyModel Prepared(const Method& method) {
    const Pipeline pipeline = MakePipeline(method);
    ModelOptions options;
    options.prepare = pipeline.prepare.get();
    return MakeTinyModel("gqa", 2, options);
  }
};

TEST_F(HeldInputsTest, AnswerAsTheFullCacheDoes) {
  const Method whole = Shipped("hcache");
  const Method coded = Shipped("xquant_inputs", {"store.bits=8", "store.keep_recent=10"});
  const TinyModel held = Prepared(whole), rounded = Prepared(coded);
  // A later turn is read through what is held of the first.
  EngineSample sample = Sample(90, 3, 4);
  sample.turns.push_back({.ids = RandomIds(40, 4), .max_new_tokens = 3});
  const std::vector<Contender> contenders = {At(full_, 1),
                                             {&whole, {}, held.model.get(), &model_},
                                             {&coded, {}, rounded.model.get(), &model_}};
  for (const CompressAt moment : {CompressAt::kPrompt, CompressAt::kTurn}) {
    const EngineOptions options = {.compress_at = moment, .fidelity_steps = 1};
    const Cells cells = RunEngine(contenders, options, {sample});
    const CellResult &full = cells.at({0, 0}), &one = cells.at({0, 1}), &less = cells.at({0, 2});
    for (const CellResult* cell : {&one, &less}) {
      ASSERT_TRUE(cell->status.ok()) << cell->status.error().message;
      EXPECT_EQ(cell->record.engagement, Engagement::kEngaged) << cell->record.reason;
      EXPECT_GT(cell->record.bytes.projections, 0);
    }
    for (size_t turn = 0; turn < full.turns.size(); ++turn) {
      EXPECT_EQ(one.turns[turn].ids, full.turns[turn].ids);
    }
    EXPECT_LT(one.fidelity->kl_divergence, 1e-6);
    EXPECT_LT(less.fidelity->kl_divergence, 1e-3);
    const ModelConfig& config = model_.config();
    const int64_t both = config.kv_heads * (config.key_dim + config.value_dim);
    EXPECT_EQ(one.record.bytes.payload * both, full.record.bytes.payload * config.hidden_size);
    EXPECT_LT(less.record.bytes.logical() - less.record.bytes.projections,
              one.record.bytes.payload);
  }
}

// Keys that are clipped, and values that are normed, are no products of inputs and projections.
TEST(ClippedProjectionsTest, HaveNoBases) {
  const std::unique_ptr<Ops> ops = MakeHostOps("cpu", 1);
  for (const char* id : {"hcache", "joint_svd", "lorc"}) {
    const Pipeline pipeline = MakePipeline(Shipped(id));
    ModelOptions options;
    options.prepare = pipeline.prepare.get();
    const std::string models = StrCat(KVG_TEST_DATA, "/golden/models/");
    const auto clipped = Model::Load(models + "mpt_clip", options, *ops);
    ASSERT_FALSE(clipped.ok()) << id;
    EXPECT_NE(clipped.error().message.find("kept within 0.75 behind their projections"),
              std::string::npos)
        << clipped.error().message;
    EXPECT_TRUE(Model::Load(models + "mpt", options, *ops).ok()) << id;
    const auto normed = Model::Load(models + "gemma3n_text", options, *ops);
    ASSERT_FALSE(normed.ok()) << id;
    EXPECT_NE(normed.error().message.find("gemma3n_text/config.json"), std::string::npos)
        << normed.error().message;
  }
}

}  // namespace
}  // namespace kvgauge

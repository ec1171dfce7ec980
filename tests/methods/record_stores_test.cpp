// SPDX-License-Identifier: Apache-2.0
// Stores whose codes are records, and the transform coder: what they plan, learn and refuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/strings.h"
#include "fake_view.h"
#include "methods/calibration.h"
#include "methods/codebooks.h"
#include "methods/layouts/basis_coded.h"
#include "methods/layouts/coded.h"
#include "methods/layouts/transformed.h"
#include "methods/registry.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelShape OfDim(int64_t dim) { return SmallShape(1, 2, 1, dim); }

// Refusals by the stage or by the layout that it plans: both come before a prompt is read.
std::string RecordRefusal(const std::string& id, const std::string& params,
                          const ModelShape& shape) {
  const auto stage = MakeStage<Store>(StageKind::kStore, id, params);
  const Status status = stage->Check(shape);
  if (!status.ok()) return status.error().message;
  const Result<StorePlan> plan = stage->Plan(shape, 0);
  if (!plan.ok()) return plan.error().message;
  StoreUse use;
  use.shape = &shape;
  const Status fits = plan->layout->Check(use);
  return fits.ok() ? "" : fits.error().message;
}

TEST(RecordStoresTest, RefuseWhatMakesNoRecords) {
  EXPECT_EQ(RecordRefusal("skvq", "{}", OfDim(64)), "");
  EXPECT_THAT(RecordRefusal("skvq", R"({"group": 48})", OfDim(64)),
              HasSubstr("group 48 does not divide the 64 dims of an entry"));
  EXPECT_EQ(RecordRefusal("polar_pairs", "{}", OfDim(64)), "");
  EXPECT_THAT(RecordRefusal("polar_pairs", R"({"group": 64, "residual": 96})", OfDim(64)),
              HasSubstr("residual 96 must be a multiple of group 64"));
  EXPECT_THAT(RecordRefusal("polar_pairs", "{}", OfDim(15)),
              HasSubstr("keys have 15 dims, which make no pairs"));
  EXPECT_THAT(RecordRefusal("polar_pairs", R"({"group": 20, "residual": 40})", OfDim(64)),
              HasSubstr("group 20 over entries: must be 16, 32 or 64"));
  EXPECT_EQ(RecordRefusal("vidkv", "{}", OfDim(64)), "");
  EXPECT_EQ(RecordRefusal("vidkv", R"({"key_share": 1, "value_bits": 2})", OfDim(64)), "");
  EXPECT_THAT(RecordRefusal("vidkv", R"({"group": 64})", OfDim(64)),
              HasSubstr("residual 32 must be a multiple of group 64"));
  EXPECT_THAT(RecordRefusal("vidkv", R"({"group": 24, "residual": 48})", OfDim(64)),
              HasSubstr("group 24 over entries: must be 16, 32 or 64"));
  EXPECT_EQ(RecordRefusal("polar_tree", "{}", OfDim(64)), "");
  EXPECT_THAT(RecordRefusal("polar_tree", "{}", OfDim(24)), HasSubstr("multiple of 16"));
  EXPECT_THAT(RecordRefusal("turboquant", R"({"form": "products", "key_bits": 1})", OfDim(64)),
              HasSubstr("key_bits 1: a bit is for signs of the error"));
}

// Channels 0 and 2 range widest over both heads: channel 2 in the second alone.
TEST(RecordStoresTest, VidKvTurnsNarrowChannels) {
  FakeView view(SmallShape(1, 2, 1, 4), 2);
  view.keys[0] = {-3, 1, 5, 0, 3, 1.5, 5, 1};
  view.keys[1] = {0, 1, -4, 0, 0, 1, 4, 0};
  const auto store = MakeStage<Store>(StageKind::kStore, "vidkv");
  StorePlan plan = *store->Plan(view.shape(), 0);
  store->Calibrate(view, plan);
  const auto* layout = plan.Get<Transformed>();
  ASSERT_NE(layout, nullptr);
  EXPECT_EQ(layout->keys.stages, 2);
  EXPECT_EQ(layout->EntryBits(view.shape()), 2 + 2 * 2 + 8);
  const float half = 0.70710678f;
  EXPECT_THAT(*layout->key_change.there,
              ElementsAre(0, 0, 1, 0, half, half, 0, 0, 0, 0, 0, 1, half, -half, 0, 0));
}

TEST(RecordStoresTest, RefuseCodewordsThatCannotBe) {
  EXPECT_EQ(RecordRefusal("vectors", R"({"key_bits": 4, "value_bits": 4})", OfDim(64)), "");
  EXPECT_THAT(RecordRefusal("vectors", R"({"key_width": 7})", OfDim(64)),
              HasSubstr("key_width 7 does not divide the 64 dims of a key"));
  EXPECT_THAT(RecordRefusal("vectors", R"({"value_bits": 9})", OfDim(64)),
              HasSubstr("value_bits 9: must be at most 8"));
  EXPECT_THAT(RecordRefusal("vectors", R"({"key_stages": 2})", OfDim(64)),
              HasSubstr("take book 'drawn'"));
  EXPECT_THAT(
      RecordRefusal("vectors",
                    R"({"key_width": 0, "key_bits": 5, "commuting": true, "book": "drawn"})",
                    OfDim(64)),
      HasSubstr("an even number of bits"));
}

TEST(RecordStoresTest, RefuseLatents) {
  ModelShape shape = OfDim(64);
  shape.latent_dim = 32;
  for (const std::string id : {"skvq", "vectors", "polar_pairs", "kvtc"}) {
    EXPECT_THAT(RecordRefusal(id, "{}", shape), HasSubstr("latents")) << id;
  }
}

// Channels of two kinds lie mixed; those of a kind get one group.
TEST(SkvqTest, ASideFilePutsEveryChannelIntoOneOfTheGroups) {
  const ModelShape shape = SmallShape(1, 2, 1, 4);
  const auto stage = MakeStage<Store>(StageKind::kStore, "skvq", R"({"group": 2})");
  const auto file = std::make_shared<Calibration>();
  file->path = "groups.safetensors";
  for (const std::string side : {"keys", "values"}) {
    file->tables[side + ".clusters.0"] = {{2, 4}, {0, 1, 1, 0, 1, 1, 0, 0}};
  }
  stage->Use(file);
  EXPECT_TRUE(stage->Check(shape).ok());
  for (const float wrong : {2.0f, -1.0f, 0.5f}) {
    file->tables["values.clusters.0"].values[6] = wrong;
    EXPECT_THAT(stage->Check(shape).error().message,
                HasSubstr(StrCat("groups.safetensors: table 'values.clusters.0': channel 2 of ",
                                 "head 1 is in group ", wrong, "; groups are whole numbers ",
                                 "from 0 to 1")));
  }
}

TEST(SkvqTest, ChannelsOfLikeRangesShareAGroup) {
  const ModelShape shape = SmallShape(1, 1, 1, 8);
  FakeView view(shape, 12);
  for (int64_t t = 0; t < 12; ++t) {
    for (int64_t c = 0; c < 8; ++c) {
      const float sign = t % 2 == 0 ? 1.0f : -1.0f;
      view.values[0][static_cast<size_t>(t * 8 + c)] = sign * (c % 2 == 0 ? 1.0f : 50.0f);
    }
  }
  const auto stage = MakeStage<Store>(StageKind::kStore, "skvq", R"({"group": 4})");
  StorePlan plan = *stage->Plan(shape, 0);
  stage->Calibrate(view, plan);
  EXPECT_THAT(Floats(plan.Get<Coded>()->tables.values), ElementsAre(0, 1, 0, 1, 0, 1, 0, 1));
}

// Mean square of what the sum of words leaves, each row coded greedily.
double LeftBy(const CodewordShape& shape, const std::vector<float>& words,
              std::span<const float> rows) {
  const int64_t count = int64_t{1} << shape.bits;
  double left = 0;
  for (int64_t row = 0; row < std::ssize(rows); row += shape.dim) {
    for (int64_t run = 0; run < shape.runs(); ++run) {
      double least = INFINITY;
      for (int64_t w = 0; w < count; ++w) {
        double sum = 0;
        for (int64_t c = 0; c < shape.width; ++c) {
          const double off = double{rows[static_cast<size_t>(row + run * shape.width + c)]} -
                             words[static_cast<size_t>((run * count + w) * shape.width + c)];
          sum += off * off;
        }
        least = std::min(least, sum);
      }
      left += least;
    }
  }
  return left / static_cast<double>(rows.size());
}

TEST(CodebooksTest, LearnedWordsLeaveLessThanDrawnOnes) {
  CodewordShape shape;
  shape.dim = 8;
  shape.width = 2;
  shape.bits = 4;
  const std::vector<float> rows = RandomValues(400 * 8, 3, 1.0f);
  const std::vector<float> drawn = DrawnWords(shape, 5, 6);
  const std::vector<float> learned = LearnedWords(shape, rows, 12, 5, 6);
  ASSERT_EQ(std::ssize(drawn), shape.numbers());
  ASSERT_EQ(std::ssize(learned), shape.numbers());
  EXPECT_LT(LeftBy(shape, learned, rows), 0.7 * LeftBy(shape, drawn, rows));
}

// A table that a calibration lacks is named, and one that it has is planned with.
TEST(RecordStoresTest, PlansTakeTablesOfACalibration) {
  const ModelShape shape = OfDim(16);
  for (const auto& [id, params] : {std::pair<std::string, std::string>{"skvq", R"({"group": 8})"},
                                   {"vectors", R"({"key_bits": 3, "value_bits": 3})"},
                                   {"kvtc", "{}"}}) {
    const StageSpec* spec = *FindStage(StageKind::kStore, id);
    const Result<Params> parsed = Params::Parse(spec->params, *ParseJson(params, "test"), id);
    ASSERT_TRUE(parsed.ok());
    const std::vector<int64_t> lengths = {40};
    const auto calibrator = spec->calibrate(*parsed, shape, lengths);
    FakeView view(shape, 40);
    view.Randomize(7);
    calibrator->Observe(0, view);
    const auto file = std::make_shared<Calibration>();
    file->path = "learned.safetensors";
    file->tables = calibrator->Finish(view.ops());
    const auto stage = MakeStage<Store>(StageKind::kStore, id, params);
    stage->Use(file);
    ASSERT_TRUE(stage->Check(shape).ok()) << id;
    const Result<StorePlan> plan = stage->Plan(shape, 0);
    ASSERT_TRUE(plan.ok()) << id << ": " << plan.error().message;
    StoreUse use;
    use.shape = &shape;
    EXPECT_TRUE(plan->layout->Check(use).ok()) << id << plan->layout->Check(use).error().message;
    const std::string gone = file->tables.begin()->first;
    file->tables.erase(gone);
    const Result<StorePlan> without = stage->Plan(shape, 0);
    ASSERT_FALSE(without.ok()) << id;
    EXPECT_THAT(without.error().message, HasSubstr(gone)) << id;
  }
}

// Strong coordinates get the bits; what a budget has no room for is given up.
TEST(BestGroupsTest, BitsGoWhereVarianceIs) {
  std::vector<float> variances(64, 1e-6f);
  std::fill_n(variances.begin(), 8, 100.0f);
  const std::vector<BasisCoded::Group> groups = BestGroups(variances, 8 * 8 + 32);
  int64_t spent = 0, size = 0;
  for (const BasisCoded::Group& group : groups) {
    size += group.size;
    if (group.bits > 0) spent += group.size * group.bits + 32;
  }
  EXPECT_EQ(size, 64);
  EXPECT_LE(spent, 8 * 8 + 32);
  EXPECT_EQ(groups[0].size, 8);
  EXPECT_EQ(groups[0].bits, 8);
  for (const BasisCoded::Group& group : BestGroups(variances, 0)) EXPECT_EQ(group.bits, 0);
}

}  // namespace
}  // namespace kvgauge

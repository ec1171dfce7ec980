// SPDX-License-Identifier: Apache-2.0
// What stores plan, and what a plan comes to in bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "fake_view.h"
#include "methods/basis_change.h"
#include "methods/layouts/coded.h"
#include "methods/layouts/latent.h"
#include "methods/layouts/mla_latent.h"
#include "methods/layouts/narrow_keys.h"
#include "methods/layouts/shared_directions.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

StorePlan Planned(const std::string& id, const std::string& params, const ModelShape& shape,
                  int64_t layer = 0) {
  const auto stage = MakeStage<Store>(StageKind::kStore, id, params);
  EXPECT_TRUE(stage->Check(shape).ok()) << stage->Check(shape).error().message;
  const Result<StorePlan> plan = stage->Plan(shape, layer);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return *plan;
}
Coded CodedBy(const std::string& id, const std::string& params, const ModelShape& shape,
              int64_t layer = 0) {
  const StorePlan plan = Planned(id, params, shape, layer);
  EXPECT_NE(plan.Get<Coded>(), nullptr);
  return *plan.Get<Coded>();
}
std::string RefusalOf(const std::string& id, const std::string& params, const ModelShape& shape) {
  const Status status = MakeStage<Store>(StageKind::kStore, id, params)->Check(shape);
  return status.ok() ? "" : status.error().message;
}

ModelShape HalfShape(int64_t dim = 64) {
  ModelShape shape = SmallShape(4, 2, 2, dim);
  shape.cache_dtype = DType::kF16;
  return shape;
}

TEST(PlainTest, PositionsDecideWhichKeysAreKept) {
  EXPECT_TRUE(Planned("plain", "{}", HalfShape()).IsPlain());
  const StorePlan slot = Planned("plain", R"({"position": "slot"})", HalfShape());
  EXPECT_TRUE(slot.turn.raw);
  EXPECT_EQ(slot.turn.position, PositionPolicy::kSlot);
  EXPECT_TRUE(slot.layout->traits().plain);
  EXPECT_FALSE(slot.IsPlain());
  EXPECT_EQ(slot.layout->HeadBytes(HalfShape(), 10), 10 * 2 * 64 * 2);
}

TEST(FormatTest, ScalesGoWithFloatsOnly) {
  EXPECT_EQ(
      RefusalOf("format", R"({"keys": "fp8", "values": "fp8", "scale": "layer"})", HalfShape()),
      "");
  EXPECT_THAT(
      RefusalOf("format", R"({"keys": "q8_0", "values": "q5_1", "scale": "layer"})", HalfShape()),
      HasSubstr("goes with fp8, fp8_e5m2 and nvfp4, and keys are q8_0, values q5_1"));
  EXPECT_THAT(
      RefusalOf("format", R"({"keys": "nvfp4", "values": "nvfp4", "scale": "token"})", HalfShape()),
      HasSubstr("goes with fp8 and fp8_e5m2"));
  EXPECT_THAT(RefusalOf("format", R"({"keys": "mxfp4", "values": "none"})", HalfShape(80)),
              HasSubstr("keys 'mxfp4' has blocks of 32 dims, and an entry has 80"));
  EXPECT_EQ(RefusalOf("format", R"({"keys": "nvfp4", "values": "nf4"})", HalfShape(48)), "");
  EXPECT_THAT(
      RefusalOf("format",
                R"({"keys": "fp8", "values": "fp8", "scale": "head", "key_basis": "random"})",
                HalfShape()),
      HasSubstr("take 'one' or 'token'"));
}

// A layer's scale is that of its largest number in all heads; what nothing was seen of has 1.
TEST(FormatTest, ScalesAreThePromptsOwn) {
  FakeView view(HalfShape(32), 20);
  view.keys[0][40] = 2.0f;
  view.keys[1][33] = -3.0f;
  const auto scales = [&](const char* params) {
    const auto stage = MakeStage<Store>(StageKind::kStore, "format", params);
    Result<StorePlan> plan = stage->Plan(view.shape(), 0);
    stage->Calibrate(view, *plan);
    return plan->Get<Coded>()->scales;
  };
  const FixedScales layer =
      scales(R"({"keys": "fp8", "values": "fp8_e5m2", "scale": "layer", "key_most": 200})");
  ASSERT_EQ(layer.keys.Numel(), 1);
  EXPECT_EQ(layer.keys.f32()[0], 3.0f / 200);
  EXPECT_EQ(layer.values.f32()[0], 1.0f);
  EXPECT_FALSE(layer.constant);
  const FixedScales head = scales(R"({"keys": "fp8", "values": "q8_0", "scale": "head"})");
  ASSERT_EQ(head.keys.Numel(), 2);
  EXPECT_EQ(head.keys.f32()[0], 2.0f / 448);
  EXPECT_EQ(head.keys.f32()[1], 3.0f / 448);
  EXPECT_TRUE(head.values.empty());
  const FixedScales channel = scales(R"({"keys": "fp8", "values": "fp8", "scale": "channel"})");
  ASSERT_EQ(channel.keys.Numel(), 64);
  EXPECT_EQ(channel.keys.f32()[8], 2.0f / 448);
  EXPECT_EQ(channel.keys.f32()[33], 3.0f / 448);
  EXPECT_EQ(channel.keys.f32()[0], 1.0f);
  EXPECT_TRUE(scales(R"({"keys": "fp8", "values": "fp8", "scale": "token"})").keys.empty());
}

TEST(BasisTest, StoresPlanOtherCoordinates) {
  const StorePlan plan =
      Planned("affine", R"({"key_bits": 4, "value_bits": 4, "key_basis": "hadamard",
                                 "raw_keys": true})",
              HalfShape());
  const auto* turned = plan.Get<Transformed>();
  ASSERT_NE(turned, nullptr);
  EXPECT_TRUE(plan.turn.raw);
  EXPECT_FALSE(turned->key_change.empty());
  EXPECT_TRUE(turned->value_change.empty());
  // A key of 64 numbers and its scale and zero; a value as it would be without.
  EXPECT_EQ(plan.layout->HeadBytes(HalfShape(), 10), 10 * 2 * (32 + 4));
  // A layer's random matrix is its own, and the same whenever it is asked for.
  const auto random = [](int64_t layer) {
    return *Planned("turboquant", R"({"key_basis": "random"})", HalfShape(), layer)
                .Get<Transformed>()
                ->key_change.there;
  };
  EXPECT_EQ(random(1), random(1));
  EXPECT_NE(random(1), random(2));
  // A block for each power of two in the dims.
  const BasisChange odd = HadamardBasis(48);
  EXPECT_EQ((*odd.there)[16], 0.0f);
  EXPECT_EQ((*odd.there)[15], 0.25f);
  EXPECT_TRUE(CheckBasisChange("", odd, 1, 48).ok());
  // llama.cpp turns keys of 128 dims at once and values in blocks of 64, and so does its method.
  const StorePlan llama = Planned(
      "format", R"({"keys": "q4_0", "key_basis": "hadamard", "value_basis": "hadamard_64"})",
      HalfShape(128));
  const auto* both = llama.Get<Transformed>();
  EXPECT_NE((*both->key_change.there)[64], 0.0f);
  EXPECT_EQ((*both->value_change.there)[64], 0.0f);
  EXPECT_EQ((*both->value_change.there)[63], 0.125f);
  EXPECT_THAT(RefusalOf("affine", R"({"key_basis": "learned"})", HalfShape()),
              HasSubstr("a learned basis needs a calibration"));
}

TEST(AffineTest, SidesHaveRangesOfTheirOwn) {
  const Coded layout =
      CodedBy("affine", R"({"key_bits": 2, "key_clip": 0.75, "value_bits": 2})", HalfShape());
  EXPECT_EQ(layout.keys.clip, 0.75f);
  EXPECT_EQ(layout.values.clip, 1.0f);
}

// MiniKV's entries wait only behind the prompt; of it all whole groups are coded.
TEST(KiviTest, PromptsAreCodedInUnitsOfTheirOwn) {
  const Coded layout =
      CodedBy("kivi", R"({"group": 16, "residual": 128, "prompt_unit": 32})", HalfShape());
  EXPECT_EQ(layout.seal_keys.unit, 32);
  EXPECT_EQ(layout.seal_values.unit, 32);
  EXPECT_EQ(layout.seal_values.keep_recent, 0);
  ASSERT_TRUE(layout.later.has_value());
  EXPECT_EQ(layout.later->seal_keys.unit, 128);
  EXPECT_EQ(layout.later->seal_values.unit, 128);
  EXPECT_EQ(layout.later->seal_values.keep_recent, 0);
  // 7 of 103 wait: a key and a value of 64 numbers of two bytes. Others have 16 bytes and four
  // groups of 16, or a 16th of 64 groups, each with a scale and a zero.
  EXPECT_EQ(layout.HeadBytes(HalfShape(), 103), 96 * 2 * (16 + 4 * 4) + 7 * 2 * 128);
  EXPECT_FALSE(CodedBy("kivi", "{}", HalfShape()).later.has_value());
  EXPECT_THAT(RefusalOf("kivi", R"({"group": 32, "prompt_unit": 48})", HalfShape()),
              HasSubstr("prompt_unit 48 must be a multiple of group 32"));
}

TEST(KvTunerTest, NumbersOfAnEntryShareAScaleUnlessCodesAreKivis) {
  const Coded entries = CodedBy("kvtuner", "{}", HalfShape());
  EXPECT_EQ(entries.keys.group, 64);
  EXPECT_EQ(entries.values.group, 64);
  EXPECT_EQ(entries.seal_values.keep_recent, 0);
  const Coded kivi = CodedBy("kvtuner", R"({"codes": "kivi"})", HalfShape());
  EXPECT_EQ(kivi.keys.group, 32);
  EXPECT_EQ(kivi.values.group, 32);
  EXPECT_EQ(kivi.seal_keys.unit, 32);
  EXPECT_EQ(CodedBy("kvtuner", R"({"group": 16})", HalfShape()).keys.group, 16);
}

TEST(CacheGenTest, BinsAreEvenInLayersThatTheModelLacks) {
  EXPECT_EQ(RefusalOf("cachegen", "{}", HalfShape()), "");
  EXPECT_EQ(RefusalOf("cachegen", R"({"key_bins": 7})", HalfShape()), "key_bins 7: must be even");
}

TEST(QjlTest, SketchesTwiceAsManySignsAsNumbers) {
  const StorePlan plan = Planned("qjl", R"({"first_layers": 1})", HalfShape(), 1);
  const auto& layout = *plan.Get<Transformed>();
  EXPECT_EQ(layout.keys.dim, 128);
  EXPECT_EQ(layout.keys.bits, 1);
  // 128 signs and a length for each of 128 keys; values wait.
  EXPECT_EQ(plan.layout->HeadBytes(HalfShape(), 128), 128 * (16 + 2) + 128 * 128);
  EXPECT_EQ(Planned("qjl", R"({"first_layers": 1})", HalfShape(), 0).Get<Transformed>()->keys.dim,
            256);
}

TEST(DuQuantTest, ChannelsAreDealtSoThatNoBlockIsLoud) {
  const auto planned = [](const std::shared_ptr<const Calibration>& file) {
    const auto stage = MakeStage<Store>(StageKind::kStore, "duquant", R"({"block": 4})");
    if (file != nullptr) stage->Use(file);
    const ModelShape shape = HalfShape(16);
    EXPECT_TRUE(stage->Check(shape).ok());
    return stage->Plan(shape, 0);
  };
  const auto file = std::make_shared<Calibration>();
  file->path = "some.safetensors";
  std::vector<float> loud(32, 1.0f);
  for (size_t c : {0, 1, 2, 3, 16, 17, 18, 19}) loud[c] = 100;  // all of one block
  file->tables["keys.loud.0"] = file->tables["values.loud.0"] = {{2, 16}, loud};
  for (const bool calibrated : {false, true}) {
    const Result<StorePlan> plan = planned(calibrated ? file : nullptr);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const BasisChange& change = plan->Get<Transformed>()->key_change;
    EXPECT_TRUE(CheckBasisChange("", change, 2, 16).ok());
    // A channel reaches all blocks: the four of its own are dealt to four.
    for (int64_t j = 0; j < 16; ++j) {
      EXPECT_NEAR(std::abs((*change.there)[static_cast<size_t>(j)]), 0.25f, 1e-6f) << calibrated;
    }
  }
  file->tables["keys.loud.0"].values[5] = std::nanf("");
  EXPECT_THAT(planned(file).error().message, HasSubstr("some.safetensors: keys.loud.0: holds nan"));
  file->tables["keys.loud.0"] = {{1, 16}, std::vector<float>(16)};
  EXPECT_THAT(planned(file).error().message, HasSubstr("some.safetensors"));
  EXPECT_THAT(RefusalOf("duquant", R"({"block": 12})", HalfShape()),
              HasSubstr("block 12: must be a power of two"));
  EXPECT_THAT(RefusalOf("duquant", R"({"block": 32})", HalfShape(80)),
              HasSubstr("block 32 does not divide the 80 dims"));
}

TEST(SmoothSidesTest, TablesMustFitTheModel) {
  const ModelShape shape = SmallShape(1, 2, 2, 8);
  const auto refusal = [&](const std::shared_ptr<const Calibration>& file) {
    const auto stage = MakeStage<Prepare>(StageKind::kPrepare, "smooth_sides", "{}");
    stage->Use(file);
    const Status status = stage->Check(shape);
    return status.ok() ? std::string() : status.error().message;
  };
  const auto file = std::make_shared<Calibration>();
  file->path = "some.safetensors";
  for (const char* what : {"keys.0", "queries.0", "values.0"}) {
    file->tables[what] = {{2, 8}, std::vector<float>(16, 1.0f)};
  }
  for (const char* what : {"keys.cut.0", "values.cut.0"}) file->tables[what] = {{1, 1}, {0.5f}};
  EXPECT_EQ(refusal(file), "");
  file->tables["values.0"].values[3] = -1;
  EXPECT_THAT(refusal(file), HasSubstr("some.safetensors: table 'values.0' holds a number"));
  file->tables["values.0"] = {{2, 4}, std::vector<float>(8, 1.0f)};
  EXPECT_THAT(refusal(file), HasSubstr("values.0"));
  file->tables["values.0"] = {{2, 8}, std::vector<float>(16, 1.0f)};
  file->tables.erase("keys.cut.0");
  EXPECT_THAT(refusal(file), HasSubstr("keys.cut.0"));
}

// 3.0 bits a number at 2 bits with groups of 32.
TEST(KiviTest, LayoutAndBytes) {
  const Coded plan = CodedBy("kivi", "{}", HalfShape());
  EXPECT_EQ(plan.keys.axis, CodeAxis::kChannel);
  EXPECT_EQ(plan.values.axis, CodeAxis::kToken);
  EXPECT_EQ(plan.seal_keys.unit, 128);
  EXPECT_EQ(plan.seal_keys.keep_recent, 0);
  EXPECT_EQ(plan.seal_values.unit, 1);
  EXPECT_EQ(plan.seal_values.keep_recent, 128);
  for (const KvCodec& codec : {plan.keys, plan.values}) {
    EXPECT_EQ(CodedBytes(codec, 256).logical() * 8, 256 * 64 * 3);
  }
  EXPECT_THAT(RefusalOf("kivi", R"({"residual": 48})", HalfShape()),
              HasSubstr("residual 48 must be a multiple of group 32"));
  EXPECT_THAT(RefusalOf("kivi", "{}", HalfShape(80)), HasSubstr("must divide the 80 dims"));
}

// Keys of the lower half have 2 bits and 3.0 with scales, all else 1 and 2.0.
TEST(AsymKvTest, BitsByLayerAndSide) {
  const ModelShape shape = HalfShape();  // of four layers
  for (int64_t layer = 0; layer < 4; ++layer) {
    const Coded plan = CodedBy("asymkv", "{}", shape, layer);
    EXPECT_EQ(plan.keys.bits, layer < 2 ? 2 : 1);
    EXPECT_EQ(plan.values.bits, 1);
    EXPECT_EQ(plan.keys.axis, CodeAxis::kChannel);
    EXPECT_EQ(plan.values.axis, CodeAxis::kToken);
    EXPECT_EQ(plan.seal_keys.unit, 128);
    EXPECT_EQ(plan.seal_values.keep_recent, 128);
    EXPECT_EQ(CodedBytes(plan.keys, 256).logical() * 8, 256 * 64 * (layer < 2 ? 3 : 2));
    EXPECT_EQ(CodedBytes(plan.values, 256).logical() * 8, 256 * 64 * 2);
  }
  const std::string shares = R"({"key_share": 1, "value_share": 0.25, "high": 4, "low": 2})";
  EXPECT_EQ(CodedBy("asymkv", shares, shape, 3).keys.bits, 4);
  EXPECT_EQ(CodedBy("asymkv", shares, shape, 0).values.bits, 4);
  EXPECT_EQ(CodedBy("asymkv", shares, shape, 1).values.bits, 2);
  EXPECT_THAT(RefusalOf("asymkv", R"({"low": 4})", shape), HasSubstr("low 4 is more bits"));
  EXPECT_THAT(RefusalOf("asymkv", R"({"residual": 48})", shape), HasSubstr("multiple of group 32"));
}

TEST(AffineTest, SidesAreIndependent) {
  const Coded plan = CodedBy(
      "affine", R"({"key_bits": 4, "key_axis": "channel", "value_bits": 0, "keep_recent": 5})",
      HalfShape());
  EXPECT_EQ(plan.keys.group, 64);
  EXPECT_EQ(plan.seal_keys.unit, 64);
  EXPECT_EQ(plan.seal_keys.keep_recent, 5);
  EXPECT_FALSE(plan.values.coded());
  EXPECT_EQ(CodedBytes(CodedBy("affine", "{}", HalfShape()).keys, 1).logical(), 64 + 4);
}

TEST(FormatTest, BytesOfEngines) {
  const auto bytes = [](const char* format) {
    const Coded plan = CodedBy("format", StrCat(R"({"keys": ")", format, "\"}"), HalfShape());
    return CodedBytes(plan.keys, 1).logical();
  };
  EXPECT_EQ(bytes("q8_0"), 2 * 34);
  EXPECT_EQ(bytes("q4_0"), 2 * 18);
  EXPECT_EQ(bytes("fp8"), 64);
  EXPECT_EQ(bytes("none"), 128);
  EXPECT_THAT(RefusalOf("format", R"({"keys": "fp8", "values": "q4_0"})", HalfShape(80)),
              HasSubstr("values 'q4_0' has blocks of 32 dims, and an entry has 80"));
  EXPECT_EQ(RefusalOf("format", R"({"keys": "fp8", "values": "fp8"})", HalfShape(80)), "");
}

TEST(GearTest, WholePagesWithSideCars) {
  const Coded plan = CodedBy("gear", "{}", HalfShape());
  EXPECT_EQ(plan.seal_keys.unit % SealUnit(plan.keys), 0);
  EXPECT_EQ(plan.seal_values.unit % SealUnit(plan.values), 0);
  EXPECT_EQ(plan.keys.rank, 4);
  EXPECT_THAT(RefusalOf("gear", R"({"chunk": 100})", HalfShape()), HasSubstr("multiple of 64"));
  EXPECT_THAT(RefusalOf("gear", R"({"rank": 20})", HalfShape(16)), HasSubstr("above the 16 dims"));
  EXPECT_EQ(CodedBy("gear", "{}", HalfShape(32)).values.group, 32);
}

TEST(GearTest, LaterChunksHaveTheirOwnCodes) {
  const Coded plan = CodedBy("gear", "{}", HalfShape());
  ASSERT_TRUE(plan.later.has_value());
  EXPECT_EQ(plan.later->keys.rank, 2);
  EXPECT_EQ(plan.later->values.rank, 2);
  EXPECT_EQ(plan.later->seal_keys.unit, 64);
  EXPECT_FALSE(CodedBy("gear", R"({"rank": 1})", HalfShape()).later.has_value());
  EXPECT_FALSE(CodedBy("gear", R"({"later_rank": 4})", HalfShape()).later.has_value());
  // KCVT: one range for what is coded at once, and small chunks where nothing asks for pages.
  const Coded wide = CodedBy("gear", R"({"group": 0})", HalfShape());
  EXPECT_EQ(wide.keys.range_pages, 0);
  EXPECT_EQ(wide.keys.group, 64);
  EXPECT_EQ(wide.values.group, 64);
  const Coded small =
      CodedBy("gear", R"({"group": 0, "rank": 0, "outliers": 0, "chunk": 16})", HalfShape());
  EXPECT_EQ(small.seal_keys.unit, 64);
  ASSERT_TRUE(small.later.has_value());
  EXPECT_EQ(small.later->keys.range_pages, 1);
  EXPECT_EQ(small.later->keys.group, 16);
  EXPECT_EQ(small.later->seal_values.unit, 16);
  const Coded pages = CodedBy("gear", R"({"group": 128, "chunk": 256})", HalfShape());
  EXPECT_EQ(pages.keys.range_pages, 2);
  EXPECT_EQ(SealUnit(pages.keys), 128);
  EXPECT_THAT(RefusalOf("gear", R"({"chunk": 32})", HalfShape()),
              HasSubstr("as outliers and corrections are of whole pages"));
  EXPECT_THAT(RefusalOf("gear", R"({"group": 128})", HalfShape()),
              HasSubstr("chunk 64 must be a multiple of the group, 128"));
  EXPECT_THAT(RefusalOf("gear", R"({"group": 48})", HalfShape()),
              HasSubstr("group 48 must be 16, 32 or a multiple of 64"));
}

TEST(CodedTest, OtherCodesLaterAskForOneRule) {
  Coded plan = CodedBy("gear", "{}", HalfShape());
  EXPECT_TRUE(plan.Check({}).ok());
  plan.seal_values.unit = 128;
  const Status status = plan.Check({});
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message,
              HasSubstr("keys are coded 64 entries at a time and values 128"));
}

TEST(KvQuantTest, RangesLeaveOutTheTails) {
  const int64_t n = 405, dim = 64;
  FakeView view(HalfShape(), n);
  for (int64_t h = 0; h < 2; ++h) view.keys[h] = RandomValues(n * dim, 60 + h);
  const auto stage = MakeStage<Store>(StageKind::kStore, "kvquant", R"({"outliers": 0.02})");
  EXPECT_TRUE(stage->needs().raw_keys);
  StorePlan plan = *stage->Plan(HalfShape(), 0);
  EXPECT_TRUE(plan.turn.raw);
  stage->Calibrate(view, plan);
  const KeyRanges ranges = plan.Get<Coded>()->ranges;
  for (const int64_t h : {0, 1}) {
    for (const int64_t c : {0, 17, 63}) {
      // Without the 5 first entries, 1 % of 400 on either side.
      std::vector<float> column;
      for (int64_t i = 5; i < n; ++i) column.push_back(view.keys[h][i * dim + c]);
      std::sort(column.begin(), column.end());
      EXPECT_EQ(ranges.low[h].f32()[c], column[4]);
      EXPECT_EQ(ranges.high[h].f32()[c], column[395]);
    }
  }
  FakeView few(HalfShape(), 3);
  stage->Calibrate(few, plan);  // shorter than what stays uncoded
  EXPECT_EQ(plan.Get<Coded>()->ranges.low[0].f32()[0], 0);
}

TEST(KvQuantTest, LevelsAreSymmetricAndAscending) {
  for (const int bits : {1, 2, 3, 4}) {
    KvCodec codec = CodedBy("kvquant", StrCat(R"({"bits": )", bits, "}"), HalfShape()).values;
    EXPECT_TRUE(CheckCodec(codec).ok()) << CheckCodec(codec).error().message;
    const std::vector<float> levels = Floats(codec.levels);
    for (size_t i = 0; i < levels.size(); ++i) {
      EXPECT_EQ(levels[i], -levels[levels.size() - 1 - i]);
    }
  }
}

// Levels that codes stand for spread as normal numbers cut at the ends of the range do; codes begin
// where they did.
TEST(KvQuantTest, QNormOfNormalNumbers) {
  for (const int bits : {1, 2, 3, 4}) {
    const auto codec = [&](const char* norm) {
      const std::string params = StrCat(R"({"bits": )", bits, R"(, "norm": )", norm, "}");
      const auto stage = MakeStage<Store>(StageKind::kStore, "kvquant", params);
      const StorePlan plan = *stage->Plan(HalfShape(), 0);
      EXPECT_TRUE(CheckCodec(plan.Get<Coded>()->values).ok());
      const KvCodec& values = plan.Get<Coded>()->values;
      return std::pair(Floats(values.levels),
                       values.table.empty() ? std::vector<float>() : Floats(values.table));
    };
    const std::vector<float> levels = codec("false").first;
    const auto [stands, edges] = codec("true");
    ASSERT_EQ(edges.size() + 1, levels.size());
    // Shares and second moments of a fine grid of the density between its 0.5 % and 99.5 % points.
    double mass = 0, spread = 0, coded = 0;
    for (int i = -20000; i < 20000; ++i) {
      const double u = (i + 0.5) / 20000, x = 2.5758293 * u, w = std::exp(-x * x / 2);
      const auto code = std::lower_bound(edges.begin(), edges.end(), u) - edges.begin();
      mass += w;
      spread += w * u * u;
      coded += w * stands[static_cast<size_t>(code)] * stands[static_cast<size_t>(code)];
    }
    EXPECT_NEAR(std::sqrt(coded / mass), std::sqrt(spread / mass), 1e-5) << bits;
    for (size_t i = 0; i < edges.size(); ++i) {
      EXPECT_FLOAT_EQ(edges[i], 0.5f * (levels[i] + levels[i + 1]));
    }
  }
}

// Every second layer of four, from the named depth on, shares with the one before it.
TEST(MiniCacheTest, SharesFromTheMiddle) {
  const auto sharing = [](const std::string& params) {
    std::vector<int64_t> layers;
    for (int64_t layer = 0; layer < 4; ++layer) {
      const StorePlan plan = Planned("minicache", params, HalfShape(), layer);
      if (plan.Get<SharedDirections>() != nullptr) layers.push_back(layer);
      EXPECT_EQ(plan.IsPlain(), plan.Get<SharedDirections>() == nullptr);
    }
    return layers;
  };
  EXPECT_EQ(sharing("{}"), std::vector<int64_t>{3});
  EXPECT_EQ(sharing(R"({"from": 0})"), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(sharing(R"({"from": 1})"), std::vector<int64_t>{3});
  EXPECT_EQ(Planned("minicache", "{}", HalfShape(), 3).Get<SharedDirections>()->weight, 0.6);
  EXPECT_FALSE(MakeStage<Store>(StageKind::kStore, "minicache")->Plan(SmallShape(), 0).ok());
}

TEST(ThinkTest, KeepsWhatTheLastQueriesAsk) {
  const ModelShape shape = SmallShape(1, 2, 2, 10);
  FakeView view(shape, 50);
  view.Randomize(6);
  for (const auto& [params, kept] :
       {std::pair{R"({"window": 7})", 6}, std::pair{R"({"window": 7, "pruned": 0.66})", 4}}) {
    const auto stage = MakeStage<Store>(StageKind::kStore, "think", params);
    EXPECT_EQ(stage->needs(), Needs{.window = 7});
    StorePlan plan = *stage->Plan(shape, 0);
    stage->Calibrate(view, plan);
    const NarrowKeys& layout = *plan.Get<NarrowKeys>();
    EXPECT_EQ(layout.dim, kept);
    EXPECT_EQ(layout.recent, 32);
    for (const int64_t h : {0, 1}) {
      std::vector<std::pair<double, int32_t>> scores;
      for (int32_t c = 0; c < 10; ++c) {
        double keys = 0, queries = 0;
        for (int64_t i = 0; i < 50; ++i) keys += std::pow(view.keys[h][i * 10 + c], 2) / 50;
        for (int64_t i = 43; i < 50; ++i) {
          for (int64_t q = 2 * h; q < 2 * h + 2; ++q) {
            queries += std::pow(view.queries[(i * 4 + q) * 10 + c], 2) / 7 / 2;
          }
        }
        scores.emplace_back(-keys * queries, c);
      }
      std::sort(scores.begin(), scores.end());
      std::vector<int32_t> want;
      for (int i = 0; i < kept; ++i) want.push_back(scores[static_cast<size_t>(i)].second);
      std::sort(want.begin(), want.end());
      EXPECT_EQ(Ints(layout.channels[h]), want);
    }
  }
  EXPECT_TRUE(Planned("think", R"({"pruned": 0})", shape).IsPlain());
}

TEST(LatentStores, SayWhatTheyKeep) {
  const StorePlan low_rank = Planned("low_rank", "{}", HalfShape());
  EXPECT_NE(low_rank.Get<Latent>(), nullptr);
  EXPECT_TRUE(low_rank.turn.raw);
  EXPECT_NE(Planned("mla_latent", "{}", HalfShape()).Get<MlaLatent>(), nullptr);
}

}  // namespace
}  // namespace kvgauge

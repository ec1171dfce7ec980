// SPDX-License-Identifier: Apache-2.0
// Prefills whose beginning an encoder reads, and attention to its rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/json.h"
#include "core/strings.h"
#include "methods/encoding_thin.h"
#include "methods/tensors.h"
#include "runner/engine_fixture.h"
#include "runner/generate.h"
#include "runner/thin_prefill.h"
#include "src/cache/encoded_rows.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Method Encoding(const std::vector<std::string>& more) { return Shipped("cepe", more); }

TinyModel Encoder(DType dtype = DType::kF32, int threads = 1) {
  ModelOptions options;
  options.dtype = dtype;
  return MakeTinyModel("cepe", threads, options, 3);
}

struct Encoded {
  Prompt prompt;
  KvCache cache;
  std::vector<float> logits;
  Status status;

  Encoded(Model& model, const Method& method, std::span<const int32_t> ids)
      : Encoded(model, method, Prompt::FromTokens(ids)) {}
  Encoded(Model& model, const Method& method, Prompt whole)
      : prompt(std::move(whole)), cache(model.NewCache(prompt.size() + 8)) {
    PrefillCapture capture(model.config(), cache, NeedsOf(method.needs(), prompt), prompt.size(),
                           &prompt);
    ThinPrefill prefill(model, *method.thin, prompt, cache, capture, 7);
    while (!prefill.done()) {
      const Result<Tensor> last = prefill.Next();
      if (!last.ok()) {
        status = last.error();
        return;
      }
      if (prefill.done()) logits = HostFloats(model.ops(), *last);
    }
  }

  // As they are held.
  std::vector<float> Rows() const {
    const EncodedRows& rows = *cache.encoded();
    const int64_t n = rows.tokens(), width = rows.format().key_dim;
    std::vector<float> out(static_cast<size_t>(n * width));
    cache.ops().attention->ReadKv(rows.format(), rows.head().segments[0], 0, View(out, {n, width}),
                                  {});
    return out;
  }
};

// Logits of one token behind what the cache holds.
std::vector<float> Step(Model& model, Encoded& of, int32_t id) {
  KvCache cache = of.cache.Fork();
  Prompt prompt = of.prompt;
  prompt.AppendText(id);
  EXPECT_TRUE(cache.Append(1).ok());
  const SequenceStep step = {
      .cache = &cache, .prompt = &prompt, .begin = prompt.size() - 1, .end = prompt.size()};
  return HostFloats(model.ops(), model.Forward({&step, 1}));
}

TEST(EncodedPrefillTest, WithoutABeginningTheBitsAreThoseOfAWholePrefill) {
  const TinyModel tiny = Encoder();
  const std::vector<int32_t> ids = RandomIds(600, 3);
  const Encoded whole(*tiny.model, Encoding({"thin.decoder=600"}), ids);
  ASSERT_TRUE(whole.status.ok());
  EXPECT_EQ(whole.cache.encoded(), nullptr);
  KvCache cache = tiny.model->NewCache(608);
  std::vector<float> last;
  ASSERT_TRUE(Prefill(*tiny.model, Prompt::FromTokens(ids), cache, Model::kChunkRows, false,
                      [&](const Tensor& rows) -> Status {
                        last = HostFloats(*tiny.ops, rows);
                        return {};
                      })
                  .ok());
  EXPECT_TRUE(SameBits(whole.logits, last));
}

// Rows of a chunk have the bits that they have by themselves, however many are read at once, and
// where they begin; the first token of a text is not read.
TEST(EncodedPrefillTest, AChunkSeesItselfAlone) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const TinyModel tiny = Encoder(dtype, 2);
    Model& model = *tiny.model;
    std::vector<int32_t> ids = RandomIds(1300, 4);
    for (const bool begins : {false, true}) {
      ids[0] = begins ? 1 : 7;
      const int64_t first = begins ? 1 : 0;
      for (const int64_t chunk : {100, 600}) {
        const Encoded all(model, Encoding({StrCat("thin.chunk=", chunk), "thin.decoder=50"}), ids);
        ASSERT_TRUE(all.status.ok());
        const std::vector<float> rows = all.Rows();
        ASSERT_EQ(std::ssize(rows), (1250 - first) * 48);
        for (int64_t begin = first; begin < 1250; begin += chunk) {
          const int64_t end = std::min<int64_t>(begin + chunk, 1250);
          KvCache alone = model.NewCache(8);
          ASSERT_TRUE(
              model.Encode(std::span(ids).subspan(begin, end - begin), end - begin, alone).ok());
          std::vector<float> own(static_cast<size_t>((end - begin) * 48));
          model.ops().attention->ReadKv(alone.encoded()->format(),
                                        alone.encoded()->head().segments[0], 0,
                                        View(own, {end - begin, 48}), {});
          const auto at = rows.begin() + (begin - first) * 48;
          EXPECT_TRUE(SameBits(std::vector<float>(at, at + std::ssize(own)), own)) << begin;
        }
      }
    }
  }
}

// Later tokens of a chunk change the rows of earlier ones, and no other chunk's.
TEST(EncodedPrefillTest, RowsSeeAllOfTheirChunk) {
  const TinyModel tiny = Encoder();
  const Method method = Encoding({"thin.chunk=20", "thin.decoder=30"});
  std::vector<int32_t> ids = RandomIds(90, 5);
  const std::vector<float> before = Encoded(*tiny.model, method, ids).Rows();
  ids[39] = ids[39] == 8 ? 9 : 8;
  const std::vector<float> after = Encoded(*tiny.model, method, ids).Rows();
  const auto chunk = [](const std::vector<float>& rows, int64_t first, int64_t end) {
    return std::vector<float>(rows.begin() + first * 48, rows.begin() + end * 48);
  };
  EXPECT_TRUE(SameBits(chunk(before, 0, 20), chunk(after, 0, 20)));
  EXPECT_TRUE(SameBits(chunk(before, 40, 60), chunk(after, 40, 60)));
  for (int64_t row = 20; row < 40; ++row) {
    EXPECT_FALSE(SameBits(chunk(before, row, row + 1), chunk(after, row, row + 1))) << row;
  }
}

// Only what `context` leaves, and the decoder's rows, are read by anybody.
TEST(EncodedPrefillTest, WhatLiesBeforeTheContextChangesNothing) {
  const TinyModel tiny = Encoder();
  const Method method = Encoding({"thin.chunk=16", "thin.decoder=30", "thin.context=40"});
  std::vector<int32_t> ids = RandomIds(100, 6);
  const Encoded one(*tiny.model, method, ids);
  EXPECT_EQ(one.cache.encoded()->tokens(), 40);
  for (const int64_t at : {0, 29, 30, 69, 70}) {
    std::vector<int32_t> other = ids;
    other[static_cast<size_t>(at)] = other[static_cast<size_t>(at)] == 8 ? 9 : 8;
    EXPECT_EQ(SameBits(Encoded(*tiny.model, method, other).logits, one.logits), at < 30) << at;
  }
}

// What the pool gave out is what a cache counts, and goes back with the last fork.
TEST(EncodedPrefillTest, ForksShareRowsThatCountOnceForEach) {
  const TinyModel tiny = Encoder(DType::kBF16);
  Model& model = *tiny.model;
  const std::vector<int32_t> ids = RandomIds(200, 8);
  const int64_t before = model.pools().of(Tier::kDevice).used_bytes();
  {
    const Encoded some(model, Encoding({"thin.chunk=32", "thin.decoder=60"}), ids);
    ASSERT_TRUE(some.status.ok());
    const KvBytes bytes = some.cache.Bytes();
    const int64_t entries = 60 * 3 * 2 * (32 + 32) * 2;
    EXPECT_EQ(bytes.payload, entries + 140 * 48 * 2);
    const int64_t used = model.pools().of(Tier::kDevice).used_bytes();
    EXPECT_EQ(used - before, bytes.resident());
    const KvCache fork = some.cache.Fork();
    EXPECT_EQ(model.pools().of(Tier::kDevice).used_bytes(), used);
    EXPECT_EQ(fork.Bytes(), bytes);
  }
  EXPECT_EQ(model.pools().of(Tier::kDevice).used_bytes(), before);
}

// What was saved goes on with the same bits; bytes that lie are refused.
TEST(EncodedPrefillTest, RowsAreSavedWithTheCache) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const TinyModel tiny = Encoder(dtype);
    Model& model = *tiny.model;
    Encoded some(model, Encoding({"thin.chunk=32", "thin.decoder=60"}), RandomIds(200, 8));
    const Result<std::string> saved = some.cache.Serialize();
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    const std::vector<float> want = Step(model, some, 20);
    KvCache back = model.NewCache(208);
    ASSERT_TRUE(back.Deserialize(*saved).ok());
    EXPECT_EQ(back.Bytes(), some.cache.Bytes());
    some.cache = std::move(back);
    EXPECT_TRUE(SameBits(Step(model, some, 20), want));

    const auto refused = [&](Model& by, const std::string& bytes) {
      KvCache empty = by.NewCache(208);
      const Status status = empty.Deserialize(bytes);
      return status.ok() ? std::string() : status.error().message;
    };
    const float nan = std::nanf("");
    std::string lies = *saved;
    lies.replace(lies.size() - 4, 4, reinterpret_cast<const char*>(&nan), 4);
    EXPECT_THAT(refused(model, lies), HasSubstr("expected finite numbers"));
    EXPECT_THAT(refused(model, saved->substr(0, saved->size() - 4)), HasSubstr("cache bytes"));
    ModelOptions options;
    options.dtype = dtype;
    const TinyModel plain = MakeTinyModel("gqa", 1, options, 3);
    EXPECT_THAT(refused(*plain.model, *saved),
                HasSubstr("this model has no encoder; expected none"));
  }
}

// A step has the bits that it has alone, beside sequences with other rows and without any.
TEST(EncodedPrefillTest, StepsInCompanyHaveTheirBits) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const TinyModel tiny = Encoder(dtype, 2);
    Model& model = *tiny.model;
    const Method method = Encoding({"thin.chunk=32", "thin.decoder=60"});
    const Method whole = Encoding({"thin.decoder=1000"});
    std::vector<Encoded> of;
    of.reserve(5);
    of.emplace_back(model, whole, RandomIds(70, 1));
    of.emplace_back(model, method, RandomIds(200, 2));
    of.emplace_back(model, method, RandomIds(331, 3));
    of.emplace_back(model, whole, RandomIds(40, 4));
    of.emplace_back(model, method, RandomIds(61, 5));
    std::vector<std::vector<float>> alone;
    std::vector<SequenceStep> steps;
    for (size_t i = 0; i < of.size(); ++i) {
      alone.push_back(Step(model, of[i], static_cast<int32_t>(10 + i)));
      of[i].prompt.AppendText(static_cast<int32_t>(10 + i));
      ASSERT_TRUE(of[i].cache.Append(1).ok());
      const int64_t end = of[i].prompt.size();
      steps.push_back(
          {.cache = &of[i].cache, .prompt = &of[i].prompt, .begin = end - 1, .end = end});
    }
    const std::vector<float> all = HostFloats(model.ops(), model.Forward(steps));
    for (size_t i = 0; i < of.size(); ++i) {
      const auto at = all.begin() + static_cast<int64_t>(i) * 101;
      EXPECT_TRUE(SameBits(std::vector<float>(at, at + 101), alone[i])) << i;
    }
  }
}

TEST(EncodedPrefillTest, PicturesAndForeignTokensAreRefused) {
  const TinyModel tiny = Encoder();
  const Method method = Encoding({"thin.decoder=4"});
  std::vector<int32_t> ids = RandomIds(12, 8);
  ids[3] = 101;
  const Encoded foreign(*tiny.model, method, ids);
  ASSERT_FALSE(foreign.status.ok());
  EXPECT_THAT(foreign.status.error().message,
              AllOf(HasSubstr("thin.cepe"), HasSubstr("encoder_config.vocab_size is 101"),
                    HasSubstr("token 101")));
  Prompt shown = Prompt::FromTokens(RandomIds(12, 8));
  shown.spans.push_back({.first = 2, .count = 1});
  const Encoded pictures(*tiny.model, method, shown);
  ASSERT_FALSE(pictures.status.ok());
  EXPECT_THAT(pictures.status.error().message, HasSubstr("expected a task of text"));
}

class EncodedEngineTest : public ::testing::Test {
 protected:
  EncodedEngineTest() : tiny_(Encoder(DType::kF32, 2)), model_(*tiny_.model) {}

  EngineSample Asked(int64_t context = 100) const {
    EngineSample sample = {.id = "s", .context = RandomIds(context, 9)};
    sample.turns = {{.ids = RandomIds(20, 10), .max_new_tokens = 5}};
    return sample;
  }

  TinyModel tiny_;
  Model& model_;
};

// Beside the model's own full cache, and with its entries evicted and coded.
TEST_F(EncodedEngineTest, RowsAloneAndInCompany) {
  const Method full = Shipped("full");
  const Method plain = Encoding({"thin.chunk=24", "thin.decoder=40"});
  const Method coded = Encoding({"thin.chunk=24", "thin.decoder=40", "store.id=format",
                                 "store.keys=q8_0", "store.values=q8_0"});
  const std::vector<Contender> contenders = {{.method = &full, .budget = {}, .model = &model_},
                                             {.method = &plain, .budget = {}, .model = &model_},
                                             {.method = &coded, .budget = {}, .model = &model_}};
  const std::vector<EngineSample> samples = {Asked(), Asked(10)};
  const Cells together = RunEngine(contenders, {.fidelity_steps = 3}, samples);
  for (int64_t i = 0; i < 3; ++i) {
    const Cells alone = RunEngine({contenders[static_cast<size_t>(i)]}, {}, {Asked()});
    const CellResult &one = alone.at({0, 0}), &other = together.at({0, i});
    ASSERT_TRUE(one.status.ok()) << one.status.error().message;
    EXPECT_EQ(one.turns[0].ids, other.turns[0].ids);
    EXPECT_EQ(one.record.bytes, other.record.bytes);
  }
  const CompressionRecord& record = together.at({0, 1}).record;
  EXPECT_EQ(record.prompt_tokens, 120);
  EXPECT_EQ(record.entries_after[1], std::vector<int64_t>(2, 40));
  EXPECT_EQ(record.bytes.payload, 40 * 3 * 2 * 64 * 4 + 80 * 48 * 4);
  EXPECT_EQ(record.engagement, Engagement::kEngaged);
  EXPECT_GT(together.at({0, 1}).fidelity->kl_divergence, 0);
  EXPECT_LT(together.at({0, 2}).record.bytes.payload, record.bytes.payload);
  // A prompt that the decoder takes whole.
  EXPECT_EQ(together.at({1, 1}).record.engagement, Engagement::kNotEngaged);
}

// A question that comes later follows the decoder's part, and sees the encoder's rows as one does
// that was prompted: here both have the same tokens in the decoder.
TEST_F(EncodedEngineTest, QuestionsMayComeLater) {
  const Method prompted = Encoding({"thin.chunk=24", "thin.decoder=40"});
  const Method later = Encoding({"thin.chunk=24", "thin.decoder=20"});
  const CellResult one =
      RunEngine({{.method = &prompted, .budget = {}, .model = &model_}}, {}, {Asked()}).at({0, 0});
  const CellResult two = RunEngine({{.method = &later, .budget = {}, .model = &model_}},
                                   {.compress_at = CompressAt::kContext}, {Asked()})
                             .at({0, 0});
  ASSERT_TRUE(one.status.ok() && two.status.ok());
  EXPECT_EQ(one.turns[0].ids, two.turns[0].ids);
  EXPECT_EQ(two.record.prompt_tokens, 100);
}

TEST_F(EncodedEngineTest, OtherStagesActOnTheDecodersEntries) {
  const Json evicting = {{"id", "both"},
                         {"title", "both"},
                         {"family", "composition"},
                         {"version", 1},
                         {"protect", {{"recent", 8}}},
                         {"stages",
                          {{"thin", {{"id", "cepe"}, {"chunk", 24}, {"decoder", 60}}},
                           {"score", {{"id", "snapkv"}, {"window", 8}}},
                           {"reduce", {{"id", "top_k"}}}}}};
  const Result<Method> method = ParseMethod(evicting, "both.json");
  ASSERT_TRUE(method.ok()) << method.error().message;
  const CellResult cell =
      RunEngine({{.method = &*method, .budget = {Budget::Kind::kEntries, 30}, .model = &model_}},
                {}, {Asked()})
          .at({0, 0});
  ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
  EXPECT_EQ(cell.record.entries_after[0], std::vector<int64_t>(2, 30));
  EXPECT_EQ(cell.record.bytes.payload, 30 * 3 * 2 * 64 * 4 + 60 * 48 * 4);
}

TEST_F(EncodedEngineTest, WhatCannotBeCombinedIsRefusedBeforeAPromptIsRead) {
  const auto refusal = [](const std::string& stage, const Json& choice) {
    Json file = {{"id", "both"},
                 {"title", "both"},
                 {"family", "composition"},
                 {"version", 1},
                 {"stages", {{"thin", {{"id", "cepe"}}}, {stage, choice}}}};
    const Result<Method> method = ParseMethod(file, "both.json");
    return method.ok() ? std::string() : method.error().message;
  };
  EXPECT_THAT(refusal("prepare", {{"id", "mean_pool_heads"}}), HasSubstr("thin.cepe"));
  EXPECT_THAT(refusal("attend", {{"id", "minference"}}), HasSubstr("thin.cepe"));
  EXPECT_THAT(refusal("reuse", {{"id", "prefix"}}), HasSubstr("thin.cepe"));
  const Status status = CheckMethod(Shipped("cepe"), TinyShape("gqa"), {}, 100);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.error().message,
              HasSubstr("method cepe: thin.cepe: this model has no encoder"));
  EXPECT_FALSE(CheckMoment(Shipped("cepe"), CompressAt::kTurn).ok());
  EXPECT_FALSE(CheckMoment(Shipped("cepe"), CompressAt::kChunk).ok());
}

}  // namespace
}  // namespace kvgauge

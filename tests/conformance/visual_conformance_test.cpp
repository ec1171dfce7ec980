// SPDX-License-Identifier: Apache-2.0
// What every shipped method must keep on prompts with pictures and videos.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <span>

#include "conformance/masking.h"
#include "conformance/visual_scene.h"
#include "runner/chunk_prefill.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

const char* const kLatentKinds[] = {"mla"};
Prompt PromptOf(const Model& model, const EngineSample& sample) {
  Prompt prompt;
  sample.visuals->ShowIn(prompt);
  prompt.Append(sample.turns[0].ids, sample.turns[0].spans, !model.config().rope->sections.empty());
  return prompt;
}

// By layer the modalities make up what is held, and the row's attention.
void ExpectModalities(const CompressionRecord& record) {
  ASSERT_EQ(record.modalities.size(), record.entries_after.size());
  for (size_t l = 0; l < record.modalities.size(); ++l) {
    const auto heads = std::ssize(record.entries_after[l]);
    int64_t held = 0, counted = 0;
    for (const int64_t entries : record.entries_after[l]) held += entries;
    double attention = 0;
    const int64_t before[] = {67, 72, 61, 0};
    for (size_t i = 0; i < record.modalities[l].size(); ++i) {
      const ModalityRecord& of = record.modalities[l][i];
      EXPECT_EQ(of.entries_before, heads * before[i]);
      EXPECT_LE(of.entries_after, of.entries_before);
      EXPECT_LE(of.attention_kept, of.attention + 1e-6);
      EXPECT_EQ(of.bytes > 0, of.entries_after > 0);
      if (of.entries_after == of.entries_before) {
        EXPECT_NEAR(of.attention_kept, of.attention, 1e-6);
      }
      counted += of.entries_after;
      attention += of.attention;
    }
    EXPECT_EQ(counted, held);
    EXPECT_NEAR(attention, 1, 1e-4);
  }
}

class VisualConformance : public ::testing::TestWithParam<std::string> {
 protected:
  static std::vector<std::unique_ptr<Subject>> Shown(const std::vector<std::string>& more = {}) {
    const Method method = LoadShipped(GetParam(), more);
    if (ReadsByEncoder(method)) return {};
    const bool legal =
        CheckMethod(method, TinyShape("gqa"), HalfBudget(method), kPromptTokens).ok();
    // Latents of a model are those of MLA alone.
    if (!legal) return Subjects(GetParam(), {.overrides = more}, kLatentKinds);
    std::span<const char* const> kinds = kVisualKinds;
    // VisualPrompts.ThatAStageCannotReadAreTheCellsResult.
    if (ReadsTextAlone(method)) return {};
    if (method.attend) kinds = kinds.first(2);
    return Subjects(GetParam(), {.overrides = more}, kinds);
  }
};

// At full budget the full cache, bit for bit where entries stay as they are. Keys that turn by
// their places in the cache turn otherwise on three axes, and the method's file says so.
TEST_P(VisualConformance, FullBudgetIsTheFullCache) {
  for (const auto& subject : Shown(KeepingAll(GetParam()))) {
    const Pipeline pipeline = MakePipeline(subject->method);
    bool exact = true;
    for (int64_t layer = 0; layer < subject->shape().layers; ++layer) {
      const Result<StorePlan> plan = pipeline.store->Plan(subject->shape(), layer);
      ASSERT_TRUE(plan.ok());
      exact = exact && plan->layout->traits().exact;
    }
    if (!exact) return;
    const Result<StorePlan> plan = pipeline.store->Plan(subject->shape(), 0);
    const bool three_axes = !subject->model().config().rope->sections.empty();
    const bool moves = plan->turn.position != PositionPolicy::kOriginal;
    Contender contender = subject->contender();
    if (subject->method.takes_budget) contender.budget = {Budget::Kind::kFraction, 1.0};
    const Outcomes outcomes = RunContenders({contender}, {VisualSample(1)}, {.fidelity_steps = 5});
    const CellResult& cell = outcomes.at({0, 0}).cell;
    ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
    ASSERT_TRUE(cell.fidelity.has_value());
    if (three_axes && plan->turn.position == PositionPolicy::kSlot) {
      EXPECT_GT(cell.fidelity->kl_divergence, 0);
      const std::vector<std::string>& said = subject->method.departures;
      EXPECT_TRUE(std::any_of(said.begin(), said.end(), [](const std::string& departure) {
        return departure.find("three axes") != std::string::npos;
      })) << "the file does not say what happens to positions of three axes";
      continue;
    }
    EXPECT_EQ(cell.fidelity->top1_agreement, 1);
    EXPECT_LE(cell.fidelity->kl_divergence, moves || !plan->IsPlain() ? 1e-9 : 0);
  }
}

// Within the budget, and recorded as what it is.
TEST_P(VisualConformance, KeepsWithinItsBudget) {
  for (const auto& subject : Shown()) {
    const Outcomes outcomes = RunContenders({subject->contender()}, {VisualSample(2)});
    const CellResult& cell = outcomes.at({0, 0}).cell;
    ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
    const CompressionRecord& record = cell.record;
    const ModelShape shape = subject->shape();
    const int64_t per_head =
        HeadBudgetFor(subject->method, shape, subject->budget, kPromptTokens).entries;
    int64_t held = 0;
    for (const auto& layer : record.entries_after) {
      for (const int64_t entries : layer) held += entries;
    }
    EXPECT_LE(held, per_head * shape.layers * std::ssize(record.entries_after[0]));
    ExpectModalities(record);
  }
}

// What stays turns by the places of three axes: giving entries up is masking them.
TEST_P(VisualConformance, EvictingIsMasking) {
  for (const auto& subject : Shown()) {
    ExpectEvictingIsMasking(*subject, PromptOf(subject->model(), VisualSample(7)));
  }
}

// Alone, again, behind and beside prompts of text.
TEST_P(VisualConformance, SameBytesAgainAndInCompany) {
  const Method full = LoadShipped("full"), snapkv = LoadShipped("snapkv");
  for (const auto& subject : Shown()) {
    const EngineSample a = VisualSample(3), b = Sample(130, 4);
    const Outcomes alone = RunContenders({subject->contender()}, {a});
    const Outcomes text = RunContenders({subject->contender()}, {b});
    const std::vector<Contender> company = {
        {&full, {}, &subject->model()},
        subject->contender(),
        {&snapkv, {Budget::Kind::kFraction, 0.4}, &subject->model()}};
    const Outcomes together = RunContenders(company, {b, a}, {.max_pool_lanes = 3});
    ExpectSame(together.at({1, 1}), alone.at({0, 0}));
    ExpectSame(together.at({0, 1}), text.at({0, 0}));
  }
}

// Declared bytes are what the allocator handed out.
TEST_P(VisualConformance, DeclaredBytesAreAllocated) {
  for (const auto& subject : Shown()) {
    Prefilled prefilled(*subject, PromptOf(subject->model(), VisualSample(6)));
    EXPECT_EQ(prefilled.cache->Bytes().resident(), prefilled.used_bytes());
    Compressor compressor(subject->model(), subject->method, subject->budget);
    const Status status = prefilled.CompressWith(compressor, *subject, *prefilled.cache);
    ASSERT_TRUE(status.ok()) << status.error().message;
    const KvBytes bytes = prefilled.cache->Bytes();
    EXPECT_EQ(bytes.resident() - bytes.codebooks - bytes.projections, prefilled.used_bytes());
    prefilled.cache.reset();
    EXPECT_EQ(prefilled.used_bytes(), 0);
  }
}

// Where a method reads prompts in chunks, it does so with pictures, or says why not. Chunks cut the
// picture and the video.
TEST_P(VisualConformance, ChunksHaveTheSameBytesInCompany) {
  constexpr int64_t kChunk = 80;
  const Method full = LoadShipped("full");
  for (const auto& subject : Shown()) {
    if (!ReducesPrompts(subject->method) ||
        !CheckMoment(subject->method, CompressAt::kChunk, kChunk).ok()) {
      return;
    }
    const EngineOptions options = {
        .compress_at = CompressAt::kChunk, .chunk_tokens = kChunk, .max_pool_lanes = 3};
    const EngineSample a = VisualSample(3), b = Sample(130, 4);
    const Outcomes alone = RunContenders({subject->contender()}, {a}, options);
    const CellResult& cell = alone.at({0, 0}).cell;
    if (!cell.status.ok()) {
      EXPECT_THAT(cell.status.error().message,
                  ::testing::AnyOf(::testing::HasSubstr("would cut pictures"),
                                   ::testing::HasSubstr("not done beside pictures")));
      continue;
    }
    const int64_t per_head =
        HeadBudgetFor(subject->method, subject->shape(), subject->budget, kPromptTokens).entries;
    int64_t held = 0, heads = 0;
    for (const auto& layer : cell.record.entries_after) {
      heads += std::ssize(layer);
      for (const int64_t entries : layer) held += entries;
    }
    EXPECT_LE(held, per_head * heads);
    EXPECT_EQ(cell.record.engagement, Engagement::kEngaged) << cell.record.reason;
    const std::vector<Contender> company = {
        {&full, {}, &subject->model()}, subject->contender(), subject->contender()};
    const Outcomes together = RunContenders(company, {b, a}, options);
    ExpectSame(together.at({1, 1}), alone.at({0, 0}));
    ExpectSame(together.at({1, 2}), alone.at({0, 0}));
  }
}

TEST(VisualPrompts, ThatAStageCannotReadAreTheCellsResult) {
  int64_t methods = 0;
  for (const std::string& id : AllMethods()) {
    const Method method = LoadShipped(id);
    if (!method.attend && !ReadsTextAlone(method)) continue;
    const char* const kind[] = {method.attend ? "gemma" : "gqa"};
    for (const auto& subject : Subjects(id, {}, kind)) {
      const Outcomes outcomes = RunContenders({subject->contender()}, {VisualSample(2)});
      const Status& status = outcomes.at({0, 0}).cell.status;
      ASSERT_FALSE(status.ok()) << id;
      EXPECT_THAT(status.error().message,
                  ::testing::HasSubstr(method.attend ? "picture attend to each other"
                                                     : "this prompt shows pictures"));
      ++methods;
    }
  }
  EXPECT_GE(methods, 2);
}

// Layers of two_sizes have 2 KV heads and 1.
TEST(VisualPrompts, AreCountedByTheHeadsOfEachLayer) {
  const TinyModel tiny = MakeTinyModelOn(MakeHostOps("cpu", 1), "two_sizes");
  const Method full = LoadShipped("full");
  const Outcomes outcomes = RunContenders({{&full, {}, tiny.model.get()}}, {VisualSample(2)});
  const CellResult& cell = outcomes.at({0, 0}).cell;
  ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
  ASSERT_EQ(cell.record.modalities.size(), 2u);
  for (const size_t layer : {0, 1}) {
    const ModalityRecord& shown =
        cell.record.modalities[layer][static_cast<size_t>(Modality::kImage)];
    EXPECT_EQ(shown.entries_before, layer == 0 ? 2 * 72 : 72) << layer;
    EXPECT_EQ(shown.entries_after, shown.entries_before) << layer;
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, VisualConformance, ::testing::ValuesIn(AllMethods()),
                         [](const auto& method) { return TestNameOf(method.param); });

}  // namespace
}  // namespace kvgauge

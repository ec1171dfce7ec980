// SPDX-License-Identifier: Apache-2.0
// Prompts that are read in chunks, each of which is compressed before the next one is read.
#include "runner/chunk_prefill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runner/engine_fixture.h"
#include "runner/generate.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

// Positions, keys and values of every head.
std::vector<float> HeldNumbers(const KvCache& cache) {
  std::vector<float> all;
  for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
    for (int64_t head = 0; head < cache.kv_heads(); ++head) {
      const int64_t n = cache.length(layer, head);
      for (const int32_t at : cache.Positions(layer, head)) all.push_back(static_cast<float>(at));
      for (const bool keys : {true, false}) {
        const int64_t dim = keys ? cache.format().key_dim : cache.format().value_dim;
        std::vector<float> rows(static_cast<size_t>(n * dim));
        keys ? cache.ReadKeys(layer, head, 0, View(rows, {n, dim}))
             : cache.ReadValues(layer, head, 0, View(rows, {n, dim}));
        all.insert(all.end(), rows.begin(), rows.end());
      }
    }
  }
  return all;
}

// Rows that are put behind a chunk are those of the prompt's end, which have to be text.
TEST(ChunkPrefillTest, ATemplateStandsBehindTheLastPicture) {
  const Method method = Shipped("streammem", {"score.window=5"});
  const TinyModel tiny = MakeTinyModel("three_axes", 2);
  Model& model = *tiny.model;
  const std::vector<float> rows = RandomValues(60 * model.config().hidden_size, 4, 1.0f);
  VisualSpan video;
  video.first = 10;
  video.count = 60;
  video.modality = Modality::kVideo;
  video.piece = VisualSpan::Piece::kFrames;
  video.grid = {5, 3, 4};
  const auto read = [&](int64_t tokens, std::vector<int64_t> question) {
    std::vector<int32_t> ids = RandomIds(tokens, 3);
    for (const int64_t at : question) ids[static_cast<size_t>(at)] ^= 1;
    Prompt prompt;
    prompt.embeddings = {{View(rows, {60, model.config().hidden_size})}};
    prompt.Append(ids, std::span(&video, 1), true);
    KvCache cache = model.NewCache(tokens);
    Compressor compressor(model, method, {Budget::Kind::kEntries, 50});
    ChunkPrefill prefill(model, method, prompt, 7, 36, compressor, cache);
    while (!prefill.done()) {
      const Result<Tensor> next = prefill.Next();
      if (!next.ok()) return std::pair(next.error().message, std::vector<int32_t>());
    }
    std::vector<int32_t> held;
    for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
      for (int64_t head = 0; head < cache.kv_heads(); ++head) {
        for (const int32_t at : cache.Positions(layer, head)) held.push_back(at);
      }
    }
    return std::pair(std::string(), held);
  };
  EXPECT_THAT(read(74, {}).first,
              HasSubstr("puts the last 5 tokens of the prompt behind each chunk, and 4 follow the "
                        "last picture"));
  const auto [error, held] = read(90, {});
  EXPECT_EQ(error, "");
  EXPECT_FALSE(held.empty());
  // What is asked before the template changes nothing of what stays, and the template does.
  EXPECT_EQ(read(90, {71, 75, 84}).second, held);
  EXPECT_NE(read(90, {85, 86, 87, 88, 89}).second, held);
}

class ChunkTest : public EngineTest {
 protected:
  EngineOptions Chunks(int64_t tokens) const {
    return {.compress_at = CompressAt::kChunk, .chunk_tokens = tokens};
  }
};

// Nothing leaves within the budget, so that chunks are the whole prefill bit for bit, for every
// kind of attention, whether a chunk is shorter or longer than a pass.
TEST(ChunkPrefillTest, NothingLeavesWithinTheBudget) {
  const Method method = Shipped("snapkv");
  for (const char* kind : {"mha", "gqa", "mqa", "mla", "three_axes"}) {
    const TinyModel tiny = MakeTinyModel(kind, 2);
    Model& model = *tiny.model;
    for (const int64_t tokens : {int64_t{1}, int64_t{90}, Model::kChunkRows + 70}) {
      for (const int64_t chunk : {int64_t{64}, Model::kChunkRows + 20}) {
        const Prompt prompt = Prompt::FromTokens(RandomIds(tokens, 3));
        KvCache whole = model.NewCache(tokens), cache = model.NewCache(tokens);
        std::vector<float> want, got;
        const Status read = Prefill(model, prompt, whole, Model::kChunkRows, false,
                                    [&](const Tensor& rows) -> Status {
                                      want = HostFloats(model.ops(), rows);
                                      return {};
                                    });
        ASSERT_TRUE(read.ok()) << read.error().message;
        Compressor compressor(model, method, Fraction(1.0));
        ChunkPrefill prefill(model, method, prompt, 7, chunk, compressor, cache);
        while (!prefill.done()) {
          const Result<Tensor> last = prefill.Next();
          ASSERT_TRUE(last.ok()) << last.error().message;
          EXPECT_EQ(last->empty(), !prefill.done());
          if (prefill.done()) got = HostFloats(model.ops(), *last);
        }
        EXPECT_TRUE(SameBits(got, want)) << kind << ", " << tokens << " in " << chunk;
        EXPECT_TRUE(SameBits(HeldNumbers(cache), HeldNumbers(whole))) << kind << ", " << tokens;
      }
    }
  }
}

// However long the prompt is, a head holds no more than its budget and one chunk, and the pool
// hands out no more than that takes; a whole prompt takes more.
TEST_F(ChunkTest, ACacheHoldsItsBudgetAndAChunk) {
  constexpr int64_t kTokens = 1500, kChunk = 100, kKept = 70;
  const Prompt prompt = Prompt::FromTokens(RandomIds(kTokens, 5));
  const Method h2o = Shipped("h2o");
  for (const Method* method : {&snapkv_, &random_, &streaming_, &h2o}) {
    CachePools pools(model_.ops());
    KvCache cache = model_.NewCache(kTokens, pools);
    const Budget budget = {Budget::Kind::kEntries, kKept};
    Compressor compressor(model_, *method, budget);
    ChunkPrefill prefill(model_, *method, prompt, 7, kChunk, compressor, cache);
    int64_t most = 0, most_bytes = 0, chunks = 0;
    while (!prefill.done()) {
      const Result<Tensor> read = prefill.Next();
      ASSERT_TRUE(read.ok()) << method->id << ": " << read.error().message;
      ++chunks;
      for (int64_t layer = 0; layer < cache.layer_count(); ++layer) {
        most = std::max(most, cache.length(layer, 1));
      }
      most_bytes = std::max(most_bytes, pools.of(Tier::kDevice).used_bytes());
    }
    // A chunk is a pass here, behind which the cache is compressed already.
    EXPECT_EQ(chunks, kTokens / kChunk) << method->id;
    EXPECT_EQ(most, kKept) << method->id;
    EXPECT_EQ(cache.length(0, 0), kKept) << method->id;
    EXPECT_EQ(cache.tokens(), kTokens);
    const int64_t peak = pools.of(Tier::kDevice).peak_bytes();
    EXPECT_GT(peak, 0);
    // Whole pages, their positions, and a layer that is held twice while it is reduced.
    const ModelShape shape = model_.shape();
    EXPECT_LE(most_bytes, 2 * FullCacheBytes(shape, kKept + kChunk + 64)) << method->id;
    EXPECT_LT(peak, FullCacheBytes(shape, kTokens) / 2) << method->id;
  }
}

// What a row's cache holds at most is what the engine plans for it, so that a prompt that does not
// fit in memory whole is read within a budget.
TEST_F(ChunkTest, ALongPromptIsReadInLessThanItsCache) {
  constexpr int64_t kTokens = 2000;
  EngineSample sample = Sample(kTokens, 5, 3);
  const Contender few = {&snapkv_, {Budget::Kind::kEntries, 100}, &model_};
  const auto plan = [&](const Contender& contender, EngineOptions options) {
    options.max_pool_lanes = 1;
    return *Engine({contender}, options).PlanMemory({&sample, 1});
  };
  const MemoryPlan whole = plan(few, {}), chunks = plan(few, Chunks(128));
  const int64_t full_bytes = FullCacheBytes(model_.shape(), kTokens);
  EXPECT_GE(whole.snapshot_bytes, full_bytes);
  EXPECT_LT(chunks.snapshot_bytes, full_bytes / 3);
  EngineOptions tight = Chunks(128);
  tight.max_pool_lanes = 1;
  tight.max_memory_bytes = chunks.total_bytes();
  const Cells cells = RunEngine({few}, tight, {sample});
  ASSERT_TRUE(cells.at({0, 0}).status.ok()) << cells.at({0, 0}).status.error().message;
  EXPECT_EQ(cells.at({0, 0}).record.entries_after[0], (std::vector<int64_t>{100, 100}));
  tight.compress_at = CompressAt::kPrompt;
  const Result<MemoryPlan> refused = Engine({few}, tight).PlanMemory({&sample, 1});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("--max-memory"));
}

// Every row that reduces prompts reads them for itself, and no row's bits depend on the others.
// What shares a prefill has the bits of a prompt that is read whole.
TEST_F(ChunkTest, RowsAloneAreRowsInCompany) {
  const Method adakv = Shipped("adakv"), quest = Shipped("quest"), kivi = Shipped("kivi_2bit");
  const Method both = Shipped("snapkv_kivi"), h2o = Shipped("h2o"), pyramid = Shipped("pyramidkv");
  const std::vector<Contender> contenders = {
      At(full_, 1),     At(snapkv_, 0.3),      {&kivi, {}, &model_}, At(streaming_, 0.3),
      At(adakv, 0.3),   {&quest, {}, &model_}, At(both, 0.7),        At(h2o, 0.3),
      At(pyramid, 0.3), At(random_, 0.3)};
  const std::vector<EngineSample> samples = {Sample(260, 3), Sample(411, 4)};
  std::map<std::pair<int64_t, int64_t>, std::vector<float>> held;
  const auto watched = [&](EngineOptions options) {
    options.inspect = [&](const CellResult& cell, const KvCache& cache, Compressor&) {
      held[{cell.sample, cell.contender}] = HeldNumbers(cache);
    };
    return options;
  };
  const Cells together = RunEngine(contenders, watched(Chunks(120)), samples);
  const auto of_company = held;
  for (int64_t c = 0; c < std::ssize(contenders); ++c) {
    held.clear();
    const Cells alone =
        RunEngine({contenders[static_cast<size_t>(c)]}, watched(Chunks(120)), samples);
    for (const int64_t s : {0, 1}) {
      const CellResult &got = together.at({s, c}), &want = alone.at({s, 0});
      ASSERT_TRUE(want.status.ok()) << want.status.error().message;
      EXPECT_EQ(got.turns[0].ids, want.turns[0].ids) << c;
      EXPECT_EQ(got.record.entries_after, want.record.entries_after) << c;
      EXPECT_EQ(got.record.bytes, want.record.bytes) << c;
      EXPECT_TRUE(SameBits(of_company.at({s, c}), held.at({s, 0}))) << c;
    }
    held.clear();
    RunEngine({contenders[static_cast<size_t>(c)]}, watched({}), samples);
    const bool shares = !ReducesPrompts(*contenders[static_cast<size_t>(c)].method);
    EXPECT_EQ(SameBits(of_company.at({1, c}), held.at({1, 0})), shares) << c;
  }
  // Three chunks and four, the first of which is within the budget; what is coded is coded behind
  // the prompt.
  EXPECT_EQ(together.at({0, 1}).record.compressions, 3);
  EXPECT_EQ(together.at({1, 1}).record.compressions, 3);
  EXPECT_GT(together.at({1, 6}).record.bytes.scales, 0);
  // A share is one of the whole prompt.
  EXPECT_EQ(together.at({1, 1}).record.prompt_tokens, 411);
  EXPECT_EQ(together.at({1, 1}).record.entries_after[0], (std::vector<int64_t>{123, 123}));
  EXPECT_EQ(together.at({1, 1}).record.entries_before[0], (std::vector<int64_t>{411, 411}));
}

// Sums of attention go on from chunk to chunk: where nothing leaves they are those of all rows.
TEST_F(ChunkTest, SumsAreThoseOfAllRows) {
  const EngineSample sample = Sample(165, 4, 1);
  for (const char* id : {"h2o", "vatp"}) {
    const Method method = Shipped(id, {"protect.recent=0"});
    std::map<CompressAt, std::vector<float>> scores;
    for (const CompressAt at : {CompressAt::kPrompt, CompressAt::kChunk}) {
      EngineOptions options = Chunks(50);
      options.compress_at = at;
      options.inspect = [&](const CellResult&, const KvCache& cache, Compressor&) {
        for (int64_t layer = 0; layer < 2; ++layer) {
          std::vector<float> of_layer(static_cast<size_t>(2 * cache.length(layer, 0)));
          cache.ReadScores(layer, View(of_layer, {2, cache.length(layer, 0)}));
          scores[at].insert(scores[at].end(), of_layer.begin(), of_layer.end());
        }
      };
      const Cells cells = RunEngine({At(method, 1)}, options, {sample});
      ASSERT_TRUE(cells.at({0, 0}).status.ok()) << cells.at({0, 0}).status.error().message;
    }
    const std::vector<float>& whole = scores[CompressAt::kPrompt];
    const std::vector<float>& chunks = scores[CompressAt::kChunk];
    ASSERT_EQ(whole.size(), chunks.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_NEAR(chunks[i], whole[i], 1e-5 * (1 + std::abs(whole[i]))) << id << ", " << i;
    }
  }
}

// Entries that left are missing for the rows behind them: sums go on with those that stayed.
TEST_F(ChunkTest, SumsFollowTheirEntries) {
  const Method h2o = Shipped("h2o", {"protect.recent=0"});
  const Prompt prompt = Prompt::FromTokens(RandomIds(120, 4));
  KvCache cache = model_.NewCache(120), whole = model_.NewCache(120);
  const Budget budget = {Budget::Kind::kEntries, 40};
  Compressor compressor(model_, h2o, budget);
  ChunkPrefill prefill(model_, h2o, prompt, 7, 60, compressor, cache);
  ASSERT_TRUE(prefill.Next().ok());
  std::vector<int32_t> first = cache.Positions(0, 0);
  ASSERT_TRUE(prefill.Next().ok());
  ASSERT_TRUE(prefill.done());
  // Rows give 1 each to what they see: the sums of a group's heads over all that is held, and over
  // what has left since, are at most that of all rows.
  std::vector<float> scores(static_cast<size_t>(2 * cache.length(0, 0)));
  cache.ReadScores(0, View(scores, {2, cache.length(0, 0)}));
  const double sum = std::accumulate(scores.begin(), scores.begin() + 40, 0.0);
  EXPECT_LE(sum, 3 * 120 * 1.001);
  EXPECT_GT(sum, 3 * 60);  // of more than one chunk's rows
  // The first token is seen by all rows and was not forgotten.
  EXPECT_EQ(first[0], cache.Positions(0, 0)[0]);
}

// Fidelity is held against the whole prompt, and measuring it changes nothing; stages with a state
// of their own, which cannot be copied, read the prompt again.
TEST_F(ChunkTest, FidelityIsAgainstTheWholePrompt) {
  const Method buzz = Shipped("buzz");
  const std::vector<Contender> contenders = {At(full_, 1), At(snapkv_, 0.3), At(buzz, 0.3)};
  EngineOptions options = Chunks(120);
  const Cells plain = RunEngine(contenders, options, {Sample(260, 3)});
  options.fidelity_steps = 4;
  const Cells cells = RunEngine(contenders, options, {Sample(260, 3)});
  for (const int64_t c : {0, 1, 2}) {
    const CellResult& cell = cells.at({0, c});
    ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
    ASSERT_TRUE(cell.fidelity.has_value()) << c;
    EXPECT_EQ(cell.turns[0].ids, plain.at({0, c}).turns[0].ids);
    EXPECT_EQ(cell.fidelity->kl_divergence > 0, c > 0);
  }
}

// Turns are prompts of their own, as with compress_at prompt.
TEST_F(ChunkTest, TurnsAreAskedApart) {
  EngineSample sample = {.id = "s", .context = RandomIds(180, 21)};
  for (const uint64_t seed : {31, 32}) {
    sample.turns.push_back({.ids = RandomIds(7, seed), .max_new_tokens = 4});
  }
  const Cells cells = RunEngine({At(snapkv_, 0.3)}, Chunks(90), {sample});
  ASSERT_TRUE(cells.at({0, 0}).status.ok());
  for (const size_t turn : {0, 1}) {
    EngineSample one = sample;
    one.turns = {sample.turns[turn]};
    EXPECT_EQ(cells.at({0, 0}).turns[turn].ids,
              RunEngine({At(snapkv_, 0.3)}, Chunks(90), {one}).at({0, 0}).turns[0].ids);
  }
}

TEST_F(ChunkTest, WhatCannotIsRefusedByName) {
  const auto why = [&](const Method& method, int64_t chunk_tokens = 512) {
    const Status fits = CheckMoment(method, CompressAt::kChunk, chunk_tokens);
    return fits.ok() ? std::string() : fits.error().message;
  };
  EXPECT_THAT(why(Shipped("kvzip")),
              HasSubstr("kvzip: score.kvzip runs the model behind a prompt"));
  EXPECT_THAT(why(Shipped("noncausal")), HasSubstr("score.noncausal scores entries among"));
  EXPECT_THAT(why(Shipped("cake")), HasSubstr("allocate.cake shares entries out by a prompt"));
  EXPECT_THAT(why(Shipped("fastv")), HasSubstr("thin.fastv lets rows of a whole prompt go"));
  EXPECT_THAT(why(Shipped("capkv", {"allocate.id=ada"})), HasSubstr("hold as many entries"));
  EXPECT_EQ(why(Shipped("ada_expected_attention")), "");
  EXPECT_THAT(why(full_, 0), HasSubstr("chunk_tokens 0; expected 1 or more"));
  EXPECT_THAT(why(full_, -3), HasSubstr("chunk_tokens -3; expected 1 or more"));
  const Method wide = Shipped("snapkv");  // looks back from 32 rows
  EXPECT_THAT(why(wide, 40), HasSubstr("expected 64 or more"));
  EXPECT_EQ(why(wide, 64), "");
  EXPECT_THAT(why(Shipped("streaming_llm", {"protect.recent=60", "protect.sinks=4"}), 100),
              HasSubstr("4 first and 60 last entries"));
  EXPECT_EQ(why(full_, 1), "");
  EXPECT_EQ(why(Shipped("quest"), 1), "");
  EngineOptions options = Chunks(40);
  const Status run =
      Engine({At(wide, 0.5)}, options).Run({}, [](const CellResult&) { return Status(); });
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().code, ErrorCode::kBadInput);
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Prefills that condense their context chunk by chunk, and low-rank additions for some rows.
#include "src/engine/condensed_prefill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/rng.h"
#include "core/strings.h"
#include "methods/tensors.h"
#include "runner/adapted_rows.h"
#include "runner/engine_fixture.h"
#include "runner/thin_prefill.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Method Condensing(const std::string& memory, std::vector<std::string> more = {}) {
  more.insert(more.begin(), {"thin.weights=random", "thin.rank=4", "thin.tokens=3"});
  return Shipped("ccm_" + memory, more);
}

struct Condensed {
  Prompt prompt;
  KvCache cache;
  std::vector<float> logits;

  Condensed(Model& model, const Method& method, std::span<const int32_t> ids, int64_t context,
            std::span<const int64_t> passages = {})
      : prompt(Prompt::FromTokens(ids)), cache(model.NewCache(prompt.size() + 8)) {
    PrefillCapture capture(model.config(), cache, NeedsOf(method.needs(), prompt), prompt.size(),
                           &prompt);
    ThinPrefill prefill(model, *method.thin, prompt, cache, capture, 7, context, passages);
    while (!prefill.done()) {
      const Result<Tensor> last = prefill.Next();
      EXPECT_TRUE(last.ok());
      if (!last.ok()) return;
      EXPECT_EQ(last->empty(), !prefill.done());
      if (prefill.done()) logits = HostFloats(model.ops(), *last);
    }
    EXPECT_EQ(cache.tokens(), prompt.size());
  }

  // Entries [first, end) of one head: keys, then values.
  std::vector<float> Rows(int64_t layer, int64_t head, int64_t first, int64_t end) const {
    const int64_t n = end - first, dk = cache.format().key_dim, dv = cache.format().value_dim;
    std::vector<float> rows(static_cast<size_t>(n * (dk + dv)));
    const Tensor all = View(rows, {n * (dk + dv)});
    cache.ReadKeys(layer, head, first, all.Slice(0, n * dk).Reshape({n, dk}));
    cache.ReadValues(layer, head, first, all.Slice(n * dk, n * (dk + dv)).Reshape({n, dv}));
    return rows;
  }
};

// Rows [begin, end) of a prompt, with adapters from row `first` of the prompt on.
std::vector<float> FeedRows(Model& model, const Prompt& prompt, int64_t end, KvCache& cache,
                            RowAdapters* adapters = nullptr, int64_t first = 0) {
  const int64_t begin = cache.tokens();
  EXPECT_TRUE(cache.Append(end - begin).ok());
  std::optional<AdaptedRows> hook;
  if (adapters != nullptr) hook.emplace(*adapters, first - begin);
  const SequenceStep step = {.cache = &cache,
                             .prompt = &prompt,
                             .begin = begin,
                             .end = end,
                             .logits = LogitRows::kAll,
                             .hook = hook ? &*hook : nullptr};
  return HostFloats(model.ops(), model.Forward({&step, 1}));
}

const CondensingThin& StageOf(const std::unique_ptr<Stage>& stage) {
  return dynamic_cast<const CondensingThin&>(*stage);
}

TEST(CondensedPrefillTest, ChunksHoldMoreThanStaysOfThem) {
  const Method method = Condensing("concat", {"thin.chunk=10", "thin.sinks=2"});
  const std::unique_ptr<Stage> made = MakeStage(*method.thin);
  const auto ends = [&](int64_t tokens, int64_t context, std::vector<int64_t> passages = {}) {
    return ChunkEnds(StageOf(made), tokens, context, passages);
  };
  // The question has a token at least, where nobody says where it begins.
  EXPECT_THAT(ends(10, 0), IsEmpty());
  EXPECT_THAT(ends(11, 0), ElementsAre(10));
  EXPECT_THAT(ends(45, 0), ElementsAre(10, 20, 30, 40));
  EXPECT_THAT(ends(45, 25), ElementsAre(10, 20, 25));
  EXPECT_THAT(ends(45, 23), ElementsAre(10, 20, 23));
  EXPECT_THAT(ends(45, 22), ElementsAre(10, 22));
  EXPECT_THAT(ends(45, 45), ElementsAre(10, 20, 30, 40, 45));
  EXPECT_THAT(ends(45, 4), IsEmpty());
  EXPECT_THAT(ends(45, 5), ElementsAre(5));
  EXPECT_THAT(ends(45, 40, {0, 12, 14, 30}), ElementsAre(12, 30, 40));
  EXPECT_THAT(ends(45, 31, {4, 12, 30}), ElementsAre(12, 31));
}

TEST(CondensedPrefillTest, WithoutAChunkTheBitsAreThoseOfAWholePrefill) {
  const Method method = Condensing("merge", {"thin.chunk=4096"});
  for (const char* kind : {"mha", "gqa", "mqa"}) {
    const TinyModel tiny = MakeTinyModel(kind);
    const std::vector<int32_t> ids = RandomIds(700, 3);
    const Condensed condensed(*tiny.model, method, ids, 0);
    KvCache cache = tiny.model->NewCache(708);
    const Prompt prompt = Prompt::FromTokens(ids);
    FeedRows(*tiny.model, prompt, 512, cache);
    std::vector<float> logits = FeedRows(*tiny.model, prompt, 700, cache);
    logits.erase(logits.begin(), logits.end() - 101);
    EXPECT_TRUE(SameBits(condensed.logits, logits));
    EXPECT_EQ(condensed.cache.length(1, 0), 700);
  }
}

// What stays of a chunk are the entries of the stage's tokens, however passes divide their rows:
// they turn by the places behind the chunk and take up none.
TEST(CondensedPrefillTest, TheTokensOfTheStageStayInThePlaceOfAChunk) {
  const TinyModel tiny = MakeTinyModel("gqa");
  Model& model = *tiny.model;
  for (const int64_t chunk : {40, 511}) {
    const Method method = Condensing("concat", {StrCat("thin.chunk=", chunk), "thin.sinks=1"});
    const std::vector<int32_t> ids = RandomIds(chunk + 5, 3);
    const Condensed condensed(model, method, ids, chunk);
    const std::unique_ptr<Stage> made = MakeStage(*method.thin);
    const std::vector<float> embeddings = StageOf(made).Embeddings(model.shape());
    const std::unique_ptr<RowAdapters> adapters = StageOf(made).Load(model.shape(), model.ops());
    Prompt read = Prompt::FromTokens(std::span(ids).first(static_cast<size_t>(chunk)));
    read.embeddings = {{View(embeddings, {3, 64})}};
    for (int32_t i = 0; i < 3; ++i) {
      const auto at = static_cast<int32_t>(chunk) + i;
      read.positions.push_back({.embedding_row = i, .rope_position = {at, at, at}});
    }
    KvCache cache = model.NewCache(chunk + 8);
    FeedRows(model, read, chunk, cache);
    FeedRows(model, read, chunk + 3, cache, adapters.get(), chunk);
    const int64_t end = condensed.cache.length(0, 0);
    EXPECT_EQ(end, 1 + 3 + 5);
    for (int64_t layer = 0; layer < 2; ++layer) {
      for (int64_t head = 0; head < 2; ++head) {
        std::vector<float> keys(3 * 32), values(3 * 32);
        cache.ReadKeys(layer, head, chunk, View(keys, {3, 32}));
        cache.ReadValues(layer, head, chunk, View(values, {3, 32}));
        keys.insert(keys.end(), values.begin(), values.end());
        EXPECT_TRUE(SameBits(condensed.Rows(layer, head, 1, 4), keys)) << chunk;
        const auto last = static_cast<int32_t>(chunk);
        EXPECT_THAT(condensed.cache.Positions(layer, head),
                    ElementsAre(0, last - 3, last - 2, last - 1, last, last + 1, last + 2, last + 3,
                                last + 4));
      }
    }
  }
}

// Both read a second chunk behind the same memory.
TEST(CondensedPrefillTest, MergingIsTheMeanOverChunks) {
  const TinyModel tiny = MakeTinyModel("gqa");
  const std::vector<int32_t> ids = RandomIds(64, 5);
  const std::vector<std::string> chunks = {"thin.chunk=20", "thin.sinks=1"};
  const Method concat = Condensing("concat", chunks), merge = Condensing("merge", chunks);
  const Condensed one(*tiny.model, concat, ids, 40), mean(*tiny.model, merge, ids, 40);
  EXPECT_EQ(one.cache.length(0, 0), 1 + 2 * 3 + 24);
  EXPECT_EQ(mean.cache.length(0, 0), 1 + 3 + 24);
  for (int64_t layer = 0; layer < 2; ++layer) {
    for (int64_t head = 0; head < 2; ++head) {
      const std::vector<float> first = one.Rows(layer, head, 1, 4);
      const std::vector<float> second = one.Rows(layer, head, 4, 7);
      std::vector<float> want(first.size());
      for (size_t i = 0; i < want.size(); ++i) want[i] = (first[i] + second[i]) / 2;
      EXPECT_TRUE(AllWithin(mean.Rows(layer, head, 1, 4), want, 1e-6));
      EXPECT_TRUE(SameBits(mean.Rows(layer, head, 0, 1), one.Rows(layer, head, 0, 1)));
    }
  }
  // However many come, as much stays.
  const Condensed many(*tiny.model, merge, ids, 63);
  EXPECT_EQ(many.cache.length(1, 1), 1 + 3 + 1);
}

// The weights of one projection, plainly.
TEST(CondensedPrefillTest, LowRankAdditionsAreTheirProducts) {
  const ModelShape shape = TinyShape("gqa");
  const Method method = Condensing("concat");
  const GateTables tables(method.thin->params);
  const std::unique_ptr<Ops> ops = MakeTestOps("cpu", 1);
  RowAdapters adapters(tables, shape, 4, 0.5f, *ops);
  Rng rng(8, 1);
  const auto draw = [&](int64_t rows, int64_t columns) {
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (float& value : values) value = static_cast<float>(rng.NextGaussian());
    return values;
  };
  constexpr int64_t kRows = 3;
  const auto expect_added = [&](const std::vector<float>& x, const std::vector<float>& before,
                                const std::vector<float>& after, char name, int64_t in, int64_t out,
                                int64_t column, int64_t width) {
    const std::vector<float> down = tables.Read(RowAdapters::Table(1, name, false), {4, in});
    const std::vector<float> up = tables.Read(RowAdapters::Table(1, name, true), {out, 4});
    for (int64_t row = 0; row < kRows; ++row) {
      double narrow[4] = {};
      for (int64_t r = 0; r < 4; ++r) {
        for (int64_t i = 0; i < in; ++i) narrow[r] += double{down[r * in + i]} * x[row * in + i];
      }
      for (int64_t o = 0; o < out; ++o) {
        double sum = 0;
        for (int64_t r = 0; r < 4; ++r) sum += double{up[o * 4 + r]} * narrow[r];
        const auto at = static_cast<size_t>(row * width + column + o);
        EXPECT_NEAR(after[at], before[at] + 0.5 * sum, 1e-5) << name;
      }
    }
  };
  const std::vector<float> x = draw(kRows, 64), heads = draw(kRows, 320);
  std::vector<float> qkv = heads;
  adapters.AddToHeads(1, View(x, {kRows, 64}), View(qkv, {kRows, 320}));
  expect_added(x, heads, qkv, 'q', 64, 192, 0, 320);
  expect_added(x, heads, qkv, 'k', 64, 64, 192, 320);
  expect_added(x, heads, qkv, 'v', 64, 64, 256, 320);
  const std::vector<float> attended = draw(kRows, 192), residual = draw(kRows, 64);
  std::vector<float> out = residual;
  adapters.AddToOutput(1, View(attended, {kRows, 192}), View(out, {kRows, 64}));
  expect_added(attended, residual, out, 'o', 192, 64, 0, 64);
}

// In f32 and where products take other types.
TEST(CondensedPrefillTest, OtherRowsOfAPassKeepTheirBits) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    ModelOptions options;
    options.dtype = dtype;
    const TinyModel tiny = MakeTinyModel("gqa", 2, options);
    Model& model = *tiny.model;
    const Method method = Condensing("concat");
    const std::unique_ptr<Stage> made = MakeStage(*method.thin);
    const std::unique_ptr<RowAdapters> adapters = StageOf(made).Load(model.shape(), model.ops());
    const Prompt prompt = Prompt::FromTokens(RandomIds(20, 4)), other = prompt;
    KvCache plain = model.NewCache(24), one = model.NewCache(24), two = model.NewCache(24);
    const std::vector<float> want = FeedRows(model, prompt, 20, plain);
    ASSERT_TRUE(one.Append(20).ok() && two.Append(20).ok());
    AdaptedRows hook(*adapters, 12);
    const SequenceStep steps[] = {
        {.cache = &one,
         .prompt = &prompt,
         .begin = 0,
         .end = 20,
         .logits = LogitRows::kAll,
         .hook = &hook},
        {.cache = &two, .prompt = &other, .begin = 0, .end = 20, .logits = LogitRows::kAll}};
    const std::vector<float> got = HostFloats(model.ops(), model.Forward(steps));
    const auto rows = [](const std::vector<float>& all, int64_t begin, int64_t end) {
      return std::vector<float>(all.begin() + begin * 101, all.begin() + end * 101);
    };
    EXPECT_TRUE(SameBits(rows(got, 0, 12), rows(want, 0, 12)));
    EXPECT_TRUE(SameBits(rows(got, 20, 40), want));
    for (int64_t row = 12; row < 20; ++row) {
      EXPECT_FALSE(SameBits(rows(got, row, row + 1), rows(want, row, row + 1))) << row;
    }
    // As in a pass of their own.
    KvCache apart = model.NewCache(24);
    FeedRows(model, prompt, 12, apart);
    EXPECT_TRUE(
        SameBits(FeedRows(model, prompt, 20, apart, adapters.get(), 12), rows(got, 12, 20)));
  }
}

class CondensedEngineTest : public EngineTest {
 protected:
  EngineSample Asked() const {
    EngineSample sample = {.id = "s", .context = RandomIds(100, 9)};
    sample.turns = {{.ids = RandomIds(20, 10), .max_new_tokens = 5}};
    return sample;
  }
};

// A question that is prompted behind its context, and one that comes later, have the same answer:
// both see the memory and themselves.
TEST_F(CondensedEngineTest, QuestionsFollowACondensedContext) {
  const Method concat = Condensing("concat", {"thin.chunk=30"});
  const Method merge = Condensing("merge", {"thin.chunk=30"});
  const Contender contenders[] = {{.method = &concat, .budget = {}, .model = &model_},
                                  {.method = &merge, .budget = {}, .model = &model_},
                                  {.method = &full_, .budget = {}, .model = &model_}};
  for (const Contender& contender : {contenders[0], contenders[1]}) {
    const int64_t held = contender.method == &concat ? 4 * 3 : 3;
    const CellResult later =
        RunEngine({contender}, {.compress_at = CompressAt::kContext}, {Asked()}).at({0, 0});
    ASSERT_TRUE(later.status.ok()) << later.status.error().message;
    EXPECT_EQ(later.record.prompt_tokens, 100);
    EXPECT_EQ(later.record.entries_after[1], std::vector<int64_t>(2, held));
    const CellResult prompted = RunEngine({contender}, {.fidelity_steps = 3}, {Asked()}).at({0, 0});
    EXPECT_EQ(prompted.record.prompt_tokens, 120);
    EXPECT_EQ(prompted.record.entries_after[1], std::vector<int64_t>(2, held + 20));
    EXPECT_EQ(prompted.turns[0].ids, later.turns[0].ids);
    EXPECT_EQ(prompted.record.engagement, Engagement::kEngaged);
    EXPECT_EQ(prompted.record.full_bytes, FullCacheBytes(model_.shape(), 120));
    ASSERT_TRUE(prompted.fidelity.has_value());
    EXPECT_GT(prompted.fidelity->kl_divergence, 0);
    // The LoRA of two layers and the embeddings.
    EXPECT_EQ(prompted.record.bytes.projections,
              RowAdapters::WeightBytes(model_.shape(), 4) + 3 * 64 * 4);
  }
  const Cells together = RunEngine({contenders[0], contenders[1], contenders[2]}, {}, {Asked()});
  for (const int64_t i : {0, 1}) {
    const CellResult alone = RunEngine({contenders[i]}, {}, {Asked()}).at({0, 0});
    EXPECT_EQ(together.at({0, i}).turns[0].ids, alone.turns[0].ids);
    EXPECT_EQ(together.at({0, i}).record.bytes, alone.record.bytes);
  }
}

TEST_F(CondensedEngineTest, PassagesAreChunks) {
  const Method method = Condensing("concat");
  EngineSample sample = Asked();
  sample.passages = {0, 17, 60};
  const CellResult cell =
      RunEngine({{.method = &method, .budget = {}, .model = &model_}}, {}, {sample}).at({0, 0});
  ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
  EXPECT_EQ(cell.record.entries_after[0], std::vector<int64_t>(2, 3 * 3 + 20));
}

// A context without a question: its last row gives the answer's first token.
TEST_F(CondensedEngineTest, TheLastRowIsNeverCondensed) {
  const Method method = Condensing("concat", {"thin.chunk=30"});
  EngineSample sample = {.id = "s", .context = RandomIds(90, 9)};
  sample.turns = {{.max_new_tokens = 4}};
  const CellResult cell =
      RunEngine({{.method = &method, .budget = {}, .model = &model_}}, {}, {sample}).at({0, 0});
  ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
  EXPECT_EQ(cell.record.entries_after[0], std::vector<int64_t>(2, 3 * 3 + 1));
}

TEST_F(CondensedEngineTest, RefusesTurnsAndChunksOfOthers) {
  const Method method = Condensing("concat", {"thin.chunk=30"});
  const Status turn = CheckMoment(method, CompressAt::kTurn);
  ASSERT_FALSE(turn.ok());
  EXPECT_THAT(turn.error().message, HasSubstr("thin.ccm"));
  EXPECT_FALSE(CheckMoment(method, CompressAt::kChunk, 64).ok());
}

}  // namespace
}  // namespace kvgauge

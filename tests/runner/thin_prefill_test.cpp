// SPDX-License-Identifier: Apache-2.0
// Prefills from which rows leave: what stays is what a whole prefill has, as long as nothing is
// missing.
#include "runner/thin_prefill.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "methods/merging_thin.h"
#include "methods/registry.h"
#include "methods/tensors.h"
#include "runner/engine_fixture.h"
#include "runner/generate.h"
#include "runner/thinned.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

constexpr int kThinLayers = 4;

// Chooses as a parameter says.
class TestThin final : public Thin {
 public:
  explicit TestThin(const Params& params) : way_(params.Text("way")) {}
  Needs needs() const override { return {.window = 3}; }
  std::vector<int64_t> Layers(const ModelShape&) const override { return {1, 3}; }
  bool reads_again() const override { return false; }
  Tensor Choose(LayerView& view) const override {
    const auto rows = static_cast<int32_t>(view.width());
    EXPECT_EQ(view.tokens(), 40);
    EXPECT_EQ(view.WindowAttention(3).shape[2], rows);
    std::vector<int32_t> keep;
    for (int32_t row = rows % 2 == 0 ? 1 : 0; row < rows; row += 2) keep.push_back(row);
    if (way_ == "not_the_last") keep.pop_back();
    if (way_ == "twice") keep.insert(keep.begin(), keep.front());
    if (way_ == "beyond") keep.push_back(rows);
    return Upload(view, std::span<const int32_t>(keep));
  }

 private:
  std::string way_;
};

const StageRegistrar kTestThin(StageSpec{
    .kind = StageKind::kThin,
    .id = "test_thin",
    .version = 1,
    .paper = "",
    .summary = "every second row",
    .params = {ChoiceParam("way", "right", {"right", "not_the_last", "twice", "beyond"}, "")},
    .make = Make<TestThin>()});

Method Every2nd(const std::string& way = "right") { return ThinBy("test_thin", way); }

// Keeps the even rows and the last one, and makes each odd row anew of itself; or as `way` says.
class RemakingThin final : public MergingThin {
 public:
  explicit RemakingThin(const Params& params) : way_(params.Text("way")) {}
  Needs needs() const override { return {.window = 1}; }
  std::vector<int64_t> Layers(const ModelShape&) const override { return {1, 3}; }
  RowsOn Pass(LayerView& view, const ThinRows& rows) const override {
    const auto n = static_cast<int32_t>(view.width());
    EXPECT_EQ(rows.hidden.shape[0], n);
    EXPECT_EQ(rows.inputs.shape[0], view.tokens());
    std::vector<int32_t> kept, made;
    for (int32_t row = 0; row < n; ++row)
      (row % 2 == 0 || row == n - 1 ? kept : made).push_back(row);
    if (way_ == "kept_too") made.back() = 0;
    if (way_ == "kept_too") std::sort(made.begin(), made.end());
    std::vector<float> shares(made.size() * static_cast<size_t>(n), 0.0f);
    for (size_t i = 0; i < made.size(); ++i) {
      shares[i * static_cast<size_t>(n) + static_cast<size_t>(made[i])] =
          way_ == "nothing" ? 0.0f : 1.0f;
    }
    if (way_ == "inputs") {  // they are what the rows were before the first layer
      const std::vector<float> read = Fetch(view.ops(), rows.inputs);
      EXPECT_NE(read, Fetch(view.ops(), rows.hidden));
    }
    RowsOn on = {.kept = Upload(view, std::span<const int32_t>(kept))};
    on.made = Upload(view, std::span<const int32_t>(made));
    on.shares = Upload(view, std::span<const float>(shares)).Reshape({std::ssize(made), n});
    return on;
  }

 private:
  std::string way_;
};

const StageRegistrar kRemakingThin(StageSpec{
    .kind = StageKind::kThin,
    .id = "test_remaking",
    .version = 1,
    .paper = "",
    .summary = "rows made of themselves",
    .params = {ChoiceParam("way", "right", {"right", "nothing", "kept_too", "inputs"}, "")},
    .make = Make<RemakingThin>()});

Method Remaking(const std::string& way) { return ThinBy("test_remaking", way); }

struct WholePrefill {
  KvCache cache;
  std::vector<float> logits;

  WholePrefill(Model& model, const Prompt& prompt) : cache(model.NewCache(prompt.size() + 8)) {
    cache.PlaceRope(RopePlaces::Of(prompt));
    const Status done =
        Prefill(model, prompt, cache, Model::kChunkRows, false, [&](const Tensor& rows) -> Status {
          logits = HostFloats(model.ops(), rows);
          return {};
        });
    EXPECT_TRUE(done.ok()) << done.error().message;
  }
};

std::vector<float> EntryRows(const KvCache& cache, int64_t layer, int64_t head, bool keys) {
  const int64_t n = cache.length(layer, head);
  const int64_t dim = keys ? cache.format().key_dim : cache.format().value_dim;
  std::vector<float> rows(static_cast<size_t>(n * dim));
  keys ? cache.ReadKeys(layer, head, 0, View(rows, {n, dim}))
       : cache.ReadValues(layer, head, 0, View(rows, {n, dim}));
  return rows;
}

// The entries of `some` are those of `all` at the same positions, bit for bit.
void ExpectEntriesOf(const KvCache& some, const KvCache& all, int64_t layer) {
  for (int64_t head = 0; head < all.kv_heads(); ++head) {
    const std::vector<int32_t> positions = some.Positions(layer, head);
    for (const bool keys : {true, false}) {
      const std::vector<float> got = EntryRows(some, layer, head, keys);
      const std::vector<float> whole = EntryRows(all, layer, head, keys);
      const size_t dim = whole.size() / static_cast<size_t>(all.length(layer, head));
      std::vector<float> want;
      for (const int32_t position : positions) {
        const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(dim) * position;
        want.insert(want.end(), begin, begin + static_cast<std::ptrdiff_t>(dim));
      }
      EXPECT_TRUE(SameBits(got, want)) << "layer " << layer << ", head " << head;
    }
  }
}

// Chunks of rows and of layers, rows that are embedded once and read from then on: the bits are
// those of a prefill in whole chunks, for every kind of attention.
TEST(ThinPrefillTest, LettingNoRowGoIsTheWholePrefill) {
  for (const char* kind : {"mha", "gqa", "mqa", "mla", "three_axes"}) {
    const TinyModel tiny = MakeTinyModel(kind, 2, {}, kThinLayers);
    Model& model = *tiny.model;
    for (const int64_t tokens : {int64_t{1}, int64_t{90}, Model::kChunkRows + 70}) {
      const Prompt prompt = Prompt::FromTokens(RandomIds(tokens, 3));
      const WholePrefill whole(model, prompt);
      const Method method = Shipped("fastv", {"thin.rows=all", "thin.drop=0"});
      const Thinned thinned(model, method, prompt);
      ASSERT_TRUE(thinned.status.ok()) << thinned.status.error().message;
      EXPECT_TRUE(SameBits(thinned.logits, whole.logits)) << kind << ", " << tokens;
      for (int64_t layer = 0; layer < kThinLayers; ++layer) {
        EXPECT_EQ(thinned.cache.length(layer, 0), tokens);
        ExpectEntriesOf(thinned.cache, whole.cache, layer);
      }
    }
  }
}

// Layers below the gap hold everything. What a row brings to the first layer behind it is what it
// would have brought anyway: only from there on rows miss others.
TEST(ThinPrefillTest, RowsThatGoOnBringWhatTheyWouldHave) {
  for (const char* kind : {"gqa", "mla"}) {
    const TinyModel tiny = MakeTinyModel(kind, 1, {}, kThinLayers);
    Model& model = *tiny.model;
    const int64_t tokens = Model::kChunkRows + 130;
    const Prompt prompt = Prompt::FromTokens(RandomIds(tokens, 4));
    const WholePrefill whole(model, prompt);
    const Thinned thinned(model, Shipped("fastv", {"thin.rows=all", "thin.drop=0.6"}), prompt);
    ASSERT_TRUE(thinned.status.ok()) << thinned.status.error().message;
    for (const int64_t layer : {0, 1, 2}) ExpectEntriesOf(thinned.cache, whole.cache, layer);
    // The last row is no candidate.
    const int64_t left = 1 + (tokens - 1) * 2 / 5;
    for (int64_t layer = 0; layer < kThinLayers; ++layer) {
      for (int64_t head = 0; head < thinned.cache.kv_heads(); ++head) {
        EXPECT_EQ(thinned.cache.length(layer, head), layer < 2 ? tokens : left);
        EXPECT_EQ(thinned.cache.Positions(layer, head),
                  thinned.cache.Positions(layer < 2 ? 0 : 2, 0));
        EXPECT_EQ(thinned.cache.Positions(layer, head).back(), tokens - 1);
      }
    }
    EXPECT_FALSE(SameBits(thinned.logits, whole.logits));
    EXPECT_EQ(thinned.cache.tokens(), tokens);
  }
}

// The rows that the last one pays most, by plain loops over the whole prefill's own entries.
TEST(ThinPrefillTest, FastVKeepsWhatTheLastRowLooksAt) {
  const TinyModel tiny = MakeTinyModel("gqa", 1, {}, kThinLayers);
  Model& model = *tiny.model;
  const Prompt prompt = Prompt::FromTokens(RandomIds(60, 8));
  KvCache cache = model.NewCache(60);
  PrefillCapture capture(model.config(), cache, {.last_row_of = {1}}, 60);
  ASSERT_TRUE(cache.Append(60).ok());
  const SequenceStep step = {
      .cache = &cache, .prompt = &prompt, .begin = 0, .end = 60, .hook = &capture};
  model.Forward({&step, 1});
  const std::vector<float> row = HostFloats(model.ops(), capture.LastRow(1));  // [heads, 60]
  std::vector<double> paid(60);
  for (size_t i = 0; i < row.size(); ++i) paid[i % 60] += row[i];
  std::vector<int32_t> order(59);  // the last one stays anyway
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return paid[a] > paid[b]; });
  std::vector<int32_t> want(order.begin(), order.begin() + 17);
  want.push_back(59);
  std::sort(want.begin(), want.end());
  const Thinned thinned(model, Shipped("fastv", {"thin.rows=all", "thin.drop=0.7"}), prompt);
  ASSERT_TRUE(thinned.status.ok()) << thinned.status.error().message;
  EXPECT_EQ(thinned.cache.Positions(2, 0), want);
  EXPECT_EQ(thinned.cache.Positions(3, 1), want);
}

// Rows of pictures alone leave a prompt that has any; a prompt without pictures stays whole.
TEST(ThinPrefillTest, FastVLetsRowsOfPicturesGo) {
  const TinyModel tiny = MakeTinyModel("gqa", 1, {}, kThinLayers);
  Model& model = *tiny.model;
  const std::vector<float> rows = RandomValues(30 * 64, 5, 1.0f);
  Prompt prompt;
  prompt.embeddings = {{View(rows, {30, 64})}};
  VisualSpan picture;
  picture.first = 10;
  picture.count = 30;
  picture.grid = {1, 5, 6};
  prompt.Append(RandomIds(70, 6), std::vector<VisualSpan>{picture}, false);
  const Method method = Shipped("fastv");
  const Thinned thinned(model, method, prompt);
  ASSERT_TRUE(thinned.status.ok()) << thinned.status.error().message;
  EXPECT_EQ(thinned.cache.length(1, 0), 70);
  const std::vector<int32_t> left = thinned.cache.Positions(2, 0);
  EXPECT_EQ(left.size(), 55u);
  EXPECT_EQ(std::count_if(left.begin(), left.end(), [](int32_t p) { return p >= 10 && p < 40; }),
            15);

  const Thinned text(model, method, Prompt::FromTokens(RandomIds(40, 6)));
  ASSERT_TRUE(text.status.ok()) << text.status.error().message;
  EXPECT_EQ(text.cache.length(3, 0), 40);
  const Contender contender = {.method = &method, .budget = {}, .model = &model};
  const EngineSample sample = {.id = "s",
                               .turns = {{.ids = RandomIds(40, 6), .max_new_tokens = 2}}};
  const CellResult cell = RunEngine({contender}, {}, {sample}).at({0, 0});
  EXPECT_EQ(cell.record.engagement, Engagement::kNotEngaged);
  EXPECT_THAT(cell.record.reason, HasSubstr("thin.fastv let no row go of 40 tokens"));
}

// Each of eight pivots keeps one of the other rows, and four of the pivots are rows of the picture.
TEST(ThinPrefillTest, DartKeepsRowsOfPicturesForItsPivots) {
  const TinyModel tiny = MakeTinyModel("gqa", 1, {}, kThinLayers);
  const std::vector<float> rows = RandomValues(30 * 64, 5, 1.0f);
  Prompt prompt;
  prompt.embeddings = {{View(rows, {30, 64})}};
  const VisualSpan picture = {.first = 10, .count = 30, .grid = {1, 5, 6}};
  prompt.Append(RandomIds(70, 6), std::vector<VisualSpan>{picture}, false);
  const Thinned thinned(*tiny.model, Shipped("dart", {"thin.drop=0.5"}), prompt);
  ASSERT_TRUE(thinned.status.ok()) << thinned.status.error().message;
  EXPECT_EQ(thinned.cache.length(1, 0), 70);
  const std::vector<int32_t> left = thinned.cache.Positions(2, 0);
  EXPECT_EQ(left.size(), 52u);
  EXPECT_EQ(std::count_if(left.begin(), left.end(), [](int32_t p) { return p >= 10 && p < 40; }),
            12);
}

// What is left is read as the shorter prompt that it is: its entries, its logits, and what comes
// behind it, on positions of one axis and of three, with a picture that stays whole.
TEST(ThinPrefillTest, SelectiveContextReadsAShorterPrompt) {
  for (const char* kind : {"gqa", "mla", "three_axes"}) {
    const TinyModel tiny = MakeTinyModel(kind, 1, {}, kThinLayers);
    Model& model = *tiny.model;
    const std::vector<float> rows = RandomValues(30 * 64, 5, 1.0f);
    const std::vector<int32_t> ids = RandomIds(640, 12);
    VisualSpan picture = {.first = 300, .count = 30, .grid = {1, 5, 6}};
    const auto prompt_of = [&](const std::vector<int32_t>& tokens) {
      Prompt prompt;
      prompt.embeddings = {{View(rows, {30, 64})}};
      prompt.Append(tokens, std::vector<VisualSpan>{picture}, std::string(kind) == "three_axes");
      return prompt;
    };
    const Method method = Shipped("selective_context", {"thin.drop=0.4"});
    Thinned thinned(model, method, prompt_of(ids));
    ASSERT_TRUE(thinned.status.ok()) << thinned.status.error().message;
    const std::vector<int32_t> left = thinned.cache.Positions(0, 0);
    // Of 542 candidates those at the quantile, 216.4 places from the least, and above.
    EXPECT_EQ(left.size(), 640u - 217u) << kind;
    std::vector<int32_t> shorter;
    for (const int32_t position : left) shorter.push_back(ids[static_cast<size_t>(position)]);
    picture.first = std::lower_bound(left.begin(), left.end(), 300) - left.begin();
    Prompt alone = prompt_of(shorter);
    WholePrefill whole(model, alone);
    EXPECT_TRUE(SameBits(thinned.logits, whole.logits)) << kind;
    for (int64_t layer = 0; layer < kThinLayers; ++layer) {
      for (const bool keys : {true, false}) {
        EXPECT_TRUE(SameBits(EntryRows(thinned.cache, layer, 0, keys),
                             EntryRows(whole.cache, layer, 0, keys)))
            << kind << ", layer " << layer;
      }
    }
    EXPECT_EQ(thinned.cache.tokens(), 640);
    const auto next = [&](Prompt& prompt, KvCache& cache) {
      prompt.AppendText(7);
      EXPECT_TRUE(cache.Append(1).ok());
      const SequenceStep step = {
          .cache = &cache, .prompt = &prompt, .begin = prompt.size() - 1, .end = prompt.size()};
      return HostFloats(model.ops(), model.Forward({&step, 1}));
    };
    EXPECT_TRUE(SameBits(next(thinned.prompt, thinned.cache), next(alone, whole.cache))) << kind;
  }
}

// Rows leave again and again; captures of a layer are those of the rows that reached it.
TEST(ThinPrefillTest, RowsLeaveMoreThanOnce) {
  const TinyModel tiny = MakeTinyModel("gqa", 1, {}, kThinLayers);
  const Prompt prompt = Prompt::FromTokens(RandomIds(40, 9));
  const Thinned thinned(*tiny.model, Every2nd(), prompt);
  ASSERT_TRUE(thinned.status.ok()) << thinned.status.error().message;
  const std::vector<int64_t> lengths = {40, 20, 20, 10};
  std::vector<int32_t> third;
  for (int32_t position = 3; position < 40; position += 4) third.push_back(position);
  for (int64_t layer = 0; layer < kThinLayers; ++layer) {
    EXPECT_EQ(thinned.cache.length(layer, 0), lengths[static_cast<size_t>(layer)]);
    EXPECT_EQ(thinned.capture.window(layer), 3);
  }
  EXPECT_EQ(thinned.cache.Positions(3, 1), third);
}

TEST(ThinPrefillTest, RefusesChoicesOfRowsThatAreNone) {
  const TinyModel tiny = MakeTinyModel("gqa", 1, {}, kThinLayers);
  const Prompt prompt = Prompt::FromTokens(RandomIds(40, 9));
  const std::pair<const char*, const char*> cases[] = {
      {"not_the_last", "thin.test_thin: for layer 1: the last of 40 rows must go on"},
      {"twice", "thin.test_thin: for layer 1: row 1 after row 1 of 40"},
      {"beyond", "thin.test_thin: for layer 1: row 40 after row 39 of 40"}};
  for (const auto& [way, message] : cases) {
    const Thinned thinned(*tiny.model, Every2nd(way), prompt);
    ASSERT_FALSE(thinned.status.ok()) << way;
    EXPECT_THAT(thinned.status.error().message, HasSubstr(message));
  }
  // In a run that is the result of the cell, and others go on.
  const Method faulty = Every2nd("twice"), full = Shipped("full");
  const EngineSample sample = {.id = "s",
                               .turns = {{.ids = RandomIds(40, 9), .max_new_tokens = 2}}};
  Model& model = *tiny.model;
  const Cells cells = RunEngine({{.method = &faulty, .budget = {}, .model = &model},
                                 {.method = &full, .budget = {}, .model = &model}},
                                {}, {sample});
  EXPECT_THAT(cells.at({0, 0}).status.error().message, HasSubstr("row 1 after row 1"));
  EXPECT_TRUE(cells.at({0, 1}).status.ok());
}

// A row that is made of itself alone is itself, bit for bit; one of nothing is another.
TEST(ThinPrefillTest, MadeRowsAreTheSumsThatAStageSays) {
  for (const char* kind : {"gqa", "mla"}) {
    const TinyModel tiny = MakeTinyModel(kind, 2, {}, kThinLayers);
    Model& model = *tiny.model;
    const int64_t tokens = Model::kChunkRows + 31;
    const Prompt prompt = Prompt::FromTokens(RandomIds(tokens, 4));
    const WholePrefill whole(model, prompt);
    const Thinned same(model, Remaking("inputs"), prompt);
    ASSERT_TRUE(same.status.ok()) << same.status.error().message;
    EXPECT_TRUE(SameBits(same.logits, whole.logits)) << kind;
    for (int64_t layer = 0; layer < kThinLayers; ++layer) {
      EXPECT_EQ(same.cache.length(layer, 0), tokens);
      ExpectEntriesOf(same.cache, whole.cache, layer);
    }
    const Thinned other(model, Remaking("nothing"), prompt);
    ASSERT_TRUE(other.status.ok()) << other.status.error().message;
    EXPECT_FALSE(SameBits(other.logits, whole.logits)) << kind;
    ExpectEntriesOf(other.cache, whole.cache, 0);
    EXPECT_EQ(other.cache.length(3, 0), tokens);
    const Thinned wrong(model, Remaking("kept_too"), prompt);
    ASSERT_FALSE(wrong.status.ok());
    EXPECT_THAT(wrong.status.error().message,
                HasSubstr("thin.test_remaking: for layer 1: a made row takes the place of one"));
  }
}

// What is recorded: all of the prompt before, what is left by layer, and a score that chooses from
// that.
TEST(ThinPrefillTest, RecordsWhatIsLeftByLayer) {
  const TinyModel tiny = MakeTinyModel("gqa", 1, {}, kThinLayers);
  Model& model = *tiny.model;
  const Json json = *ParseJson(R"({"id": "x", "title": "x", "family": "selection", "stages": {
    "thin": {"id": "fastv", "rows": "all"},
    "score": {"id": "snapkv", "window": 8}, "reduce": {"id": "top_k"}}})",
                               "test");
  const Result<Method> both = ParseMethod(json, "test");
  ASSERT_TRUE(both.ok()) << both.error().message;
  const Method thin = Shipped("fastv", {"thin.rows=all"});
  const EngineSample sample = {.id = "s",
                               .turns = {{.ids = RandomIds(201, 9), .max_new_tokens = 4}}};
  const Cells cells =
      RunEngine({{.method = &thin, .budget = {}, .model = &model},
                 {.method = &*both, .budget = {Budget::Kind::kEntries, 120}, .model = &model}},
                {}, {sample});
  const auto lengths = [](int64_t first, int64_t last) {
    return std::vector<std::vector<int64_t>>{
        {first, first}, {first, first}, {last, last}, {last, last}};
  };
  const CompressionRecord &alone = cells.at({0, 0}).record, &reduced = cells.at({0, 1}).record;
  EXPECT_EQ(alone.entries_before, lengths(201, 201));
  EXPECT_EQ(alone.entries_after, lengths(201, 101));
  EXPECT_EQ(alone.engagement, Engagement::kEngaged);
  EXPECT_EQ(alone.full_bytes, FullCacheBytes(model.shape(), 201));
  EXPECT_LT(alone.bytes.logical(), alone.full_bytes * 4 / 5);
  EXPECT_GT(alone.bytes.indices, 0);
  EXPECT_EQ(reduced.entries_after, lengths(120, 101));
}

// A question behind a thinned context goes through all layers.
TEST(ThinPrefillTest, QuestionsFollowAThinnedContext) {
  const TinyModel tiny = MakeTinyModel("gqa", 1, {}, kThinLayers);
  Model& model = *tiny.model;
  const Method thin = Shipped("fastv", {"thin.rows=all"}), full = Shipped("full");
  EngineSample sample = {.id = "s", .context = RandomIds(100, 9)};
  sample.turns = {{.ids = RandomIds(20, 10), .max_new_tokens = 3},
                  {.ids = RandomIds(30, 11), .max_new_tokens = 3}};
  const Contender contender = {.method = &thin, .budget = {}, .model = &model};
  const EngineOptions options = {.compress_at = CompressAt::kContext};
  const CellResult alone = RunEngine({contender}, options, {sample}).at({0, 0});
  ASSERT_TRUE(alone.status.ok()) << alone.status.error().message;
  EXPECT_EQ(alone.record.prompt_tokens, 100);
  EXPECT_EQ(alone.record.entries_after[3], (std::vector<int64_t>{50, 50}));
  const Cells together =
      RunEngine({{.method = &full, .budget = {}, .model = &model}, contender}, options, {sample});
  for (const size_t turn : {0, 1}) {
    EXPECT_EQ(together.at({0, 1}).turns[turn].ids, alone.turns[turn].ids);
  }
  const Status refused = CheckMoment(thin, CompressAt::kTurn);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("fastv: thin.fastv lets rows go"));
}

// The plan counts the rows between layers.
TEST(ThinPrefillTest, PlansForTheRowsBetweenLayers) {
  const TinyModel tiny = MakeTinyModel("gqa", 1, {}, kThinLayers);
  Model& model = *tiny.model;
  const Method thin = Shipped("fastv", {"thin.rows=all"}), tova = Shipped("full");
  const EngineSample sample = {.id = "s",
                               .turns = {{.ids = RandomIds(300, 9), .max_new_tokens = 4}}};
  const auto snapshot_bytes = [&](const Method& method) {
    Engine engine({{.method = &method, .budget = {}, .model = &model}}, {});
    const Result<MemoryPlan> plan = engine.PlanMemory({&sample, 1});
    EXPECT_TRUE(plan.ok());
    return plan->snapshot_bytes;
  };
  EXPECT_GE(snapshot_bytes(thin) - snapshot_bytes(tova), 2 * 300 * 64 * 4);
}

}  // namespace
}  // namespace kvgauge

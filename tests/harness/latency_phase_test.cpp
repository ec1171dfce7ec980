// SPDX-License-Identifier: Apache-2.0
#include "src/latency/latency_phase.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/clock.h"
#include "core/json.h"
#include "core/rng.h"
#include "core/strings.h"
#include "core/threads.h"
#include "runner/engine.h"
#include "support/scratch_directory.h"
#include "support/tiny_models.h"
#include "support/visual_rows.h"

namespace kvgauge {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

Method Load(const std::string& id) {
  Result<Method> method = LoadMethod(id, KVG_SOURCE_DIR "/configs/methods", {});
  EXPECT_TRUE(method.ok()) << method.error().message;
  return std::move(method).value();
}

// The full cache and a few methods on a tiny model.
class LatencyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    tiny_ = MakeTinyModel("gqa");
    Add("full", "none");
    Add("snapkv", "25%");
    Add("kivi_2bit", "none");
    Add("quest", "none");
  }

  void Add(const std::string& id, const std::string& budget) {
    methods_.push_back(std::make_unique<Method>(Load(id)));
    lines_.push_back({.name = StrCat(id, " ", budget),
                      .method = methods_.back().get(),
                      .budget = *Budget::Parse(budget),
                      .model = tiny_.model.get(),
                      .full_cache = id == "full"});
  }

  LatencyPrompt Prompts() const { return SeededPrompts(tiny_.model->config().vocab_size, 3); }

  static LatencyOptions Options(std::vector<int64_t> contexts, int64_t repetitions) {
    LatencyOptions options;
    options.contexts = std::move(contexts);
    options.decode_steps = 3;
    options.repetitions = repetitions;
    options.max_others_share = 1;
    return options;
  }

  TinyModel tiny_;
  std::vector<std::unique_ptr<Method>> methods_;
  std::vector<LatencyLine> lines_;
};

TEST_F(LatencyTest, AnswersAreThoseOfTheEngine) {
  Add("h2o", "25%");
  Add("tova", "25%");
  Add("snapkv_kivi", "25%");
  Add("lazyllm", "none");
  Add("fastkv", "10%");
  for (const LatencyLine& line : lines_) {
    SCOPED_TRACE(line.name);
    const std::vector<int32_t> prompt = Prompts()(700, 0)->ids;
    const Result<LatencyMeasurement> alone = MeasureAlone(line, prompt, 7, {});
    ASSERT_TRUE(alone.ok()) << alone.error().message;
    Engine engine({{.method = line.method, .budget = line.budget, .model = line.model}}, {});
    const EngineSample sample = {.id = "s", .turns = {{.ids = prompt, .max_new_tokens = 8}}};
    CellResult cell;
    ASSERT_TRUE(engine
                    .Run({&sample, 1},
                         [&](CellResult result) {
                           cell = std::move(result);
                           return cell.status;
                         })
                    .ok());
    EXPECT_EQ(alone->ids, cell.turns[0].ids);
    EXPECT_EQ(alone->record.entries_after, cell.record.entries_after);
    EXPECT_EQ(alone->record.engagement, cell.record.engagement);
    EXPECT_EQ(alone->record.final_bytes.logical(), cell.record.final_bytes.logical());
  }
}

// Questions come after compression, as the engine has it with compress_at context.
TEST_F(LatencyTest, QuestionsComeAfterCompression) {
  Add("h2o", "25%");
  Add("snapkv_kivi", "25%");
  Add("lazyllm", "none");
  for (const LatencyLine& line : lines_) {
    SCOPED_TRACE(line.name);
    const std::vector<int32_t> prompt = Prompts()(400, 0)->ids;
    const Result<LatencyMeasurement> alone = MeasureAlone(line, prompt, 5, {}, 30);
    ASSERT_TRUE(alone.ok()) << alone.error().message;
    EXPECT_EQ(alone->row.context_tokens, 400);
    EXPECT_EQ(alone->record.prompt_tokens, 370);
    Engine engine({{.method = line.method, .budget = line.budget, .model = line.model}},
                  {.compress_at = CompressAt::kContext});
    const EngineSample sample = {
        .id = "s",
        .context = {prompt.begin(), prompt.end() - 30},
        .turns = {{.ids = {prompt.end() - 30, prompt.end()}, .max_new_tokens = 6}}};
    CellResult cell;
    const Status ran = engine.Run({&sample, 1}, [&](CellResult result) {
      cell = std::move(result);
      return cell.status;
    });
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    EXPECT_EQ(alone->ids, cell.turns[0].ids);
    EXPECT_EQ(alone->record.final_bytes.logical(), cell.record.final_bytes.logical());
  }
  const Result<LatencyMeasurement> all = MeasureAlone(lines_[0], *Prompts()(30, 0), 5, {}, 30);
  EXPECT_THAT(all.error().message, HasSubstr("expected more than 30"));
}

// A method fits the checkpoint that its stage prepares, not what the stage made of it.
TEST_F(LatencyTest, PreparedModelsAreMeasured) {
  for (const char* id : {"cla", "kvsharer", "mean_pool_mqa", "dmc"}) {
    SCOPED_TRACE(id);
    Add(id, "none");
    const Pipeline pipeline = MakePipeline(*methods_.back());
    ModelOptions options;
    options.prepare = pipeline.prepare.get();
    const TinyModel prepared = MakeTinyModel("gqa", 1, options);
    lines_.back().model = prepared.model.get();
    const Result<LatencyMeasurement> alone =
        MeasureAlone(lines_.back(), Prompts()(100, 0)->ids, 3, {});
    EXPECT_TRUE(alone.ok()) << alone.error().message;
    lines_.pop_back();
  }
}

// A prompt with pictures is fed as the engine feeds it: rows of the tower at their places.
TEST(LatencyOfPictures, AnswersAreThoseOfTheEngine) {
  for (const char* kind : {"gqa", "three_axes"}) {
    SCOPED_TRACE(kind);
    const TinyModel tiny = MakeTinyModel(kind);
    const int64_t width = tiny.model->config().hidden_size;
    std::vector<float> rows;
    Rng rng(7, 0);
    for (int64_t i = 0; i < 40 * width; ++i) {
      rows.push_back(static_cast<float>(rng.NextDouble() - 0.5));
    }
    const std::shared_ptr<const SampleVisuals> visuals = VisualsOf(rows, width);
    LatencyTokens prompt = *SeededPrompts(60, 3)(200, 0);
    prompt.visuals = visuals;
    prompt.spans = {{.first = 10, .count = 24, .index = 0, .grid = {1, 4, 6}},
                    {.first = 90, .count = 16, .index = 1, .grid = {1, 4, 4}, .embedding_row = 24}};
    const auto method = LoadMethod("snapkv", KVG_SOURCE_DIR "/configs/methods", {});
    ASSERT_TRUE(method.ok());
    const Budget budget = *Budget::Parse("40%");
    for (const int64_t question : {0, 40}) {
      const LatencyLine line = {
          .name = "snapkv", .method = &*method, .budget = budget, .model = tiny.model.get()};
      const Result<LatencyMeasurement> alone = MeasureAlone(line, prompt, 5, {}, question);
      ASSERT_TRUE(alone.ok()) << alone.error().message;
      const auto cut = prompt.ids.end() - question;
      Engine engine({{.method = &*method, .budget = budget, .model = tiny.model.get()}},
                    {.compress_at = question > 0 ? CompressAt::kContext : CompressAt::kPrompt});
      EngineSample sample = {.id = "s",
                             .context = {prompt.ids.begin(), cut},
                             .context_spans = prompt.spans,
                             .turns = {{.ids = {cut, prompt.ids.end()}, .max_new_tokens = 6}},
                             .visuals = visuals};
      CellResult cell;
      const Status ran = engine.Run({&sample, 1}, [&](CellResult result) {
        cell = std::move(result);
        return cell.status;
      });
      ASSERT_TRUE(ran.ok()) << ran.error().message;
      EXPECT_EQ(alone->ids, cell.turns[0].ids);
      EXPECT_EQ(alone->record.entries_after, cell.record.entries_after);
      // The same tokens as text lead elsewhere.
      const Result<LatencyMeasurement> text =
          MeasureAlone(line, LatencyTokens(prompt.ids), 5, {}, question);
      ASSERT_TRUE(text.ok());
      EXPECT_NE(text->ids, alone->ids);
    }
    // A question that would begin inside a picture begins behind it.
    const LatencyLine full = {
        .name = "snapkv", .method = &*method, .budget = budget, .model = tiny.model.get()};
    const Result<LatencyMeasurement> inside = MeasureAlone(full, prompt, 2, {}, 100);
    ASSERT_TRUE(inside.ok()) << inside.error().message;
    EXPECT_EQ(inside->record.prompt_tokens, 106);
  }
}

TEST_F(LatencyTest, MemoryIsBounded) {
  LatencyOptions options = Options({256, 4096}, 1);
  // Enough for every row at the shorter length.
  for (const LatencyLine& line : lines_) {
    Engine engine({{.method = line.method, .budget = line.budget, .model = line.model}},
                  {.max_pool_lanes = 1});
    const EngineSample sample = {.id = "s",
                                 .context = std::vector<int32_t>(256),
                                 .turns = {{.max_new_tokens = options.decode_steps + 1}}};
    const Result<MemoryPlan> plan = engine.PlanMemory({&sample, 1});
    ASSERT_TRUE(plan.ok());
    options.max_memory_bytes = std::max(options.max_memory_bytes, plan->total_bytes());
  }
  std::vector<std::string> refused;
  LatencyHooks hooks;
  hooks.on_event = [&](const LatencyEvent& event) {
    if (event.status.ok()) return;
    EXPECT_THAT(event.status.error().message, HasSubstr("--max-memory"));
    refused.push_back(StrCat(event.line->name, " at ", event.context_tokens));
  };
  std::vector<int64_t> contexts;
  const Result<LatencyOutcome> outcome = MeasureLatency(
      lines_, Prompts(), options, hooks,
      [](size_t, int64_t) { return Result<LatencyRecorded>(LatencyRecorded()); },
      [&](const LatencyRound& round) -> Status {
        for (const LatencyRow& row : round.rows) contexts.push_back(row.context_tokens);
        return {};
      });
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_THAT(contexts,
              ::testing::AllOf(::testing::Not(::testing::IsEmpty()), ::testing::Each(256)));
  EXPECT_FALSE(refused.empty());
  EXPECT_EQ(outcome->failed, std::ssize(refused));
}

TEST_F(LatencyTest, TimesAndBytesHangTogether) {
  std::map<std::string, LatencyRow> rows;
  for (const LatencyLine& line : lines_) {
    const double start_s = NowSeconds();
    const Result<LatencyMeasurement> measured =
        MeasureAlone(line, *Prompts()(640, 0), 9, AllowedProcessors());
    const double wall_s = NowSeconds() - start_s;
    ASSERT_TRUE(measured.ok()) << measured.error().message;
    const LatencyRow& r = measured->row;
    EXPECT_TRUE(r.isolated);
    EXPECT_EQ(r.context_tokens, 640);
    EXPECT_EQ(r.steps, 9);
    const double parts_s =
        r.prefill_s + r.score_s + r.select_s + r.compact_s + r.quantise_s + r.attend_s + r.other_s;
    EXPECT_GT(r.prefill_s, 0);
    EXPECT_LT(r.prefill_s, r.ttft_s);
    EXPECT_GE(parts_s, r.ttft_s + 4 * r.tpot_p50_s);  // the upper half of the steps
    EXPECT_LE(parts_s, wall_s);
    EXPECT_GT(r.attend_s, 0);
    EXPECT_LE(r.tpot_p50_s, r.tpot_p90_s);
    EXPECT_LE(r.tpot_p90_s, r.tpot_p99_s);
    EXPECT_GE(r.others_share, 0);
    EXPECT_GE(r.peak_bytes, r.resident_bytes);
    EXPECT_GE(r.resident_bytes, measured->record.final_bytes.logical());
    rows[line.method->id] = r;
  }
  EXPECT_LT(rows["snapkv"].resident_bytes, rows["full"].resident_bytes / 2);
  EXPECT_LT(rows["kivi_2bit"].resident_bytes, rows["full"].resident_bytes);
  // Captures and what is dropped later are held while it compresses.
  EXPECT_GT(rows["snapkv"].peak_bytes, rows["full"].resident_bytes);
  EXPECT_GE(rows["quest"].resident_bytes, rows["full"].resident_bytes);
  EXPECT_GT(rows["snapkv"].score_s, 0);
  EXPECT_GT(rows["kivi_2bit"].quantise_s, 0);
  EXPECT_EQ(rows["full"].score_s + rows["full"].select_s + rows["full"].compact_s, 0);
}

TEST_F(LatencyTest, EveryRoundHoldsTheFullCache) {
  Add("h2o", "25%");
  Add("streaming_llm", "25%");
  Add("random", "25%");
  std::map<std::pair<int64_t, int64_t>, std::vector<size_t>> rounds;
  std::map<std::pair<size_t, int64_t>, int64_t> counts;
  std::vector<std::string> order;
  int64_t planned = 0;
  LatencyHooks hooks;
  hooks.on_event = [&](const LatencyEvent& event) {
    EXPECT_TRUE(event.status.ok());
    order.push_back(event.line->name);
    EXPECT_EQ(event.done, std::ssize(order));
    planned = event.planned;
  };
  const Result<LatencyOutcome> outcome = MeasureLatency(
      lines_, Prompts(), Options({256, 320}, 3), hooks,
      [](size_t, int64_t) -> Result<LatencyRecorded> { return LatencyRecorded(); },
      [&](const LatencyRound& round) -> Status {
        EXPECT_EQ(round.lines[0], 0u);
        EXPECT_LE(round.lines.size(), 5u);
        for (size_t i = 0; i < round.lines.size(); ++i) {
          const LatencyRow& row = round.rows[i];
          EXPECT_EQ(row.repetition, round.rows[0].repetition);
          ++counts[{round.lines[i], row.context_tokens}];
        }
        const auto key = std::pair(round.rows[0].context_tokens, round.rows[0].repetition);
        EXPECT_TRUE(rounds.emplace(key, round.lines).second) << "a number twice";
        return {};
      });
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  for (const auto& [key, count] : counts) {
    EXPECT_EQ(count, key.first == 0 ? 6 : 3);  // six rows take two rounds a repetition
  }
  EXPECT_EQ(counts.size(), lines_.size() * 2);
  EXPECT_EQ(outcome->measured, 2 * (6 + 6 * 3));
  EXPECT_EQ(planned, outcome->measured);
  EXPECT_EQ(std::ssize(order), planned);
  EXPECT_EQ(order[0], "full none");
  EXPECT_NE(order[5], "full none") << "its place changes";
}

TEST_F(LatencyTest, RowsThatCannotAreLeftOut) {
  Add("snapkv", "2");  // fewer entries than its window
  std::vector<std::string> failed;
  LatencyHooks hooks;
  hooks.on_event = [&](const LatencyEvent& event) {
    if (!event.status.ok()) failed.push_back(event.status.error().message);
  };
  int64_t rows = 0;
  const auto none = [](size_t, int64_t) -> Result<LatencyRecorded> { return LatencyRecorded(); };
  const auto count = [&](const LatencyRound& round) -> Status {
    rows += std::ssize(round.rows);
    return {};
  };
  Result<LatencyOutcome> outcome =
      MeasureLatency(lines_, Prompts(), Options({256}, 2), hooks, none, count);
  ASSERT_TRUE(outcome.ok());
  EXPECT_THAT(failed, ElementsAre(HasSubstr("snapkv")));
  EXPECT_EQ(outcome->failed, 1);
  EXPECT_EQ(rows, 2 * 4);

  lines_[0].full_cache = false;
  outcome = MeasureLatency(lines_, Prompts(), Options({256}, 2), hooks, none, count);
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.error().message,
              HasSubstr("exactly one full-cache row per model to compare against, found 0"));
}

CellRow MakeCell(const LatencyLine& line) {
  CellRow cell;
  cell.identity = StrCat(R"({"row":")", line.name, R"("})");
  cell.signature = "{}";
  cell.model = {.fingerprint = "f", .name = "tiny", .facts = "{}"};
  cell.method = {.name = line.method->id,
                 .variant = "",
                 .title = "",
                 .family = "",
                 .spec = "{}",
                 .full_cache = line.full_cache};
  cell.task = {.name = "t", .spec = "{}"};
  cell.budget = line.budget.ToString();
  return cell;
}

TEST_F(LatencyTest, GoesOnWhereItWasStopped) {
  const ScratchDirectory scratch;
  auto store = *ResultStore::Open(scratch.File("latency.db"), StoreMode::kCreate);
  for (LatencyLine& line : lines_) line.cell = *store->AddCell(MakeCell(line));
  const auto begin_run = [&](const std::string& key) {
    RunRow run;
    run.key = key;
    run.machine.facts = run.config = "{}";
    run.started_at = "2026-01-01T00:00:00Z";
    return *store->AddRun(run);
  };
  const LatencyOptions options = Options({256, 320}, 3);
  int64_t asked = 0;
  LatencyHooks hooks;
  hooks.cancelled = [&] { return ++asked > 9; };  // four to warm up, then in the second round
  const int64_t first = begin_run("first");
  Result<LatencyOutcome> outcome = RecordLatency(lines_, Prompts(), options, hooks, *store, first);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_TRUE(outcome->cancelled);
  EXPECT_EQ(outcome->measured, 4);

  const int64_t second = begin_run("second");
  outcome = RecordLatency(lines_, Prompts(), options, {}, *store, second);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_FALSE(outcome->cancelled);
  EXPECT_EQ(outcome->had, 4);
  EXPECT_EQ(outcome->measured, 4 * (2 + 3));

  std::set<std::tuple<std::string, int64_t, int64_t>> full;
  for (const LatencyLine& line : lines_) {
    SCOPED_TRACE(line.name);
    const std::vector<LatencyRow> rows = *store->Latency(line.cell);
    EXPECT_THAT(rows, SizeIs(6));
    for (const LatencyRow& row : rows) {
      const auto key = std::tuple(row.run_key, row.context_tokens, row.repetition);
      if (line.full_cache) full.insert(key);
      EXPECT_TRUE(full.contains(key)) << "without the full cache beside it";
    }
  }
  // A second part under the same run takes numbers of its own.
  Add("h2o", "25%");
  lines_.back().cell = *store->AddCell(MakeCell(lines_.back()));
  outcome = RecordLatency({lines_[0], lines_.back()}, Prompts(), options, {}, *store, second);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_EQ(outcome->measured, 2 * 2 * 3);
  EXPECT_THAT(*store->Latency(lines_[0].cell), SizeIs(12));
  // And nothing is left to do.
  outcome = RecordLatency(lines_, Prompts(), options, {}, *store, second);
  ASSERT_TRUE(outcome.ok()) << outcome.error().message;
  EXPECT_EQ(outcome->measured, 0);
}

TEST(LatencyPrompts, HaveTheLengthAndBothEnds) {
  const LatencyPrompt prompts =
      SamplePrompts({std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7}, std::vector<int32_t>{8, 9}});
  EXPECT_THAT(prompts(4, 0)->ids, ElementsAre(1, 2, 6, 7));
  EXPECT_THAT(prompts(7, 2)->ids, ElementsAre(1, 2, 3, 4, 5, 6, 7));
  EXPECT_THAT(prompts(5, 1)->ids, ElementsAre(8, 9, 1, 6, 7));
  EXPECT_THAT(prompts(1, 0)->ids, ElementsAre(1));
  const LatencyPrompt seeded = SeededPrompts(50, 1);
  EXPECT_EQ(seeded(30, 2)->ids, seeded(30, 2)->ids);
  EXPECT_NE(seeded(30, 2)->ids, seeded(30, 3)->ids);
  EXPECT_THAT(seeded(2000, 0)->ids, Each(::testing::AllOf(::testing::Ge(0), ::testing::Lt(50))));
}

// Two words, a picture of three rows, two words, one of two rows, two words.
LatencyTokens ShowsTwo() {
  LatencyTokens tokens({1, 2, 99, 99, 99, 3, 4, 99, 99, 5, 6});
  tokens.spans = {{.first = 2, .count = 3, .index = 0, .grid = {1, 1, 3}},
                  {.first = 7, .count = 2, .index = 1, .grid = {1, 1, 2}, .embedding_row = 3}};
  std::vector<float> rows;
  for (int i = 0; i < 10; ++i) rows.push_back(static_cast<float>(i));
  tokens.visuals = VisualsOf(rows, 2);
  tokens.vision_s = 5;
  return tokens;
}

// Placeholders are never fed as text: a picture is there with its rows, or not at all.
TEST(LatencyPrompts, ShowWholePicturesOnly) {
  const LatencyPrompt prompts = SamplePrompts({ShowsTwo()});
  const LatencyTokens same = *prompts(11, 0);
  EXPECT_EQ(same.ids, ShowsTwo().ids);
  EXPECT_EQ(NumbersOf(*same.visuals), NumbersOf(*ShowsTwo().visuals));
  EXPECT_DOUBLE_EQ(same.vision_s, 5);

  // The text between the pictures is left out.
  const LatencyTokens both = *prompts(9, 0);
  EXPECT_THAT(both.ids, ElementsAre(1, 2, 99, 99, 99, 99, 99, 5, 6));
  ASSERT_EQ(both.spans.size(), 2u);
  EXPECT_EQ(both.spans[1].first, 5);
  EXPECT_EQ(both.spans[1].embedding_row, 3);

  // The first picture does not fit into the beginning, and the second into the end.
  const LatencyTokens second = *prompts(7, 0);
  EXPECT_THAT(second.ids, ElementsAre(1, 2, 4, 99, 99, 5, 6));
  ASSERT_EQ(second.spans.size(), 1u);
  EXPECT_EQ(second.spans[0].first, 3);
  EXPECT_EQ(second.spans[0].index, 0);
  EXPECT_THAT(NumbersOf(*second.visuals), ElementsAre(6, 7, 8, 9));
  EXPECT_DOUBLE_EQ(second.vision_s, 2);

  // None fits: text takes the place.
  const LatencyTokens none = *prompts(5, 0);
  EXPECT_THAT(none.ids, ElementsAre(1, 2, 1, 5, 6));
  EXPECT_TRUE(none.spans.empty());
  EXPECT_EQ(none.visuals, nullptr);

  // Two samples: their pictures are told apart.
  const LatencyTokens twice = *prompts(22, 0);
  ASSERT_EQ(twice.spans.size(), 4u);
  EXPECT_EQ(twice.spans[3].index, 3);
  EXPECT_EQ(twice.spans[3].first, 18);
  EXPECT_EQ(twice.visuals->count(), 10);
}

// A stage that takes rows of pictures out has the same prompts with what it left, picture by
// picture, whichever of them a prompt has room for.
TEST(LatencyPrompts, KnowWhatStagesLeave) {
  LatencyTokens sample = ShowsTwo();
  const auto left = [](std::vector<int32_t> places, const std::vector<float>& rows) {
    auto features = std::make_shared<VisualFeatures>();
    features->places = std::move(places);
    features->rows = VisualRows(HostMemory(), rows, 2);
    return LatencyPicture::Left{features, 0.5};
  };
  sample.pictures = {{3, {left({1}, {20, 21})}}, {2, {left({0}, {30, 31})}}};
  const LatencyPrompt prompts = SamplePrompts({sample});
  const LatencyTokens both = *prompts(11, 0);
  ASSERT_EQ(both.left.size(), 1u);
  EXPECT_THAT(both.left[0]->ids, ElementsAre(1, 2, 99, 3, 4, 99, 5, 6));
  EXPECT_THAT(NumbersOf(*both.left[0]->visuals), ElementsAre(20, 21, 30, 31));
  EXPECT_DOUBLE_EQ(both.left[0]->vision_s, 1);
  EXPECT_EQ(both.left[0]->now[9], 6) << "where the text behind the second picture is";
  EXPECT_EQ(both.left[0]->now[11], 8);
  const LatencyTokens second = *prompts(7, 0);
  EXPECT_THAT(second.left[0]->ids, ElementsAre(1, 2, 4, 99, 5, 6));
  EXPECT_THAT(NumbersOf(*second.left[0]->visuals), ElementsAre(30, 31));
  EXPECT_EQ(second.left[0]->spans[0].embedding_row, 0);
  EXPECT_TRUE(prompts(5, 0)->left.empty()) << "no picture, nothing to leave";
}

TEST(LatencyOptionsTest, ReadsAndRefuses) {
  const auto parse = [](const std::string& text) {
    return ParseLatencyOptions(*ParseJson(text, "test"), "run.json: latency");
  };
  const Result<LatencyOptions> good =
      parse(R"({"contexts": [512, 64], "repetitions": 2, "pin_threads": true})");
  ASSERT_TRUE(good.ok()) << good.error().message;
  EXPECT_THAT(good->contexts, ElementsAre(512, 64));
  EXPECT_EQ(good->repetitions, 2);
  EXPECT_TRUE(good->pin_threads);
  EXPECT_EQ(good->decode_steps, LatencyOptions().decode_steps);
  const Result<LatencyOptions> again = parse(ToJson(*good).dump());
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(ToJson(*again), ToJson(*good));

  const std::pair<const char*, const char*> bad[] = {
      {R"([])", "expected an object"},
      {R"({})", "key 'contexts' is missing"},
      {R"({"contexts": []})", "expected prompt lengths"},
      {R"({"contexts": [0]})", "key 'contexts': 0, expected a whole number from 1"},
      {R"({"contexts": [1.5]})", "expected a whole number"},
      {R"({"contexts": [64, 64]})", "64 is there twice"},
      {R"({"contexts": [64], "repetition": 3})", "did you mean 'repetitions'?"},
      {R"({"contexts": [64], "repetitions": 0})", "key 'repetitions': 0, expected"},
      {R"({"contexts": [64], "pin_threads": 1})", "expected true or false"},
      {R"({"contexts": [64], "max_others_share": 2})", "expected a number from 0 to 1"},
  };
  for (const auto& [text, message] : bad) {
    const Result<LatencyOptions> got = parse(text);
    ASSERT_FALSE(got.ok()) << text;
    EXPECT_THAT(got.error().message, HasSubstr(message));
    EXPECT_THAT(got.error().message, HasSubstr("run.json: latency"));
  }
}

}  // namespace
}  // namespace kvgauge

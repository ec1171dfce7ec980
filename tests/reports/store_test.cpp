// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <thread>
#include <vector>

#include "core/json.h"
#include "core/sha256.h"
#include "reports/store_fixture.h"
#include "src/sqlite.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Store, GivesBackWhatWasWritten) {
  const ScratchDirectory scratch;
  const auto store = MustOpen(scratch.File("r.db"));
  const int64_t run = Must(store->AddRun(TestRun("r1")));
  const int64_t cell = Must(store->AddCell(TestCell(3)));
  const SampleRow written = TestSample(cell, run, 3, 17);
  EXPECT_EQ(Must(store->Write(written)), WriteOutcome::kNew);

  const std::optional<SampleRow> read = Must(store->Read(cell, "needle-17"));
  ASSERT_TRUE(read);
  EXPECT_TRUE(read->SameResult(written));
  EXPECT_EQ(read->run, run);
  EXPECT_EQ(read->memory[0].peak_bytes, 9000);
  EXPECT_EQ(read->latency->prefill_s, 0.25);
  EXPECT_EQ(read->latency->vision_s, 0.125);
  EXPECT_EQ(read->images, 2);
  EXPECT_EQ(read->frames, 8);
  EXPECT_EQ(read->visual_tokens, 300);
  EXPECT_FALSE(read->latency->isolated);
  EXPECT_FALSE(Must(store->Read(cell, "needle-18")));

  const std::vector<StoredCell> cells = Must(store->Cells());
  ASSERT_EQ(cells.size(), 1u);
  EXPECT_EQ(cells[0].cell.Key(), Sha256Hex(R"({"budget":3})"));
  EXPECT_EQ(cells[0].cell.budget, "30%");
  EXPECT_EQ(cells[0].cell.method.family, "selection");
  EXPECT_EQ(cells[0].signature_key, Sha256Hex(R"({"template":1})"));
  EXPECT_EQ(Must(store->Runs())[0].run.command, "kvgauge run quickstart.json");
  MustOk(store->Check());
}

// A method that has come to be held is held for what was recorded of it before, too.
TEST(Store, AMethodStaysExperimentalUntilARunSaysOtherwise) {
  const ScratchDirectory scratch;
  const auto store = MustOpen(scratch.File("r.db"));
  CellRow first = TestCell(1), second = TestCell(2), third = TestCell(3);
  const auto flags = [&] {
    std::vector<bool> all;
    for (const StoredCell& cell : Must(store->Cells()))
      all.push_back(cell.cell.method.experimental);
    return all;
  };
  first.method.experimental = true;
  Must(store->AddCell(first));
  EXPECT_THAT(flags(), ElementsAre(true));
  second.method.experimental = false;
  Must(store->AddCell(second));
  EXPECT_THAT(flags(), ElementsAre(false, false));
  third.method.experimental = true;
  Must(store->AddCell(third));
  EXPECT_THAT(flags(), ElementsAre(false, false, false));
}

void ChangePicture(SampleRow& row, const std::function<void(ShownPicture&)>& change) {
  auto sight = std::make_shared<SightRow>(*row.sight);
  change(sight->pictures[0]);
  row.sight = std::move(sight);
}

int64_t CountRows(const std::string& path, const char* table) {
  Database db = Must(Database::Open(path, SQLITE_OPEN_READONLY, path));
  return Must(db.QueryInt(StrCat("SELECT count(*) FROM ", table)));
}

TEST(Store, PicturesAreHeldOnce) {
  const ScratchDirectory scratch;
  const std::string path = scratch.File("r.db"), other = scratch.File("other.db");
  const auto store = MustOpen(path);
  const int64_t run = Must(store->AddRun(TestRun("r1")));
  SampleRow row;
  for (int64_t c = 0; c < 3; ++c) {
    row = TestSample(Must(store->AddCell(TestCell(c))), run, c, 4);
    Must(store->Write(row));
  }
  EXPECT_EQ(CountRows(path, "picture"), 2);
  EXPECT_EQ(CountRows(path, "sight"), 1);
  // Another prompt that shows the same pictures, and bytes that are no text.
  row.sample_id = "again";
  ChangePicture(row, [](ShownPicture& shown) { shown.name = "\xff</b>"; });
  Must(store->Write(row));
  EXPECT_EQ(CountRows(path, "picture"), 2);
  EXPECT_EQ(CountRows(path, "sight"), 2);
  const SampleRow read = *Must(store->Read(row.cell, "again"));
  ASSERT_EQ(read.sight->pictures.size(), 2u);
  const ShownPicture& first = read.sight->pictures[0];
  EXPECT_EQ(first.name, "\xef\xbf\xbd</b>");
  EXPECT_EQ(first.picture->thumbnail, row.sight->pictures[0].picture->thumbnail);
  EXPECT_EQ(first.picture->width, 640);
  EXPECT_EQ(read.patches, "0123456789abcdef");

  const auto copy = MustOpen(other);
  Must(copy->Merge(*store));
  EXPECT_EQ(CountRows(other, "picture"), 2);
  EXPECT_EQ(Must(copy->ResultDigest()), Must(store->ResultDigest()));
  EXPECT_EQ(Must(copy->Merge(*store)).kept, 4);
}

TEST(Store, PatchesAreSharesOfHeadsAndLayers) {
  EXPECT_EQ(PatchDigit(0), '0');
  EXPECT_EQ(PatchDigit(1e-9), '1');
  EXPECT_EQ(PatchDigit(1 - 1e-9), 'e');
  EXPECT_EQ(PatchDigit(1), 'f');
  EXPECT_EQ(PatchShare('f'), 1);
  EXPECT_EQ(PatchShare('?'), 0);
  SightRow sight;
  sight.pictures.resize(2);
  sight.pictures[0].grids = {{1, 2}, {2, 1}};
  sight.pictures[1].grids = {{1, 1}};
  using Split = std::vector<std::vector<std::string>>;
  EXPECT_EQ(SplitPatches(sight, "01ef8"), (Split{{"01", "ef"}, {"8"}}));
  EXPECT_EQ(SplitPatches(sight, "f"), (Split{{"ff", "ff"}, {"f"}}));
  EXPECT_EQ(SplitPatches(sight, "ff"), Split());
  EXPECT_EQ(SplitPatches(sight, ""), Split());
  EXPECT_DOUBLE_EQ(MeanShare({"0f", "f"}), 2.0 / 3);
}

// Each field of a sample is stored and counts as a result, or is known not to.
TEST(Store, EveryResultColumnIsCompared) {
  const ScratchDirectory scratch;
  const auto store = MustOpen(scratch.File("r.db"));
  const int64_t run = Must(store->AddRun(TestRun("r1")));
  const int64_t cell = Must(store->AddCell(TestCell(1)));
  const SampleRow base = TestSample(cell, run, 1, 0);
  Must(store->Write(base));

  const std::vector<void (*)(SampleRow&)> results = {
      [](SampleRow& s) { s.hash = "x"; },
      [](SampleRow& s) { s.group = "x"; },
      [](SampleRow& s) { s.position = 9; },
      [](SampleRow& s) { s.score = 0.5; },
      [](SampleRow& s) { s.score.reset(); },
      [](SampleRow& s) { s.tokens_in = 1; },
      [](SampleRow& s) { s.tokens_out = 1; },
      [](SampleRow& s) { s.engagement = EngagementMark::kNotEngaged; },
      [](SampleRow& s) { s.engagement_reason = "x"; },
      [](SampleRow& s) { s.compressions = 4; },
      [](SampleRow& s) { s.kl_divergence = 4; },
      [](SampleRow& s) { s.top1_agreement = 1; },
      [](SampleRow& s) { s.facts = "{}"; },
      [](SampleRow& s) { s.answer_depth = 0.75; },
      [](SampleRow& s) { s.reads_per_step = 1; },
      [](SampleRow& s) { s.read_share.reset(); },
      [](SampleRow& s) { s.fetched_per_step = 4; },
      [](SampleRow& s) { s.parts[0] = 7; },
      [](SampleRow& s) { s.answers[0].question = "x"; },
      [](SampleRow& s) { s.answers[0].excerpt = "x"; },
      [](SampleRow& s) { s.answers[0].prediction = "x"; },
      [](SampleRow& s) { s.answers[0].references.pop_back(); },
      [](SampleRow& s) { s.answers[0].score = 0.25; },
      [](SampleRow& s) { s.answers[0].tokens_out = 6; },
      [](SampleRow& s) { s.answers[0].stopped = false; },
      [](SampleRow& s) { s.answers.push_back(s.answers[0]); },
      [](SampleRow& s) { s.layers[1].entries_before = 1; },
      [](SampleRow& s) { s.layers[1].entries_after = 1; },
      [](SampleRow& s) { s.layers[0].bits = 2; },
      [](SampleRow& s) { s.layers[0].merged = 77; },
      [](SampleRow& s) { s.layers[0].reads = 2; },
      [](SampleRow& s) { s.layers[0].attention_error = 2; },
      [](SampleRow& s) { s.layers[0].kept_by_depth[1] = 0.5; },
      [](SampleRow& s) { s.layers[0].answer_kept = 0; },
      [](SampleRow& s) { s.layers.pop_back(); },
      [](SampleRow& s) { s.modalities[0].layer = 0; },
      [](SampleRow& s) { s.modalities[1].modality = "video"; },
      [](SampleRow& s) { s.modalities[0].entries_before = 1; },
      [](SampleRow& s) { s.modalities[0].entries_after = 1; },
      [](SampleRow& s) { s.modalities[0].bytes = 1; },
      [](SampleRow& s) { s.modalities[0].attention = 1; },
      [](SampleRow& s) { s.modalities[0].attention_kept = 0; },
      [](SampleRow& s) { s.modalities.pop_back(); },
      [](SampleRow& s) { s.patches[5] = 'f'; },
      [](SampleRow& s) { s.patches = "0"; },
      [](SampleRow& s) { ChangePicture(s, [](ShownPicture& shown) { shown.name = "x"; }); },
      [](SampleRow& s) { ChangePicture(s, [](ShownPicture& shown) { shown.frame = 4; }); },
      [](SampleRow& s) { ChangePicture(s, [](ShownPicture& shown) { shown.answer = false; }); },
      [](SampleRow& s) { ChangePicture(s, [](ShownPicture& shown) {
                           shown.grids[0] = {3, 2};
                         }); },
      [](SampleRow& s) {
        ChangePicture(s, [](ShownPicture& shown) {
          shown.picture = std::make_shared<PictureRow>(PictureRow{"other", 1, 1, "bytes"});
        });
      },
      [](SampleRow& s) { s.memory[0].nominal_bytes = 1; },
      [](SampleRow& s) { s.memory[0].host_bytes = 1; },
      [](SampleRow& s) { s.memory[0].full_bytes = 1; },
      [](SampleRow& s) { s.memory[0].payload_bytes = 1; },
      [](SampleRow& s) { s.memory[0].scales_bytes = 1; },
      [](SampleRow& s) { s.memory[0].indices_bytes = 1; },
      [](SampleRow& s) { s.memory[0].outliers_bytes = 1; },
      [](SampleRow& s) { s.memory[0].low_rank_bytes = 1; },
      [](SampleRow& s) { s.memory[0].biases_bytes = 1; },
      [](SampleRow& s) { s.memory[0].codebooks_bytes = 1; },
      [](SampleRow& s) { s.memory[0].projections_bytes = 1; },
      [](SampleRow& s) { s.memory[0].reader_bytes = 1; },
      [](SampleRow& s) { s.memory[0].slack_bytes = 1; },
      [](SampleRow& s) { s.memory[0].resident_bytes = 1; },
      [](SampleRow& s) { s.memory.pop_back(); },
  };
  const std::string digest = Must(store->ResultDigest());
  for (size_t k = 0; k < results.size(); ++k) {
    SampleRow other = base;
    results[k](other);
    EXPECT_FALSE(base.SameResult(other)) << "change " << k;
    const auto outcome = store->Write(other);
    ASSERT_FALSE(outcome.ok()) << "change " << k;
    EXPECT_THAT(outcome.error().message, HasSubstr("another result"));
    // The same change, in a store of its own, moves the digest: it is in a column.
    const auto fresh = MustOpen(scratch.File(StrCat(k, ".db")));
    other.run = Must(fresh->AddRun(TestRun("r1")));
    other.cell = Must(fresh->AddCell(TestCell(1)));
    Must(fresh->Write(other));
    EXPECT_NE(Must(fresh->ResultDigest()), digest) << "change " << k;
    EXPECT_TRUE(Must(fresh->Read(other.cell, other.sample_id))->SameResult(other));
  }
  SampleRow same = base;
  same.memory[0].peak_bytes = 1;
  same.latency->prefill_s = 99;
  // Libraries write other files of the same pixels.
  ChangePicture(same, [](ShownPicture& shown) {
    auto picture = std::make_shared<PictureRow>(*shown.picture);
    picture->thumbnail = "another file";
    shown.picture = std::move(picture);
  });
  same.run = Must(store->AddRun(TestRun("r2")));
  EXPECT_EQ(Must(store->Write(same)), WriteOutcome::kKept);
  EXPECT_EQ(Must(store->ResultDigest()), digest);
}

// Thousandths are written by our own hand, several layers by one statement: both as ever.
TEST(Store, EveryShareOfEveryLayerIsReadBack) {
  const ScratchDirectory scratch;
  const auto store = MustOpen(scratch.File("r.db"));
  const int64_t run = Must(store->AddRun(TestRun("r1")));
  SampleRow row = TestSample(Must(store->AddCell(TestCell(1))), run, 1, 0);
  row.layers.clear();
  Json written = Json::array();
  for (int64_t layer = 0; layer < 39; ++layer) {
    LayerStatRow& l = row.layers.emplace_back();
    l.layer = layer;
    l.head = LayerStatRow::kWholeLayer;
    for (int64_t k = layer; k <= 1000; k += 39) {
      l.kept_by_depth.push_back(static_cast<double>(k) / 1000);
    }
    l.kept_by_depth.push_back(1.0 / 3 + static_cast<double>(layer));
    l.kept_by_depth.push_back(1e-7);
    written.push_back(Json(l.kept_by_depth).dump());
  }
  Must(store->Write(row));
  EXPECT_TRUE(Must(store->Read(row.cell, row.sample_id))->SameResult(row));
  Database raw = Must(Database::Open(scratch.File("r.db"), SQLITE_OPEN_READONLY, "r.db"));
  EXPECT_EQ(Must(raw.QueryText("SELECT json_group_array(kept_by_depth) FROM"
                               " (SELECT kept_by_depth FROM layer_stat ORDER BY layer)")),
            written.dump());
}

TEST(Store, SuccessReplacesFailureAndNothingElseDoes) {
  const ScratchDirectory scratch;
  const auto store = MustOpen(scratch.File("r.db"));
  const int64_t run = Must(store->AddRun(TestRun("r1")));
  const int64_t cell = Must(store->AddCell(TestCell(1)));
  const SampleRow good = TestSample(cell, run, 1, 0);
  SampleRow bad = good;
  bad.status = SampleStatus::kFailed;
  bad.reason = "out of memory: 3 GiB";
  bad.score.reset();
  EXPECT_EQ(Must(store->Write(bad)), WriteOutcome::kNew);
  bad.reason = "out of memory: 4 GiB";
  EXPECT_EQ(Must(store->Write(bad)), WriteOutcome::kKept);
  EXPECT_EQ(Must(store->Read(cell, "needle-0"))->reason, "out of memory: 3 GiB");

  const std::vector<std::string> ids = {"needle-1", "needle-0"};
  EXPECT_THAT(Must(store->Pending(cell, ids)), ElementsAre("needle-1"));
  EXPECT_THAT(Must(store->Pending(cell, ids, true)), ElementsAre("needle-1", "needle-0"));

  EXPECT_EQ(Must(store->Write(good)), WriteOutcome::kReplaced);
  EXPECT_EQ(Must(store->Write(bad)), WriteOutcome::kKept);
  EXPECT_TRUE(Must(store->Read(cell, "needle-0"))->SameResult(good));
  EXPECT_THAT(Must(store->Pending(cell, ids, true)), ElementsAre("needle-1"));
  EXPECT_EQ(Must(store->Scores(cell)).size(), 1u);
  MustOk(store->Check());
}

TEST(Store, SeveralAreWrittenTogetherOrNotAtAll) {
  const ScratchDirectory scratch;
  const auto store = MustOpen(scratch.File("r.db"));
  const int64_t run = Must(store->AddRun(TestRun("r1"))), cell = Must(store->AddCell(TestCell(1)));
  std::vector<SampleRow> rows;
  for (int64_t i = 0; i < 3; ++i) rows.push_back(TestSample(cell, run, 1, i));
  Must(store->Write(rows[1]));
  const std::vector<WriteOutcome> outcomes = Must(store->WriteAll(rows));
  EXPECT_EQ(outcomes, (std::vector{WriteOutcome::kNew, WriteOutcome::kKept, WriteOutcome::kNew}));
  rows = {TestSample(cell, run, 1, 3), TestSample(cell, run, 1, 0)};
  rows[1].answers[0].prediction = "another";
  EXPECT_FALSE(store->WriteAll(rows).ok());
  EXPECT_FALSE(Must(store->Read(cell, rows[0].sample_id)));
}

TEST(Store, RefusesWhatCannotBeTrue) {
  const ScratchDirectory scratch;
  const auto store = MustOpen(scratch.File("r.db"));
  const int64_t run = Must(store->AddRun(TestRun("r1")));
  const int64_t cell = Must(store->AddCell(TestCell(1)));
  const auto refused = [&](auto change, const char* why) {
    SampleRow s = TestSample(cell, run, 1, 0);
    change(s);
    const auto outcome = store->Write(s);
    ASSERT_FALSE(outcome.ok()) << why;
    EXPECT_THAT(outcome.error().message, HasSubstr(scratch.File("r.db")));
    EXPECT_THAT(outcome.error().message, HasSubstr(why));
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  refused([&](SampleRow& s) { s.score = nan; }, "not a finite number");
  refused([&](SampleRow& s) { s.answers[0].score = inf; }, "not a finite number");
  refused([&](SampleRow& s) { s.kl_divergence = nan; }, "not a finite number");
  refused([&](SampleRow& s) { s.layers[0].bits = nan; }, "not a finite number");
  refused([&](SampleRow& s) { s.patches.pop_back(); }, "patches of 15 cells, expected 16");
  refused([&](SampleRow& s) { s.sight.reset(); }, "patches of 16 cells, expected 0");
  refused([&](SampleRow& s) { s.latency->ttft_s = nan; }, "schema");
  refused([&](SampleRow& s) { s.reason = "slow"; }, "reason");
  refused([&](SampleRow& s) { s.status = SampleStatus::kSkipped; }, "reason");
  refused([&](SampleRow& s) { s.status = SampleStatus::kFailed, s.reason = "x"; }, "score");
  refused([&](SampleRow& s) { s.cell = 99; }, "schema");
  refused([&](SampleRow& s) { s.layers.push_back(s.layers[0]); }, "schema");
  EXPECT_THAT(Must(store->Scores(cell)), IsEmpty());
  CellRow cell_row = TestCell(2);
  cell_row.compress_at = "later";
  EXPECT_FALSE(store->AddCell(cell_row).ok());
  cell_row = TestCell(1);
  cell_row.signature = R"({"template":2})";
  const auto conflict = store->AddCell(cell_row);
  ASSERT_FALSE(conflict.ok());
  EXPECT_THAT(conflict.error().message, HasSubstr("different signatures"));
  RunRow other = TestRun("r1");
  other.command = "kvgauge run another.json";
  EXPECT_FALSE(store->AddRun(other).ok());
}

TEST(Store, TextsComeBackWellFormed) {
  const ScratchDirectory scratch;
  const auto store = MustOpen(scratch.File("r.db"));
  SampleRow s =
      TestSample(Must(store->AddCell(TestCell(1))), Must(store->AddRun(TestRun("r"))), 1, 0);
  s.answers[0].prediction = std::string("a\0b\xff\xc3\xa9", 6);
  Must(store->Write(s));
  EXPECT_EQ(Must(store->Read(s.cell, s.sample_id))->answers[0].prediction,
            std::string("a\0b\xef\xbf\xbd\xc3\xa9", 8));
  EXPECT_EQ(Must(store->Write(s)), WriteOutcome::kKept);
}

TEST(Store, RunsEventsAndLatency) {
  const ScratchDirectory scratch;
  const auto store = MustOpen(scratch.File("r.db"));
  const int64_t run = Must(store->AddRun(TestRun("r1")));
  EXPECT_EQ(Must(store->AddRun(TestRun("r1"))), run);
  MustOk(store->AddEvent(run, {"t0", "started", "12 cells"}));
  MustOk(store->AddEvent(run, {"t1", "interrupted", "by the user"}));
  MustOk(store->FinishRun(run, "t2"));
  EXPECT_EQ(Must(store->Events(run))[1].kind, "interrupted");
  EXPECT_EQ(Must(store->Runs())[0].run.finished_at, "t2");

  const int64_t cell = Must(store->AddCell(TestCell(1)));
  std::vector<LatencyRow> rows(2);
  rows[1].repetition = 1;
  rows[1].tpot_p90_s = 0.5;
  rows[1].others_share = 0.125;
  MustOk(store->WriteLatency(cell, run, rows));
  rows[1].tpot_p90_s = 0.75;
  MustOk(store->WriteLatency(cell, run, rows));
  const std::vector<LatencyRow> read = Must(store->Latency(cell));
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[1].tpot_p90_s, 0.5);
  EXPECT_EQ(read[1].others_share, 0.125);
  EXPECT_EQ(read[1].run_key, "r1");
}

TEST(Store, LeaderboardByHand) {
  const ScratchDirectory scratch;
  const auto store = MustOpen(scratch.File("r.db"));
  const int64_t run = Must(store->AddRun(TestRun("r1")));
  const auto put = [&](int64_t c, std::vector<double> scores, EngagementMark mark) {
    const int64_t cell = Must(store->AddCell(TestCell(c)));
    for (size_t i = 0; i < scores.size(); ++i) {
      SampleRow s = TestSample(cell, run, c, static_cast<int64_t>(i));
      s.score = scores[i];
      s.engagement = mark;
      Must(store->Write(s));
    }
    SampleRow failed = TestSample(cell, run, c, 99);
    failed.status = SampleStatus::kFailed;
    failed.reason = "out of memory";
    failed.score.reset();
    failed.engagement = EngagementMark::kNone;
    Must(store->Write(failed));
  };
  put(0, {1, 1, 1, 0.5}, EngagementMark::kIdentity);
  put(1, {1, 0, 0, 0.5}, EngagementMark::kEngaged);
  put(2, {1, 1, 0, 0.5}, EngagementMark::kEngaged);
  put(3, {1, 1, 1, 1}, EngagementMark::kNotEngaged);

  const std::vector<LeaderboardRow> rows = Must(store->Leaderboard());
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].method, "full");
  EXPECT_EQ(rows[0].mean_score, 0.875);
  EXPECT_EQ(rows[0].rank, 1);
  EXPECT_EQ(rows[0].samples, 5);
  EXPECT_EQ(rows[0].ok, 4);
  EXPECT_EQ(rows[0].failed, 1);
  EXPECT_EQ(rows[0].byte_ratio, 8007.0 / 8000.0);
  EXPECT_EQ(rows[1].budget, "20%");
  EXPECT_EQ(rows[1].mean_score, 0.625);
  EXPECT_EQ(rows[1].rank, 2);
  // Prompts of 1000 to 1003 tokens.
  EXPECT_EQ(rows[1].bytes_per_token, 4 * 1607.0 / 4006.0);
  EXPECT_EQ(rows[2].budget, "10%");
  EXPECT_EQ(rows[2].rank, 3);
  EXPECT_EQ(rows[3].budget, "30%");
  EXPECT_EQ(rows[3].mean_score, 1.0);
  EXPECT_FALSE(rows[3].rank) << "not engaged is not ranked";
  EXPECT_EQ(rows[3].not_engaged, 4);
}

TEST(Store, ScoresAreInOrderOfThePlan) {
  const ScratchDirectory scratch;
  const auto store = MustOpen(scratch.File("r.db"));
  const int64_t run = Must(store->AddRun(TestRun("r1")));
  const int64_t cell = Must(store->AddCell(TestCell(1)));
  for (const int64_t i : {11, 2, 5}) Must(store->Write(TestSample(cell, run, 1, i)));
  const std::vector<ScoreRow> rows = Must(store->Scores(cell));
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].sample_id, "needle-2");
  EXPECT_EQ(rows[2].sample_id, "needle-11");
  EXPECT_EQ(rows[2].group, "g5");
  EXPECT_EQ(rows[0].logical_bytes, 807);
  EXPECT_EQ(rows[0].full_bytes, 8000);
  EXPECT_EQ(rows[0].answers_key, Sha256Hex("16:The number is 2."));
  EXPECT_NE(rows[0].answers_key, rows[1].answers_key);
}

TEST(Store, AnyFileName) {
  const ScratchDirectory scratch;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(scratch.path());
  for (const std::string name : {"plain", "a b?mode=ro#%41.db", "\xc3\xa4.db"}) {
    Fill(*MustOpen(name), "r1", 1, 0, 1);
    EXPECT_TRUE(std::filesystem::exists(scratch.File(name))) << name;
    EXPECT_EQ(Must(MustOpen(name, StoreMode::kReadOnly)->Scores(1)).size(), 1u) << name;
  }
  std::filesystem::current_path(before);
}

TEST(Store, DigestIgnoresTheOrderOfRecording) {
  const ScratchDirectory scratch;
  const auto a = MustOpen(scratch.File("a.db")), b = MustOpen(scratch.File("b.db"));
  Fill(*a, "r1", 3, 0, 8);
  Fill(*b, "r1", 2, 5, 8);
  Fill(*b, "r2", 3, 0, 8);
  EXPECT_EQ(Must(a->ResultDigest()), Must(b->ResultDigest()));
  Fill(*b, "r2", 1, 8, 9);
  EXPECT_NE(Must(a->ResultDigest()), Must(b->ResultDigest()));
}

TEST(Store, ReadersSeeACommittedStateWhileOneWrites) {
  const ScratchDirectory scratch;
  const auto writer = MustOpen(scratch.File("r.db"));
  Fill(*writer, "r1", 1, 0, 3);
  const auto reader = MustOpen(scratch.File("r.db"), StoreMode::kReadOnly);
  const int64_t cell = Must(reader->Cells())[0].id;
  EXPECT_EQ(Must(reader->Scores(cell)).size(), 3u);
  Fill(*writer, "r1", 1, 3, 5);
  EXPECT_EQ(Must(reader->Scores(cell)).size(), 5u);
  const auto refused = reader->AddRun(TestRun("r2"));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("for reading only"));
}

// Workers of one run write at the same time, while the process that leads them holds the lock.
TEST(Store, WorkersShareAFile) {
  const ScratchDirectory scratch;
  const auto alone = MustOpen(scratch.File("alone.db"));
  for (int worker = 0; worker < 4; ++worker) {
    Fill(*alone, StrCat("r", worker), 3, 5 * worker, 5 * worker + 5);
  }
  const std::string path = scratch.File("shared.db");
  EXPECT_FALSE(ResultStore::Open(path, StoreMode::kShared).ok());  // nobody has made it yet
  const auto leader = MustOpen(path);
  std::vector<std::thread> workers;
  for (int worker = 0; worker < 4; ++worker) {
    workers.emplace_back([&path, worker] {
      const auto store = MustOpen(path, StoreMode::kShared);
      for (int sample = 5 * worker; sample < 5 * worker + 5; ++sample) {
        Fill(*store, StrCat("r", worker), 3, sample, sample + 1);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  MustOk(leader->Check());
  EXPECT_EQ(Must(leader->ResultDigest()), Must(alone->ResultDigest()));
  EXPECT_FALSE(ResultStore::Open(path, StoreMode::kReadWrite).ok());
}

}  // namespace
}  // namespace kvgauge

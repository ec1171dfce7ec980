// SPDX-License-Identifier: Apache-2.0
// Runs on tasks with pictures: what is recorded of them, and that they are looked at once.
#include <algorithm>

#include "cli/visual_fixture.h"
#include "images/drawn.h"
#include "images/encode.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(VisualRunTest, RecordsWhatSamplesShow) {
  Write("mine.json", Seeing(R"("snapkv", "uniform_visual")"));
  const Outcome outcome = RunInto("r.db", {"--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ((*ParseJson(outcome.out, "out"))["failed"], 0) << outcome.err;
  const auto store = Open("r.db");
  for (const StoredCell& cell : CellsOf(*store)) {
    const SampleRow row = FirstOf(*store, cell);
    ASSERT_EQ(row.status, SampleStatus::kOk) << row.reason;
    EXPECT_EQ(row.images, 3);
    EXPECT_EQ(row.frames, 0);
    EXPECT_EQ(row.visual_tokens, 3 * 16);
    EXPECT_GT(row.tokens_in, row.visual_tokens);
    ASSERT_TRUE(row.latency);
    EXPECT_GT(row.latency->vision_s, 0);
    EXPECT_GT(row.latency->prefill_s, 0);
    ASSERT_EQ(row.modalities.size(), 4u) << "text and pictures in two layers";
  }
  const Outcome board = Run({"leaderboard", Path("r.db"), "--split", "modality", "--json"});
  ASSERT_EQ(board.exit_code, 0) << board.err;
  const Json modalities = (*ParseJson(board.out, "out"))["modalities"][0]["rows"];
  ASSERT_EQ(modalities.size(), 3u);
  for (const Json& row : modalities) {
    ASSERT_EQ(row["modalities"].size(), 2u) << row.dump();
    const Json& image = row["modalities"][0];
    EXPECT_EQ(image["modality"], "image");
    EXPECT_EQ(image["samples"], 3);
    // 48 rows, two layers of two heads, three samples.
    EXPECT_EQ(image["entries_before"], 48 * 4 * 3);
    EXPECT_EQ(image["entries_after"] < image["entries_before"], row["method"] != "full");
  }
  EXPECT_THAT(Run({"leaderboard", Path("r.db"), "--split", "modality"}).out,
              HasSubstr("Kept by modality"));
  const std::string sample = FirstOf(*store, CellsOf(*store)[0]).sample_id;
  const Outcome shown = Run({"show", Path("r.db"), "snapkv@60%", sample});
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("3 pictures; 48 of the tokens"));
  EXPECT_THAT(shown.out, HasSubstr("ms for the tower"));
  EXPECT_THAT(shown.out, HasSubstr("kept of text and pictures"));
}

// Files of pictures are foreign: a faulty one is its sample's, and the run goes on.
TEST_F(VisualRunTest, OneBadPictureFailsItsSample) {
  std::filesystem::create_directories(Path("data/s"));
  std::string lines;
  for (int i = 0; i < 4; ++i) {
    const std::string name = StrCat(i, ".ppm");
    std::string bytes = EncodePpm(Drawn(80, 64, static_cast<uint32_t>(i)));
    if (i == 1) bytes.resize(bytes.size() / 2);  // its header is whole
    if (i == 2) bytes = "no picture at all";
    Write("data/s/" + name, bytes);
    lines += Json{{"question", "<image> What?"}, {"answer", "a"}, {"image", name}}.dump() + "\n";
  }
  Write("data/s/t.jsonl", lines);
  Write("t.json", R"({"name": "t/files", "version": 1, "group": "t", "description": "d",
      "metric": "accuracy", "max_new_tokens": 2, "source": {"name": "pictures",
      "file": "s/t.jsonl", "container": "jsonl", "images": "image", "image_file": "s/{image}",
      "mark": "<image>", "question": "{question}", "answers": "answer"}})");
  Write("mine.json", StrCat(R"({"models": [{"path": ")", Path("eyes/config.json"),
                            R"(", "name": "eyes", "weights": "random:5"}], "data": ")",
                            Path("data"), R"(", "tasks": [")", Path("t.json"), R"("],
      "budgets": ["60%"], "methods": ["uniform_visual"]})"));
  const Outcome outcome = RunInto("r.db", {"--json"});
  EXPECT_EQ((*ParseJson(outcome.out, "out"))["failed"], 4) << outcome.err;
  const auto store = Open("r.db");
  const std::vector<StoredCell> cells = CellsOf(*store);
  ASSERT_EQ(cells.size(), 2u);
  for (const StoredCell& cell : cells) {
    std::vector<std::string> reasons;
    for (const ScoreRow& score : ScoresOf(*store, cell)) {
      const SampleRow row = **store->Read(cell.id, score.sample_id);
      reasons.push_back(row.status == SampleStatus::kOk ? "" : row.reason);
    }
    std::ranges::sort(reasons);
    ASSERT_EQ(reasons.size(), 4u);
    EXPECT_THAT(reasons, ElementsAre("", "", HasSubstr(".ppm"), HasSubstr(".ppm")));
  }
}

// The rows of a picture are the same whoever else is shown, so results do not depend on what was
// kept of them.
TEST_F(VisualRunTest, SharedFeaturesChangeNothing) {
  Write("mine.json", Seeing(R"("snapkv")"));
  ASSERT_EQ(RunInto("all.db").exit_code, 0);
  for (const char* position : {"0", "1", "2"}) {
    ASSERT_EQ(RunInto("one.db", {"--samples", position}).exit_code, 0);
  }
  EXPECT_EQ(Open("all.db")->ResultDigest().value(), Open("one.db")->ResultDigest().value());
}

// Times are measured on prompts that show the pictures, whose rows cost more than their
// placeholders as text would.
TEST_F(VisualRunTest, LatencyFeedsPictures) {
  Write("mine.json", Seeing(R"("snapkv")", R"("latency": {"contexts": [96], "decode_steps": 2,
      "repetitions": 1, "max_others_share": 1.0}, )"));
  const Outcome outcome = RunInto("r.db");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto store = Open("r.db");
  for (const StoredCell& cell : CellsOf(*store)) {
    const Result<std::vector<LatencyRow>> rows = store->Latency(cell.id);
    ASSERT_TRUE(rows.ok());
    ASSERT_EQ(rows->size(), 1u);
    EXPECT_GT(rows->at(0).vision_s, 0);
    EXPECT_EQ(rows->at(0).context_tokens, 96);
  }
}

// Stages that reduce pictures: prefills of their own, shared by rows of equal stages; bytes are
// held against the whole prompt.
TEST_F(VisualRunTest, ReducedPicturesAreAPrefillOfTheirOwn) {
  Write("mine.json", Seeing(R"("random_see", {"method": "visionzip", "overrides":
      {"see.dominant": 4, "see.contextual": 2}}, {"method": "snapkv", "overrides":
      {"see.id": "random_rows"}}, "prumerge")"));
  const Outcome planned = Run({"plan", Path("mine.json"), "--db", Path("r.db"), "--json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const Json plan = *ParseJson(planned.out, "out");
  ASSERT_EQ(plan["groups"].size(), 4u) << "the full cache's, and one for each stage";
  ASSERT_EQ(RunInto("r.db", {"--json"}).exit_code, 0);
  const auto store = Open("r.db");
  std::map<std::string, SampleRow> rows;
  for (const StoredCell& cell : CellsOf(*store)) {
    rows[cell.cell.method.name] = FirstOf(*store, cell);
  }
  const SampleRow& full = rows.at("full");
  for (const auto& [name, row] : rows) {
    SCOPED_TRACE(name);
    ASSERT_EQ(row.status, SampleStatus::kOk) << row.reason;
    EXPECT_EQ(row.tokens_in, full.tokens_in);
    EXPECT_EQ(row.visual_tokens, 48);
    EXPECT_EQ(row.memory[0].full_bytes, full.memory[0].full_bytes);
    EXPECT_EQ(row.engagement, name == "full" ? EngagementMark::kIdentity : EngagementMark::kEngaged)
        << row.engagement_reason;
    if (name == "full") continue;
    EXPECT_LT(row.memory[0].logical_bytes(), full.memory[0].logical_bytes());
    for (const ModalityStatRow& stat : row.modalities) {
      if (stat.modality == "image") {
        EXPECT_EQ(stat.entries_before, 48 * 2);
      }
    }
  }
  // A quarter of 16 patches, three times; six rows a picture.
  EXPECT_EQ(rows.at("random_see").modalities[0].entries_after, 2 * 3 * 4);
  EXPECT_EQ(rows.at("visionzip").modalities[0].entries_after, 2 * 3 * 6);
  EXPECT_LT(rows.at("snapkv").memory[0].logical_bytes(),
            rows.at("random_see").memory[0].logical_bytes());
}

TEST_F(VisualRunTest, PlansCountThePictures) {
  Write("mine.json", Seeing(R"("snapkv")"));
  const Outcome outcome = Run({"plan", Path("mine.json"), "--db", Path("r.db"), "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json plan = *ParseJson(outcome.out, "out");
  const Json& group = plan["groups"][0];
  EXPECT_GT(group["memory_bytes"], 0) << plan.dump(1);
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Files of videos become folders of frames, and tasks score over these.
#include <gmock/gmock.h>

#include <filesystem>

#include "cli/visual_fixture.h"
#include "core/sha256.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class VideoFramesTest : public VisualRunTest {
 protected:
  void SetUp() override {
    VisualRunTest::SetUp();
    const Outcome probe = Frames(Golden("exact.mkv"), "probe", "--frame-rule uniform --frames 1");
    if (probe.err.find("kvgauge-video is not there") != std::string::npos) {
      GTEST_SKIP() << "built without FFmpeg's libraries";
    }
    ASSERT_EQ(probe.exit_code, 0) << probe.err;
  }
  static std::string Golden(const std::string& name) {
    return StrCat(KVG_SOURCE_DIR, "/tests/golden/video/", name);
  }
  Outcome Frames(const std::string& video, const std::string& out, const std::string& rest) {
    std::vector<std::string> arguments = {"data", "frames", video, "--out", Path(out)};
    std::istringstream words(rest);
    for (std::string word; words >> word;) arguments.push_back(word);
    return Run(arguments);
  }
  std::string Task() {
    const std::string path = Path("t.json");
    Write("t.json", R"({"name": "t/clips", "version": 1, "group": "t", "description": "d",
      "metric": "accuracy", "max_new_tokens": 2, "source": {"name": "pictures",
      "file": "s/t.jsonl", "container": "jsonl", "video": "s/frames/{clip}",
      "frame_rule": "linspace", "frame_count": 3, "context": "{video}", "question": "{question}",
      "answers": "answer"}})");
    return path;
  }
};

TEST_F(VideoFramesTest, ATaskScoresOverTheFramesThatItShows) {
  const Outcome made = Frames(Golden(""), "data/s/frames", StrCat("--task ", Task()));
  ASSERT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("plain: 3 of 12 frames\n"));
  for (const int frame : {0, 5, 11}) {
    EXPECT_TRUE(FileExists(Path(StrCat("data/s/frames/exact/", frame, ".png")))) << frame;
  }
  const Json facts = *ReadJsonFile(Path("data/s/frames/exact/frames.json"));
  EXPECT_EQ(facts["total"], 12);
  EXPECT_EQ(facts["source_sha256"], Sha256Hex(*ReadFile(Golden("exact.mkv"))));
  EXPECT_THAT(facts["decoder"].get<std::string>(), HasSubstr("libavcodec"));
  Write("data/s/t.jsonl",
        Json{{"question", "What?"}, {"answer", "a"}, {"clip", "exact"}}.dump() + "\n");
  Write("mine.json", StrCat(R"({"models": [{"path": ")", Path("eyes/config.json"),
                            R"(", "name": "eyes", "weights": "random:5"}], "data": ")",
                            Path("data"), R"(", "tasks": [")", Path("t.json"), R"("],
      "budgets": ["60%"], "methods": ["uniform_visual"]})"));
  const Outcome outcome = RunInto("r.db", {"--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto store = Open("r.db");
  for (const StoredCell& cell : CellsOf(*store)) {
    const SampleRow row = FirstOf(*store, cell);
    ASSERT_EQ(row.status, SampleStatus::kOk) << row.reason;
    std::vector<int64_t> frames;
    for (const ShownPicture& shown : row.sight->pictures) frames.push_back(shown.frame);
    EXPECT_THAT(frames, ElementsAre(0, 5, 11));
  }
}

TEST_F(VideoFramesTest, AFolderGetsTheFramesThatItLacks) {
  ASSERT_EQ(Frames(Golden("plain.webm"), "made", "--frame-rule uniform --frames 2").exit_code, 0);
  const auto first = std::filesystem::last_write_time(Path("made/plain/11.png"));
  const Outcome more = Frames(Golden("plain.webm"), "made", "--frame-rule every:1 --json");
  ASSERT_EQ(more.exit_code, 0) << more.err;
  EXPECT_EQ(Json::parse(more.out)[0]["frames"], 12);
  EXPECT_EQ(Json::parse(more.out)[0]["was_there"], false);
  EXPECT_EQ(std::filesystem::last_write_time(Path("made/plain/11.png")), first);
  EXPECT_TRUE(FileExists(Path("made/plain/6.png")));
  EXPECT_THAT(Frames(Golden("plain.webm"), "made", "").out, HasSubstr("12 of 12 frames, there"));
}

TEST_F(VideoFramesTest, WhatCannotBeWrittenIsRefused) {
  const auto refused = [&](const Outcome& outcome, const ::testing::Matcher<std::string>& says) {
    EXPECT_EQ(outcome.exit_code, 2) << outcome.out;
    EXPECT_THAT(outcome.err, says);
  };
  ASSERT_EQ(Frames(Golden("plain.webm"), "made", "--frame-rule uniform --frames 2").exit_code, 0);
  std::filesystem::copy_file(Golden("exact.mkv"), Path("plain.mkv"));
  refused(Frames(Path("plain.mkv"), "made", ""),
          AllOf(HasSubstr("made/plain: holds something else"), HasSubstr("source_sha256")));
  refused(Run({"data", "frames", Path("plain.mkv"), Golden(""), "--out", Path("two")}),
          AllOf(HasSubstr("plain.webm"), HasSubstr("plain.mkv"), HasSubstr("names that differ")));
  refused(Frames(Golden("plain.webm"), "new", "--task video_mme/lmms_eval"),
          AllOf(HasSubstr("plain.webm"), HasSubstr("12 frames; the rule takes 32")));
  refused(Frames(Golden("plain.webm"), "new", "--task mmmu/lmms_eval"),
          HasSubstr("'mmmu/lmms_eval' has no source.video"));
  refused(Frames(Golden("plain.webm"), "new", "--task mvbench/action_prediction"),
          HasSubstr("--frame-rule every:1"));
  refused(Frames(Path("eyes"), "new", ""), HasSubstr("holds no file of a video"));
  refused(Frames(Path("eyes/config.json"), "new", ""), HasSubstr("is no video"));
  refused(Frames(Path("none"), "new", ""), HasSubstr("no such file or directory"));
  EXPECT_FALSE(DirectoryExists(Path("new")));
}

}  // namespace
}  // namespace kvgauge

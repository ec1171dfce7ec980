// SPDX-License-Identifier: Apache-2.0
// Which frames of a video are shown: the indices that the references' own lines give.
#include "src/frame_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/strings.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> Chosen(FrameChoice choice, int64_t total) {
  const auto frames = ChooseFrames(choice, total);
  EXPECT_TRUE(frames.ok()) << (frames.ok() ? "" : frames.error().message);
  return frames.ok() ? *frames : std::vector<int64_t>();
}

TEST(FrameFolder, EightFramesOfThreeHundred) {
  const auto of = [](ShownFrames rule) { return Chosen({.rule = rule, .count = 8}, 300); };
  EXPECT_THAT(of(ShownFrames::kLinspace), ElementsAre(0, 42, 85, 128, 170, 213, 256, 299));
  EXPECT_THAT(of(ShownFrames::kLinspaceRound), ElementsAre(0, 43, 85, 128, 171, 214, 256, 299));
  EXPECT_THAT(of(ShownFrames::kInterior), ElementsAre(33, 66, 100, 133, 166, 200, 233, 266));
  EXPECT_THAT(of(ShownFrames::kCentre), ElementsAre(18, 55, 93, 130, 168, 205, 242, 280));
  EXPECT_THAT(of(ShownFrames::kStep), ElementsAre(0, 37, 74, 111, 148, 185, 222, 259));
  EXPECT_THAT(of(ShownFrames::kFraction), ElementsAre(0, 37, 75, 112, 150, 187, 225, 262));
  EXPECT_THAT(of(ShownFrames::kArange), ElementsAre(0, 37, 75, 112, 150, 187, 225, 262));
  EXPECT_THAT(of(ShownFrames::kArangeCentre), ElementsAre(18, 56, 93, 131, 168, 206, 243, 281));
}

TEST(FrameFolder, OtherLengths) {
  EXPECT_THAT(Chosen({.rule = ShownFrames::kInterior, .count = 4}, 299),
              ElementsAre(59, 119, 179, 239));
  EXPECT_THAT(Chosen({.rule = ShownFrames::kCentre, .count = 16}, 250),
              ElementsAre(7, 23, 38, 54, 69, 85, 100, 116, 131, 147, 163, 178, 194, 209, 225, 240));
  EXPECT_THAT(Chosen({.rule = ShownFrames::kLinspace, .count = 1}, 10), ElementsAre(0));
}

TEST(FrameFolder, BoundsInSeconds) {
  EXPECT_THAT(
      Chosen({.rule = ShownFrames::kCentre, .count = 8, .fps = 30, .begin_s = 2.0, .end_s = 6.5},
             300),
      ElementsAre(68, 85, 102, 119, 136, 152, 169, 186));
  // A folder whose first frame is number 1: 5, 8, 11, ... there are indices 4, 7, 10, ...
  EXPECT_THAT(Chosen({.rule = ShownFrames::kCentre,
                      .count = 8,
                      .fps = 3,
                      .begin_s = 1.2,
                      .end_s = 9.9,
                      .first_number = 1},
                     60),
              ElementsAre(4, 7, 10, 14, 17, 20, 24, 27));
}

TEST(FrameFolder, RatesNeedTheVideos) {
  const double fps = 29.97;
  EXPECT_THAT(Chosen({.rule = ShownFrames::kRate, .fps = fps, .rate = 1}, 300),
              ElementsAre(0, 29, 59, 89, 119, 149, 179, 209, 239, 269));
  EXPECT_THAT(Chosen({.rule = ShownFrames::kWholeSeconds, .count = 16, .fps = 30}, 237),
              ElementsAre(0, 33, 66, 99, 132, 165, 198));
  const std::vector<int64_t> sixteen =
      Chosen({.rule = ShownFrames::kWholeSeconds, .count = 16, .fps = fps}, 611);
  ASSERT_EQ(sixteen.size(), 16U);
  EXPECT_EQ(sixteen[1], 38);
  EXPECT_EQ(sixteen[15], 570);
  EXPECT_FALSE(ChooseFrames({.rule = ShownFrames::kRate}, 300).ok());
}

TEST(FrameFolder, TooFewFramesAreAnError) {
  const auto few = ChooseFrames({.rule = ShownFrames::kLinspace, .count = 8}, 7);
  ASSERT_FALSE(few.ok());
  EXPECT_THAT(few.error().message, HasSubstr("has 7 frames; the rule takes 8"));
  EXPECT_FALSE(ChooseFrames({.rule = ShownFrames::kRate, .fps = 30, .rate = 1}, 10).ok());
  EXPECT_FALSE(
      ChooseFrames({.rule = ShownFrames::kCentre, .fps = 30, .begin_s = 5, .end_s = 4}, 300).ok());
}

TEST(FrameFolder, FramesAreInTheOrderOfTheirNumbers) {
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / StrCat("frames_", getpid());
  std::filesystem::create_directories(folder);
  EXPECT_FALSE(ReadVideoFolder(folder.string()).ok());
  for (const char* name : {"f10.jpg", "f9.JPG", "f100.png", "notes.txt", "notes.json"}) {
    std::ofstream(folder / name) << "x";
  }
  const auto all = ReadVideoFolder(folder.string());
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->total, 3);
  EXPECT_EQ(*FileOfFrame(*all, 0), "f9.JPG");
  EXPECT_EQ(*FileOfFrame(*all, 2), "f100.png");
  EXPECT_FALSE(ReadVideoFolder((folder / "none").string()).ok());
  std::ofstream(folder / "frames.json") << R"({"fps": 25, "total": 300})";
  const auto some = ReadVideoFolder(folder.string());
  ASSERT_TRUE(some.ok());
  EXPECT_EQ(some->total, 300);
  EXPECT_EQ(some->fps, 25);
  EXPECT_EQ(*FileOfFrame(*some, 10), "f10.jpg");
  EXPECT_THAT(FileOfFrame(*some, 11).error().message, HasSubstr("lacks frame 11 of 300"));
  const auto fault = [&] {
    const auto video = ReadVideoFolder(folder.string());
    return video.ok() ? "read" : video.error().message;
  };
  std::ofstream(folder / "frames.json") << R"({"fps": 25, "total": 100})";
  EXPECT_THAT(fault(), testing::AllOf(HasSubstr("'f100.png'"), HasSubstr("expected 0 to 99")));
  std::filesystem::remove(folder / "frames.json");
  std::ofstream(folder / "cover.png") << "x";
  EXPECT_THAT(fault(), HasSubstr("'cover.png' has no number in its name"));
  std::filesystem::rename(folder / "cover.png", folder / "0009.png");
  EXPECT_THAT(fault(), HasSubstr("'0009.png' has the number of 'f9.JPG'"));
  std::filesystem::remove(folder / "0009.png");
  std::ofstream(folder / "frames.json") << R"({"fps": "25"})";
  EXPECT_FALSE(ReadVideoFolder(folder.string()).ok());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace kvgauge

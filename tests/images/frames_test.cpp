// SPDX-License-Identifier: Apache-2.0
#include "images/frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/strings.h"
#include "images/drawn.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int64_t> Chosen(const std::string& rule, int64_t count, int64_t total, double fps = 0) {
  const Result<FrameRule> parsed = ParseFrameRule(rule, count);
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  const Result<std::vector<int64_t>> indices = ChooseFrames(*parsed, total, fps);
  EXPECT_TRUE(indices.ok()) << indices.error().message;
  return indices.ok() ? *indices : std::vector<int64_t>();
}

// As numpy and the benchmarks' own code choose them.
TEST(FrameRule, IndicesAreThoseOfTheBenchmarks) {
  EXPECT_THAT(Chosen("uniform", 8, 300), ElementsAre(0, 42, 85, 128, 170, 213, 256, 299));
  EXPECT_THAT(Chosen("uniform", 1, 300), ElementsAre(0));
  EXPECT_THAT(Chosen("uniform", 4, 2), ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(Chosen("interior", 8, 300), ElementsAre(33, 66, 100, 133, 166, 200, 233, 266));
  EXPECT_THAT(Chosen("interior", 4, 299), ElementsAre(59, 119, 179, 239));
  EXPECT_THAT(Chosen("fps:1", 0, 300, 29.97),
              ElementsAre(0, 29, 59, 89, 119, 149, 179, 209, 239, 269));
  EXPECT_THAT(Chosen("every:100", 0, 300), ElementsAre(0, 100, 200));
}

TEST(FrameRule, FaultsAreRefused) {
  for (const char* rule :
       {"", "even", "fps:", "fps:0", "fps:x", "every:0", "every:1.5", "fps:nan"}) {
    EXPECT_FALSE(ParseFrameRule(rule, 4).ok()) << rule;
  }
  EXPECT_FALSE(ChooseFrames(*ParseFrameRule("fps:1", 0), 10, 0).ok());
}

class FrameFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "kvg_frames_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  void Put(const std::string& name, int32_t width = 6, int32_t height = 4, uint32_t seed = 1) {
    const Image image = Drawn(width, height, seed);
    std::ofstream file(path_ + "/" + name, std::ios::binary);
    file << "P6\n" << width << " " << height << "\n255\n";
    file.write(reinterpret_cast<const char*>(image.rgb.data()), std::ssize(image.rgb));
  }
  std::string OpenError() {
    const Result<FrameFolder> folder = OpenFrameFolder(path_);
    return folder.ok() ? "opened" : folder.error().message;
  }

  std::string path_;
};

TEST_F(FrameFolderTest, FramesOfAnIndexedFolder) {
  std::ofstream(path_ + "/frames.json")
      << R"({"fps": 25, "total": 100, "width": 6, "height": 4, "source_sha256": "ab"})";
  Put("0.ppm", 6, 4, 1);
  Put("33.ppm", 6, 4, 2);
  const Result<FrameFolder> folder = OpenFrameFolder(path_);
  ASSERT_TRUE(folder.ok()) << folder.error().message;
  EXPECT_EQ(folder->fps, 25);
  EXPECT_EQ(folder->total, 100);
  EXPECT_EQ(folder->source_sha256, "ab");
  const Result<std::vector<Image>> frames = ReadFrames(*folder, {33, 0, 33});
  ASSERT_TRUE(frames.ok()) << frames.error().message;
  EXPECT_EQ((*frames)[0], Drawn(6, 4, 2));
  EXPECT_EQ((*frames)[1], Drawn(6, 4, 1));
  EXPECT_EQ((*frames)[2], (*frames)[0]);
  const Result<std::vector<Image>> missing = ReadFrames(*folder, {0, 50});
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, AllOf(HasSubstr(path_), HasSubstr("frame 50 of 100")));
}

TEST_F(FrameFolderTest, APlainFolderIsAWholeVideo) {
  for (int i = 1; i <= 12; ++i) Put(StrCat(i, ".ppm"), 6, 4, static_cast<uint32_t>(i));
  const Result<FrameFolder> folder = OpenFrameFolder(path_);
  ASSERT_TRUE(folder.ok()) << folder.error().message;
  EXPECT_EQ(folder->total, 12);
  // Numbers count, not names: 2 comes before 10.
  EXPECT_EQ((*ReadFrames(*folder, {1, 9}))[0], Drawn(6, 4, 2));
  EXPECT_EQ((*ReadFrames(*folder, {1, 9}))[1], Drawn(6, 4, 10));
  std::filesystem::remove(path_ + "/5.ppm");
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("frame 5 is missing"), HasSubstr("frames.json")));
}

TEST_F(FrameFolderTest, NamesHoldNumbersOrNoneDoes) {
  for (const char* name : {"b", "a"}) Put(StrCat(name, ".ppm"), 6, 4, *name == 'a' ? 1 : 2);
  EXPECT_EQ((*ReadFrames(*OpenFrameFolder(path_), {0}))[0], Drawn(6, 4, 1));
  Put("f3.ppm");
  EXPECT_THAT(OpenError(), AllOf(HasSubstr(".ppm: expected a name with the number"),
                                 HasSubstr("f3.ppm has one")));
  for (const char* name : {"b", "a"}) std::filesystem::remove(StrCat(path_, "/", name, ".ppm"));
  Put("f20.ppm", 6, 4, 20);
  const Result<FrameFolder> folder = OpenFrameFolder(path_);
  ASSERT_TRUE(folder.ok()) << folder.error().message;
  EXPECT_EQ((*ReadFrames(*folder, {1}))[0], Drawn(6, 4, 20)) << "3 comes before 20";
  std::filesystem::remove(path_ + "/f20.ppm");
  Put("0.ppm");
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("f3.ppm: expected"), HasSubstr("0.ppm has one")));
  std::filesystem::rename(path_ + "/f3.ppm", path_ + "/cover.ppm");
  EXPECT_THAT(OpenError(), HasSubstr("cover.ppm: expected a name with the number of a frame"));
}

TEST_F(FrameFolderTest, FaultsNameTheFile) {
  EXPECT_THAT(OpenError(), AllOf(HasSubstr(path_), HasSubstr("no frames")));
  Put("0.ppm");
  Put("00.ppm");
  EXPECT_THAT(OpenError(), HasSubstr("is there twice"));
  std::filesystem::remove(path_ + "/00.ppm");
  Put("1.ppm", 5, 4);
  EXPECT_THAT(ReadFrames(*OpenFrameFolder(path_), {0, 1}).error().message,
              AllOf(HasSubstr("1.ppm"), HasSubstr("5 x 4"), HasSubstr("6 x 4")));
  std::ofstream(path_ + "/frames.json") << R"({"fps": 0, "total": 2})";
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("frames.json"), HasSubstr("'fps'")));
  std::ofstream(path_ + "/frames.json") << R"({"fps": 1, "total": 1})";
  EXPECT_THAT(OpenError(), AllOf(HasSubstr("1.ppm"), HasSubstr("number of a frame")));
  std::filesystem::remove(path_ + "/frames.json");
  std::filesystem::remove(path_ + "/1.ppm");
  std::filesystem::create_symlink("/dev/null", path_ + "/1.ppm");
  EXPECT_THAT(OpenError(), HasSubstr("leads out of the folder"));
  EXPECT_FALSE(OpenFrameFolder(path_ + "/nothing").ok());
}

}  // namespace
}  // namespace kvgauge

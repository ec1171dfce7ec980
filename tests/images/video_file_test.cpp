// SPDX-License-Identifier: Apache-2.0
// Files of videos, against frames that were drawn and levels that PyAV decoded. Where the build has
// no kvgauge-video, only the words about that are tested.
#include "images/video_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "images/drawn.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string GoldenVideo(const std::string& name) {
  return StrCat(KVG_TEST_DATA, "/golden/video/", name);
}

TEST(VideoFile, WithoutTheProgramTheErrorSaysWhatIsMissing) {
  setenv("KVGAUGE_VIDEO", "/nowhere/kvgauge-video", 1);
  const Result<VideoFile> video = OpenVideoFile(GoldenVideo("exact.mkv"));
  ASSERT_FALSE(video.ok());
  EXPECT_THAT(video.error().message,
              AllOf(HasSubstr("exact.mkv"), HasSubstr("/nowhere/kvgauge-video is not there"),
                    HasSubstr("scripts/install_deps video"), HasSubstr("folder of frames")));
  unsetenv("KVGAUGE_VIDEO");
}

class VideoFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
#ifdef KVG_VIDEO_PROGRAM
    setenv("KVGAUGE_VIDEO", KVG_VIDEO_PROGRAM, 1);
    path_ = ::testing::TempDir() + "kvg_video";
#else
    GTEST_SKIP() << "built without FFmpeg's libraries";
#endif
  }
  void TearDown() override {
    unsetenv("KVGAUGE_VIDEO");
    std::filesystem::remove(path_);
  }
  std::string Write(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    return path_;
  }
  static std::vector<int64_t> All(int64_t frames) {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < frames; ++i) all.push_back(i);
    return all;
  }
  std::string path_;
};

TEST_F(VideoFileTest, LosslessFramesAreTheDrawnOnes) {
  const Result<VideoFile> video = OpenVideoFile(GoldenVideo("exact.mkv"));
  ASSERT_TRUE(video.ok()) << video.error().message;
  EXPECT_EQ(video->total, 12);
  EXPECT_EQ(video->width, 48);
  EXPECT_EQ(video->height, 32);
  EXPECT_NEAR(video->fps, 10, 1e-9);
  EXPECT_THAT(video->decoder, AllOf(HasSubstr("libavcodec "), HasSubstr("libswscale ")));
  // Some, one of them twice.
  const std::vector<int64_t> indices = {0, 3, 3, 7, 11};
  const Result<std::vector<Image>> frames = ReadVideoFrames(*video, indices);
  ASSERT_TRUE(frames.ok()) << frames.error().message;
  ASSERT_EQ(frames->size(), indices.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    EXPECT_EQ((*frames)[i], Drawn(48, 32, static_cast<uint32_t>(indices[i] + 1))) << indices[i];
  }
  ImageLimits few;
  few.pixels = 100;
  EXPECT_THAT(ReadVideoFrames(*video, {0}, few).error().message, HasSubstr("at most 100 pixels"));
  EXPECT_THAT(ReadVideoFrames(*video, {12}).error().message, HasSubstr("ends before frame 12"));
}

// Numbers, order and colours of frames that are stored in another order. Two frames differ by 20
// levels of red; versions of swscale by 3 of blue.
TEST_F(VideoFileTest, LossyFramesHaveTheirLevels) {
  const Result<Json> expected = ReadJsonFile(GoldenVideo("expected.json"));
  ASSERT_TRUE(expected.ok());
  for (const auto& [name, of] : (*expected)["files"].items()) {
    SCOPED_TRACE(name);
    const Result<VideoFile> video = OpenVideoFile(GoldenVideo(name));
    ASSERT_TRUE(video.ok()) << video.error().message;
    EXPECT_EQ(video->total, of["frames"].get<int64_t>());
    EXPECT_NEAR(video->fps, of["fps"].get<double>(), 1e-3);
    const Result<std::vector<Image>> frames = ReadVideoFrames(*video, All(video->total));
    ASSERT_TRUE(frames.ok()) << frames.error().message;
    for (size_t f = 0; f < frames->size(); ++f) {
      const Image& frame = (*frames)[f];
      for (int quarter = 0; quarter < 4; ++quarter) {
        for (int channel = 0; channel < 3; ++channel) {
          double sum = 0;
          for (int32_t y = quarter / 2 * 16; y < quarter / 2 * 16 + 16; ++y) {
            for (int32_t x = quarter % 2 * 24; x < quarter % 2 * 24 + 24; ++x) {
              sum += frame.Row(y)[x * 3 + channel];
            }
          }
          EXPECT_NEAR(sum / (16 * 24), of["quarters"][f][quarter][channel].get<double>(), 3.5)
              << "frame " << f << ", quarter " << quarter << ", channel " << channel;
        }
      }
    }
  }
}

TEST_F(VideoFileTest, FaultsAreRefused) {
  const auto error_of = [](const std::string& path) {
    const Result<VideoFile> video = OpenVideoFile(path);
    return video.ok() ? std::string("accepted") : video.error().message;
  };
  EXPECT_THAT(error_of("/nowhere/a.mp4"), HasSubstr("/nowhere/a.mp4: "));
  EXPECT_THAT(error_of(::testing::TempDir()), HasSubstr("is no regular file"));
  EXPECT_THAT(error_of(Write("no video at all")), HasSubstr("is no video that can be read"));
  EXPECT_THAT(error_of(Write("")), HasSubstr(path_));
  // A list that names other files opens none of them.
  const std::string other = GoldenVideo("exact.mkv");
  EXPECT_THAT(error_of(Write(StrCat("#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:1,\n", other,
                                    "\n#EXT-X-ENDLIST\n"))),
              HasSubstr(path_));
  EXPECT_THAT(error_of(Write(StrCat("ffconcat version 1.0\nfile '", other, "'\n"))),
              HasSubstr(path_));
  // Cut and damaged files.
  for (const char* name : {"reordered.mp4", "exact.mkv"}) {
    std::string bytes = *ReadFile(GoldenVideo(name));
    EXPECT_NE(error_of(Write(bytes.substr(0, bytes.size() / 3))), "accepted") << name;
    for (size_t i = bytes.size() / 2; i < bytes.size() / 2 + 200; ++i) bytes[i] ^= 0x5a;
    EXPECT_NE(error_of(Write(bytes)), "accepted") << name;
  }
}

}  // namespace
}  // namespace kvgauge

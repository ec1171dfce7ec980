// SPDX-License-Identifier: Apache-2.0
// Each distinct picture goes through the tower once, and what is kept is bounded.
#include "src/run/picture_features.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/sha256.h"
#include "core/strings.h"
#include "images/encode.h"
#include "runner/config.h"
#include "src/model/visual_input.h"
#include "src/run/sample_visuals.h"
#include "support/test_ops.h"
#include "support/visual_rows.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

constexpr char kModel[] = KVG_SOURCE_DIR "/tests/golden/vision/llava";

// A picture of one colour; `shade` tells pictures apart.
Picture Drawn(int shade, int64_t* loads = nullptr) {
  Image image;
  image.width = 30 + shade;
  image.height = 28;
  image.rgb.assign(static_cast<size_t>(image.width * image.height * 3),
                   static_cast<uint8_t>(20 * shade));
  const std::string bytes = *EncodePng(image);
  return {.name = StrCat("shade ", shade), .hash = Sha256Hex(bytes), .load = [=] {
            if (loads != nullptr) ++*loads;
            return Result<std::string>(bytes);
          }};
}

class PictureFeaturesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::optional<VisionSpec> spec = *ReadVisionConfig(kModel);
    ops_ = MakeTestOps("cpu", 1);
    const auto weights = MakeRandomWeights(ExpectedVisionTensors(*spec), 4, DType::kF32);
    tower_ = *VisionTower::Load(*spec, *weights, DType::kF32, *ops_);
    preprocessor_ = *ReadPicturePreprocessor(kModel);
  }

  std::unique_ptr<Ops> ops_;
  std::unique_ptr<VisionTower> tower_;
  Preprocessor preprocessor_;
};

TEST_F(PictureFeaturesTest, EachPictureIsSeenOnce) {
  PictureFeatures features(preprocessor_, int64_t{1} << 30);
  int64_t loads = 0;
  const Picture red = Drawn(1, &loads), blue = Drawn(2, &loads), again = Drawn(1, &loads);
  const std::vector<PictureRequest> first = {{&red, 2}, {&blue, 2}, {&again, 1}};
  const std::vector<FeatureResult> got = features.Get(first, *tower_);
  ASSERT_TRUE(got[0].ok() && got[1].ok() && got[2].ok());
  EXPECT_EQ(*got[0], *got[2]) << "one content, one feature";
  EXPECT_NE(NumbersOf((*got[0])->features.rows), NumbersOf((*got[1])->features.rows));
  EXPECT_EQ(features.encoded(), 2);
  EXPECT_EQ(loads, 2);
  EXPECT_GT((*got[0])->seconds, 0);

  const std::vector<FeatureResult> later = features.Get(first, *tower_);
  EXPECT_EQ(*later[1], *got[1]);
  EXPECT_EQ(loads, 2);
  EXPECT_EQ(features.encoded(), 2);
  EXPECT_EQ(features.shared(), 4);

  // Rows do not depend on the pictures beside them.
  PictureFeatures alone(preprocessor_, 0);
  EXPECT_EQ(NumbersOf((*alone.Get({{{&blue, 1}}}, *tower_)[0])->features.rows),
            NumbersOf((*got[1])->features.rows));
  EXPECT_EQ(alone.bytes(), 0) << "nothing is kept where nothing may be";

  const auto joined = JoinRows(*FeaturesLeft(nullptr, {}, std::vector{*got[1], *got[0]}, *tower_),
                               tower_->spec().hidden_size);
  EXPECT_EQ(joined->count(), 32);
  ASSERT_EQ(joined->parts.size(), 2u);
  EXPECT_EQ(joined->parts[0].rows.get(), &(*got[1])->features.rows) << "shared, not copied";
  // What a sample shows is counted with the sample, once.
  HeldRows shown;
  for (int i = 0; i < 2; ++i) shown.Add(joined.get());
  const int64_t small = features.bytes() - shown.bytes();
  EXPECT_EQ(shown.bytes(), 32 * tower_->spec().hidden_size * 4);
  EXPECT_EQ(features.BytesBeside({}), features.bytes());
  EXPECT_EQ(features.BytesBeside(shown), small) << "copies that reports show";
}

TEST_F(PictureFeaturesTest, TheLeastRecentlyUsedAreGivenUp) {
  const Picture one = Drawn(1), two = Drawn(2), three = Drawn(3);
  PictureFeatures measure(preprocessor_, int64_t{1} << 30);
  int64_t bytes = 0;  // of the largest: small copies of pictures differ
  for (const Picture* picture : {&one, &two, &three}) {
    bytes = std::max(bytes, (*measure.Get({{{picture, 1}}}, *tower_)[0])->bytes());
  }
  PictureFeatures features(preprocessor_, 2 * bytes);
  for (const Picture* picture : {&one, &two, &one, &three}) {
    ASSERT_TRUE(features.Get({{{picture, 1}}}, *tower_)[0].ok());
    EXPECT_LE(features.bytes(), 2 * bytes);
  }
  EXPECT_EQ(features.encoded(), 3);
  EXPECT_TRUE(features.Get({{{&one, 1}}}, *tower_)[0].ok());
  EXPECT_EQ(features.encoded(), 3) << "the first was used again, the second went";
  EXPECT_TRUE(features.Get({{{&two, 1}}}, *tower_)[0].ok());
  EXPECT_EQ(features.encoded(), 4);
}

TEST_F(PictureFeaturesTest, OneBadPictureFailsItsOwnRequests) {
  const Picture good = Drawn(1);
  Picture truncated = Drawn(2);
  const std::string whole = *truncated.load();
  truncated.load = [=] { return Result<std::string>(whole.substr(0, whole.size() / 2)); };
  truncated.hash = "other";
  const Picture missing = {.name = "gone.png", .hash = "gone", .load = [] {
                             return Result<std::string>(IoError("gone.png: cannot be read"));
                           }};
  PictureFeatures features(preprocessor_, int64_t{1} << 30);
  const std::vector<FeatureResult> got =
      features.Get({{{&truncated, 1}, {&good, 1}, {&missing, 1}, {&truncated, 1}}}, *tower_);
  EXPECT_TRUE(got[1].ok());
  EXPECT_THAT(got[0].error().message, HasSubstr("shade 2"));
  EXPECT_THAT(got[3].error().message, HasSubstr("shade 2"));
  EXPECT_THAT(got[2].error().message, HasSubstr("gone.png"));
  EXPECT_EQ(features.encoded(), 1);
}

// Sixty pictures are not sixty decoded pictures.
TEST_F(PictureFeaturesTest, PixelsWaitInBatches) {
  std::vector<Picture> pictures;
  for (int i = 0; i < 60; ++i) pictures.push_back(Drawn(i % 12));
  std::vector<PictureRequest> requests;
  for (const Picture& picture : pictures) requests.push_back({&picture, 60});
  constexpr int64_t kPicture = 3 * 28 * 28 * 4;
  PictureFeatures few(preprocessor_, int64_t{1} << 30, 3 * kPicture);
  PictureFeatures all(preprocessor_, int64_t{1} << 30);
  const std::vector<FeatureResult> one = few.Get(requests, *tower_),
                                   other = all.Get(requests, *tower_);
  EXPECT_EQ(few.encoded(), 12);
  EXPECT_EQ(few.most_pixel_bytes(), 3 * kPicture);
  EXPECT_EQ(all.most_pixel_bytes(), 12 * kPicture);
  for (size_t i = 0; i < one.size(); ++i) {
    ASSERT_TRUE(one[i].ok());
    EXPECT_EQ(NumbersOf((*one[i])->features.rows), NumbersOf((*other[i])->features.rows));
  }
}

// Headers tell what a model will be shown; the pictures themselves are not decoded.
TEST_F(PictureFeaturesTest, LooksReadHeadersAlone) {
  const Result<ModelConfig> config = ReadModelConfig(kModel);
  ASSERT_TRUE(config.ok()) << config.error().message;
  Sample sample;
  sample.id = "s";
  Picture picture = Drawn(3);
  const std::string header = picture.load()->substr(0, 60);
  int64_t loads = 0;
  picture.load = [&loads, header] {
    ++loads;
    return Result<std::string>(header);
  };
  sample.pictures = {picture, picture};
  SampleEyes eyes(kModel, *config);
  const Result<std::vector<ShownVisual>> shown = eyes.Look(sample);
  ASSERT_TRUE(shown.ok()) << shown.error().message;
  EXPECT_EQ(shown->size(), 2u);
  EXPECT_EQ(CountVisuals(sample.pictures, *shown), (VisualCounts{.images = 2, .tokens = 32}));
  sample.pictures[1].frame = 7;
  EXPECT_EQ(CountVisuals(sample.pictures, *shown),
            (VisualCounts{.images = 1, .frames = 1, .tokens = 32}));
  EXPECT_EQ(loads, 1);

  sample.pictures[1].hash = "text";
  sample.pictures[1].load = [] { return Result<std::string>("no picture"); };
  const auto refused = eyes.Look(sample);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("sample s: shade 3"));
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "images/preprocess.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "images/drawn.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string HashOf(const std::vector<float>& values) {
  return Sha256Hex(std::string_view(reinterpret_cast<const char*>(values.data()),
                                    values.size() * sizeof(float)));
}
Result<Preprocessor> Read(const std::string& config) {
  return ReadPreprocessor(*ParseJson(config, "test"), "dir/preprocessor_config.json");
}
std::string ConfigErrorOf(const std::string& config) {
  const Result<Preprocessor> read = Read(config);
  return read.ok() ? "" : read.error().message;
}
std::string Clip(const std::string& more) {
  return StrCat(R"({"image_processor_type": "CLIPImageProcessor", )", more, "}");
}

// Every family's processor on sizes that are odd, tiny, wide and tall: the same floats to the bit.
TEST(Preprocess, EqualsTransformers) {
  const Result<Json> golden = ReadJsonFile(StrCat(KVG_TEST_DATA, "/golden/images/preprocess.json"));
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  ASSERT_GE((*golden)["cases"].size(), 130u);
  for (const Json& c : (*golden)["cases"]) {
    SCOPED_TRACE(c.dump().substr(0, 300));
    const Result<Preprocessor> preprocessor = ReadPreprocessor(c["config"], "golden");
    ASSERT_TRUE(preprocessor.ok()) << preprocessor.error().message;
    const Json& picture = c["picture"];
    const Result<PixelValues> got =
        Preprocess(*preprocessor, Drawn(picture[0], picture[1], picture[2]), c["pictures"]);
    const Result<PixelValues> shape_alone =
        ShapeOfPixels(*preprocessor, picture[1], picture[0], c["pictures"]);
    if (c.contains("refused")) {
      EXPECT_FALSE(got.ok());
      EXPECT_FALSE(shape_alone.ok());
      continue;
    }
    ASSERT_TRUE(got.ok()) << got.error().message;
    if (c["grid"].is_null()) {
      const std::vector<int64_t> shape = {got->tiles, 3, got->height, got->width};
      EXPECT_EQ(shape, c["shape"].get<std::vector<int64_t>>());
    } else {
      EXPECT_EQ(got->grid, (c["grid"].get<std::array<int32_t, 3>>()));
    }
    EXPECT_EQ(HashOf(got->values), c["sha256"].get<std::string>());
    // And without the picture: all but the numbers.
    ASSERT_TRUE(shape_alone.ok()) << shape_alone.error().message;
    const auto all_but_values = [](const PixelValues& v) {
      return std::tuple(v.tiles, v.height, v.width, v.grid, v.rows, v.columns, v.original_height,
                        v.original_width);
    };
    EXPECT_EQ(all_but_values(*shape_alone), all_but_values(*got));
    EXPECT_EQ(got->original_width, picture[0].get<int32_t>());
  }
}

TEST(Preprocess, AVideoRepeatsItsLastFrame) {
  const Preprocessor qwen = *Read(
      R"({"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 7, "min_pixels": 196})");
  const std::vector<Image> frames = {Drawn(28, 28, 1), Drawn(28, 28, 2), Drawn(28, 28, 3)};
  const std::vector<Image> repeated = {frames[0], frames[1], frames[2], frames[2]};
  const PixelValues three = *PreprocessVideo(qwen, frames), four = *PreprocessVideo(qwen, repeated);
  EXPECT_EQ(three.grid, (std::array<int32_t, 3>{2, 4, 4}));
  EXPECT_EQ(three.values, four.values);
  // A picture is a video of one frame, shown twice.
  EXPECT_EQ(Preprocess(qwen, frames[0])->values,
            PreprocessVideo(qwen, std::vector{frames[0], frames[0]})->values);
  EXPECT_THAT(PreprocessVideo(qwen, std::vector{frames[0], Drawn(28, 29, 1)}).error().message,
              HasSubstr("a frame is 28 x 29 pixels, the first is 28 x 28"));
}

// Numbers and sizes of frames: the grids of the video processors.
TEST(Preprocess, SizesOfVideosAreThoseOfTransformers) {
  const Result<Json> golden =
      ReadJsonFile(StrCat(KVG_TEST_DATA, "/golden/images/video_sizes.json"));
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  ASSERT_GE((*golden)["cases"].size(), 180u);
  for (const Json& c : (*golden)["cases"]) {
    SCOPED_TRACE(c.dump());
    const Result<Preprocessor> p = ReadVideoPreprocessor(c["config"], "", "golden");
    ASSERT_TRUE(p.ok()) << p.error().message;
    const Json& video = c["video"];
    const Result<std::pair<int32_t, int32_t>> size =
        PatchedVideoSize(*p, video[0], video[1], video[2]);
    ASSERT_EQ(size.ok(), !c["grid"].is_null()) << (size.ok() ? "" : size.error().message);
    if (!size.ok()) continue;
    EXPECT_EQ(size->first / p->patch, c["grid"][1].get<int32_t>());
    EXPECT_EQ(size->second / p->patch, c["grid"][2].get<int32_t>());
  }
}

TEST(ReadVideoPreprocessor, NamesWhatItDoesNotKnow) {
  const auto read = [](const char* text) {
    return ReadVideoPreprocessor(*ParseJson(text, "text"), "Qwen2VLVideoProcessor", "dir/v.json");
  };
  EXPECT_EQ(read("{}")->most_pixels, 28 * 28 * 768);
  EXPECT_EQ(read(R"({"video_processor_type": "Qwen3VLVideoProcessor"})")->patch, 16);
  // Keys of pictures and keys that choose frames are passed over.
  EXPECT_EQ(read(R"({"image_processor_type": "Qwen2VLImageProcessor", "max_pixels": 200704,
                     "min_pixels": 784, "fps": 2, "num_frames": 8})")
                ->most_pixels,
            200704);
  EXPECT_THAT(read(R"({"video_processor_type": "Qwen3VideoProcessor"})").error().message,
              AllOf(HasSubstr("dir/v.json"), HasSubstr("did you mean 'Qwen3VLVideoProcessor'?")));
  EXPECT_THAT(read(R"({"use_token_merging": true})").error().message,
              HasSubstr("key 'use_token_merging' (true) is not known, and it may change pixels"));
  EXPECT_THAT(read("[]").error().message, HasSubstr("no JSON object"));
  // SmolVLM's size of frames beside pictures; a size of the file itself wins.
  EXPECT_EQ(read(R"({"video_processor_type": "SmolVLMVideoProcessor", "video_sampling":
                     {"video_size": {"longest_edge": 512}}})")
                ->longest_edge,
            512);
  EXPECT_EQ(read(R"({"video_processor_type": "SmolVLMVideoProcessor", "size":
                     {"longest_edge": 2048}, "video_sampling": {"video_size":
                     {"longest_edge": 512}}})")
                ->longest_edge,
            2048);
  EXPECT_TRUE(Read(R"({"image_processor_type": "SmolVLMImageProcessor",
                       "video_sampling": {"fps": 1}})")
                  .ok());
}

TEST(Preprocess, ExtremeAspectsAreRefusedWherePatchesAreCut) {
  const Preprocessor qwen = *Read(R"({"image_processor_type": "Qwen2VLImageProcessor"})");
  EXPECT_THAT(Preprocess(qwen, Drawn(1, 201, 1)).error().message,
              HasSubstr("at most 200 times the other"));
}

// White where PartSeen says, black elsewhere: pixels are white.
TEST(PartSeen, IsWhatBecomesPixels) {
  const std::string size = R"("size": {"shortest_edge": 28}, "crop_size": 28)";
  const std::string plain = R"("image_mean": [0, 0, 0], "image_std": [1, 1, 1], )";
  for (const std::string& config :
       {Clip(plain + size),
        Clip(plain + R"("do_center_crop": false, "size": {"shortest_edge": 28})"),
        Clip(plain + R"("size": {"shortest_edge": 40}, "crop_size": 28)")}) {
    const Result<Preprocessor> p = Read(config);
    ASSERT_TRUE(p.ok()) << p.error().message;
    for (const auto& [width, height] : {std::pair(280, 140), {140, 280}, {100, 100}, {333, 91}}) {
      const SeenPart part = PartSeen(*p, height, width);
      Image image;
      image.width = width;
      image.height = height;
      for (int32_t y = 0; y < height; ++y) {
        for (int32_t x = 0; x < width; ++x) {
          const bool seen = x >= part.left && x < part.left + part.width && y >= part.top &&
                            y < part.top + part.height;
          image.rgb.insert(image.rgb.end(), 3, seen ? 255 : 0);
        }
      }
      const auto mean = [&](const Image& picture) {
        const Result<PixelValues> pixels = Preprocess(*p, picture);
        double sum = 0;
        for (const float value : pixels->values) sum += value;
        return sum / static_cast<double>(pixels->values.size());
      };
      EXPECT_GT(mean(image), 0.97) << config << width << " x " << height;
      for (uint8_t& level : image.rgb) level = static_cast<uint8_t>(255 - level);
      EXPECT_LT(mean(image), 0.03) << config << width << " x " << height;
    }
  }
  Preprocessor squares;
  squares.pad_to_square = true;
  const SeenPart part = PartSeen(squares, 50, 100);
  EXPECT_EQ(part.top, -25);
  EXPECT_EQ(part.width, 100);
  EXPECT_EQ(part.height, 100);
}

TEST(ReadPreprocessor, NamesFileKeyValueAndWhatIsRight) {
  EXPECT_THAT(ConfigErrorOf("{}"), AllOf(HasSubstr("dir/preprocessor_config.json"),
                                         HasSubstr("image_processor_type is missing")));
  EXPECT_THAT(ConfigErrorOf(R"({"image_processor_type": "ClipImageProcessor"})"),
              HasSubstr("did you mean 'CLIPImageProcessor'?"));
  EXPECT_THAT(ConfigErrorOf(Clip(R"("do_sharpen": true)")),
              HasSubstr("key 'do_sharpen' (true) is not known, and it may change pixels"));
  EXPECT_THAT(ConfigErrorOf(Clip(R"("resample": 9)")), HasSubstr("resample is 9; 0 nearest"));
  EXPECT_THAT(ConfigErrorOf(Clip(R"("image_std": [1, 0, 1])")), HasSubstr("three numbers"));
  EXPECT_THAT(ConfigErrorOf(Clip(R"("size": {"shortest_edge": -4})")),
              HasSubstr("a whole number from 1 to 16384 is right"));
  EXPECT_THAT(ConfigErrorOf(Clip(R"("do_resize": 1)")), HasSubstr("true or false is right"));
  EXPECT_THAT(ConfigErrorOf(R"({"image_processor_type": "LlavaNextImageProcessor",
                          "size": {"shortest_edge": 28}, "image_grid_pinpoints": [[28, 30]]})"),
              HasSubstr("multiples of the tile's side 28"));
  EXPECT_THAT(ConfigErrorOf(R"({"image_processor_type": "Gemma3ImageProcessor",
                          "do_pan_and_scan": true})"),
              HasSubstr("only false is supported"));
  EXPECT_THAT(ConfigErrorOf(R"({"image_processor_type": "Qwen2VLImageProcessor", "min_pixels": 9,
                          "max_pixels": 8})"),
              HasSubstr("min_pixels is 9; at most max_pixels, 8"));
}

TEST(ReadPreprocessor, FastClassesAreReadAsTheirSlowOnes) {
  EXPECT_TRUE(Read(R"({"image_processor_type": "CLIPImageProcessorFast"})").ok());
  EXPECT_TRUE(Read(R"({"feature_extractor_type": "CLIPFeatureExtractor"})").ok());
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "images/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "images/drawn.h"
#include "images/encode.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Golden(const std::string& file) {
  const Result<std::string> bytes = ReadFile(StrCat(KVG_TEST_DATA, "/golden/images/", file));
  EXPECT_TRUE(bytes.ok()) << file;
  return bytes.ok() ? *bytes : "";
}
Json Index() { return *ParseJson(Golden("decode.json"), "decode.json"); }

std::string ErrorOf(std::string_view bytes, const ImageLimits& limits = {}) {
  const Result<Image> image = DecodeImage(bytes, "there.jpg", limits);
  return image.ok() ? "" : image.error().message;
}

TEST(DecodeImage, EqualsPillow) {
  const Json index = Index();
  ASSERT_GE(index["cases"].size(), 30u);
  for (const Json& c : index["cases"]) {
    const std::string file = c["file"];
    const Result<Image> image = DecodeImage(Golden(file), file);
    ASSERT_TRUE(image.ok()) << image.error().message;
    EXPECT_EQ(image->width, c["width"].get<int32_t>()) << file;
    EXPECT_EQ(image->height, c["height"].get<int32_t>()) << file;
    EXPECT_EQ(HashOf(*image), c["sha256"].get<std::string>()) << file;
    const Result<ImageSize> size = ReadImageSize(Golden(file), file);
    ASSERT_TRUE(size.ok()) << file;
    EXPECT_EQ(size->width, image->width);
    EXPECT_EQ(size->height, image->height);
  }
}

TEST(DecodeGifFrames, EqualsPillowFrameByFrame) {
  const Json animated = Index()["animated"];
  const Result<std::vector<Image>> frames =
      DecodeGifFrames(Golden(animated["file"]), "animated.gif");
  ASSERT_TRUE(frames.ok()) << frames.error().message;
  ASSERT_EQ(frames->size(), animated["frames"].size());
  for (size_t i = 0; i < frames->size(); ++i) {
    EXPECT_EQ(HashOf((*frames)[i]), animated["frames"][i].get<std::string>()) << i;
  }
  EXPECT_THAT(DecodeGifFrames(Golden("png_rgb.png"), "x").error().message,
              HasSubstr("is no GIF (PNG)"));
  const Result<std::vector<Image>> few =
      DecodeGifFrames(Golden(animated["file"]), "animated.gif", {.frames = 2});
  ASSERT_TRUE(few.ok());
  EXPECT_EQ(few->size(), 2u);
}

// Whatever is cut off anywhere is an error that names the file, never a picture and never a crash.
TEST(DecodeImage, TruncatedFilesAreRefused) {
  const Json index = Index();
  for (const Json& c : index["cases"]) {
    const std::string file = c["file"], bytes = Golden(file);
    for (size_t keep = 0; keep + 12 < bytes.size(); keep += 1 + bytes.size() / 40) {
      const Result<Image> image = DecodeImage(std::string_view(bytes).substr(0, keep), file);
      ASSERT_FALSE(image.ok()) << file << ": " << keep << " of " << bytes.size();
      EXPECT_THAT(image.error().message, StartsWith(file));
    }
  }
}

TEST(DecodeImage, CorruptPixelsAreRefused) {
  std::string png = Golden("png_rgb.png");
  png[png.size() / 2] = static_cast<char>(png[png.size() / 2] ^ 0x55);
  EXPECT_THAT(ErrorOf(png), AllOf(StartsWith("there.jpg: "), HasSubstr("PNG is corrupt")));
  std::string jpeg = Golden("jpeg_75_444.jpg");
  jpeg.replace(jpeg.size() - 60, 20, std::string(20, '\xff'));
  EXPECT_THAT(ErrorOf(jpeg), HasSubstr("JPEG is corrupt"));
}

TEST(DecodeImage, OtherFormatsAreNamed) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("empty (0 bytes)"));
  EXPECT_THAT(ErrorOf("<!doctype html><html>404"), HasSubstr("holds text, not a picture"));
  EXPECT_THAT(ErrorOf(std::string("BM\0\0\0\0\x01", 7)), HasSubstr("BMP"));
  EXPECT_THAT(ErrorOf(std::string("II*\0\0\0\0\0", 8)), HasSubstr("TIFF"));
  EXPECT_THAT(ErrorOf(std::string("\0\0\0\x18"
                                  "ftypavif",
                                  12)),
              HasSubstr("HEIF or AVIF"));
  EXPECT_THAT(ErrorOf(std::string("\0\1\2\3", 4)), HasSubstr("no known picture"));
}

// The content decides, as in the reference; a wrong extension does no harm.
TEST(DecodeImage, TheNameHasNoSay) {
  EXPECT_EQ(HashOf(*DecodeImage(Golden("png_rgb.png"), "picture.jpg")),
            HashOf(*DecodeImage(Golden("ppm.ppm"), "picture.jpg")));
}

TEST(DecodeImage, SizesAreHeldAgainstLimitsBeforeAnythingIsAllocated) {
  const auto ppm = [](const std::string& size) { return "P6\n" + size + "\n255\n"; };
  EXPECT_THAT(ErrorOf(ppm("0 5")), HasSubstr("0 x 5 pixels: nothing to see"));
  EXPECT_THAT(ErrorOf(ppm("1 100000")), HasSubstr("no side may exceed 65,500"));
  EXPECT_THAT(ErrorOf(ppm("60000 60000")), HasSubstr("at most 178,956,970 pixels"));
  EXPECT_THAT(ErrorOf(ppm("9999999999999999999 1")), HasSubstr("no width"));
  EXPECT_THAT(ErrorOf(ppm("60 60")), HasSubstr("truncated: 0 of 10800 bytes"));
  for (const char* file :
       {"jpeg_75_444.jpg", "png_rgb.png", "webp_lossy.webp", "gif.gif", "ppm.ppm"}) {
    EXPECT_THAT(ErrorOf(Golden(file), {.pixels = 33 * 17 - 1}), HasSubstr("at most 560 pixels"))
        << file;
    EXPECT_THAT(ErrorOf(Golden(file), {.side = 32}), HasSubstr("no side may exceed 32")) << file;
    EXPECT_EQ(ErrorOf(Golden(file), {.pixels = 33 * 17, .side = 33}), "") << file;
  }
}

TEST(DecodeImage, AProgressiveJpegMayNotHaveEndlesslyManyScans) {
  EXPECT_THAT(ErrorOf(Golden("jpeg_75_444_progressive.jpg"), {.scans = 3}),
              HasSubstr("more than 3 scans"));
}

// Scans that come again and again, as in a bomb: refused long before the file ends.
TEST(DecodeImage, AProgressiveBombIsRefused) {
  const std::string jpeg = Golden("jpeg_75_444_progressive.jpg");
  const size_t begin = jpeg.rfind("\xff\xda"), end = jpeg.size() - 2;  // the last scan
  ASSERT_NE(begin, std::string::npos);
  std::string bomb = jpeg.substr(0, end);
  for (int i = 0; i < 20'000; ++i) bomb += jpeg.substr(begin, end - begin);
  bomb += jpeg.substr(end);
  EXPECT_THAT(ErrorOf(bomb), AllOf(StartsWith("there.jpg: "), HasSubstr("JPEG is corrupt")));
}

TEST(DecodeImage, PicturesWithoutPixelsAreRefused) {
  const auto png = [](uint32_t width, uint32_t height) {
    std::string bytes = Golden("png_rgb.png");
    for (int i = 0; i < 4; ++i) {
      bytes[static_cast<size_t>(16 + i)] = static_cast<char>(width >> (24 - 8 * i));
      bytes[static_cast<size_t>(20 + i)] = static_cast<char>(height >> (24 - 8 * i));
    }
    return bytes;
  };
  // The sum behind the header is no longer right, and a size of nothing is not looked past.
  for (const auto& [width, height] : {std::pair(0, 5), {5, 0}, {0, 0}}) {
    EXPECT_THAT(ErrorOf(png(width, height)), AllOf(StartsWith("there.jpg: "), HasSubstr("PNG")));
    std::string gif = Golden("gif.gif");
    gif[6] = static_cast<char>(width);
    gif[8] = static_cast<char>(height);
    gif[7] = gif[9] = 0;
    EXPECT_THAT(ErrorOf(gif), AllOf(StartsWith("there.jpg: "), HasSubstr("nothing to see")));
  }
  std::string jpeg = Golden("jpeg_75_444.jpg");
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  jpeg[frame + 5] = jpeg[frame + 6] = 0;
  EXPECT_THAT(ErrorOf(jpeg), AllOf(StartsWith("there.jpg: "), HasSubstr("JPEG")));
}

TEST(DecodeImage, GreyOfSixteenBitsIsRefused) {
  EXPECT_THAT(ErrorOf(Golden("refused_grey_16.png")),
              AllOf(StartsWith("there.jpg: "), HasSubstr("grey with 16 bits"),
                    HasSubstr("convert it to 8 bits")));
}

// A picture that moves shows its first frame, where that is one of its own.
TEST(DecodeImage, AnimatedPicturesShowTheirFirstFrame) {
  const Json animated = Index()["animated"];
  const Result<Image> first = DecodeImage(Golden(animated["file"]), "animated.gif");
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(HashOf(*first), animated["frames"][0].get<std::string>());
  EXPECT_THAT(ErrorOf(Golden("refused_animated.webp")),
              AllOf(StartsWith("there.jpg: "), HasSubstr("WebP is animated")));
}

TEST(EncodeImage, ComesBack) {
  const Image image = Drawn(37, 21, 5);
  EXPECT_EQ(*DecodeImage(*EncodePng(image), "png"), image);
  EXPECT_EQ(*DecodeImage(*EncodePng(image, 0), "png"), image);
  EXPECT_EQ(*DecodeImage(EncodePpm(image), "ppm"), image);
  const Result<Image> jpeg = DecodeImage(*EncodeJpeg(image, 95), "jpeg");
  ASSERT_TRUE(jpeg.ok());
  EXPECT_EQ(jpeg->width, 37);
  EXPECT_EQ(jpeg->height, 21);
}

}  // namespace
}  // namespace kvgauge

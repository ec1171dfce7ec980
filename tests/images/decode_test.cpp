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

TEST(DecodeImage, GreyOfSixteenBitsIsRefused) {
  // A 1 x 1 picture of 16-bit grey, made by libpng.
  const std::string png("\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1\x10\0\0\0\0\x6a\xf2\xe0\xbb",
                        33);
  EXPECT_THAT(ErrorOf(png), HasSubstr("PNG"));
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

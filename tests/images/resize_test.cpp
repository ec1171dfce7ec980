// SPDX-License-Identifier: Apache-2.0
#include "images/resize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "images/drawn.h"

namespace kvgauge {
namespace {

ResizeFilter FilterNamed(const std::string& name) {
  for (int number = 0; number < 6; ++number) {
    if (NameOf(*ResizeFilterOf(number)) == name) return *ResizeFilterOf(number);
  }
  ADD_FAILURE() << name;
  return ResizeFilter::kBox;
}

// 60 sizes chosen by hand and 500 drawn ones, all filters: what Pillow 12 gives, bit for bit.
TEST(Resize, EqualsPillow) {
  const Result<std::string> text = ReadFile(StrCat(KVG_TEST_DATA, "/golden/images/resize.json"));
  ASSERT_TRUE(text.ok()) << text.error().message;
  const Result<Json> golden = ParseJson(*text, "resize.json");
  ASSERT_TRUE(golden.ok());
  ASSERT_EQ((*golden)["cases"].size(), 560u);
  for (const Json& c : (*golden)["cases"]) {
    const Image out = Resize(Drawn(c[0], c[1], c[2]), c[3], c[4], FilterNamed(c[5]));
    ASSERT_EQ(out.width, c[3].get<int32_t>());
    ASSERT_EQ(out.height, c[4].get<int32_t>());
    EXPECT_EQ(HashOf(out), c[6].get<std::string>()) << c.dump();
  }
}

TEST(Resize, NumbersOfPillowNameFilters) {
  EXPECT_EQ(*ResizeFilterOf(0), ResizeFilter::kNearest);
  EXPECT_EQ(*ResizeFilterOf(3), ResizeFilter::kBicubic);
  EXPECT_THAT(ResizeFilterOf(6).error().message, ::testing::HasSubstr("resample is 6"));
  EXPECT_FALSE(ResizeFilterOf(-1).ok());
}

// The order matters only where both axes shrink, and height by more than twice as much.
TEST(Resize, PassOrderIsAChoice) {
  const Image tall = Drawn(60, 400, 3);
  EXPECT_NE(Resize(tall, 30, 40, ResizeFilter::kBicubic, PassOrder::kPillow13),
            Resize(tall, 30, 40, ResizeFilter::kBicubic));
  const Image wide = Drawn(400, 60, 3);
  EXPECT_EQ(Resize(wide, 30, 40, ResizeFilter::kBicubic, PassOrder::kPillow13),
            Resize(wide, 30, 40, ResizeFilter::kBicubic));
}

TEST(Crop, IsBlackOutside) {
  Image image = Image::OfSize(2, 2);
  std::fill(image.rgb.begin(), image.rgb.end(), uint8_t{9});
  const Image out = Crop(image, -1, 1, 3, 2);
  EXPECT_EQ(out.width, 3);
  EXPECT_EQ(out.height, 2);
  EXPECT_THAT(out.rgb, ::testing::ElementsAre(0, 0, 0, 9, 9, 9, 9, 9, 9,  //
                                              0, 0, 0, 0, 0, 0, 0, 0, 0));
  EXPECT_THAT(Crop(image, 5, 5, 1, 1).rgb, ::testing::Each(0));
}

TEST(Pad, KeepsTheImageWhereItIsPut) {
  Image image = Image::OfSize(1, 1);
  image.rgb = {7, 8, 9};
  const Image out = Pad(image, 1, 0, 2, 2, {1, 2, 3});
  EXPECT_THAT(out.rgb, ::testing::ElementsAre(1, 2, 3, 7, 8, 9, 1, 2, 3, 1, 2, 3));
  EXPECT_EQ(Crop(out, 1, 0, 1, 1), image);
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "core/strings.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/last_number.h"

namespace kvgauge {
namespace {

// One U+FFFD for each maximal part, as Python's bytes.decode("utf-8", "replace") gives.
TEST(Strings, RepairsUtf8ByMaximalParts) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\xe2\x82", "?"},
      {"\xe2\x82"
       "A",
       "?A"},
      {"\xf0\x9f\x98", "?"},
      {"\xf0\x9f\x98x\xf0\x9f", "?x?"},
      {"\xed\xa0\x80", "???"},
      {"\xc0\x80", "??"},
      {"\xe0\x80\x80", "???"},
      {"\xf0\x80\x80\x80", "????"},
      {"\xf4\x90\x80\x80", "????"},
      {"\xf5\x80", "??"},
      {"\xe2\x82\xe2\x82\xac", "?\u20ac"},
      {"\xc3\xc3\xa9", "?\u00e9"},
      {"\x80\xbf", "??"},
      {"\xf0\x90\x80\xf0\x90\x80\x80", "?\U00010000"},
      {"plain ascii \xe2\x82 behind", "plain ascii ? behind"}};
  for (const auto& [bytes, marked] : cases) {
    std::string want;
    for (const char c : marked) {
      if (c == '?') {
        want += "\ufffd";
      } else {
        want += c;
      }
    }
    EXPECT_EQ(RepairUtf8(bytes), want) << marked;
  }
}

TEST(Strings, TheLastNumberOfAName) {
  EXPECT_EQ(LastNumber("12"), 12);
  EXPECT_EQ(LastNumber("007"), 7);
  EXPECT_EQ(LastNumber("clip2_0012b"), 12);
  EXPECT_EQ(LastNumber("-3"), 3);
  EXPECT_EQ(LastNumber(""), std::nullopt);
  EXPECT_EQ(LastNumber("cover"), std::nullopt);
  EXPECT_EQ(LastNumber("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(LastNumber("1_9223372036854775808"), std::nullopt);
}

TEST(Strings, Helpers) {
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1023 * 1024 + 900), "1023.9 KiB");
  EXPECT_EQ(HumanBytes(1024 * 1024 - 1), "1.0 MiB");
  EXPECT_EQ(WithCommas(-1234567), "-1,234,567");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(Split("a,,b", ','), (std::vector<std::string>{"a", "", "b"}));
  EXPECT_EQ(Trim(" \tx y\n"), "x y");
  EXPECT_EQ(NearestName("snapkw", {"h2o", "snapkv"}), "snapkv");
  EXPECT_EQ(NearestName("ROUGE-L", {"bleu", "rouge_l", "rouge_l_zh"}), "rouge_l");
  EXPECT_EQ(NearestName("zzzzzz", {"h2o", "snapkv"}), std::nullopt);
  EXPECT_EQ(FindInvalidUtf8("a\xc3\xa9\xf0\x9f\x98\x80"), std::string_view::npos);
  EXPECT_EQ(FindInvalidUtf8("a\xed\xa0\x80"), 1u);  // surrogate
  EXPECT_EQ(FindInvalidUtf8("\xc0\x80"), 0u);       // overlong
  EXPECT_EQ(RepairUtf8("a\xff"), "a\xef\xbf\xbd");
  std::string text;
  AppendUtf8(text, 0x1f600);
  EXPECT_EQ(text, "\xf0\x9f\x98\x80");
  EXPECT_EQ(Quoted("a\nb"), "'a\\nb'");
}

}  // namespace
}  // namespace kvgauge

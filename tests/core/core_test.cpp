// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "core/clock.h"
#include "core/dtype.h"
#include "core/files.h"
#include "core/json.h"
#include "core/npy.h"
#include "core/params.h"
#include "core/rng.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "core/threads.h"

namespace kvgauge {
namespace {

TEST(Result, CarriesValueOrError) {
  const Result<int> good = 3;
  const Result<int> bad = BadInput("x.json: key 'a': 5, expected 1 to 4");
  EXPECT_TRUE(good.ok());
  EXPECT_EQ(*good, 3);
  EXPECT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().Wrap("loading").message, "loading: x.json: key 'a': 5, expected 1 to 4");
}

TEST(Sha256, KnownDigests) {
  EXPECT_EQ(Sha256Hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256Hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Sha256Hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  Sha256 pieces;
  const std::string million(1000, 'a');
  for (int i = 0; i < 1000; ++i) pieces.Update(million.data(), million.size());
  EXPECT_EQ(pieces.Finish(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Rng, MatchesPublishedPhiloxVectors) {
  // Random123 known answers for philox4x32-10.
  const std::array<uint32_t, 4> zeros = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  EXPECT_EQ(Rng(0, 0).At(0), zeros);
  const std::array<uint32_t, 4> ones = {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  EXPECT_EQ(Rng(~0ull, ~0ull).At(~0ull), ones);
}

TEST(Rng, StreamsDifferAndRepeat) {
  Rng a(1, 2), b(1, 2), c(1, 3);
  const uint64_t first = a.NextU64();
  EXPECT_EQ(first, b.NextU64());
  EXPECT_NE(first, c.NextU64());
  double sum = 0, squares = 0;
  for (int i = 0; i < 20000; ++i) {
    const double g = a.NextGaussian();
    sum += g;
    squares += g * g;
    EXPECT_LT(a.NextBelow(7), 7u);
  }
  EXPECT_NEAR(sum / 20000, 0, 0.03);
  EXPECT_NEAR(squares / 20000, 1, 0.05);
}

TEST(DType, F16RoundTripsEveryPattern) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = F16ToF32(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(F16ToF32(F32ToF16(value))));
    } else {
      EXPECT_EQ(F32ToF16(value), bits);
    }
  }
}

TEST(DType, RoundsToNearestEven) {
  EXPECT_EQ(F32ToF16(1.0f + 0x1p-11f), 0x3c00);      // tie: down to even
  EXPECT_EQ(F32ToF16(1.0f + 3 * 0x1p-11f), 0x3c02);  // tie: up to even
  EXPECT_EQ(F32ToF16(65519.0f), 0x7bff);             // largest that stays finite
  EXPECT_EQ(F32ToF16(65520.0f), 0x7c00);             // halfway goes to infinity
  EXPECT_EQ(F32ToF16(0x1p-25f), 0x0000);             // tie with zero
  EXPECT_EQ(F32ToF16(-0x1.8p-24f), 0x8002);          // subnormal tie to even
  EXPECT_EQ(F32ToBf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(F32ToBf16(1.0f + 3 * 0x1p-8f), 0x3f82);
  EXPECT_EQ(F32ToBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(Bf16ToF32(F32ToBf16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Json, RefusesWhatFilesLieAbout) {
  const auto message = [](std::string_view text) {
    const Result<Json> parsed = ParseJson(text, "f.json");
    return parsed.ok() ? std::string("ok") : parsed.error().message;
  };
  EXPECT_EQ(message(R"({"a": [1, {"b": null}]})"), "ok");
  EXPECT_EQ(message(R"({"a": 1, "a": 2})"), "f.json: key 'a' occurs twice in one object");
  EXPECT_THAT(message("{\"a\": 1} x"), ::testing::HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(message("{\"a\": \"\xff\"}"), ::testing::HasSubstr("f.json"));
  EXPECT_THAT(message(""), ::testing::HasSubstr("f.json"));
  // Nothing behind a NUL byte is left out without a word.
  EXPECT_THAT(message(std::string_view("{\"a\": 1}\0{\"b\": 2}", 17)),
              ::testing::HasSubstr("not valid JSON at byte 9, near '<U+0000>'"));
  EXPECT_THAT(message(std::string(100000, '[')), ::testing::HasSubstr("nested deeper than 256"));
}

TEST(Json, CanonicalFormIsStable) {
  const Result<Json> a = ParseJson(R"({ "b": 1.50, "a": [true, "x"] })", "a");
  EXPECT_EQ(CanonicalJson(*a), R"({"a":[true,"x"],"b":1.5})");
}

TEST(Params, FillsChecksAndNamesNearMisses) {
  const std::vector<ParamSpec> specs = {
      IntParam("window", 32, 1, 4096, "last queries"),
      RealParam("ratio", 0.5, 0, 1, "kept share"),
      ChoiceParam("pool", "avg", {"avg", "max"}, "pooling"),
      BoolParam("causal", true, "mask inside the window"),
  };
  const auto parse = [&](const char* text) {
    return Params::Parse(specs, *ParseJson(text, "t"), "m.json: score");
  };
  const Result<Params> good = parse(R"({"window": 8, "ratio": 1})");
  ASSERT_TRUE(good.ok()) << good.error().message;
  EXPECT_EQ(good->Int("window"), 8);
  EXPECT_EQ(good->Real("ratio"), 1.0);
  EXPECT_EQ(good->Text("pool"), "avg");
  EXPECT_TRUE(good->Bool("causal"));
  EXPECT_EQ(CanonicalJson(good->ToJson()),
            R"({"causal":true,"pool":"avg","ratio":1.0,"window":8})");
  EXPECT_THAT(parse(R"({"windw": 8})").error().message,
              ::testing::HasSubstr("unknown parameter 'windw' (did you mean 'window'?)"));
  EXPECT_THAT(
      parse(R"({"window": 0})").error().message,
      ::testing::HasSubstr("m.json: score.window: 0 is not valid; expected int in [1, 4096]"));
  EXPECT_FALSE(parse(R"({"pool": "sum"})").ok());
  EXPECT_FALSE(parse(R"({"causal": 1})").ok());
  EXPECT_FALSE(parse(R"({"window": 8.5})").ok());
  EXPECT_FALSE(parse(R"({"window": 18446744073709551615})").ok());
}

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

TEST(Strings, Helpers) {
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
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

TEST(Files, MissingAndDirectoriesAreErrors) {
  EXPECT_THAT(ReadFile("/no/such/file").error().message, ::testing::HasSubstr("/no/such/file"));
  EXPECT_THAT(ReadFile("/").error().message, ::testing::HasSubstr("directory"));
  EXPECT_FALSE(MappedFile::Open("/").ok());
  EXPECT_FALSE(MappedFile::Open("/no/such/file").ok());
}

TEST(Files, WriteReplacesWhole) {
  const std::string path = ::testing::TempDir() + "kvg_write_test";
  ASSERT_TRUE(WriteFile(path, "one").ok());
  ASSERT_TRUE(WriteFile(path, "second").ok());
  EXPECT_EQ(*ReadFile(path), "second");
  EXPECT_FALSE(ReadFile(path, 3).ok());
  const auto mapped = MappedFile::Open(path);
  ASSERT_TRUE(mapped.ok());
  EXPECT_EQ((*mapped)->bytes().size(), 6u);
  std::filesystem::remove(path);
  EXPECT_FALSE(WriteFile("/no/such/dir/x", "y").ok());
}

TEST(Npy, HeaderIsAligned) {
  const std::string path = ::testing::TempDir() + "kvg_test.npy";
  Result<NpyWriter> writer = NpyWriter::Create(path, 2, 3);
  ASSERT_TRUE(writer.ok());
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  EXPECT_FALSE(writer->Finish().ok());  // rows are missing
  ASSERT_TRUE(writer->Append(values).ok());
  ASSERT_TRUE(writer->Finish().ok());
  const std::string content = *ReadFile(path);
  const size_t header =
      10 + static_cast<uint8_t>(content[8]) + 256 * static_cast<uint8_t>(content[9]);
  EXPECT_EQ(header % 64, 0u);
  EXPECT_EQ(content.size(), header + 24);
  EXPECT_THAT(content, ::testing::HasSubstr("'shape': (2, 3)"));
  std::filesystem::remove(path);
}

TEST(Clock, OthersShareIsBounded) {
  EXPECT_EQ(OthersShare({0, 0}, {1.0, 1.0}, 1.0, 2), 0.0);
  EXPECT_DOUBLE_EQ(OthersShare({0, 0}, {1.0, 2.0}, 1.0, 2), 0.5);
  EXPECT_GE(AvailableProcessors(), 1);
  EXPECT_EQ(MakeThreadSettings(3).threads, 3);
  EXPECT_EQ(MakeThreadSettings(0).threads, AvailableProcessors());
}

}  // namespace
}  // namespace kvgauge

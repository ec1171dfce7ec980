// SPDX-License-Identifier: Apache-2.0
#include "core/json.h"

#include <gmock/gmock.h>

#include <string>

#include "core/result.h"
#include "core/short_json.h"

namespace kvgauge {
namespace {

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

TEST(Json, LongValuesAreCutForMessages) {
  EXPECT_EQ(ShortJson(Json("it's\n")), R"("it's\n")");
  EXPECT_EQ(ShortJson(Json(std::string(58, 'a'))), "\"" + std::string(58, 'a') + "\"");
  EXPECT_EQ(ShortJson(Json(std::string(59, 'a'))), "\"" + std::string(59, 'a') + "...");
  // Within a character.
  EXPECT_EQ(ShortJson(Json("a" + std::string(57, 'b') + "\u00fc\u00fc")),
            "\"a" + std::string(57, 'b') + "\uFFFD...");
}

TEST(Json, CanonicalFormIsStable) {
  const Result<Json> a = ParseJson(R"({ "b": 1.50, "a": [true, "x"] })", "a");
  EXPECT_EQ(CanonicalJson(*a), R"({"a":[true,"x"],"b":1.5})");
}

}  // namespace
}  // namespace kvgauge

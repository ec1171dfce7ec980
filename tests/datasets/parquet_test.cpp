// SPDX-License-Identifier: Apache-2.0
// Rows of Parquet files against what PyArrow reads from them, and files that lie.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "datasets/sample_stream.h"
#include "datasets/task.h"
#include "src/parquet/reader.h"
#include "src/records.h"

namespace kvgauge {
namespace {

using parquet::Reader;
using ::testing::HasSubstr;

std::string GoldenPath(const std::string& file) {
  return StrCat(KVG_TEST_DATA, "/golden/parquet/", file);
}

// As the goldens show what JSON does not have.
Json Shown(const Json& value) {
  if (value.is_binary()) {
    constexpr std::string_view kHex = "0123456789abcdef";
    std::string hex;
    for (const uint8_t byte : value.get_binary()) {
      hex.append(1, kHex[byte / 16]).append(1, kHex[byte % 16]);
    }
    return {{"$bytes", hex}};
  }
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const double number = value.get<double>();
    return {{"$number", std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf"}};
  }
  Json out = value;
  if (out.is_structured()) {
    for (Json& inner : out) inner = Shown(inner);
  }
  return out;
}

class ParquetGolden : public ::testing::TestWithParam<const char*> {};

TEST_P(ParquetGolden, RowsAreThoseOfPyArrow) {
  const auto reader = Reader::Open(GoldenPath(StrCat(GetParam(), ".parquet")));
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  std::ifstream lines(GoldenPath(StrCat(GetParam(), ".jsonl")));
  int64_t rows = 0;
  for (std::string line; std::getline(lines, line); ++rows) {
    const Result<std::optional<Json>> row = (*reader)->Next();
    ASSERT_TRUE(row.ok()) << row.error().message;
    ASSERT_TRUE(row->has_value()) << "row " << rows;
    ASSERT_EQ(Shown(**row), Json::parse(line)) << "row " << rows;
  }
  EXPECT_EQ((*reader)->rows(), rows);
  EXPECT_GT(rows, 0);
  const Result<std::optional<Json>> end = (*reader)->Next();
  ASSERT_TRUE(end.ok()) << end.error().message;
  EXPECT_FALSE(end->has_value());
}

INSTANTIATE_TEST_SUITE_P(Files, ParquetGolden,
                         ::testing::Values("plain", "nulls", "dictionary", "images", "lists",
                                           "version2", "deltas", "meanings", "old_lists"),
                         [](const auto& file) { return std::string(file.param); });

class Parquet : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::path(::testing::TempDir()) /
            StrCat("parquet_", getpid(), "_",
                   ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".parquet");
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::string Write(std::string_view bytes) const {
    std::ofstream(path_, std::ios::binary) << bytes;
    return path_.string();
  }
  // "" where all rows can be read.
  static std::string Fault(const std::string& path, const parquet::Limits& limits = {}) {
    const auto reader = Reader::Open(path, limits);
    if (!reader.ok()) return reader.error().message;
    while (true) {
      const Result<std::optional<Json>> row = (*reader)->Next();
      if (!row.ok()) {
        EXPECT_TRUE((*reader)->Next().ok()) << "an error ends the file";
        return row.error().message;
      }
      if (!row->has_value()) return "";
    }
  }

  std::filesystem::path path_;
};

TEST_F(Parquet, UnknownCodecsAreNamed) {
  EXPECT_THAT(Fault(GoldenPath("refused_brotli.parquet")),
              HasSubstr("column 'options.list.element' is compressed with Brotli; none, Snappy, "
                        "Gzip and Zstd are read"));
  EXPECT_THAT(Fault(GoldenPath("refused_lz4.parquet")), HasSubstr("is compressed with LZ4"));
}

TEST_F(Parquet, FilesThatAreNoneOrAreCutAreNamed) {
  EXPECT_THAT(Fault(Write("")), HasSubstr("does not end in \"PAR1\""));
  EXPECT_THAT(Fault(Write("{\"a\": 1}\n{\"a\": 2}\n")), HasSubstr("no whole Parquet file"));
  EXPECT_THAT(Fault(::testing::TempDir()), HasSubstr("is a directory"));
  EXPECT_THAT(Fault("/nowhere.parquet"), HasSubstr("/nowhere.parquet"));
  const std::string whole = *ReadFile(GoldenPath("images.parquet"));
  EXPECT_THAT(Fault(Write(whole.substr(0, whole.size() / 2))), HasSubstr("\"PAR1\""));
  // The footer is there, what it points at is not.
  EXPECT_THAT(Fault(Write("PAR1" + whole.substr(whole.size() / 2))), HasSubstr("cut short"));
  EXPECT_THAT(Fault(Write(StrCat("PAR1", std::string("\xff\xff\x00\x00", 4), "PAR1"))),
              HasSubstr("says that its footer has 65535 bytes, the file has 12"));
}

// Whatever byte is wrong, the answer is rows or one error with the file's name.
TEST_F(Parquet, AnyWrongByteIsAnErrorOrOtherRows) {
  for (const char* name : {"lists", "version2", "deltas", "dictionary"}) {
    const std::string whole = *ReadFile(GoldenPath(StrCat(name, ".parquet")));
    int64_t refused = 0;
    for (size_t at = 0; at < whole.size(); at += 37) {
      std::string bytes = whole;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << at % 8));
      const std::string fault = Fault(Write(bytes), {.page_bytes = 1 << 20, .row_bytes = 1 << 20});
      if (!fault.empty()) {
        ++refused;
        ASSERT_THAT(fault, HasSubstr(path_.string()));
      }
    }
    EXPECT_GT(refused, 10) << name;
  }
}

TEST_F(Parquet, ChecksumsAreChecked) {
  std::string bytes = *ReadFile(GoldenPath("version2.parquet"));
  bytes[200] = static_cast<char>(bytes[200] ^ 1);
  EXPECT_THAT(Fault(Write(bytes)), HasSubstr("whose checksum is wrong"));
}

TEST_F(Parquet, LimitsAreToldBeforeMemoryIsTaken) {
  EXPECT_THAT(Fault(GoldenPath("plain.parquet"), {.page_bytes = 1000}),
              HasSubstr("pages up to 1000 B are read"));
  EXPECT_THAT(Fault(GoldenPath("plain.parquet"), {.row_bytes = 100}),
              HasSubstr("row 1 is longer than"));
  EXPECT_THAT(Fault(GoldenPath("plain.parquet"), {.footer_bytes = 100}),
              HasSubstr("its footer has"));
}

TEST_F(Parquet, RecordsAreRows) {
  const auto reader = RecordReader::Open(GoldenPath("old_lists.parquet"), Container::kParquet);
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  const auto first = (*reader)->Next();
  ASSERT_TRUE(first.ok());
  EXPECT_EQ((*first)->value, Json::parse(R"({"options": ["a", "b"]})"));
  EXPECT_EQ((*first)->where, StrCat(GoldenPath("old_lists.parquet"), ": row 1"));
  EXPECT_EQ((*first)->number, 1);
}

}  // namespace
}  // namespace kvgauge

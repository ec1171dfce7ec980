// SPDX-License-Identifier: Apache-2.0
// Tables of cells: what pandas reads is read, what is broken is named by file, row and column.
#include "src/delimited.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/strings.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Delimited : public ::testing::Test {
 protected:
  Delimited()
      : path_(std::filesystem::path(::testing::TempDir()) /
              StrCat("delimited_", getpid(), "_",
                     ::testing::UnitTest::GetInstance()->current_test_info()->name(), ".tsv")) {}
  ~Delimited() override { std::filesystem::remove(path_); }

  std::unique_ptr<DelimitedReader> Open(const std::string& content, char separator = '\t',
                                        const std::vector<std::string>& located = {},
                                        int64_t most = kMaxCellBytes) {
    std::ofstream(path_, std::ios::binary) << content;
    auto reader = DelimitedReader::Open(path_.string(), separator, located, most);
    EXPECT_TRUE(reader.ok()) << (reader.ok() ? "" : reader.error().message);
    return reader.ok() ? *std::move(reader) : nullptr;
  }
  static std::vector<std::string> Texts(DelimitedReader& reader) {
    const auto row = reader.Next();
    EXPECT_TRUE(row.ok()) << (row.ok() ? "" : row.error().message);
    std::vector<std::string> texts;
    if (!row.ok() || !*row) return texts;
    for (const Cell& cell : **row) texts.push_back(cell.text);
    return texts;
  }
  static std::string Fault(DelimitedReader& reader) {
    const auto row = reader.Next();
    return row.ok() ? "" : row.error().message;
  }

  std::filesystem::path path_;
};

TEST_F(Delimited, QuotedCellsHoldSeparatorsLineBreaksAndQuotes) {
  auto reader = Open(
      "\xef\xbb\xbf"
      "a\tb\tc\r\n"
      "1\t\"two\tand \"\"2\"\"\nnext\"\tthree\r\n"
      "\n"
      "   \n"
      "\t\"\"\tan \"inner\" quote\r"
      "\"x\"y\t z \t\xc3\xa9");
  EXPECT_THAT(reader->columns(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(Texts(*reader), ElementsAre("1", "two\tand \"2\"\nnext", "three"));
  EXPECT_THAT(Texts(*reader), ElementsAre("", "", "an \"inner\" quote"));
  EXPECT_THAT(Texts(*reader), ElementsAre("xy", " z ", "\xc3\xa9"));
  EXPECT_EQ(reader->row(), 3);
  EXPECT_THAT(Texts(*reader), ElementsAre());
}

TEST_F(Delimited, NamesAreThoseOfPandas) {
  auto reader = Open(",x,x,x.1\n1,2,3,4\n", ',');
  EXPECT_THAT(reader->columns(), ElementsAre("Unnamed: 0", "x", "x.1", "x.1.1"));
  EXPECT_THAT(Texts(*reader), ElementsAre("1", "2", "3", "4"));
}

// The time for a line of names grows with its length, whatever the names are.
TEST_F(Delimited, ManyNamesAndManyEqualNamesAreRead) {
  constexpr size_t kMany = 60000;
  std::string names, equal;
  for (size_t i = 0; i < kMany; ++i) {
    names += StrCat(i == 0 ? "" : ",", "c", i);
    equal += i == 0 ? "x" : ",x";
  }
  EXPECT_EQ(Open(names + "\n", ',')->columns().size(), kMany);
  EXPECT_EQ(Open(equal + "\n", ',')->columns().back(), StrCat("x.", kMany - 1));
}

TEST_F(Delimited, LongCellsOfLocatedColumnsArePlaces) {
  const std::string picture(100, 'Q'), other(70, 'R');
  const std::string content =
      "i\timage\tq\n0\t" + picture + "\twhat\n1\t0\twho\n2\t\"" + other + "\"\twhere\n3\t\twhy\n";
  auto reader = Open(content, '\t', {"image", "none"});
  const auto cell = [&] { return (*reader->Next())->at(1); };
  const Cell plain = cell();
  ASSERT_TRUE(plain.place.has_value());
  EXPECT_EQ(plain.text, "");
  EXPECT_EQ(content.substr(static_cast<size_t>(plain.place->at), 100), picture);
  EXPECT_EQ(plain.place->bytes, 100);
  EXPECT_EQ(cell().text, "0");
  const Cell quoted = cell();
  ASSERT_TRUE(quoted.place.has_value());
  EXPECT_EQ(content.substr(static_cast<size_t>(quoted.place->at), 70), other);
  EXPECT_EQ(quoted.place->bytes, 70);
  EXPECT_TRUE(quoted.place->quoted);
  const Cell empty = cell();
  EXPECT_FALSE(empty.place.has_value());
  EXPECT_EQ(empty.text, "");
}

TEST_F(Delimited, FaultsNameFileRowAndColumn) {
  auto reader = Open("a\tb\n1\n2\t3\t4\t5\n6\t\xff\n7\t8\n");
  EXPECT_THAT(Fault(*reader), AllOf(HasSubstr(path_.string()), HasSubstr("row 1: column 'a'"),
                                    HasSubstr("1 cells"), HasSubstr("2 columns")));
  EXPECT_THAT(Fault(*reader), AllOf(HasSubstr("row 2: column 'b'"), HasSubstr("4 cells")));
  EXPECT_THAT(Fault(*reader), AllOf(HasSubstr("row 3: column 'b'"), HasSubstr("UTF-8")));
  EXPECT_THAT(Texts(*reader), ElementsAre("7", "8"));
  EXPECT_FALSE(reader->broken());
}

TEST_F(Delimited, ACellBeyondTheLimitIsRefusedAndPassedOver) {
  const std::string large(1 << 20, 'x');
  for (const bool located : {false, true}) {
    auto reader =
        Open("a\timage\n1\t\"" + large + "\"\n2\tshort\n", '\t',
             located ? std::vector<std::string>{"image"} : std::vector<std::string>{}, 1 << 16);
    EXPECT_THAT(Fault(*reader), AllOf(HasSubstr("row 1: column 'image'"), HasSubstr("64.0 KiB")));
    EXPECT_THAT(Texts(*reader), ElementsAre("2", "short"));
  }
}

TEST_F(Delimited, TheTextsOfARowAreBoundedTogether) {
  const std::string half(40000, 'x');
  auto reader = Open("a\tb\n" + half + "\t" + half + "\n1\t2\n", '\t', {}, 1 << 16);
  EXPECT_THAT(Fault(*reader), HasSubstr("row 1: column 'b'"));
  EXPECT_THAT(Texts(*reader), ElementsAre("1", "2"));
}

TEST_F(Delimited, AQuoteThatIsNeverClosedEndsTheFile) {
  auto reader = Open("a\tb\n1\t\"two\n3\t4\n");
  EXPECT_THAT(Fault(*reader), AllOf(HasSubstr("row 1: column 'b'"), HasSubstr("byte 6"),
                                    HasSubstr("never closed")));
  EXPECT_TRUE(reader->broken());
  EXPECT_THAT(Texts(*reader), ElementsAre());
}

TEST_F(Delimited, MissingValuesAreThoseOfPandas) {
  for (const char* text : {"", "NA", "N/A", "NaN", "nan", "None", "null", "NULL", "n/a", "<NA>"}) {
    EXPECT_TRUE(IsMissingCell(text)) << text;
  }
  for (const char* text : {" ", "none", "Na", "0", "-"}) EXPECT_FALSE(IsMissingCell(text)) << text;
}

TEST_F(Delimited, AnEmptyFileAndADirectoryAreErrors) {
  std::ofstream(path_, std::ios::binary) << "\n \n";
  EXPECT_FALSE(DelimitedReader::Open(path_.string(), '\t', {}).ok());
  EXPECT_FALSE(DelimitedReader::Open(::testing::TempDir(), '\t', {}).ok());
}

}  // namespace
}  // namespace kvgauge

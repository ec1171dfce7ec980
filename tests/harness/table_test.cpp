// SPDX-License-Identifier: Apache-2.0
#include "src/cli/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TextTable Example() {
  TextTable table;
  table.columns = {{"name"}, {"n", true, 5}, {"empty"}, {"note", false, 1}};
  table.rows = {{{"a"}, {"1"}, {""}, {"x|y", Tone::kBad}}, {{"日本"}, {"20"}, {"-"}, {"\"q\", z"}}};
  return table;
}

TEST(Table, WidthIsThatOfATerminal) {
  EXPECT_EQ(DisplayWidth("abc"), 3u);
  EXPECT_EQ(DisplayWidth("é"), 1u);
  EXPECT_EQ(DisplayWidth("e\xcc\x81"), 1u);  // e and a combining accent
  EXPECT_EQ(DisplayWidth("日本"), 4u);
  EXPECT_EQ(DisplayWidth("▁█"), 2u);
  EXPECT_EQ(DisplayWidth("😀"), 2u);
  EXPECT_EQ(DisplayWidth(""), 0u);
}

TEST(Table, ColumnsStandUnderEachOther) {
  TextTable table = Example();
  table.DropEmptyColumns();
  EXPECT_EQ(table.ToText(false),
            "name   n  note\n"
            "a      1  x|y\n"
            "日本  20  \"q\", z\n");
}

TEST(Table, ColourIsAskedFor) {
  EXPECT_THAT(Example().ToText(true), HasSubstr("\x1b[31mx|y\x1b[0m"));
  EXPECT_THAT(Example().ToText(false), Not(HasSubstr("\x1b")));
}

TEST(Table, NarrowTerminalsLoseTheLeastImportant) {
  TextTable table = Example();
  table.DropEmptyColumns();
  EXPECT_THAT(table.FitTo(80), ElementsAre());
  TextTable named = table;
  named.columns[2].id = "remark";
  EXPECT_THAT(table.FitTo(12), ElementsAre("note"));
  EXPECT_EQ(table.columns.size(), 2u);
  EXPECT_THAT(named.FitTo(12), ElementsAre("remark"));
}

TEST(Table, MarkdownAndCsvQuoteWhatBreaksThem) {
  EXPECT_EQ(Example().ToMarkdown(),
            "| name | n | empty | note |\n|---|---:|---|---|\n| a | 1 |  | x\\|y |\n"
            "| 日本 | 20 | - | \"q\", z |\n");
  EXPECT_EQ(Example().ToCsv(), "name,n,empty,note\r\na,1,,x|y\r\n日本,20,-,\"\"\"q\"\", z\"\r\n");
}

TEST(Table, LinesStayLines) {
  TextTable table;
  table.columns = {{"a"}};
  table.rows = {{{"one\ntwo\x1b[31m"}}};
  EXPECT_EQ(table.ToText(false), "a\none two [31m\n");
}

TEST(Table, FormatsAreNamed) {
  EXPECT_EQ(*ParseTableFormat("csv", "--format"), TableFormat::kCsv);
  EXPECT_THAT(ParseTableFormat("markdwon", "--format").error().message,
              HasSubstr("did you mean 'markdown'"));
}

}  // namespace
}  // namespace kvgauge

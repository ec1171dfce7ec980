// SPDX-License-Identifier: Apache-2.0
#include "src/run/progress_line.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace kvgauge {
namespace {

TEST(FitLine, WhatMattersLeastLeavesFirst) {
  const std::vector<LinePart> parts = {{"[1/3] a group of some length", 10},
                                       {"12/40 samples", 9},
                                       {"3/s", 3},
                                       {"ETA 0:12", 8},
                                       {"22.0 MiB", 1}};
  EXPECT_EQ(FitLine(parts, 200),
            "[1/3] a group of some length: 12/40 samples, 3/s, ETA 0:12, 22.0 MiB");
  EXPECT_EQ(FitLine(parts, 67), "[1/3] a group of some length: 12/40 samples, 3/s, ETA 0:12");
  EXPECT_EQ(FitLine(parts, 57), "[1/3] a group of some length: 12/40 samples, ETA 0:12");
  EXPECT_EQ(FitLine(parts, 50), "[1/3] a group of some length: 12/40 samples");
  // Then the name is cut, and in the end everything.
  EXPECT_EQ(FitLine(parts, 35), "[1/3] a group of ...: 12/40 samples");
  EXPECT_EQ(FitLine(parts, 12), "[1/3]...:...");
  for (size_t columns = 0; columns < 90; ++columns) {
    EXPECT_LE(TextWidth(FitLine(parts, columns)), columns);
  }
}

TEST(FitLine, CountsCodePointsAndCutsBetweenThem) {
  const std::string line = FitLine({{"\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 1}}, 5);
  EXPECT_EQ(line, "\xc3\xa9\xc3\xa9...");
}

TEST(TerminalColumns, AreThoseOfTheEnvironmentWhereThereIsNoTerminal) {
  setenv("COLUMNS", "61", 1);
  EXPECT_EQ(TerminalColumns(-1), 61u);
  setenv("COLUMNS", "wide", 1);
  EXPECT_EQ(TerminalColumns(-1), 80u);
  unsetenv("COLUMNS");
  EXPECT_EQ(TerminalColumns(-1), 80u);
}

}  // namespace
}  // namespace kvgauge

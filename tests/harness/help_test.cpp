// SPDX-License-Identifier: Apache-2.0
// Help that cannot go stale: every example is a command line that the program takes.
#include "src/cli/help.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/strings.h"
#include "harness/cli.h"

namespace kvgauge {
namespace {

// As a shell cuts it, for words in single quotes and none.
std::vector<std::string> Words(const std::string& line) {
  std::vector<std::string> words = {""};
  bool quoted = false;
  for (const char c : line) {
    if (c == '\'') {
      quoted = !quoted;
    } else if (c == ' ' && !quoted) {
      words.emplace_back();
    } else {
      words.back() += c;
    }
  }
  return words;
}

Status Check(const std::string& line) {
  const std::vector<std::string> words = Words(line);
  std::vector<const char*> argv = {"kvgauge"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  return CheckCommandLine(static_cast<int>(argv.size()), argv.data());
}

TEST(Help, EveryExampleParses) {
  std::set<std::string_view> seen;
  size_t examples = 0;
  for (const CommandHelp& help : AllHelp()) {
    EXPECT_TRUE(seen.insert(help.command).second) << help.command << " is there twice";
    for (const std::string& line : Split(std::string(help.examples), '\n')) {
      ++examples;
      EXPECT_TRUE(line.starts_with(help.command)) << line;
      const Status parsed = Check(line);
      EXPECT_TRUE(parsed.ok()) << line << ": " << (parsed.ok() ? "" : parsed.error().message);
    }
  }
  EXPECT_GE(examples, seen.size());
}

TEST(Help, ACheckRefusesWhatARunWould) {
  EXPECT_FALSE(Check("run quickstart --no-such-flag").ok());
  EXPECT_FALSE(Check("run quickstart --limit many").ok());
  EXPECT_FALSE(Check("probe models/ref-gqa").ok());
  EXPECT_FALSE(Check("frobnicate").ok());
  // One name for the backend, everywhere.
  for (const char* command : {"bench kernels", "bench vision", "bench runner", "bench lockstep",
                              "bench load models/ref-gqa", "bench latency models/ref-gqa",
                              "generate models/ref-gqa --prompt x", "run quickstart"}) {
    EXPECT_TRUE(Check(StrCat(command, " --backend cpu")).ok()) << command;
    EXPECT_FALSE(Check(StrCat(command, " --device cpu")).ok()) << command;
  }
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// The program as a process, and a directory for what it reads and writes.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/files.h"
#include "core/strings.h"

namespace kvgauge {

struct Outcome {
  int exit_code = -1;
  std::string out, err;
};

// In `directory`, where what it prints is left as "out" and "err". `arguments` are the shell's.
inline Outcome RunProgram(const std::string& directory, const std::string& arguments) {
  const std::string out = directory + "/out", err = directory + "/err";
  const std::string command = StrCat("cd '", directory, "' && '", KVG_PROGRAM, "' ", arguments,
                                     " >'", out, "' 2>'", err, "' </dev/null");
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, *ReadFile(out), *ReadFile(err)};
}

// A directory of the test's own, removed at the end.
class ProgramTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "kvg_cli_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  std::string Write(const std::string& name, const std::string& content) const {
    std::ofstream(Path(name), std::ios::binary) << content;
    return Path(name);
  }
  Outcome Run(const std::string& arguments) const { return RunProgram(directory_, arguments); }

  std::string directory_;
};

}  // namespace kvgauge

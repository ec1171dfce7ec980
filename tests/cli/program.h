// SPDX-License-Identifier: Apache-2.0
// The program as a process.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
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

}  // namespace kvgauge

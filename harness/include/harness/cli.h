// SPDX-License-Identifier: Apache-2.0
// The command line of kvgauge.
#pragma once

#include <string>

namespace kvgauge {

// The sources that this program was built from.
struct BuildInfo {
  std::string version = {};   // "0.1.0"
  std::string revision = {};  // a git commit, with "-dirty" if files were changed; "": none

  std::string Text() const;  // "0.1.0 (1a2b3c4d5e6f)"
};

// Exit codes: 0 done; 1 the system failed (disk, memory), or every cell failed; 2 wrong usage or
// bad input.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitBadInput = 2;

// Parses and runs one command. Output goes to standard output, progress and errors to standard
// error.
int RunCommandLine(int argc, const char* const* argv, const BuildInfo& build);

}  // namespace kvgauge

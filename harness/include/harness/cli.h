// SPDX-License-Identifier: Apache-2.0
// The command line of kvgauge.
#pragma once

namespace kvgauge {

// Exit codes: 0 done; 1 the system failed (disk, memory); 2 wrong usage or bad input.
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitBadInput = 2;

// Parses and runs one command. Output goes to standard output, progress and errors to standard
// error.
int RunCommandLine(int argc, const char* const* argv);

}  // namespace kvgauge

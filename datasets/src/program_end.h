// SPDX-License-Identifier: Apache-2.0
// How a program shows that it ran to its end. An exit code does not: exit(0) in the middle of a
// model's answer would skip the test behind it. So the sandbox gives each run a secret of its own
// on one file, and what is added to the program here writes it to another as the very last thing.
// The secret stands neither in the program's text nor in its arguments, environment or input. A
// program that knows this scheme can still find it: it runs in the same process as the test.
#pragma once

#include <string>
#include <vector>

namespace kvgauge {

// Numbers that programs seldom use; shells know those of one digit only.
inline constexpr int kSecretFile = 8, kEndFile = 9;

struct EndedProgram {
  std::vector<std::string> command;
  std::string program;
  bool tells = false;  // false: not a known interpreter, nothing was added
};

// For Python and shells, known by the interpreter's name.
EndedProgram WithToldEnd(const std::vector<std::string>& command, const std::string& program);

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/program_end.h"

#include <string_view>

namespace kvgauge {
namespace {

enum class Language { kUnknown, kPython, kShell };

Language Named(std::string_view name) {
  name.remove_prefix(name.rfind('/') + 1);
  // "python3.11", "pypy3"
  const std::string_view stem = name.substr(0, name.find_last_not_of("0123456789.") + 1);
  if (stem == "python" || stem == "pypy") return Language::kPython;
  for (const std::string_view shell : {"sh", "ash", "bash", "dash", "ksh", "mksh", "zsh"}) {
    if (name == shell) return Language::kShell;
  }
  return Language::kUnknown;
}

// The language of the first interpreter in the command ("env A=1 python3 -W ignore"), unless what
// follows it may name another program to run.
Language LanguageOf(const std::vector<std::string>& command) {
  size_t at = 0;
  while (at < command.size() && Named(command[at]) == Language::kUnknown) ++at;
  if (at == command.size()) return Language::kUnknown;
  for (size_t i = at + 1; i < command.size(); ++i) {
    const std::string_view word = command[i], before = command[i - 1];
    if (word.starts_with("-c") || word.starts_with("-m")) return Language::kUnknown;
    const bool flag = word.starts_with('-') || word.starts_with('+');
    const bool value = before == "-W" || before == "-X" || before == "-o";
    if (!flag && !value) return Language::kUnknown;
  }
  return Named(command[at]);
}

// Runs the file that is its argument as the main module. The secret is read, and its file closed,
// before the program begins. A forked child that runs on to the end is not the program.
constexpr const char* kPythonDriver = R"(import os, sys, types
def run(name):
    secret, write, getpid, begun_by = os.read(8, 64), os.write, os.getpid, os.getpid()
    os.close(8)
    os.set_inheritable(9, False)
    with open(name, 'rb') as file:
        text = file.read()
    main = types.ModuleType('__main__')
    main.__file__ = name
    sys.argv = [name]
    sys.modules['__main__'] = main
    exec(compile(text, name, 'exec', dont_inherit=True), main.__dict__)
    if getpid() == begun_by:
        write(9, secret)
run(sys.argv[1])
)";

// The program's own status stays what the shell ends with.
constexpr const char* kShellEnd = R"(
kvgauge_status=$?
cat <&8 >&9
exit $kvgauge_status
)";
static_assert(kSecretFile == 8 && kEndFile == 9, "the texts above name them");

}  // namespace

EndedProgram WithToldEnd(const std::vector<std::string>& command, const std::string& program) {
  EndedProgram ended = {command, program, true};
  switch (LanguageOf(command)) {
    case Language::kPython:
      ended.command.insert(ended.command.end(), {"-c", kPythonDriver});
      break;
    case Language::kShell:
      ended.program += kShellEnd;
      break;
    case Language::kUnknown:
      ended.tells = false;
      break;
  }
  return ended;
}

}  // namespace kvgauge

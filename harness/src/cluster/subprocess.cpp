// SPDX-License-Identifier: Apache-2.0
#include "src/cluster/subprocess.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/strings.h"

extern char** environ;

namespace kvgauge {

Result<StartedProgram> StartProgram(const std::vector<std::string>& words, bool take_errors) {
  int out[2], err[2] = {-1, -1};
  if (pipe2(out, O_CLOEXEC) != 0 || (take_errors && pipe2(err, O_CLOEXEC) != 0)) {
    return IoError(StrCat(words[0], ": no pipe: ", std::strerror(errno)));
  }
  std::vector<std::string> copies = words;
  std::vector<char*> arguments;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  if (take_errors) posix_spawn_file_actions_adddup2(&actions, err[1], STDERR_FILENO);
  StartedProgram program = {.out = out[0], .err = err[0]};
  const int failed =
      posix_spawnp(&program.process, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(out[1]);
  if (take_errors) close(err[1]);
  if (failed == 0) return program;
  close(out[0]);
  if (take_errors) close(err[0]);
  return IoError(StrCat(words[0], ": cannot be started: ", std::strerror(failed)));
}

int WaitForProgram(const StartedProgram& program) {
  int status = 0;
  while (waitpid(program.process, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Result<ProgramOutput> RunProgram(const std::vector<std::string>& words) {
  KVG_ASSIGN(const StartedProgram program, StartProgram(words, false));
  ProgramOutput output;
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t count = read(program.out, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    output.out.append(buffer.data(), static_cast<size_t>(count));
  }
  close(program.out);
  output.exit_code = WaitForProgram(program);
  return output;
}

std::string FindProgram(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (const std::string& directory : Split(path == nullptr ? "" : path, ':')) {
    std::string candidate = StrCat(directory.empty() ? "." : directory, "/", name);
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return "";
}

}  // namespace kvgauge

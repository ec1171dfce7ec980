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

Result<ProgramOutput> RunProgram(const std::vector<std::string>& words) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return IoError(StrCat(words[0], ": no pipe: ", std::strerror(errno)));
  }
  std::vector<std::string> copies = words;
  std::vector<char*> arguments;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t child = 0;
  const int failed =
      posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (failed != 0) {
    close(ends[0]);
    return IoError(StrCat(words[0], ": cannot be started: ", std::strerror(failed)));
  }
  ProgramOutput output;
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t count = read(ends[0], buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    output.out.append(buffer.data(), static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  output.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
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

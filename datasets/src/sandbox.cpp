// SPDX-License-Identifier: Apache-2.0
// The child process of RunSandboxed. Between fork and exec only what is safe there is called.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "core/clock.h"
#include "core/strings.h"
#include "datasets/execution.h"
#include "src/program_end.h"

namespace kvgauge {
namespace {

// What the child tells: isolated or not, and then why the program was not begun.
constexpr char kIsolated = '1', kOpen = '0', kNoSetup = 'S', kNoInterpreter = 'E', kRefused = 'R';
constexpr const char* kProgramName = "program";
constexpr int kFirstOwnFile = 16;  // the pipes' numbers begin above those that the program gets
constexpr size_t kSecretBytes = 32;

void WriteAll(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

bool WriteFileAt(const char* path, std::string_view text) {
  const int file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return false;
  WriteAll(file, text);
  close(file);
  return true;
}

// Namespaces of its own: no network, no other processes, files read-only but for `directory`. The
// user inside is nobody, so that no right is left after exec.
bool Isolate(const char* directory, const char* user_map, const char* group_map) {
  if (unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWPID | CLONE_NEWNS) != 0) {
    return false;
  }
  if (!WriteFileAt("/proc/self/setgroups", "deny") ||
      !WriteFileAt("/proc/self/uid_map", user_map) ||
      !WriteFileAt("/proc/self/gid_map", group_map)) {
    return false;
  }
  if (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
  if (mount("tmpfs", directory, "tmpfs", MS_NOSUID | MS_NODEV, "size=16m,mode=0700") != 0) {
    return false;
  }
  struct mount_attr read_only = {};
  read_only.attr_set = MOUNT_ATTR_RDONLY;
  if (mount_setattr(-1, "/", AT_RECURSIVE, &read_only, sizeof(read_only)) != 0) return false;
  struct mount_attr writable = {};
  writable.attr_clr = MOUNT_ATTR_RDONLY;
  return mount_setattr(-1, directory, 0, &writable, sizeof(writable)) == 0;
}

void Limit(__rlimit_resource resource, int64_t most) {
  const rlimit limit = {static_cast<rlim_t>(most), static_cast<rlim_t>(most)};
  setrlimit(resource, &limit);
}

struct ChildPlan {
  std::string directory;
  std::string program;
  std::string user_map, group_map;
  std::vector<char*> arguments, environment;
  SandboxLimits limits;
  int output = -1;
  int secret = -1, end = -1;  // the program's kSecretFile and kEndFile
  int news = -1;              // closed when the program begins
};

[[noreturn]] void GiveUp(const ChildPlan& plan, char why) {
  WriteAll(plan.news, std::string_view(&why, 1));
  _exit(1);
}

[[noreturn]] void RunProgram(const ChildPlan& plan) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int nothing = open("/dev/null", O_RDONLY);
  if (nothing < 0 || dup2(nothing, 0) < 0 || dup2(plan.output, 1) < 0 || dup2(1, 2) < 0 ||
      dup2(plan.secret, kSecretFile) < 0 || dup2(plan.end, kEndFile) < 0) {
    GiveUp(plan, kNoSetup);
  }
  for (int file = 3; file < 4096; ++file) {
    if (file != plan.news && file != kSecretFile && file != kEndFile) close(file);
  }
  Limit(RLIMIT_CPU, plan.limits.cpu_s);
  Limit(RLIMIT_AS, plan.limits.memory_bytes);
  Limit(RLIMIT_FSIZE, plan.limits.file_bytes);
  Limit(RLIMIT_NOFILE, 64);
  Limit(RLIMIT_CORE, 0);
  Limit(RLIMIT_NPROC, 32);
  execvpe(plan.arguments[0], plan.arguments.data(), plan.environment.data());
  GiveUp(plan, kNoInterpreter);
}

// Waits for the child and ends as it did; a signal becomes 128 and its number, as in shells.
[[noreturn]] void EndAs(const ChildPlan& plan, pid_t child) {
  close(plan.news);
  close(plan.output);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

[[noreturn]] void RunChild(const ChildPlan& plan) {
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  const bool isolated =
      Isolate(plan.directory.c_str(), plan.user_map.c_str(), plan.group_map.c_str());
  WriteAll(plan.news, std::string_view(isolated ? &kIsolated : &kOpen, 1));
  if (!isolated && !plan.limits.unisolated) GiveUp(plan, kRefused);
  // The directory may lie below a new mount by now, so the program is written here.
  if (chdir(plan.directory.c_str()) != 0 || !WriteFileAt(kProgramName, plan.program)) {
    GiveUp(plan, kNoSetup);
  }
  // The first process of the new namespace: when it ends, all its descendants do. It is not the
  // program itself, which could not be ended by its own signals then.
  const pid_t first = fork();
  if (first < 0) GiveUp(plan, kNoSetup);
  if (first == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const pid_t program = fork();
    if (program < 0) GiveUp(plan, kNoSetup);
    if (program == 0) RunProgram(plan);
    EndAs(plan, program);
  }
  EndAs(plan, first);
}

struct Pipe {
  std::array<int, 2> ends = {-1, -1};
  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    CloseEnd(0);
    CloseEnd(1);
  }
  bool Open() {
    std::array<int, 2> low;
    if (pipe2(low.data(), O_CLOEXEC) != 0) return false;
    for (size_t i = 0; i < 2; ++i) {
      ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, kFirstOwnFile);
      close(low[i]);
    }
    return ends[0] >= 0 && ends[1] >= 0;
  }
  void CloseEnd(size_t which) {
    if (ends[which] >= 0) close(ends[which]);
    ends[which] = -1;
  }
};

// Reads until the writers are gone or the time is over. False: over.
bool Drain(int file, double until_s, int64_t keep, std::string& output) {
  std::array<char, 4096> buffer;
  while (true) {
    const double left_s = until_s - NowSeconds();
    if (left_s <= 0) return false;
    pollfd waiting = {file, POLLIN, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(left_s * 1000) + 1);
    if (ready <= 0) continue;
    const ssize_t got = read(file, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    const int64_t room = keep - static_cast<int64_t>(output.size());
    if (room > 0) output.append(buffer.data(), static_cast<size_t>(std::min<int64_t>(room, got)));
  }
}

// Hexadecimal digits; empty where the kernel has no random bytes.
std::string NewSecret() {
  std::array<unsigned char, kSecretBytes / 2> bytes;
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) return "";
  std::string secret;
  for (const unsigned char byte : bytes) {
    secret.push_back("0123456789abcdef"[byte >> 4]);
    secret.push_back("0123456789abcdef"[byte & 15]);
  }
  return secret;
}

// What is there by now, and no more than a secret with one byte too many.
std::string ReadThere(int file) {
  std::string bytes(kSecretBytes + 1, '\0');
  fcntl(file, F_SETFL, O_NONBLOCK);
  const ssize_t got = read(file, bytes.data(), bytes.size());
  bytes.resize(got > 0 ? static_cast<size_t>(got) : 0);
  return bytes;
}

// Gone with its content, whatever happened.
struct ScratchDirectory {
  std::string path;
  ~ScratchDirectory() {
    std::error_code ignored;
    if (!path.empty()) std::filesystem::remove_all(path, ignored);
  }
};

}  // namespace

Result<SandboxRun> RunSandboxed(const std::vector<std::string>& command, const std::string& program,
                                const SandboxLimits& limits) {
  if (command.empty()) return BadInput("no interpreter is named");
  ScratchDirectory scratch;
  std::error_code error;
  std::string pattern = (std::filesystem::temp_directory_path(error) / "kvgauge_XXXXXX").string();
  if (error || mkdtemp(pattern.data()) == nullptr) {
    return IoError(StrCat(pattern, ": cannot be made: ", std::strerror(errno)));
  }
  scratch.path = pattern;

  // All that the child needs is made before the fork.
  ChildPlan plan;
  plan.directory = scratch.path;
  plan.program = program;
  plan.user_map = StrCat("65534 ", geteuid(), " 1");
  plan.group_map = StrCat("65534 ", getegid(), " 1");
  plan.limits = limits;
  std::vector<std::string> arguments = command;
  arguments.emplace_back(kProgramName);
  const char* path = std::getenv("PATH");
  std::vector<std::string> environment = {
      StrCat("PATH=", path != nullptr ? path : "/usr/bin:/bin"), StrCat("HOME=", scratch.path),
      StrCat("TMPDIR=", scratch.path), "LANG=C.UTF-8", "OMP_NUM_THREADS=1"};
  for (std::string& text : arguments) plan.arguments.push_back(text.data());
  for (std::string& text : environment) plan.environment.push_back(text.data());
  plan.arguments.push_back(nullptr);
  plan.environment.push_back(nullptr);
  Pipe output, news, secret_pipe, end;
  if (!output.Open() || !news.Open() || !secret_pipe.Open() || !end.Open()) {
    return IoError(StrCat("pipe: ", std::strerror(errno)));
  }
  const std::string secret = NewSecret();
  if (secret.empty()) return IoError(StrCat("random bytes: ", std::strerror(errno)));
  WriteAll(secret_pipe.ends[1], secret);  // far less than a pipe holds
  secret_pipe.CloseEnd(1);
  plan.output = output.ends[1];
  plan.secret = secret_pipe.ends[0];
  plan.end = end.ends[1];
  plan.news = news.ends[1];

  const double until_s = NowSeconds() + limits.wall_s;
  const pid_t child = fork();
  if (child < 0) return ResourceError(StrCat("fork: ", std::strerror(errno)));
  if (child == 0) RunChild(plan);
  output.CloseEnd(1);
  news.CloseEnd(1);
  secret_pipe.CloseEnd(0);
  end.CloseEnd(1);

  SandboxRun run;
  std::string told;
  run.timed_out = !Drain(output.ends[0], until_s, limits.output_bytes, run.output);
  // The outputs may be closed long before the end.
  int status = 0;
  pid_t ended = 0;
  while (!run.timed_out && (ended = waitpid(child, &status, WNOHANG)) == 0) {
    run.timed_out = NowSeconds() > until_s;
    poll(nullptr, 0, 2);
  }
  if (ended != child) {
    kill(-child, SIGKILL);
    kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  } else {
    kill(-child, SIGKILL);  // stragglers, where there is no namespace to end with it
  }
  Drain(news.ends[0], NowSeconds() + 1, 2, told);
  run.isolated = !told.empty() && told[0] == kIsolated;
  run.end_told = ReadThere(end.ends[0]) == secret;
  run.exit_code = !run.timed_out && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  if (told.ends_with(kNoInterpreter)) {
    return BadInput(StrCat(Quoted(command[0]), " cannot be run; name an interpreter in PATH"));
  }
  if (told.ends_with(kRefused)) {
    return Unsupported(
        "this kernel gives the user no namespaces, so a program would have the user's network and "
        "files; nothing was run. In a container or on a machine that may be lost, --unisolated "
        "runs it all the same");
  }
  if (told.empty() || told.ends_with(kNoSetup)) {
    return IoError("the sandbox cannot be set up: no directory, process or file to be had");
  }
  return run;
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "images/video_file.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/check.h"
#include "core/json.h"
#include "core/strings.h"

extern char** environ;

namespace kvgauge {
namespace {

constexpr const char* kProgram = "kvgauge-video";
constexpr const char* kVariable = "KVGAUGE_VIDEO";  // its place, if not beside the program
constexpr int64_t kMostComplaint = 4096;

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    Close();
    number_ = std::exchange(other.number_, -1);
    return *this;
  }
  ~Descriptor() { Close(); }
  int number() const { return number_; }
  void Close() {
    if (number_ >= 0) close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

Result<std::string> FindProgram(const std::string& path) {
  std::string looked;
  if (const char* given = std::getenv(kVariable); given != nullptr) {
    looked = given;
  } else {
    std::error_code error;
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
    looked = (self.parent_path() / kProgram).string();
  }
  if (access(looked.c_str(), X_OK) == 0) return looked;
  return Unsupported(
      StrCat(path, ": files of videos are decoded by the program ", kProgram, ", and ", looked,
             " is not there. It is built where the libraries of FFmpeg are found "
             "(`scripts/install_deps video`, then build again); or show a folder of frames"));
}

struct Told {
  int exit_code = -1;  // or minus the signal that ended it
  std::string out, complaint;
};

// Runs the program with the file as its input. No more than `most` bytes of output are taken.
Result<Told> RunProgram(const std::string& path, std::vector<std::string> arguments, int64_t most) {
  KVG_ASSIGN(const std::string program, FindProgram(path));
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat facts = {};
  if (file.number() < 0 || fstat(file.number(), &facts) != 0) {
    return BadInput(StrCat(path, ": ", std::strerror(errno)));
  }
  if (!S_ISREG(facts.st_mode)) return BadInput(StrCat(path, ": is no regular file"));
  int out_ends[2], error_ends[2];
  if (pipe2(out_ends, O_CLOEXEC) != 0) return BadInput(StrCat("pipe: ", std::strerror(errno)));
  Descriptor out(out_ends[0]), child_out(out_ends[1]);
  if (pipe2(error_ends, O_CLOEXEC) != 0) return BadInput(StrCat("pipe: ", std::strerror(errno)));
  Descriptor errors(error_ends[0]), child_errors(error_ends[1]);

  arguments.insert(arguments.begin(), program);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, file.number(), STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, child_out.number(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, child_errors.number(), STDERR_FILENO);
  pid_t child = 0;
  const int failed =
      posix_spawn(&child, program.c_str(), &actions, nullptr, pointers.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return BadInput(StrCat(program, ": ", std::strerror(failed)));
  child_out.Close();
  child_errors.Close();

  Told told;
  std::vector<char> buffer(1 << 16);
  std::array<pollfd, 2> waits = {pollfd{out.number(), POLLIN, 0},
                                 pollfd{errors.number(), POLLIN, 0}};
  bool too_long = false;
  while ((waits[0].fd >= 0 || waits[1].fd >= 0) && !too_long) {
    if (poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) break;
    for (size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].fd < 0 || waits[i].revents == 0) continue;
      const ssize_t got = read(waits[i].fd, buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) {
        waits[i].fd = -1;
        continue;
      }
      std::string& to = i == 0 ? told.out : told.complaint;
      const int64_t room = (i == 0 ? most : kMostComplaint) - std::ssize(to);
      to.append(buffer.data(),
                static_cast<size_t>(std::min<int64_t>(got, std::max<int64_t>(room, 0))));
      too_long = too_long || (i == 0 && got > room);
    }
  }
  out.Close();
  errors.Close();
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  told.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  if (too_long) return BadInput(StrCat(path, ": its decoder wrote more than frames"));
  while (told.complaint.ends_with('\n')) told.complaint.pop_back();
  if (told.exit_code == 0) return told;
  if (told.exit_code > 0) {
    return BadInput(
        StrCat(path, ": ", told.complaint.empty() ? "cannot be decoded" : told.complaint));
  }
  return BadInput(StrCat(path, ": its decoder was ended by signal ", -told.exit_code,
                         told.exit_code == -SIGXCPU ? ": it took longer than a video may"
                                                    : "; the file is damaged or needs too much"));
}

}  // namespace

Result<VideoFile> OpenVideoFile(const std::string& path) {
  constexpr int64_t kMostFacts = 4096;
  KVG_ASSIGN(const Told told, RunProgram(path, {"count"}, kMostFacts));
  KVG_ASSIGN(const Json facts, ParseJson(told.out, StrCat("what ", kProgram, " says of ", path)));
  VideoFile video;
  video.path = path;
  video.total = facts.value("frames", int64_t{0});
  video.fps = facts.value("fps", 0.0);
  video.width = facts.value("width", 0);
  video.height = facts.value("height", 0);
  video.decoder = facts.value("decoder", "");
  if (video.total < 1 || video.width < 1 || video.height < 1) {
    return BadInput(StrCat(path, ": holds no frames"));
  }
  return video;
}

Result<std::vector<Image>> ReadVideoFrames(const VideoFile& video,
                                           const std::vector<int64_t>& indices,
                                           const ImageLimits& limits) {
  KVG_CHECK(std::is_sorted(indices.begin(), indices.end()), "frames ascend");
  std::vector<Image> frames;
  if (indices.empty()) return frames;
  const int64_t pixels = int64_t{video.width} * video.height, bytes = 3 * pixels;
  if (pixels > limits.pixels) {
    return BadInput(StrCat(video.path, ": frames of ", video.width, " x ", video.height,
                           " pixels; at most ", limits.pixels, " pixels are read"));
  }
  std::vector<int64_t> distinct = indices;
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  std::string list;
  for (const int64_t index : distinct) list += StrCat(list.empty() ? "" : ",", index);
  const std::string head = StrCat(video.width, " ", video.height, "\n");
  const int64_t expected = std::ssize(head) + std::ssize(distinct) * bytes;
  KVG_ASSIGN(const Told told, RunProgram(video.path, {"frames", list}, expected));
  if (std::ssize(told.out) != expected || !told.out.starts_with(head)) {
    return BadInput(StrCat(video.path, ": changed while it was read"));
  }
  for (const int64_t index : indices) {
    const auto place = std::lower_bound(distinct.begin(), distinct.end(), index);
    const char* from = told.out.data() + head.size() + (place - distinct.begin()) * bytes;
    Image& frame = frames.emplace_back();
    frame.width = video.width;
    frame.height = video.height;
    frame.rgb.assign(from, from + bytes);
  }
  return frames;
}

}  // namespace kvgauge

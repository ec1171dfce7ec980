// SPDX-License-Identifier: Apache-2.0
#include "src/writer_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/strings.h"

namespace kvgauge {
namespace {

std::string HolderOf(int fd) {
  char text[32] = {};
  const ssize_t size = pread(fd, text, sizeof(text) - 1, 0);
  const std::string_view pid = Trim({text, size > 0 ? static_cast<size_t>(size) : 0});
  return pid.empty() ? "another process" : StrCat("process ", pid);
}

}  // namespace

Result<std::unique_ptr<WriterLock>> WriterLock::Take(const std::string& path,
                                                     const std::string& real_path) {
  const std::string lock_path = StrCat(real_path, ".lock");
  while (true) {
    const int fd = open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
      return IoError(StrCat(path, ": cannot be written: ", lock_path, ": ", std::strerror(errno),
                            "; expected an existing directory with write permission"));
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      const int reason = errno;
      const std::string holder = HolderOf(fd);
      close(fd);
      if (reason == EINTR) continue;
      if (reason != EWOULDBLOCK) {
        return IoError(StrCat(path, ": cannot be locked: ", std::strerror(reason)));
      }
      return IoError(StrCat(path, ": ", holder, " writes to it (it holds ", lock_path,
                            "); wait until that has finished, or give another file"));
    }
    // The holder before may have removed the name between our open and our lock.
    struct stat held, named;
    if (fstat(fd, &held) == 0 && stat(lock_path.c_str(), &named) == 0 &&
        held.st_ino == named.st_ino && held.st_dev == named.st_dev) {
      // For people; the lock holds without it, e.g. on a full disk.
      const std::string pid = StrCat(getpid(), "\n");
      if (ftruncate(fd, 0) != 0 || pwrite(fd, pid.data(), pid.size(), 0) < 0) errno = 0;
      return std::unique_ptr<WriterLock>(new WriterLock(lock_path, fd));
    }
    close(fd);
  }
}

WriterLock::~WriterLock() {
  unlink(lock_path_.c_str());
  close(fd_);
}

}  // namespace kvgauge

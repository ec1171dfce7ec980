// SPDX-License-Identifier: Apache-2.0
#include "core/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/strings.h"

namespace kvgauge {
namespace {

// Closes on scope exit.
struct Descriptor {
  int fd = -1;
  ~Descriptor() {
    if (fd >= 0) close(fd);
  }
};

}  // namespace

Error SystemError(const std::string& path, std::string_view action) {
  const int reason = errno;
  const bool missing = reason == ENOENT || reason == ENOTDIR;
  std::string message = StrCat(path, ": cannot ", action, ": ", std::strerror(reason));
  return missing ? BadInput(std::move(message)) : IoError(std::move(message));
}

Result<std::string> ReadFile(const std::string& path, int64_t limit_bytes) {
  Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return SystemError(path, "open");
  struct stat info;
  if (fstat(file.fd, &info) != 0) return SystemError(path, "stat");
  if (S_ISDIR(info.st_mode)) return BadInput(StrCat(path, ": is a directory, expected a file"));
  if (info.st_size > limit_bytes) {
    return BadInput(StrCat(path, ": ", HumanBytes(info.st_size), " is larger than the limit of ",
                           HumanBytes(limit_bytes), " for this kind of file"));
  }
  std::string content;
  char chunk[1 << 16];
  while (true) {
    const ssize_t got = read(file.fd, chunk, sizeof(chunk));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return SystemError(path, "read");
    if (got == 0) return content;
    content.append(chunk, static_cast<size_t>(got));
    if (static_cast<int64_t>(content.size()) > limit_bytes) {
      return BadInput(StrCat(path, ": grew past the limit of ", HumanBytes(limit_bytes)));
    }
  }
}

Status WriteFile(const std::string& path, std::string_view content) {
  if (DirectoryExists(path)) return IoError(StrCat(path, ": is a directory, expected a file"));
  const std::string part = StrCat(path, ".part", getpid());
  Descriptor file{open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)};
  if (file.fd < 0) return SystemError(path, "create");
  size_t written = 0;
  while (written < content.size()) {
    const ssize_t n = write(file.fd, content.data() + written, content.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const Error error = SystemError(path, "write");
      unlink(part.c_str());
      return error;
    }
    written += static_cast<size_t>(n);
  }
  if (rename(part.c_str(), path.c_str()) != 0) {
    const Error error = SystemError(path, "replace");
    unlink(part.c_str());
    return error;
  }
  return {};
}

bool FileExists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode);
}

bool DirectoryExists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  Descriptor file{open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return SystemError(path, "open");
  struct stat info;
  if (fstat(file.fd, &info) != 0) return SystemError(path, "stat");
  if (!S_ISREG(info.st_mode)) return BadInput(StrCat(path, ": not a regular file"));
  const auto size = static_cast<size_t>(info.st_size);
  const uint8_t* data = nullptr;
  if (size > 0) {
    void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (mapped == MAP_FAILED) return SystemError(path, "map");
    data = static_cast<const uint8_t*>(mapped);
  }
  return std::shared_ptr<const MappedFile>(new MappedFile(path, data, size));
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<uint8_t*>(data_), size_bytes_);
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "reports/killing_vfs.h"

#include <cstddef>

namespace kvgauge {
namespace {

// Belongs to the process: SQLite's C interface has no room for it, and the child has one thread.
int64_t writes_left = 0;
int percent_written = 0;
sqlite3_vfs* below = nullptr;

struct File {
  sqlite3_file base;
  // The file of the layer below follows.
  sqlite3_file* inner() { return reinterpret_cast<sqlite3_file*>(this + 1); }
};

sqlite3_file* Inner(sqlite3_file* file) { return reinterpret_cast<File*>(file)->inner(); }

int Write(sqlite3_file* file, const void* data, int size, sqlite3_int64 offset) {
  sqlite3_file* inner = Inner(file);
  if (writes_left-- > 0) return inner->pMethods->xWrite(inner, data, size, offset);
  const int part = static_cast<int>(int64_t{size} * percent_written / 100);
  if (part > 0) inner->pMethods->xWrite(inner, data, part, offset);
  kill(getpid(), SIGKILL);
  return SQLITE_IOERR;
}

template <auto kMethod, class... Args>
int Forward(sqlite3_file* file, Args... args) {
  sqlite3_file* inner = Inner(file);
  return (inner->pMethods->*kMethod)(inner, args...);
}

void ShmBarrier(sqlite3_file* file) { Inner(file)->pMethods->xShmBarrier(Inner(file)); }

using M = sqlite3_io_methods;
constexpr M kMethods = {
    .iVersion = 2,
    .xClose = Forward<&M::xClose>,
    .xRead = Forward<&M::xRead, void*, int, sqlite3_int64>,
    .xWrite = Write,
    .xTruncate = Forward<&M::xTruncate, sqlite3_int64>,
    .xSync = Forward<&M::xSync, int>,
    .xFileSize = Forward<&M::xFileSize, sqlite3_int64*>,
    .xLock = Forward<&M::xLock, int>,
    .xUnlock = Forward<&M::xUnlock, int>,
    .xCheckReservedLock = Forward<&M::xCheckReservedLock, int*>,
    .xFileControl = Forward<&M::xFileControl, int, void*>,
    .xSectorSize = Forward<&M::xSectorSize>,
    .xDeviceCharacteristics = Forward<&M::xDeviceCharacteristics>,
    .xShmMap = Forward<&M::xShmMap, int, int, int, void volatile**>,
    .xShmLock = Forward<&M::xShmLock, int, int, int>,
    .xShmBarrier = ShmBarrier,
    .xShmUnmap = Forward<&M::xShmUnmap, int>,
    .xFetch = nullptr,
    .xUnfetch = nullptr,
};

int Open(sqlite3_vfs*, sqlite3_filename name, sqlite3_file* file, int flags, int* out_flags) {
  file->pMethods = nullptr;
  const int code = below->xOpen(below, name, Inner(file), flags, out_flags);
  if (Inner(file)->pMethods) file->pMethods = &kMethods;
  return code;
}

}  // namespace

void InstallKillingVfs(int64_t writes, int percent) {
  writes_left = writes;
  percent_written = percent;
  below = sqlite3_vfs_find(nullptr);
  static sqlite3_vfs vfs = *below;
  vfs.pNext = nullptr;
  vfs.zName = "killing";
  vfs.szOsFile = static_cast<int>(sizeof(File)) + below->szOsFile;
  vfs.xOpen = Open;
  sqlite3_vfs_register(&vfs, 1);
}

}  // namespace kvgauge

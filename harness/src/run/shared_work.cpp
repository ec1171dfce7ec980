// SPDX-License-Identifier: Apache-2.0
#include "src/run/shared_work.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include "core/check.h"
#include "core/clock.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr int64_t kMark = 0x6b76675f776f726b;  // "kvg_work"
constexpr int64_t kMostReadAhead = 64;
// Where the number of samples is unknown.
constexpr int64_t kUnknownReadAhead = 8;
constexpr double kMostWaitS = 30;  // for workers that begin late

Error NoSharedMemory(const char* call) {
  return IoError(
      StrCat("the workers of a run share no memory: ", call, ": ", std::strerror(errno)));
}

}  // namespace

// Zero where nothing was written.
struct SharedWork::Shared {
  int64_t mark;
  int64_t workers;
  int64_t resumed;
  int64_t leader;  // process
  int64_t devices[kMostWorkers];
  std::atomic<int64_t> samples, cells;  // to come, by the first worker
  std::atomic<int64_t> left;
  std::atomic<int64_t> began[kMostWorkers], free_bytes[kMostWorkers];
  RunCounters counters;
  std::atomic<int64_t> next[kMostGroups];
};

Result<SharedWork::Shared*> SharedWork::Map(int file) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return NoSharedMemory("mmap");
  return static_cast<Shared*>(memory);
}

int ProcessorsOf(int64_t index, int64_t workers, int processors) {
  const int64_t share = processors / workers + (index < processors % workers ? 1 : 0);
  return static_cast<int>(std::max<int64_t>(share, 1));
}

Result<std::unique_ptr<SharedWork>> SharedWork::Create(const std::vector<int>& devices,
                                                       bool resumed) {
  KVG_CHECK(!devices.empty() && std::ssize(devices) <= kMostWorkers, "a number of workers");
  // Workers inherit it: it is not closed when they begin.
  const int file = memfd_create("kvgauge-run", 0);
  if (file < 0) return NoSharedMemory("memfd_create");
  const bool sized = ftruncate(file, sizeof(Shared)) == 0;
  const Result<Shared*> mapped = sized ? Map(file) : NoSharedMemory("ftruncate");
  if (!mapped.ok()) {
    close(file);
    return mapped.error();
  }
  Shared* const shared = *mapped;
  shared->mark = kMark;
  shared->workers = std::ssize(devices);
  std::copy(devices.begin(), devices.end(), shared->devices);
  shared->leader = getpid();
  shared->resumed = resumed ? 1 : 0;
  return std::unique_ptr<SharedWork>(new SharedWork(file, shared, 0));
}

Result<std::unique_ptr<SharedWork>> SharedWork::Join(const std::string& word) {
  int file = -1;
  int64_t worker = -1;
  const char* const end = word.data() + word.size();
  auto at = std::from_chars(word.data(), end, file);
  if (at.ec == std::errc() && at.ptr != end && *at.ptr == ':') {
    at = std::from_chars(at.ptr + 1, end, worker);
  }
  struct stat facts;
  const bool fits = at.ptr == end && worker >= 0 && fstat(file, &facts) == 0 &&
                    facts.st_size == static_cast<off_t>(sizeof(Shared));
  if (fits) {
    KVG_ASSIGN(Shared* const shared, Map(file));
    std::unique_ptr<SharedWork> work(new SharedWork(-1, shared, worker));
    if (shared->mark == kMark && worker < shared->workers) return work;
  }
  return BadInput(StrCat("--worker: ", Quoted(word),
                         " names no run; only `kvgauge run --devices` starts workers"));
}

SharedWork::~SharedWork() {
  munmap(shared_, sizeof(Shared));
  if (file_ >= 0) close(file_);
}

std::string SharedWork::Word(int64_t index) const { return StrCat(file_, ":", index); }

int64_t SharedWork::workers() const { return shared_->workers; }
int SharedWork::device() const { return static_cast<int>(shared_->devices[worker_]); }
bool SharedWork::resumed() const { return shared_->resumed != 0; }
RunCounters& SharedWork::counters() const { return shared_->counters; }

Status SharedWork::EndWithLeader() const {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() == shared_->leader) return {};
  return IoError("the process that leads this run has ended");
}

int64_t SharedWork::Claim(int64_t group) {
  KVG_CHECK(group >= 0 && group < kMostGroups, "more groups than workers can share");
  return shared_->next[group].fetch_add(1);
}

int64_t SharedWork::Together(int64_t position, int64_t count) const {
  if (count < 0) return kUnknownReadAhead;
  return std::clamp<int64_t>((count - position) / (2 * workers()), 1, kMostReadAhead);
}

bool SharedWork::LeaveToAnother(int64_t limit_bytes) {
  if (began_s_ == 0) began_s_ = NowSeconds();
  while (known().began < workers() && NowSeconds() - began_s_ < kMostWaitS) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  const auto usable = [&](int64_t worker) {
    const int64_t free_bytes = shared_->free_bytes[worker];
    return static_cast<double>(limit_bytes > 0 ? std::min(free_bytes, limit_bytes) : free_bytes);
  };
  for (int64_t worker = 0; worker < workers(); ++worker) {
    if (usable(worker_) >= kMuchLess * usable(worker)) continue;
    shared_->left = 1;
    return true;
  }
  return false;
}

bool SharedWork::left() const { return shared_->left != 0; }
int SharedWork::roomiest() const {
  const std::vector<int64_t> free_bytes = known().free_bytes;
  const auto most = std::ranges::max_element(free_bytes) - free_bytes.begin();
  return static_cast<int>(shared_->devices[most]);
}

void SharedWork::Begin(int64_t samples, int64_t cells, int64_t free_bytes) {
  if (worker_ == 0) {
    shared_->samples = samples;
    shared_->cells = cells;
  }
  began_s_ = NowSeconds();
  shared_->free_bytes[worker_] = free_bytes;
  shared_->began[worker_] = 1;
}

SharedWork::Known SharedWork::known() const {
  Known known;
  for (int64_t worker = 0; worker < workers(); ++worker) {
    known.began += shared_->began[worker];
    known.free_bytes.push_back(shared_->free_bytes[worker]);
  }
  if (shared_->began[0] != 0) {
    known.samples = shared_->samples;
    known.cells = shared_->cells;
  }
  return known;
}

}  // namespace kvgauge

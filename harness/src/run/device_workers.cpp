// SPDX-License-Identifier: Apache-2.0
#include "src/run/device_workers.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <set>

#include "core/clock.h"
#include "core/log.h"
#include "core/strings.h"
#include "kernels/device_number.h"
#include "kernels/devices.h"
#include "kernels/ops.h"
#include "src/cluster/subprocess.h"
#include "src/run/run_outcome.h"

namespace kvgauge {
namespace {

constexpr int kPollMs = 100;

Result<std::vector<int>> ParseDevices(const std::string& text, int count) {
  std::vector<int> chosen;
  if (text == "all") {
    for (int device = 0; device < count; ++device) chosen.push_back(device);
    return chosen;
  }
  for (const std::string& part : Split(text, ',')) {
    int device = -1;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), device);
    if (error != std::errc() || end != part.data() + part.size() || device < 0) {
      return BadInput(StrCat("--devices: ", Quoted(text),
                             ", expected numbers of devices from 0, such as 0,1, or all"));
    }
    if (std::ranges::find(chosen, device) != chosen.end()) {
      return BadInput(StrCat("--devices: ", Quoted(text), " names device ", device, " twice"));
    }
    chosen.push_back(device);
  }
  return chosen;
}

// One of the workers, and what came from it so far.
struct Worker {
  StartedProgram program;
  bool ended = false;
  std::string out, err;  // of err what is no whole line yet
};

class Workers {
 public:
  Workers(const std::vector<int>& devices, const std::string& name, const SharedWork& work,
          RunProgress& progress, const InterruptGuard& interrupt)
      : devices_(devices), work_(work), progress_(progress), interrupt_(interrupt) {
    std::vector<std::string> numbers;
    for (const int device : devices) numbers.push_back(StrCat(device));
    head_ = StrCat(name, " on devices ", Join(numbers, ", "));
  }
  ~Workers() {
    // An error is on its way: nobody leads those that run.
    for (Worker& worker : workers_) {
      if (worker.ended) continue;
      kill(worker.program.process, SIGKILL);
      End(worker);
    }
  }
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  Status Start(const std::vector<std::string>& words);
  Result<WorkersOutcome> Wait();

 private:
  // Waits until something comes, but not long; gives whether any worker is left.
  bool Listen();
  // Reads what there is; false at the end.
  static bool Read(int from, std::string& text);
  void TellLines(Worker& worker);
  int End(Worker& worker);
  void TellOfMemory(const SharedWork::Known& known);
  // Shows how far all of them are, once one has begun.
  void Show(bool last);

  const std::vector<int>& devices_;
  const SharedWork& work_;
  RunProgress& progress_;
  const InterruptGuard& interrupt_;
  std::string head_;
  std::vector<Worker> workers_;
  std::vector<WorkerEnd> ends_;
  std::set<std::string> told_;  // lines
  bool interrupted_ = false;
  bool memory_told_ = false;
};

Status Workers::Start(const std::vector<std::string>& words) {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  if (error) return IoError(StrCat("/proc/self/exe: ", error.message()));
  for (size_t i = 0; i < devices_.size(); ++i) {
    std::vector<std::string> line = {program};
    line.insert(line.end(), words.begin(), words.end());
    line.push_back(StrCat("--worker=", work_.Word(static_cast<int64_t>(i))));
    KVG_ASSIGN(const StartedProgram started, StartProgram(line, true));
    workers_.push_back({.program = started, .out = {}, .err = {}});
    ends_.push_back({.device = devices_[i], .run_key = {}});
  }
  return {};
}

bool Workers::Read(int from, std::string& text) {
  std::array<char, 4096> buffer;
  const ssize_t count = read(from, buffer.data(), buffer.size());
  if (count < 0) return errno == EINTR;
  text.append(buffer.data(), static_cast<size_t>(count));
  return count > 0;
}

void Workers::TellLines(Worker& worker) {
  size_t begin = 0;
  for (size_t end = 0; (end = worker.err.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = worker.err.substr(begin, end - begin);
    if (told_.insert(line).second) progress_.Note(line);
  }
  worker.err.erase(0, begin);
}

int Workers::End(Worker& worker) {
  worker.ended = true;
  close(worker.program.out);
  close(worker.program.err);
  return WaitForProgram(worker.program);
}

bool Workers::Listen() {
  std::vector<pollfd> ends;
  std::vector<size_t> whose;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].ended) continue;
    for (const int end : {workers_[i].program.out, workers_[i].program.err}) {
      ends.push_back({.fd = end, .events = POLLIN, .revents = 0});
      whose.push_back(i);
    }
  }
  if (ends.empty()) return false;
  if (poll(ends.data(), ends.size(), kPollMs) <= 0) return true;
  for (size_t i = 0; i < ends.size(); i += 2) {
    Worker& worker = workers_[whose[i]];
    const bool out = ends[i].revents == 0 || Read(ends[i].fd, worker.out);
    const bool err = ends[i + 1].revents == 0 || Read(ends[i + 1].fd, worker.err);
    TellLines(worker);
    // It has closed both when it has ended; one may be read out before the other.
    if (out || err) continue;
    if (!worker.err.empty()) worker.err += '\n';
    TellLines(worker);
    WorkerEnd& end = ends_[whose[i]];
    end.exit_code = End(worker);
    if (end.exit_code > 128) {
      const int signal = end.exit_code - 128;
      progress_.Note(StrCat("device ", end.device, ": its worker was ended by signal ", signal,
                            " (", strsignal(signal), "); what it had not recorded stays open"));
    }
  }
  return true;
}

void Workers::TellOfMemory(const SharedWork::Known& known) {
  if (memory_told_ || known.began < work_.workers()) return;
  memory_told_ = true;
  const int64_t most = *std::ranges::max_element(known.free_bytes);
  for (size_t i = 0; i < devices_.size(); ++i) {
    const auto own_bytes = static_cast<double>(known.free_bytes[i]);
    if (own_bytes >= SharedWork::kMuchLess * static_cast<double>(most)) continue;
    progress_.Note(StrCat("device ", devices_[i], " has ", HumanBytes(known.free_bytes[i]),
                          " free, another has ", HumanBytes(most),
                          ": samples that do not fit there are left to others"));
  }
}

void Workers::Show(bool last) {
  const SharedWork::Known known = work_.known();
  if (known.began == 0) return;
  TellOfMemory(known);
  progress_.Follow(head_, work_.counters(), known.samples, known.cells, last);
}

Result<WorkersOutcome> Workers::Wait() {
  const double start_s = NowSeconds();
  while (Listen()) {
    if (interrupt_.signal() != 0 && !interrupted_) {
      interrupted_ = true;
      for (const Worker& worker : workers_) {
        if (!worker.ended) kill(worker.program.process, SIGTERM);
      }
    }
    Show(false);
  }
  Show(true);
  WorkersOutcome outcome;
  for (size_t i = 0; i < workers_.size(); ++i) {
    WorkerEnd& end = ends_[i];
    if (workers_[i].out.empty()) continue;
    KVG_ASSIGN(const RunOutcome part, ReadOutcome(workers_[i].out, StrCat("device ", end.device)));
    end.run_key = part.run_key;
    end.cells = part.cells;
    AddOutcome(part, outcome.all);
  }
  outcome.workers = ends_;
  outcome.all.seconds = NowSeconds() - start_s;
  outcome.all.signal = interrupt_.signal();
  return outcome;
}

}  // namespace

Result<std::vector<int>> ChooseDevices(const std::string& text, const std::string& backend) {
  if (backend != "cuda") {
    return BadInput(StrCat("--devices: backend ", backend,
                           NamesSeveralDevices(backend)   ? " is one model on several devices"
                           : backend.starts_with("cuda:") ? " is one device already"
                                                          : " has no devices to choose from",
                           ", expected --backend cuda"));
  }
  const Result<std::vector<DeviceReport>> listed = ListDevices();
  if (!listed.ok()) return listed.error().Wrap("--devices");
  const std::vector<DeviceReport>& there = *listed;
  const auto count = static_cast<int>(there.size());
  KVG_ASSIGN(std::vector<int> chosen, ParseDevices(text, count));
  if (std::ssize(chosen) > SharedWork::kMostWorkers) {
    return BadInput(StrCat("--devices: ", chosen.size(), " devices, expected ",
                           SharedWork::kMostWorkers, " at most"));
  }
  for (const int device : chosen) {
    if (device >= count) {
      return BadInput(StrCat("--devices: ", WhyNoDevice(device, count)));
    }
    const DeviceReport& found = there[static_cast<size_t>(device)];
    if (!found.fault.empty()) return BadInput(StrCat("--devices: ", found.fault));
    const DeviceReport& first = there[static_cast<size_t>(chosen[0])];
    const auto kind = [](const DeviceReport& of) {
      return StrCat(" (", of.name, ", ", of.variant, ")");
    };
    if (found.variant != first.variant) {
      return BadInput(StrCat("--devices: device ", chosen[0], kind(first), " and device ", device,
                             kind(found), " may give other bits, so that they run cells of other ",
                             "keys; expected devices of one kind, or a run for each kind"));
    }
    if (found.name != first.name) {
      LogWarning(StrCat("--devices: device ", chosen[0], kind(first), " and device ", device,
                        kind(found), " are different products of one compute capability; their ",
                        "bits have not been compared"));
    }
  }
  return chosen;
}

Result<WorkersOutcome> RunWorkers(const std::vector<int>& devices,
                                  const std::vector<std::string>& words, const std::string& name,
                                  const SharedWork& work, RunProgress& progress,
                                  const InterruptGuard& interrupt) {
  Workers workers(devices, name, work, progress, interrupt);
  KVG_TRY(workers.Start(words));
  return workers.Wait();
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "core/clock.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

namespace kvgauge {
namespace {

// What all of /proc/stat's busy columns add up to, over the processors named or over all.
double MachineSeconds(std::span<const int> processors) {
  std::ifstream file("/proc/stat");
  double ticks = 0;
  for (std::string line; std::getline(file, line) && line.starts_with("cpu");) {
    std::istringstream fields(line.substr(3));
    if (processors.empty() != (line[3] == ' ')) continue;
    int number = 0;
    if (!processors.empty()) {
      fields >> number;
      if (std::ranges::find(processors, number) == processors.end()) continue;
    }
    // user nice system idle iowait irq softirq steal; guest time is inside user.
    double t[8] = {};
    for (double& column : t) fields >> column;
    ticks += t[0] + t[1] + t[2] + t[5] + t[6] + t[7];
  }
  return ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
}

}  // namespace

double NowSeconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

double ThreadCpuSeconds() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

std::string UtcNow() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

CpuUse ReadCpuUse(std::span<const int> processors) {
  CpuUse use;
  rusage self;
  if (getrusage(RUSAGE_SELF, &self) == 0) {
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    use.process_s = seconds(self.ru_utime) + seconds(self.ru_stime);
  }
  use.machine_s = MachineSeconds(processors);
  return use;
}

double OthersShare(const CpuUse& before, const CpuUse& after, double wall_s, int processors) {
  const double machine_s = after.machine_s - before.machine_s;
  const double process_s = after.process_s - before.process_s;
  if (wall_s <= 0 || processors <= 0) return 0;
  // The machine counts in ticks, which may be as long as what was timed.
  return std::clamp((machine_s - process_s) / (wall_s * processors), 0.0, 1.0);
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "core/clock.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>

namespace kvgauge {

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

CpuUse ReadCpuUse() {
  CpuUse use;
  rusage self;
  if (getrusage(RUSAGE_SELF, &self) == 0) {
    const auto seconds = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
    };
    use.process_s = seconds(self.ru_utime) + seconds(self.ru_stime);
  }
  if (std::FILE* file = std::fopen("/proc/stat", "r")) {
    // user nice system idle iowait irq softirq steal; guest time is inside user.
    double t[8] = {};
    if (std::fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &t[0], &t[1], &t[2], &t[3], &t[4],
                    &t[5], &t[6], &t[7]) == 8) {
      const double ticks = t[0] + t[1] + t[2] + t[5] + t[6] + t[7];
      use.machine_s = ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
    }
    std::fclose(file);
  }
  return use;
}

double OthersShare(const CpuUse& before, const CpuUse& after, double wall_s, int processors) {
  const double machine_s = after.machine_s - before.machine_s;
  const double process_s = after.process_s - before.process_s;
  if (wall_s <= 0 || processors <= 0) return 0;
  return std::max(0.0, machine_s - process_s) / (wall_s * processors);
}

}  // namespace kvgauge

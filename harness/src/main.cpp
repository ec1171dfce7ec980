// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "harness/build_info.h"
#include "harness/cli.h"

namespace {

// Tasks that are running or want to run on this machine now, this one included; 0 when unknown.
int RunnableTasks() {
  int runnable = 0;
  if (std::FILE* file = std::fopen("/proc/loadavg", "r")) {
    if (std::fscanf(file, "%*f %*f %*f %d", &runnable) != 1) runnable = 0;
    std::fclose(file);
  }
  return runnable;
}

// OpenMP threads that spin while they wait are a third faster on a quiet machine, and up to a
// hundred times slower on a busy one, where they keep the thread they wait for from running. The
// runtime reads its policy before main, so a busy machine costs one more exec. A policy that the
// user has set stands.
void WaitPassivelyOnABusyMachine(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  if (RunnableTasks() <= 1) return;
  setenv("OMP_WAIT_POLICY", "passive", 1);
  execv("/proc/self/exe", argv);
  // Where exec fails the program goes on as it is: slower, not wrong.
}

}  // namespace

int main(int argc, char** argv) {
  WaitPassivelyOnABusyMachine(argv);
  return kvgauge::RunCommandLine(argc, argv, kvgauge::ThisBuild());
}

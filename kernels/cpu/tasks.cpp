// SPDX-License-Identifier: Apache-2.0
#include "kernels/tasks.h"

#include "cpu/cpu.h"
#include "cpu/split_work.h"

namespace kvgauge {
namespace {

class CpuTasks final : public TaskOps {
 public:
  explicit CpuTasks(ThreadSettings threads) : threads_(threads) {}

  void ForEach(int64_t count, double cost_ns, const std::function<void(int64_t)>& body) override {
    const bool shared = WorthThreads(threads_, count, cost_ns);
    const int team = shared ? static_cast<int>(std::min<int64_t>(threads_.threads, count)) : 1;
    PiecesFor(team, count, body);
  }

 private:
  const ThreadSettings threads_;
};

}  // namespace

std::unique_ptr<TaskOps> MakeCpuTasks(ThreadSettings threads) {
  return std::make_unique<CpuTasks>(threads);
}

}  // namespace kvgauge

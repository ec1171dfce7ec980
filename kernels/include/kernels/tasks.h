// SPDX-License-Identifier: Apache-2.0
// Independent pieces of work that each call Ops, spread over the threads of the backend.
#pragma once

#include <cstdint>
#include <functional>

namespace kvgauge {

class TaskOps {
 public:
  virtual ~TaskOps() = default;

  // body(0) .. body(count - 1), each about `cost_ns` of host work, in any order and on any threads;
  // returns when all are done. Bodies may call every group of the same Ops; such a call stays on
  // its body's thread and has its usual result. They may not throw. If calls to the device cannot
  // overlap, or the work is too small to wake threads, they run in order.
  virtual void ForEach(int64_t count, double cost_ns, const std::function<void(int64_t)>& body) = 0;
};

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstdlib>

#include "cuda/suite_device.h"

namespace kvgauge {

bool OnDevice() { return true; }

std::unique_ptr<Ops> MakeTestDevice() {
  constexpr int kSkipped = 77;  // SKIP_CODE in CMakeLists.txt
  Result<std::unique_ptr<Ops>> ops = MakeOps("cuda", {});
  if (!ops.ok()) {
    std::fprintf(stderr, "skipped: %s\n", ops.error().message.c_str());
    std::_Exit(kSkipped);
  }
  return std::move(ops).value();
}

Ops& TestDevice() {
  static Ops* const ops = MakeTestDevice().release();
  return *ops;
}

int64_t CopiesToHost() { return -1; }

}  // namespace kvgauge

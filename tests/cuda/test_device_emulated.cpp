// SPDX-License-Identifier: Apache-2.0
#include "cuda/backend_parts.h"
#include "cuda/emulated/device_memory.h"
#include "cuda/suite_device.h"

namespace kvgauge {

bool OnDevice() { return true; }

std::unique_ptr<Ops> MakeTestDevice() {
  std::string why;
  std::unique_ptr<Ops> ops = cuda::MakeDeviceOps(0, &why);
  KVG_CHECK(ops != nullptr, why);
  ops->variant = "emulated";
  return ops;
}

Ops& TestDevice() {
  static Ops* const ops = MakeTestDevice().release();
  return *ops;
}

int64_t CopiesToHost() { return cuda::emulated::TrafficSoFar().downloads; }

}  // namespace kvgauge

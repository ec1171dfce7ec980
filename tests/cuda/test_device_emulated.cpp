// SPDX-License-Identifier: Apache-2.0
#include "cuda/backend_parts.h"
#include "cuda/test_device.h"

namespace kvgauge {

Ops& TestDevice() {
  static Ops* const ops = [] {
    std::string why;
    std::unique_ptr<Ops> made = cuda::MakeDeviceOps(&why);
    KVG_CHECK(made != nullptr, why);
    made->variant = "emulated";
    return made.release();
  }();
  return *ops;
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// What the program's loader answers, from the emulator: commands that are linked with this run on
// "cuda" without a device.
#include "cuda/backend_parts.h"
#include "src/cuda_backend.h"

namespace kvgauge {

Result<std::unique_ptr<Ops>> MakeCudaOps() {
  std::string why;
  std::unique_ptr<Ops> ops = cuda::MakeDeviceOps(&why);
  if (ops == nullptr) return Unsupported("cuda: " + why);
  ops->variant = "emulated";
  return ops;
}

Result<std::unique_ptr<LibraryProduct>> MakeCudaLibrary() {
  return Unsupported("the emulated device has no vendor");
}

BackendReport ReportCuda() {
  std::string detail;
  const bool usable = cuda::ProbeDevice(&detail);
  return {"cuda", usable, detail};
}

}  // namespace kvgauge

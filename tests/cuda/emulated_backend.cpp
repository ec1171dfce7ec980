// SPDX-License-Identifier: Apache-2.0
// What the program's loader answers, from the emulator: commands that are linked with this run on
// "cuda" without a device.
#include "cuda/backend_parts.h"
#include "src/cuda_backend.h"

namespace kvgauge {

Result<std::unique_ptr<Ops>> MakeCudaOps(std::span<const int> devices) {
  std::string why;
  std::unique_ptr<Ops> ops = cuda::MakeDeviceOps(devices, &why);
  if (ops == nullptr) return Unsupported("cuda: " + why);
  ops->variant = "emulated";
  return ops;
}

Result<std::unique_ptr<LibraryProduct>> MakeCudaLibrary() {
  return Unsupported("the emulated device has no vendor");
}

Result<std::vector<DeviceReport>> ListCudaDevices(bool begin) {
  std::string why;
  std::vector<DeviceReport> devices = cuda::ListDevices(begin, &why);
  if (devices.empty()) return Unsupported("cuda: " + why);
  return devices;
}

std::string DescribeCudaProducts(int device) {
  return cuda::ProbeProducts(device) + "; " + cuda::ProbePrefill(device);
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/cuda_backend.h"

namespace kvgauge {

namespace {
Error BuiltWithout() {
  return Unsupported("cuda: built without CUDA (configure with -DKVG_CUDA=ON and nvcc on PATH)");
}
}  // namespace

Result<std::unique_ptr<Ops>> MakeCudaOps(std::span<const int> /*devices*/) {
  return BuiltWithout();
}

Result<std::unique_ptr<LibraryProduct>> MakeCudaLibrary() { return BuiltWithout(); }

Result<std::vector<DeviceReport>> ListCudaDevices(bool /*begin*/) { return BuiltWithout(); }

std::string DescribeCudaProducts(int /*device*/) { return ""; }

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/cuda_backend.h"

namespace kvgauge {

Result<std::unique_ptr<Ops>> MakeCudaOps() { return Unsupported("cuda: " + ReportCuda().detail); }

Result<std::unique_ptr<LibraryProduct>> MakeCudaLibrary() {
  return Unsupported("cuda: " + ReportCuda().detail);
}

BackendReport ReportCuda() {
  return {"cuda", false, "built without CUDA (configure with -DKVG_CUDA=ON and nvcc on PATH)"};
}

}  // namespace kvgauge

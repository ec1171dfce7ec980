// SPDX-License-Identifier: Apache-2.0
// What the folder cuda/ or no_cuda/ answers; exactly one of them is compiled.
#pragma once

#include <memory>

#include "kernels/library.h"
#include "kernels/ops.h"

namespace kvgauge {

Result<std::unique_ptr<Ops>> MakeCudaOps();
Result<std::unique_ptr<LibraryProduct>> MakeCudaLibrary();
BackendReport ReportCuda();

}  // namespace kvgauge

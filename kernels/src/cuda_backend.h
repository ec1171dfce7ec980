// SPDX-License-Identifier: Apache-2.0
// What the folder cuda/ or no_cuda/ answers; exactly one of them is compiled.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/library.h"
#include "kernels/ops.h"

namespace kvgauge {

// On one device, or on several that the first one's Ops own (kernels/devices.h).
Result<std::unique_ptr<Ops>> MakeCudaOps(std::span<const int> devices);
Result<std::unique_ptr<LibraryProduct>> MakeCudaLibrary();
// `begin`: tells of free memory as well, and for that begins to use each of them.
Result<std::vector<DeviceReport>> ListCudaDevices(bool begin);
// Who multiplies many rows, and who attends to them, on a device that ListCudaDevices has listed as
// usable.
std::string DescribeCudaProducts(int device);

}  // namespace kvgauge

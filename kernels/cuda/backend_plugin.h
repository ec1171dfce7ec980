// SPDX-License-Identifier: Apache-2.0
// The entry points of the CUDA shared object, libkvgauge_cuda.so. The program never links it: it is
// looked for beside the program when a device is asked for.
#pragma once

#include <string>
#include <vector>

namespace kvgauge {
struct Ops;
struct DeviceReport;
class LibraryProduct;
}  // namespace kvgauge

extern "C" {

// What both sides must have been built from: see abi_tag.h. Static storage.
const char* kvgauge_cuda_abi();

// Everything below is for callers to whom kvgauge_cuda_abi agreed.

// All devices, as kvgauge::cuda::ListDevices has them. False, and why, when there is none.
bool kvgauge_cuda_list(bool begin, std::vector<kvgauge::DeviceReport>* devices, std::string* why);
// Who multiplies many rows on a device, and who attends to them.
void kvgauge_cuda_products(int device, std::string* text);

// On `count` devices (kvgauge::cuda::MakeDeviceOps); owned by the caller. Null, and why
// (NUL-terminated, at most `size` bytes of `detail`), when one cannot be used.
kvgauge::Ops* kvgauge_cuda_make_ops(const int* devices, int count, char* detail, int size);
// The same of the vendor's product, on the first device of the Ops that were made.
kvgauge::LibraryProduct* kvgauge_cuda_make_library(char* detail, int size);

}  // extern "C"

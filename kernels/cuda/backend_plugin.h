// SPDX-License-Identifier: Apache-2.0
// The entry points of the CUDA shared object, libkvgauge_cuda.so. The program never links it: it is
// looked for beside the program when a device is asked for.
#pragma once

namespace kvgauge {
struct Ops;
class LibraryProduct;
}  // namespace kvgauge

extern "C" {

// What both sides must have been built from: see abi_tag.h. Static storage.
const char* kvgauge_cuda_abi();

// Writes what was found, or why nothing was, to `detail` (NUL-terminated, at most `size` bytes).
// True when there is a device that MakeOps can use.
bool kvgauge_cuda_probe(char* detail, int size);

// Owned by the caller. Null, and why, when there is none. Only after kvgauge_cuda_abi agreed.
kvgauge::Ops* kvgauge_cuda_make_ops(char* detail, int size);
// The same of the vendor's product.
kvgauge::LibraryProduct* kvgauge_cuda_make_library(char* detail, int size);

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
// The entry points of the CUDA shared object. Plain C, no types of ours: host and device code are
// built by different compilers.
#pragma once

extern "C" {

// Writes what was found, or why nothing was, to `detail` (NUL-terminated, at most `size` bytes).
// Returns the number of usable devices.
int kvgauge_cuda_probe(char* detail, int size);

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <cstdio>

#include "plugin.h"

extern "C" __attribute__((visibility("default"))) int kvgauge_cuda_probe(char* detail, int size) {
  // The count is left untouched on failure: trust the return code alone.
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    std::snprintf(detail, static_cast<size_t>(size), "no usable device: %s",
                  cudaGetErrorString(status));
    return 0;
  }
  cudaDeviceProp properties;
  if (count == 0 || cudaGetDeviceProperties(&properties, 0) != cudaSuccess) {
    std::snprintf(detail, static_cast<size_t>(size), "no usable device");
    return 0;
  }
  std::snprintf(detail, static_cast<size_t>(size), "%d device(s), first: %s, sm_%d%d, %.1f GiB",
                count, properties.name, properties.major, properties.minor,
                static_cast<double>(properties.totalGlobalMem) / (1024.0 * 1024.0 * 1024.0));
  return count;
}

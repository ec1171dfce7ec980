// SPDX-License-Identifier: Apache-2.0
#include "cuda/backend_plugin.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "cuda/abi_tag.h"
#include "cuda/backend_parts.h"

namespace {

void Answer(const std::string& text, char* detail, int size) {
  const size_t length = std::min(text.size(), static_cast<size_t>(size) - 1);
  std::memcpy(detail, text.data(), length);
  detail[length] = 0;
}

}  // namespace

#define KVG_EXPORT extern "C" __attribute__((visibility("default")))

KVG_EXPORT const char* kvgauge_cuda_abi() { return kvgauge::kAbiTag; }

KVG_EXPORT bool kvgauge_cuda_list(bool begin, std::vector<kvgauge::DeviceReport>* devices,
                                  std::string* why) {
  *devices = kvgauge::cuda::ListDevices(begin, why);
  return !devices->empty();
}

KVG_EXPORT void kvgauge_cuda_products(int device, std::string* text) {
  *text = kvgauge::cuda::ProbeProducts(device) + "; " + kvgauge::cuda::ProbePrefill(device);
}

KVG_EXPORT kvgauge::Ops* kvgauge_cuda_make_ops(const int* devices, int count, char* detail,
                                               int size) {
  std::string why;
  std::unique_ptr<kvgauge::Ops> ops =
      kvgauge::cuda::MakeDeviceOps({devices, static_cast<size_t>(count)}, &why);
  if (ops == nullptr) Answer(why, detail, size);
  return ops.release();
}

KVG_EXPORT kvgauge::LibraryProduct* kvgauge_cuda_make_library(char* detail, int size) {
  std::string why;
  std::unique_ptr<kvgauge::LibraryProduct> library = kvgauge::cuda::MakeCudaLibraryProduct(&why);
  if (library == nullptr) Answer(why, detail, size);
  return library.release();
}

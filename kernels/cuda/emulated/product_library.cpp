// SPDX-License-Identifier: Apache-2.0
#include "cuda/emulated/device_memory.h"
#include "cuda/many_rows.h"

namespace kvgauge::cuda {
namespace emulated {
namespace {
ProductLibrary* product_library = nullptr;
}  // namespace

void SetProductLibrary(ProductLibrary* library) { product_library = library; }

}  // namespace emulated

ProductLibrary* FindProductLibrary(int, std::string* why) {
  if (emulated::product_library == nullptr) *why = "the emulated device has no vendor";
  return emulated::product_library;
}

}  // namespace kvgauge::cuda

// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include "core/strings.h"
#include "cuda/device/vendor_library.h"

namespace kvgauge::cuda {

VendorLibrary::VendorLibrary(std::span<const std::string> files) {
  std::string broken;
  for (const std::string& file : files) {
    file_ = file;
    library_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library_ != nullptr) return;
    // It may be there and be damaged, or lack a library of its own.
    const std::string error = dlerror();
    const bool absent =
        error.starts_with(StrCat(file, ": cannot open")) && error.ends_with("directory");
    if (!absent && broken.empty()) broken = StrCat(file, " cannot be loaded: ", error);
  }
  fault_ = broken.empty()
               ? StrCat(file_, " is not where libraries are looked for (LD_LIBRARY_PATH)")
               : broken;
}

void* VendorLibrary::Address(const char* symbol) {
  if (library_ == nullptr) return nullptr;
  void* const found = dlsym(library_, symbol);
  if (found == nullptr) fault_ = StrCat(file_, " lacks ", symbol);
  return found;
}

}  // namespace kvgauge::cuda

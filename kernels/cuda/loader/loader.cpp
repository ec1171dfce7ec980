// SPDX-License-Identifier: Apache-2.0
// Finds the CUDA shared object at run time and asks it what the machine has.
#include <dlfcn.h>

#include <array>
#include <cstring>

#include "core/strings.h"
#include "cuda/abi_tag.h"
#include "cuda/backend_plugin.h"
#include "src/cuda_backend.h"

namespace kvgauge {
namespace {

constexpr int kDetailBytes = 512;
using Detail = std::array<char, kDetailBytes>;

struct Plugin {
  decltype(&kvgauge_cuda_abi) abi = nullptr;
  decltype(&kvgauge_cuda_list) list = nullptr;
  decltype(&kvgauge_cuda_products) products = nullptr;
  decltype(&kvgauge_cuda_make_ops) make_ops = nullptr;
  decltype(&kvgauge_cuda_make_library) make_library = nullptr;
  std::string fault;  // why it cannot be used; empty when it can

  template <class Function>
  void Find(void* library, const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(library, name));
    if (*function == nullptr && fault.empty()) {
      fault = StrCat("libkvgauge_cuda.so lacks ", name,
                     ": it belongs to another version of this program");
    }
  }
};

// Never unloaded: operations and device memory live in it.
Plugin Load() {
  Plugin plugin;
  // Found beside the program (its run path).
  void* library = dlopen("libkvgauge_cuda.so", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    plugin.fault = StrCat("cannot load the CUDA library: ", dlerror());
    return plugin;
  }
  plugin.Find(library, "kvgauge_cuda_abi", &plugin.abi);
  plugin.Find(library, "kvgauge_cuda_list", &plugin.list);
  plugin.Find(library, "kvgauge_cuda_products", &plugin.products);
  plugin.Find(library, "kvgauge_cuda_make_ops", &plugin.make_ops);
  plugin.Find(library, "kvgauge_cuda_make_library", &plugin.make_library);
  if (plugin.fault.empty() && std::strcmp(plugin.abi(), kAbiTag) != 0) {
    plugin.fault =
        StrCat("libkvgauge_cuda.so was built from other sources or by another compiler (",
               plugin.abi(), ", not ", kAbiTag, "): build both together");
  }
  return plugin;
}

const Plugin& ThePlugin() {
  static const Plugin plugin = Load();
  return plugin;
}

}  // namespace

Result<std::unique_ptr<Ops>> MakeCudaOps(std::span<const int> devices) {
  const Plugin& plugin = ThePlugin();
  if (!plugin.fault.empty()) return Unsupported(StrCat("cuda: ", plugin.fault));
  Detail detail = {};
  std::unique_ptr<Ops> ops(plugin.make_ops(devices.data(), static_cast<int>(devices.size()),
                                           detail.data(), kDetailBytes));
  if (ops == nullptr) return Unsupported(StrCat("cuda: ", detail.data()));
  return ops;
}

Result<std::unique_ptr<LibraryProduct>> MakeCudaLibrary() {
  const Plugin& plugin = ThePlugin();
  if (!plugin.fault.empty()) return Unsupported(StrCat("cuda: ", plugin.fault));
  Detail detail = {};
  std::unique_ptr<LibraryProduct> library(plugin.make_library(detail.data(), kDetailBytes));
  if (library == nullptr) return Unsupported(StrCat("cuda: ", detail.data()));
  return library;
}

Result<std::vector<DeviceReport>> ListCudaDevices(bool begin) {
  const Plugin& plugin = ThePlugin();
  if (!plugin.fault.empty()) return Unsupported(StrCat("cuda: ", plugin.fault));
  std::vector<DeviceReport> devices;
  std::string why;
  if (!plugin.list(begin, &devices, &why)) return Unsupported(StrCat("cuda: ", why));
  return devices;
}

std::string DescribeCudaProducts(int device) {
  std::string text;
  ThePlugin().products(device, &text);
  return text;
}

}  // namespace kvgauge

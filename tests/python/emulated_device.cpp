// SPDX-License-Identifier: Apache-2.0
// The emulated device as a library sees it that computes there: a second module in the extension's
// file, since the device's memory belongs to that.
#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

#include "cuda/device/driver.h"
#include "cuda/emulated/device_memory.h"

namespace {

namespace py = pybind11;
namespace cuda = kvgauge::cuda;

void* Pointer(uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): from Python
}

bool Holds(uintptr_t address) { return cuda::emulated::IsDeviceMemory(Pointer(address)); }

py::bytes Read(uintptr_t address, int64_t size_bytes) {
  std::string bytes(static_cast<size_t>(size_bytes), '\0');
  cuda::CopyToHost(bytes.data(), Pointer(address), size_bytes, nullptr);
  return bytes;
}

void Write(uintptr_t address, const std::string& bytes) {
  cuda::CopyToDevice(Pointer(address), bytes.data(), static_cast<int64_t>(bytes.size()), nullptr);
}

uintptr_t Allocate(int64_t size_bytes) {
  return reinterpret_cast<uintptr_t>(cuda::Malloc(size_bytes, nullptr));
}

}  // namespace

PYBIND11_MODULE(emulated_device, module) {
  module.def("holds", &Holds);
  module.def("read", &Read);
  module.def("write", &Write);
  module.def("allocate", &Allocate);  // for the rest of the process
  module.def("set_devices", &cuda::emulated::SetDevices);
  module.def("choose", &cuda::emulated::ChooseForThread);
}

// SPDX-License-Identifier: Apache-2.0
// A vendor's library that is loaded at run time, so that the plugin starts without it. Never
// unloaded: such libraries keep threads and device memory of their own. Needs no device.
#pragma once

#include <span>
#include <string>

namespace kvgauge::cuda {

class VendorLibrary {
 public:
  // The first of `files` that can be loaded: names that are looked for, or paths.
  explicit VendorLibrary(std::span<const std::string> files);

  // Why it cannot be used; empty when it can.
  const std::string& fault() const { return fault_; }
  // "libcublas.so.13", of those the one that was loaded, or else the last.
  const std::string& file() const { return file_; }
  // Leaves the function alone, which is a fault, where the library lacks it or was not loaded.
  template <class Function>
  void Find(const char* symbol, Function** function) {
    if (void* const found = Address(symbol)) *function = reinterpret_cast<Function*>(found);
  }

 private:
  void* Address(const char* symbol);

  void* library_ = nullptr;
  std::string file_, fault_;
};

}  // namespace kvgauge::cuda

// SPDX-License-Identifier: Apache-2.0
// What came of asking for a device, and how that is said. The same on a device and in tests.
#pragma once

#include <string>

#include "cuda/device/driver.h"

namespace kvgauge::cuda {

struct DeviceQuery {
  // The first call that failed; kNone: a device answered everything.
  enum class Failed { kNone, kVersion, kCount, kProperties, kMemory, kContext };

  Failed failed = Failed::kNone;
  std::string error;  // of that call, in the runtime's words
  int device = 0;     // the one that was asked for
  int count = 0;      // of devices
  DeviceInfo info;    // as far as it was told
};

// Asks for a device. `begin`: begins to use it as well, which takes some hundred MiB of its memory
// until the process ends; without that nothing is known of its free memory.
DeviceQuery AskDevice(int device, bool begin);

// Why the device that was asked for cannot be used; empty: it can.
std::string WhyNotUsable(const DeviceQuery& asked);

// "NVIDIA H200, sm_90, 138.2 GiB of 139.8 GiB free, driver for CUDA 13.0"
std::string Describe(const DeviceInfo& info);

}  // namespace kvgauge::cuda

// SPDX-License-Identifier: Apache-2.0
// Tests of kernels and models are compiled once; what they run on is chosen when they are linked:
// the host's backends (support/on_host.cpp), the emulated device or the machine's (tests/cuda).
#pragma once

#include <memory>

#include "kernels/ops.h"

namespace kvgauge {

bool OnDevice();

// Null unless OnDevice(). Each call makes another, the caller's.
std::unique_ptr<Ops> MakeTestDevice();
// The device's groups behind host tensors, for tables that are written for host memory: each call
// copies its tensors there and back.
std::unique_ptr<Ops> MakeHostedDevice();

}  // namespace kvgauge

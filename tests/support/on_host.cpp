// SPDX-License-Identifier: Apache-2.0
#include "support/test_device.h"

namespace kvgauge {

bool OnDevice() { return false; }
std::unique_ptr<Ops> MakeTestDevice() { return nullptr; }
std::unique_ptr<Ops> MakeHostedDevice() { return nullptr; }

}  // namespace kvgauge

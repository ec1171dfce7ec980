// SPDX-License-Identifier: Apache-2.0
// What `bench kernels` and `doctor --check` say of the speed of a device.
#pragma once

#include "core/json_fwd.h"

namespace kvgauge {

struct DeviceCheck;

void PrintRates(const DeviceCheck& check);
// {"copy_gb_per_s": ..., "product_tflop_per_s": ..., "product_by": "our kernel", "rates": [...]}
Json RatesJson(const DeviceCheck& check);

}  // namespace kvgauge

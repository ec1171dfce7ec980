// SPDX-License-Identifier: Apache-2.0
// What every command that records writes alike: names of runs, models and methods.
#pragma once

#include <string>

#include "core/dtype.h"
#include "methods/method.h"
#include "methods/model_shape.h"
#include "reports/store_rows.h"
#include "runner/config.h"

namespace kvgauge {

// Unique among all runs anywhere.
std::string RandomKey();

ModelRow ModelRowOf(const std::string& name, const std::string& fingerprint,
                    const ModelShape& shape, const ModelConfig& config, DType dtype);
// `variant`: what differs from the method's file.
MethodRow MethodRowOf(const Method& method, const std::string& variant);

}  // namespace kvgauge

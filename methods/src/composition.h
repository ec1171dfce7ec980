// SPDX-License-Identifier: Apache-2.0
// Whether stages fit each other, whatever the model.
#pragma once

#include "methods/method.h"

namespace kvgauge {

Status CheckComposition(const Method& method);

}  // namespace kvgauge

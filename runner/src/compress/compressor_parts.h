// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "methods/stages.h"

namespace kvgauge {

// Whether a plan asks for anything besides uncoded entries where they are.
bool IsMoreThanPlain(const StorePlan& plan);

}  // namespace kvgauge

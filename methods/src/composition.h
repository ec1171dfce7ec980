// SPDX-License-Identifier: Apache-2.0
// What a composition of stages is, whatever the model.
#pragma once

#include "methods/method.h"

namespace kvgauge {

Status CheckComposition(const Method& method);
// Newest entries that always stay, by what the stages say.
int64_t ProtectedByStages(const Method& method);

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Samples that a model cannot run at all.
#pragma once

#include "core/result.h"
#include "runner/engine.h"

namespace kvgauge {

// Names the sample, the turn, and what would be right.
Status CheckSample(const EngineSample& sample, CompressAt at, const ModelConfig& config);

}  // namespace kvgauge

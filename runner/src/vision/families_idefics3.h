// SPDX-License-Identifier: Apache-2.0
// What Idefics3 and SmolVLM share, which is all.
#pragma once

#include "src/vision/common.h"

namespace kvgauge {

void ReadIdefics3(ConfigReader& top, ConfigReader& tower, VisionSpec& spec);
const VisionNames& Idefics3Names(const VisionSpec&);

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// SmolVLM and SmolVLM2: Idefics3 with another name.
#include "src/vision/families_idefics3.h"

namespace kvgauge {

KVG_VISION_FAMILY(smolvlm,
                  {.title = "SmolVLM, SmolVLM2", .read = ReadIdefics3, .names = Idefics3Names})

}  // namespace kvgauge

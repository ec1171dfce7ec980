// SPDX-License-Identifier: Apache-2.0
// Idefics3: SigLIP with its last norm, squares of rows side by side, one linear layer.
#include "src/vision/families_idefics3.h"

namespace kvgauge {

KVG_VISION_FAMILY(idefics3, {.title = "Idefics3", .read = ReadIdefics3, .names = Idefics3Names})

}  // namespace kvgauge

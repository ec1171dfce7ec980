// SPDX-License-Identifier: Apache-2.0
// What is said of a device's number that names none. Here, since the CUDA shared object and the
// program both say it.
#pragma once

#include <cstdlib>
#include <string>

#include "core/strings.h"

namespace kvgauge {

// `count`: how many devices CUDA shows to this process, at least 1.
inline std::string WhyNoDevice(int device, int count) {
  const char* shown = std::getenv("CUDA_VISIBLE_DEVICES");
  return StrCat("device ", device, " does not exist: there ",
                count == 1 ? std::string("is one, device 0")
                           : StrCat("are ", count, ", devices 0 to ", count - 1),
                shown == nullptr ? "" : StrCat(" (CUDA_VISIBLE_DEVICES=", shown, ")"));
}

}  // namespace kvgauge

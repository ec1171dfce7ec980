// SPDX-License-Identifier: Apache-2.0
// KVG_CHECK: an assertion about the program that release builds check too; not for inner loops.
#pragma once

#include <string_view>

namespace kvgauge {

// Prints file, line, condition and message to standard error and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              std::string_view message);

}  // namespace kvgauge

#define KVG_CHECK(condition, message)                                    \
  do {                                                                   \
    if (!(condition)) [[unlikely]]                                       \
      ::kvgauge::CheckFailed(__FILE__, __LINE__, #condition, (message)); \
  } while (0)

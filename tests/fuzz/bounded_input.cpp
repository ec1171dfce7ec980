// SPDX-License-Identifier: Apache-2.0
// The entry that libFuzzer calls, in every fuzzer: it tries one input and bounds its processor
// time. libFuzzer's own -timeout counts the wall's time. On a machine where many searches start at
// once an input of a few bytes can wait longer for a core than a slow input works, so that limit is
// wide and catches only inputs that never end.
#include <cstddef>
#include <cstdint>
#include <ctime>

#include "core/check.h"

// What a fuzz_<name>.cpp defines under the name LLVMFuzzerTestOneInput (see CMakeLists.txt).
extern "C" int TryInput(const uint8_t* data, size_t size);

namespace {

constexpr double kMostSeconds = 10;

// What all threads of this process have used.
double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const double before = ProcessorSeconds();
  const int verdict = TryInput(data, size);
  KVG_CHECK(ProcessorSeconds() - before < kMostSeconds, "an input is done in ten seconds");
  return verdict;
}

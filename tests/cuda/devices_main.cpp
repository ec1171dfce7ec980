// SPDX-License-Identifier: Apache-2.0
// The tests of a machine with several devices start themselves as the program: `run ...` is what
// kvgauge does on the emulator, whose devices the environment describes.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/strings.h"
#include "cuda/emulated/device_memory.h"
#include "harness/cli.h"

namespace {

// Calls `set` with both numbers of "DEVICE:NUMBER" where the variable is set.
template <class Set>
void ForDevice(const char* name, const Set& set) {
  const char* text = std::getenv(name);
  int device = 0;
  long long number = 0;
  if (text != nullptr && std::sscanf(text, "%d:%lld", &device, &number) == 2) set(device, number);
}

void DescribeDevices() {
  using namespace kvgauge::cuda;
  const char* count = std::getenv("KVG_EMULATED_DEVICES");
  emulated::SetDevices(count == nullptr ? 1 : std::atoi(count));
  ForDevice("KVG_EMULATED_CAPACITY",
            [](int device, int64_t bytes) { emulated::SetCapacity(bytes, device); });
  ForDevice("KVG_EMULATED_LOST",
            [](int device, int64_t launches) { emulated::LoseDevice(device, launches); });
  ForDevice("KVG_EMULATED_CAPABILITY", [](int device, int64_t capability) {
    emulated::SetCapability(device, static_cast<int>(capability / 10),
                            static_cast<int>(capability % 10));
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "run") == 0) {
    DescribeDevices();
    return kvgauge::RunCommandLine(argc, argv, {"test", ""});
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

// SPDX-License-Identifier: Apache-2.0
// How much memory a buffer takes, for plans.
#pragma once

#include <cstdint>

namespace kvgauge {

// The size_bytes() of a HostBuffer of so many bytes. Memory of a device that is asked for as many
// has no more.
int64_t HostBufferBytes(int64_t size_bytes);

}  // namespace kvgauge

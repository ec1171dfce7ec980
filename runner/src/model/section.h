// SPDX-License-Identifier: Apache-2.0
// The layers of a model that lie on one device, one after the other: all of them, where there is
// one device.
#pragma once

#include <cstdint>
#include <memory>

#include "kernels/ops.h"
#include "src/model/scratch.h"

namespace kvgauge {

struct ModelSection {
  Ops* ops = nullptr;
  int64_t first_layer = 0, end_layer = 0;
  std::unique_ptr<Scratch> scratch;
  std::unique_ptr<RepeatedWork> decode;  // passes of one row a sequence
};

}  // namespace kvgauge

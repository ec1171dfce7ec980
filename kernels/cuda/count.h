// SPDX-License-Identifier: Apache-2.0
// Counts that grow from step to step, as arguments of kernels.
#pragma once

#include <cstdint>
#include <cstring>

#include "cuda/device/graph_recorder.h"
#include "cuda/device/simt.h"

namespace kvgauge::cuda {

struct Count {
  const int64_t* at;  // null: it is `value`
  int64_t value;

  KVG_MEMBER int64_t get() const { return at != nullptr ? *at : value; }
};

// A graph repeats the arguments of its launches, so there the kernel finds the count in what is
// staged for the step.
inline Count CountOf(int64_t value) {
  Recorder* const open = Recorder::Open();
  if (open == nullptr) {
    Recorder::CountSent(static_cast<int64_t>(sizeof value));
    return {nullptr, value};
  }
  const Recorder::Place place = open->Stage(static_cast<int64_t>(sizeof value));
  std::memcpy(place.host, &value, sizeof value);
  return {reinterpret_cast<const int64_t*>(place.device), 0};
}

}  // namespace kvgauge::cuda

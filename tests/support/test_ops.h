// SPDX-License-Identifier: Apache-2.0
// The backend that tests of models run on: the one they name, or, where they are compiled once more
// for a device (tests/cuda), that device.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops.h"
#ifdef KVG_TEST_ON_DEVICE
#include "cuda/test_device.h"
#endif

namespace kvgauge {

inline std::unique_ptr<Ops> MakeTestOps(const std::string& backend, int threads) {
#ifdef KVG_TEST_ON_DEVICE
  static_cast<void>(backend), static_cast<void>(threads);
  return MakeTestDevice();
#else
  Result<std::unique_ptr<Ops> > ops = MakeOps(backend, MakeThreadSettings(threads));
  if (!ops.ok()) {
    ADD_FAILURE() << ops.error().message;
    std::abort();
  }
  return std::move(ops).value();
#endif
}

// The numbers of a contiguous f32 tensor, wherever it is.
inline std::vector<float> HostFloats(Ops& ops, const Tensor& t) {
  std::vector<float> values(static_cast<size_t>(t.Numel()));
  ops.memory->Copy(t, View(values, {t.Numel()}));
  return values;
}

}  // namespace kvgauge

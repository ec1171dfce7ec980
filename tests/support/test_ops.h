// SPDX-License-Identifier: Apache-2.0
// The backend that tests of models run on: the one they name, or the device they are linked for.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "support/test_device.h"

namespace kvgauge {

inline std::unique_ptr<Ops> MakeHostOps(const std::string& backend, int threads) {
  Result<std::unique_ptr<Ops> > ops = MakeOps(backend, MakeThreadSettings(threads));
  if (!ops.ok()) {
    ADD_FAILURE() << ops.error().message;
    std::abort();
  }
  return std::move(ops).value();
}

inline std::unique_ptr<Ops> MakeTestOps(const std::string& backend, int threads) {
  return OnDevice() ? MakeTestDevice() : MakeHostOps(backend, threads);
}

// The numbers of a contiguous f32 tensor, wherever it is.
inline std::vector<float> HostFloats(Ops& ops, const Tensor& t) {
  std::vector<float> values(static_cast<size_t>(t.Numel()));
  ops.memory->Copy(t, View(values, {t.Numel()}));
  return values;
}

}  // namespace kvgauge

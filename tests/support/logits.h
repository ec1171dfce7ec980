// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "runner/generate.h"
#include "support/test_ops.h"

namespace kvgauge {

// Logits of all ids, one row after the other.
inline std::vector<float> AllLogits(Model& model, Ops& ops, const std::vector<int32_t>& ids) {
  KvCache cache = model.NewCache(std::ssize(ids));
  std::vector<float> got;
  const Status status = Prefill(model, Prompt::FromTokens(ids), cache, Model::kChunkRows, true,
                                [&](const Tensor& rows) -> Status {
                                  const std::vector<float> some = HostFloats(ops, rows);
                                  got.insert(got.end(), some.begin(), some.end());
                                  return {};
                                });
  EXPECT_TRUE(status.ok());
  return got;
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// What `kvgauge doctor --check` runs, on the device.
#include "src/doctor/device_check.h"

#include <gtest/gtest.h>

#include "cuda/device/graph_recorder.h"
#include "cuda/suite_device.h"

namespace kvgauge {
namespace {

TEST(DeviceCheck, EveryOperationAgreesWithTheReference) {
  const std::vector<DeviceCheckRow> rows = CheckOps(TestDevice());
  EXPECT_GE(rows.size(), 65u);
  if (cuda::kComparesMembers) {
    EXPECT_EQ(rows.back().shape, "8 steps, 6 replayed");
  }
  for (const DeviceCheckRow& row : rows) {
    EXPECT_TRUE(row.ok) << row.op << ", " << row.shape << ": " << row.error << " > " << row.bound;
  }
}

}  // namespace
}  // namespace kvgauge

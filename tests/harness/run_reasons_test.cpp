// SPDX-License-Identifier: Apache-2.0
#include "src/run/run_reasons.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

TEST(ReasonTally, NumbersMakeNoOtherReason) {
  ReasonTally tally;
  tally.Add(SampleStatus::kSkipped, "budget 5% of 1,024 tokens");
  tally.Add(SampleStatus::kFailed, "needs 22.5 MiB");
  tally.Add(SampleStatus::kFailed, "needs 9 MiB");
  tally.Add(SampleStatus::kSkipped, "needs 9 MiB");
  tally.Add(SampleStatus::kFailed, "needs 9 KiB");
  EXPECT_THAT(ReasonTexts(tally.Lines(), 9),
              ElementsAre("2 failed: needs 22.5 MiB", "1 skipped: budget 5% of 1,024 tokens",
                          "1 skipped: needs 9 MiB", "1 failed: needs 9 KiB"));
  EXPECT_THAT(ReasonTexts(tally.Lines(), 2),
              ElementsAre("2 failed: needs 22.5 MiB", "1 skipped: budget 5% of 1,024 tokens",
                          "and 2 cells for 2 other reasons, in the database"));
  EXPECT_THAT(ReasonTexts(tally.Lines(), 3).back(),
              "and 1 cell for 1 other reason, in the database");
}

}  // namespace
}  // namespace kvgauge

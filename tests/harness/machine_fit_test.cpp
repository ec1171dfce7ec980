// SPDX-License-Identifier: Apache-2.0
#include "src/model/machine_fit.h"

#include <gmock/gmock.h>

#include "core/json.h"
#include "core/memory.h"
#include "core/threads.h"
#include "kernels/devices.h"

namespace kvgauge {
namespace {

ModelConfig OfPositions(int64_t positions) {
  ModelConfig config;
  config.max_position = positions;
  return config;
}

TEST(MachineFit, CountsTokensBesideTheWeights) {
  const ModelConfig config = OfPositions(1000);
  const MachineFit some = FitMemory(config, 4096, 512, "this machine", 4096 + 100 * 512 + 511);
  EXPECT_EQ(some.full_cache_tokens, 100);
  EXPECT_EQ(TextOf(some, config),
            "yes: this machine has 54.5 KiB, weights take 4.0 KiB, and beside them is room for 100 "
            "tokens of the full cache");
  const MachineFit all = FitMemory(config, 4096, 512, "cuda:1", int64_t{1} << 30);
  EXPECT_EQ(all.full_cache_tokens, 1000);
  EXPECT_THAT(TextOf(all, config), testing::EndsWith("room for all 1,000 positions of the full "
                                                     "cache"));
  EXPECT_EQ(JsonOf(all), Json({{"place", "cuda:1"},
                               {"memory_bytes", int64_t{1} << 30},
                               {"runs", true},
                               {"full_cache_tokens", 1000},
                               {"why_not", nullptr}}));
}

TEST(MachineFit, SaysWhatIsTooLarge) {
  const ModelConfig config = OfPositions(1000);
  const MachineFit fit = FitMemory(config, 4096, 512, "this machine", 4096 + 511);
  EXPECT_EQ(TextOf(fit, config), "no: its weights take 4.0 KiB, and this machine has 4.5 KiB");
  EXPECT_EQ(JsonOf(fit)["runs"], false);
}

// A model of states alone has no cache that could be too large.
TEST(MachineFit, AModelWithoutACacheNeedsItsWeights) {
  const ModelConfig config = OfPositions(1000);
  EXPECT_EQ(TextOf(FitMemory(config, 4096, 0, "this machine", 8192), config),
            "yes: this machine has 8.0 KiB, weights take 4.0 KiB");
  EXPECT_EQ(JsonOf(FitMemory(config, 4096, 0, "this machine", 4095))["runs"], false);
}

TEST(MachineFit, AsksTheBackend) {
  const ModelConfig config = OfPositions(10);
  const auto ops = MakeLayeredOps("cpu", MakeThreadSettings(1));
  const MachineFit here = FitMachine(config, 4096, 512, "cpu", ops);
  EXPECT_EQ(here.place, "this machine");
  EXPECT_EQ(here.memory_bytes, UsableMemoryBytes());
  const Result<std::unique_ptr<Ops>> none = BadInput("no such device");
  const MachineFit gone = FitMachine(config, 4096, 512, "cuda:7", none);
  EXPECT_EQ(TextOf(gone, config), "no: no such device");
  EXPECT_EQ(JsonOf(gone)["why_not"], "no such device");
}

}  // namespace
}  // namespace kvgauge

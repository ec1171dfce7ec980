// SPDX-License-Identifier: Apache-2.0
#include "src/latency/thread_pins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/clock.h"
#include "core/threads.h"

namespace kvgauge {
namespace {

TEST(ThreadPins, OneProcessorEachUntilTheEnd) {
  const std::vector<int> all = AllowedProcessors();
  ASSERT_FALSE(all.empty());
  std::atomic<int> asked = 0, answered = 0;
  std::vector<int> theirs;
  std::thread other([&] {
    for (int turn = 1; turn <= 2; ++turn) {
      while (asked < turn) std::this_thread::yield();
      theirs = AllowedProcessors();
      answered = turn;
    }
  });
  const auto ask = [&](int turn) {
    asked = turn;
    while (answered < turn) std::this_thread::yield();
    return theirs;
  };
  {
    ThreadPins pins(all);
    pins.Pin();
    const std::vector<int> own = AllowedProcessors();
    const std::vector<int> others = ask(1);
    EXPECT_EQ(own.size(), 1u);
    EXPECT_EQ(others.size(), 1u);
    EXPECT_EQ(own[0], all[0]);
    EXPECT_THAT(all, ::testing::Contains(others[0]));
  }
  EXPECT_EQ(AllowedProcessors(), all);
  EXPECT_EQ(ask(2), all);
  other.join();
}

TEST(Clock, CountsTheProcessorsNamed) {
  const std::vector<int> all = AllowedProcessors();
  double sum_s = 0;
  for (const int number : all) {
    const double one_s = ReadCpuUse({&number, 1}).machine_s;
    EXPECT_GT(one_s, 0);
    sum_s += one_s;
  }
  const double all_s = ReadCpuUse(all).machine_s;
  EXPECT_NEAR(all_s, sum_s, 0.5);
  EXPECT_LE(all_s, ReadCpuUse().machine_s + 0.5);
  const int absent = 1 << 20;
  EXPECT_EQ(ReadCpuUse({&absent, 1}).machine_s, 0);
}

}  // namespace
}  // namespace kvgauge

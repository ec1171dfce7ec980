// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/store_impl.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;

TEST(ParseNumbers, ReadsListsHoweverTheyAreWritten) {
  for (const char* text : {"[1,-2.5,3e-05]", "[1.0, -2.5, 3E-5]", " [\n1,-2.5,0.00003 ]"}) {
    const Result<std::vector<double>> numbers = ParseNumbers("r.db", text);
    ASSERT_TRUE(numbers.ok()) << text;
    EXPECT_THAT(*numbers, ElementsAre(1, -2.5, 3e-05)) << text;
  }
  for (const char* text : {"", "[]"}) {
    const Result<std::vector<double>> none = ParseNumbers("r.db", text);
    EXPECT_TRUE(none.ok() && none->empty()) << text;
  }
}

TEST(ParseNumbers, RefusesWhatIsNoListOfNumbers) {
  for (const char* text : {"[inf]", "[-inf]", "[nan]", "[1,]", "[1,,2]", "[,1]", "[1e999]", "[1",
                           "1]", "[-]", "[1 2]", "[1]x", "[\"1\"]", "{\"a\":1}", "x"}) {
    const Result<std::vector<double>> numbers = ParseNumbers("r.db", text);
    ASSERT_FALSE(numbers.ok()) << text;
    EXPECT_TRUE(numbers.error().message.starts_with("r.db: ")) << numbers.error().message;
  }
}

}  // namespace
}  // namespace kvgauge

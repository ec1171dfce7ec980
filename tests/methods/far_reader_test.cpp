// SPDX-License-Identifier: Apache-2.0
// A reader that counts on one distance goes with a store that says the same.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/strings.h"
#include "fake_view.h"
#include "methods/method.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(FarReaderTest, ReaderAndStoreAgree) {
  const auto fault = [](const std::vector<std::string>& overrides) -> std::string {
    const Result<Method> method =
        LoadMethod("infllm", StrCat(KVG_SOURCE_DIR, "/configs/methods"), overrides);
    if (!method.ok()) return method.error().message;
    const Status status = CheckMethod(*method, SmallShape(2, 2, 2, 8), {}, 1000);
    return status.ok() ? "" : status.error().message;
  };
  EXPECT_EQ(fault({}), "");
  EXPECT_EQ(fault({"read.local=64", "store.position_limit=63"}), "");
  EXPECT_THAT(fault({"store.position_limit=2048"}),
              AllOf(HasSubstr("read.infllm"), HasSubstr("has position_limit 2048"),
                    HasSubstr("position_limit=4095")));
  EXPECT_THAT(fault({"read.local=64"}), HasSubstr("position_limit=63"));
  EXPECT_THAT(fault({"store.position_limit=2048", "narrow.id=top_p"}),
              HasSubstr("position_limit=4095"));
  EXPECT_THAT(fault({"store.id=plain"}),
              HasSubstr("store.plain leaves it where it is; use store.plain with position=clipped "
                        "and position_limit=4095"));
}

}  // namespace
}  // namespace kvgauge

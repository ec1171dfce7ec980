// SPDX-License-Identifier: Apache-2.0
#include "core/params.h"

#include <gmock/gmock.h>

#include <vector>

#include "core/json.h"
#include "core/result.h"

namespace kvgauge {
namespace {

TEST(Params, FillsChecksAndNamesNearMisses) {
  const std::vector<ParamSpec> specs = {
      IntParam("window", 32, 1, 4096, "last queries"),
      RealParam("ratio", 0.5, 0, 1, "kept share"),
      ChoiceParam("pool", "avg", {"avg", "max"}, "pooling"),
      BoolParam("causal", true, "mask inside the window"),
  };
  const auto parse = [&](const char* text) {
    return Params::Parse(specs, *ParseJson(text, "t"), "m.json: score");
  };
  const Result<Params> good = parse(R"({"window": 8, "ratio": 1})");
  ASSERT_TRUE(good.ok()) << good.error().message;
  EXPECT_EQ(good->Int("window"), 8);
  EXPECT_EQ(good->Real("ratio"), 1.0);
  EXPECT_EQ(good->Text("pool"), "avg");
  EXPECT_TRUE(good->Bool("causal"));
  EXPECT_EQ(CanonicalJson(good->ToJson()),
            R"({"causal":true,"pool":"avg","ratio":1.0,"window":8})");
  EXPECT_THAT(parse(R"({"windw": 8})").error().message,
              ::testing::HasSubstr("unknown parameter 'windw' (did you mean 'window'?)"));
  EXPECT_THAT(
      parse(R"({"window": 0})").error().message,
      ::testing::HasSubstr("m.json: score.window: 0 is not valid; expected int in [1, 4096]"));
  EXPECT_FALSE(parse(R"({"pool": "sum"})").ok());
  EXPECT_FALSE(parse(R"({"causal": 1})").ok());
  EXPECT_FALSE(parse(R"({"window": 8.5})").ok());
  EXPECT_FALSE(parse(R"({"window": 18446744073709551615})").ok());
}

}  // namespace
}  // namespace kvgauge

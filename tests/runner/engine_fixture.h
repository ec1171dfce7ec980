// SPDX-License-Identifier: Apache-2.0
// What tests of the engine share: a tiny model, methods, samples, and a run whose cells all came.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "runner/engine.h"
#include "support/tiny_models.h"

namespace kvgauge {

inline Method Shipped(const std::string& id, const std::vector<std::string>& overrides = {}) {
  const Result<Method> method =
      LoadMethod(id, std::string(KVG_SOURCE_DIR) + "/configs/methods", overrides);
  EXPECT_TRUE(method.ok()) << method.error().message;
  return *method;
}

inline Budget Fraction(double value) { return {Budget::Kind::kFraction, value}; }

using Cells = std::map<std::pair<int64_t, int64_t>, CellResult>;

inline Cells RunEngine(const std::vector<Contender>& contenders, const EngineOptions& options,
                       const std::vector<EngineSample>& samples) {
  Cells cells;
  Engine engine(contenders, options);
  const Status status = engine.Run(samples, [&](CellResult result) -> Status {
    const std::pair<int64_t, int64_t> at(result.sample, result.contender);
    EXPECT_FALSE(cells.contains(at)) << "a cell came twice";
    cells[at] = std::move(result);
    return {};
  });
  EXPECT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(cells.size(), samples.size() * contenders.size());
  return cells;
}

class EngineTest : public ::testing::Test {
 protected:
  EngineTest() : tiny_(MakeTinyModel("gqa", 2)), model_(*tiny_.model) {}

  EngineSample Sample(int64_t prompt, uint64_t seed, int64_t new_tokens = 6) const {
    return {.id = StrCat("s", seed),
            .turns = {{.ids = RandomIds(prompt, seed), .max_new_tokens = new_tokens}}};
  }
  Contender At(const Method& method, double share) {
    return {.method = &method, .budget = Fraction(share), .model = &model_};
  }

  TinyModel tiny_;
  Model& model_;
  const Method full_ = Shipped("full");
  const Method snapkv_ = Shipped("snapkv", {"score.window=8", "protect.recent=8"});
  const Method random_ = Shipped("random", {"protect.recent=4"});
  const Method streaming_ = Shipped("streaming_llm");
};

}  // namespace kvgauge

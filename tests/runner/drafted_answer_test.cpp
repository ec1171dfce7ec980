// SPDX-License-Identifier: Apache-2.0
// Answers that another model drafts for a score: asked once a prompt, shared by its contenders.
#include "runner/drafted_answer.h"

#include <gmock/gmock.h>

#include "runner/engine_fixture.h"

namespace kvgauge {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DraftedAnswerTest : public ::testing::Test {
 protected:
  DraftedAnswerTest() : tiny_(MakeTinyModel("gqa", 1, Beside())) {}

  // A model that answers every prompt with its own first tokens.
  ModelOptions Beside() {
    ModelOptions options;
    options.drafters["some/draft"] = {
        .answer = [this](std::span<const int32_t> prompt,
                         int64_t most) -> Result<std::vector<int32_t>> {
          asked_.push_back(std::ssize(prompt));
          return std::vector<int32_t>(prompt.begin(), prompt.begin() + most);
        }};
    return options;
  }

  static Method SpecKvBy(const std::string& directory) {
    Method method = Shipped(
        "speckv", {StrCat("score.draft_model=", directory), "score.lookahead=5", "score.window=8"});
    if (directory == kOwnDraft) return method;
    DraftModel draft;
    draft.directory = directory;
    draft.fingerprint = "f";
    draft.weight_bytes = 1000;
    draft.shape = SmallDraft();
    method.score->draft = std::make_shared<DraftModel>(draft);
    return method;
  }

  static ModelShape SmallDraft() {
    ModelShape shape;
    shape.layers = shape.kv_heads = shape.query_heads = 1;
    shape.key_dim = shape.value_dim = 4;
    return shape;
  }

  Contender At(const Method& method, double share) {
    return {.method = &method, .budget = Fraction(share), .model = tiny_.model.get()};
  }

  static EngineSample Sample(int64_t prompt) {
    return {.id = StrCat("s", prompt),
            .turns = {{.ids = RandomIds(prompt, 3), .max_new_tokens = 6}}};
  }

  std::vector<int64_t> asked_;  // lengths of prompts
  TinyModel tiny_;
};

TEST_F(DraftedAnswerTest, ContendersShareADraftAndKeepTheirBits) {
  const Method speckv = SpecKvBy("some/draft"), self = SpecKvBy(kOwnDraft), full = Shipped("full");
  const std::vector<Contender> contenders = {At(full, 1), At(speckv, 0.4), At(self, 0.4),
                                             At(speckv, 0.6)};
  const Cells together = RunEngine(contenders, {}, {Sample(90), Sample(150)});
  EXPECT_THAT(asked_, ElementsAre(90, 150));
  for (size_t c = 0; c < contenders.size(); ++c) {
    const Cells alone = RunEngine({contenders[c]}, {}, {Sample(90), Sample(150)});
    for (int64_t sample = 0; sample < 2; ++sample) {
      const CellResult& got = together.at({sample, static_cast<int64_t>(c)});
      const CellResult& want = alone.at({sample, 0});
      ASSERT_TRUE(got.status.ok()) << got.status.error().message;
      EXPECT_EQ(got.turns[0].ids, want.turns[0].ids) << c;
      EXPECT_EQ(got.record.entries_after, want.record.entries_after) << c;
      // Its weights are bytes of the method.
      EXPECT_EQ(got.record.bytes.projections, c % 2 == 1 ? 1000 : 0) << c;
    }
  }
}

TEST_F(DraftedAnswerTest, ADraftThatIsNotThereIsAnErrorOfItsCellsAlone) {
  const Method missing = SpecKvBy("another/draft"), full = Shipped("full");
  const Cells cells = RunEngine({At(full, 1), At(missing, 0.4)}, {}, {Sample(90)});
  EXPECT_TRUE(cells.at({0, 0}).status.ok());
  ASSERT_FALSE(cells.at({0, 1}).status.ok());
  EXPECT_THAT(cells.at({0, 1}).status.error().message,
              HasSubstr("score.speckv: another/draft was not loaded beside this model"));
}

// What the model says itself behind a prompt, as a run has it.
TEST_F(DraftedAnswerTest, TheModelsOwnAnswerIsTheFullCaches) {
  const Method full = Shipped("full");
  const Cells cells = RunEngine({At(full, 1)}, {}, {Sample(90)});
  Model& model = *tiny_.model;
  const Prompt prompt = Prompt::FromTokens(RandomIds(90, 3));
  KvCache cache = model.NewCache(100);
  const Result<std::vector<int32_t>> answer = GreedyAnswer(model, prompt, cache, 6, 0);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(*answer, cells.at({0, 0}).turns[0].ids);
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Several draws of each answer: one prefill, and random numbers that no company changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "runner/engine_fixture.h"

namespace kvgauge {
namespace {

// By sample, contender and draw.
using AnswersByDraw = std::map<std::tuple<int64_t, int64_t, int64_t>, CellResult>;

AnswersByDraw RunDraws(const std::vector<Contender>& contenders, const EngineOptions& options,
                       const std::vector<EngineSample>& samples) {
  AnswersByDraw cells;
  size_t expected = 0;
  for (const EngineSample& sample : samples) expected += sample.draws.size() * contenders.size();
  Engine engine(contenders, options);
  const Status status = engine.Run(samples, [&](CellResult result) -> Status {
    EXPECT_TRUE(result.status.ok()) << result.status.error().message;
    const std::tuple<int64_t, int64_t, int64_t> at(result.sample, result.contender, result.draw);
    EXPECT_FALSE(cells.contains(at)) << "a cell came twice";
    cells[at] = std::move(result);
    return {};
  });
  EXPECT_TRUE(status.ok()) << status.error().message;
  EXPECT_EQ(cells.size(), expected);
  return cells;
}

class EngineDrawsTest : public EngineTest {
 protected:
  EngineSample Drawn(int64_t prompt, uint64_t seed, std::vector<int64_t> draws) const {
    EngineSample sample = Sample(prompt, seed, 8);
    sample.draws = std::move(draws);
    return sample;
  }
  // Hot, so that draws differ on a model of random weights.
  static EngineOptions Hot() { return {.seed = 7, .sampling = {.temperature = 3.0f}}; }
};

TEST_F(EngineDrawsTest, ADrawIsTheSameAloneAndInCompany) {
  const std::vector<Contender> contenders = {At(full_, 1), At(snapkv_, 0.3), At(random_, 0.5)};
  const std::vector<EngineSample> samples = {Drawn(200, 1, {0, 1, 2, 3, 4}), Drawn(70, 2, {0, 3})};
  const AnswersByDraw together = RunDraws(contenders, Hot(), samples);
  for (const int64_t pool_lanes : {1, 4}) {
    EngineOptions options = Hot();
    options.max_pool_lanes = pool_lanes;
    for (const auto& [at, cell] : RunDraws(contenders, options, samples)) {
      EXPECT_EQ(cell.turns[0].ids, together.at(at).turns[0].ids) << pool_lanes << " lanes";
    }
  }
  for (const auto& [at, cell] : together) {
    const auto [sample, contender, draw] = at;
    EngineSample one = samples[static_cast<size_t>(sample)];
    one.draws = {draw};
    const AnswersByDraw alone =
        RunDraws({contenders[static_cast<size_t>(contender)]}, Hot(), {one});
    EXPECT_EQ(alone.at({0, 0, draw}).turns[0].ids, cell.turns[0].ids)
        << "sample " << sample << ", contender " << contender << ", draw " << draw;
    EXPECT_EQ(alone.at({0, 0, draw}).record.entries_after, cell.record.entries_after);
  }
}

TEST_F(EngineDrawsTest, DrawsDifferBySeedSampleAndNumberAlone) {
  const EngineSample sample = Drawn(90, 5, {0, 1, 2, 3, 4, 5, 6, 7});
  const AnswersByDraw cells = RunDraws({At(full_, 1), At(full_, 1)}, Hot(), {sample});
  std::set<std::vector<int32_t>> answers;
  for (int64_t draw = 0; draw < 8; ++draw) {
    answers.insert(cells.at({0, 0, draw}).turns[0].ids);
    // Contenders draw alike.
    EXPECT_EQ(cells.at({0, 0, draw}).turns[0].ids, cells.at({0, 1, draw}).turns[0].ids);
  }
  EXPECT_EQ(answers.size(), 8u);
  EngineOptions other = Hot();
  other.seed = 8;
  const AnswersByDraw reseeded = RunDraws({At(full_, 1)}, other, {sample});
  EXPECT_NE(reseeded.at({0, 0, 3}).turns[0].ids, cells.at({0, 0, 3}).turns[0].ids);
  EngineSample renamed = sample;
  renamed.id = "another";
  const AnswersByDraw elsewhere = RunDraws({At(full_, 1)}, Hot(), {renamed});
  EXPECT_NE(elsewhere.at({0, 0, 3}).turns[0].ids, cells.at({0, 0, 3}).turns[0].ids);
  // Greedy answers are all alike.
  const AnswersByDraw greedy = RunDraws({At(full_, 1)}, {.seed = 7}, {sample});
  EXPECT_EQ(greedy.at({0, 0, 6}).turns[0].ids, greedy.at({0, 0, 0}).turns[0].ids);
}

TEST_F(EngineDrawsTest, DrawsShareThePrefill) {
  int64_t begun = 0;
  EngineOptions options = Hot();
  options.begin = [&](int64_t) {
    ++begun;
    return true;
  };
  std::set<double> prefills_s;
  for (const auto& [at, cell] :
       RunDraws({At(full_, 1), At(snapkv_, 0.3)}, options, {Drawn(300, 1, {0, 1, 2, 3})})) {
    prefills_s.insert(cell.record.seconds.prefill);
  }
  EXPECT_EQ(begun, 1);
  EXPECT_EQ(prefills_s.size(), 1u) << "one prefill has one time";
}

// Prompts of their own by turn, in chunks, and conversations: every moment of compression.
TEST_F(EngineDrawsTest, EveryMomentDrawsAloneAsInCompany) {
  const Method h2o = Shipped("h2o");
  // What left the cache goes along with a fork.
  const Method less = Shipped("less", {"read.weights=random", "read.inner=8", "read.rank=4"});
  const std::vector<Contender> contenders = {At(full_, 1), At(snapkv_, 0.4), At(h2o, 0.4),
                                             At(less, 0.4)};
  for (const CompressAt at :
       {CompressAt::kPrompt, CompressAt::kContext, CompressAt::kTurn, CompressAt::kChunk}) {
    EngineOptions options = Hot();
    options.compress_at = at;
    options.chunk_tokens = 64;
    EngineSample sample = {.id = "turns",
                           .context = RandomIds(150, 3),
                           .turns = {{.ids = RandomIds(12, 4), .max_new_tokens = 5},
                                     {.ids = RandomIds(9, 5), .max_new_tokens = 5}},
                           .draws = {0, 1, 2}};
    const AnswersByDraw together = RunDraws(contenders, options, {sample});
    for (const auto& [key, cell] : together) {
      const auto [s, contender, draw] = key;
      EngineSample one = sample;
      one.draws = {draw};
      const AnswersByDraw alone =
          RunDraws({contenders[static_cast<size_t>(contender)]}, options, {one});
      for (size_t turn = 0; turn < 2; ++turn) {
        EXPECT_EQ(alone.at({0, 0, draw}).turns[turn].ids, cell.turns[turn].ids)
            << NameOf(at) << ", contender " << contender << ", draw " << draw << ", turn " << turn;
      }
    }
    EXPECT_NE(together.at({0, 0, 0}).turns[0].ids, together.at({0, 0, 1}).turns[0].ids);
  }
}

// Fidelity and the view of the cache come with each draw.
TEST_F(EngineDrawsTest, EachDrawHasItsOwnRecord) {
  EngineOptions options = Hot();
  options.fidelity_steps = 3;
  int64_t looked = 0, tokens = 0;
  options.inspect = [&](const CellResult&, const KvCache&, Compressor&) { ++looked; };
  options.on_token = [&](const EngineToken& token) {
    tokens += token.draw == 2;
    return true;
  };
  const AnswersByDraw cells =
      RunDraws({At(full_, 1), At(snapkv_, 0.3)}, options, {Drawn(120, 1, {0, 2})});
  EXPECT_EQ(looked, 4);
  EXPECT_EQ(tokens, 2 * 8);
  ASSERT_TRUE(cells.at({0, 1, 0}).fidelity && cells.at({0, 1, 2}).fidelity);
  EXPECT_EQ(cells.at({0, 1, 0}).fidelity->kl_divergence,
            cells.at({0, 1, 2}).fidelity->kl_divergence);
  EXPECT_GT(cells.at({0, 1, 2}).fidelity->kl_divergence, 0);
}

TEST_F(EngineDrawsTest, WrongDrawsAreRefused) {
  Engine engine({At(full_, 1)}, Hot());
  for (const std::vector<int64_t>& draws :
       {std::vector<int64_t>{}, std::vector<int64_t>{1, 1}, std::vector<int64_t>{-1}}) {
    const std::vector<EngineSample> samples = {Drawn(20, 1, draws)};
    const Status status = engine.Run(samples, [](const CellResult&) { return Status(); });
    ASSERT_FALSE(status.ok());
    EXPECT_THAT(status.error().message, ::testing::HasSubstr("draws; expected some from 0"));
  }
}

}  // namespace
}  // namespace kvgauge

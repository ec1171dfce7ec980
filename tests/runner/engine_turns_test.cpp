// SPDX-License-Identifier: Apache-2.0
// Conversations: where a cache is compressed, and what follows a turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runner/engine.h"
#include "runner/engine_fixture.h"

namespace kvgauge {
namespace {

class TurnsTest : public EngineTest {
 protected:
  EngineSample Conversation(bool continues) const {
    EngineSample sample = {.id = "talk", .context = RandomIds(180, 21)};
    for (const uint64_t seed : {31, 32, 33}) {
      sample.turns.push_back(
          {.ids = RandomIds(7, seed), .max_new_tokens = 4, .continues = continues && seed > 31});
    }
    return sample;
  }
};

TEST_F(TurnsTest, QuestionsComeAfterCompression) {
  const std::vector<Contender> contenders = {At(full_, 1), At(snapkv_, 0.3), At(streaming_, 0.3)};
  const EngineOptions options = {.compress_at = CompressAt::kContext};
  const Cells requests = RunEngine(contenders, options, {Conversation(false)});
  const Cells talk = RunEngine(contenders, options, {Conversation(true)});
  for (int64_t contender = 0; contender < 3; ++contender) {
    const CellResult& cell = requests.at({0, contender});
    ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
    // Each question is answered as if it were the only one.
    for (size_t turn = 0; turn < 3; ++turn) {
      EngineSample one = Conversation(false);
      one.turns = {one.turns[turn]};
      const Cells alone = RunEngine({contenders[static_cast<size_t>(contender)]}, options, {one});
      EXPECT_EQ(cell.turns[turn].ids, alone.at({0, 0}).turns[0].ids) << "contender " << contender;
    }
    EXPECT_EQ(talk.at({0, contender}).turns[0].ids, cell.turns[0].ids);
  }
  EXPECT_NE(talk.at({0, 0}).turns[1].ids, requests.at({0, 0}).turns[1].ids);
  // The context was compressed, the questions were not: 180 seen, a 0.3 of them kept.
  const CompressionRecord& record = requests.at({0, 1}).record;
  EXPECT_EQ(record.prompt_tokens, 180);
  for (const auto& layer : record.entries_after) EXPECT_THAT(layer, ::testing::Each(54));
}

// A running score does not care where the question begins: its rows count as those of a prompt do.
TEST_F(TurnsTest, RowsOfAQuestionCountInRunningScores) {
  EngineSample whole = {.id = "s", .context = RandomIds(120, 4)};
  whole.turns.push_back({.ids = RandomIds(45, 5), .max_new_tokens = 3});  // more than one pass
  for (const char* id : {"h2o", "vatp", "scissorhands", "keyformer"}) {
    const Method method = Shipped(id, {"protect.recent=0"});
    std::map<CompressAt, std::vector<float>> scores;
    for (const CompressAt at : {CompressAt::kPrompt, CompressAt::kContext}) {
      EngineOptions options = {.compress_at = at};
      options.inspect = [&](const CellResult&, const KvCache& cache, Compressor&) {
        for (int64_t layer = 0; layer < 2; ++layer) {
          std::vector<float> of_layer(static_cast<size_t>(2 * cache.length(layer, 0)));
          cache.ReadScores(layer, View(of_layer, {2, cache.length(layer, 0)}));
          scores[at].insert(scores[at].end(), of_layer.begin(), of_layer.end());
        }
      };
      const Cells cells = RunEngine({At(method, 1)}, options, {whole});
      ASSERT_TRUE(cells.at({0, 0}).status.ok()) << cells.at({0, 0}).status.error().message;
    }
    const std::vector<float>& prompt = scores[CompressAt::kPrompt];
    const std::vector<float>& context = scores[CompressAt::kContext];
    ASSERT_EQ(prompt.size(), context.size());
    // Keyformer and Scissorhands look at the last rows of what is compressed, not at all of it.
    const bool all_rows = std::string(id) == "h2o" || std::string(id) == "vatp";
    const size_t of_head = prompt.size() / 4;
    double apart = 0, total = 0, of_question = 0;
    for (size_t i = 0; i < prompt.size(); ++i) {
      apart += std::abs(double{prompt[i]} - context[i]);
      total += std::abs(double{prompt[i]});
      if (i % of_head >= 120 && i % of_head < 165) of_question += std::abs(double{context[i]});
    }
    EXPECT_LT(apart, all_rows ? 2e-3 * total : total) << id;
    EXPECT_GT(of_question, 0) << id;
  }
}

// What a reader found out about the rows of a context, questions behind it cannot find anew.
TEST_F(TurnsTest, ReadersKnowTheContextAtEveryQuestion) {
  const Method readers[] = {
      Shipped("infllm", {"read.block=16", "read.picks=2", "read.sinks=4", "read.local=16",
                         "store.position_limit=15"}),
      Shipped("emllm", {"read.tokens=24", "read.chunk=16", "read.least=4", "read.most=24",
                        "read.sinks=4", "read.local=16", "store.position_limit=15"}),
      Shipped("rekv", {"read.picks=2", "read.question=16", "read.block=16", "read.sinks=4",
                       "read.local=16"})};
  const EngineOptions options = {.compress_at = CompressAt::kContext};
  for (const Method& method : readers) {
    const Contender contender = {.method = &method, .model = &model_};
    const CellResult all = RunEngine({contender}, options, {Conversation(false)}).at({0, 0});
    ASSERT_TRUE(all.status.ok()) << all.status.error().message;
    for (size_t turn = 0; turn < 3; ++turn) {
      EngineSample one = Conversation(false);
      one.turns = {one.turns[turn]};
      const CellResult alone = RunEngine({contender}, options, {one}).at({0, 0});
      EXPECT_EQ(all.turns[turn].ids, alone.turns[0].ids) << method.id << " " << turn;
      if (turn < 2) continue;
      EXPECT_LT(alone.record.read_share, 0.9) << method.id;
      EXPECT_EQ(all.record.read_share, alone.record.read_share) << method.id;
    }
  }
}

// The rows of a question read what they choose, however many passes they come in; the answer reads
// it, too, and the next question chooses again.
TEST_F(TurnsTest, AQuestionsRowsReadWhatTheyChoose) {
  const std::vector<std::string> sizes = {"read.picks=2", "read.block=16", "read.sinks=4",
                                          "read.local=4", "read.question=8"};
  const Method method = Shipped("rekv", sizes);
  const Contender contender = {.method = &method, .model = &model_};
  const EngineOptions options = {.compress_at = CompressAt::kContext};
  const Cells cells = RunEngine({contender, At(full_, 1)}, options, {Conversation(false)});
  const CellResult& cell = cells.at({0, 0});
  ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
  // 4 first entries, 16 behind the last whole block and two blocks of 180, the question, and what
  // was answered before: three steps of a last answer of four.
  const auto held = [](int64_t step) { return static_cast<double>(180 + 7 + step); };
  const double all = held(1) + held(2) + held(3);
  EXPECT_NEAR(cell.record.read_share, (all - 3 * (180 - 4 - 16 - 32)) / all, 1e-9);
  // An answer of one token has no step, and its question's rows have read less all the same.
  EngineSample brief = Conversation(false);
  for (EngineTurn& turn : brief.turns) turn.max_new_tokens = 1;
  const CellResult one = RunEngine({contender}, options, {brief}).at({0, 0});
  EXPECT_EQ(one.record.steps, 0);
  EXPECT_EQ(one.record.engagement, Engagement::kEngaged) << one.record.reason;
  // All blocks: the full cache, but for the rounding of turning keys.
  const Method whole = Shipped("rekv", {"read.picks=1000", "read.block=16"});
  const Contender reads_all = {.method = &whole, .model = &model_};
  const CellResult same = RunEngine({reads_all}, options, {Conversation(false)}).at({0, 0});
  for (size_t turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(same.turns[turn].ids, cells.at({0, 1}).turns[turn].ids);
  }
}

TEST_F(TurnsTest, FullCacheDoesNotCareWhereItIsCompressed) {
  const EngineSample sample = Conversation(false);
  const Cells prompt = RunEngine({At(full_, 1)}, {}, {sample});
  const Cells context = RunEngine({At(full_, 1)}, {.compress_at = CompressAt::kContext}, {sample});
  for (size_t turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(prompt.at({0, 0}).turns[turn].ids, context.at({0, 0}).turns[turn].ids);
  }
  const Cells talk =
      RunEngine({At(full_, 1)}, {.compress_at = CompressAt::kContext}, {Conversation(true)});
  const Cells turns =
      RunEngine({At(full_, 1)}, {.compress_at = CompressAt::kTurn}, {Conversation(true)});
  for (size_t turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(talk.at({0, 0}).turns[turn].ids, turns.at({0, 0}).turns[turn].ids);
  }
}

TEST_F(TurnsTest, TurnsAreCompressedAgain) {
  const std::vector<Contender> contenders = {At(snapkv_, 0.3), At(full_, 1)};
  const EngineOptions options = {.compress_at = CompressAt::kTurn};
  const Cells cells = RunEngine(contenders, options, {Conversation(true)});
  const CompressionRecord& record = cells.at({0, 0}).record;
  EXPECT_EQ(record.compressions, 3);
  // 180 + three questions of 7 and two answers of 4 seen at the last.
  EXPECT_EQ(record.prompt_tokens, 209);
  for (const auto& layer : record.entries_after) EXPECT_THAT(layer, ::testing::Each(62));
  const Cells alone = RunEngine({contenders[0]}, options, {Conversation(true)});
  for (size_t turn = 0; turn < 3; ++turn) {
    EXPECT_EQ(cells.at({0, 0}).turns[turn].ids, alone.at({0, 0}).turns[turn].ids);
  }
}

// Each of them drops entries while it decodes and is asked again after a turn.
TEST_F(TurnsTest, ReducersOfStepsTakeTurns) {
  const Method h2o = Shipped("h2o"), cam = Shipped("cam");
  const std::vector<Contender> contenders = {At(h2o, 0.6), At(streaming_, 0.6), At(cam, 0.6)};
  EngineSample talk = Conversation(true);
  talk.context = RandomIds(300, 22);
  for (const CompressAt compress_at : {CompressAt::kContext, CompressAt::kTurn}) {
    const EngineOptions options = {.compress_at = compress_at};
    const Cells cells = RunEngine(contenders, options, {talk, Conversation(true)});
    for (int64_t contender = 0; contender < 3; ++contender) {
      const CellResult& cell = cells.at({0, contender});
      ASSERT_TRUE(cell.status.ok()) << cell.status.error().message;
      const Cells alone = RunEngine({contenders[static_cast<size_t>(contender)]}, options, {talk});
      EXPECT_EQ(alone.at({0, 0}).record.entries_after, cell.record.entries_after);
      for (size_t turn = 0; turn < 3; ++turn) {
        EXPECT_EQ(alone.at({0, 0}).turns[turn].ids, cell.turns[turn].ids)
            << "contender " << contender;
      }
    }
  }
}

// What a token is, is known of questions and of answers as well.
TEST_F(TurnsTest, ClassesOfTokensAreThoseOfTheWholeSequence) {
  const Method sepllm =
      Shipped("sepllm", {"protect.sinks=2", "protect.recent=8", "protect.recent_share=0"});
  const Contender contender = {
      .method = &sepllm, .budget = {Budget::Kind::kEntries, 40}, .model = &model_};
  for (const CompressAt compress_at : {CompressAt::kContext, CompressAt::kTurn}) {
    const EngineSample talk = Conversation(compress_at == CompressAt::kTurn);
    std::vector<std::vector<int32_t>> kept;
    EngineOptions options = {.compress_at = compress_at};
    int64_t tokens = 0;
    options.inspect = [&](const CellResult&, const KvCache& cache, Compressor&) {
      tokens = cache.tokens();
      for (int64_t head = 0; head < cache.kv_heads(); ++head) {
        kept.push_back(cache.Positions(1, head));
      }
    };
    const Cells cells = RunEngine({contender}, options, {talk});
    std::vector<int32_t> ids = talk.context;
    for (size_t turn = 0; turn < 3; ++turn) {
      if (!talk.turns[turn].continues) ids.resize(talk.context.size());
      ids.insert(ids.end(), talk.turns[turn].ids.begin(), talk.turns[turn].ids.end());
      const std::vector<int32_t>& answer = cells.at({0, 0}).turns[turn].ids;
      ids.insert(ids.end(), answer.begin(), answer.end());
    }
    ids.pop_back();  // the last word is never fed
    ASSERT_EQ(std::ssize(ids), tokens);
    std::vector<int32_t> order(ids.size());
    std::iota(order.begin(), order.end(), 0);
    const auto rank = [&](int32_t at) {
      if (at < 2 || at >= tokens - 8) return 2;
      return TinyTokenClasses()->Has(ids[static_cast<size_t>(at)], TokenClass::kSeparator) ? 1 : 0;
    };
    std::sort(order.begin(), order.end(),
              [&](int32_t a, int32_t b) { return rank(a) != rank(b) ? rank(a) > rank(b) : a > b; });
    order.resize(40);
    std::sort(order.begin(), order.end());
    EXPECT_THAT(kept, ::testing::Each(order));
  }
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Conversations that are compressed after each turn: every shipped method takes them, or its cell
// says why not. A method that aborts would take the whole run with it.
#include <gtest/gtest.h>

#include "conformance/scene.h"

namespace kvgauge {
namespace {

class TurnsConformance : public ::testing::TestWithParam<std::string> {};

// A prompt, a turn of two tokens, shorter than any window, and a longer one.
EngineSample Talk() {
  EngineSample talk = Sample(kPromptTokens, 41, 3);
  for (const int64_t tokens : {2, 40}) {
    talk.turns.push_back({.ids = RandomIds(tokens, static_cast<uint64_t>(50 + tokens)),
                          .max_new_tokens = 3,
                          .continues = true});
  }
  return talk;
}

// The method on this kind of model with more overrides; null where it cannot work.
std::unique_ptr<Subject> MakeLegal(const std::string& id, const std::string& kind,
                                   const std::vector<std::string>& more) {
  const Result<Json> file = ReadJsonFile(StrCat(MethodsDirectory(), "/", id, ".json"));
  if (!file.ok()) return nullptr;
  auto overrides = file->value("conformance", std::vector<std::string>());
  overrides.insert(overrides.end(), more.begin(), more.end());
  if (!LoadMethod(id, MethodsDirectory(), overrides).ok()) return nullptr;
  return MakeSubject(id, kind, {.overrides = more});
}

// Refused before it runs, by name; or an error of the cell, by name; or done, within the budget, as
// in company.
void ExpectTurns(const Subject& subject, bool may_refuse) {
  const Status fits = CheckMoment(subject.method, CompressAt::kTurn);
  if (!fits.ok()) {
    EXPECT_TRUE(fits.error().message.starts_with(subject.method.id + ": "));
    EXPECT_NE(fits.error().message.find("turn"), std::string::npos) << fits.error().message;
    return;
  }
  const EngineOptions options = {.compress_at = CompressAt::kTurn, .max_pool_lanes = 3};
  const Outcomes alone = RunContenders({subject.contender()}, {Talk()}, options);
  const CellResult& cell = alone.at({0, 0}).cell;
  if (!cell.status.ok()) {
    const std::string& message = cell.status.error().message;
    EXPECT_TRUE(may_refuse) << message;
    EXPECT_TRUE(message.starts_with(subject.method.id + ": ")) << message;
    EXPECT_NE(message.find("compress_at"), std::string::npos) << message;
    return;
  }
  const int64_t seen = cell.record.prompt_tokens;
  EXPECT_EQ(seen,
            kPromptTokens + 2 + 40 + 2 * 3);  // the turns, and the two answers before the last
  const int64_t per_head =
      HeadBudgetFor(subject.method, subject.shape(), subject.budget, seen).entries;
  int64_t held = 0, heads = 0;
  for (const auto& layer : cell.record.entries_after) {
    heads += std::ssize(layer);
    for (const int64_t entries : layer) held += entries;
  }
  EXPECT_LE(held, per_head * heads);
  if (subject.shape().group() == 1) return;
  const Method full = LoadShipped("full");
  const Outcomes together =
      RunContenders({{&full, {}, &subject.model()}, subject.contender()}, {Talk()}, options);
  ExpectSame(together.at({0, 1}), alone.at({0, 0}));
}

TEST_P(TurnsConformance, AreTakenOrRefusedByName) {
  for (const auto& subject : Subjects(GetParam())) ExpectTurns(*subject, true);
}

// The same where heads of a layer are left different numbers of entries.
TEST_P(TurnsConformance, OfUnevenHeads) {
  const auto subject = MakeLegal(GetParam(), "gqa", {"allocate.id=ada"});
  if (subject != nullptr) ExpectTurns(*subject, true);
}

INSTANTIATE_TEST_SUITE_P(Methods, TurnsConformance, ::testing::ValuesIn(AllMethods()),
                         [](const auto& method) { return method.param; });

// These took no such heads, or no turn that is shorter than their window, and take them now.
TEST(TurnsConformanceShipped, ScoresOfUnevenHeads) {
  for (const char* id : {"expected_attention", "caote", "finch", "snapkv", "keydiff"}) {
    const auto subject = MakeLegal(id, "gqa", {"allocate.id=ada"});
    ASSERT_NE(subject, nullptr) << id;
    ExpectTurns(*subject, false);
  }
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// A sequence that is saved while its answer is written, with every shipped method: what is loaded
// goes on as if nothing had happened.
#include <gtest/gtest.h>

#include "conformance/visual_scene.h"
#include "runner/generate.h"
#include "runner/reuse_texts.h"
#include "runner/saved_cache.h"

namespace kvgauge {
namespace {

constexpr int64_t kTokens = 12, kBegun = 4;
// What else there is of layers is in caches, whatever the method does.
const char* const kSavedKinds[] = {"gqa", "mla"};
const char* const kDamagedKind[] = {"gqa"};

class SavedConformance : public ::testing::TestWithParam<std::string> {};

// The sequence behind an answer to the sample.
SavedCache SavedBehind(const Subject& subject, const EngineSample& sample) {
  SavedCache saved;
  EngineOptions options;
  options.inspect = [&](const CellResult& cell, const KvCache& cache, Compressor& compressor) {
    std::vector<int32_t> ids = IdsRead(subject.method, sample.turns[0].ids, 0, {});
    ids.insert(ids.end(), cell.turns[0].ids.begin(), cell.turns[0].ids.end());
    Result<SavedCache> made =
        SaveCache(subject.model(), &subject.method, subject.contender().budget.ToString(), ids,
                  sample.turns[0].spans, cache, &compressor);
    ASSERT_TRUE(made.ok()) << made.error().message;
    saved = *std::move(made);
  };
  Engine engine({subject.contender()}, options);
  const Status done = engine.Run({&sample, 1}, [](const CellResult& cell) { return cell.status; });
  EXPECT_TRUE(done.ok()) << done.error().message;
  return saved;
}

// What is saved again, so many tokens later.
Result<SavedCache> SavedAgain(const Subject& subject, const SavedCache& saved, int64_t tokens) {
  Model& model = subject.model();
  const Method* method = saved.loaded_for.empty() ? nullptr : &subject.method;
  const int64_t length = std::ssize(saved.ids) + tokens;
  KVG_ASSIGN(KvCache cache, LoadCache(saved, model, method, length, "saved"));
  const Prompt sequence = SequenceOf(saved, cache);
  KVG_ASSIGN(const std::unique_ptr<Compressor> compressor,
             LoadCompressor(saved, model, method, sequence, cache, "saved"));
  EXPECT_EQ(compressor != nullptr, ActsInDecode(subject.method));
  GenerateOptions options;
  options.max_new_tokens = tokens;
  KVG_ASSIGN(const GenerateResult result,
             GenerateFrom(model, sequence, cache, options, {}, compressor.get()));
  std::vector<int32_t> ids = saved.ids;
  ids.insert(ids.end(), result.ids.begin(), result.ids.end());
  return SaveCache(model, method, saved.budget, ids, saved.spans, cache, compressor.get());
}

// `sample` makes one whose answer has so many tokens.
template <class Make>
void GoesOn(const Subject& subject, Make sample) {
  const Status savable = CheckSavable(subject.method);
  ASSERT_TRUE(savable.ok()) << savable.error().message;
  const SavedCache whole = SavedBehind(subject, sample(kTokens));
  const Result<SavedCache> begun =
      UnpackSaved(PackSaved(SavedBehind(subject, sample(kBegun))), "saved");
  ASSERT_TRUE(begun.ok()) << begun.error().message;
  EXPECT_EQ(begun->state.empty(), !ActsInDecode(subject.method));
  const Result<SavedCache> again = SavedAgain(subject, *begun, kTokens - kBegun);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->ids, whole.ids);
  EXPECT_TRUE(again->bytes == whole.bytes);
  EXPECT_TRUE(again->state == whole.state);
}

TEST_P(SavedConformance, GoesOnBitForBit) {
  const auto sample = [](int64_t tokens) { return Sample(kPromptTokens, 8, tokens); };
  for (const auto& subject : Subjects(GetParam(), {}, kSavedKinds)) GoesOn(*subject, sample);
}

// Where pictures stand is there again, as is which piece of one each position shows.
TEST_P(SavedConformance, GoesOnBehindPictures) {
  const Method shipped = LoadShipped(GetParam());
  if (ReadsTextAlone(shipped) || !ActsInDecode(shipped)) return;
  const auto sample = [](int64_t tokens) { return VisualSample(8, tokens); };
  std::span<const char* const> kinds = kVisualKinds;
  for (const char* kind : shipped.attend ? kinds.first(2) : kinds) {
    const auto subject = MakeSubject(GetParam(), kind);
    if (subject != nullptr) GoesOn(*subject, sample);
  }
}

// Whatever the bytes of a state are, they are refused, or gone on with.
TEST_P(SavedConformance, OtherStatesAreRefusedOrGoneOnWith) {
  const Method shipped = LoadShipped(GetParam());
  if (!ActsInDecode(shipped) || !CheckSavable(shipped).ok()) return;
  for (const auto& subject : Subjects(GetParam(), {}, kDamagedKind)) {
    const SavedCache saved = SavedBehind(*subject, Sample(kPromptTokens, 8, kBegun));
    const std::string& state = saved.state;
    for (size_t at = 0; at < state.size(); at += 1 + state.size() / 16) {
      SavedCache other = saved;
      other.state = state.substr(0, at);
      const Result<SavedCache> cut = SavedAgain(*subject, other, 2);
      ASSERT_FALSE(cut.ok());
      EXPECT_NE(cut.error().message.find("ends early"), std::string::npos) << cut.error().message;
      other.state = state;
      other.state[at] = static_cast<char>(other.state[at] ^ 0x85);
      const Result<SavedCache> flipped = SavedAgain(*subject, other, 2);
      if (flipped.ok()) {
        EXPECT_EQ(flipped->ids.size(), saved.ids.size() + 2);
      } else {
        EXPECT_FALSE(flipped.error().message.empty());
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, SavedConformance, ::testing::ValuesIn(AllMethods()),
                         [](const auto& method) { return TestNameOf(method.param); });

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// What a saved cache has of a method that acts in decode steps: a sequence goes on bit for bit, and
// bytes that are not those of such a state are refused.
#include <gmock/gmock.h>

#include "core/json.h"
#include "methods/registry.h"
#include "runner/engine_fixture.h"
#include "runner/generate.h"
#include "runner/saved_cache.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

// As of a plugin that does not write its index.
class UnsavedReader final : public Reader {
 public:
  explicit UnsavedReader(const Params&) {}
  struct Nothing final : State {
    int64_t bytes() const override { return 0; }
  };
  std::unique_ptr<State> Begin(LayerView&) const override { return std::make_unique<Nothing>(); }
  void Append(LayerView&, std::span<const int64_t>, State&) const override {}
  bool Select(LayerView&, State&, const Tensor&, Tensor) const override { return false; }
};
KVG_REGISTER_STAGE({
    .kind = StageKind::kRead,
    .id = "test_unsaved",
    .summary = "reads everything, and is not saved",
    .make = Make<UnsavedReader>(),
});

class SavedStateTest : public EngineTest {
 protected:
  static constexpr int64_t kPrompt = 90;
  static constexpr const char* kOrigin = "a.kvc";

  struct Case {
    Method method;
    double share;
  };
  // One of each class of stages that act in decode.
  std::vector<Case> Cases() const {
    std::vector<Case> cases;
    for (const char* id : {"h2o", "d2o", "buzz", "zeromerge"}) cases.push_back({Shipped(id), 0.5});
    cases.push_back({Shipped("decoding_adakv", {"trigger.steps=3", "score.window=8"}), 0.5});
    cases.push_back({Shipped("mikv", {"store.wait=4"}), 1});
    cases.push_back({Shipped("diffkv", {"protect.recent=8", "score.window=8"}), 1});
    return cases;
  }

  // The sequence's cache behind an answer of so many tokens, and the answer.
  std::pair<SavedCache, std::vector<int32_t>> Answer(const Case& one, int64_t tokens) {
    std::pair<SavedCache, std::vector<int32_t>> saved;
    EngineOptions options;
    const EngineSample sample = Sample(kPrompt, 3, tokens);
    options.inspect = [&](const CellResult& cell, const KvCache& cache, Compressor& compressor) {
      std::vector<int32_t> ids = sample.turns[0].ids;
      ids.insert(ids.end(), cell.turns[0].ids.begin(), cell.turns[0].ids.end());
      const Budget budget = one.method.takes_budget ? Fraction(one.share) : Budget();
      auto file = SaveCache(model_, &one.method, budget.ToString(), ids, {}, cache, &compressor);
      ASSERT_TRUE(file.ok()) << file.error().message;
      saved = {*std::move(file), cell.turns[0].ids};
    };
    Contender contender = {.method = &one.method, .model = &model_};
    if (one.method.takes_budget) contender.budget = Fraction(one.share);
    const Cells cells = RunEngine({contender}, options, {sample});
    EXPECT_TRUE(cells.at({0, 0}).status.ok()) << cells.at({0, 0}).status.error().message;
    return saved;
  }
  // What goes on with it, and how that ends.
  Result<std::pair<SavedCache, std::vector<int32_t>>> GoOn(const SavedCache& saved,
                                                           const Method& method, int64_t tokens) {
    const int64_t length = std::ssize(saved.ids) + tokens;
    KVG_ASSIGN(KvCache cache, LoadCache(saved, model_, &method, length, kOrigin));
    const Prompt sequence = SequenceOf(saved, cache);
    KVG_ASSIGN(const std::unique_ptr<Compressor> compressor,
               LoadCompressor(saved, model_, &method, sequence, cache, kOrigin));
    GenerateOptions options;
    options.max_new_tokens = tokens;
    KVG_ASSIGN(const GenerateResult result,
               GenerateFrom(model_, sequence, cache, options, {}, compressor.get()));
    std::vector<int32_t> ids = saved.ids;
    ids.insert(ids.end(), result.ids.begin(), result.ids.end());
    KVG_ASSIGN(SavedCache again,
               SaveCache(model_, &method, saved.budget, ids, {}, cache, compressor.get()));
    return std::pair(std::move(again), result.ids);
  }
};

TEST_F(SavedStateTest, ASequenceGoesOnBitForBit) {
  for (const Case& one : Cases()) {
    SCOPED_TRACE(one.method.id);
    const auto [whole, all] = Answer(one, 14);
    const auto [first, begun] = Answer(one, 5);
    ASSERT_FALSE(first.state.empty());
    EXPECT_EQ(first.loaded_for, one.method.id);
    const Result<SavedCache> read = UnpackSaved(PackSaved(first), kOrigin);
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->state, first.state);
    const auto again = GoOn(*read, one.method, 9);
    ASSERT_TRUE(again.ok()) << again.error().message;
    std::vector<int32_t> ids = begun;
    ids.insert(ids.end(), again->second.begin(), again->second.end());
    EXPECT_EQ(ids, all);
    EXPECT_EQ(again->first.bytes, whole.bytes);
    EXPECT_EQ(again->first.state, whole.state);
  }
}

// The seed, the prompt's tokens, the steps and the growth are all that is known of it, as in files
// of before pictures were saved.
TEST_F(SavedStateTest, LoweredScoresOfPicturesHaveNothingOfAText) {
  const Case one = {Shipped("calibquant"), 1};
  const SavedCache saved = Answer(one, 5).first;
  EXPECT_EQ(saved.state.size(), 4 * sizeof(int64_t));
  const auto again = GoOn(saved, one.method, 2);
  EXPECT_TRUE(again.ok()) << again.error().message;
}

TEST_F(SavedStateTest, AReaderThatDoesNotWriteItsIndexIsRefused) {
  const Json json = {{"id", "unsaved"},
                     {"title", "a reader of a plugin"},
                     {"family", "retrieval"},
                     {"version", 1},
                     {"stages", {{"read", {{"id", "test_unsaved"}}}}}};
  const Result<Method> method = ParseMethod(json, "test");
  ASSERT_TRUE(method.ok()) << method.error().message;
  const std::string why =
      "method unsaved: read.test_unsaved chooses what is read by an index of its own, which a "
      "saved cache does not hold";
  const Status savable = CheckSavable(*method);
  ASSERT_FALSE(savable.ok());
  EXPECT_THAT(savable.error().message, HasSubstr(why));
  // The answer itself is written.
  EngineOptions options;
  options.inspect = [&](const CellResult&, const KvCache& cache, Compressor& compressor) {
    const auto saved =
        SaveCache(model_, &*method, "none", RandomIds(kPrompt + 3, 1), {}, cache, &compressor);
    ASSERT_FALSE(saved.ok());
    EXPECT_THAT(saved.error().message, HasSubstr(why));
  };
  const Cells cells =
      RunEngine({{.method = &*method, .model = &model_}}, options, {Sample(kPrompt, 3, 3)});
  EXPECT_TRUE(cells.at({0, 0}).status.ok());
  for (const char* id : {"quest", "h2o", "mikv", "full"}) {
    EXPECT_TRUE(CheckSavable(Shipped(id)).ok()) << id;
  }
}

TEST_F(SavedStateTest, OtherBytesAreRefused) {
  for (const Case& one : Cases()) {
    SCOPED_TRACE(one.method.id);
    const SavedCache saved = Answer(one, 5).first;
    const auto refused = [&](const std::string& state) -> std::string {
      SavedCache other = saved;
      other.state = state;
      const auto result = GoOn(other, one.method, 2);
      return result.ok() ? "" : result.error().message;
    };
    for (size_t size = 0; size < saved.state.size(); size += 7) {
      EXPECT_THAT(refused(saved.state.substr(0, size)),
                  AllOf(HasSubstr("a.kvc: "), HasSubstr("ends early")));
    }
    EXPECT_THAT(refused(saved.state + "x"),
                HasSubstr("state of the method: 1 bytes behind its end"));
    // Whatever is in it: refused, or gone on with.
    for (size_t at = 0; at < saved.state.size(); at += 1 + saved.state.size() / 60) {
      std::string wrong = saved.state;
      wrong[at] = static_cast<char>(wrong[at] ^ 0x85);
      refused(wrong);
    }
  }
  const SavedCache saved = Answer(Cases()[0], 5).first;
  SavedCache other = saved;
  other.state[8] = static_cast<char>(200);
  const auto more = GoOn(other, Cases()[0].method, 2);
  ASSERT_FALSE(more.ok());
  EXPECT_THAT(more.error().message,
              HasSubstr("a.kvc: h2o: state of the method: tokens of the prompt is 200; expected"));
}

// The cache and the state are of one method, with one set of parameters.
TEST_F(SavedStateTest, AnotherCacheIsRefused) {
  const std::vector<Case> cases = Cases();
  const SavedCache h2o = Answer(cases[0], 5).first;
  const auto with_cache_of = [&](const std::string& id) -> std::string {
    for (const Case& one : cases) {
      if (one.method.id != id) continue;
      SavedCache mixed = h2o;
      mixed.bytes = Answer(one, 5).first.bytes;
      const auto result = GoOn(mixed, cases[0].method, 2);
      return result.ok() ? "" : result.error().message;
    }
    return "no such case";
  };
  EXPECT_THAT(with_cache_of("diffkv"),
              HasSubstr("layer 0 has 2 scores of each entry; expected 1 of score.h2o"));
  EXPECT_THAT(with_cache_of("mikv"),
              HasSubstr("layer 0 has entries in classes; store.plain has it otherwise"));
  const auto again = GoOn(h2o, Shipped("h2o", {"protect.recent=3"}), 2);
  ASSERT_FALSE(again.ok());
  EXPECT_THAT(again.error().message, HasSubstr("one of method h2o with other parameters: "));
  const SavedCache plain = [&] {
    SavedCache bare = h2o;
    bare.loaded_for = {};
    return bare;
  }();
  KvCache cache = *LoadCache(plain, model_, nullptr, kPrompt + 8, kOrigin);
  const Prompt sequence = SequenceOf(plain, cache);
  const auto none = LoadCompressor(plain, model_, nullptr, sequence, cache, kOrigin);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message,
              HasSubstr("bytes are a method's state, and no method that acts in decode is named"));
}

}  // namespace
}  // namespace kvgauge

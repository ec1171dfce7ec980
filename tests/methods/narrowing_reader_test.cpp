// SPDX-License-Identifier: Apache-2.0
// A reader that reads less of what another chose.
#include "methods/narrowing_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chosen_entries.h"
#include "core/strings.h"
#include "fake_view.h"
#include "methods/method.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kNarrowDim = 8, kNarrowTokens = 203;

template <class Kind = Reader>
std::unique_ptr<Kind> NewReader(const char* id, const char* params) {
  std::unique_ptr<Reader> reader = MakeStage<Reader>(StageKind::kRead, id, params);
  auto* typed = dynamic_cast<Kind*>(reader.get());
  EXPECT_NE(typed, nullptr);
  static_cast<void>(reader.release());
  return std::unique_ptr<Kind>(typed);
}

std::unique_ptr<Reader> Narrowed(const char* id, const char* params, const char* top_p) {
  return MakeNarrowed(NewReader(id, params), NewReader<NarrowingReader>("top_p", top_p));
}

FakeView NarrowView(int64_t layer = 2) {
  FakeView view(SmallShape(4, 2, 3, kNarrowDim), kNarrowTokens, layer);
  view.Randomize(9);
  for (std::vector<float>& keys : view.keys) {
    for (float& x : keys) x *= 4;  // attention that is not flat
  }
  view.SetLength(1, 190);
  return view;
}

const std::vector<float> kNarrowQueries = RandomValues(6 * kNarrowDim, 4);

// Quest and its pruner as stages of their own choose what one stage that is both chooses.
TEST(NarrowedReaderTest, PrunedQuestIsTheStageThatIsBoth) {
  const auto both = NewReader("quest_top_p", R"({"tokens": 80, "share": 0.6, "dense_layers": 1})");
  const auto apart = Narrowed("quest", R"({"tokens": 80, "dense_layers": 1})",
                              R"({"share": 0.6, "dense_layers": 1})");
  FakeView view = NarrowView();
  const auto of_both = both->Begin(view), of_apart = apart->Begin(view);
  const Reads want = SelectWith(*both, view, *of_both, kNarrowQueries);
  const Reads got = SelectWith(*apart, view, *of_apart, kNarrowQueries);
  ASSERT_TRUE(want.chosen && got.chosen);
  EXPECT_EQ(got.words, want.words);
}

TEST(NarrowedReaderTest, ReadsLessOfWhatWasChosen) {
  const std::pair<const char*, const char*> readers[] = {
      {"quest", R"({"tokens": 80, "dense_layers": 0})"},
      {"subspace", R"({"rank": 4, "tokens": 60, "directions": "channels"})"},
      {"pqcache", R"({"sinks": 4, "tokens": 60})"},
      {"tokenselect", R"({"sinks": 4, "local": 8, "tokens": 40})"},
      {"exact_top_k", R"({"sinks": 4, "local": 8, "tokens": 40})"}};
  for (const auto& [id, params] : readers) {
    FakeView view = NarrowView();
    const auto whole = NewReader(id, params);
    const auto less = Narrowed(id, params, R"({"share": 0.5, "dense_layers": 0})");
    const auto same = Narrowed(id, params, R"({"share": 1, "dense_layers": 0})");
    const auto of_whole = whole->Begin(view), of_less = less->Begin(view);
    EXPECT_EQ(of_less->bytes(), of_whole->bytes()) << id;
    const Reads from = SelectWith(*whole, view, *of_whole, kNarrowQueries);
    const Reads few = SelectWith(*less, view, *of_less, kNarrowQueries);
    ASSERT_TRUE(from.chosen && few.chosen) << id;
    for (int64_t head = 0; head < 6; ++head) {
      const auto all = from.Of(head), kept = few.Of(head);
      EXPECT_GE(std::ssize(kept), 1) << id;
      EXPECT_LT(std::ssize(kept), std::ssize(all)) << id;
      for (const int64_t e : kept) EXPECT_TRUE(from.Has(head, e)) << id << " " << head << " " << e;
    }
    EXPECT_EQ(SelectWith(*same, view, *of_whole, kNarrowQueries).words, from.words) << id;
  }
}

// The first layers read everything, whatever was chosen; a reader that reads everything leaves all
// entries to choose among.
TEST(NarrowedReaderTest, EverythingIsACandidateOrIsRead) {
  FakeView view = NarrowView();
  const auto dense = Narrowed("subspace", R"({"rank": 4, "tokens": 60})", R"({"dense_layers": 3})");
  const auto of_dense = dense->Begin(view);
  EXPECT_FALSE(SelectWith(*dense, view, *of_dense, kNarrowQueries).chosen);
  const auto open = Narrowed("subspace", R"({"rank": 4, "tokens": 1000})", R"({"share": 0.5})");
  const auto alone = NewReader("top_p", R"({"share": 0.5})");
  const auto of_open = open->Begin(view), of_alone = alone->Begin(view);
  const Reads got = SelectWith(*open, view, *of_open, kNarrowQueries);
  EXPECT_TRUE(got.chosen);
  EXPECT_EQ(got.words, SelectWith(*alone, view, *of_alone, kNarrowQueries).words);
}

// Where the window hides all that was chosen, nothing else is read in its place.
TEST(NarrowedReaderTest, HiddenCandidatesStayTheOnlyOnes) {
  ModelShape shape = SmallShape(4, 2, 3, kNarrowDim);
  shape.windows.assign(4, 10);
  FakeView view(shape, kNarrowTokens, 2);
  const auto top_p = NewReader<NarrowingReader>("top_p", R"({"share": 0.5})");
  std::vector<uint64_t> words(6 * 4);
  for (int64_t head = 0; head < 6; ++head) words[static_cast<size_t>(4 * head)] = 0b1011000;
  const std::vector<uint64_t> before = words;
  ASSERT_TRUE(top_p->Narrow(view, View(kNarrowQueries, {6, kNarrowDim}),
                            Tensor(words.data(), DType::kI64, {6, 4})));
  EXPECT_EQ(words, before);
}

std::string FaultOfNarrowing(const std::vector<std::string>& overrides, const char* id = "quest") {
  const Result<Method> method =
      LoadMethod(id, StrCat(KVG_SOURCE_DIR, "/configs/methods"), overrides);
  return method.ok() ? "" : method.error().message;
}

TEST(NarrowedReaderTest, MethodsSayWhatCannotNarrowWhat) {
  EXPECT_EQ(FaultOfNarrowing({"narrow.id=top_p", "narrow.share=0.9"}), "");
  EXPECT_EQ(FaultOfNarrowing({"narrow.id=top_p"}, "tidaldecode"), "");
  EXPECT_THAT(FaultOfNarrowing({"narrow.id=pqcache"}),
              ::testing::AllOf(HasSubstr("narrow.pqcache chooses among all entries"),
                               HasSubstr("narrow.top_p")));
  EXPECT_THAT(
      FaultOfNarrowing({"narrow.id=top_p"}, "full"),
      HasSubstr("narrow.top_p reads less of what another reader chooses, and there is none"));
  for (const char* id : {"sparq", "magicpig", "retroinfer", "vattention"}) {
    EXPECT_THAT(FaultOfNarrowing({"narrow.id=top_p"}, id),
                HasSubstr(" makes up for what it does not read, and narrow.top_p"))
        << id;
  }
  EXPECT_THAT(FaultOfNarrowing({"narrow.id=top_q"}), HasSubstr("did you mean 'top_p'"));
  const Result<Method> plain = LoadMethod("quest", StrCat(KVG_SOURCE_DIR, "/configs/methods"), {});
  const Result<Method> less =
      LoadMethod("quest", StrCat(KVG_SOURCE_DIR, "/configs/methods"), {"narrow.id=top_p"});
  ASSERT_TRUE(plain.ok() && less.ok());
  EXPECT_NE(plain->ToJson(), less->ToJson());
  EXPECT_EQ(less->narrow->slot, "narrow");
}

}  // namespace
}  // namespace kvgauge

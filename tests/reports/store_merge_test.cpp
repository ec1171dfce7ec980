// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "reports/store_fixture.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(StoreMerge, ShardsGiveWhatASingleRunGives) {
  const ScratchDirectory scratch;
  const auto single = MustOpen(scratch.File("single.db"));
  Fill(*single, "single", 3, 0, 20);
  const auto joined = MustOpen(scratch.File("joined.db"));
  for (int shard = 0; shard < 4; ++shard) {
    const std::string path = scratch.File(StrCat("shard", shard, ".db"));
    const auto store = MustOpen(path);
    Fill(*store, StrCat("shard", shard), 3, 5 * shard, 5 * shard + 5);
    MustOk(store->AddEvent(1, {"t", "finished", StrCat("shard ", shard)}));
    MustOk(store->WriteLatency(1, 1, std::vector<LatencyRow>(1)));
    const MergeReport report = Must(joined->Merge(*store));
    EXPECT_EQ(report.cells, 3);
    EXPECT_EQ(report.added, 15);
    EXPECT_EQ(report.kept + report.replaced, 0);
  }
  EXPECT_EQ(Must(joined->ResultDigest()), Must(single->ResultDigest()));
  EXPECT_EQ(Must(joined->Runs()).size(), 4u);
  EXPECT_EQ(Must(joined->Events(3))[0].message, "shard 2");
  EXPECT_EQ(Must(joined->Latency(1)).size(), 4u);
  const SampleRow sample = *Must(joined->Read(2, "needle-17"));
  EXPECT_EQ(Must(joined->Runs())[static_cast<size_t>(sample.run - 1)].run.key, "shard3");
  MustOk(joined->Check());

  // Again, and from itself under another name: nothing changes.
  const auto shard = MustOpen(scratch.File("shard1.db"), StoreMode::kReadOnly);
  const MergeReport again = Must(joined->Merge(*shard));
  EXPECT_EQ(again.added, 0);
  EXPECT_EQ(again.kept, 15);
  EXPECT_EQ(Must(joined->Events(2)).size(), 1u);
  EXPECT_EQ(Must(joined->Latency(1)).size(), 4u);
  EXPECT_EQ(Must(joined->ResultDigest()), Must(single->ResultDigest()));
  EXPECT_FALSE(joined->Merge(*joined).ok());
}

// Shards of one plan whose protocol was changed between them: two half rows, no whole one.
TEST(StoreMerge, RowsOfTwoProtocolsAreRefused) {
  const ScratchDirectory scratch;
  const auto fill = [&](const std::string& name, const std::vector<int>& protocols, int64_t first,
                        int64_t last) {
    auto store = MustOpen(scratch.File(name));
    const int64_t run = Must(store->AddRun(TestRun(name)));
    for (const int tokens : protocols) {
      CellRow cell = TestCell(1);
      cell.identity = StrCat("snapkv at ", tokens);
      cell.signature = StrCat(R"({"task":{"max_new_tokens":)", tokens, R"(},"template":1})");
      const int64_t id = Must(store->AddCell(cell));
      for (int64_t i = first; i < last; ++i) Must(store->Write(TestSample(id, run, 1, i)));
    }
    return store;
  };
  const auto first = fill("1.db", {32}, 0, 5), second = fill("2.db", {64}, 5, 10);
  const std::string digest = Must(first->ResultDigest());
  const Result<MergeReport> merged = first->Merge(*second);
  ASSERT_FALSE(merged.ok());
  EXPECT_THAT(merged.error().message,
              AllOf(HasSubstr(second->path()), HasSubstr(first->path()),
                    HasSubstr("ref-gqa, needle/single, snapkv, 10%, prompt"),
                    HasSubstr("they differ in task.max_new_tokens, expected")));
  EXPECT_EQ(Must(first->ResultDigest()), digest);
  // What one file holds on purpose, and what was planned only, may be taken over.
  const auto both = fill("both.db", {32, 64}, 0, 5);
  EXPECT_EQ(Must(first->Merge(*both)).added, 5);
  EXPECT_EQ(Must(first->Merge(*second)).added, 5);
  const auto planned = fill("planned.db", {16}, 0, 0);
  EXPECT_EQ(Must(first->Merge(*planned)).added, 0);
}

TEST(StoreMerge, ASuccessElsewhereReplacesAFailureHere) {
  const ScratchDirectory scratch;
  const auto a = MustOpen(scratch.File("a.db")), b = MustOpen(scratch.File("b.db"));
  Fill(*a, "a", 1, 0, 3);
  Fill(*b, "b", 1, 0, 3);
  SampleRow failed = TestSample(1, 1, 0, 3);
  failed.status = SampleStatus::kFailed;
  failed.reason = "out of memory";
  failed.score.reset();
  Must(a->Write(failed));
  Must(b->Write(TestSample(1, 1, 0, 3)));
  EXPECT_EQ(Must(b->Merge(*a)).replaced, 0);
  EXPECT_EQ(Must(a->Merge(*b)).replaced, 1);
  EXPECT_EQ(Must(a->ResultDigest()), Must(b->ResultDigest()));
}

TEST(StoreMerge, ConflictsAreRefusedAsAWhole) {
  const ScratchDirectory scratch;
  const auto target = MustOpen(scratch.File("t.db"));
  Fill(*target, "t", 2, 0, 5);
  const std::string digest = Must(target->ResultDigest());
  const auto refused = [&](ResultStore& source, const char* why) {
    const auto merged = target->Merge(source);
    ASSERT_FALSE(merged.ok()) << why;
    EXPECT_THAT(merged.error().message, HasSubstr(why));
    EXPECT_THAT(merged.error().message, HasSubstr(source.path()));
    EXPECT_THAT(merged.error().message, HasSubstr(target->path()));
    EXPECT_EQ(Must(target->ResultDigest()), digest);
    EXPECT_EQ(Must(target->Runs()).size(), 1u);
  };
  // New samples come before the conflict; none of them stays.
  const auto other = MustOpen(scratch.File("other.db"));
  Fill(*other, "o", 1, 5, 9);
  SampleRow differs = TestSample(Must(other->AddCell(TestCell(1))), 1, 1, 2);
  differs.score = 0.25;
  Must(other->Write(differs));
  refused(*other, "another result");

  const auto signature = MustOpen(scratch.File("signature.db"));
  Fill(*signature, "s", 1, 5, 9);
  CellRow cell = TestCell(1);
  cell.signature = R"({"template":2})";
  Must(signature->AddCell(cell));
  refused(*signature, "different signatures");

  const auto run = MustOpen(scratch.File("run.db"));
  RunRow row = TestRun("t");
  row.command = "another";
  Must(run->AddRun(row));
  refused(*run, "keys of runs must be unique");

  const auto reader = MustOpen(scratch.File("t.db"), StoreMode::kReadOnly);
  EXPECT_FALSE(reader->Merge(*other).ok());
}

TEST(StoreMerge, SeveralAreTakenOverTogetherOrNotAtAll) {
  const ScratchDirectory scratch;
  const auto target = MustOpen(scratch.File("t.db"));
  Fill(*target, "t", 1, 0, 5);
  const auto second = MustOpen(scratch.File("second.db")), third = MustOpen(scratch.File("3.db"));
  Fill(*second, "second", 1, 5, 8);
  Fill(*third, "third", 1, 6, 10);
  // Agrees with the target, not with the input before it.
  const auto liar = MustOpen(scratch.File("liar.db"));
  SampleRow differs =
      TestSample(Must(liar->AddCell(TestCell(0))), Must(liar->AddRun(TestRun("liar"))), 0, 7);
  differs.score = 0.25;
  Must(liar->Write(differs));

  const std::string digest = Must(target->ResultDigest());
  const Result<std::vector<MergeReport>> refused =
      target->MergeAll(std::vector{second.get(), third.get(), liar.get()});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr(liar->path()));
  EXPECT_EQ(Must(target->ResultDigest()), digest);
  EXPECT_EQ(Must(target->Runs()).size(), 1u);
  EXPECT_FALSE(target->MergeAll(std::vector{second.get(), target.get()}).ok());
  EXPECT_EQ(Must(target->ResultDigest()), digest);

  const auto reports = Must(target->MergeAll(std::vector{second.get(), third.get()}));
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_EQ(reports[0].added, 3);
  EXPECT_EQ(reports[1].added, 2);
  EXPECT_EQ(reports[1].kept, 2);
}

}  // namespace
}  // namespace kvgauge

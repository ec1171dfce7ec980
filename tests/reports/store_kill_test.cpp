// SPDX-License-Identifier: Apache-2.0
// Killed at any moment, at any byte; run again; the result is that of a run nobody killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include "core/rng.h"
#include "reports/killing_vfs.h"
#include "reports/store_fixture.h"

namespace kvgauge {
namespace {

constexpr int64_t kCells = 4;

// What `kvgauge run` does: opens, asks what is missing, records it. Some samples fail the first
// time. False when anything was refused.
bool Resume(const std::string& path, const std::string& run_key, int64_t samples) {
  const auto store = ResultStore::Open(path, StoreMode::kCreate);
  if (!store.ok()) return false;
  const auto run = (*store)->AddRun(TestRun(run_key));
  if (!run.ok()) return false;
  std::vector<std::string> ids;
  for (int64_t i = 0; i < samples; ++i) ids.push_back(StrCat("needle-", i));
  for (int64_t c = 0; c < kCells; ++c) {
    const auto cell = (*store)->AddCell(TestCell(c));
    if (!cell.ok()) return false;
    const auto pending = (*store)->Pending(*cell, ids);
    if (!pending.ok()) return false;
    for (const std::string& id : *pending) {
      const int64_t i = std::stoll(id.substr(7));
      if (!(*store)->Write(TestSample(*cell, *run, c, i)).ok()) return false;
    }
  }
  return (*store)->FinishRun(*run, "later").ok();
}

// True when a signal ended it; false when it ended by itself, which must be without complaint.
bool WasKilled(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  if (WIFSIGNALED(status)) {
    EXPECT_EQ(WTERMSIG(status), SIGKILL);
    return true;
  }
  EXPECT_EQ(WEXITSTATUS(status), 0) << "a resumed run was refused";
  return false;
}

void ExpectSameAsUninterrupted(const ScratchDirectory& scratch, const std::string& path,
                               int64_t samples) {
  ASSERT_TRUE(Resume(path, "last", samples));
  const std::string whole = scratch.File("whole.db");
  ASSERT_TRUE(Resume(whole, "whole", samples));
  const auto killed = MustOpen(path, StoreMode::kReadOnly);
  EXPECT_EQ(Must(killed->ResultDigest()),
            Must(MustOpen(whole, StoreMode::kReadOnly)->ResultDigest()));
  MustOk(killed->Check());
  for (const StoredCell& cell : Must(killed->Cells())) {
    EXPECT_EQ(static_cast<int64_t>(Must(killed->Scores(cell.id)).size()), samples);
  }
}

// 100 deaths inside a write to the file or its log, part of which is done, from the first byte of
// the file on.
TEST(StoreKill, AtAnyWrite) {
  const ScratchDirectory scratch("/dev/shm");
  const std::string path = scratch.File("r.db");
  constexpr int64_t kSamples = 400;
  Rng rng(5, 1);
  int deaths = 0;
  for (int round = 0; deaths < 100 && round < 400; ++round) {
    // Early rounds die while the file is made.
    const auto writes = static_cast<int64_t>(rng.NextBelow(round < 40 ? 30 + 2 * round : 400));
    const int percent = static_cast<int>(rng.NextBelow(101));
    const pid_t child = fork();
    if (child == 0) {
      InstallKillingVfs(writes, percent);
      _exit(Resume(path, StrCat("run", round), kSamples) ? 0 : 1);
    }
    deaths += WasKilled(child) ? 1 : 0;
  }
  EXPECT_EQ(deaths, 100);
  ExpectSameAsUninterrupted(scratch, path, kSamples);
}

// 100 deaths by the clock.
TEST(StoreKill, AtAnyMoment) {
  const ScratchDirectory scratch("/dev/shm");
  const std::string path = scratch.File("r.db");
  constexpr int64_t kSamples = 2000;
  Rng rng(5, 2);
  int deaths = 0;
  for (int round = 0; deaths < 100 && round < 400; ++round) {
    const pid_t child = fork();
    if (child == 0) _exit(Resume(path, StrCat("run", round), kSamples) ? 0 : 1);
    usleep(static_cast<useconds_t>(rng.NextBelow(12000)));
    kill(child, SIGKILL);
    deaths += WasKilled(child) ? 1 : 0;
  }
  EXPECT_EQ(deaths, 100);
  ExpectSameAsUninterrupted(scratch, path, kSamples);
}

// A merge of several into a file that holds something, killed inside a write: the file is as before
// it or as after it.
TEST(StoreKill, InAMergeOfSeveral) {
  const ScratchDirectory scratch("/dev/shm");
  Fill(*MustOpen(scratch.File("before.db")), "before", 2, 0, 20);
  std::vector<std::string> inputs;
  for (int64_t i = 1; i <= 3; ++i) {
    inputs.push_back(scratch.File(StrCat("in", i, ".db")));
    Fill(*MustOpen(inputs.back()), inputs.back(), 2, 20 * i, 20 * i + 20);
  }
  const auto copy = [&](const std::string& to) {
    std::filesystem::copy_file(scratch.File("before.db"), to,
                               std::filesystem::copy_options::overwrite_existing);
  };
  const auto merge = [&](const std::string& to) {
    const auto target = ResultStore::Open(to, StoreMode::kReadWrite);
    if (!target.ok()) return false;
    std::vector<std::unique_ptr<ResultStore>> owned;
    std::vector<ResultStore*> sources;
    for (const std::string& input : inputs) {
      auto source = ResultStore::Open(input, StoreMode::kReadOnly);
      if (!source.ok()) return false;
      sources.push_back(source->get());
      owned.push_back(std::move(*source));
    }
    return (*target)->MergeAll(sources).ok();
  };
  copy(scratch.File("after.db"));
  ASSERT_TRUE(merge(scratch.File("after.db")));
  const std::string before = Must(MustOpen(scratch.File("before.db"))->ResultDigest());
  const std::string after = Must(MustOpen(scratch.File("after.db"))->ResultDigest());
  ASSERT_NE(before, after);

  int unchanged = 0, whole = 0;
  bool killed = true;
  for (int64_t writes = 0; killed && writes < 2000; writes += 5) {
    const std::string path = scratch.File(StrCat("killed", writes, ".db"));
    copy(path);
    const pid_t child = fork();
    if (child == 0) {
      InstallKillingVfs(writes, static_cast<int>(writes % 101));
      _exit(merge(path) ? 0 : 1);
    }
    killed = WasKilled(child);
    const auto store = MustOpen(path);
    const std::string digest = Must(store->ResultDigest());
    MustOk(store->Check());
    EXPECT_TRUE(digest == before || digest == after) << writes;
    (digest == before ? unchanged : whole) += killed ? 1 : 0;
  }
  EXPECT_FALSE(killed);
  EXPECT_GT(unchanged, 10);
  EXPECT_GT(whole, 0);
}

}  // namespace
}  // namespace kvgauge

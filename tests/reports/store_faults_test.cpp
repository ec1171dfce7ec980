// SPDX-License-Identifier: Apache-2.0
// What the world does to a store: each fault is an error that names the file, and what was recorded
// before is there afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <fstream>
#include <functional>
#include <thread>

#include "core/files.h"
#include "reports/store_fixture.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

void RunSql(const std::string& path, const std::string& sql) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK)
      << sqlite3_errmsg(db);
  sqlite3_close(db);
}

std::string Bytes(const std::string& path) { return Must(ReadFile(path)); }

// Opening fails in every mode with a message that begins with the file, and changes nothing.
void ExpectRefused(const std::string& path, const std::string& why) {
  const std::string before = Bytes(path);
  for (const StoreMode mode : {StoreMode::kReadOnly, StoreMode::kReadWrite, StoreMode::kCreate}) {
    const auto store = ResultStore::Open(path, mode);
    ASSERT_FALSE(store.ok()) << why;
    EXPECT_THAT(store.error().message, AllOf(StartsWith(path + ": "), HasSubstr(why)));
  }
  EXPECT_EQ(Bytes(path), before);
  EXPECT_FALSE(FileExists(path + ".lock"));
}

// What `body` says in a process of its own; "" when all was well.
std::string InChild(const std::function<std::string()>& body) {
  int channel[2];
  if (pipe(channel) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    close(channel[0]);
    const std::string said = body();
    const ssize_t sent = write(channel[1], said.data(), said.size());
    _exit(sent == static_cast<ssize_t>(said.size()) ? 0 : 1);
  }
  close(channel[1]);
  std::string said;
  char buffer[4096];
  ssize_t got;
  while ((got = read(channel[0], buffer, sizeof(buffer))) > 0) {
    said.append(buffer, static_cast<size_t>(got));
  }
  close(channel[0]);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? said : StrCat("child died: ", status);
}

TEST(StoreFaults, FilesThatAreNoStore) {
  const ScratchDirectory scratch;
  const std::string path = scratch.File("r.db");
  std::ofstream(path) << std::string(5000, 'x');
  ExpectRefused(path, "is not a result store");
  const std::string other = scratch.File("other.db");
  RunSql(other, "CREATE TABLE t (x)");
  ExpectRefused(other, "database of another program");

  const auto directory = ResultStore::Open(scratch.path(), StoreMode::kCreate);
  ASSERT_FALSE(directory.ok());
  EXPECT_THAT(directory.error().message, HasSubstr("is a directory"));
  const auto missing = ResultStore::Open(scratch.File("none.db"), StoreMode::kReadWrite);
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("no such file"));
  EXPECT_FALSE(FileExists(scratch.File("none.db")));
  const auto nowhere = ResultStore::Open(scratch.File("a/b.db"), StoreMode::kCreate);
  ASSERT_FALSE(nowhere.ok());
  EXPECT_THAT(nowhere.error().message, AllOf(HasSubstr("a/b.db"), HasSubstr("No such file")));
}

TEST(StoreFaults, AnEmptyFileIsMadeAStoreOnlyByCreate) {
  const ScratchDirectory scratch;
  const std::string path = scratch.File("r.db");
  std::ofstream(path).flush();
  for (const StoreMode mode : {StoreMode::kReadOnly, StoreMode::kReadWrite}) {
    const auto store = ResultStore::Open(path, mode);
    ASSERT_FALSE(store.ok());
    EXPECT_THAT(store.error().message, HasSubstr("is empty"));
  }
  EXPECT_TRUE(MustOpen(path) != nullptr);
}

TEST(StoreFaults, SchemasThisProgramDoesNotKnow) {
  const ScratchDirectory scratch;
  const std::string path = scratch.File("r.db");
  Fill(*MustOpen(path), "r1", 1, 0, 3);
  RunSql(path, "PRAGMA user_version = 1000");
  ExpectRefused(path, "schema version 1000, this program knows versions up to");
  RunSql(path, "PRAGMA user_version = -1");
  ExpectRefused(path, "schema version -1");
  RunSql(path, "PRAGMA user_version = 12; DROP VIEW result; ALTER TABLE answer DROP COLUMN score");
  ExpectRefused(path, "tables differ");
}

// Every page in turn is overwritten; nothing may crash, lie or lose what is readable.
TEST(StoreFaults, DamagedPages) {
  const ScratchDirectory scratch;
  const std::string good = scratch.File("good.db"), path = scratch.File("bad.db");
  Fill(*MustOpen(good), "r1", 2, 0, 40);
  const std::string bytes = Bytes(good);
  const std::string digest = Must(MustOpen(good, StoreMode::kReadOnly)->ResultDigest());
  constexpr size_t kPage = 4096;
  ASSERT_GT(bytes.size() / kPage, 20u);
  int found = 0;
  for (size_t page = 0; page < bytes.size() / kPage; ++page) {
    std::string damaged = bytes;
    for (size_t i = page == 0 ? 100 : 0; i < kPage; ++i) damaged[page * kPage + i] = '\x5a';
    std::ofstream(path, std::ios::binary) << damaged;
    {
      const auto store = ResultStore::Open(path, StoreMode::kReadOnly);
      const Result<std::string> got =
          store.ok() ? (*store)->ResultDigest() : Result<std::string>(store.error());
      if (got.ok()) {
        EXPECT_EQ(*got, digest) << "page " << page;
      } else {
        EXPECT_THAT(got.error().message, StartsWith(path)) << "page " << page;
      }
      if (store.ok()) {
        EXPECT_FALSE((*store)->Check().ok()) << "page " << page;
        EXPECT_EQ((*store)->Check().error().code, ErrorCode::kBadInput) << "page " << page;
      }
    }
    const auto store = ResultStore::Open(path, StoreMode::kCreate);
    if (store.ok()) continue;  // an index or an empty page, which the quick check does not compare
    ++found;
    // Whatever opens it, the file is wrong; the system refused nothing.
    EXPECT_EQ(store.error().code, ErrorCode::kBadInput) << store.error().message;
    EXPECT_THAT(store.error().message, StartsWith(path)) << "page " << page;
    EXPECT_EQ(Bytes(path), damaged) << "page " << page;
  }
  EXPECT_EQ(found, static_cast<int>(bytes.size() / kPage));
}

TEST(StoreFaults, TwoWriters) {
  const ScratchDirectory scratch;
  const std::string path = scratch.File("r.db");
  auto first = MustOpen(path);
  const auto second = ResultStore::Open(path, StoreMode::kCreate);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message,
              AllOf(StartsWith(path), HasSubstr(StrCat("process ", getpid(), " writes to it"))));
  EXPECT_THAT(InChild([&] {
                auto other = ResultStore::Open(path, StoreMode::kReadWrite);
                return other.ok() ? "opened" : other.error().message;
              }),
              HasSubstr("writes to it"));
  const std::string link = scratch.File("link.db");
  std::filesystem::create_symlink(path, link);
  const auto linked = ResultStore::Open(link, StoreMode::kCreate);
  ASSERT_FALSE(linked.ok());
  EXPECT_THAT(linked.error().message, AllOf(StartsWith(link), HasSubstr("writes to it")));
  Fill(*first, "r1", 1, 0, 5);
  EXPECT_EQ(Must(MustOpen(link, StoreMode::kReadOnly)->Scores(1)).size(), 5u);
  first.reset();
  EXPECT_EQ(InChild([&] {
              auto other = ResultStore::Open(path, StoreMode::kReadWrite);
              return other.ok() ? "" : other.error().message;
            }),
            "");
  EXPECT_FALSE(FileExists(path + ".lock"));
}

// Somebody's sqlite3 holds the file for a moment: the write waits for it.
TEST(StoreFaults, WaitsForAForeignTransaction) {
  const ScratchDirectory scratch;
  const std::string path = scratch.File("r.db");
  const auto store = MustOpen(path);
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    sqlite3_exec(db, "COMMIT", nullptr, nullptr, nullptr);
  });
  Fill(*store, "r1", 1, 0, 2);
  other.join();
  sqlite3_close(db);
  EXPECT_EQ(Must(store->Scores(1)).size(), 2u);
}

TEST(StoreFaults, ReadOnlyDirectory) {
  const ScratchDirectory scratch;
  const std::string path = scratch.File("r.db");
  Fill(*MustOpen(path), "r1", 1, 0, 5);
  const std::string digest = Must(MustOpen(path, StoreMode::kReadOnly)->ResultDigest());
  ASSERT_EQ(chmod(scratch.path().c_str(), 0555), 0);
  ASSERT_EQ(chmod(path.c_str(), 0444), 0);
  const auto as_user = [&](const std::function<std::string()>& body) {
    return InChild([&]() -> std::string {
      if (geteuid() == 0 && setuid(65534) != 0) return "cannot become another user";
      return body();
    });
  };
  for (const StoreMode mode : {StoreMode::kReadWrite, StoreMode::kCreate}) {
    EXPECT_THAT(as_user([&] {
                  auto store = ResultStore::Open(path, mode);
                  return store.ok() ? "opened" : store.error().message;
                }),
                AllOf(StartsWith(path), HasSubstr("cannot be written")));
  }
  EXPECT_THAT(as_user([&] {
                auto store = ResultStore::Open(scratch.File("new.db"), StoreMode::kCreate);
                return store.ok() ? "opened" : store.error().message;
              }),
              AllOf(HasSubstr("new.db"), HasSubstr("Permission denied")));
  // Reading works, without the neighbour files that SQLite would like to make.
  EXPECT_EQ(as_user([&]() -> std::string {
              auto store = ResultStore::Open(path, StoreMode::kReadOnly);
              return store.ok() ? Must((*store)->ResultDigest()) : store.error().message;
            }),
            digest);
  // A protected file in a directory that takes files.
  ASSERT_EQ(chmod(scratch.path().c_str(), 0777), 0);
  EXPECT_THAT(as_user([&] {
                auto store = ResultStore::Open(path, StoreMode::kReadWrite);
                return store.ok() ? "opened" : store.error().message;
              }),
              AllOf(StartsWith(path), HasSubstr("cannot be written")));
}

// Writes until the disk refuses. Then: a clear error, a usable store, every sample whole.
void WriteUntilRefused(ResultStore& store, int64_t cell, int64_t run, std::string* message,
                       int64_t* written) {
  for (*written = 0; *written < 100000; ++*written) {
    const auto outcome = store.Write(TestSample(cell, run, 0, *written));
    if (outcome.ok()) continue;
    *message = outcome.error().message;
    return;
  }
}

TEST(StoreFaults, FullDisk) {
  const ScratchDirectory scratch;
  if (mount("tmpfs", scratch.path().c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_SKIP() << "a small tmpfs cannot be mounted here";
  }
  const std::string path = scratch.File("r.db");
  int64_t written = 0;
  {
    const auto store = MustOpen(path);
    const int64_t run = Must(store->AddRun(TestRun("r1")));
    const int64_t cell = Must(store->AddCell(TestCell(0)));
    std::string message;
    WriteUntilRefused(*store, cell, run, &message, &written);
    EXPECT_THAT(message, AllOf(StartsWith(path), HasSubstr("full")));
    EXPECT_GT(written, 10);
    EXPECT_EQ(static_cast<int64_t>(Must(store->Scores(cell)).size()), written);
    // Room again: the same object goes on.
    ASSERT_EQ(mount("tmpfs", scratch.path().c_str(), "tmpfs", MS_REMOUNT, "size=8m"), 0);
    for (int64_t i = written; i < written + 10; ++i) {
      EXPECT_EQ(Must(store->Write(TestSample(cell, run, 0, i))), WriteOutcome::kNew);
    }
    MustOk(store->Check());
  }
  const auto store = MustOpen(path, StoreMode::kReadOnly);
  EXPECT_EQ(static_cast<int64_t>(Must(store->Scores(1)).size()), written + 10);
  MustOk(store->Check());
  umount2(scratch.path().c_str(), MNT_DETACH);
}

TEST(StoreFaults, FileSizeLimit) {
  const ScratchDirectory scratch;
  const std::string path = scratch.File("r.db");
  const std::string said = InChild([&]() -> std::string {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {600 << 10, 600 << 10};
    setrlimit(RLIMIT_FSIZE, &limit);
    auto store = ResultStore::Open(path, StoreMode::kCreate);
    if (!store.ok()) return store.error().message;
    const auto run = (*store)->AddRun(TestRun("r1"));
    const auto cell = (*store)->AddCell(TestCell(0));
    std::string message;
    int64_t written = 0;
    WriteUntilRefused(**store, *cell, *run, &message, &written);
    return StrCat(written, " ", message);
  });
  EXPECT_THAT(said, AllOf(HasSubstr(path), HasSubstr("recorded before is safe")));
  const auto store = MustOpen(path);
  EXPECT_EQ(static_cast<int64_t>(Must(store->Scores(1)).size()), std::stoll(said));
  EXPECT_GT(std::stoll(said), 5);
  Fill(*store, "r2", 1, 0, std::stoll(said) + 5);
  MustOk(store->Check());
  const auto whole = MustOpen(scratch.File("whole.db"));
  Fill(*whole, "r1", 1, 0, std::stoll(said) + 5);
  EXPECT_EQ(Must(store->ResultDigest()), Must(whole->ResultDigest()));
}

}  // namespace
}  // namespace kvgauge

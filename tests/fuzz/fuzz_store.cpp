// SPDX-License-Identifier: Apache-2.0
// A file given as a result store is refused with its name, or read to the end without harm, and
// reading never changes it. The same bytes opened for writing: refused unchanged, or usable.
#include <filesystem>
#include <string>

#include "core/check.h"
#include "core/files.h"
#include "core/log.h"
#include "reports/store.h"
#include "support/scratch_directory.h"

namespace kvgauge {
namespace {

// The file of these bytes, alone in the directory.
std::string Put(const ScratchDirectory& scratch, std::string_view bytes) {
  for (const auto& entry : std::filesystem::directory_iterator(scratch.path())) {
    std::filesystem::remove(entry.path());
  }
  const std::string path = scratch.File("r.db");
  KVG_CHECK(WriteFile(path, bytes).ok(), "the scratch directory takes files");
  return path;
}

void CheckNamed(const Error& error) {
  KVG_CHECK(error.message.find("r.db") != std::string::npos, "a message without the file's name");
}

// Reads everything; the first error ends it.
Status ReadAll(ResultStore& store) {
  KVG_TRY(store.Leaderboard());
  KVG_ASSIGN(const std::vector<StoredRun> runs, store.Runs());
  for (const StoredRun& run : runs) KVG_TRY(store.Events(run.id));
  KVG_ASSIGN(const std::vector<StoredCell> cells, store.Cells());
  for (const StoredCell& cell : cells) {
    KVG_TRY(store.Latency(cell.id));
    KVG_ASSIGN(const std::vector<ScoreRow> rows, store.Scores(cell.id));
    for (const ScoreRow& row : rows) KVG_TRY(store.Read(cell.id, row.sample_id));
  }
  KVG_TRY(store.ResultDigest());
  return store.Check();
}

}  // namespace
}  // namespace kvgauge

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using kvgauge::StoreMode;
  kvgauge::SetLogLevel(kvgauge::LogLevel::kError);
  static const kvgauge::ScratchDirectory scratch("/dev/shm");
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  const std::string path = kvgauge::Put(scratch, bytes);
  {
    auto store = kvgauge::ResultStore::Open(path, StoreMode::kReadOnly);
    const kvgauge::Status read =
        store.ok() ? kvgauge::ReadAll(**store) : kvgauge::Status(store.error());
    if (!read.ok()) kvgauge::CheckNamed(read.error());
  }
  auto unchanged = kvgauge::ReadFile(path);
  KVG_CHECK(unchanged.ok() && *unchanged == bytes, "reading changes nothing");

  auto store = kvgauge::ResultStore::Open(kvgauge::Put(scratch, bytes), StoreMode::kReadWrite);
  if (!store.ok()) {
    kvgauge::CheckNamed(store.error());
    return 0;
  }
  const auto run = (*store)->AddRun({.key = "fuzz",
                                     .machine = {"{}"},
                                     .command = "fuzz",
                                     .config = "{}",
                                     .version = "0",
                                     .revision = "0",
                                     .started_at = "0",
                                     .finished_at = ""});
  if (!run.ok()) kvgauge::CheckNamed(run.error());
  return 0;
}

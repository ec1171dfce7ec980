// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <cctype>
#include <filesystem>
#include <fstream>

#include "core/check.h"
#include "core/files.h"
#include "core/strings.h"
#include "src/schema.h"
#include "src/store_impl.h"

namespace kvgauge {
namespace {

constexpr int kBusyTimeoutMs = 5000;
// Workers of one run wait for each other's transactions.
constexpr int kSharedTimeoutMs = 60000;
constexpr int kMaxValueBytes = 256 << 20;

// The file behind links, which is what SQLite names its neighbour files after.
std::string RealPath(const std::string& path) {
  std::error_code failed;
  const std::filesystem::path real = std::filesystem::weakly_canonical(path, failed);
  return failed ? path : real.string();
}

std::string FileUri(const std::string& path, std::string_view query) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string uri = "file:";
  for (const unsigned char c : path) {
    if (std::isalnum(c) || c == '/' || c == '.' || c == '-' || c == '_') {
      uri.push_back(static_cast<char>(c));
    } else {
      uri.append({'%', kHex[c >> 4], kHex[c & 15]});
    }
  }
  return uri.append(query);
}

// Reading needs SQLite's neighbour files, which a read-only directory cannot take. Without a log
// beside it the file is complete, and nobody can be writing.
bool ReadAsImmutable(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  const auto log_bytes = std::filesystem::file_size(path + "-wal", ignored);
  return access(parent.c_str(), W_OK) != 0 && (ignored || log_bytes == 0);
}

// SQLite takes a file of a few bytes for an empty database and writes over it.
Status CheckFileHeader(const std::string& path) {
  static constexpr std::string_view kMagic("SQLite format 3\0", 16);
  std::string head(kMagic.size(), ' ');
  std::ifstream file(path, std::ios::binary);
  if (!file) return {};
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(file.gcount()));
  if (head.empty() || head == kMagic) return {};
  return BadInput(StrCat(path, ": is not a result store: begins with ", Quoted(head),
                         ", expected an SQLite file; nothing was changed"));
}

Status Configure(Database& db) {
  sqlite3_busy_timeout(db.get(), kBusyTimeoutMs);
  sqlite3_limit(db.get(), SQLITE_LIMIT_LENGTH, kMaxValueBytes);
  // Files come from others: nothing stored in one may run as code or reach past its pages.
  sqlite3_db_config(db.get(), SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db.get(), SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  return db.Exec("PRAGMA cell_size_check = ON; PRAGMA foreign_keys = ON");
}

Status QuickCheck(Database& db, const char* pragma) {
  KVG_ASSIGN(const std::string found, db.QueryText(pragma));
  if (found == "ok") return {};
  return BadInput(StrCat(db.name(), ": is damaged: ", found,
                         "; nothing was changed. Copy it, then save what can be read with "
                         "`sqlite3 COPY .recover | sqlite3 NEW`"));
}

// The schema version; 0 for a database without anything in it.
Result<int64_t> IdentifyVersion(Database& db) {
  KVG_ASSIGN(const int64_t objects, db.QueryInt("SELECT count(*) FROM sqlite_schema"));
  KVG_ASSIGN(const int64_t application, db.QueryInt("PRAGMA application_id"));
  KVG_ASSIGN(const int64_t version, db.QueryInt("PRAGMA user_version"));
  if (objects == 0 && application == 0 && version == 0) return 0;
  if (application != kApplicationId) {
    return BadInput(StrCat(db.name(), ": is a database of another program (application id ",
                           application, "), expected a result store (", kApplicationId, ")"));
  }
  if (version > kSchemaVersion) {
    return Unsupported(StrCat(db.name(), ": has schema version ", version,
                              ", this program knows versions up to ", kSchemaVersion,
                              "; use a newer kvgauge. Nothing was changed"));
  }
  if (version < 1) {
    return BadInput(
        StrCat(db.name(), ": has schema version ", version, ", expected 1 to ", kSchemaVersion));
  }
  return version;
}

// A temporary database, on disk when it is large, that goes with the connection.
Result<Database> TemporaryCopy(Database& source) {
  KVG_ASSIGN(Database copy,
             Database::Open("", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, source.name()));
  KVG_TRY(Configure(copy));
  sqlite3_backup* backup = sqlite3_backup_init(copy.get(), "main", source.get(), "main");
  if (!backup) return copy.Failure(sqlite3_errcode(copy.get()));
  sqlite3_backup_step(backup, -1);
  const int code = sqlite3_backup_finish(backup);
  if (code != SQLITE_OK) return copy.Failure(code);
  return copy;
}

}  // namespace

ResultStore::ResultStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ResultStore::~ResultStore() = default;
const std::string& ResultStore::path() const { return impl_->path; }

Result<std::unique_ptr<ResultStore>> ResultStore::Open(const std::string& path, StoreMode mode) {
  if (DirectoryExists(path)) {
    return BadInput(StrCat(path, ": is a directory, expected a file"));
  }
  if (mode != StoreMode::kCreate && !FileExists(path)) {
    return BadInput(
        StrCat(path, ": no such file, expected a result store that `kvgauge run` made"));
  }
  const std::string real = RealPath(path);
  KVG_TRY(CheckFileHeader(path));
  std::unique_ptr<WriterLock> lock;
  int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_URI;
  std::string_view query;
  if (mode == StoreMode::kReadOnly) {
    if (ReadAsImmutable(real)) query = "?immutable=1";
  } else if (mode == StoreMode::kShared) {
    flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_URI;
  } else {
    KVG_ASSIGN(lock, WriterLock::Take(path, real));
    flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_URI |
            (mode == StoreMode::kCreate ? SQLITE_OPEN_CREATE : 0);
  }
  KVG_ASSIGN(Database db, Database::Open(FileUri(real, query), flags, path));
  KVG_TRY(Configure(db));
  const bool writes = mode != StoreMode::kReadOnly;
  if (writes && sqlite3_db_readonly(db.get(), "main") != 0) {
    return IoError(StrCat(path, ": cannot be written, expected a file with write permission"));
  }
  KVG_ASSIGN(const int64_t version, IdentifyVersion(db));
  if (version == 0 && mode != StoreMode::kCreate) {
    return BadInput(StrCat(path, ": is empty, expected a result store that `kvgauge run` made"));
  }
  if (lock) {
    if (version > 0) KVG_TRY(QuickCheck(db, "PRAGMA quick_check(1)"));
    // Where the file system cannot keep a log, SQLite keeps a journal, which is as safe.
    KVG_TRY(db.QueryText("PRAGMA journal_mode = WAL"));
    KVG_TRY(db.Exec("PRAGMA synchronous = NORMAL"));
    if (version < kSchemaVersion) KVG_TRY(Migrate(db, version));
  } else if (writes) {
    sqlite3_busy_timeout(db.get(), kSharedTimeoutMs);
    KVG_TRY(db.Exec("PRAGMA synchronous = NORMAL"));
    KVG_CHECK(version == kSchemaVersion, "who leads the run has upgraded the file");
  } else if (version < kSchemaVersion) {
    KVG_ASSIGN(db, TemporaryCopy(db));
    KVG_TRY(Migrate(db, version));
  }
  KVG_TRY(CheckTables(db));
  return std::unique_ptr<ResultStore>(
      new ResultStore(std::make_unique<Impl>(path, std::move(lock), std::move(db), writes)));
}

Status ResultStore::Check() {
  KVG_TRY(QuickCheck(impl_->db, "PRAGMA integrity_check(1)"));
  KVG_ASSIGN(Statement statement, impl_->db.Prepare("PRAGMA foreign_key_check"));
  KVG_ASSIGN(const bool row, statement.Step());
  if (!row) return {};
  return BadInput(StrCat(path(), ": is damaged: row ", statement.Int(1), " of table ",
                         statement.Text(0), " refers to a missing row of ", statement.Text(2)));
}

Status ResultStore::Impl::Writable() const {
  if (writes) return {};
  return IoError(StrCat(path, ": was opened for reading only"));
}

Result<ResultStore::Impl::Borrowed> ResultStore::Impl::Cached(const char* sql) {
  auto found = statements.find(sql);
  if (found == statements.end()) {
    KVG_ASSIGN(Statement statement, db.Prepare(sql));
    found = statements.emplace(sql, std::move(statement)).first;
  }
  return Borrowed(&found->second);
}

}  // namespace kvgauge

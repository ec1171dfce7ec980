// SPDX-License-Identifier: Apache-2.0
#include "src/sqlite.h"

#include <utility>

#include "core/check.h"
#include "core/strings.h"

namespace kvgauge {

Result<Database> Database::Open(const std::string& uri, int flags, std::string name) {
  // The program never asks SQLite how much memory it has, and counting takes a lock an allocation.
  // SQLite refuses this, which does no harm, once a connection is open.
  static const int counted = sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
  static_cast<void>(counted);
  Database database;
  database.name_ = std::move(name);
  sqlite3* handle = nullptr;
  // A connection is for one thread at a time: SQLite's own locks would cost a tenth of all reading.
  const int code = sqlite3_open_v2(uri.c_str(), &handle,
                                   flags | SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_NOMUTEX, nullptr);
  database.handle_.reset(handle);
  if (code != SQLITE_OK) return database.Failure(code);
  return database;
}

Error Database::Failure(int code) const {
  const char* text = handle_ ? sqlite3_errmsg(handle_.get()) : sqlite3_errstr(code);
  const auto say = [&](const auto&... parts) {
    return StrCat(name_, ": ", parts..., " (SQLite: ", text, ")");
  };
  switch (code & 0xff) {
    case SQLITE_NOTADB:
      return BadInput(say("is not a result store, expected a file that `kvgauge run` made"));
    case SQLITE_CORRUPT:
      return BadInput(
          say("is damaged; nothing was changed. Copy it, then save what can be read with "
              "`sqlite3 COPY .recover | sqlite3 NEW`"));
    case SQLITE_FULL:
      return ResourceError(
          say("the disk is full; everything recorded before is safe. Free some space and run the "
              "same command again"));
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return IoError(say("another program holds it; wait until that has finished"));
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return IoError(say("cannot be written, expected a file and directory with write permission"));
    case SQLITE_CANTOPEN:
      return IoError(
          say("cannot be opened, expected a readable file in a directory where SQLite "
              "may keep its -wal and -shm files"));
    case SQLITE_NOMEM:
      return ResourceError(say("out of memory"));
    case SQLITE_TOOBIG:
      return BadInput(say("a value is too long"));
    case SQLITE_CONSTRAINT:
      return BadInput(say("a row breaks a rule of the schema"));
    case SQLITE_IOERR:
      return IoError(
          say("cannot be read or written: a full disk, a file size limit or a failing device; "
              "everything recorded before is safe"));
    default:
      return IoError(say("failed"));
  }
}

Status Database::Exec(const char* sql) {
  const int code = sqlite3_exec(get(), sql, nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return Failure(code);
  return {};
}

Result<Statement> Database::Prepare(std::string_view sql) {
  sqlite3_stmt* handle = nullptr;
  const int code =
      sqlite3_prepare_v3(get(), sql.data(), static_cast<int>(sql.size()), 0, &handle, nullptr);
  if (code != SQLITE_OK) return Failure(code);
  return Statement(this, handle);
}

Result<int64_t> Database::QueryInt(std::string_view sql) {
  KVG_ASSIGN(Statement statement, Prepare(sql));
  KVG_ASSIGN(const bool row, statement.Step());
  return row ? statement.Int(0) : 0;
}

Result<std::string> Database::QueryText(std::string_view sql) {
  KVG_ASSIGN(Statement statement, Prepare(sql));
  KVG_ASSIGN(const bool row, statement.Step());
  return row ? statement.Text(0) : "";
}

Result<bool> Statement::Step() {
  rewound_ = false;
  const int code = sqlite3_step(get());
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return database_->Failure(code);
}

Status Statement::Run() {
  while (true) {
    KVG_ASSIGN(const bool row, Step());
    if (!row) return {};
  }
}

void Statement::Reset() {
  if (rewound_) return;
  rewound_ = true;
  sqlite3_reset(get());
  sqlite3_clear_bindings(get());
}

void Statement::BindOne(int index, std::string_view value) {
  // A null pointer would bind NULL, not the empty text.
  const char* data = value.empty() ? "" : value.data();
  const int code =
      sqlite3_bind_text64(get(), index, data, value.size(), SQLITE_STATIC, SQLITE_UTF8);
  KVG_CHECK(code == SQLITE_OK || code == SQLITE_TOOBIG, "a parameter that the statement has");
}

void Statement::BindOne(int index, const Blob& value) {
  const char* data = value.bytes.empty() ? "" : value.bytes.data();
  const int code = sqlite3_bind_blob64(get(), index, data, value.bytes.size(), SQLITE_STATIC);
  KVG_CHECK(code == SQLITE_OK || code == SQLITE_TOOBIG, "a parameter that the statement has");
}

void Statement::BindOne(int index, int64_t value) {
  KVG_CHECK(sqlite3_bind_int64(get(), index, value) == SQLITE_OK, "the statement's parameter");
}

void Statement::BindOne(int index, double value) {
  KVG_CHECK(sqlite3_bind_double(get(), index, value) == SQLITE_OK, "the statement's parameter");
}

bool Statement::IsNull(int column) const {
  return sqlite3_column_type(get(), column) == SQLITE_NULL;
}
int64_t Statement::Int(int column) const { return sqlite3_column_int64(get(), column); }
double Statement::Real(int column) const { return sqlite3_column_double(get(), column); }

std::string_view Statement::View(int column) const {
  const void* text = sqlite3_column_type(get(), column) == SQLITE_BLOB
                         ? sqlite3_column_blob(get(), column)
                         : sqlite3_column_text(get(), column);
  const int size = sqlite3_column_bytes(get(), column);
  if (!text) return "";
  return {static_cast<const char*>(text), static_cast<size_t>(size)};
}

std::string Statement::Text(int column) const { return std::string(View(column)); }

std::optional<int64_t> Statement::MaybeInt(int column) const {
  if (IsNull(column)) return std::nullopt;
  return Int(column);
}

std::optional<double> Statement::MaybeReal(int column) const {
  if (IsNull(column)) return std::nullopt;
  return Real(column);
}

Result<Transaction> Transaction::Begin(Database& database) {
  // Immediate: two writers meet here, not halfway through.
  KVG_TRY(database.Exec("BEGIN IMMEDIATE"));
  return Transaction(database);
}

Transaction::Transaction(Transaction&& other) noexcept
    : database_(std::exchange(other.database_, nullptr)) {}

Transaction::~Transaction() {
  // A failed commit may have rolled back by itself.
  if (database_ && sqlite3_get_autocommit(database_->get()) == 0) {
    sqlite3_exec(database_->get(), "ROLLBACK", nullptr, nullptr, nullptr);
  }
}

Status Transaction::Commit() {
  KVG_TRY(database_->Exec("COMMIT"));
  database_ = nullptr;
  return {};
}

}  // namespace kvgauge

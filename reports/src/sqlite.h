// SPDX-License-Identifier: Apache-2.0
// SQLite with our errors: every failure is an Error that begins with the file's name.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace kvgauge {

class Statement;

// A connection. Not thread-safe.
class Database {
 public:
  // `name` is what messages call the file; `uri` is opened, with SQLite's flags.
  static Result<Database> Open(const std::string& uri, int flags, std::string name);

  Status Exec(const char* sql);
  Result<Statement> Prepare(std::string_view sql);
  // The first column of the first row.
  Result<int64_t> QueryInt(std::string_view sql);
  Result<std::string> QueryText(std::string_view sql);

  // The connection's last failure, for a result code of SQLite.
  Error Failure(int code) const;
  sqlite3* get() const { return handle_.get(); }
  const std::string& name() const { return name_; }

 private:
  struct Close {
    void operator()(sqlite3* handle) const { sqlite3_close_v2(handle); }
  };
  std::unique_ptr<sqlite3, Close> handle_;
  std::string name_;
};

// A parameter that is no text.
struct Blob {
  std::string_view bytes;
};

// A prepared statement; `database` outlives it.
class Statement {
 public:
  // Rewinds and binds all parameters, in order.
  template <class... Args>
  void Bind(const Args&... args) {
    Reset();
    rewound_ = false;
    int index = 0;
    (BindOne(++index, args), ...);
  }
  // For a statement that was rewound: binds the parameters of row `row` of several alike.
  template <class... Args>
  void BindRow(int row, const Args&... args) {
    rewound_ = false;
    int index = row * static_cast<int>(sizeof...(args));
    (BindOne(++index, args), ...);
  }
  // One parameter more, counted from 1, of a statement that Bind began.
  template <class T>
  void BindAt(int index, const T& value) {
    BindOne(index, value);
  }
  // True when there is a row, false at the end.
  Result<bool> Step();
  // Steps to the end.
  Status Run();
  void Reset();

  bool IsNull(int column) const;
  int64_t Int(int column) const;
  double Real(int column) const;
  std::string Text(int column) const;       // or the bytes of a blob
  std::string_view View(int column) const;  // until the next step
  std::optional<int64_t> MaybeInt(int column) const;
  std::optional<double> MaybeReal(int column) const;
  sqlite3_stmt* get() const { return handle_.get(); }

 private:
  friend class Database;
  Statement(const Database* database, sqlite3_stmt* handle)
      : database_(database), handle_(handle) {}

  // Texts must live until the statement is stepped or bound again.
  void BindOne(int index, std::string_view value);
  void BindOne(int index, const std::string& value) { BindOne(index, std::string_view(value)); }
  void BindOne(int index, const Blob& value);
  void BindOne(int index, const char* value) { BindOne(index, std::string_view(value)); }
  void BindOne(int index, int64_t value);
  void BindOne(int index, bool value) { BindOne(index, int64_t{value}); }
  void BindOne(int index, double value);
  template <class T>
  void BindOne(int index, const std::optional<T>& value) {
    if (value) BindOne(index, *value);  // a rewound statement holds nulls
  }

  struct Finalize {
    void operator()(sqlite3_stmt* handle) const { sqlite3_finalize(handle); }
  };
  const Database* database_;
  std::unique_ptr<sqlite3_stmt, Finalize> handle_;
  bool rewound_ = true;  // and nothing bound
};

// Rolls back unless committed.
class Transaction {
 public:
  static Result<Transaction> Begin(Database& database);
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  Status Commit();

 private:
  explicit Transaction(Database& database) : database_(&database) {}
  Database* database_;
};

}  // namespace kvgauge

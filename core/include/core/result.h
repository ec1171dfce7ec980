// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value, or an Error that a user can act on.
//
// For faults of the world or the user (files, configs, arguments). The message names the file, the
// key, the value, and what would be right. Faults of the programmer are KVG_CHECK (core/check.h).
// Libraries never print or exit; the command line turns an Error into text and an exit code.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace kvgauge {

enum class ErrorCode {
  kBadInput,     // a file, flag or value is wrong or missing: exit code 2
  kIo,           // the system refused: disk full, permission, network
  kUnsupported,  // well-formed, but this build or model cannot do it
  kResource,     // does not fit: memory, disk
};

struct Error {
  ErrorCode code = ErrorCode::kBadInput;
  std::string message;

  // The same error with "context: " put before the message.
  Error Wrap(std::string_view context) const;
};

inline Error BadInput(std::string message) { return {ErrorCode::kBadInput, std::move(message)}; }
inline Error IoError(std::string message) { return {ErrorCode::kIo, std::move(message)}; }
inline Error Unsupported(std::string message) {
  return {ErrorCode::kUnsupported, std::move(message)};
}
inline Error ResourceError(std::string message) {
  return {ErrorCode::kResource, std::move(message)};
}

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  // Precondition: ok().
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  // Precondition: !ok().
  const Error& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

// Success, or an Error.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : failed_(true), error_(std::move(error)) {}

  bool ok() const { return !failed_; }
  const Error& error() const { return error_; }

 private:
  bool failed_ = false;
  Error error_;
};

}  // namespace kvgauge

#define KVG_CONCAT_INNER_(a, b) a##b
#define KVG_CONCAT_(a, b) KVG_CONCAT_INNER_(a, b)

// Returns the error of `expr` (a Status or Result) from the enclosing function.
#define KVG_TRY(expr)                                  \
  do {                                                 \
    auto kvg_status_ = (expr);                         \
    if (!kvg_status_.ok()) return kvg_status_.error(); \
  } while (0)

// KVG_ASSIGN(auto x, Compute()): declares or assigns x, or returns the error.
#define KVG_ASSIGN(lhs, expr) KVG_ASSIGN_IMPL_(KVG_CONCAT_(kvg_result_, __LINE__), lhs, expr)
#define KVG_ASSIGN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                     \
  if (!tmp.ok()) return tmp.error();     \
  lhs = std::move(tmp).value()

// SPDX-License-Identifier: Apache-2.0
// Numbers as little-endian bytes, and back from bytes that may come from anywhere.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/strings.h"

namespace kvgauge {

template <class T>
void PutBytes(std::string& out, std::span<const T> numbers) {
  out.append(reinterpret_cast<const char*>(numbers.data()), numbers.size_bytes());
}
inline void PutNumber(std::string& out, int64_t number) {
  PutBytes(out, std::span<const int64_t>(&number, 1));
}
template <class T>
void PutArray(std::string& out, const std::vector<T>& numbers) {
  PutNumber(out, std::ssize(numbers));
  PutBytes(out, std::span<const T>(numbers));
}

template <class T>
Status TakeBytes(std::string_view& in, std::span<T> numbers) {
  if (in.size() < numbers.size_bytes()) {
    return BadInput(StrCat("cache bytes end early: ", numbers.size_bytes(), " were due, ",
                           in.size(), " are left"));
  }
  if (!numbers.empty()) std::memcpy(numbers.data(), in.data(), numbers.size_bytes());
  in.remove_prefix(numbers.size_bytes());
  return {};
}
inline Status TakeNumber(std::string_view& in, int64_t* number) {
  return TakeBytes(in, std::span<int64_t>(number, 1));
}
// One of [least, most]; `what` names it in messages.
inline Status TakeNumber(std::string_view& in, const char* what, int64_t least, int64_t most,
                         int64_t* number) {
  KVG_TRY(TakeNumber(in, number));
  if (*number >= least && *number <= most) return {};
  return BadInput(
      StrCat("cache bytes: ", what, " is ", *number, "; expected ", least, " .. ", most));
}
template <class Enum>
Status TakeEnum(std::string_view& in, const char* what, Enum most, Enum* value) {
  int64_t number = 0;
  KVG_TRY(TakeNumber(in, what, 0, static_cast<int64_t>(most), &number));
  *value = static_cast<Enum>(number);
  return {};
}
inline Status TakeFlag(std::string_view& in, const char* what, bool* flag) {
  int64_t number = 0;
  KVG_TRY(TakeNumber(in, what, 0, 1, &number));
  *flag = number != 0;
  return {};
}
// `count` things of `size_bytes` each must still follow.
inline Status CheckLeft(std::string_view in, int64_t count, int64_t size_bytes) {
  if (count >= 0 && count <= std::ssize(in) / size_bytes) return {};
  return BadInput(StrCat("cache bytes claim ", count, " of ", size_bytes, " bytes each, ",
                         in.size(), " are left"));
}
template <class T>
Status TakeArray(std::string_view& in, std::vector<T>* numbers) {
  int64_t count = 0;
  KVG_TRY(TakeNumber(in, &count));
  KVG_TRY(CheckLeft(in, count, sizeof(T)));
  numbers->resize(static_cast<size_t>(count));
  return TakeBytes(in, std::span<T>(*numbers));
}

}  // namespace kvgauge

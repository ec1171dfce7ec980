// SPDX-License-Identifier: Apache-2.0
// Thrift's compact protocol, read only, over bytes that nobody has checked. A fault is remembered:
// from then on every read gives zeros and every struct ends, so callers ask ok() once, at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kvgauge::parquet {

// The types of fields. A boolean field has its value in its type.
enum class Wire : uint8_t {
  kStop = 0,
  kTrue = 1,
  kFalse = 2,
  kByte = 3,
  kI16 = 4,
  kI32 = 5,
  kI64 = 6,
  kDouble = 7,
  kBinary = 8,
  kList = 9,
  kSet = 10,
  kMap = 11,
  kStruct = 12,
};

class CompactReader {
 public:
  struct Field {
    int32_t id = 0;
    Wire wire = Wire::kStop;
  };
  struct List {
    int64_t size = 0;
    Wire wire = Wire::kStop;
  };

  explicit CompactReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  // The next field of a struct whose last one was `field` (a fresh Field before the first); false
  // at the struct's end. What is not read must be skipped.
  bool Next(Field* field);

  // Values of a field or of a list's element. Another wire type than wanted is a fault.
  bool Bool(Wire wire);
  int64_t Int(Wire wire);  // of any width
  std::string_view Binary(Wire wire);
  // The elements follow one by one. A list that cannot fit into the bytes left is a fault.
  List ListHead(Wire wire);
  // Begins a struct: its fields follow.
  void Struct(Wire wire);
  void Skip(Wire wire);

  bool ok() const { return !failed_; }
  // The bytes ended too early: more of them may help.
  bool cut() const { return cut_; }
  size_t at() const { return at_; }

 private:
  void Fail() { failed_ = true; }
  uint8_t Byte();
  uint64_t Varint();
  void SkipDeep(Wire wire, int32_t depth);

  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
  bool failed_ = false, cut_ = false;
};

}  // namespace kvgauge::parquet

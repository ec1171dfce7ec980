// SPDX-License-Identifier: Apache-2.0
// The header of a GGUF file, apart from files: what the loader, its tests and its fuzz target
// share.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "src/checkpoint/gguf/blocks.h"

namespace kvgauge {

// One value of the metadata, or an array of values of one scalar type: a view of the file's bytes,
// all of them checked to be there.
class GgufValue {
 public:
  enum class Type : uint32_t {
    kU8 = 0,
    kI8 = 1,
    kU16 = 2,
    kI16 = 3,
    kU32 = 4,
    kI32 = 5,
    kF32 = 6,
    kBool = 7,
    kString = 8,
    kArray = 9,
    kU64 = 10,
    kI64 = 11,
    kF64 = 12,
  };

  GgufValue() = default;
  // `bytes`: of all elements, one after the other.
  GgufValue(Type type, bool array, uint64_t count, std::span<const uint8_t> bytes)
      : type_(type), array_(array), count_(count), bytes_(bytes) {}

  bool is_array() const { return array_; }
  Type type() const { return type_; }  // of an array: that of its elements
  uint64_t count() const { return count_; }
  std::span<const uint8_t> bytes() const { return bytes_; }

  // Nothing where the value is of another kind. Unsigned numbers past INT64_MAX are of another
  // kind.
  std::optional<int64_t> Int() const;
  std::optional<double> Real() const;  // a float, or an integer
  std::optional<bool> Bool() const;
  std::optional<std::string_view> Text() const;
  std::optional<std::vector<std::string_view>> Texts() const;
  std::optional<std::vector<int64_t>> Ints() const;
  std::optional<std::vector<double>> Reals() const;
  std::optional<std::vector<bool>> Bools() const;

 private:
  std::optional<int64_t> IntAt(uint64_t index) const;
  std::optional<double> RealAt(uint64_t index) const;

  Type type_ = Type::kU8;
  bool array_ = false;
  uint64_t count_ = 0;
  std::span<const uint8_t> bytes_;
};

struct GgufTensor {
  std::string name;
  const BlockType* type = nullptr;
  std::vector<int64_t> shape;  // rows first, as elsewhere; the file has them the other way round
  // Bytes [begin, end) of the whole file.
  uint64_t begin = 0;
  uint64_t end = 0;
  size_t part = 0;  // which file has it, where several hold a model
};

struct GgufHeader {
  std::map<std::string, GgufValue, std::less<>> metadata;
  std::vector<GgufTensor> tensors;  // sorted by name

  // Null when there is no such key.
  const GgufValue* Find(std::string_view key) const;
};

// Reads the header of a whole file (version 2 or 3, little-endian) and checks every claim in it
// against the size of the file before anything is allocated for it: on success names and keys
// differ, all tensors lie in `file`, aligned and without overlap, and have exactly the bytes that
// type and shape need. The values view `file`. `origin` begins every message.
Result<GgufHeader> ParseGgufHeader(std::span<const uint8_t> file, std::string_view origin);

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/quantized/stored.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "core/dtype.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

// A float of one byte: a sign, `kExponent` bits, and the rest of the mantissa.
template <int kExponent, int kMantissa>
float SmallFloat(uint8_t bits, int bias) {
  const int exponent = bits >> kMantissa & ((1 << kExponent) - 1);
  const int mantissa = bits & ((1 << kMantissa) - 1);
  const int whole = exponent == 0 ? mantissa : mantissa | 1 << kMantissa;
  const float value =
      std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - bias - kMantissa);
  return (bits & 0x80) != 0 ? -value : value;
}

// No infinity, one NaN of each sign.
float E4M3(uint8_t bits) {
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  return SmallFloat<4, 3>(bits, 7);
}

float E5M2(uint8_t bits) {
  const bool special = (bits & 0x7c) == 0x7c;
  if (!special) return SmallFloat<5, 2>(bits, 15);
  if ((bits & 3) != 0) return std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  return (bits & 0x80) != 0 ? -infinity : infinity;
}

// A power of two alone.
float E8M0(uint8_t bits) {
  if (bits == 0xff) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0f, bits - 127);
}

using ByteTable = std::array<float, 256>;

ByteTable TableOf(float (*read)(uint8_t)) {
  ByteTable table;
  for (size_t i = 0; i < table.size(); ++i) table[i] = read(static_cast<uint8_t>(i));
  return table;
}

const ByteTable kE4M3Table = TableOf(E4M3), kE5M2Table = TableOf(E5M2), kE8M0Table = TableOf(E8M0);
const ByteTable kI8Table =
    TableOf([](uint8_t bits) { return static_cast<float>(static_cast<int8_t>(bits)); });
const ByteTable kU8Table = TableOf([](uint8_t bits) { return static_cast<float>(bits); });

struct ByteType {
  std::string_view name;
  const ByteTable* numbers;
};
constexpr auto kByteTypes = std::to_array<ByteType>({
    {"F8_E4M3", &kE4M3Table},
    {"F8_E5M2", &kE5M2Table},
    {"F8_E8M0", &kE8M0Table},
    {"I8", &kI8Table},
    {"U8", &kU8Table},
});

template <class T>
T Unaligned(const uint8_t* bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

struct StoredType {
  std::string_view name;
  ReadNumber read;
};
constexpr auto kStoredTypes = std::to_array<StoredType>({
    {"F32", [](const uint8_t* b, int64_t i) { return Unaligned<float>(b, i); }},
    {"F16", [](const uint8_t* b, int64_t i) { return F16ToF32(Unaligned<uint16_t>(b, i)); }},
    {"BF16", [](const uint8_t* b, int64_t i) { return Bf16ToF32(Unaligned<uint16_t>(b, i)); }},
    {"F8_E4M3", [](const uint8_t* b, int64_t i) { return kE4M3Table[b[i]]; }},
    {"F8_E5M2", [](const uint8_t* b, int64_t i) { return kE5M2Table[b[i]]; }},
    {"F8_E8M0", [](const uint8_t* b, int64_t i) { return kE8M0Table[b[i]]; }},
    {"I8", [](const uint8_t* b, int64_t i) { return kI8Table[b[i]]; }},
    {"U8", [](const uint8_t* b, int64_t i) { return kU8Table[b[i]]; }},
});

}  // namespace

ReadNumber NumberReader(std::string_view type) {
  for (const StoredType& known : kStoredTypes) {
    if (known.name == type) return known.read;
  }
  return nullptr;
}

const float* ByteNumbers(std::string_view type) {
  for (const ByteType& known : kByteTypes) {
    if (known.name == type) return known.numbers->data();
  }
  return nullptr;
}

std::string ShapeOfStored(std::span<const int64_t> shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += StrCat(i == 0 ? "" : ", ", shape[i]);
  return out + "]";
}

Result<RawTensor> StoredOf(const WeightSource& source, const std::string& name,
                           const std::vector<std::string_view>& types) {
  KVG_ASSIGN(RawTensor stored, source.GetStored(name));
  if (types.empty() || std::ranges::find(types, stored.type) != types.end()) return stored;
  const std::vector<std::string> wanted(types.begin(), types.end());
  return BadInput(StrCat(source.OriginOf(name), ": tensor ", Quoted(name, 120), " has dtype ",
                         stored.type, ", expected ", Join(wanted, " or ")));
}

Result<RawTensor> StoredOf(const WeightSource& source, const std::string& name,
                           const std::vector<std::string_view>& types,
                           const std::vector<std::vector<int64_t>>& shapes,
                           std::string_view because) {
  KVG_ASSIGN(RawTensor stored, StoredOf(source, name, types));
  if (std::ranges::find(shapes, stored.shape) != shapes.end()) return stored;
  std::vector<std::string> wanted;
  for (const std::vector<int64_t>& shape : shapes) wanted.push_back(ShapeOfStored(shape));
  return BadInput(StrCat(source.OriginOf(name), ": tensor ", Quoted(name, 120), " has shape ",
                         ShapeOfStored(stored.shape), ", expected ", Join(wanted, " or "), " for ",
                         because));
}

Result<std::vector<float>> FiniteNumbers(const WeightSource& source, const std::string& name) {
  KVG_ASSIGN(const RawTensor stored, source.GetStored(name));
  const ReadNumber read = NumberReader(stored.type);
  if (read == nullptr) {
    return BadInput(StrCat(source.OriginOf(name), ": tensor ", Quoted(name, 120), " has dtype ",
                           stored.type, ", expected a float"));
  }
  int64_t count = 1;
  for (const int64_t size : stored.shape) count *= size;
  std::vector<float> numbers(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const float number = numbers[static_cast<size_t>(i)] = read(stored.bytes.data(), i);
    if (std::isfinite(number)) continue;
    return BadInput(StrCat(source.OriginOf(name), ": tensor ", Quoted(name, 120),
                           " holds NaN or infinity at element ", i, "; scales must be finite"));
  }
  return numbers;
}

Result<std::vector<int64_t>> IntegersWithin(const WeightSource& source, const std::string& name,
                                            int64_t least, int64_t most) {
  KVG_ASSIGN(const RawTensor stored, StoredOf(source, name, {"I32", "I64"}));
  const int64_t width = stored.type == "I64" ? 8 : 4;
  const auto count = static_cast<int64_t>(stored.bytes.size()) / width;
  std::vector<int64_t> numbers(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t number = width == 8 ? Unaligned<int64_t>(stored.bytes.data(), i)
                                      : Unaligned<int32_t>(stored.bytes.data(), i);
    if (number < least || number > most) {
      return BadInput(StrCat(source.OriginOf(name), ": tensor ", Quoted(name, 120), " holds ",
                             number, " at element ", i, ", expected ", least, " to ", most));
    }
    numbers[static_cast<size_t>(i)] = number;
  }
  return numbers;
}

}  // namespace kvgauge

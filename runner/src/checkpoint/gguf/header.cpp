// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/gguf/header.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/strings.h"

namespace kvgauge {
namespace {

using Type = GgufValue::Type;

// Bounds that no published file comes near.
constexpr uint64_t kMostKeyBytes = 65535;
constexpr uint64_t kMostNameBytes = 256;
constexpr uint32_t kMostDims = 4;
constexpr uint64_t kMostAlignment = 1 << 20;
// What one entry takes at least: a length of 8, a type of 4 and a byte; of a tensor also a size and
// an offset.
constexpr uint64_t kLeastKeyBytes = 8 + 4 + 1;
constexpr uint64_t kLeastTensorBytes = 8 + 4 + 8 + 4 + 8;
constexpr uint64_t kDefaultAlignment = 32;

// 0: not a scalar of fixed width.
uint64_t WidthOf(Type type) {
  switch (type) {
    case Type::kU8:
    case Type::kI8:
    case Type::kBool:
      return 1;
    case Type::kU16:
    case Type::kI16:
      return 2;
    case Type::kU32:
    case Type::kI32:
    case Type::kF32:
      return 4;
    case Type::kU64:
    case Type::kI64:
    case Type::kF64:
      return 8;
    case Type::kString:
    case Type::kArray:
      break;
  }
  return 0;
}

uint64_t LittleEndian(std::span<const uint8_t> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes.size(); ++i) value |= uint64_t{bytes[i]} << (8 * i);
  return value;
}

// Bytes of a file from front to back. Nothing is taken that is not there.
class Cursor {
 public:
  explicit Cursor(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  uint64_t at() const { return at_; }
  uint64_t left() const { return bytes_.size() - at_; }

  bool Take(uint64_t count, std::span<const uint8_t>& out) {
    if (count > left()) return false;
    out = bytes_.subspan(at_, count);
    at_ += count;
    return true;
  }
  bool Number(uint64_t width, uint64_t& value) {
    std::span<const uint8_t> bytes;
    if (!Take(width, bytes)) return false;
    value = LittleEndian(bytes);
    return true;
  }
  bool Text(std::string_view& text) {
    uint64_t length = 0;
    std::span<const uint8_t> bytes;
    if (!Number(8, length) || !Take(length, bytes)) return false;
    text = {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
    return true;
  }

 private:
  std::span<const uint8_t> bytes_;
  uint64_t at_ = 0;
};

Error CutOff(std::string_view where) {
  return BadInput(StrCat(where, " reaches beyond the end of the file; the file is cut off"));
}

Result<Type> ReadType(Cursor& cursor, const std::string& where) {
  uint64_t number = 0;
  if (!cursor.Number(4, number)) return CutOff(where);
  if (number > static_cast<uint64_t>(Type::kF64)) {
    return BadInput(StrCat(where, ": unknown type ", number, " of a value, expected 0 to 12"));
  }
  return static_cast<Type>(number);
}

// So many values of `type`, the cursor at the first.
Result<GgufValue> ReadElements(Cursor& cursor, std::span<const uint8_t> file, Type type, bool array,
                               uint64_t count, const std::string& where) {
  const uint64_t begin = cursor.at();
  if (type == Type::kString) {
    for (uint64_t i = 0; i < count; ++i) {
      std::string_view text;
      if (!cursor.Text(text)) return CutOff(where);
    }
  } else {
    uint64_t bytes = 0;
    std::span<const uint8_t> ignored;
    if (__builtin_mul_overflow(count, WidthOf(type), &bytes) || !cursor.Take(bytes, ignored)) {
      return CutOff(where);
    }
  }
  return GgufValue(type, array, count, file.subspan(begin, cursor.at() - begin));
}

Result<GgufValue> ReadValue(Cursor& cursor, std::span<const uint8_t> file,
                            const std::string& where) {
  KVG_ASSIGN(Type type, ReadType(cursor, where));
  if (type != Type::kArray) return ReadElements(cursor, file, type, false, 1, where);
  KVG_ASSIGN(type, ReadType(cursor, where));
  uint64_t count = 0;
  if (!cursor.Number(8, count)) return CutOff(where);
  if (type == Type::kArray) return Unsupported(StrCat(where, ": an array of arrays"));
  return ReadElements(cursor, file, type, true, count, where);
}

Status ReadMetadata(Cursor& cursor, std::span<const uint8_t> file, uint64_t count,
                    std::string_view origin, GgufHeader& header) {
  for (uint64_t i = 0; i < count; ++i) {
    std::string_view key;
    if (!cursor.Text(key)) return CutOff(StrCat(origin, ": key ", i, " of the metadata"));
    if (key.empty() || key.size() > kMostKeyBytes || FindInvalidUtf8(key) != std::string::npos) {
      return BadInput(StrCat(origin, ": key ", i, " of the metadata, ", Quoted(key, 120),
                             ", expected 1 to ", kMostKeyBytes, " bytes of UTF-8"));
    }
    const std::string where = StrCat(origin, ": key ", Quoted(key, 120));
    KVG_ASSIGN(const GgufValue value, ReadValue(cursor, file, where));
    if (!header.metadata.emplace(key, value).second) {
      return BadInput(StrCat(where, " is there twice"));
    }
  }
  return {};
}

Result<GgufTensor> ReadTensor(Cursor& cursor, uint64_t index, std::string_view origin) {
  GgufTensor tensor;
  std::string_view name;
  if (!cursor.Text(name)) return CutOff(StrCat(origin, ": tensor ", index));
  if (name.empty() || name.size() > kMostNameBytes || FindInvalidUtf8(name) != std::string::npos) {
    return BadInput(StrCat(origin, ": tensor ", index, " is called ", Quoted(name, 120),
                           ", expected 1 to ", kMostNameBytes, " bytes of UTF-8"));
  }
  tensor.name = name;
  const std::string where = StrCat(origin, ": tensor ", Quoted(name, 120));
  uint64_t dims = 0, type = 0;
  if (!cursor.Number(4, dims)) return CutOff(where);
  if (dims < 1 || dims > kMostDims) {
    return BadInput(StrCat(where, " has ", dims, " dimensions, expected 1 to ", kMostDims));
  }
  uint64_t elements = 1;
  for (uint64_t i = 0; i < dims; ++i) {
    uint64_t size = 0;
    if (!cursor.Number(8, size)) return CutOff(where);
    if (size < 1 || size > uint64_t{INT64_MAX} ||
        __builtin_mul_overflow(elements, size, &elements) || elements > uint64_t{INT64_MAX}) {
      return BadInput(StrCat(where, ": dimension ", i, " is ", size,
                             ", expected at least 1 and a product of all that fits 63 bits"));
    }
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
  }
  if (!cursor.Number(4, type) || !cursor.Number(8, tensor.begin)) return CutOff(where);
  KVG_ASSIGN(tensor.type, FindBlockType(static_cast<uint32_t>(type), where));
  const auto block = static_cast<uint64_t>(tensor.type->elements);
  if (static_cast<uint64_t>(tensor.shape.back()) % block != 0) {
    return BadInput(StrCat(where, ": rows of ", tensor.shape.back(),
                           " elements, expected a "
                           "multiple of ",
                           block, ", the block of ", tensor.type->name));
  }
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(elements / block, static_cast<uint64_t>(tensor.type->bytes), &bytes) ||
      __builtin_add_overflow(tensor.begin, bytes, &tensor.end)) {
    return CutOff(where);
  }
  return tensor;
}

Result<uint64_t> AlignmentOf(const GgufHeader& header, std::string_view origin) {
  constexpr std::string_view kKey = "general.alignment";
  const GgufValue* value = header.Find(kKey);
  if (value == nullptr) return kDefaultAlignment;
  const std::optional<int64_t> alignment = value->Int();
  if (!alignment || *alignment < 1 || static_cast<uint64_t>(*alignment) > kMostAlignment ||
      !std::has_single_bit(static_cast<uint64_t>(*alignment))) {
    return BadInput(StrCat(origin, ": key '", kKey, "' is ",
                           alignment ? std::to_string(*alignment) : "no number",
                           ", expected a power of two up to ", kMostAlignment));
  }
  return static_cast<uint64_t>(*alignment);
}

// Moves the tensors to where they lie in the file, and checks it.
Status PlaceTensors(uint64_t data_begin, uint64_t file_bytes, uint64_t alignment,
                    std::string_view origin, std::vector<GgufTensor>& tensors) {
  for (GgufTensor& tensor : tensors) {
    const std::string where = StrCat(origin, ": tensor ", Quoted(tensor.name, 120));
    if (tensor.begin % alignment != 0) {
      return BadInput(StrCat(where, " begins at data byte ", tensor.begin,
                             ", expected a multiple of the alignment, ", alignment));
    }
    const uint64_t data_bytes = file_bytes - data_begin;
    if (tensor.end > data_bytes) {
      return BadInput(StrCat(where, " takes data bytes ", tensor.begin, " to ", tensor.end,
                             ", but the file has ", data_bytes,
                             " bytes of data; the file is cut off"));
    }
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].begin >= tensors[i - 1].end) continue;
    return BadInput(StrCat(origin, ": tensor ", Quoted(tensors[i].name, 120),
                           " begins inside tensor ", Quoted(tensors[i - 1].name, 120)));
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].name != tensors[i - 1].name) continue;
    return BadInput(StrCat(origin, ": tensor ", Quoted(tensors[i].name, 120), " is there twice"));
  }
  return {};
}

}  // namespace

std::optional<int64_t> GgufValue::IntAt(uint64_t index) const {
  const uint64_t width = WidthOf(type_);
  if (width == 0 || type_ == Type::kF32 || type_ == Type::kF64 || type_ == Type::kBool) {
    return std::nullopt;
  }
  const uint64_t bits = LittleEndian(bytes_.subspan(index * width, width));
  switch (type_) {
    case Type::kI8:
      return static_cast<int8_t>(bits);
    case Type::kI16:
      return static_cast<int16_t>(bits);
    case Type::kI32:
      return static_cast<int32_t>(bits);
    case Type::kI64:
      return static_cast<int64_t>(bits);
    default:
      break;
  }
  if (bits > uint64_t{INT64_MAX}) return std::nullopt;
  return static_cast<int64_t>(bits);
}

std::optional<double> GgufValue::RealAt(uint64_t index) const {
  const uint64_t width = WidthOf(type_);
  if (type_ == Type::kF32) {
    const uint64_t bits = LittleEndian(bytes_.subspan(index * width, width));
    return double{std::bit_cast<float>(static_cast<uint32_t>(bits))};
  }
  if (type_ == Type::kF64) {
    return std::bit_cast<double>(LittleEndian(bytes_.subspan(index * width, width)));
  }
  const std::optional<int64_t> whole = IntAt(index);
  if (!whole) return std::nullopt;
  return static_cast<double>(*whole);
}

std::optional<int64_t> GgufValue::Int() const { return array_ ? std::nullopt : IntAt(0); }

std::optional<double> GgufValue::Real() const { return array_ ? std::nullopt : RealAt(0); }

std::optional<bool> GgufValue::Bool() const {
  if (array_ || type_ != Type::kBool) return std::nullopt;
  return bytes_[0] != 0;
}

std::optional<std::string_view> GgufValue::Text() const {
  if (array_ || type_ != Type::kString) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(bytes_.data()) + 8, bytes_.size() - 8);
}

std::optional<std::vector<std::string_view>> GgufValue::Texts() const {
  if (!array_ || type_ != Type::kString) return std::nullopt;
  std::vector<std::string_view> texts;
  Cursor cursor(bytes_);
  for (uint64_t i = 0; i < count_; ++i) {
    std::string_view text;
    if (!cursor.Text(text)) return std::nullopt;
    texts.push_back(text);
  }
  return texts;
}

std::optional<std::vector<int64_t>> GgufValue::Ints() const {
  if (!array_) return std::nullopt;
  std::vector<int64_t> out;
  for (uint64_t i = 0; i < count_; ++i) {
    const std::optional<int64_t> value = IntAt(i);
    if (!value) return std::nullopt;
    out.push_back(*value);
  }
  return out;
}

std::optional<std::vector<double>> GgufValue::Reals() const {
  if (!array_) return std::nullopt;
  std::vector<double> out;
  for (uint64_t i = 0; i < count_; ++i) {
    const std::optional<double> value = RealAt(i);
    if (!value) return std::nullopt;
    out.push_back(*value);
  }
  return out;
}

std::optional<std::vector<bool>> GgufValue::Bools() const {
  if (!array_ || type_ != Type::kBool) return std::nullopt;
  std::vector<bool> out;
  out.reserve(bytes_.size());
  for (const uint8_t byte : bytes_) out.push_back(byte != 0);
  return out;
}

const GgufValue* GgufHeader::Find(std::string_view key) const {
  const auto found = metadata.find(key);
  return found == metadata.end() ? nullptr : &found->second;
}

Result<GgufHeader> ParseGgufHeader(std::span<const uint8_t> file, std::string_view origin) {
  Cursor cursor(file);
  std::span<const uint8_t> magic;
  if (!cursor.Take(4, magic) ||
      std::string_view(reinterpret_cast<const char*>(magic.data()), 4) != "GGUF") {
    return BadInput(StrCat(origin, ": no GGUF file, which begins with the letters GGUF"));
  }
  uint64_t version = 0, tensors = 0, keys = 0;
  if (!cursor.Number(4, version)) return CutOff(StrCat(origin, ": the header"));
  if (version != 2 && version != 3) {
    const bool swapped = version != 0 && version % (1 << 24) == 0;
    return Unsupported(
        StrCat(origin, ": GGUF version ", swapped ? version >> 24 : version,
               swapped ? " in big-endian order, expected little-endian" : ", expected 2 or 3"));
  }
  if (!cursor.Number(8, tensors) || !cursor.Number(8, keys)) {
    return CutOff(StrCat(origin, ": the header"));
  }
  if (keys > cursor.left() / kLeastKeyBytes || tensors > cursor.left() / kLeastTensorBytes) {
    return BadInput(StrCat(origin, ": the header claims ", keys, " keys and ", tensors,
                           " tensors, more than the ", file.size(), " bytes of the file can hold"));
  }
  GgufHeader header;
  KVG_TRY(ReadMetadata(cursor, file, keys, origin, header));
  for (uint64_t i = 0; i < tensors; ++i) {
    KVG_ASSIGN(GgufTensor tensor, ReadTensor(cursor, i, origin));
    header.tensors.push_back(std::move(tensor));
  }
  KVG_ASSIGN(const uint64_t alignment, AlignmentOf(header, origin));
  const uint64_t data_begin = (cursor.at() + alignment - 1) / alignment * alignment;
  // A file of a vocabulary alone may end before the padding does.
  if (data_begin > file.size() && tensors > 0) return CutOff(StrCat(origin, ": the data"));
  KVG_TRY(PlaceTensors(std::min<uint64_t>(data_begin, file.size()), file.size(), alignment, origin,
                       header.tensors));
  return header;
}

}  // namespace kvgauge

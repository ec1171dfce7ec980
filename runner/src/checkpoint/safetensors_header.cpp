// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "src/checkpoint/safetensors.h"

namespace kvgauge {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMostHeaderBytes = 100'000'000;  // the limit of the reference implementation

uint64_t LittleEndian64(std::span<const uint8_t> bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) value |= uint64_t{bytes[i]} << (8 * i);
  return value;
}

// Non-negative integers that fit int64.
std::optional<uint64_t> AsCount(const Json& value) {
  if (!value.is_number_unsigned()) return std::nullopt;
  const uint64_t count = value.get<uint64_t>();
  if (count > uint64_t{INT64_MAX}) return std::nullopt;
  return count;
}

Result<Json> ReadHeaderJson(std::span<const uint8_t> file, std::string_view origin,
                            uint64_t* data_begin) {
  if (file.size() < kLengthBytes) {
    return BadInput(StrCat(origin, ": ", file.size(),
                           " bytes are too few for a safetensors file, which begins with an "
                           "8-byte header length"));
  }
  const uint64_t length = LittleEndian64(file);
  if (length > kMostHeaderBytes || length > file.size() - kLengthBytes) {
    return BadInput(StrCat(origin, ": the header claims ", length, " bytes, expected at most ",
                           std::min<uint64_t>(kMostHeaderBytes, file.size() - kLengthBytes),
                           "; the file is cut off or no safetensors file"));
  }
  *data_begin = kLengthBytes + length;
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (text.empty() || text.front() != '{') {
    return BadInput(
        StrCat(origin, ": the header must begin with '{', not ", Quoted(text.substr(0, 1))));
  }
  if (const size_t at = FindInvalidUtf8(text); at != std::string_view::npos) {
    return BadInput(StrCat(origin, ": the header is not UTF-8 at byte ", at));
  }
  return ParseJson(text, StrCat(origin, ": header"));
}

Status CheckMetadata(const Json& metadata, std::string_view origin) {
  bool legal = metadata.is_object();
  if (legal) {
    for (const Json& value : metadata) legal = legal && value.is_string();
  }
  if (legal) return {};
  return BadInput(StrCat(origin, ": '__metadata__' must map strings to strings"));
}

Result<StoredEntry> ReadEntry(const std::string& name, const Json& json, uint64_t data_bytes,
                              std::string_view origin) {
  const std::string where = StrCat(origin, ": tensor ", Quoted(name, 120));
  if (!json.is_object()) return BadInput(where + ": expected an object");
  for (const auto& [key, value] : json.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets") {
      return BadInput(
          StrCat(where, ": unknown key ", Quoted(key), ", expected dtype, shape and data_offsets"));
    }
  }
  StoredEntry entry;
  entry.name = name;

  const auto dtype = json.find("dtype");
  if (dtype == json.end() || !dtype->is_string()) {
    return BadInput(where + ": key 'dtype' is missing or not a string");
  }
  entry.dtype_name = dtype->get<std::string>();
  const NumberType* type = FindNumberType(entry.dtype_name);
  if (type == nullptr) {
    return BadInput(StrCat(where, ": unknown dtype ", Quoted(entry.dtype_name)));
  }
  entry.dtype = type->dtype;

  const auto shape = json.find("shape");
  if (shape == json.end() || !shape->is_array()) {
    return BadInput(where + ": key 'shape' is missing or not a list");
  }
  uint64_t bits = type->bits;
  int64_t steps = 1;  // strides multiply the sizes of empty tensors, too
  for (const Json& dim : *shape) {
    const std::optional<uint64_t> size = AsCount(dim);
    if (!size) {
      return BadInput(StrCat(where, ": 'shape': ", Quoted(CanonicalJson(dim)),
                             " is not a size, expected an integer from 0"));
    }
    if (__builtin_mul_overflow(bits, *size, &bits) ||
        __builtin_mul_overflow(steps, std::max<uint64_t>(1, *size), &steps)) {
      return BadInput(where + ": 'shape': the product of the sizes overflows");
    }
    entry.shape.push_back(static_cast<int64_t>(*size));
  }
  if (bits % 8 != 0) return BadInput(where + ": 'shape': the tensor ends inside a byte");

  const auto offsets = json.find("data_offsets");
  if (offsets == json.end() || !offsets->is_array() || offsets->size() != 2) {
    return BadInput(where + ": key 'data_offsets' is missing or not [begin, end]");
  }
  const std::optional<uint64_t> begin = AsCount((*offsets)[0]);
  const std::optional<uint64_t> end = AsCount((*offsets)[1]);
  if (!begin || !end || *begin > *end || *end > data_bytes) {
    return BadInput(StrCat(where, ": 'data_offsets': ", Quoted(CanonicalJson(*offsets)),
                           ", expected 0 <= begin <= end <= ", data_bytes,
                           ", the bytes after the header; the file may be cut off"));
  }
  if (*end - *begin != bits / 8) {
    return BadInput(StrCat(where, ": 'data_offsets' give ", *end - *begin, " bytes, but ",
                           entry.dtype_name, " ", Quoted(CanonicalJson(*shape)), " needs ",
                           bits / 8));
  }
  entry.begin = *begin;
  entry.end = *end;
  return entry;
}

// Entries must tile the data: a hole or an overlap means that some offset is wrong.
Status CheckTiling(std::vector<StoredEntry>& entries, uint64_t data_bytes,
                   std::string_view origin) {
  std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t covered = 0;
  for (const StoredEntry& entry : entries) {
    if (entry.begin != covered) {
      return BadInput(StrCat(origin, ": tensor ", Quoted(entry.name, 120), " begins at data byte ",
                             entry.begin,
                             entry.begin < covered ? ", inside the tensor before it, which ends at "
                                                   : ", which leaves a hole after byte ",
                             covered));
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    return BadInput(StrCat(origin, ": the tensors end at data byte ", covered,
                           ", but the file has ", data_bytes, " bytes after the header"));
  }
  return {};
}

}  // namespace

Result<std::vector<StoredEntry>> ParseSafetensorsHeader(std::span<const uint8_t> file,
                                                        std::string_view origin) {
  uint64_t data_begin = 0;
  KVG_ASSIGN(const Json header, ReadHeaderJson(file, origin, &data_begin));
  if (!header.is_object()) return BadInput(StrCat(origin, ": the header is not an object"));
  const uint64_t data_bytes = file.size() - data_begin;
  std::vector<StoredEntry> entries;
  entries.reserve(header.size());
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      KVG_TRY(CheckMetadata(value, origin));
      continue;
    }
    KVG_ASSIGN(StoredEntry entry, ReadEntry(name, value, data_bytes, origin));
    entries.push_back(std::move(entry));
  }
  KVG_TRY(CheckTiling(entries, data_bytes, origin));
  for (StoredEntry& entry : entries) {
    entry.begin += data_begin;
    entry.end += data_begin;
  }
  std::sort(entries.begin(), entries.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return entries;
}

}  // namespace kvgauge

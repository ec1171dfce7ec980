// SPDX-License-Identifier: Apache-2.0
#include "src/parquet/compact.h"

namespace kvgauge::parquet {
namespace {

constexpr int32_t kMostNesting = 32;

int64_t Unzigzag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

}  // namespace

uint8_t CompactReader::Byte() {
  if (failed_) return 0;
  if (at_ == bytes_.size()) {
    cut_ = failed_ = true;
    return 0;
  }
  return bytes_[at_++];
}

uint64_t CompactReader::Varint() {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const uint8_t byte = Byte();
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if ((byte & 0x80) == 0) return value;
  }
  Fail();
  return 0;
}

bool CompactReader::Next(Field* field) {
  const uint8_t head = Byte();
  const auto wire = static_cast<Wire>(head & 0x0f);
  if (failed_ || wire == Wire::kStop) return false;
  if (wire > Wire::kStruct) {
    Fail();
    return false;
  }
  const int32_t step = head >> 4;
  const int64_t id = step != 0 ? field->id + step : Unzigzag(Varint());
  if (id < -32768 || id > 32767) Fail();
  *field = {static_cast<int32_t>(id), wire};
  return !failed_;
}

bool CompactReader::Bool(Wire wire) {
  if (wire != Wire::kTrue && wire != Wire::kFalse) Fail();
  return wire == Wire::kTrue;
}

int64_t CompactReader::Int(Wire wire) {
  if (wire == Wire::kByte) return static_cast<int8_t>(Byte());
  if (wire != Wire::kI16 && wire != Wire::kI32 && wire != Wire::kI64) {
    Fail();
    return 0;
  }
  return Unzigzag(Varint());
}

std::string_view CompactReader::Binary(Wire wire) {
  if (wire != Wire::kBinary) Fail();
  const uint64_t size = Varint();
  if (failed_) return {};
  if (size > bytes_.size() - at_) {
    cut_ = failed_ = true;
    return {};
  }
  const std::string_view text(reinterpret_cast<const char*>(bytes_.data()) + at_, size);
  at_ += size;
  return text;
}

CompactReader::List CompactReader::ListHead(Wire wire) {
  if (wire != Wire::kList && wire != Wire::kSet) Fail();
  const uint8_t head = Byte();
  uint64_t size = head >> 4;
  if (size == 15) size = Varint();
  const auto element = static_cast<Wire>(head & 0x0f);
  if (failed_) return {};
  if (element == Wire::kStop || element > Wire::kStruct) {
    Fail();
    return {};
  }
  // Every element takes a byte at least.
  if (size > bytes_.size() - at_) {
    cut_ = failed_ = true;
    return {};
  }
  return {static_cast<int64_t>(size), element};
}

void CompactReader::Struct(Wire wire) {
  if (wire != Wire::kStruct) Fail();
}

void CompactReader::Skip(Wire wire) { SkipDeep(wire, 0); }

void CompactReader::SkipDeep(Wire wire, int32_t depth) {
  if (depth > kMostNesting) Fail();
  if (failed_) return;
  switch (wire) {
    case Wire::kStop:
      return Fail();
    case Wire::kTrue:
    case Wire::kFalse:
      return;
    case Wire::kByte:
      Byte();
      return;
    case Wire::kI16:
    case Wire::kI32:
    case Wire::kI64:
      Varint();
      return;
    case Wire::kDouble:
      for (int i = 0; i < 8; ++i) Byte();
      return;
    case Wire::kBinary:
      Binary(wire);
      return;
    case Wire::kList:
    case Wire::kSet: {
      const List list = ListHead(wire);
      for (int64_t i = 0; i < list.size && !failed_; ++i) {
        // Booleans take a byte in a list.
        const bool is_bool = list.wire == Wire::kTrue || list.wire == Wire::kFalse;
        SkipDeep(is_bool ? Wire::kByte : list.wire, depth + 1);
      }
      return;
    }
    case Wire::kMap: {
      const uint64_t size = Varint();
      if (size == 0 || failed_) return;
      const uint8_t kinds = Byte();
      if (size > bytes_.size() - at_) return Fail();
      for (uint64_t i = 0; i < size && !failed_; ++i) {
        SkipDeep(static_cast<Wire>(kinds >> 4), depth + 1);
        SkipDeep(static_cast<Wire>(kinds & 0x0f), depth + 1);
      }
      return;
    }
    case Wire::kStruct: {
      for (Field field; Next(&field);) SkipDeep(field.wire, depth + 1);
      return;
    }
  }
  Fail();
}

}  // namespace kvgauge::parquet

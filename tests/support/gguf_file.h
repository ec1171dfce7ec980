// SPDX-License-Identifier: Apache-2.0
// GGUF files by hand.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace kvgauge {

// A file as the format says, in parts that a test may make wrong.
class GgufBytes {
 public:
  GgufBytes& Number(uint64_t value, int width) {
    for (int i = 0; i < width; ++i) bytes.push_back(static_cast<char>(value >> (8 * i)));
    return *this;
  }
  GgufBytes& Text(const std::string& text) {
    Number(text.size(), 8);
    bytes += text;
    return *this;
  }
  GgufBytes& Header(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
    bytes += "GGUF";
    return Number(version, 4).Number(tensors, 8).Number(keys, 8);
  }
  GgufBytes& Key(const std::string& key, uint32_t value) {
    return Text(key).Number(4, 4).Number(value, 4);
  }
  GgufBytes& KeyShort(const std::string& key, uint64_t value) {
    return Text(key).Number(2, 4).Number(value, 2);
  }
  GgufBytes& KeyFloat(const std::string& key, float value) {
    return Text(key).Number(6, 4).Number(std::bit_cast<uint32_t>(value), 4);
  }
  // As another file has it (GgufValue).
  template <class Value>
  GgufBytes& KeyValue(const std::string& key, const Value& value) {
    Text(key);
    if (value.is_array()) Number(9, 4);
    Number(static_cast<uint64_t>(value.type()), 4);
    if (value.is_array()) Number(value.count(), 8);
    bytes.append(value.bytes().begin(), value.bytes().end());
    return *this;
  }
  GgufBytes& KeyFlag(const std::string& key, bool flag) {
    return Text(key).Number(7, 4).Number(flag ? 1 : 0, 1);
  }
  GgufBytes& KeyFlags(const std::string& key, const std::vector<bool>& flags) {
    Text(key).Number(9, 4).Number(7, 4).Number(flags.size(), 8);
    for (const bool flag : flags) Number(flag ? 1 : 0, 1);
    return *this;
  }
  GgufBytes& KeyNumbers(const std::string& key, const std::vector<uint32_t>& numbers) {
    Text(key).Number(9, 4).Number(4, 4).Number(numbers.size(), 8);
    for (const uint32_t number : numbers) Number(number, 4);
    return *this;
  }
  GgufBytes& KeyTexts(const std::string& key, const std::vector<std::string>& texts) {
    Text(key).Number(9, 4).Number(8, 4).Number(texts.size(), 8);
    for (const std::string& text : texts) Text(text);
    return *this;
  }
  GgufBytes& KeyText(const std::string& key, const std::string& value) {
    return Text(key).Number(8, 4).Text(value);
  }
  GgufBytes& Tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
                    uint64_t offset) {
    Text(name).Number(dims.size(), 4);
    for (const uint64_t dim : dims) Number(dim, 8);
    return Number(type, 4).Number(offset, 8);
  }
  GgufBytes& Pad(size_t alignment = 32) {
    while (bytes.size() % alignment != 0) bytes.push_back('\0');
    return *this;
  }
  GgufBytes& Data(size_t count) {
    bytes += std::string(count, '\0');
    return *this;
  }
  std::string bytes;
};

}  // namespace kvgauge

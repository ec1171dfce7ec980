// SPDX-License-Identifier: Apache-2.0
#include "src/model/safetensors_file.h"

#include <bit>

#include "core/files.h"
#include "core/json.h"

namespace kvgauge {

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

void SafetensorsFile::Append(const std::string& name, const char* dtype, std::vector<int64_t> shape,
                             const void* values, size_t size_bytes) {
  const auto begin = static_cast<int64_t>(data_.size());
  data_.append(static_cast<const char*>(values), size_bytes);
  entries_.push_back(
      {name, dtype, std::move(shape), begin, begin + static_cast<int64_t>(size_bytes)});
}

void SafetensorsFile::Add(const std::string& name, std::span<const float> values,
                          std::vector<int64_t> shape) {
  Append(name, "F32", std::move(shape), values.data(), values.size_bytes());
}

void SafetensorsFile::Add(const std::string& name, std::span<const int64_t> values,
                          std::vector<int64_t> shape) {
  Append(name, "I64", std::move(shape), values.data(), values.size_bytes());
}

Status SafetensorsFile::Write(const std::string& path) const {
  Json header = Json::object();
  if (!metadata_.empty()) header["__metadata__"] = metadata_;
  for (const Entry& entry : entries_) {
    header[entry.name] = {
        {"dtype", entry.dtype}, {"shape", entry.shape}, {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data begins aligned
  uint64_t length = text.size();
  std::string content;
  for (int i = 0; i < 8; ++i, length >>= 8) content.push_back(static_cast<char>(length & 0xff));
  content += text;
  content += data_;
  return WriteFile(path, content);
}

}  // namespace kvgauge

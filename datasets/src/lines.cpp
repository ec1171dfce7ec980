// SPDX-License-Identifier: Apache-2.0
#include "src/lines.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "datasets/pairs.h"

namespace kvgauge {
namespace {

// Besides the id; absent ones are equal.
constexpr const char* kWithinId[] = {"task", "dataset", "kind", "turn", "turn_idx", "question"};

// Column of a byte, in characters from 1.
int64_t ColumnOf(const std::string& text, size_t byte) {
  return 1 + std::count_if(text.begin(),
                           text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size())),
                           [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

// The parser counts bytes from 1; people count characters.
std::string InColumns(const std::string& message, const std::string& text) {
  constexpr std::string_view kByte = "at byte ";
  const size_t at = message.find(kByte);
  if (at == std::string::npos) return message;
  size_t end = at + kByte.size();
  size_t byte = 0;
  while (end < message.size() && std::isdigit(static_cast<unsigned char>(message[end])) != 0) {
    byte = byte * 10 + static_cast<size_t>(message[end++] - '0');
  }
  return StrCat(message.substr(0, at), "at column ", ColumnOf(text, byte == 0 ? 0 : byte - 1),
                message.substr(end));
}

}  // namespace

Status SampleIds::Add(const Json& object, const PairLines& at) {
  const char* key = object.contains("id") ? "id" : "_id";
  if (!object.contains(key) || !(object[key].is_string() || object[key].is_number())) return {};
  Json sample = Json::array({object[key]});
  const auto add = [&](const std::string& part) {
    sample.push_back(object.contains(part) ? object[part] : Json());
  };
  for (const char* part : kWithinId) add(part);
  for (const std::string& part : by_) add(part);
  const auto [found, added] = first_lines_.emplace(sample.dump(), at.number());
  if (added) return {};
  return BadInput(StrCat(at.origin(), ": \"", key, "\" ", object[key].dump(),
                         " is already in line ", found->second, "; a sample is scored once"));
}

Result<PairLines> PairLines::Open(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return BadInput(StrCat(path, ": is a directory; name a file of JSON lines"));
  }
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return SystemError(path, "open");
  return PairLines(path, file);
}

PairLines::PairLines(std::string path, std::FILE* file)
    : path_(std::move(path)), file_(file), buffer_(size_t{1} << 16) {}

bool PairLines::Next() {
  while (ReadLine()) {
    ++number_;
    if (too_long_ || !Trim(line_).empty()) return true;
  }
  return false;
}

Status PairLines::status() const {
  if (std::ferror(file_.get()) == 0) return {};
  return SystemError(path_, "read");
}

bool PairLines::Rewind() {
  if (std::fseek(file_.get(), 0, SEEK_SET) != 0) return false;
  at_ = end_ = 0;
  number_ = 0;
  return true;
}

std::string PairLines::origin() const { return StrCat(path_, ":", number_); }

Result<Json> PairLines::Object() const {
  if (too_long_) return BadInput(StrCat(origin(), ": longer than ", HumanBytes(kMaxPairBytes)));
  if (const size_t bad = FindInvalidUtf8(line_); bad != std::string::npos) {
    return BadInput(StrCat(origin(), ": not UTF-8 at column ", ColumnOf(line_, bad)));
  }
  Result<Json> parsed = ParseJson(line_, origin());
  if (!parsed.ok()) return BadInput(InColumns(parsed.error().message, line_));
  if (parsed->is_object()) return parsed;
  return BadInput(StrCat(origin(), ": must be an object with \"prediction\" and \"answers\", not ",
                         parsed->type_name()));
}

// False at the end of the file.
bool PairLines::ReadLine() {
  line_.clear();
  too_long_ = false;
  bool any = false;
  while (true) {
    if (at_ == end_) {
      at_ = 0;
      end_ = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
      if (end_ == 0) return any;
    }
    any = true;
    const char* begin = buffer_.data() + at_;
    const auto* newline = static_cast<const char*>(std::memchr(begin, '\n', end_ - at_));
    const size_t size = newline != nullptr ? static_cast<size_t>(newline - begin) : end_ - at_;
    if (line_.size() + size > static_cast<size_t>(kMaxPairBytes)) {
      too_long_ = true;
      line_.clear();
    }
    if (!too_long_) line_.append(begin, size);
    at_ += size + (newline != nullptr ? 1 : 0);
    if (newline != nullptr) return true;
  }
}

}  // namespace kvgauge

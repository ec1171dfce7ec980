// SPDX-License-Identifier: Apache-2.0
#include "src/foreign/foreign_parts.h"

#include <cmath>
#include <filesystem>
#include <set>
#include <tuple>

#include "core/counted.h"
#include "core/files.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "core/utf8.h"

namespace kvgauge {
namespace {

constexpr int64_t kMostBytes = int64_t{64} << 20;
constexpr size_t kMostName = 4096;
constexpr size_t kMostForeignRows = 100000;
constexpr size_t kHashDigits = 12;

}  // namespace

Result<std::string> ReadForeignText(const std::string& path) { return ReadFile(path, kMostBytes); }

Result<Json> ReadForeignJson(const std::string& path, std::string& text) {
  KVG_ASSIGN(text, ReadForeignText(path));
  return ParseJson(text, path);
}

std::string ForeignSource(const std::string& path, const std::string& text) {
  return StrCat(std::filesystem::path(path).filename().string(), " (sha256 ",
                Sha256Hex(text).substr(0, kHashDigits), ")");
}

Status CheckForeignName(const std::string& where, const std::string& name) {
  if (name.empty()) return BadInput(StrCat(where, ": empty, expected a name"));
  if (name.size() > kMostName) {
    return BadInput(StrCat(where, ": a text of ", name.size(), " bytes, expected a name"));
  }
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      return BadInput(StrCat(where, ": holds control characters, expected a name"));
    }
  }
  return {};
}

Status CheckForeignRows(const std::string& where, const std::vector<ForeignRow>& rows) {
  if (rows.empty()) return BadInput(StrCat(where, ": holds no score"));
  if (rows.size() > kMostForeignRows) {
    return BadInput(
        StrCat(where, ": ", rows.size(), " scores, expected at most ", kMostForeignRows));
  }
  std::set<std::tuple<std::string, std::string, std::string, std::string, std::string, std::string>>
      seen;
  for (const ForeignRow& row : rows) {
    for (const std::string* name :
         {&row.program, &row.model, &row.task, &row.method, &row.metric, &row.source}) {
      KVG_TRY(CheckForeignName(where, *name));
    }
    if (!row.protocol.empty()) KVG_TRY(CheckForeignName(where, row.protocol));
    if (!std::isfinite(row.score)) {
      return BadInput(
          StrCat(where, ": ", row.task, ", ", row.metric, ": expected a finite number"));
    }
    if (!seen.emplace(row.program, row.model, row.task, row.method, row.metric, row.source)
             .second) {
      return BadInput(StrCat(where, ": ", row.task, ", ", row.metric, " is there twice"));
    }
  }
  return {};
}

}  // namespace kvgauge

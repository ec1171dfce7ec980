// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/pickled/zip.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr uint64_t kMostDirectoryBytes = uint64_t{64} << 20;
constexpr uint64_t kZipEndBytes = 22, kLocatorBytes = 20, kEnd64Bytes = 56;
constexpr uint64_t kCentralBytes = 46, kLocalBytes = 30;
constexpr uint32_t kEndMark = 0x06054b50, kLocatorMark = 0x07064b50, kEnd64Mark = 0x06064b50;
constexpr uint32_t kCentralMark = 0x02014b50, kLocalMark = 0x04034b50;
constexpr uint64_t kElsewhere = 0xffffffff;  // the number is in the record of 64 bits

uint64_t NumberAt(std::span<const uint8_t> bytes, uint64_t at, int width) {
  uint64_t value = 0;
  for (int i = 0; i < width; ++i)
    value |= uint64_t{bytes[at + static_cast<uint64_t>(i)]} << (8 * i);
  return value;
}

struct Directory {
  uint64_t begin = 0;
  uint64_t bytes = 0;
  uint64_t entries = 0;
};

Result<Directory> FindDirectory(std::span<const uint8_t> file, std::string_view origin) {
  if (file.size() < kZipEndBytes || NumberAt(file, file.size() - kZipEndBytes, 4) != kEndMark) {
    return BadInput(StrCat(origin, ": the last ", kZipEndBytes,
                           " bytes are not the end of a zip archive as PyTorch writes it; the file "
                           "is cut off or no such archive"));
  }
  uint64_t at = file.size() - kZipEndBytes;
  Directory found = {NumberAt(file, at + 16, 4), NumberAt(file, at + 12, 4),
                     NumberAt(file, at + 10, 2)};
  uint64_t disks = NumberAt(file, at + 4, 4) + NumberAt(file, at + 20, 2);  // and the comment
  if (at >= kLocatorBytes && NumberAt(file, at - kLocatorBytes, 4) == kLocatorMark) {
    const uint64_t record = NumberAt(file, at - kLocatorBytes + 8, 8);
    if (at - kLocatorBytes < kEnd64Bytes || record > at - kLocatorBytes - kEnd64Bytes ||
        NumberAt(file, record, 4) != kEnd64Mark) {
      return BadInput(StrCat(origin, ": byte ", at - kLocatorBytes + 8,
                             ": the record of 64-bit sizes is to be at byte ", record,
                             ", and is not there"));
    }
    at = record;
    found = {NumberAt(file, at + 48, 8), NumberAt(file, at + 40, 8), NumberAt(file, at + 32, 8)};
    disks = NumberAt(file, at + 16, 8);
  }
  if (disks != 0) {
    return BadInput(StrCat(origin, ": a zip archive of several parts, or with a comment"));
  }
  if (found.bytes > kMostDirectoryBytes || found.begin > at || found.bytes > at - found.begin ||
      found.entries > found.bytes / kCentralBytes) {
    return BadInput(StrCat(origin, ": the zip directory claims ", found.entries, " entries in ",
                           found.bytes, " bytes from byte ", found.begin,
                           "; it must end before byte ", at, " and have at most ",
                           kMostDirectoryBytes, " bytes"));
  }
  return found;
}

struct CentralEntry {
  std::string name;
  uint64_t header = 0;  // where the entry's own header begins
  uint64_t bytes = 0;
  uint64_t record_bytes = 0;  // in the directory
};

// Numbers that need 64 bits, in the order in which they stand in the extra field.
Status ReadWideNumbers(std::span<const uint8_t> extra, const std::vector<uint64_t*>& wanted,
                       const std::string& where) {
  if (wanted.empty()) return {};
  for (uint64_t at = 0; at + 4 <= extra.size();) {
    const uint64_t id = NumberAt(extra, at, 2), bytes = NumberAt(extra, at + 2, 2);
    at += 4;
    if (bytes > extra.size() - at) break;
    if (id == 1 && bytes >= wanted.size() * 8) {
      for (size_t i = 0; i < wanted.size(); ++i) *wanted[i] = NumberAt(extra, at + i * 8, 8);
      return {};
    }
    at += bytes;
  }
  return BadInput(where + ": the extra field lacks the 64-bit sizes that the entry refers to");
}

Result<CentralEntry> ReadCentral(std::span<const uint8_t> directory, std::string_view origin,
                                 uint64_t file_at) {
  const std::string where = StrCat(origin, ": byte ", file_at);
  if (directory.size() < kCentralBytes || NumberAt(directory, 0, 4) != kCentralMark) {
    return BadInput(where + ": no entry of the zip directory begins here");
  }
  const uint64_t flags = NumberAt(directory, 8, 2), method = NumberAt(directory, 10, 2);
  uint64_t packed = NumberAt(directory, 20, 4), plain = NumberAt(directory, 24, 4);
  const uint64_t name_bytes = NumberAt(directory, 28, 2), extra_bytes = NumberAt(directory, 30, 2);
  CentralEntry entry;
  entry.header = NumberAt(directory, 42, 4);
  entry.record_bytes = kCentralBytes + name_bytes + extra_bytes + NumberAt(directory, 32, 2);
  if (entry.record_bytes > directory.size()) {
    return BadInput(where + ": the entry reaches behind the zip directory");
  }
  entry.name.assign(reinterpret_cast<const char*>(directory.data()) + kCentralBytes, name_bytes);
  const std::string named = StrCat(where, ": zip entry ", Quoted(entry.name, 120));
  std::vector<uint64_t*> wide;
  for (uint64_t* number : {&plain, &packed, &entry.header}) {
    if (*number == kElsewhere) wide.push_back(number);
  }
  KVG_TRY(ReadWideNumbers(directory.subspan(kCentralBytes + name_bytes, extra_bytes), wide, named));
  if ((flags & 1) != 0) return Unsupported(named + " is encrypted");
  if (method != 0) {
    return Unsupported(
        StrCat(named, " is compressed (method ", method, "); PyTorch stores entries as they are"));
  }
  if (packed != plain) {
    return BadInput(StrCat(named, " is stored in ", packed, " bytes and claims ", plain));
  }
  entry.bytes = plain;
  return entry;
}

// Where the content begins: behind the entry's own header, which repeats the name.
Result<ZipEntry> Locate(std::span<const uint8_t> file, const CentralEntry& entry,
                        uint64_t directory_begin, std::string_view origin) {
  const std::string named = StrCat(origin, ": zip entry ", Quoted(entry.name, 120));
  const uint64_t room = directory_begin;
  if (entry.header > room || room - entry.header < kLocalBytes ||
      NumberAt(file, entry.header, 4) != kLocalMark) {
    return BadInput(
        StrCat(named, ": its header is to be at byte ", entry.header, ", and is not there"));
  }
  const uint64_t name_bytes = NumberAt(file, entry.header + 26, 2);
  const uint64_t begin =
      entry.header + kLocalBytes + name_bytes + NumberAt(file, entry.header + 28, 2);
  if (begin > room || entry.bytes > room - begin) {
    return BadInput(StrCat(named, " claims ", entry.bytes, " bytes from byte ", begin,
                           ", but the directory begins at byte ", room));
  }
  const std::string_view name(
      reinterpret_cast<const char*>(file.data()) + entry.header + kLocalBytes, name_bytes);
  if (name != entry.name) {
    return BadInput(StrCat(named, " has the name ", Quoted(name, 120), " in its own header"));
  }
  return ZipEntry{begin, begin + entry.bytes};
}

}  // namespace

Result<std::map<std::string, ZipEntry>> ReadZipDirectory(std::span<const uint8_t> file,
                                                         std::string_view origin) {
  KVG_ASSIGN(const Directory directory, FindDirectory(file, origin));
  std::map<std::string, ZipEntry> entries;
  struct Stretch {
    uint64_t begin, end;
    std::string_view name;
  };
  std::vector<Stretch> stretches;  // with the headers
  uint64_t at = directory.begin;
  const uint64_t end = directory.begin + directory.bytes;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    KVG_ASSIGN(const CentralEntry central, ReadCentral(file.subspan(at, end - at), origin, at));
    at += central.record_bytes;
    KVG_ASSIGN(const ZipEntry entry, Locate(file, central, directory.begin, origin));
    const auto [place, fresh] = entries.emplace(central.name, entry);
    if (!fresh) {
      return BadInput(StrCat(origin, ": zip entry ", Quoted(central.name, 120), " is there twice"));
    }
    stretches.push_back({central.header, entry.end, place->first});
  }
  if (at != end) {
    return BadInput(StrCat(origin, ": the zip directory has ", directory.bytes, " bytes, but its ",
                           directory.entries, " entries take ", at - directory.begin));
  }
  std::ranges::sort(stretches, {}, &Stretch::begin);
  for (size_t i = 1; i < stretches.size(); ++i) {
    if (stretches[i].begin >= stretches[i - 1].end) continue;
    return BadInput(StrCat(origin, ": zip entry ", Quoted(stretches[i].name, 120),
                           " begins at byte ", stretches[i].begin, ", inside ",
                           Quoted(stretches[i - 1].name, 120)));
  }
  return entries;
}

}  // namespace kvgauge

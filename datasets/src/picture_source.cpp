// SPDX-License-Identifier: Apache-2.0
#include "src/picture_source.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <utility>

#include "core/files.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "src/base64.h"

namespace kvgauge {
namespace {

constexpr size_t kPictureChunkBytes = size_t{1} << 16;

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// Gives bytes [at, at + bytes) of a file in pieces.
Status ReadRange(const std::string& path, int64_t at, int64_t bytes,
                 const std::function<Status(std::string_view piece)>& take) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return SystemError(path, "open");
  if (fseeko(file.get(), at, SEEK_SET) != 0) return IoError(StrCat(path, ": cannot be read"));
  std::string buffer(kPictureChunkBytes, '\0');
  while (bytes > 0) {
    const auto wanted =
        static_cast<size_t>(std::min(bytes, static_cast<int64_t>(kPictureChunkBytes)));
    if (std::fread(buffer.data(), 1, wanted, file.get()) != wanted) {
      return IoError(StrCat(path, ": cannot be read, or has become shorter"));
    }
    KVG_TRY(take(std::string_view(buffer).substr(0, wanted)));
    bytes -= static_cast<int64_t>(wanted);
  }
  return {};
}

// What base64 at a place of a file decodes to, in pieces.
Status DecodeRange(const std::string& path, const CellPlace& place,
                   const std::function<void(std::string_view piece)>& take) {
  Base64Decoder decoder;
  std::string piece;
  KVG_TRY(ReadRange(path, place.at, place.bytes, [&](std::string_view bytes) -> Status {
    piece.clear();
    const int64_t before = decoder.taken();
    if (!decoder.Add(bytes, &piece)) {
      const auto at = static_cast<size_t>(decoder.taken() - before);
      return BadInput(StrCat("is not base64: character ", decoder.taken() + 1, " of ", place.bytes,
                             " is ", Quoted(bytes.substr(at, 1))));
    }
    take(piece);
    return {};
  }));
  if (decoder.Complete()) return {};
  return BadInput(StrCat("is not base64: its ", place.bytes,
                         " characters are no whole groups of four; is it cut short?"));
}

// Where the strings of a list literal stand; such strings hold no quotes.
Result<std::vector<CellPlace>> PartsOfList(const std::string& path, const CellPlace& cell) {
  enum class State { kBefore, kItem, kText, kBehind, kClosed };
  State state = State::kBefore;
  std::vector<CellPlace> parts;
  char quote = 0;
  int64_t at = cell.at;
  bool doubled = false;  // the second of two quotes that are one
  const auto broken = [&](char found) {
    return BadInput(StrCat("is no list of quoted texts: byte ", at - cell.at + 1, " is ",
                           Quoted(std::string(1, found)), ", expected ",
                           state == State::kBehind ? "',' or ']'" : "a quote"));
  };
  KVG_TRY(ReadRange(path, cell.at, cell.bytes, [&](std::string_view bytes) -> Status {
    for (const char c : bytes) {
      const int64_t here = at++;
      if (doubled && c == '"') {
        doubled = false;
        if (state == State::kText) parts.back().at = here + 1;
        continue;
      }
      doubled = cell.quoted && c == '"';
      const bool blank = c == ' ' || c == '\n' || c == '\r' || c == '\t';
      if (state == State::kText) {
        if (c != quote) continue;
        parts.back().bytes = here - parts.back().at;
        state = State::kBehind;
      } else if (state == State::kBefore) {
        state = State::kItem;
      } else if (blank) {
        continue;
      } else if (state == State::kItem && (c == '"' || c == '\'')) {
        quote = c;
        parts.push_back({.at = here + 1, .bytes = 0, .quoted = false});
        state = State::kText;
      } else if (c == ']' && (state == State::kBehind || state == State::kItem)) {
        state = State::kClosed;
      } else if (c == ',' && state == State::kBehind) {
        state = State::kItem;
      } else {
        --at;
        return broken(c);
      }
    }
    return {};
  }));
  if (state != State::kClosed) return BadInput("is a list that is not closed");
  if (parts.empty()) return BadInput("is a list of no pictures");
  return parts;
}

Result<Picture> PictureOfBase64(const std::string& path, const CellPlace& place,
                                const std::string& name) {
  Sha256 sha;
  int64_t bytes = 0;
  KVG_TRY(DecodeRange(path, place, [&](std::string_view piece) {
    sha.Update(piece.data(), piece.size());
    bytes += static_cast<int64_t>(piece.size());
  }));
  if (bytes == 0) return BadInput("holds no picture");
  Picture picture;
  picture.name = name;
  picture.hash = sha.Finish();
  picture.load = [path, place, name, hash = picture.hash]() -> Result<std::string> {
    std::string all;
    const Status read = DecodeRange(path, place, [&](std::string_view piece) { all += piece; });
    if (!read.ok()) return read.error().Wrap(name);
    if (Sha256Hex(all) == hash) return all;
    return BadInput(StrCat(name, ": has changed since it was first read"));
  };
  return picture;
}

}  // namespace

Result<std::vector<Picture>> PicturesOfCell(const std::string& path, const CellPlace& cell,
                                            const std::string& name) {
  bool list = false;
  KVG_TRY(ReadRange(path, cell.at, std::min<int64_t>(cell.bytes, 1), [&](std::string_view first) {
    list = first == "[";
    return Status();
  }));
  std::vector<CellPlace> places = {cell};
  if (list) {
    KVG_ASSIGN(places, PartsOfList(path, cell));
  }
  std::vector<Picture> pictures;
  for (const CellPlace& place : places) {
    const std::string number = StrCat("picture ", pictures.size() + 1);
    Result<Picture> picture =
        PictureOfBase64(path, place, list ? StrCat(name, ": ", number) : name);
    if (!picture.ok()) {
      return list ? picture.error().Wrap(number) : picture.error();
    }
    pictures.push_back(*std::move(picture));
  }
  return pictures;
}

Result<std::string> PathBelow(const std::string& root, const std::string& relative) {
  namespace fs = std::filesystem;
  const fs::path asked(relative);
  if (relative.empty() || relative.find('\0') != std::string::npos) {
    return BadInput(StrCat("names no file: ", Quoted(relative)));
  }
  const bool climbs =
      std::any_of(asked.begin(), asked.end(), [](const fs::path& part) { return part == ".."; });
  if (asked.is_absolute() || climbs) {
    return BadInput(StrCat("names ", Quoted(relative), ", which is not below the data directory"));
  }
  std::error_code error;
  const fs::path base = fs::weakly_canonical(root, error);
  const fs::path whole = fs::weakly_canonical(base / asked, error);
  const fs::path inside = whole.lexically_relative(base);
  if (error || inside.empty() || *inside.begin() == "..") {
    return BadInput(StrCat("names ", Quoted(relative), ", which leads out of the data directory"));
  }
  return (fs::path(root) / asked).string();
}

Result<Picture> PictureOfFile(const std::string& root, const std::string& relative) {
  KVG_ASSIGN(const std::string path, PathBelow(root, relative));
  if (!FileExists(path)) return BadInput(StrCat("names ", Quoted(path, 200), ", which is no file"));
  const auto read = [path]() -> Result<std::string> { return ReadFile(path, kMaxPictureBytes); };
  KVG_ASSIGN(const std::string bytes, read());
  if (bytes.empty()) return BadInput(StrCat("names ", Quoted(path, 200), ", which is empty"));
  Picture picture;
  picture.name = path;
  picture.hash = Sha256Hex(bytes);
  picture.load = [read, path, hash = picture.hash]() -> Result<std::string> {
    KVG_ASSIGN(std::string again, read());
    if (Sha256Hex(again) == hash) return again;
    return BadInput(StrCat(path, ": has changed since it was first read"));
  };
  return picture;
}

Result<Picture> PictureOfBytes(std::string bytes, const std::string& name) {
  if (bytes.empty()) return BadInput("holds no picture");
  Picture picture;
  picture.name = name;
  picture.hash = Sha256Hex(bytes);
  const auto held = std::make_shared<const std::string>(std::move(bytes));
  picture.load = [held]() -> Result<std::string> { return *held; };
  return picture;
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/delimited.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "core/files.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr size_t kTableChunkBytes = size_t{1} << 18;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

void AddUpTo(int64_t keep, std::string_view part, std::string* text) {
  const int64_t room = keep - static_cast<int64_t>(text->size());
  if (room > 0) text->append(part.substr(0, static_cast<size_t>(room)));
}

}  // namespace

bool IsMissingCell(std::string_view text) {
  constexpr std::array<std::string_view, 19> kMissing = {
      "",     "#N/A",   "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "-NaN",
      "-nan", "1.#IND", "1.#QNAN",  "<NA>", "N/A",     "NA",       "NULL",
      "NaN",  "None",   "n/a",      "nan",  "null"};
  return std::find(kMissing.begin(), kMissing.end(), text) != kMissing.end();
}

Result<std::unique_ptr<DelimitedReader>> DelimitedReader::Open(
    const std::string& path, char separator, const std::vector<std::string>& located,
    int64_t max_cell_bytes) {
  if (DirectoryExists(path)) return BadInput(StrCat(path, ": is a directory, expected a file"));
  std::unique_ptr<DelimitedReader> out(new DelimitedReader());
  out->path_ = path;
  out->separator_ = separator;
  out->located_ = located;
  out->max_cell_bytes_ = max_cell_bytes;
  out->file_.reset(std::fopen(path.c_str(), "rbe"));
  if (out->file_ == nullptr) return SystemError(path, "open");
  out->buffer_.resize(kTableChunkBytes);
  KVG_TRY(out->ReadHeader());
  return out;
}

bool DelimitedReader::Fill() {
  base_ += static_cast<int64_t>(filled_);
  at_ = 0;
  filled_ = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
  return filled_ > 0;
}

// Lines without a cell, or of blanks alone, are no rows.
bool DelimitedReader::SkipBlankLines() {
  while (true) {
    const int byte = Peek();
    if (byte < 0) return false;
    if (byte == '\n' || byte == '\r') {
      ++at_;
      continue;
    }
    if (byte != ' ' && (byte != '\t' || separator_ == '\t')) return true;
    // A blank: the line counts where something else follows within the buffer's reach.
    size_t next = at_;
    while (next < filled_ &&
           (buffer_[next] == ' ' || (buffer_[next] == '\t' && separator_ != '\t'))) {
      ++next;
    }
    if (next < filled_ && buffer_[next] != '\n' && buffer_[next] != '\r') return true;
    if (next == filled_ && filled_ == buffer_.size()) return true;
    at_ = next;
  }
}

bool DelimitedReader::ReadQuoted(int64_t keep, Cell* cell, CellPlace* place) {
  ++at_;
  place->quoted = true;
  place->at = Offset();
  while (true) {
    if (Peek() < 0) return false;
    const char* from = buffer_.data() + at_;
    const auto* quote = static_cast<const char*>(std::memchr(from, '"', filled_ - at_));
    const size_t plain = quote == nullptr ? filled_ - at_ : static_cast<size_t>(quote - from);
    AddUpTo(keep, {from, plain}, &cell->text);
    at_ += plain;
    if (quote == nullptr) continue;
    place->bytes = Offset() - place->at;
    ++at_;
    if (Peek() != '"') return true;
    AddUpTo(keep, "\"", &cell->text);
    ++at_;
  }
}

DelimitedReader::End DelimitedReader::ReadPlain(int64_t keep, Cell* cell, int64_t* bytes) {
  while (Peek() >= 0) {
    const size_t from = at_;
    while (at_ < filled_ && buffer_[at_] != separator_ && buffer_[at_] != '\n' &&
           buffer_[at_] != '\r') {
      ++at_;
    }
    *bytes += static_cast<int64_t>(at_ - from);
    AddUpTo(keep, {buffer_.data() + from, at_ - from}, &cell->text);
    if (at_ == filled_) continue;
    const char end = buffer_[at_++];
    if (end == separator_) return End::kCell;
    if (end == '\r' && Peek() == '\n') ++at_;
    return End::kRow;
  }
  return End::kFile;
}

Result<DelimitedReader::End> DelimitedReader::ReadCell(int64_t keep, Cell* cell, CellPlace* place) {
  if (Peek() != '"') {
    place->at = Offset();
    return ReadPlain(keep, cell, &place->bytes);
  }
  const int64_t opened = Offset();
  if (!ReadQuoted(keep, cell, place)) {
    broken_ = true;
    if (std::ferror(file_.get())) return IoError(StrCat(path_, ": cannot read"));
    return BadInput(StrCat("the quote at byte ", opened, " of the file is never closed"));
  }
  int64_t behind = 0;
  const End end = ReadPlain(keep, cell, &behind);
  // What follows the closing quote belongs to a text, but makes no picture.
  if (behind > 0) place->bytes = -1;
  return end;
}

bool DelimitedReader::IsLocated(size_t column) const {
  return column < is_located_.size() && is_located_[column];
}

Error DelimitedReader::Wrong(size_t column, std::string_view what) const {
  const std::string name =
      column < columns_.size() ? Quoted(columns_[column]) : StrCat("number ", column + 1);
  const std::string line = row_ == 0 ? "line of names" : StrCat("row ", row_);
  return BadInput(StrCat(path_, ": ", line, ": column ", name, ": ", what));
}

Result<DelimitedReader::End> DelimitedReader::ReadColumn(size_t column, Cell* cell, Status* fault) {
  const bool located = IsLocated(column);
  CellPlace place;
  const int64_t keep = located ? kShortCell + 1 : max_cell_bytes_ + 1;
  const Result<End> end = ReadCell(keep, cell, &place);
  if (!end.ok()) return Wrong(column, end.error().message);
  if (!fault->ok()) return *end;
  const int64_t bytes = std::max(place.bytes, static_cast<int64_t>(cell->text.size()));
  if (bytes > max_cell_bytes_) {
    *fault = Wrong(column, StrCat("the cell has ", HumanBytes(bytes), " or more; up to ",
                                  HumanBytes(max_cell_bytes_), " are read"));
    cell->text = std::string();
  } else if (!located || bytes <= kShortCell) {
    if (const size_t bad = FindInvalidUtf8(cell->text); bad != std::string::npos) {
      *fault = Wrong(column, StrCat("not valid UTF-8 at byte ", bad, " of the cell"));
    }
  } else if (place.bytes < 0) {
    *fault = Wrong(column, "text follows the closing quote of the cell");
  } else {
    cell->text = std::string();
    cell->place = place;
  }
  return *end;
}

Status DelimitedReader::ReadHeader() {
  for (const char byte : kByteOrderMark) {
    if (Peek() != static_cast<uint8_t>(byte)) break;
    ++at_;
  }
  if (!SkipBlankLines()) return BadInput(StrCat(path_, ": is empty, expected a line of names"));
  Status fault;
  std::unordered_set<std::string> taken;
  std::unordered_map<std::string, int64_t> next_number;  // behind a name that occurs again
  for (bool more = true; more;) {
    Cell cell;
    KVG_ASSIGN(const End end, ReadColumn(columns_.size(), &cell, &fault));
    if (!fault.ok()) return fault.error();
    std::string name = std::move(cell.text);
    if (name.empty()) name = StrCat("Unnamed: ", columns_.size());
    const std::string wanted = name;
    while (!taken.insert(name).second) name = StrCat(wanted, ".", ++next_number[wanted]);
    columns_.push_back(std::move(name));
    more = end == End::kCell;
  }
  for (const std::string& name : columns_) {
    is_located_.push_back(std::find(located_.begin(), located_.end(), name) != located_.end());
  }
  return {};
}

Result<std::optional<std::vector<Cell>>> DelimitedReader::Next() {
  if (broken_ || !SkipBlankLines()) {
    if (!broken_ && std::ferror(file_.get())) {
      broken_ = true;
      return IoError(StrCat(path_, ": cannot read"));
    }
    return std::optional<std::vector<Cell>>();
  }
  ++row_;
  std::vector<Cell> cells;
  Status fault;
  int64_t held = 0;
  for (size_t column = 0;; ++column) {
    Cell cell;
    KVG_ASSIGN(const End end, ReadColumn(column, &cell, &fault));
    held += static_cast<int64_t>(cell.text.size());
    if (fault.ok() && held > max_cell_bytes_) {
      fault = Wrong(column, StrCat("the row's texts have more than ", HumanBytes(max_cell_bytes_)));
      cells.clear();
    }
    if (fault.ok() && column < columns_.size()) cells.push_back(std::move(cell));
    if (end == End::kCell) continue;
    if (!fault.ok()) return fault.error();
    if (column + 1 != columns_.size()) {
      return Wrong(std::min(column, columns_.size() - 1),
                   StrCat("the row has ", column + 1, " cells, the header names ", columns_.size(),
                          " columns"));
    }
    return std::optional(std::move(cells));
  }
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Tables of tab- or comma-separated cells, row by row, quoted as pandas reads them: a cell that
// begins with a quote goes on to the next lone one, over line breaks, and two quotes within are
// one. Memory is bounded by one row; cells of columns that hold pictures are only located.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace kvgauge {

// Longer cells are refused, without being held.
inline constexpr int64_t kMaxCellBytes = int64_t{64} << 20;

// Where the content of a cell lies in its file, without the quotes around it.
struct CellPlace {
  int64_t at = 0;
  int64_t bytes = 0;
  bool quoted = false;  // two quotes within are one
};

struct Cell {
  std::string text;  // of a located column empty where the cell is longer than kShortCell
  std::optional<CellPlace> place;  // of a located column whose cell is longer
};

// Up to so many bytes a cell of a located column is text: it names another row.
inline constexpr int64_t kShortCell = 64;

class DelimitedReader {
 public:
  // Reads the header. `located` names columns whose cells are located; names that the header lacks
  // do no harm.
  static Result<std::unique_ptr<DelimitedReader>> Open(const std::string& path, char separator,
                                                       const std::vector<std::string>& located,
                                                       int64_t max_cell_bytes = kMaxCellBytes);

  // As pandas names them: "Unnamed: 0" without a name, "x.1" where x is taken.
  const std::vector<std::string>& columns() const { return columns_; }
  // The cells of the next row, one for each column, or nothing at the end. After an error the
  // reader stands behind the faulty row, unless broken().
  Result<std::optional<std::vector<Cell>>> Next();
  int64_t row() const { return row_; }  // of the row that Next gave last, from 1
  bool broken() const { return broken_; }

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  enum class End { kCell, kRow, kFile };

  DelimitedReader() = default;
  bool Fill();  // false: the file has ended
  int Peek() { return at_ < filled_ || Fill() ? static_cast<uint8_t>(buffer_[at_]) : -1; }
  int64_t Offset() const { return base_ + static_cast<int64_t>(at_); }
  bool SkipBlankLines();  // false: the file has ended
  // The next cell; `keep` bytes of it at most become text.
  Result<End> ReadCell(int64_t keep, Cell* cell, CellPlace* place);
  bool ReadQuoted(int64_t keep, Cell* cell, CellPlace* place);
  End ReadPlain(int64_t keep, Cell* cell, int64_t* bytes);
  Status ReadHeader();
  bool IsLocated(size_t column) const;
  Error Wrong(size_t column, std::string_view what) const;
  // The cell of that column; the row goes on where End says so.
  Result<End> ReadColumn(size_t column, Cell* cell, Status* fault);

  std::string path_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  char separator_ = '\t';
  int64_t max_cell_bytes_ = kMaxCellBytes;
  std::vector<std::string> columns_, located_;
  std::vector<bool> is_located_;
  std::vector<char> buffer_;
  size_t at_ = 0, filled_ = 0;
  int64_t base_ = 0;  // of the buffer in the file
  int64_t row_ = 0;   // 0: the header
  bool broken_ = false;
};

// Whether pandas takes the text for no value: "", "NA", "None", "nan", ...
bool IsMissingCell(std::string_view text);

}  // namespace kvgauge

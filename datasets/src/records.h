// SPDX-License-Identifier: Apache-2.0
// Reading data files record by record: one JSON object per line, the objects of one JSON array, or
// the rows of a Parquet file or of a table of tab- or comma-separated cells.
// Memory is bounded by one record, whatever the file's size.
#pragma once

#include <cstdio>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "datasets/task.h"

namespace kvgauge {

// Far above any published record (the longest documents are some 20 MB).
inline constexpr int64_t kMaxRecordBytes = int64_t{64} << 20;

inline constexpr size_t kToldFaults = 100;

enum class Container { kJsonLines, kJsonArray, kParquet, kTabs, kCommas };
// "jsonl", "json_array", "parquet", "tsv", "csv", as task files name them.
std::vector<std::string> ContainerNames();
Container ContainerFromName(std::string_view name);
// Whether a fault of a record is that of a column of a row.
bool IsTable(Container container);

namespace parquet {
class Reader;
}
class DelimitedReader;
struct CellPlace;

struct Record {
  Json value;                // an object
  std::string where;         // "data/longbench/trec.jsonl:12", for messages
  int64_t number = 0;        // of the file's records, from 1
  bool shares_line = false;  // with the element of an array before it; `where` has the number then
  bool row = false;          // of a table: its fields are columns
};

// The place of a long cell of a located column, in the cell's stead; nothing for any other value.
std::optional<CellPlace> CellPlaceOf(const Json& value);

class RecordReader {
 public:
  // `located`: columns of a table of cells whose long cells are places in the file (CellPlaceOf).
  // Cells that pandas takes for no value are null, all others text.
  static Result<std::unique_ptr<RecordReader>> Open(const std::string& path, Container container,
                                                    int64_t max_record_bytes = kMaxRecordBytes,
                                                    const std::vector<std::string>& located = {});
  // Records that are in memory already, of the file at `path`.
  static std::unique_ptr<RecordReader> OfValues(const std::string& path, std::vector<Json> values);
  ~RecordReader();
  RecordReader(const RecordReader&) = delete;
  RecordReader& operator=(const RecordReader&) = delete;

  // The next record, or nothing at the end. After an error the reader stands behind the faulty
  // record, unless broken(): then the rest of the file cannot be read.
  Result<std::optional<Record>> Next();
  bool broken() const { return broken_; }
  // Takes control characters within strings for themselves, which JSON forbids.
  void set_lenient(bool lenient) { lenient_ = lenient; }

 private:
  RecordReader(std::string path, Container container, int64_t max_record_bytes, std::FILE* file);

  int Peek();  // the next byte without taking it, or -1
  int Get();
  int SkipBlanks();  // Peek() behind white space
  Error Broken(const std::string& what);
  Error TooLong(int64_t line) const;
  Result<std::optional<Record>> NextLine();
  Result<std::optional<Record>> NextElement();
  Result<std::optional<Record>> NextRow();
  Result<std::optional<Record>> NextCells();
  Result<std::optional<Record>> NextValue();
  Result<std::optional<Record>> Parse(const std::string& text, int64_t line);

  std::string path_;
  Container container_;
  int64_t max_bytes_;
  std::FILE* file_;  // null for tables and values
  std::optional<std::vector<Json>> values_;
  std::unique_ptr<parquet::Reader> parquet_;
  std::unique_ptr<DelimitedReader> cells_;
  std::vector<char> buffer_;
  size_t at_ = 0, filled_ = 0;
  int64_t line_ = 1;
  int64_t seen_ = 0;        // records, faulty ones included
  int64_t last_line_ = 0;   // of the array's element before
  bool skip_line_ = false;  // the rest of a refused line is still to come
  bool opened_ = false;     // the array's bracket was read
  bool closed_ = false;
  bool broken_ = false;
  bool lenient_ = false;
};

// The fields of one record; every message names file, line and field, or row and column.
class Fields {
 public:
  explicit Fields(const Record& record) : record_(record) {}

  bool Has(const std::string& name) const;  // present and not null
  Result<const Json*> Get(const std::string& name) const;
  Result<std::string> Text(const std::string& name) const;
  Result<int64_t> Int(const std::string& name) const;  // >= 0
  Result<std::vector<std::string>> Texts(const std::string& name) const;
  // A fault of one field: "file:line: field 'name' <what>".
  Error Wrong(const std::string& name, std::string_view what) const;

  const std::string& where() const { return record_.where; }

 private:
  const Record& record_;
};

// "a string", "an array", ...
std::string_view KindOf(const Json& value);
// No text, or only texts of white space: answers that no prediction can meet. One blank text among
// others does no harm.
bool AllBlank(const std::vector<std::string>& texts);

// A stream over one file. `build` makes a sample of a record; a record that fails is an error, or
// with TaskOptions::skip_bad is counted and left out. Ids must not repeat.
class FileStream final : public SampleStream {
 public:
  using Build = std::function<Result<Sample>(const Record& record)>;
  FileStream(std::unique_ptr<RecordReader> reader, bool skip_bad, Build build)
      : reader_(std::move(reader)), skip_bad_(skip_bad), build_(std::move(build)) {}

  Result<std::optional<Sample>> Next() override;
  int64_t skipped() const override { return skipped_; }
  const std::vector<std::string>& faults() const override { return faults_; }

  // Takes what belongs to `first` out of `next`, the record behind it, and returns true; or changes
  // nothing and returns false.
  using Merge = std::function<bool(Record& first, const Record& next)>;
  void set_merge(Merge merge) { merge_ = std::move(merge); }
  // Whether a record is a sample. Others are passed by and not counted; a file of none is an error.
  using Filter = std::function<Result<bool>(const Record& record)>;
  void set_filter(Filter filter) { filter_ = std::move(filter); }

 private:
  Result<std::optional<Sample>> Try();
  Result<std::optional<Record>> Take();

  std::unique_ptr<RecordReader> reader_;
  Merge merge_;
  Filter filter_;
  std::string passed_by_;  // where the first such record stands; "" for none
  std::optional<Result<std::optional<Record>>> ahead_;  // read, and not of the record before
  bool skip_bad_;
  Build build_;
  int64_t skipped_ = 0;
  std::vector<std::string> faults_;  // at most kToldFaults
  std::set<std::string> ids_;
};

// `relative` below the data directory, or an error that says how to get it.
Result<std::string> DataFile(const TaskOptions& options, const std::string& relative);

// "context-" and 16 hex digits of the text's SHA-256: samples of one text fall into one group.
std::string ContextGroup(std::string_view context);

}  // namespace kvgauge

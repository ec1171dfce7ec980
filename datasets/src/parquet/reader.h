// SPDX-License-Identifier: Apache-2.0
// Parquet files, row by row as JSON objects: what the Hub publishes data sets as. Flat columns,
// groups, lists and maps; none, Snappy, Gzip and Zstd; every encoding that writers use today.
// Memory holds one page of each column and one row, whatever the file's size.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "src/parquet/column.h"
#include "src/parquet/footer.h"

namespace kvgauge::parquet {

struct Limits {
  int64_t footer_bytes = int64_t{256} << 20;
  int64_t page_bytes = int64_t{512} << 20;
  int64_t row_bytes = int64_t{256} << 20;
};

class Reader {
 public:
  static Result<std::unique_ptr<Reader>> Open(const std::string& path, const Limits& limits = {});

  int64_t rows() const { return footer_.rows; }
  // Columns of the top, in the file's order.
  std::vector<std::string> columns() const;

  // The next row, or nothing behind the last one. An error ends the file: what follows a broken
  // page cannot be found.
  //   text          a string
  //   other bytes   Json::binary
  //   whole numbers, dates, times     a number, as it is stored
  //   decimals      a number, rounded to a double
  //   lists         an array
  //   groups, maps  an object; keys of maps must be text
  Result<std::optional<Json>> Next();

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };

  Reader() = default;
  Status BeginGroup();
  // The value of `node` in the row that all columns below stand at. Repeated nodes give arrays.
  Result<Json> Assemble(const Node& node);
  Result<Json> AssembleOne(const Node& node);  // without its repetition
  Result<Json> AssembleList(const Node& node);
  Result<Json> AssembleMap(const Node& node);
  Result<Json> AssembleLeaf(const Node& node);
  // Takes the one entry that every column below has in place of what is not there.
  Status TakeNothing(const Node& node);
  Result<Levels> LevelsAt(const Node& node);  // of its first column
  const Node& At(int32_t node) const { return footer_.schema.nodes[static_cast<size_t>(node)]; }
  Status Charge(size_t bytes);

  std::string path_;
  Limits limits_;
  std::unique_ptr<std::FILE, CloseFile> file_;
  Footer footer_;
  std::vector<std::unique_ptr<ColumnReader>> columns_;  // of the row group, by leaf
  size_t group_ = 0;
  int64_t row_ = 0, group_left_ = 0, row_bytes_ = 0;
  bool broken_ = false;
};

}  // namespace kvgauge::parquet

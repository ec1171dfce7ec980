// SPDX-License-Identifier: Apache-2.0
// One column of one row group: its pages are read one after the other, so that memory holds one
// page and one dictionary.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "src/parquet/footer.h"
#include "src/parquet/value_decoders.h"

namespace kvgauge::parquet {

// How deep and how new a value is: what Parquet calls definition and repetition level.
struct Levels {
  int32_t definition = 0, repetition = 0;
};

class ColumnReader {
 public:
  // `file` and `leaf` must outlive the reader. `name` and `path` stand in messages.
  ColumnReader(std::FILE* file, std::string path, std::string name, const Node& leaf,
               const ColumnChunk& chunk, int64_t max_page_bytes);

  // Where the next entry stands; nothing behind the last one.
  Result<std::optional<Levels>> Peek();
  // Takes the entry. `value` is set where its definition is the leaf's; its text is valid until
  // the next call. Precondition: Peek gave one.
  Status Take(Value* value);

  const std::string& name() const { return name_; }
  Error Wrong(std::string_view what) const;

 private:
  struct PageHeader;

  Status NextPage();
  Result<PageHeader> ReadHeader();
  Status ReadBytes(int64_t at, std::vector<uint8_t>& into) const;
  Status Unpack(std::vector<uint8_t>&& packed, int64_t size, std::vector<uint8_t>& into) const;
  Status BeginData(const PageHeader& header, std::vector<uint8_t>&& packed);
  Result<HybridDecoder> LevelsOf(Bytes& bytes, int32_t most, int64_t encoding) const;

  std::FILE* file_;
  std::string path_, name_;
  const Node& leaf_;
  ColumnChunk chunk_;
  int64_t max_page_bytes_;
  int64_t at_, end_;     // bytes of the file
  int64_t values_left_;  // of the chunk, nulls included
  int64_t page_left_ = 0;
  std::vector<uint8_t> page_, dictionary_bytes_;
  std::optional<Dictionary> dictionary_;
  HybridDecoder definitions_, repetitions_;
  std::unique_ptr<ValueDecoder> values_;
  std::optional<Levels> ahead_;
};

}  // namespace kvgauge::parquet

// SPDX-License-Identifier: Apache-2.0
// What a Parquet file says of itself: the tree of its columns and where their pages lie.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"

namespace kvgauge::parquet {

// The numbers below are the format's own.
enum class Physical : int32_t {
  kBoolean = 0,
  kInt32 = 1,
  kInt64 = 2,
  kInt96 = 3,
  kFloat = 4,
  kDouble = 5,
  kByteArray = 6,
  kFixedBytes = 7,
};

enum class Codec : int32_t {
  kNone = 0,
  kSnappy = 1,
  kGzip = 2,
  kLzo = 3,
  kBrotli = 4,
  kLz4 = 5,
  kZstd = 6,
  kLz4Raw = 7,
};

// What a node of the tree is, beyond how it is stored.
enum class Meaning { kPlain, kText, kUnsigned, kDecimal, kFloat16, kList, kMap };

struct Node {
  std::string name;
  Meaning meaning = Meaning::kPlain;
  bool optional = false, repeated = false;
  int32_t definition = 0, repetition = 0;  // the levels of what is there
  std::vector<int32_t> children;           // none: a leaf
  std::vector<int32_t> leaves;             // below it, or itself; indices of Schema::leaves
  // A leaf only.
  Physical physical = Physical::kBoolean;
  int32_t width = 0;  // bytes of kFixedBytes
  int32_t scale = 0;  // digits behind the point of kDecimal
};

// Nodes in the order of the file: the root first, each before its children.
struct Schema {
  std::vector<Node> nodes;
  std::vector<int32_t> leaves;     // nodes
  std::vector<std::string> paths;  // of leaves: "image.bytes"
};

struct ColumnChunk {
  Codec codec = Codec::kNone;
  int64_t values = 0;  // with nulls
  int64_t first_byte = 0, bytes = 0;
};

struct RowGroup {
  int64_t rows = 0;
  std::vector<ColumnChunk> columns;  // one for each leaf
};

struct Footer {
  Schema schema;
  int64_t rows = 0;
  std::vector<RowGroup> groups;
};

// `bytes`: the footer alone. `file_bytes`: the size of the file, which every chunk must lie within.
// Messages begin with `path`.
Result<Footer> ReadFooter(std::span<const uint8_t> bytes, int64_t file_bytes,
                          const std::string& path);

}  // namespace kvgauge::parquet

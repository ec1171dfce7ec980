// SPDX-License-Identifier: Apache-2.0
// The encodings of a page: levels and values, one after the other, never a whole page expanded.
// Bytes are not trusted: a fault is a false or an empty optional, and the caller names the column.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/parquet/footer.h"

namespace kvgauge::parquet {

using Bytes = std::span<const uint8_t>;

// Unsigned little-endian bit fields, lowest bits first.
uint64_t ReadBits(Bytes bytes, uint64_t first_bit, int32_t width);

// Runs of one value and bit-packed groups of eight, mixed: levels, dictionary indices, booleans.
class HybridDecoder {
 public:
  HybridDecoder() = default;
  // `width` bits a value, 0 to 32.
  HybridDecoder(Bytes bytes, int32_t width) : bytes_(bytes), width_(width) {}
  std::optional<uint32_t> Next();

 private:
  bool NextRun();

  Bytes bytes_;
  size_t at_ = 0;
  int32_t width_ = 0;
  uint64_t left_ = 0;  // of the run
  bool packed_ = false;
  uint64_t bit_ = 0;  // of the packed run, from its first byte
  size_t packed_at_ = 0;
  uint32_t value_ = 0;
};

// Differences in blocks: DELTA_BINARY_PACKED.
class DeltaDecoder {
 public:
  DeltaDecoder() = default;
  explicit DeltaDecoder(Bytes bytes);
  std::optional<int64_t> Next();
  uint64_t count() const { return count_; }  // what the header promises
  bool ok() const { return !failed_; }
  // Where the bytes behind the last block begin. Precondition: all values were taken.
  size_t end() const { return at_; }

 private:
  std::optional<uint64_t> Varint();
  bool NextBlock();
  bool NextMiniblock();

  Bytes bytes_;
  size_t at_ = 0;
  bool failed_ = true;
  uint64_t count_ = 0, given_ = 0;
  uint64_t block_values_ = 0, miniblocks_ = 0, per_miniblock_ = 0;
  uint64_t miniblock_ = 0, in_miniblock_ = 0;
  Bytes widths_;
  size_t packed_at_ = 0;
  int32_t width_ = 0;
  uint64_t last_ = 0, least_ = 0;
};

// One value of a leaf, as it is stored.
struct Value {
  int64_t integer = 0;    // booleans, kInt32 (sign-extended), kInt64
  double real = 0;        // kFloat, kDouble
  std::string_view text;  // byte arrays and kInt96; valid until the next value
};

class ValueDecoder {
 public:
  virtual ~ValueDecoder() = default;
  virtual bool Next(Value* value) = 0;
};

// Numbers of parquet.thrift.
enum class Encoding : int32_t {
  kPlain = 0,
  kPlainDictionary = 2,
  kRle = 3,
  kBitPacked = 4,
  kDeltaBinaryPacked = 5,
  kDeltaLengthByteArray = 6,
  kDeltaByteArray = 7,
  kRleDictionary = 8,
  kByteStreamSplit = 9,
};

// The values of a dictionary page, which later pages point at. `bytes` must outlive it.
class Dictionary {
 public:
  static std::optional<Dictionary> Read(const Node& leaf, Bytes bytes, int64_t count);
  const Value* At(uint32_t index) const {
    return index < values_.size() ? &values_[index] : nullptr;
  }

 private:
  std::vector<Value> values_;
};

// The values of a page of `count` of them, nulls left out; null for an encoding that is unknown or
// does not go with the type. `bytes` and `dictionary` must outlive the decoder.
std::unique_ptr<ValueDecoder> MakeValueDecoder(const Node& leaf, Encoding encoding, Bytes bytes,
                                               int64_t count, const Dictionary* dictionary);

}  // namespace kvgauge::parquet

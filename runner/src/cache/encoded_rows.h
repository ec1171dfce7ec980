// SPDX-License-Identifier: Apache-2.0
// What an encoder made of the beginning of a prompt: a row for each token that it read, to which
// layers of the decoder attend. Rows are keys and values at once, of one KV head that all query
// heads share. They lie in pages of a pool; copies of a cache share them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "src/cache/blocks.h"

namespace kvgauge {

class EncodedRows {
 public:
  EncodedRows(DType dtype, int64_t width, BlockPool& pool)
      : format_{.dtype = dtype, .key_dim = width, .value_dim = width}, pool_(&pool), pages_(pool) {
    segment_.values_in_keys = true;
  }
  EncodedRows(const EncodedRows&) = delete;
  EncodedRows& operator=(const EncodedRows&) = delete;

  // [n, width] f32, which are rounded to the rows' type. After an error as before.
  Status Append(const Tensor& rows);

  int64_t tokens() const { return segment_.length; }
  const KvFormat& format() const { return format_; }
  // As attention takes it; valid until the next Append.
  KvHead head() const { return {&segment_, 1}; }
  // As allocated: rows, and what their pages have beyond these.
  void AddBytes(KvBytes& bytes) const;

  void Serialize(std::string& out) const;
  // From untrusted bytes, which are taken from the front. Precondition: there are no rows yet.
  Status Deserialize(std::string_view& in);

 private:
  KvFormat format_;
  BlockPool* pool_;
  BlockList pages_;
  KvSegment segment_;
};

}  // namespace kvgauge

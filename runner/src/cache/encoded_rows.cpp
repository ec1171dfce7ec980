// SPDX-License-Identifier: Apache-2.0
#include "src/cache/encoded_rows.h"

#include <cmath>
#include <vector>

#include "src/cache/bytes.h"

namespace kvgauge {

Status EncodedRows::Append(const Tensor& rows) {
  AttentionOps& attention = *pool_->ops().attention;
  const int64_t count = rows.shape[0], end = segment_.length + count;
  const int64_t pages = (end + kKvPageEntries - 1) / kKvPageEntries;
  while (pages_.size() < pages) KVG_TRY(pages_.Push(attention.KeyPageBytes(format_)));
  segment_.key_pages = pages_.data();
  const KvTarget target = {.key_pages = pages_.data(), .first_entry = segment_.length};
  attention.WriteKv(format_, rows.Reshape({count, 1, format_.key_dim}), {}, {&target, 1});
  segment_.length = end;
  return {};
}

void EncodedRows::AddBytes(KvBytes& bytes) const {
  const int64_t payload = segment_.length * format_.key_dim * SizeOf(format_.dtype);
  bytes.payload += payload;
  bytes.slack += pool_->BytesOf({pages_.data(), static_cast<size_t>(pages_.size())}) - payload;
}

// As f32, to which no row's type loses anything.
void EncodedRows::Serialize(std::string& out) const {
  MemoryOps& memory = *pool_->ops().memory;
  const int64_t count = segment_.length, width = format_.key_dim;
  std::vector<float> rows(static_cast<size_t>(count * width));
  const Buffer copy = memory.Allocate(count * width * SizeOf(DType::kF32));
  const Tensor wide = copy.As(DType::kF32, {count, width});
  pool_->ops().attention->ReadKv(format_, segment_, 0, wide, {});
  memory.Copy(wide, View(rows, {count, width}));
  PutArray(out, rows);
}

Status EncodedRows::Deserialize(std::string_view& in) {
  std::vector<float> rows;
  KVG_TRY(TakeArray(in, &rows));
  const int64_t numbers = std::ssize(rows), width = format_.key_dim;
  if (numbers == 0 || numbers % width != 0) {
    return BadInput(StrCat("cache bytes: rows of an encoder have ", numbers,
                           " numbers; expected a multiple of ", width));
  }
  for (const float number : rows) {
    if (!std::isfinite(number)) {
      return BadInput(
          StrCat("cache bytes: a row of an encoder has ", number, "; expected finite numbers"));
    }
  }
  MemoryOps& memory = *pool_->ops().memory;
  const Buffer copy = memory.Allocate(numbers * SizeOf(DType::kF32));
  const Tensor wide = copy.As(DType::kF32, {numbers / width, width});
  memory.Copy(View(rows, {numbers / width, width}), wide);
  return Append(wide);
}

}  // namespace kvgauge

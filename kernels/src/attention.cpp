// SPDX-License-Identifier: Apache-2.0
// The checks every backend relies on, made once here.
#include "kernels/attention.h"

#include <algorithm>
#include <vector>

namespace kvgauge {
namespace {

void CheckFormat(const KvFormat& format) {
  KVG_CHECK(IsFloat(format.dtype), "cache dtype is not a float type");
  KVG_CHECK(format.key_dim > 0 && format.value_dim > 0, "head dims must be positive");
}

// f32 of the given rank whose innermost dimension is contiguous.
void CheckF32(const Tensor& t, int rank, const char* what) {
  KVG_CHECK(t.dtype == DType::kF32 && t.rank == rank, what);
  KVG_CHECK(t.shape[rank - 1] <= 1 || t.stride[rank - 1] == 1, what);
}

void CheckShape(const AttentionShape& shape) {
  CheckFormat(shape.format);
  KVG_CHECK(shape.kv_heads > 0 && shape.query_heads > 0, "no heads");
  KVG_CHECK(shape.query_heads % shape.kv_heads == 0, "query heads not a multiple of kv heads");
  KVG_CHECK(shape.softcap >= 0 && shape.window >= 0, "negative softcap or window");
  KVG_CHECK(!shape.chunked || shape.window > 0, "chunks of no size");
  if (shape.sinks.empty()) return;
  CheckF32(shape.sinks, 1, "sinks must be f32 [query_heads]");
  KVG_CHECK(shape.sinks.shape[0] == shape.query_heads, "sinks must be f32 [query_heads]");
}

void CheckRows(const Tensor& t, int64_t heads, int64_t dim, const char* what) {
  CheckF32(t, 3, what);
  KVG_CHECK(t.shape[1] == heads && t.shape[2] == dim, what);
}

void CheckCoded(const KvCoded& stream, KvSide side, int64_t dim, int64_t length) {
  KVG_CHECK(stream.entries >= 0 && stream.entries <= length, "more coded entries than entries");
  if (stream.entries == 0) return;
  KVG_CHECK(stream.codec != nullptr && stream.codec->coded(), "coded entries without a codec");
  KVG_CHECK(stream.codec->side == side, "a codec of the other side");
  KVG_CHECK(stream.codec->dim == dim, "a codec of another dim");
}

void CheckSegment(const AttentionShape& shape, const KvSegment& segment) {
  const KvFormat& format = shape.format;
  KVG_CHECK(segment.length >= 0, "negative length");
  KVG_CHECK(segment.skip >= 0 && segment.skip < kKvPageEntries, "a page or more is skipped");
  KVG_CHECK(segment.skip == 0 || (segment.keys.entries == 0 && segment.values.entries == 0 &&
                                  segment.bias == nullptr && segment.key_scale == nullptr &&
                                  segment.value_scale == nullptr && segment.positions == nullptr),
            "slots are skipped before coded entries, or entries with arrays");
  int64_t stored_key_dim = format.key_dim, stored_value_dim = format.value_dim;
  if (!segment.key_basis.empty()) {
    CheckF32(segment.key_basis, 2, "key_basis must be f32 [key_dim, latent dim]");
    KVG_CHECK(segment.key_basis.shape[0] == format.key_dim, "key_basis is not [key_dim, latent]");
    stored_key_dim = segment.key_basis.shape[1];
  }
  if (!segment.value_basis.empty()) {
    CheckF32(segment.value_basis, 2, "value_basis must be f32 [value_dim, latent dim]");
    KVG_CHECK(segment.value_basis.shape[0] == format.value_dim,
              "value_basis is not [value_dim, latent]");
    stored_value_dim = segment.value_basis.shape[1];
  }
  KVG_CHECK(!segment.values_in_keys || stored_value_dim <= stored_key_dim,
            "values in keys that are shorter");
  CheckCoded(segment.keys, KvSide::kKeys, stored_key_dim, segment.length);
  CheckCoded(segment.values, KvSide::kValues, stored_value_dim, segment.length);
  if (segment.rotation == nullptr) return;
  KVG_CHECK(shape.rope != nullptr, "a segment is rotated when read, but there is no table");
  CheckF32(shape.rope->cos, 2, "rope tables must be f32 [pairs, positions]");
  CheckF32(shape.rope->sin, 2, "rope tables must be f32 [pairs, positions]");
  KVG_CHECK(shape.rope->cos.shape == shape.rope->sin.shape, "rope tables of different shapes");
  KVG_CHECK(2 * shape.rope->cos.shape[0] <= format.key_dim, "more rotated dims than key_dim");
}

void CheckAhead(const AttentionItem& item) {
  if (item.ahead.empty()) return;
  KVG_CHECK(item.first_position != kSeesAll, "rows that see all look ahead");
  KVG_CHECK(std::ssize(item.ahead) == item.rows, "one number of entries ahead for each row");
  int64_t before = 0;
  for (int64_t i = 0; i < item.rows; ++i) {
    const int64_t last = i + item.ahead[static_cast<size_t>(i)];
    KVG_CHECK(last >= before && last >= i && last < item.rows, "rows see ahead of each other");
    before = last;
  }
}

void CheckItem(const AttentionShape& shape, const AttentionItem& item, int64_t total_rows) {
  KVG_CHECK(item.rows >= 0 && item.first_row >= 0 && item.first_row + item.rows <= total_rows,
            "item rows outside q");
  KVG_CHECK(static_cast<int64_t>(item.heads.size()) == shape.kv_heads, "item heads != kv_heads");
  KVG_CHECK(item.first_position != kSeesAll || shape.window == 0, "a window, yet rows see all");
  CheckAhead(item);
  for (const KvHead& head : item.heads) {
    for (int64_t s = 0; s < head.count; ++s) {
      CheckSegment(shape, head.segments[s]);
      KVG_CHECK(item.first_position == kEndAligned || head.segments[s].positions == nullptr,
                "positions go with rows that are aligned at the end");
    }
    if (item.first_position == kEndAligned || item.first_position == kSeesAll) continue;
    KVG_CHECK(item.first_position + item.rows <= head.length(),
              "a head holds fewer entries than its rows see");
  }
}

// Rows of keys and values as f32 [n, dim]; either may be empty.
int64_t EntryRows(const KvFormat& format, const Tensor& keys, const Tensor& values) {
  int64_t n = 0;
  if (!keys.empty()) {
    CheckF32(keys, 2, "keys must be f32 [n, key_dim]");
    KVG_CHECK(keys.shape[1] == format.key_dim, "keys must be f32 [n, key_dim]");
    n = keys.shape[0];
  }
  if (!values.empty()) {
    CheckF32(values, 2, "values must be f32 [n, value_dim]");
    KVG_CHECK(values.shape[1] == format.value_dim, "values must be f32 [n, value_dim]");
    KVG_CHECK(keys.empty() || values.shape[0] == n, "keys and values of different lengths");
    n = values.shape[0];
  }
  return n;
}

void CheckIndex(const Tensor& index, int64_t entries) {
  KVG_CHECK(index.dtype == DType::kI32 && index.rank == 1 && index.IsContiguous(),
            "index must be i32 [n]");
  if (index.device != Device::kHost) return;
  for (int64_t i = 0; i < index.shape[0]; ++i) {
    KVG_CHECK(index.i32()[i] >= 0 && index.i32()[i] < entries, "entries outside the segment");
  }
}

void CheckPerRow(const Tensor& t, int64_t heads, int64_t rows, const char* what) {
  CheckF32(t, 2, what);
  KVG_CHECK(t.shape[0] == heads && t.shape[1] == rows, what);
}

void CheckColumns(const AttentionItem& item, int64_t columns) {
  if (item.first_position != kEndAligned && item.first_position != kSeesAll) {
    KVG_CHECK(item.first_position + item.rows <= columns, "out has too few columns");
    return;
  }
  for (const KvHead& head : item.heads) {
    KVG_CHECK(head.length() <= columns, "out has too few columns");
  }
}

// Rows [begin, end) of what is [heads, rows]; nothing of nothing.
Tensor SomeRows(const Tensor& t, int64_t begin, int64_t end) {
  if (t.empty()) return t;
  Tensor some = t;
  some.data = t.f32() + begin * t.stride[1];
  some.shape[1] = end - begin;
  return some;
}

}  // namespace

void AttentionOps::WriteKv(const KvFormat& format, const Tensor& keys, const Tensor& values,
                           std::span<const KvTarget> heads) {
  CheckFormat(format);
  const int64_t kv_heads = static_cast<int64_t>(heads.size());
  if (!keys.empty()) {
    CheckRows(keys, kv_heads, format.key_dim, "keys must be f32 [n, kv_heads, key_dim]");
  }
  if (!values.empty()) {
    CheckRows(values, kv_heads, format.value_dim, "values must be f32 [n, kv_heads, value_dim]");
  }
  KVG_CHECK(keys.empty() || values.empty() || keys.shape[0] == values.shape[0],
            "keys and values of different lengths");
  for (const KvTarget& head : heads) KVG_CHECK(head.first_entry >= 0, "negative entry");
  if ((keys.empty() ? values : keys).shape[0] > 0) DoWriteKv(format, keys, values, heads);
}

void AttentionOps::ReadKv(const KvFormat& format, const KvSegment& segment, int64_t first_entry,
                          Tensor keys, Tensor values) {
  CheckFormat(format);
  KVG_CHECK(segment.skip == 0, "entries are read by slot");
  const int64_t n = EntryRows(format, keys, values);
  KVG_CHECK(first_entry >= 0 && first_entry + n <= segment.length, "entries outside the segment");
  if (n > 0) DoReadKv(format, segment, first_entry, keys, values);
}

void AttentionOps::GatherKv(const KvFormat& format, const KvSegment& segment, const Tensor& index,
                            Tensor keys, Tensor values) {
  CheckFormat(format);
  KVG_CHECK(segment.skip == 0, "entries are read by slot");
  CheckIndex(index, segment.length);
  KVG_CHECK(EntryRows(format, keys, values) == index.shape[0], "a row for each index");
  if (index.shape[0] > 0) DoGatherKv(format, segment, index, keys, values);
}

void AttentionOps::CopyKv(const KvFormat& format, const KvSegment& from, const Tensor& index,
                          const KvTarget& to) {
  CheckFormat(format);
  KVG_CHECK(from.skip == 0, "entries are copied by slot");
  CheckIndex(index, from.length);
  KVG_CHECK(to.first_entry >= 0, "negative entry");
  if (index.shape[0] > 0) DoCopyKv(format, from, index, to);
}

void AttentionOps::Attend(const AttentionShape& shape, std::span<const AttentionItem> items,
                          const Tensor& q, Tensor out, const AttentionCapture& capture) {
  CheckShape(shape);
  CheckRows(q, shape.query_heads, shape.format.key_dim, "q must be f32 [rows, heads, key_dim]");
  CheckRows(out, shape.query_heads, shape.format.value_dim,
            "out must be f32 [rows, heads, value_dim]");
  KVG_CHECK(out.shape[0] == q.shape[0], "out and q of different lengths");
  for (const AttentionItem& item : items) CheckItem(shape, item, q.shape[0]);
  for (const Tensor& t : {capture.log_sum_exp, capture.entropy}) {
    if (!t.empty()) CheckPerRow(t, shape.query_heads, q.shape[0], "capture is not [heads, rows]");
  }
  for (const AttentionItem& item : items) {
    if (item.column_sums.empty()) continue;
    CheckF32(item.column_sums, 2, "column_sums must be f32 [heads, columns]");
    KVG_CHECK(item.column_sums.shape[0] == shape.query_heads,
              "column_sums is not [heads, columns]");
    KVG_CHECK(!capture.log_sum_exp.empty(), "column_sums without log_sum_exp");
    CheckColumns(item, item.column_sums.shape[1]);
  }
  if (shape.sinks.empty()) {
    DoAttend(shape, items, q, out, capture);
  } else {
    AttendWithSinks(shape, items, q, out, capture);
  }
  for (const AttentionItem& item : items) {
    if (item.column_sums.empty()) continue;
    if (shape.sinks.empty() && SumsColumns(item, capture)) continue;
    ColumnRequest request;
    request.rows = item.rows;
    ReduceColumns(shape, item, q, capture.log_sum_exp, request, item.column_sums);
  }
}

// Sums of columns need the sinks' share of each row, which is known when all entries are.
void AttentionOps::AttendWithSinks(const AttentionShape& shape,
                                   std::span<const AttentionItem> items, const Tensor& q,
                                   Tensor out, const AttentionCapture& capture) {
  KVG_CHECK(!capture.log_sum_exp.empty(), "sinks without log_sum_exp");
  AttentionShape plain = shape;
  plain.sinks = {};
  std::vector<AttentionItem> unsummed(items.begin(), items.end());
  for (AttentionItem& item : unsummed) item.column_sums = {};
  DoAttend(plain, unsummed, q, out, capture);
  // Rows of neighbours together.
  for (size_t i = 0; i < items.size();) {
    const int64_t begin = items[i].first_row;
    int64_t end = begin;
    for (; i < items.size() && items[i].first_row == end; ++i) end += items[i].rows;
    AddSinks(shape.sinks, out.Slice(begin, end), SomeRows(capture.log_sum_exp, begin, end),
             SomeRows(capture.entropy, begin, end));
  }
}

void AttentionOps::AddSinks(const Tensor& sinks, Tensor out, Tensor log_sum_exp, Tensor entropy) {
  CheckF32(out, 3, "out must be f32 [rows, heads, value_dim]");
  const int64_t rows = out.shape[0], heads = out.shape[1];
  CheckF32(sinks, 1, "sinks must be f32 [heads]");
  KVG_CHECK(sinks.shape[0] == heads, "sinks must be f32 [heads]");
  CheckPerRow(log_sum_exp, heads, rows, "log_sum_exp is not [heads, rows]");
  if (!entropy.empty()) CheckPerRow(entropy, heads, rows, "entropy is not [heads, rows]");
  if (rows > 0) DoAddSinks(sinks, out, log_sum_exp, entropy);
}

void AttentionOps::WindowProbabilities(const AttentionShape& shape, const AttentionItem& item,
                                       const Tensor& q, const Tensor& log_sum_exp, Tensor out) {
  CheckShape(shape);
  CheckRows(q, shape.query_heads, shape.format.key_dim, "q must be f32 [rows, heads, key_dim]");
  CheckItem(shape, item, q.shape[0]);
  CheckPerRow(log_sum_exp, shape.query_heads, q.shape[0], "log_sum_exp is not [heads, rows]");
  CheckF32(out, 3, "out must be f32 [heads, rows, columns]");
  KVG_CHECK(out.shape[0] == shape.query_heads && out.shape[1] == item.rows,
            "out must be [heads, rows, columns]");
  CheckColumns(item, out.shape[2]);
  if (out.Numel() > 0) DoWindowProbabilities(shape, item, q, log_sum_exp, out);
}

void AttentionOps::ReduceColumns(const AttentionShape& shape, const AttentionItem& item,
                                 const Tensor& q, const Tensor& log_sum_exp,
                                 const ColumnRequest& request, Tensor out) {
  CheckShape(shape);
  CheckRows(q, shape.query_heads, shape.format.key_dim, "q must be f32 [rows, heads, key_dim]");
  CheckItem(shape, item, q.shape[0]);
  CheckPerRow(log_sum_exp, shape.query_heads, q.shape[0], "log_sum_exp is not [heads, rows]");
  KVG_CHECK(
      request.rows >= 0 && request.first_row >= 0 && request.first_row + request.rows <= item.rows,
      "requested rows outside the item");
  if (!request.row_weights.empty()) {
    CheckF32(request.row_weights, 1, "row_weights must be f32 [rows]");
    KVG_CHECK(request.row_weights.shape[0] == request.rows, "row_weights must be f32 [rows]");
  }
  CheckF32(out, 2, "out must be f32 [heads, columns]");
  KVG_CHECK(out.shape[0] == shape.query_heads, "out must be [heads, columns]");
  CheckColumns(item, out.shape[1]);
  if (out.Numel() > 0) DoReduceColumns(shape, item, q, log_sum_exp, request, out);
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Attention of query rows over the cached entries of each KV head, and what can be captured of it.
//
// Cached entries live in pages of kKvPageEntries entries of ONE KV head. A page's inner layout
// belongs to the backend: write with WriteKv, read with ReadKv. The memory comes from the caller.
//
// One call serves prefill and decode. The order of every sum is fixed by the entries a row may see:
// entries are taken in spans of kAttentionSpan counted from entry 0, each span yields a partial
// softmax state (max, sum, weighted values), and states are merged in ascending order. So a row
// gets the same bits in a whole prefill, in any chunk of it, alone, or in a batch. Entries a row
// does not see add exact zeros; so entries must be finite, or they may reach such rows as NaN.
//
// The softmax sum, log-sum-exp and everything captured come from unrounded f32 probabilities. The
// weights of the value product may be rounded to a bf16 cache's type, as matrix units need it.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/tensor.h"

namespace kvgauge {

inline constexpr int64_t kKvPageEntries = 64;
inline constexpr int64_t kAttentionSpan = 512;
// AttentionItem::first_position: each head's rows end at its own last entry.
inline constexpr int64_t kEndAligned = INT64_MIN;

// What the pages of one KV head hold.
struct KvFormat {
  DType dtype = DType::kF32;  // f32, f16 or bf16
  int64_t key_dim = 0;
  int64_t value_dim = 0;
};

// The entries of one KV head: page p holds entries [64 p, 64 p + 64). Pages of one list are not
// contiguous with each other. Unwritten entries of the last page must hold zero bytes.
struct KvList {
  void* const* key_pages = nullptr;
  void* const* value_pages = nullptr;
  int64_t length = 0;  // entries
};

// Query rows that attend over one sequence's cache.
struct AttentionItem {
  int64_t first_row = 0;  // rows [first_row, first_row + rows) of q and out
  int64_t rows = 0;
  // Row first_row + i sees entries j <= first_position + i. kEndAligned: j <= length - rows + i,
  // by the length of each head, so that heads may hold different numbers of entries.
  int64_t first_position = 0;
  std::span<const KvList> heads;  // [kv_heads]

  int64_t FirstPosition(const KvList& head) const {
    return first_position == kEndAligned ? head.length - rows : first_position;
  }
};

struct AttentionShape {
  KvFormat format;
  int64_t query_heads = 0;  // query head h reads KV head h / (query_heads / kv_heads)
  int64_t kv_heads = 0;
  float scale = 1.0f;
  float softcap = 0.0f;  // scores become cap * tanh(score * scale / cap); 0: off
  int64_t window = 0;    // > 0: row at position p also needs j > p - window; 0: no window
};

// Optional results beside the output; empty tensors are not computed.
struct AttentionCapture {
  Tensor log_sum_exp;  // [query_heads, total rows] f32: natural log of the softmax denominator
  Tensor entropy;      // [query_heads, total rows] f32: of the row's distribution, in nats
};

// What the second pass sums for each entry j over the chosen query rows i; P is the attention
// probability, w the row weight (1 when no weights are given).
enum class ColumnReduction {
  kSum,         // sum of w P
  kSumSquares,  // sum of w P^2
  kMax,         // max of w P
  kCountAbove,  // sum of w [P >= threshold]
};

struct ColumnRequest {
  ColumnReduction kind = ColumnReduction::kSum;
  float threshold = 0.0f;  // kCountAbove
  int64_t first_row = 0;   // of the item: only rows [first_row, first_row + rows)
  int64_t rows = 0;
  Tensor row_weights;  // [rows] f32 or empty
};

class AttentionOps {
 public:
  virtual ~AttentionOps() = default;

  // Bytes of one page of keys / of values.
  virtual int64_t KeyPageBytes(const KvFormat& format) const = 0;
  virtual int64_t ValuePageBytes(const KvFormat& format) const = 0;

  // Stores entries [first_entry, first_entry + n) of every head, nothing else. keys: [n, kv_heads,
  // key_dim], values: [n, kv_heads, value_dim], f32, strided over n and heads; rounded to
  // format.dtype. Pages must exist; KvList::length is not read.
  void WriteKv(const KvFormat& format, const Tensor& keys, const Tensor& values,
               int64_t first_entry, std::span<const KvList> heads);
  // Decodes entries [first_entry, first_entry + n) of one head to f32: keys [n, key_dim], values
  // [n, value_dim]; either may be empty.
  void ReadKv(const KvFormat& format, const KvList& head, int64_t first_entry, Tensor keys,
              Tensor values);

  // q: [total rows, query_heads, key_dim] f32 (rounded to format.dtype before use); out: [total
  // rows, query_heads, value_dim] f32. Both may be strided over rows. Every item's heads hold at
  // least first_position + rows entries. A row that sees no entry gets 0 and log_sum_exp -inf.
  void Attend(const AttentionShape& shape, std::span<const AttentionItem> items, const Tensor& q,
              Tensor out, const AttentionCapture& capture = {});

  // Attention probabilities of all of one item's rows over every entry: out [query_heads,
  // item.rows, columns] f32, innermost contiguous; 0 where a row does not see the entry or the head
  // does not hold it. columns >= first_position + rows. For the last few query rows; memory is the
  // caller's. log_sum_exp is what Attend captured for the same rows of q.
  void WindowProbabilities(const AttentionShape& shape, const AttentionItem& item, const Tensor& q,
                           const Tensor& log_sum_exp, Tensor out);

  // Streamed second pass: per-entry reductions of the attention probabilities, without ever
  // holding them. log_sum_exp as above. out: [query_heads, columns] f32, columns >=
  // first_position + item.rows; 0 where no row sees the entry. Rows are folded in ascending order,
  // starting from 0.
  void ReduceColumns(const AttentionShape& shape, const AttentionItem& item, const Tensor& q,
                     const Tensor& log_sum_exp, const ColumnRequest& request, Tensor out);

  // Merges two normalised partial results over disjoint entries into (out_a, lse_a). out_*: [n, d]
  // f32; lse_*: [n] f32; an lse of -inf stands for "saw nothing".
  void MergeStates(const Tensor& out_b, const Tensor& lse_b, Tensor out_a, Tensor lse_a);

 private:
  virtual void DoWriteKv(const KvFormat& format, const Tensor& keys, const Tensor& values,
                         int64_t first_entry, std::span<const KvList> heads) = 0;
  virtual void DoReadKv(const KvFormat& format, const KvList& head, int64_t first_entry,
                        Tensor keys, Tensor values) = 0;
  virtual void DoAttend(const AttentionShape& shape, std::span<const AttentionItem> items,
                        const Tensor& q, Tensor out, const AttentionCapture& capture) = 0;
  virtual void DoWindowProbabilities(const AttentionShape& shape, const AttentionItem& item,
                                     const Tensor& q, const Tensor& log_sum_exp, Tensor out) = 0;
  virtual void DoReduceColumns(const AttentionShape& shape, const AttentionItem& item,
                               const Tensor& q, const Tensor& log_sum_exp,
                               const ColumnRequest& request, Tensor out) = 0;
  virtual void DoMergeStates(const Tensor& out_b, const Tensor& lse_b, Tensor out_a,
                             Tensor lse_a) = 0;
};

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Attention of query rows over the cached entries of each KV head, and what can be captured of it.
//
// Cached entries live in pages of kKvPageEntries entries of ONE KV head. A page's inner layout
// belongs to the backend: write with WriteKv, read with ReadKv. The memory comes from the caller.
//
// One call serves prefill and decode. The order of every sum is fixed by the entries a row may see:
// each segment's entries are taken in spans of kAttentionSpan counted from its entry 0, each span
// yields a partial softmax state (max, sum, weighted values), and states are merged in ascending
// order. So a row gets the same bits in a whole prefill, in any chunk of it, alone, or in a batch.
// Entries a row does not see add exact zeros; so entries must be finite, or they may reach such
// rows as NaN.
//
// The softmax sum, log-sum-exp and everything captured come from unrounded f32 probabilities. The
// weights of the value product may be rounded to a bf16 cache's type, and decoded values to the
// type of a 16-bit cache. With codes, which count from the middle of their range while zeros stay
// f32, so may rows after scales are folded in, to 16-bit integers in units of a row's largest
// number in the page: a score moves by at most 2^-15 * scale * dims * the largest |q| * half the
// range of the page's dim, up to 256 dims. f32 caches stay in f32.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/kv_codec.h"
#include "kernels/kv_keep.h"
#include "kernels/rows.h"
#include "kernels/tensor.h"

namespace kvgauge {

inline constexpr int64_t kKvPageEntries = 64;
inline constexpr int64_t kAttentionSpan = 512;
// AttentionItem::first_position: each head's rows end at its own last entry.
inline constexpr int64_t kEndAligned = INT64_MIN;
// AttentionItem::first_position: every row sees every entry of its head, as in encoders. There is
// no window then.
inline constexpr int64_t kSeesAll = INT64_MAX;

// The contents of the pages of one KV head.
struct KvFormat {
  DType dtype = DType::kF32;  // f32, f16 or bf16
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  // Pages are for attention that reads few of their entries (KvSegment::read): the numbers of each
  // entry lie side by side. Attention to whole pages then takes longer. The same bytes and bits; a
  // backend may lay out all pages alike.
  bool by_entry = false;
};

// Entries [0, entries) of a stream in coded pages; its float pages hold the rest.
struct KvCoded {
  const KvCodec* codec = nullptr;
  KvPages pages;
  int64_t entries = 0;
};

// A run of entries of one KV head that are stored the same way. Page p of a list holds entries [64
// p, 64 p + 64); pages are not contiguous with each other. Unwritten entries of the last page must
// hold zero bytes. Entries that `keys` or `values` hold coded have no float page there (null,
// unless the page also holds later entries).
//
// An entry's score is scale * (q . key) * key_scale, soft-capped, plus bias and read_bias.
struct KvSegment {
  void* const* key_pages = nullptr;
  void* const* value_pages = nullptr;
  int64_t length = 0;  // entries
  // Slots of the first page before entry 0, fewer than a page has: their entries were evicted, and
  // entry e is in slot skip + e. Pages, spans, rotation, read and read_bias then count slots. Such
  // a segment has no coded entries, bias, scales or positions, and WriteKv, ReadKv, GatherKv and
  // CopyKv do not take it.
  int64_t skip = 0;
  int64_t slots() const { return skip + length; }

  // Everything below is optional.
  KvCoded keys, values;
  const float* bias = nullptr;         // [length]: e.g. the log of how many an entry stands for
  const float* key_scale = nullptr;    // [length]
  const float* value_scale = nullptr;  // [length]
  // Keys are stored before rotation; entry e is turned by row rotation[e] of AttentionShape::rope
  // when it is read.
  const int32_t* rotation = nullptr;  // [length]
  // The stream holds latents: key = key_basis * latent (before rotation), and the weighted values
  // are value_basis * (weighted latents). [dim, latent dim] f32.
  Tensor key_basis, value_basis;
  // The values are the first value_dim numbers of the keys as stored (MLA): no value pages.
  bool values_in_keys = false;
  bool by_entry = false;  // float pages were written with KvFormat::by_entry
  // Which entries take part: for each query head of the group words of 64 entries, bit e of word p
  // is entry 64 p + e. Null: all. A page that no head reads is not touched.
  const uint64_t* const* read = nullptr;  // [query_heads / kv_heads]
  // A bias for each query head of the group; it counts slots. Finite where the head reads.
  const float* const* read_bias = nullptr;  // [query_heads / kv_heads] of [slots]
  // Position of entry 0.. for sliding windows, ascending; null: entry i of the head is position i.
  const int32_t* positions = nullptr;  // [length]
};

// One KV head: its segments in ascending order. Rows of an item are the last entries of the last
// segment; all other entries come before them.
struct KvHead {
  const KvSegment* segments = nullptr;
  int64_t count = 0;

  int64_t length() const {
    int64_t sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += segments[i].length;
    return sum;
  }
};

// Angles for keys that are rotated when they are read; column p of each table is position p.
struct DeferredRope {
  Tensor cos, sin;  // [pairs, positions] f32: one pair's angles of all positions are contiguous
  RopeLayout layout = RopeLayout::kHalf;
};

// Query rows that attend over one sequence's cache.
struct AttentionItem {
  int64_t first_row = 0;  // rows [first_row, first_row + rows) of q and out
  int64_t rows = 0;
  // kEndAligned: row i sees the entries before the last rows - 1 - i of its head, so that heads may
  // hold different numbers of entries; kSeesAll: all of them. Otherwise row i sees entries j <=
  // first_position + i. Only with kEndAligned may a head have KvSegment::positions.
  int64_t first_position = kEndAligned;
  // Token position of the first row, for sliding windows over segments that have positions.
  int64_t token_position = 0;
  std::span<const KvHead> heads;  // [kv_heads]
  // If not empty: how many entries past its own a row sees, too; windows count from the row's own.
  // [rows]; i + ahead[i] never falls and stays inside the rows. Not with kSeesAll.
  std::span<const int32_t> ahead = {};
  // If not empty: the sum of each entry's attention probability over the item's rows, as
  // ReduceColumns with kSum gives it, up to rounding. [query_heads, columns] f32; needs
  // AttentionCapture::log_sum_exp.
  Tensor column_sums = {};
};

// The place of WriteKv for one head: entry first_entry of the segment and those after it.
struct KvTarget {
  void* const* key_pages = nullptr;
  void* const* value_pages = nullptr;
  int64_t first_entry = 0;
};

struct AttentionShape {
  KvFormat format;
  int64_t query_heads = 0;  // query head h reads KV head h / (query_heads / kv_heads)
  int64_t kv_heads = 0;
  float scale = 1.0f;
  float softcap = 0.0f;  // scores become cap * tanh(score * scale / cap); 0: off
  // > 0: a row at position p also needs entry position > p - window; 0: none.
  int64_t window = 0;
  const DeferredRope* rope = nullptr;  // needed when a segment has a rotation
  // [query_heads] f32, or empty: a logit of each head that has a share of every row's softmax and
  // no value. Attend then needs AttentionCapture::log_sum_exp, which counts it; so what is captured
  // by that does, too.
  Tensor sinks = {};
  // Windows do not slide, they are chunks: a row at position p needs entry position >= p - p %
  // window.
  bool chunked = false;
};

// Optional results besides the output; empty tensors are not computed.
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

  // Stores n entries of every head where its target says, nothing else. keys: [n, kv_heads,
  // key_dim], values: [n, kv_heads, value_dim], f32, strided over n and heads; rounded to
  // format.dtype; either may be empty. Pages must exist.
  void WriteKv(const KvFormat& format, const Tensor& keys, const Tensor& values,
               std::span<const KvTarget> heads);
  // Reads float entries [first_entry, first_entry + n) of one head as f32: keys [n, key_dim],
  // values [n, value_dim], as stored; either may be empty.
  void ReadKv(const KvFormat& format, const KvSegment& segment, int64_t first_entry, Tensor keys,
              Tensor values);
  // Reads entries index[i] in the same way, in any order. index: [n] i32 in range.
  void GatherKv(const KvFormat& format, const KvSegment& segment, const Tensor& index, Tensor keys,
                Tensor values);
  // Copies float entries of one head bit for bit: entry index[i] of `from` becomes entry
  // to.first_entry + i. index: [n] i32 in range. A side without pages in `to` is left alone. The
  // pages of both differ, or are the same list and no entry moves up: then index ascends and
  // index[0] >= to.first_entry.
  void CopyKv(const KvFormat& format, const KvSegment& from, const Tensor& index,
              const KvTarget& to);
  // Executes an eviction plan in each head's own pages: merges, then moves the entries that stay.
  // Heads have no page in common. outcome: [heads, kKvKeptNumbers] i32 on this device; a head whose
  // earlier plan was refused is not changed.
  void KeepKv(const KvFormat& format, std::span<const KvKeep> heads, Tensor outcome);

  // q: [total rows, query_heads, key_dim] f32 (rounded to format.dtype before use); out: [total
  // rows, query_heads, value_dim] f32. Both may be strided over rows. Where first_position counts
  // entries, every item's heads hold at least first_position + rows of them. A row that sees no
  // entry gets 0 and log_sum_exp -inf.
  void Attend(const AttentionShape& shape, std::span<const AttentionItem> items, const Tensor& q,
              Tensor out, const AttentionCapture& capture = {});

  // Gives the sinks (AttentionShape) their share of rows that were attended without them. out:
  // [rows, query_heads, value_dim]; log_sum_exp, and entropy or empty: [query_heads, rows], all
  // changed in place.
  void AddSinks(const Tensor& sinks, Tensor out, Tensor log_sum_exp, Tensor entropy);

  // Attention probabilities of all of one item's rows over every entry: out [query_heads,
  // item.rows, columns] f32, innermost contiguous; 0 where a row does not see the entry or the head
  // does not hold it. columns >= first_position + rows, or the entries of every head where that
  // does not count them. For the last few query rows; memory is the caller's. log_sum_exp is what
  // Attend captured for the same rows of q.
  void WindowProbabilities(const AttentionShape& shape, const AttentionItem& item, const Tensor& q,
                           const Tensor& log_sum_exp, Tensor out);

  // Streamed second pass: per-entry reductions of the attention probabilities, without ever holding
  // them. log_sum_exp as above. out: [query_heads, columns] f32, columns >= first_position +
  // item.rows; 0 where no row sees the entry. Rows are folded in ascending order, starting from 0.
  void ReduceColumns(const AttentionShape& shape, const AttentionItem& item, const Tensor& q,
                     const Tensor& log_sum_exp, const ColumnRequest& request, Tensor out);

  // Whether Attend computes the item's column_sums during attention, without a second pass over the
  // keys.
  bool SumsColumns(const AttentionItem& item, const AttentionCapture& capture = {}) const {
    return capture.entropy.empty() && DoesSumColumns(item);
  }

 private:
  void AttendWithSinks(const AttentionShape& shape, std::span<const AttentionItem> items,
                       const Tensor& q, Tensor out, const AttentionCapture& capture);

  virtual void DoWriteKv(const KvFormat& format, const Tensor& keys, const Tensor& values,
                         std::span<const KvTarget> heads) = 0;
  virtual void DoReadKv(const KvFormat& format, const KvSegment& segment, int64_t first_entry,
                        Tensor keys, Tensor values) = 0;
  virtual void DoGatherKv(const KvFormat& format, const KvSegment& segment, const Tensor& index,
                          Tensor keys, Tensor values) = 0;
  virtual void DoCopyKv(const KvFormat& format, const KvSegment& from, const Tensor& index,
                        const KvTarget& to) = 0;
  // Here: through f32 rows, on the host.
  virtual void DoKeepKv(const KvFormat& format, std::span<const KvKeep> heads, Tensor outcome);
  virtual void DoAttend(const AttentionShape& shape, std::span<const AttentionItem> items,
                        const Tensor& q, Tensor out, const AttentionCapture& capture) = 0;
  virtual void DoAddSinks(const Tensor& sinks, Tensor out, Tensor log_sum_exp, Tensor entropy) = 0;
  virtual void DoWindowProbabilities(const AttentionShape& shape, const AttentionItem& item,
                                     const Tensor& q, const Tensor& log_sum_exp, Tensor out) = 0;
  virtual void DoReduceColumns(const AttentionShape& shape, const AttentionItem& item,
                               const Tensor& q, const Tensor& log_sum_exp,
                               const ColumnRequest& request, Tensor out) = 0;
  // Whether DoAttend fills the item's column_sums itself, no entropy being asked for. Otherwise a
  // second pass does.
  virtual bool DoesSumColumns(const AttentionItem&) const { return false; }
};

}  // namespace kvgauge

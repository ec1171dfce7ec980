// SPDX-License-Identifier: Apache-2.0
// The schedule of attention on the cpu: which rows meet which pages, on which thread.
//
// The unit of work is a block: the query heads of one KV head times a run of positions, so that a
// page is read once for all of them. A block walks the spans its rows see; each span gives every
// row a partial softmax state, and states merge in span order. Blocks that are too long for one
// thread are cut at span borders: the parts keep all their span states, and the same merges run
// afterwards, so cutting changes no bit.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "core/threads.h"
#include "cpu/attention_kernels.h"
#include "cpu/attention_pages.h"
#include "kernels/attention.h"
#include "kernels/tensor.h"

// A namespace of its own for the short names in here.
namespace kvgauge::attention_schedule {

inline constexpr int kSpan = static_cast<int>(kAttentionSpan);
inline constexpr int kPagesPerSpan = static_cast<int>(kAttentionSpan / kKvPageEntries);
inline constexpr int kEntries = static_cast<int>(kKvPageEntries);
inline constexpr int kBlockRows = 48;  // scores of a block, 96 KiB, stay in the second-level cache
// From this many rows on, a 16-bit page that is not multiplied as it is, is expanded once.
inline constexpr int kExpandRows = 12;
inline constexpr int64_t kColumnRows = 24;  // rows of one tile of the column pass: fits L1
inline constexpr int64_t kParallelWrites =
    16384;  // values; fewer are written by the calling thread
inline constexpr int64_t kThreadWork = 1
                                       << 17;  // multiply-adds that outweigh waking one more thread
inline constexpr float kNothing = -std::numeric_limits<float>::infinity();

struct Range {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};

// What the rows of one (item, KV head) see.
struct Sight {
  int64_t first_position;
  int64_t window;  // 0: none

  Range Entries(int64_t row) const {
    const int64_t end = std::max<int64_t>(0, first_position + row + 1);
    return {window > 0 ? std::max<int64_t>(0, end - window) : 0, end};
  }
  // Entries any of rows [begin, end) sees.
  Range Union(int64_t begin, int64_t end) const {
    return {Entries(begin).begin, Entries(end - 1).end};
  }
  // Rows of [0, rows) that see an entry of [begin, end).
  Range Rows(int64_t begin, int64_t end, int64_t rows) const {
    const int64_t from = std::max<int64_t>(0, begin - first_position);
    const int64_t to = window > 0 ? std::min(rows, end - 1 + window - first_position) : rows;
    return {from, std::max(from, to)};
  }
};

// Scratch of one thread. Pointers into one buffer.
struct Scratch {
  char* queries;         // [rows][key_steps] f32 or bf16
  float* scores;         // [rows][512]
  uint16_t* weights;     // [rows][512] bf16, when used
  float* part_values;    // [rows][value_width]
  float* values;         // [rows][value_width], running
  float* page;           // one page expanded to f32
  SoftmaxState* parts;   // [rows]
  SoftmaxState* states;  // [rows], running
};

struct Block {
  const AttentionItem* item;
  const KvList* list;
  int kv_head;
  int64_t first, count;  // positions of the item
  Sight sight;           // of row `first` as row 0
  Range entries;
  int64_t first_span, spans;
  int64_t parts_at = -1;  // where its span states are kept when it is cut
};

struct Unit {
  int block;
  int64_t span_begin, span_end;
  int64_t cost;
};

class CpuAttention final : public AttentionOps {
 public:
  CpuAttention(const AttentionKernels& kernels, ThreadSettings threads)
      : kernels_(kernels), threads_(std::max(1, threads.threads)) {}

  int64_t KeyPageBytes(const KvFormat& format) const override {
    return PageLayout(format).KeyBytes();
  }
  int64_t ValuePageBytes(const KvFormat& format) const override {
    return PageLayout(format).ValueBytes();
  }

 private:
  // Shape, layout and what follows from them, for one call.
  struct Call {
    const AttentionShape& shape;
    PageLayout layout;
    int group;          // query heads per KV head
    int max_positions;  // of a block
    int max_rows;
    bool bf16_rows;  // queries and weights are bf16
    bool entropy = false;

    Call(const AttentionShape& s, const AttentionKernels& kernels)
        : shape(s),
          layout(s.format),
          group(static_cast<int>(s.query_heads / s.kv_heads)),
          max_positions(std::max(1, kBlockRows / group)),
          max_rows(max_positions * group),
          bf16_rows(s.format.dtype == DType::kBF16 && kernels.bf16_dot) {}

    int QueryBytes() const { return bf16_rows ? 2 : 4; }
  };

  void DoWriteKv(const KvFormat& format, const Tensor& keys, const Tensor& values,
                 int64_t first_entry, std::span<const KvList> heads) override;
  void DoReadKv(const KvFormat& format, const KvList& head, int64_t first_entry, Tensor keys,
                Tensor values) override;
  void DoAttend(const AttentionShape& shape, std::span<const AttentionItem> items, const Tensor& q,
                Tensor out, const AttentionCapture& capture) override;
  void DoWindowProbabilities(const AttentionShape& shape, const AttentionItem& item,
                             const Tensor& q, const Tensor& log_sum_exp, Tensor out) override;
  void DoReduceColumns(const AttentionShape& shape, const AttentionItem& item, const Tensor& q,
                       const Tensor& log_sum_exp, const ColumnRequest& request,
                       Tensor out) override;
  void DoMergeStates(const Tensor& out_b, const Tensor& lse_b, Tensor out_a, Tensor lse_a) override;

  // Waking a thread must be worth it.
  int Workers(int64_t multiply_adds) const {
    return static_cast<int>(std::min<int64_t>(threads_, 1 + multiply_adds / kThreadWork));
  }
  Scratch Carve(const Call& call, char* base, int64_t* bytes) const;
  void Prepare(const Call& call);
  Scratch ScratchOfThread(const Call& call) const;

  void PackQueries(const Call& call, const float* rows, int64_t stride, int64_t count,
                   char* packed) const;
  void MultiplyPage(const Call& call, const void* panel, const void* next, int steps, int width,
                    const void* a, int64_t a_stride, int rows, bool accumulate, float* out,
                    int64_t out_stride, float* expanded) const;
  void PackBlock(const Call& call, const Block& block, const Tensor& q, char* packed) const;
  void ScoreSpan(const Call& call, const Block& block, int64_t span, const Scratch& scratch) const;
  void AttendSpan(const Call& call, const Block& block, int64_t span, const Scratch& scratch,
                  SoftmaxState* parts, float* values) const;
  void Finish(const Call& call, const Block& block, const SoftmaxState* states, const float* values,
              Tensor out, const AttentionCapture& capture) const;
  void RunUnit(const Call& call, const Block& block, const Unit& unit, const Tensor& q, Tensor out,
               const AttentionCapture& capture) const;
  void JoinParts(const Call& call, const Block& block, Tensor out,
                 const AttentionCapture& capture) const;

  SoftmaxState* PartStates(const Call& call, const Block& block, int64_t span) const {
    return part_states_.data() + (block.parts_at + span) * call.max_rows;
  }
  float* PartValues(const Call& call, const Block& block, int64_t span) const {
    return part_values_.data() + (block.parts_at + span) * call.max_rows * call.layout.value_width;
  }

  const AttentionKernels& kernels_;
  const int threads_;
  Buffer scratch_;
  int64_t scratch_bytes_ = 0;  // of one thread
  Buffer packed_queries_;      // of the column pass
  // Written by the threads of one call, each block's parts by whoever runs them.
  mutable std::vector<SoftmaxState> part_states_;
  mutable std::vector<float> part_values_;
};

}  // namespace kvgauge::attention_schedule

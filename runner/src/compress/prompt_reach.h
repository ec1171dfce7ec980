// SPDX-License-Identifier: Apache-2.0
// What the rows of a prompt see in one layer (methods/attend.h), as pages of the cache: attention
// over just these, and what captures then make of it.
//
// Rows of a run, at most a page of them, see the same pages, but for what lies behind each and for
// what a band leaves behind. Attention takes them as lists of their own, in which what they do not
// see has no place: so a head that sees every entry has the bits of ordinary attention. Immutable,
// but for the working memory of Attend. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "kernels/ops.h"
#include "methods/attend.h"

namespace kvgauge {

class PromptReach {
 public:
  // The entries of the prompt, one a row, are held plainly and in order. An error names what is
  // wrong with the sight.
  static Result<PromptReach> Of(PromptSight sight, int64_t rows, int64_t query_heads);

  // Whether every row sees every entry up to its own.
  bool whole() const { return whole_; }
  // How many tiles of 64 rows and 64 entries are computed, by those of ordinary attention, over all
  // query heads. Columns are gathered, so 64 of them are one tile. Short prompts may need more
  // than ordinary attention: a page that is read in part counts like another.
  double density() const { return density_; }

  // Copies the columns that heads see, or the rows that attend alone, into pages of their own, once
  // before Attend. heads: the layer's, with the whole prompt.
  void Gather(Ops& ops, const AttentionShape& shape, std::span<const KvHead> heads);
  // Rows [begin, end) of the prompt; begin is a multiple of 64. q: [end - begin, query_heads,
  // key_dim]; out: likewise; log_sum_exp: [query_heads, end - begin], +inf for rows that do not
  // attend, so that their shares are 0. shape: of the layer, without a window.
  void Attend(Ops& ops, const AttentionShape& shape, std::span<const KvHead> heads, int64_t begin,
              int64_t end, const Tensor& q, Tensor out, Tensor log_sum_exp);

  // As AttentionOps::WindowProbabilities for rows [begin, begin + q.shape[0]): 0 for entries that a
  // row did not see. log_sum_exp is what Attend gave.
  void Probabilities(Ops& ops, const AttentionShape& shape, std::span<const KvHead> heads,
                     int64_t begin, const Tensor& q, const Tensor& log_sum_exp, Tensor out) const;
  // As AttentionOps::ReduceColumns over all rows, for sums. out: [query_heads, columns].
  void SumColumns(Ops& ops, const AttentionShape& shape, std::span<const KvHead> heads,
                  ColumnReduction kind, const Tensor& q, const Tensor& log_sum_exp,
                  Tensor out) const;
  // Bytes that Gather holds for columns.
  int64_t bytes() const { return gathered_.size_bytes(); }
  void Forget() { gathered_ = {}; }

 private:
  struct PageBits {
    int64_t page = 0;
    uint64_t bits = 0;  // which entries of it are seen
  };
  // What a run of rows sees of one head. The page of the last row is the last one, seen or not.
  struct Look {
    std::vector<PageBits> free;         // whatever the distance
    std::vector<PageBits> windowed;     // as far as the head's window reaches
    int64_t columns = 0;                // of the gathered ones, so many lie before the rows
    std::vector<uint64_t> column_bits;  // those that are in no page above
  };
  // Lists of one head for one run, which segments point to.
  struct Lists {
    std::vector<void*> keys, values;
    KvSegment segments[2];
    const uint64_t* read[2] = {};
    int64_t count = 0;
  };
  struct Words;

  PromptReach(PromptSight sight, int64_t rows) : sight_(std::move(sight)), rows_(rows) {}
  Status Check(int64_t query_heads) const;
  void GatherAmong(Ops& ops, const AttentionShape& shape, std::span<const KvHead> heads);
  // Where rows attend alone: those of [begin, end), as rows of a shorter prompt.
  void AttendAmong(Ops& ops, const AttentionShape& shape, int64_t begin, int64_t end,
                   const Tensor& q, Tensor out, Tensor log_sum_exp) const;
  void Measure();
  int64_t RunEnd(int64_t row) const;
  Look LookOf(int64_t head, int64_t begin, int64_t end) const;
  void LookAlongLines(const HeadSight& head, int64_t begin, int64_t end, Look& look) const;
  static bool SeesAll(const Look& look, int64_t end);
  // The windows of bands that differ, ascending.
  std::vector<int64_t> Windows() const;
  void Fill(const Look& look, const HeadSight& head, const KvHead& of, int64_t query_head,
            int64_t end, std::vector<uint64_t>& bits, std::vector<std::pair<int64_t, int64_t>>& at,
            Lists& lists) const;
  // Calls pass(shape, item) for what rows of a run see, piece by piece: every pair of row and entry
  // is in one of them.
  template <class Pass>
  void ForPasses(Ops& ops, const AttentionShape& shape, std::span<const KvHead> heads,
                 int64_t begin, int64_t end, int64_t first_row, const Pass& pass) const;

  PromptSight sight_;
  int64_t rows_ = 0;
  bool whole_ = false;
  double density_ = 1;
  // Positions that windows count by, where some head has one: a list for entries that are seen
  // whatever the distance, then one for each window.
  Buffer places_;
  Buffer gathered_;  // pages of keys and values
  // [query_heads] of pages; of rows that attend alone [kv_heads]
  std::vector<std::vector<void*>> column_keys_, column_values_;
};

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// The schedule of attention on the cpu: which rows meet which pages, on which thread.
//
// The unit of work is a block: the query heads of one KV head times a run of positions, so that a
// page is read once for all of them. What a block sees of one segment is a piece. A block walks the
// spans of its pieces; each span gives every row a partial softmax state, and states merge in the
// order of pieces and spans. Blocks that are too long for one thread are cut at span borders: the
// parts keep all their span states, and the same merges run afterwards, so cutting changes no bit.
#pragma once

#include <omp.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "core/threads.h"
#include "cpu/attention/attention_kernels.h"
#include "cpu/attention/attention_pages.h"
#include "cpu/codec/codec_kernels.h"
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
// Pages of codes are fetched so many pages ahead: one takes less time than memory takes to answer.
inline constexpr int64_t kCodesAhead = 2;
// Lines that a processor waits for at a time, or fewer.
inline constexpr int64_t kLinesAtOnce = 16;
inline constexpr float kNothing = -std::numeric_limits<float>::infinity();

struct Range {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};

// What consecutive rows see of one segment; entries are the segment's slots. Later rows see no less
// at the end and no more at the beginning.
struct Sight {
  int64_t first_end = 0;  // row 0 sees entries before this, each later row one more
  int64_t length = 0;     // of the segment; first_end may lie before or behind it
  int64_t window = 0;     // 0: none
  // With positions the window counts them, and row 0 stands at `token_position`.
  const int32_t* positions = nullptr;
  int64_t token_position = 0;
  int64_t skip = 0;  // no row sees the entries before this
  // The window is a chunk. Without positions slot s is at position s + origin.
  bool chunked = false;
  int64_t origin = 0;
  // How many entries more each row sees, or null; row + ahead[row] never falls.
  const int32_t* ahead = nullptr;

  // How many positions a row at that position sees, its own included.
  int64_t Reach(int64_t position) const { return chunked ? position % window + 1 : window; }
  // The first position whose row does not see the entry at this one.
  int64_t Behind(int64_t position) const {
    return chunked ? (position / window + 1) * window : position + window;
  }
  int64_t End(int64_t row) const { return first_end + row + (ahead == nullptr ? 0 : ahead[row]); }
  Range Entries(int64_t row) const {
    const int64_t own_end = first_end + row;
    int64_t begin = skip;
    if (window > 0 && positions == nullptr) {
      begin = std::max(skip, own_end - Reach(own_end - 1 + origin));
    }
    if (window > 0 && positions != nullptr) {
      const int64_t at = token_position + row;
      begin = std::upper_bound(positions, positions + length, at - Reach(at)) - positions;
    }
    return {begin, std::clamp<int64_t>(End(row), 0, length)};
  }
  // Entries any of rows [begin, end) sees.
  Range Union(int64_t begin, int64_t end) const {
    return {Entries(begin).begin, Entries(end - 1).end};
  }
  // Rows of [0, rows) that see an entry of [begin, end). Precondition: begin < length.
  Range Rows(int64_t begin, int64_t end, int64_t rows) const {
    const int64_t last = std::min(end, length) - 1;
    int64_t from = std::max<int64_t>(0, std::max(begin, skip) + 1 - first_end);
    if (ahead != nullptr) {
      from = std::min(from, rows);
      while (from > 0 && End(from - 1) > std::max(begin, skip)) --from;
    }
    int64_t to = rows;
    if (window > 0 && positions == nullptr) {
      to = std::min(rows, Behind(last + origin) - origin + 1 - first_end);
    }
    if (window > 0 && positions != nullptr) {
      to = std::min(rows, Behind(positions[last]) - token_position);
    }
    return {from, std::max(from, to)};
  }
};

// The entries that some head reads of a span of pages by_entry, ascending, and their rows.
struct SpanEntries {
  const KvSegment* segment;  // null: listed is nothing
  int64_t span;
  uint64_t bits[kPagesPerSpan];  // of its pages
  int count;
  uint16_t at[kSpan];  // columns of the span
  const char *keys[kSpan], *values[kSpan];
};

// What is multiplied after a page, for it to be fetched meanwhile: null where that is not known.
struct Next {
  const void* data = nullptr;
  int64_t bytes = 0;
};

// Pages of codes that the same rows meet, one after the other.
struct CodeRun {
  const void* const* pages;
  const Next* after;         // what is multiplied after each
  int count;                 // 1 at least
  const float* a;            // that the first page meets
  int64_t a_stride, a_page;  // from row to row, from page to page
  int rows;
  bool accumulate;
  float* out;
  int64_t out_stride, out_page;
};

struct Piece;

// The page of keys that a thread's next unit begins with; no piece: none, or it has been fetched.
struct Following {
  const Piece* piece = nullptr;
  int64_t page = 0;
};

// Scratch of one thread. Pointers into one buffer, but for the last.
struct Scratch {
  char* queries;         // [rows][key_steps] f32 or bf16
  float* scores;         // [rows][512]
  uint16_t* weights;     // [rows][512] bf16, when used
  float* part_values;    // [rows][value_stride]
  float* values;         // [rows][value_stride], running
  float* page;           // one page expanded to f32
  SoftmaxState* parts;   // [rows]
  SoftmaxState* states;  // [rows], running

  // Where segments need it.
  float* exact_queries;   // [rows][key_steps] f32, when `queries` is bf16
  float* latent_queries;  // [rows][stored key dim padded to 16]
  float* basis;           // a basis as a panel
  float* stored_tile;     // [stored key dim][64]
  float* tail_tile;       // the float part of a page that is coded in part
  float* key_tile;        // [key_dim][64]
  float* value_tile;      // [64][stored value width]
  float* latent_values;   // [rows][value_stride], running over one segment
  SoftmaxState* latent_states;
  float* extras;  // [4][512]
  // If the block sums columns: every span's exp(score - max), and its states.
  float* kept_scores;         // [spans][rows][512]
  SoftmaxState* kept_states;  // [spans][rows]
  // Rows times the scales of a coded page: [groups][rows][steps] f32 or fixed point.
  float* folded;
  float *constants, *units;  // [groups][rows]
  float* products;           // [4][steps]
  float* code_scales;        // of a page of numbers
  // Pages by_entry.
  char* entry_panel;     // panels of one page, or of 64 rows of keys
  float* entry_scores;   // [query heads of a KV head rounded up to 4][512]
  float* entry_extras;   // [4][512][4]
  SpanEntries* entries;  // [3] of a span, of the one behind it, and what one head reads

  Following* following = nullptr;  // of the unit under way
};

// How the pages of one side of a segment are multiplied.
enum class PageSource {
  kPlain,  // as they are stored
  kTile,   // rebuilt as f32 in scratch
  kCodes,  // coded pages from their codes; of a coded stream's others, float ones plain, if these
           // are keys, and the rest rebuilt
};

// A codec in use.
struct StreamPlan {
  explicit StreamPlan(const KvCodec& codec);

  CodecPlan codec;
  // Pages are multiplied from their codes: as integers, or as numbers of a form.
  bool integers, numbers;
  NumberForm form;
  bool step_scales;  // of numbers: rows take them, otherwise columns do
  // What codes stand for around the middle of their range, and how far that is from the codec's 0.
  float code_middle, middle;
  alignas(64) float table[16];
  float largest;  // of a row in fixed point, so that its sums stay below 2^31

  bool fused() const { return integers || numbers; }
  // Scales of one page, as f32: whole vectors behind each other.
  int64_t Scales() const { return int64_t{ScaleGroups()} * codec.layout.scale_stride; }
  int ScaleGroups() const { return std::max(1, codec.layout.groups); }
};

// What the rows of a block see of one segment.
struct Piece {
  const KvSegment* segment = nullptr;
  PageLayout stored;  // as format, with latent dims where there are latents
  PageSource keys = PageSource::kPlain, values = PageSource::kPlain;
  bool absorbed = false;     // the key basis goes into the queries
  bool tail_tile = false;    // float pages of coded keys are rebuilt, too
  bool f32_entries = false;  // some entries are multiplied with f32 queries
  // Null where there are no coded streams.
  const StreamPlan *key_plan = nullptr, *value_plan = nullptr;
  Sight sight;    // of the block's first row as row 0
  Range entries;  // any row sees; not empty
  int64_t first_span = 0, spans = 0;

  explicit Piece(const PageLayout& layout) : stored(layout) {}
  bool Plain() const { return keys == PageSource::kPlain && values == PageSource::kPlain; }
  // Whether columns of pages are multiplied as they are stored.
  bool ByColumns() const { return Plain() && !stored.by_entry; }
  bool LatentValues() const { return !segment->value_basis.empty(); }
  int64_t PageBegin(int64_t span) const {
    return std::max(span * kPagesPerSpan, entries.begin / kEntries);
  }
  int64_t PageEnd(int64_t span) const {
    return std::min((span + 1) * kPagesPerSpan, (entries.end + kEntries - 1) / kEntries);
  }
};

// What the query heads of a group read of one span, together: columns in vectors of 16, or whole
// pages where those are not multiplied as they are stored. In scratch they stand side by side.
struct Chosen {
  int vectors = 0;
  uint32_t of_span = 0;               // bit v: columns [16 v, 16 v + 16) of the span
  uint64_t bits[kPagesPerSpan] = {};  // the entries of each page that some head reads

  bool Holds(int column) const { return (of_span >> column / kVectorFloats & 1) != 0; }
  // Where a column of the span is among the chosen ones, or the first chosen one behind it.
  int Place(int column) const;
};

// Beside bf16 queries.
inline bool NeedsExactRows(const Piece& piece) {
  return piece.keys != PageSource::kPlain || piece.absorbed || piece.f32_entries;
}

struct Block {
  const AttentionItem* item = nullptr;
  int kv_head = 0;
  int64_t first = 0, count = 0;  // positions of the item
  int64_t first_piece = 0, pieces = 0;
  int64_t entries = 0, spans = 0;  // of all pieces
  int64_t parts_at = -1;           // where its span states are kept when it is cut
  int64_t sums_at = -1;            // where its columns are summed, [group][512 spans]; or nowhere
};

struct Unit {
  int64_t block;
  int64_t span_begin, span_end;  // counted over all pieces
  int64_t cost;
};

class CpuAttention final : public AttentionOps {
 public:
  CpuAttention(const AttentionKernels& kernels, const CodecKernels& codec_kernels,
               ThreadSettings threads)
      : kernels_(kernels), codec_kernels_(codec_kernels), threads_(std::max(1, threads.threads)) {
    for (int t = 0; t < threads_ && threads_ > 1; ++t) {
      alone_.push_back(
          std::make_unique<CpuAttention>(kernels, codec_kernels, MakeThreadSettings(1)));
    }
  }

  int64_t KeyPageBytes(const KvFormat& format) const override {
    return PageLayout(format).KeyBytes();
  }
  int64_t ValuePageBytes(const KvFormat& format) const override {
    return PageLayout(format).ValueBytes();
  }

 private:
  // Rows of queries as a product takes them.
  struct Rows {
    const char* data;
    int64_t stride, row_bytes;
  };

  // Shape, layout and what follows from them, for one call.
  struct Call {
    const AttentionShape& shape;
    PageLayout layout;
    int group;          // query heads per KV head
    int max_positions;  // of a block
    int max_rows;
    bool bf16_rows;  // queries and weights are bf16
    bool f32_entry_rows;
    bool entropy = false;

    // Over all segments of the call.
    int value_stride;  // of accumulated values: the widest
    int64_t stored_tile = 0, tail_tile = 0, key_tile = 0, value_tile = 0;  // floats of scratch
    int64_t page_steps = kPanelWidth;  // the most steps of a page's panel
    int64_t latent_queries = 0, basis = 0;
    int64_t folded = 0, fold_groups = 0, fold_steps = 0;  // of one row
    int64_t code_scales = 0;                              // of one page
    int64_t kept_spans = 0;                               // the most of a block that sums columns
    int64_t entry_panel = 0;                              // bytes
    bool exact_rows = false;  // some piece is multiplied with f32 queries beside bf16 ones
    bool latent_values = false, extras = false;
    std::vector<std::pair<const KvCodec*, std::unique_ptr<StreamPlan>>> plans;

    Call(const AttentionShape& s, const AttentionKernels& kernels,
         std::span<const AttentionItem> items)
        : shape(s),
          layout(s.format),
          group(static_cast<int>(s.query_heads / s.kv_heads)),
          max_positions(std::max(1, kBlockRows / group)),
          max_rows(max_positions * group),
          bf16_rows(s.format.dtype == DType::kBF16 && kernels.bf16_dot),
          f32_entry_rows(bf16_rows && kernels.f32_entry_rows),
          value_stride(layout.value_width) {
      for (const AttentionItem& item : items) {
        for (const KvHead& head : item.heads) {
          for (int64_t i = 0; i < head.count; ++i) Survey(head.segments[i]);
        }
      }
    }
    void Survey(const KvSegment& segment);
    const StreamPlan* PlanOf(const KvCoded& stream) const;
    void AddPlan(const KvCoded& stream);
    // A piece without its rows: how its pages are multiplied.
    Piece MakePiece(const KvSegment& segment) const;

    int QueryBytes() const { return bf16_rows ? 2 : 4; }
  };

  void DoWriteKv(const KvFormat& format, const Tensor& keys, const Tensor& values,
                 std::span<const KvTarget> heads) override;
  void DoGatherKv(const KvFormat& format, const KvSegment& segment, const Tensor& index,
                  Tensor keys, Tensor values) override;
  void DoCopyKv(const KvFormat& format, const KvSegment& from, const Tensor& index,
                const KvTarget& to) override;
  void DoReadKv(const KvFormat& format, const KvSegment& segment, int64_t first_entry, Tensor keys,
                Tensor values) override;
  void DoAttend(const AttentionShape& shape, std::span<const AttentionItem> items, const Tensor& q,
                Tensor out, const AttentionCapture& capture) override;
  void DoAddSinks(const Tensor& sinks, Tensor out, Tensor log_sum_exp, Tensor entropy) override;
  void DoWindowProbabilities(const AttentionShape& shape, const AttentionItem& item,
                             const Tensor& q, const Tensor& log_sum_exp, Tensor out) override;
  void DoReduceColumns(const AttentionShape& shape, const AttentionItem& item, const Tensor& q,
                       const Tensor& log_sum_exp, const ColumnRequest& request,
                       Tensor out) override;
  bool DoesSumColumns(const AttentionItem& item) const override;

  // What a task's thread calls, with working memory of its own: this object outside of tasks.
  CpuAttention& Mine() {
    if (alone_.empty() || omp_in_parallel() == 0) return *this;
    return *alone_[static_cast<size_t>(omp_get_thread_num())];
  }
  // Threads for `count` values to be moved.
  int Movers(int64_t count) const {
    return count < kParallelWrites || omp_in_parallel() != 0 ? 1 : threads_;
  }
  // Waking a thread must be worth it.
  int Workers(int64_t multiply_adds) const {
    return static_cast<int>(std::min<int64_t>(threads_, 1 + multiply_adds / kThreadWork));
  }
  // Reading a page costs about as much as a few rows of arithmetic.
  static int64_t BlockCost(const Call& call, const Block& block) {
    return (block.count * call.group + 4) * block.entries;
  }
  Scratch Carve(const Call& call, char* base, int64_t* bytes) const;
  void Prepare(const Call& call);
  Scratch ScratchOfThread(const Call& call) const;

  // What rows [first, first + count) of an item see of segment `index` of a head; entries are empty
  // when that is nothing.
  Piece PieceOf(const Call& call, const AttentionItem& item, const KvHead& head, int64_t index,
                int64_t first, int64_t count) const;
  void CutIntoBlocks(const Call& call, std::span<const AttentionItem> items);
  // Gives the blocks of items that want sums of columns a place for theirs (attention_sums.cpp).
  void PlaceSums(Call& call, const AttentionCapture& capture);
  // A block's rows folded into its sums, in ascending order, when their states are complete.
  void SumBlock(const Call& call, const Block& block, const Scratch& scratch) const;
  // The sums of an item's blocks of one query head, added in ascending order.
  void JoinSums(const Call& call, int64_t first_block, int64_t blocks, int group_head) const;
  // Cuts blocks that would keep one thread busy after the others; returns the states to keep.
  int64_t CutIntoUnits(const Call& call, int workers);

  void PackQueries(const Call& call, const float* rows, int64_t stride, int64_t count, bool bf16,
                   char* packed) const;
  void MultiplyPage(const Call& call, const void* panel, const void* next, int steps, int width,
                    const void* a, int64_t a_stride, int rows, bool accumulate, float* out,
                    int64_t out_stride, float* expanded) const;
  // exact: as f32, too, where rows are bf16.
  void PackBlock(const Call& call, const Block& block, bool exact, const Tensor& q,
                 const Scratch& scratch) const;
  // Pages of few bits take so little time that calls on the way to them and to what comes next
  // count. So these stand here.
  [[gnu::always_inline]] static void Fetch(const Next& next) {
    for (int64_t i = 0; i < next.bytes; i += 64) {
      __builtin_prefetch(static_cast<const char*>(next.data) + i, 0, 2);
    }
  }
  // Takes it: it is fetched once.
  static Next NextUnit(const Call& call, Following* following);
  // The first lines, kLinesAtOnce at most, before work that fetches nothing: memory would have
  // nothing to do meanwhile. Returns the rest.
  [[gnu::always_inline]] static Next FetchFirst(const Next& next, int64_t lines) {
    const Next first = {next.data, std::min(next.bytes, 64 * std::min(lines, kLinesAtOnce))};
    Fetch(first);
    return {static_cast<const char*>(next.data) + first.bytes, next.bytes - first.bytes};
  }
  static void FetchLists(const Piece& piece, int64_t page);
  // Page `index` of what a span reads: its pages of keys, its pages of values, the next one's keys.
  [[gnu::always_inline]] static Next NextOf(const Call& call, const Piece& piece, int64_t span,
                                            int64_t index) {
    const int64_t begin = piece.PageBegin(span), pages = piece.PageEnd(span) - begin;
    if (index < pages) return NextKeys(call, piece, begin + index);
    if (index < 2 * pages) return NextValues(call, piece, begin + index - pages);
    const int64_t page = begin + index - pages;
    return page * kEntries < piece.entries.end ? NextKeys(call, piece, page) : Next{};
  }
  // What comes after a page of keys or values, so far ahead as their kind needs; chosen: null where
  // all pages are read.
  [[gnu::always_inline]] static Next NextAfter(const Call& call, const Piece& piece, int64_t span,
                                               const Chosen* chosen, int64_t page, bool values) {
    const PageSource source = values ? piece.values : piece.keys;
    const int64_t ahead = source == PageSource::kCodes ? kCodesAhead : 1;
    if (chosen != nullptr) return NextChosen(call, piece, span, *chosen, page, values, ahead);
    const int64_t begin = piece.PageBegin(span), pages = piece.PageEnd(span) - begin;
    return NextOf(call, piece, span, (values ? pages : 0) + page - begin + ahead);
  }
  static Next NextChosen(const Call& call, const Piece& piece, int64_t span, const Chosen& chosen,
                         int64_t page, bool values, int64_t ahead);
  static Next NextKeys(const Call& call, const Piece& piece, int64_t page) {
    const KvSegment& segment = *piece.segment;
    if (!PageIsRead(call, piece, page)) return {};
    if (page * kEntries < segment.keys.entries) {
      return {segment.keys.pages.codes[page], piece.key_plan->codec.layout.bytes};
    }
    return {segment.key_pages[page], piece.stored.KeyBytes()};
  }
  static Next NextValues(const Call& call, const Piece& piece, int64_t page) {
    const KvSegment& segment = *piece.segment;
    if (segment.values_in_keys || !PageIsRead(call, piece, page)) return {};
    if (page * kEntries < segment.values.entries) {
      return {segment.values.pages.codes[page], piece.value_plan->codec.layout.bytes};
    }
    return {segment.value_pages[page], piece.stored.ValueBytes()};
  }
  // chosen: null where all columns have their places in scratch.
  void ScoreSpan(const Call& call, const Block& block, const Piece& piece, int64_t span,
                 const Chosen* chosen, const Scratch& scratch) const;
  // Raw products of rows with the keys of one page; rows begin at scratch's.
  void ScorePage(const Call& call, const Piece& piece, int64_t page, const Next& next, int64_t row,
                 int rows, const Scratch& scratch, float* scores, int64_t stride) const;
  void AttendSpan(const Call& call, const Block& block, const Piece& piece, int64_t span,
                  const Scratch& scratch, SoftmaxState* parts, float* values) const;
  void WeighSpan(const Call& call, const Block& block, const Piece& piece, int64_t span,
                 const Chosen* chosen, const Scratch& scratch, float* values) const;
  void Finish(const Call& call, const Block& block, const SoftmaxState* states, const float* values,
              Tensor out, const AttentionCapture& capture) const;
  void Foresee(int64_t index, int64_t step) const;
  void RunUnit(const Call& call, int64_t index, int64_t step, const Tensor& q, Tensor out,
               const AttentionCapture& capture) const;
  const Piece* FirstPiece(const Unit& unit) const;  // null where the unit begins in a later one
  void MergeRows(const Call& call, int64_t rows, int width, const SoftmaxState* parts,
                 const float* part_values, SoftmaxState* states, float* values) const;

  // Where some entries are read (attention_chosen.cpp). The two with rows take plain pages.
  static Chosen ChosenOf(const Call& call, const Piece& piece, int64_t span);
  ScoreExtras ChosenExtras(const Piece& piece, int64_t span, const Chosen& chosen, int group_head,
                           const Scratch& scratch, uint64_t (&words)[kPagesPerSpan],
                           const float** value_scale) const;
  void ScoreChosen(const Call& call, const Piece& piece, int64_t span, const Chosen& chosen,
                   int rows, const Scratch& scratch) const;
  void WeighChosen(const Call& call, const Piece& piece, int64_t span, const Chosen& chosen,
                   int rows, const Scratch& scratch, float* values) const;

  // A row of each query head over chosen entries of pages by_entry (attention_entries.cpp).
  void AttendEntries(const Call& call, const Piece& piece, int64_t span, const Scratch& scratch,
                     SoftmaxState* parts, float* values) const;
  // Query heads [first, first + heads) of a KV head over what they read together.
  void AttendListed(const Call& call, const Piece& piece, const SpanEntries& entries, int first,
                    int heads, const WantedRows& next_keys, const WantedRows& next_values,
                    const Scratch& scratch, SoftmaxState* parts, float* values) const;
  static bool TakesEntries(const Block& block, const Piece& piece) {
    return piece.stored.by_entry && piece.Plain() && piece.segment->read != nullptr &&
           block.count == 1;
  }
  static void ListEntries(const Call& call, const Piece& piece, int64_t span, SpanEntries& out);
  static void ListBits(const Piece& piece, SpanEntries& out);
  // What a piece that takes entries begins with.
  static void FetchEntries(const Call& call, const Piece& piece, int64_t span, SpanEntries& list);

  // Where segments are not multiplied as they are stored (attention_source.cpp).
  static bool PageIsRead(const Call& call, const Piece& piece, int64_t page) {
    return piece.segment->read == nullptr || SomeHeadReads(call, piece, page);
  }
  static bool SomeHeadReads(const Call& call, const Piece& piece, int64_t page);
  // The queries that keys of a page from `source` are multiplied with.
  Rows RowsFor(const Call& call, const Piece& piece, PageSource source,
               const Scratch& scratch) const;
  ScoreExtras ExtrasOf(const Piece& piece, int64_t first, int64_t count, int group_head,
                       const Scratch& scratch, const float** value_scale) const;
  PageSource KeySource(const Piece& piece, int64_t page) const;
  // Float pages as panels: themselves, or in scratch where they are kept by_entry.
  const void* KeyPanel(const Piece& piece, int64_t page, const Scratch& scratch) const;
  static const char* ValuePanels(const Piece& piece, int64_t page, const Scratch& scratch);
  // The first page from `page` on that is not multiplied in one run with it: pages of codes that
  // all rows of the block see and read. `coded`: entries that have codes.
  static int64_t EndOfRun(const Block& block, const Piece& piece, PageSource source, int64_t coded,
                          int64_t page, int64_t end) {
    const bool all = block.count == 1 && piece.segment->read == nullptr;
    return source == PageSource::kCodes && all ? std::clamp(coded / kEntries, page, end) : page;
  }
  void MultiplyCodes(const Call& call, const StreamPlan& plan, const CodeRun& run,
                     const Scratch& scratch) const;
  void MultiplyNumbers(const StreamPlan& plan, const CodeRun& run, const Scratch& scratch) const;

  void Absorb(const Call& call, const Piece& piece, int64_t rows, const Scratch& scratch) const;
  void ExpandPage(const Call& call, const void* page, int steps, int width, float* out) const;
  void Rebuild(const StreamPlan& plan, const KvCoded& stream, int64_t page, const Next& next,
               float* tile) const;
  const float* StoredKeys(const Call& call, const Piece& piece, int64_t page, const Next& next,
                          const Scratch& scratch, float* tile) const;
  const float* KeyTile(const Call& call, const Piece& piece, int64_t page, const Next& next,
                       const Scratch& scratch) const;
  void RotateTile(const Call& call, const Piece& piece, int64_t page, const Next& next, DType dtype,
                  const void* panel, float* tile) const;
  static void TurnKeys(const float* keys, int dims, int width, float* panel);
  void StoredValues(const Call& call, const Piece& piece, int64_t page, int begin,
                    const Scratch& scratch) const;
  const float* ValueTile(const Call& call, const Piece& piece, int64_t page, const Next& next,
                         const Scratch& scratch) const;
  void ExpandValues(const Call& call, const Piece& piece, int64_t rows, const Scratch& scratch,
                    float* values) const;
  void FoldSpan(const Call& call, const Piece& piece, int64_t span, int64_t rows,
                const SoftmaxState* parts, const float* part_values, const Scratch& scratch) const;

  void ReducePage(const Call& call, const Piece& piece, int64_t page, int group_head,
                  const Scratch& scratch, const float* log_sum_exp, const ColumnRequest& request,
                  float* sums) const;
  void JoinParts(const Call& call, const Block& block, Tensor out,
                 const AttentionCapture& capture) const;

  SoftmaxState* PartStates(const Call& call, const Block& block, int64_t span) const {
    return part_states_.data() + block.parts_at + span * block.count * call.group;
  }
  float* PartValues(const Call& call, const Block& block, int64_t span) const {
    return part_values_.data() +
           (block.parts_at + span * block.count * call.group) * call.value_stride;
  }

  const AttentionKernels& kernels_;
  const CodecKernels& codec_kernels_;
  const int threads_;
  Buffer scratch_;
  int64_t scratch_bytes_ = 0;                         // of one thread
  Buffer packed_queries_;                             // of the column pass
  std::vector<std::unique_ptr<CpuAttention>> alone_;  // [threads] for tasks
  // The pieces of one call.
  std::vector<Piece> pieces_;
  std::vector<Block> blocks_;
  std::vector<Unit> units_;
  // Written by the threads of one call, each block's parts by whoever runs them.
  mutable std::vector<SoftmaxState> part_states_;
  mutable std::vector<float> part_values_;
  struct SummedHead {
    int64_t first_block, blocks;  // of one KV head
  };
  std::vector<SummedHead> summed_heads_;
  mutable std::vector<float> column_parts_;
};

}  // namespace kvgauge::attention_schedule

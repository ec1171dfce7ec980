// SPDX-License-Identifier: Apache-2.0
#include <omp.h>

#include <cmath>
#include <cstring>

#include "cpu/attention/attention_schedule.h"
#include "cpu/split_work.h"

namespace kvgauge::attention_schedule {
namespace {

// Hands out aligned parts of one allocation; from null it only counts.
class Arena {
 public:
  explicit Arena(char* base) : base_(base) {}
  template <class T>
  void Take(T*& pointer, int64_t count) {
    pointer = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (count * int64_t{sizeof(T)} + 63) / 64 * 64;
  }
  int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

}  // namespace

Scratch CpuAttention::Carve(const Call& call, char* base, int64_t* bytes) const {
  const PageLayout& layout = call.layout;
  const int64_t rows = std::max<int64_t>(call.max_rows, kColumnRows);
  Scratch s;
  Arena arena(base);
  arena.Take(s.queries, rows * layout.key_steps * call.QueryBytes());
  arena.Take(s.scores, rows * kSpan);
  arena.Take(s.weights, call.bf16_rows ? rows * kSpan : 0);
  arena.Take(s.part_values, rows * call.value_stride);
  arena.Take(s.values, rows * call.value_stride);
  arena.Take(s.page, kEntries * call.page_steps);
  arena.Take(s.parts, rows);
  arena.Take(s.states, rows);
  arena.Take(s.exact_queries, call.exact_rows ? rows * layout.key_steps : 0);
  arena.Take(s.latent_queries, rows * call.latent_queries);
  arena.Take(s.basis, call.basis);
  arena.Take(s.stored_tile, call.stored_tile);
  arena.Take(s.tail_tile, call.tail_tile);
  arena.Take(s.key_tile, call.key_tile);
  arena.Take(s.value_tile, call.value_tile);
  arena.Take(s.latent_values, call.latent_values ? rows * call.value_stride : 0);
  arena.Take(s.latent_states, call.latent_values ? rows : 0);
  arena.Take(s.extras, call.extras ? 4 * kSpan : 0);
  arena.Take(s.folded, rows * call.folded);
  arena.Take(s.constants, rows * call.fold_groups);
  arena.Take(s.units, rows * call.fold_groups);
  arena.Take(s.products, 4 * call.fold_steps);
  arena.Take(s.code_scales, call.code_scales);
  arena.Take(s.entry_panel, call.entry_panel);
  const bool by_entry = call.entry_panel > 0;
  const int64_t together = (call.group + kRowsTogether - 1) / kRowsTogether * kRowsTogether;
  arena.Take(s.entry_scores, by_entry ? together * kSpan : 0);
  arena.Take(s.entry_extras, by_entry && call.extras ? 4 * kRowsTogether * kSpan : 0);
  arena.Take(s.entries, by_entry ? 3 : 0);
  arena.Take(s.kept_scores, call.kept_spans * rows * kSpan);
  arena.Take(s.kept_states, call.kept_spans * rows);
  *bytes = arena.used();
  return s;
}

void CpuAttention::Prepare(const Call& call) {
  Carve(call, nullptr, &scratch_bytes_);
  if (scratch_.size_bytes() < scratch_bytes_ * threads_) {
    scratch_ = HostBuffer(scratch_bytes_ * threads_);
  }
}

Scratch CpuAttention::ScratchOfThread(const Call& call) const {
  // What works alone may do so on any thread of a team that runs tasks.
  const int thread = threads_ == 1 ? 0 : omp_get_thread_num();
  int64_t bytes = 0;
  return Carve(call, static_cast<char*>(scratch_.data()) + scratch_bytes_ * thread, &bytes);
}

void CpuAttention::PackQueries(const Call& call, const float* rows, int64_t stride, int64_t count,
                               bool bf16, char* packed) const {
  const int dim = call.layout.key_dim, steps = call.layout.key_steps;
  for (int64_t r = 0; r < count; ++r) {
    const float* in = rows + r * stride;
    if (bf16) {
      auto* out = reinterpret_cast<uint16_t*>(packed) + r * steps;
      RoundValues(kernels_, DType::kBF16, in, dim, out);
      if (steps > dim) out[dim] = 0;
      continue;
    }
    float* out = reinterpret_cast<float*>(packed) + r * steps;
    switch (call.layout.dtype) {
      case DType::kF16:
        kernels_.round_f16(in, dim, out);
        break;
      case DType::kBF16:
        for (int k = 0; k < dim; ++k) out[k] = Bf16ToF32(F32ToBf16(in[k]));
        break;
      default:
        std::memcpy(out, in, sizeof(float) * static_cast<size_t>(dim));
    }
    if (steps > dim) out[dim] = 0.0f;
  }
}

// One panel times some rows. Panels that are not multiplied in their own type are expanded to f32
// once when enough rows share the cost; the products are the same either way. `expanded` is the
// scratch for that, or null when `panel` is not to be expanded.
void CpuAttention::MultiplyPage(const Call& call, const void* panel, const void* next, int steps,
                                int width, const void* a, int64_t a_stride, int rows,
                                bool accumulate, float* out, int64_t out_stride,
                                float* expanded) const {
  DType dtype = call.layout.dtype;
  if (next == nullptr) next = panel;
  ProductArgs args = {a, a_stride, rows, panel, next, steps, width, out, out_stride, accumulate};
  if (expanded != nullptr && dtype != DType::kF32 && !call.bf16_rows && rows >= kExpandRows) {
    kernels_.expand[static_cast<int>(dtype)](panel, steps, width, expanded);
    dtype = DType::kF32;
    args.panel = args.next_panel = expanded;
  }
  kernels_.product[static_cast<int>(dtype)](args);
}

void CpuAttention::PackBlock(const Call& call, const Block& block, bool exact, const Tensor& q,
                             const Scratch& scratch) const {
  const int64_t row_bytes = int64_t{call.layout.key_steps} * call.QueryBytes();
  for (int64_t i = 0; i < block.count; ++i) {
    const float* row = q.f32() + (block.item->first_row + block.first + i) * q.stride[0] +
                       int64_t{block.kv_head} * call.group * q.stride[1];
    PackQueries(call, row, q.stride[1], call.group, call.bf16_rows,
                scratch.queries + i * call.group * row_bytes);
    if (!exact) continue;
    PackQueries(
        call, row, q.stride[1], call.group, false,
        reinterpret_cast<char*>(scratch.exact_queries + i * call.group * call.layout.key_steps));
  }
}

// Raw products of a block's rows with the pages of one span that any row sees and reads.
void CpuAttention::ScoreSpan(const Call& call, const Block& block, const Piece& piece, int64_t span,
                             const Chosen* chosen, const Scratch& scratch) const {
  const int64_t end = piece.PageEnd(span);
  int64_t p = piece.PageBegin(span);
  const KvCoded& coded = piece.segment->keys;
  const int64_t run_end = EndOfRun(block, piece, piece.keys, coded.entries, p, end);
  if (run_end > p) {
    Next after[kPagesPerSpan];
    for (int64_t i = p; i < run_end; ++i) {
      after[i - p] = NextAfter(call, piece, span, nullptr, i, /*values=*/false);
    }
    const Rows queries = RowsFor(call, piece, PageSource::kCodes, scratch);
    MultiplyCodes(call, *piece.key_plan,
                  {.pages = coded.pages.codes + p,
                   .after = after,
                   .count = static_cast<int>(run_end - p),
                   .a = reinterpret_cast<const float*>(queries.data),
                   .a_stride = queries.stride,
                   .a_page = 0,
                   .rows = call.group,
                   .accumulate = false,
                   .out = scratch.scores + (p * kEntries - span * kSpan),
                   .out_stride = kSpan,
                   .out_page = kEntries},
                  scratch);
    p = run_end;
  }
  for (; p < end; ++p) {
    if (!PageIsRead(call, piece, p)) continue;
    const auto column = static_cast<int>(p * kEntries - span * kSpan);
    if (chosen != nullptr && !chosen->Holds(column)) continue;
    const Range seeing = piece.sight.Rows(p * kEntries, (p + 1) * kEntries, block.count);
    const int64_t row = seeing.begin * call.group;
    const Next next = NextAfter(call, piece, span, chosen, p, /*values=*/false);
    const int64_t at = row * kSpan + (chosen == nullptr ? column : chosen->Place(column));
    ScorePage(call, piece, p, next, row, static_cast<int>((seeing.end - seeing.begin) * call.group),
              scratch, scratch.scores + at, kSpan);
  }
}

// The partial softmax states of a block's rows over one span.
void CpuAttention::AttendSpan(const Call& call, const Block& block, const Piece& piece,
                              int64_t span, const Scratch& scratch, SoftmaxState* parts,
                              float* values) const {
  if (TakesEntries(block, piece)) return AttendEntries(call, piece, span, scratch, parts, values);
  const int64_t span_entry = span * kSpan;
  const int rows = static_cast<int>(block.count) * call.group;
  SoftmaxArgs softmax = {};
  softmax.first = static_cast<int>(piece.PageBegin(span) * kEntries - span_entry);
  softmax.last = static_cast<int>(piece.PageEnd(span) * kEntries - span_entry);
  const bool some = piece.segment->read != nullptr;
  Chosen chosen;
  if (some) {
    chosen = ChosenOf(call, piece, span);
    if (chosen.vectors == 0) {
      std::fill_n(parts, rows, SoftmaxState{kNothing, 0.0f, 0.0f});
      return;
    }
    softmax.first = 0;
    softmax.last = chosen.vectors * kVectorFloats;
  }
  const bool by_columns = some && piece.ByColumns();
  if (by_columns) {
    ScoreChosen(call, piece, span, chosen, rows, scratch);
  } else {
    ScoreSpan(call, block, piece, span, some ? &chosen : nullptr, scratch);
  }

  softmax.scale = call.shape.scale;
  softmax.softcap = call.shape.softcap;
  softmax.entropy = call.entropy;
  softmax.keep = block.sums_at >= 0;
  const bool bf16 = call.bf16_rows && piece.values == PageSource::kPlain;
  const auto column = [&](int64_t entry) {
    if (some)
      return chosen.Place(static_cast<int>(std::clamp<int64_t>(entry - span_entry, 0, kSpan)));
    return static_cast<int>(std::clamp<int64_t>(entry - span_entry, softmax.first, softmax.last));
  };
  uint64_t words[kPagesPerSpan];
  // What the first page of values will ask for.
  Next meanwhile;
  if (!some && piece.values == PageSource::kCodes) {
    meanwhile = NextAfter(call, piece, span, nullptr, piece.PageBegin(span), /*values=*/true);
  }
  for (int g = 0; g < call.group; ++g) {
    softmax.extras =
        some ? ChosenExtras(piece, span, chosen, g, scratch, words, &softmax.value_scale)
             : ExtrasOf(piece, span_entry, kSpan, g, scratch, &softmax.value_scale);
    for (int64_t i = 0; i < block.count; ++i) {
      const Range seen = piece.sight.Entries(i);
      softmax.begin = column(seen.begin);
      softmax.end = std::max(softmax.begin, column(seen.end));
      const int64_t r = i * call.group + g;
      softmax.scores = scratch.scores + r * kSpan;
      softmax.weights = bf16 ? scratch.weights + r * kSpan : nullptr;
      meanwhile = FetchFirst(meanwhile, kLinesAtOnce);
      parts[r] = kernels_.softmax(softmax);
    }
  }
  if (by_columns) {
    WeighChosen(call, piece, span, chosen, rows, scratch, values);
  } else {
    WeighSpan(call, block, piece, span, some ? &chosen : nullptr, scratch, values);
  }
}

// The values of one span, weighted by what the softmax left.
void CpuAttention::WeighSpan(const Call& call, const Block& block, const Piece& piece, int64_t span,
                             const Chosen* chosen, const Scratch& scratch, float* values) const {
  const PageLayout& stored = piece.stored;
  const KvSegment& segment = *piece.segment;
  const bool plain = piece.values == PageSource::kPlain;
  const int64_t out_stride = call.value_stride;
  std::memset(values, 0,
              sizeof(float) * static_cast<size_t>(block.count * call.group * out_stride));
  const int64_t end = piece.PageEnd(span);
  const auto next_after = [&](int64_t page) {
    const Next next = NextAfter(call, piece, span, chosen, page, /*values=*/true);
    return next.data == nullptr ? NextUnit(call, scratch.following) : next;
  };
  int64_t p = piece.PageBegin(span);
  const int64_t run_end = EndOfRun(block, piece, piece.values, segment.values.entries, p, end);
  if (run_end > p) {
    Next after[kPagesPerSpan];
    for (int64_t i = p; i < run_end; ++i) after[i - p] = next_after(i);
    MultiplyCodes(call, *piece.value_plan,
                  {.pages = segment.values.pages.codes + p,
                   .after = after,
                   .count = static_cast<int>(run_end - p),
                   .a = scratch.scores + (p * kEntries - span * kSpan),
                   .a_stride = kSpan,
                   .a_page = kEntries,
                   .rows = call.group,
                   .accumulate = true,
                   .out = values,
                   .out_stride = out_stride,
                   .out_page = 0},
                  scratch);
    p = run_end;
  }
  for (; p < end; ++p) {
    const auto column = static_cast<int>(p * kEntries - span * kSpan);
    if (chosen != nullptr && !chosen->Holds(column)) continue;
    const Range seeing = piece.sight.Rows(p * kEntries, (p + 1) * kEntries, block.count);
    const int64_t row = seeing.begin * call.group;
    const int rows = static_cast<int>((seeing.end - seeing.begin) * call.group);
    const int64_t weight = row * kSpan + (chosen == nullptr ? column : chosen->Place(column));
    float* out = values + row * out_stride;
    const Next next = next_after(p);
    if (piece.values == PageSource::kCodes && (p + 1) * kEntries <= segment.values.entries) {
      MultiplyCodes(call, *piece.value_plan,
                    {.pages = segment.values.pages.codes + p,
                     .after = &next,
                     .count = 1,
                     .a = scratch.scores + weight,
                     .a_stride = kSpan,
                     .a_page = 0,
                     .rows = rows,
                     .accumulate = true,
                     .out = out,
                     .out_stride = out_stride,
                     .out_page = 0},
                    scratch);
      continue;
    }
    if (!plain) {
      const float* tile = ValueTile(call, piece, p, next, scratch);
      const int panels = segment.values_in_keys ? stored.ValuePanels() : 1;
      for (int g = 0; g < panels; ++g) {
        const float* panel = tile + g * kPanelWidth * kEntries;
        kernels_.product[static_cast<int>(DType::kF32)](
            {scratch.scores + weight, kSpan, rows, panel, panel, kEntries,
             panels > 1 ? stored.PanelDims(g) : stored.value_width, out + g * kPanelWidth,
             out_stride, true});
      }
      continue;
    }
    const void* a = call.bf16_rows ? static_cast<const void*>(scratch.weights + weight)
                                   : scratch.scores + weight;
    const char* page = ValuePanels(piece, p, scratch);

    const int panels = stored.ValuePanels();
    for (int g = 0; g < panels; ++g) {
      MultiplyPage(call, page + stored.PanelOffset(g),
                   g + 1 < panels ? page + stored.PanelOffset(g + 1) : next.data, kEntries,
                   stored.PanelDims(g), a, kSpan, rows, true, out + g * kPanelWidth, out_stride,
                   scratch.page);
    }
  }
}

void CpuAttention::Finish(const Call& call, const Block& block, const SoftmaxState* states,
                          const float* values, Tensor out, const AttentionCapture& capture) const {
  const auto put = [](const Tensor& t, int64_t head, int64_t row, float value) {
    if (!t.empty()) t.f32()[head * t.stride[0] + row] = value;
  };
  for (int64_t i = 0; i < block.count; ++i) {
    const int64_t row = block.item->first_row + block.first + i;
    for (int g = 0; g < call.group; ++g) {
      const int64_t head = int64_t{block.kv_head} * call.group + g;
      const SoftmaxState& state = states[i * call.group + g];
      const float* in = values + (i * call.group + g) * call.value_stride;
      float* result = out.f32() + row * out.stride[0] + head * out.stride[1];
      if (state.max == kNothing) {
        std::fill_n(result, call.layout.value_dim, 0.0f);
        put(capture.log_sum_exp, head, row, kNothing);
        put(capture.entropy, head, row, 0.0f);
        continue;
      }
      // Adding 0 turns -0 into +0: entries a row does not see may decide the sign of a zero sum.
      const float share = 1.0f / state.sum;
      for (int c = 0; c < call.layout.value_dim; ++c) result[c] = in[c] * share + 0.0f;
      const double log_sum = std::log(double{state.sum});
      put(capture.log_sum_exp, head, row, static_cast<float>(state.max + log_sum));
      const double entropy = log_sum - double{state.weighted} / state.sum;
      put(capture.entropy, head, row, static_cast<float>(entropy > 0 ? entropy : entropy * 0));
    }
  }
}

const Piece* CpuAttention::FirstPiece(const Unit& unit) const {
  const Block& block = blocks_[unit.block];
  const bool some = block.pieces > 0 && unit.span_begin < pieces_[block.first_piece].spans;
  return some ? &pieces_[block.first_piece] : nullptr;
}

// What a unit reads is found in four steps, block, piece, segment and lists of pages, each in
// memory that other threads wrote or that was long not looked at. So each is fetched a unit before
// the one that it leads to.
void CpuAttention::Foresee(int64_t index, int64_t step) const {
  const int64_t end = std::ssize(units_);
  const auto fetch = [](const auto* object) {
    for (size_t at = 0; at < sizeof(*object); at += 64) {
      __builtin_prefetch(reinterpret_cast<const char*>(object) + at, 0, 3);
    }
  };
  if (index + 4 * step < end) fetch(&blocks_[units_[index + 4 * step].block]);
  if (index + 3 * step < end) {
    const Block& block = blocks_[units_[index + 3 * step].block];
    if (block.pieces > 0) fetch(&pieces_[block.first_piece]);
  }
  if (index + 2 * step < end) {
    const Piece* piece = FirstPiece(units_[index + 2 * step]);
    if (piece != nullptr) fetch(piece->segment);
  }
}

// `step`: this thread will probably go on with unit index + step.
void CpuAttention::RunUnit(const Call& call, int64_t index, int64_t step, const Tensor& q,
                           Tensor out, const AttentionCapture& capture) const {
  Foresee(index, step);
  const Unit& unit = units_[index];
  const Block& block = blocks_[unit.block];
  // What the next unit begins with is on its way meanwhile: its lists of pages, then a page.
  const Unit* then = index + step < std::ssize(units_) ? &units_[index + step] : nullptr;
  const Piece* next = then == nullptr ? nullptr : FirstPiece(*then);
  const int64_t next_page =
      next == nullptr ? 0 : next->PageBegin(next->first_span + then->span_begin);
  if (next != nullptr) FetchLists(*next, next_page);
  Scratch scratch = ScratchOfThread(call);
  const bool entries_next = next != nullptr && TakesEntries(blocks_[then->block], *next);
  Following following = {entries_next ? nullptr : next, next_page};
  scratch.following = &following;
  const ProductScope products(kernels_);
  const int64_t rows = block.count * call.group;
  const bool cut = block.parts_at >= 0, sums = block.sums_at >= 0;
  const auto first = pieces_.begin() + block.first_piece;
  const bool exact = call.exact_rows && std::any_of(first, first + block.pieces, NeedsExactRows);
  PackBlock(call, block, exact, q, scratch);
  for (int i = 0; i < 2 && call.entry_panel > 0; ++i) scratch.entries[i].segment = nullptr;
  if (!cut) std::fill_n(scratch.states, rows, SoftmaxState{kNothing, 0.0f, 0.0f});
  int64_t at = 0;  // of the piece's first span in the block
  for (int64_t i = 0; i < block.pieces; ++i) {
    const Piece& piece = pieces_[block.first_piece + i];
    const int64_t begin = std::max<int64_t>(0, unit.span_begin - at);
    const int64_t end = std::min(piece.spans, unit.span_end - at);
    if (begin < end) {
      if (piece.absorbed) Absorb(call, piece, rows, scratch);
      for (int64_t s = begin; s < end; ++s) {
        Scratch of_span = scratch;
        if (sums) {
          of_span.scores = scratch.kept_scores + s * rows * kSpan;
          of_span.parts = scratch.kept_states + s * rows;
        }
        AttendSpan(call, block, piece, piece.first_span + s, of_span,
                   cut ? PartStates(call, block, at + s) : of_span.parts,
                   cut ? PartValues(call, block, at + s) : scratch.part_values);
        if (!cut) FoldSpan(call, piece, s, rows, of_span.parts, scratch.part_values, scratch);
      }
    }
    at += piece.spans;
  }
  if (entries_next) {
    FetchEntries(call, *next, next->first_span + then->span_begin, scratch.entries[0]);
  } else {
    Fetch(NextUnit(call, &following));  // unless it came with the last values
  }
  if (!cut) Finish(call, block, scratch.states, scratch.values, out, capture);
  if (sums) SumBlock(call, block, scratch);
}

void CpuAttention::MergeRows(const Call& call, int64_t rows, int width, const SoftmaxState* parts,
                             const float* part_values, SoftmaxState* states, float* values) const {
  const int64_t stride = call.value_stride;
  for (int64_t r = 0; r < rows; ++r) {
    kernels_.merge(states[r], values + r * stride, parts[r], part_values + r * stride, width);
  }
}

// The parts of one span join the running states; latents do when their segment is complete.
void CpuAttention::FoldSpan(const Call& call, const Piece& piece, int64_t span, int64_t rows,
                            const SoftmaxState* parts, const float* part_values,
                            const Scratch& scratch) const {
  const int width = call.layout.value_width;
  if (!piece.LatentValues()) {
    MergeRows(call, rows, width, parts, part_values, scratch.states, scratch.values);
    return;
  }
  if (span == 0) std::fill_n(scratch.latent_states, rows, SoftmaxState{kNothing, 0.0f, 0.0f});
  MergeRows(call, rows, piece.stored.value_width, parts, part_values, scratch.latent_states,
            scratch.latent_values);
  if (span + 1 < piece.spans) return;
  ExpandValues(call, piece, rows, scratch, scratch.part_values);
  MergeRows(call, rows, width, scratch.latent_states, scratch.part_values, scratch.states,
            scratch.values);
}

void CpuAttention::JoinParts(const Call& call, const Block& block, Tensor out,
                             const AttentionCapture& capture) const {
  const Scratch scratch = ScratchOfThread(call);
  const int64_t rows = block.count * call.group;
  std::fill_n(scratch.states, rows, SoftmaxState{kNothing, 0.0f, 0.0f});
  int64_t at = 0;
  for (int64_t i = 0; i < block.pieces; ++i) {
    const Piece& piece = pieces_[block.first_piece + i];
    for (int64_t s = 0; s < piece.spans; ++s, ++at) {
      FoldSpan(call, piece, s, rows, PartStates(call, block, at), PartValues(call, block, at),
               scratch);
    }
  }
  Finish(call, block, scratch.states, scratch.values, out, capture);
}

Piece CpuAttention::PieceOf(const Call& call, const AttentionItem& item, const KvHead& head,
                            int64_t index, int64_t first, int64_t count) const {
  int64_t before = 0;  // entries of the segments before this one
  for (int64_t s = 0; s < index; ++s) before += head.segments[s].length;
  const int64_t first_position = item.first_position == kSeesAll      ? head.length() - 1
                                 : item.first_position == kEndAligned ? head.length() - item.rows
                                                                      : item.first_position;
  const KvSegment& segment = head.segments[index];
  Piece piece = call.MakePiece(segment);
  piece.sight = {.first_end = segment.skip + first_position + first + 1 - before,
                 .length = segment.slots(),
                 .window = call.shape.window,
                 .positions = segment.positions,
                 .token_position = item.token_position + first,
                 .skip = segment.skip,
                 .chunked = call.shape.chunked,
                 .origin = before - segment.skip,
                 .ahead = item.ahead.empty() ? nullptr : item.ahead.data() + first};
  piece.entries = piece.sight.Union(0, count);
  if (piece.entries.empty()) return piece;
  piece.first_span = piece.entries.begin / kSpan;
  piece.spans = (piece.entries.end - 1) / kSpan + 1 - piece.first_span;
  return piece;
}

void CpuAttention::CutIntoBlocks(const Call& call, std::span<const AttentionItem> items) {
  pieces_.clear();
  blocks_.clear();
  for (const AttentionItem& item : items) {
    for (int h = 0; h < static_cast<int>(call.shape.kv_heads); ++h) {
      for (int64_t first = 0; first < item.rows; first += call.max_positions) {
        Block b;
        b.item = &item;
        b.kv_head = h;
        b.first = first;
        b.count = std::min<int64_t>(call.max_positions, item.rows - first);
        b.first_piece = std::ssize(pieces_);
        for (int64_t s = 0; s < item.heads[h].count; ++s) {
          const Piece piece = PieceOf(call, item, item.heads[h], s, first, b.count);
          if (piece.entries.empty()) continue;
          for (int64_t p = piece.entries.begin / kEntries; p * kEntries < piece.entries.end; ++p) {
            b.entries += PageIsRead(call, piece, p) ? kEntries : 0;
          }
          b.spans += piece.spans;
          ++b.pieces;
          pieces_.push_back(piece);
        }
        blocks_.push_back(b);
      }
    }
  }
}

int64_t CpuAttention::CutIntoUnits(const Call& call, int workers) {
  units_.clear();
  int64_t total_cost = 0, kept_rows = 0;
  for (const Block& b : blocks_) total_cost += BlockCost(call, b);
  // A block is cut when it alone would keep a thread busy while the others have finished.
  const int64_t fair_cost = total_cost / (int64_t{workers} * 4) + 1;
  for (int64_t i = 0; i < std::ssize(blocks_); ++i) {
    Block& b = blocks_[i];
    const int64_t cost = BlockCost(call, b);
    int64_t cuts =
        workers == 1 || b.sums_at >= 0 ? 1 : std::min(b.spans, (cost + fair_cost - 1) / fair_cost);
    if (cuts > 1) {
      b.parts_at = kept_rows;
      kept_rows += b.spans * b.count * call.group;
    }
    cuts = std::max<int64_t>(1, cuts);
    for (int64_t k = 0; k < cuts; ++k) {
      const int64_t begin = b.spans * k / cuts, end = b.spans * (k + 1) / cuts;
      units_.push_back({i, begin, end, b.spans > 0 ? cost * (end - begin) / b.spans : 0});
    }
  }
  std::stable_sort(units_.begin(), units_.end(),
                   [](const Unit& a, const Unit& b) { return a.cost > b.cost; });
  return kept_rows;
}

void CpuAttention::DoAttend(const AttentionShape& shape, std::span<const AttentionItem> items,
                            const Tensor& q, Tensor out, const AttentionCapture& capture) {
  if (CpuAttention& mine = Mine(); &mine != this) {
    return mine.DoAttend(shape, items, q, out, capture);
  }
  Call call(shape, kernels_, items);
  call.entropy = !capture.entropy.empty();
  CutIntoBlocks(call, items);
  PlaceSums(call, capture);
  Prepare(call);
  int64_t total_cost = 0;
  for (const Block& b : blocks_) total_cost += BlockCost(call, b);
  const int most_workers = Workers(total_cost * (call.layout.key_steps + call.layout.value_width));
  const int64_t kept_rows = CutIntoUnits(call, most_workers);
  part_states_.resize(static_cast<size_t>(kept_rows));
  part_values_.resize(static_cast<size_t>(kept_rows * call.value_stride));

  const int64_t unit_count = std::ssize(units_), block_count = std::ssize(blocks_);
  const int workers = static_cast<int>(std::min<int64_t>(most_workers, unit_count));
  PiecesFor(workers, unit_count, [&](int64_t u) { RunUnit(call, u, workers, q, out, capture); });
  if (kept_rows > 0) {
    PiecesFor(workers, block_count, [&](int64_t b) {
      if (blocks_[b].parts_at >= 0) JoinParts(call, blocks_[b], out, capture);
    });
  }
  if (summed_heads_.empty()) return;
  PiecesFor(workers, std::ssize(summed_heads_) * call.group, [&](int64_t h) {
    const SummedHead& head = summed_heads_[h / call.group];
    JoinSums(call, head.first_block, head.blocks, static_cast<int>(h % call.group));
  });
}

}  // namespace kvgauge::attention_schedule

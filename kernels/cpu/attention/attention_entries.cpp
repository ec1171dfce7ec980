// SPDX-License-Identifier: Apache-2.0
// Rows of decode steps over some entries of pages that keep each entry's numbers side by side
// (KvFormat::by_entry). The rows of keys that are read become the columns of panels in scratch, so
// the products are those of chosen columns. Scores and weights stand side by side as well: what
// stays of a column's place is the lane that it is summed in, and of a pair of columns that they
// are one. So every sum has the links it would have among all columns, in the same order, but for
// zeros.
#include <bit>

#include "cpu/attention/attention_line_list.h"
#include "cpu/attention/attention_schedule.h"

namespace kvgauge::attention_schedule {
namespace {

// Where a span's entries stand in scratch.
struct Places {
  int columns = 0;  // so many are used, a multiple of 16
  uint16_t of[kSpan];

  Places(const SpanEntries& entries, int lanes) {
    int vectors[kVectorFloats / 2] = {};  // of lanes, that hold a pair in lanes 2 i and 2 i + 1
    int place = 0, before = -1, most = 0;
    for (int i = 0; i < entries.count; ++i) {
      const int pair = entries.at[i] / 2;
      if (pair != before) {
        const int lane = pair % (lanes / 2);
        place = vectors[lane]++ * lanes + 2 * lane;
        most = std::max(most, vectors[lane]);
        before = pair;
      }
      of[i] = static_cast<uint16_t>(place + entries.at[i] % 2);
    }
    columns = (most * lanes + kVectorFloats - 1) / kVectorFloats * kVectorFloats;
  }
};

// Which places a head reads.
void WordsOf(const uint64_t* read, const SpanEntries& entries, const Places& places,
             uint64_t (&words)[kPagesPerSpan]) {
  std::fill_n(words, kPagesPerSpan, uint64_t{0});
  for (int i = 0; i < entries.count; ++i) {
    const uint64_t bit = read[entries.at[i] / kEntries] >> entries.at[i] % kEntries & 1;
    words[places.of[i] / kEntries] |= bit << places.of[i] % kEntries;
  }
}

// The lines of rows.
void AddRows(const char* const* rows, int count, int64_t row_bytes, LineList& lines) {
  for (int i = 0; i < count; ++i) lines.AddBytes(rows[i], row_bytes);
}

// The steps of a span's values: an entry each, or in bf16 the two rows of a pair, of which zeros
// stand for the one that is not read.
struct ValueSteps {
  int count = 0;
  const void *row[kSpan], *second[kSpan];
  uint16_t at[kSpan];
  uint8_t run[kSpan];

  ValueSteps(bool pairs, const SpanEntries& entries, const Places& places, const void* zeros) {
    for (int i = 0; i < entries.count; ++i) {
      const int column = entries.at[i], odd = pairs ? column % 2 : 0;
      const char* values = entries.values[i];
      const bool joins = odd == 1 && i > 0 && entries.at[i - 1] == column - 1;
      if (joins) {
        second[count - 1] = values;
        continue;
      }
      row[count] = odd == 1 ? zeros : values;
      second[count] = odd == 1 ? values : zeros;
      at[count] = static_cast<uint16_t>(places.of[i] - odd);
      run[count] = static_cast<uint8_t>(column / kEntryRun);
      ++count;
    }
  }
};

}  // namespace

void CpuAttention::ListEntries(const Call& call, const Piece& piece, int64_t span,
                               SpanEntries& out) {
  const KvSegment& segment = *piece.segment;
  const int64_t key_bytes = piece.stored.KeyRowBytes(), value_bytes = piece.stored.ValueRowBytes();
  const Chosen chosen = ChosenOf(call, piece, span);
  out.segment = &segment;
  out.span = span;
  out.count = 0;
  std::copy_n(chosen.bits, kPagesPerSpan, out.bits);
  for (int p = 0; p < kPagesPerSpan; ++p) {
    if (chosen.bits[p] == 0) continue;
    const auto* keys = static_cast<const char*>(segment.key_pages[span * kPagesPerSpan + p]);
    const auto* values = static_cast<const char*>(segment.value_pages[span * kPagesPerSpan + p]);
    for (uint64_t bits = chosen.bits[p]; bits != 0; bits &= bits - 1, ++out.count) {
      const int e = std::countr_zero(bits);
      out.at[out.count] = static_cast<uint16_t>(p * kEntries + e);
      out.keys[out.count] = keys + e * key_bytes;
      out.values[out.count] = values + e * value_bytes;
    }
  }
}

void CpuAttention::FetchEntries(const Call& call, const Piece& piece, int64_t span,
                                SpanEntries& list) {
  ListEntries(call, piece, span, list);
  LineList lines;
  AddRows(list.keys, list.count, piece.stored.KeyRowBytes(), lines);
  AddRows(list.values, list.count, piece.stored.ValueRowBytes(), lines);
  const ChosenLines all = lines.Part(0, 1);
  for (int i = 0; i < all.count; ++i) __builtin_prefetch(all.at[i], 0, 2);
}

void CpuAttention::AttendEntries(const Call& call, const Piece& piece, int64_t span,
                                 const Scratch& scratch, SoftmaxState* parts, float* values) const {
  const PageLayout& stored = piece.stored;
  const KvSegment& segment = *piece.segment;
  const int rows = call.group;
  const int dtype = static_cast<int>(stored.dtype);
  const bool pairs = stored.dtype == DType::kBF16;
  SpanEntries &entries = scratch.entries[span % 2], &next = scratch.entries[(span + 1) % 2];
  if (entries.segment != &segment || entries.span != span) {
    ListEntries(call, piece, span, entries);
  }
  // What the next span reads is on its way meanwhile: rows of keys during the products with keys,
  // and those of values during the others.
  LineList next_keys, next_values;
  if (span + 1 < piece.first_span + piece.spans) {
    ListEntries(call, piece, span + 1, next);
    AddRows(next.keys, next.count, stored.KeyRowBytes(), next_keys);
    AddRows(next.values, next.count, stored.ValueRowBytes(), next_values);
  }
  if (entries.count == 0) {
    std::fill_n(parts, rows, SoftmaxState{kNothing, 0.0f, 0.0f});
    return;
  }
  const Places places(entries, kernels_.lanes);

  for (int r = 0; r < rows; ++r) std::fill_n(scratch.scores + r * kSpan, places.columns, 0.0f);
  const Rows queries = RowsFor(call, piece, PageSource::kPlain, scratch);
  const int64_t unit_bytes = int64_t{kVectorFloats} * stored.element_bytes * (pairs ? 2 : 1);
  const int panels = (entries.count + kEntries - 1) / kEntries;
  for (int panel = 0; panel < panels; ++panel) {
    const int first = panel * kEntries, count = std::min(kEntries, entries.count - first);
    const void* columns[kEntries / kVectorFloats];
    kernels_.turn_rows[dtype](entries.keys + first, count, stored.key_steps, scratch.entry_panel);
    const int units = (count + kVectorFloats - 1) / kVectorFloats;
    for (int u = 0; u < units; ++u) columns[u] = scratch.entry_panel + u * unit_bytes;
    kernels_.chosen_keys[dtype]({queries.data, queries.stride, rows, columns, units,
                                 stored.key_steps, scratch.entry_scores, kEntries,
                                 next_keys.Part(panel, panels)});
    for (int r = 0; r < rows; ++r) {
      const float* in = scratch.entry_scores + r * kEntries;
      float* out = scratch.scores + r * kSpan;
      for (int i = 0; i < count; ++i) out[places.of[first + i]] = in[i];
    }
  }

  const int64_t span_entry = span * kSpan;
  int used = 0;
  const auto placed = [&](const float* numbers) -> const float* {
    if (numbers == nullptr) return nullptr;
    float* out = scratch.extras + kSpan * used++;
    std::fill_n(out, places.columns, 0.0f);
    for (int i = 0; i < entries.count; ++i) out[places.of[i]] = numbers[span_entry + entries.at[i]];
    return out;
  };
  SoftmaxArgs softmax = {};
  softmax.last = softmax.end = places.columns;
  softmax.scale = call.shape.scale;
  softmax.softcap = call.shape.softcap;
  softmax.entropy = call.entropy;
  softmax.extras.key_scale = placed(segment.key_scale);
  softmax.extras.bias = placed(segment.bias);
  softmax.value_scale = placed(segment.value_scale);
  const int shared = used;
  uint64_t all[kPagesPerSpan], own[kPagesPerSpan];
  WordsOf(entries.bits, entries, places, all);
  for (int g = 0; g < rows; ++g) {
    const uint64_t* read = segment.read[g] + span * kPagesPerSpan;
    bool less = false;
    for (int p = 0; p < kPagesPerSpan && !less; ++p) {
      less = entries.bits[p] != 0 && (entries.bits[p] & ~read[p]) != 0;
    }
    if (less) WordsOf(read, entries, places, own);
    softmax.extras.read = less ? own : all;
    used = shared;
    if (segment.read_bias != nullptr) softmax.extras.read_bias = placed(segment.read_bias[g]);
    softmax.scores = scratch.scores + g * kSpan;
    softmax.weights = call.bf16_rows ? scratch.weights + g * kSpan : nullptr;
    parts[g] = kernels_.softmax(softmax);
  }

  std::fill_n(scratch.entry_panel, stored.ValueRowBytes(), char{0});
  const ValueSteps steps(pairs, entries, places, scratch.entry_panel);
  const void* a = call.bf16_rows ? static_cast<const void*>(scratch.weights)
                                 : static_cast<void*>(scratch.scores);
  kernels_.chosen_values[dtype]({a, kSpan, rows, steps.row, steps.at, steps.run, steps.count,
                                 stored.value_width, values, call.value_stride,
                                 next_values.Part(0, 1), pairs ? steps.second : nullptr,
                                 scratch.entry_panel});
}

}  // namespace kvgauge::attention_schedule

// SPDX-License-Identifier: Apache-2.0
// Rows of decode steps over some entries of pages that keep each entry's numbers side by side
// (KvFormat::by_entry). Nothing but the rows of what is read is touched, and nothing is kept for
// the entries between them: the scores of an entry, of up to four query heads, stand side by side.
#include <bit>

#include "cpu/attention/attention_schedule.h"

namespace kvgauge::attention_schedule {
namespace {

constexpr int kQuad = kRowsTogether;
constexpr int kWordsOfQuad = kSpan * kQuad / 64;

// Whether heads read all that one of them does.
bool ReadAll(const SpanEntries& entries, const uint64_t* const* read, int heads) {
  for (int p = 0; p < kPagesPerSpan; ++p) {
    if (entries.bits[p] == 0) continue;
    for (int h = 0; h < heads; ++h) {
      if ((entries.bits[p] & ~read[h][entries.span * kPagesPerSpan + p]) != 0) return false;
    }
  }
  return true;
}

// Which rows of a quad read which of the entries: bit 4 i + r.
void ReadWords(const SpanEntries& entries, const uint64_t* const* read, int rows,
               uint64_t (&words)[kWordsOfQuad]) {
  std::fill_n(words, kWordsOfQuad, uint64_t{0});
  const bool all = ReadAll(entries, read, rows);
  const auto put = [&](int i, uint64_t bits) { words[i * kQuad / 64] |= bits << i * kQuad % 64; };
  const uint64_t every = (uint64_t{1} << rows) - 1;
  for (int i = 0; i < entries.count; ++i) {
    if (all) {
      put(i, every);
      continue;
    }
    const int64_t page = entries.span * kPagesPerSpan + entries.at[i] / kEntries;
    uint64_t bits = 0;
    for (int r = 0; r < rows; ++r) bits |= (read[r][page] >> entries.at[i] % kEntries & 1) << r;
    put(i, bits);
  }
}

WantedRows RowsOf(const char* const* rows, const SpanEntries& entries, int64_t bytes) {
  return {rows, entries.count, bytes};
}

void FetchRows(const WantedRows& rows) {
  for (int i = 0; i < rows.count; ++i) {
    const char* line = rows.at[i] - reinterpret_cast<uintptr_t>(rows.at[i]) % 64;
    for (; line < rows.at[i] + rows.bytes; line += 64) __builtin_prefetch(line, 0, 2);
  }
}

// Whether heads that share few of their entries are better off alone. What an entry takes beside
// its products is about as much as two rows of them.
bool BetterAlone(const SpanEntries& entries, const uint64_t* const* read, int heads) {
  if (ReadAll(entries, read, heads)) return false;
  int own = 0;
  for (int h = 0; h < heads; ++h) {
    for (int p = 0; p < kPagesPerSpan; ++p) {
      if (entries.bits[p] == 0) continue;
      own += std::popcount(read[h][entries.span * kPagesPerSpan + p] & entries.bits[p]);
    }
  }
  return own * 3 < entries.count * (2 + heads);
}

}  // namespace

void CpuAttention::ListEntries(const Call& call, const Piece& piece, int64_t span,
                               SpanEntries& out) {
  const Chosen chosen = ChosenOf(call, piece, span);
  out.segment = piece.segment;
  out.span = span;
  std::copy_n(chosen.bits, kPagesPerSpan, out.bits);
  ListBits(piece, out);
}

// The entries of its bits.
void CpuAttention::ListBits(const Piece& piece, SpanEntries& out) {
  const KvSegment& segment = *out.segment;
  const int64_t key_bytes = piece.stored.KeyRowBytes(), value_bytes = piece.stored.ValueRowBytes();
  int count = 0;
  for (int p = 0; p < kPagesPerSpan; ++p) {
    if (out.bits[p] == 0) continue;
    const int64_t page = out.span * kPagesPerSpan + p;
    const auto* keys = static_cast<const char*>(segment.key_pages[page]);
    const auto* values = static_cast<const char*>(segment.value_pages[page]);
    for (uint64_t bits = out.bits[p]; bits != 0; bits &= bits - 1, ++count) {
      const int e = std::countr_zero(bits);
      out.at[count] = static_cast<uint16_t>(p * kEntries + e);
      out.keys[count] = keys + e * key_bytes;
      out.values[count] = values + e * value_bytes;
    }
  }
  out.count = count;
}

void CpuAttention::FetchEntries(const Call& call, const Piece& piece, int64_t span,
                                SpanEntries& list) {
  ListEntries(call, piece, span, list);
  FetchRows(RowsOf(list.keys, list, piece.stored.KeyRowBytes()));
  FetchRows(RowsOf(list.values, list, piece.stored.ValueRowBytes()));
}

void CpuAttention::AttendEntries(const Call& call, const Piece& piece, int64_t span,
                                 const Scratch& scratch, SoftmaxState* parts, float* values) const {
  const KvSegment& segment = *piece.segment;
  const int heads = call.group;
  SpanEntries &entries = scratch.entries[span % 2], &next = scratch.entries[(span + 1) % 2];
  if (entries.segment != &segment || entries.span != span) {
    ListEntries(call, piece, span, entries);
  }
  // What the next span reads is on its way meanwhile: rows of keys during the products with keys,
  // and those of values during the others.
  WantedRows next_keys = {}, next_values = {};
  if (span + 1 < piece.first_span + piece.spans) {
    ListEntries(call, piece, span + 1, next);
    next_keys = RowsOf(next.keys, next, piece.stored.KeyRowBytes());
    next_values = RowsOf(next.values, next, piece.stored.ValueRowBytes());
  }
  if (!BetterAlone(entries, segment.read, heads)) {
    AttendListed(call, piece, entries, 0, heads, next_keys, next_values, scratch, parts, values);
    return;
  }
  SpanEntries& own = scratch.entries[2];
  own.segment = &segment;
  own.span = span;
  for (int h = 0; h < heads; ++h) {
    for (int p = 0; p < kPagesPerSpan; ++p) {
      own.bits[p] =
          entries.bits[p] == 0 ? 0 : entries.bits[p] & segment.read[h][span * kPagesPerSpan + p];
    }
    ListBits(piece, own);
    AttendListed(call, piece, own, h, 1, next_keys.Part(h, heads), next_values.Part(h, heads),
                 scratch, parts + h, values + int64_t{h} * call.value_stride);
  }
}

void CpuAttention::AttendListed(const Call& call, const Piece& piece, const SpanEntries& entries,
                                int first, int heads, const WantedRows& next_keys,
                                const WantedRows& next_values, const Scratch& scratch,
                                SoftmaxState* parts, float* values) const {
  if (entries.count == 0) {
    std::fill_n(parts, heads, SoftmaxState{kNothing, 0.0f, 0.0f});
    FetchRows(next_keys);
    FetchRows(next_values);
    return;
  }
  const PageLayout& stored = piece.stored;
  const KvSegment& segment = *piece.segment;
  const int dtype = static_cast<int>(stored.dtype);
  const Rows queries =
      RowsFor(call, piece, piece.f32_entries ? PageSource::kTile : PageSource::kPlain, scratch);
  kernels_.entry_keys[dtype]({queries.data + first * queries.row_bytes, queries.stride, heads,
                              entries.keys, entries.count, stored.key_steps, scratch.entry_scores,
                              scratch.entry_panel, next_keys});

  int used = 0;
  const auto placed = [&](auto number) {
    float* out = scratch.entry_extras + int64_t{kQuad} * kSpan * used++;
    for (int i = 0; i < entries.count; ++i) {
      for (int r = 0; r < kQuad; ++r) out[i * kQuad + r] = number(entries.at[i], r);
    }
    return out;
  };
  const auto shared = [&](const float* numbers) -> const float* {
    if (numbers == nullptr) return nullptr;
    const float* of_span = numbers + entries.span * kSpan;
    return placed([&](int at, int) { return of_span[at]; });
  };
  EntrySoftmaxArgs softmax = {};
  softmax.at = entries.at;
  softmax.count = entries.count;
  softmax.scale = call.shape.scale;
  softmax.softcap = call.shape.softcap;
  softmax.entropy = call.entropy;
  softmax.bf16 = call.bf16_rows;
  softmax.extras.key_scale = shared(segment.key_scale);
  softmax.extras.bias = shared(segment.bias);
  softmax.value_scale = shared(segment.value_scale);
  const int of_all = used;
  for (int row = 0; row < heads; row += kQuad) {
    const int rows = std::min(kQuad, heads - row);
    uint64_t words[kWordsOfQuad];
    ReadWords(entries, segment.read + first + row, rows, words);
    softmax.extras.read = words;
    used = of_all;
    if (segment.read_bias != nullptr) {
      const float* const* bias = segment.read_bias + first + row;
      softmax.extras.read_bias = placed(
          [&](int at, int r) { return r < rows ? bias[r][entries.span * kSpan + at] : 0.0f; });
    }
    SoftmaxState states[kQuad];
    softmax.states = states;
    softmax.scores = scratch.entry_scores + int64_t{row} * kSpan;
    kernels_.entry_softmax(softmax);
    std::copy_n(states, rows, parts + row);
    kernels_.entry_values[dtype]({softmax.scores, rows, entries.values, entries.at, entries.count,
                                  stored.value_width, values + int64_t{row} * call.value_stride,
                                  call.value_stride,
                                  next_values.Part(row / kQuad, (heads + kQuad - 1) / kQuad)});
  }
}

}  // namespace kvgauge::attention_schedule

// SPDX-License-Identifier: Apache-2.0
// Segments of which some entries take part (KvSegment::read): a span's work is that of the entries
// that are read. Scores and weights of a span stand side by side, without the columns between them;
// a column keeps its place modulo 16, so every sum has the links it would have among all columns,
// in the same order, but for zeros.
#include <bit>

#include "cpu/attention/attention_line_list.h"
#include "cpu/attention/attention_schedule.h"

namespace kvgauge::attention_schedule {
namespace {

constexpr uint64_t kVectorMask = (uint64_t{1} << kVectorFloats) - 1;
constexpr int kVectorsOfPage = kEntries / kVectorFloats;
// Vectors of columns that one call multiplies, while the lines of as many others are fetched.
constexpr int kChosenChunk = 4;

// f(v) for the span's vectors of columns that are chosen.
template <class Visit>
void ForChosen(const Chosen& chosen, Visit f) {
  for (uint32_t left = chosen.of_span; left != 0; left &= left - 1) f(std::countr_zero(left));
}

// Rows of a panel that one step of a product takes.
int StepsOfRow(DType dtype) { return dtype == DType::kBF16 ? 2 : 1; }

// The keys of a vector of columns: the first step's.
const char* KeysOfVector(const Piece& piece, int64_t span, int vector) {
  const int64_t bytes =
      int64_t{kVectorFloats} * piece.stored.element_bytes * StepsOfRow(piece.stored.dtype);
  const auto* page = piece.segment->key_pages[span * kPagesPerSpan + vector / kVectorsOfPage];
  return static_cast<const char*>(page) + vector % kVectorsOfPage * bytes;
}

void AddKeyLines(const PageLayout& layout, const void* keys, LineList& lines) {
  const int rows = StepsOfRow(layout.dtype);
  lines.Add(keys, int64_t{kPanelWidth} * layout.element_bytes * rows, layout.key_steps / rows);
}

// The steps of a span's values that are chosen; in bf16 pairs of which one is.
struct ChosenSteps {
  int count = 0;
  uint16_t at[kSpan];  // among the chosen columns
  uint8_t row[kSpan];  // of the page's panels
  uint8_t run[kSpan];
  const char* page[kSpan];

  ChosenSteps(const Piece& piece, int64_t span, const Chosen& chosen) {
    const int rows = StepsOfRow(piece.stored.dtype);
    int column = 0;
    ForChosen(chosen, [&](int v) {
      const int p = v / kVectorsOfPage, first = v % kVectorsOfPage * kVectorFloats;
      uint64_t bits = chosen.bits[p] >> first & kVectorMask;
      if (rows == 2) bits = (bits | bits >> 1) & 0x5555;
      const auto* data = piece.segment->value_pages[span * kPagesPerSpan + p];
      for (; bits != 0; bits &= bits - 1, ++count) {
        const int c = std::countr_zero(bits);
        at[count] = static_cast<uint16_t>(column + c);
        row[count] = static_cast<uint8_t>((first + c) / rows);
        run[count] = static_cast<uint8_t>((p * kEntries + first + c) / kEntryRun);
        page[count] = static_cast<const char*>(data);
      }
      column += kVectorFloats;
    });
  }
};

int64_t PanelRowBytes(const PageLayout& layout, int panel) {
  return int64_t{layout.PanelDims(panel)} * layout.element_bytes * StepsOfRow(layout.dtype);
}

}  // namespace

int Chosen::Place(int column) const {
  const int v = column / kVectorFloats;
  const uint32_t before = of_span & static_cast<uint32_t>((uint64_t{1} << v) - 1);
  const bool there = v < kSpan / kVectorFloats && (of_span >> v & 1) != 0;
  return std::popcount(before) * kVectorFloats + (there ? column % kVectorFloats : 0);
}

Chosen CpuAttention::ChosenOf(const Call& call, const Piece& piece, int64_t span) {
  Chosen chosen;
  const uint64_t* const* read = piece.segment->read;
  const int64_t first_page = span * kPagesPerSpan;
  for (int64_t p = piece.PageBegin(span); p < piece.PageEnd(span); ++p) {
    uint64_t bits = 0;
    for (int g = 0; g < call.group; ++g) bits |= read[g][p];
    const int64_t begin = piece.entries.begin - p * kEntries;
    const int64_t left = piece.entries.end - p * kEntries;
    if (begin > 0) bits &= ~uint64_t{0} << begin;
    if (left < kEntries) bits &= (uint64_t{1} << left) - 1;
    if (bits == 0) continue;
    chosen.bits[p - first_page] = bits;
    uint32_t vectors = (1u << kVectorsOfPage) - 1;
    if (piece.ByColumns()) {
      vectors = 0;
      for (int v = 0; v < kVectorsOfPage; ++v) {
        vectors |= (bits >> v * kVectorFloats & kVectorMask) != 0 ? 1u << v : 0;
      }
    }
    chosen.of_span |= vectors << (p - first_page) * kVectorsOfPage;
  }
  chosen.vectors = std::popcount(chosen.of_span);
  return chosen;
}

// As ExtrasOf, for the chosen columns of a span. words: of the chosen columns that the head reads.
ScoreExtras CpuAttention::ChosenExtras(const Piece& piece, int64_t span, const Chosen& chosen,
                                       int group_head, const Scratch& scratch,
                                       uint64_t (&words)[kPagesPerSpan],
                                       const float** value_scale) const {
  const KvSegment& segment = *piece.segment;
  int used = 0;
  const auto reach = [&](const float* values) -> const float* {
    if (values == nullptr) return nullptr;
    float* const side_by_side = scratch.extras + kSpan * used++;
    float* to = side_by_side;
    ForChosen(chosen, [&](int v) {
      const int64_t entry = span * kSpan + v * kVectorFloats;
      const int64_t held = std::clamp<int64_t>(segment.slots() - entry, 0, kVectorFloats);
      std::copy_n(values + entry, held, to);
      std::fill(to + held, to + kVectorFloats, 0.0f);
      to += kVectorFloats;
    });
    return side_by_side;
  };
  ScoreExtras extras = {};
  extras.key_scale = reach(segment.key_scale);
  extras.bias = reach(segment.bias);
  if (segment.read_bias != nullptr) extras.read_bias = reach(segment.read_bias[group_head]);
  *value_scale = reach(segment.value_scale);
  std::fill_n(words, kPagesPerSpan, uint64_t{0});
  const uint64_t* read = segment.read[group_head] + span * kPagesPerSpan;
  int i = 0;
  ForChosen(chosen, [&](int v) {
    const uint64_t bits = read[v / kVectorsOfPage] >> v % kVectorsOfPage * kVectorFloats;
    words[i / kVectorsOfPage] |= (bits & kVectorMask) << i % kVectorsOfPage * kVectorFloats;
    ++i;
  });
  extras.read = words;
  return extras;
}

Next CpuAttention::NextChosen(const Call& call, const Piece& piece, int64_t span,
                              const Chosen& chosen, int64_t page, bool values, int64_t ahead) {
  int64_t pages[kPagesPerSpan], count = 0, index = ahead;
  for (int p = 0; p < kPagesPerSpan; ++p) {
    if (chosen.bits[p] == 0) continue;
    pages[count++] = span * kPagesPerSpan + p;
    if (pages[count - 1] < page) ++index;
  }
  if (values) index += count;
  if (index < count) return NextKeys(call, piece, pages[index]);
  if (index < 2 * count) return NextValues(call, piece, pages[index - count]);
  for (int64_t p = piece.PageEnd(span); p * kEntries < piece.entries.end; ++p) {
    if (PageIsRead(call, piece, p)) return NextKeys(call, piece, p);
  }
  return {};
}

void CpuAttention::ScoreChosen(const Call& call, const Piece& piece, int64_t span,
                               const Chosen& chosen, int rows, const Scratch& scratch) const {
  const PageLayout& stored = piece.stored;
  const void* columns[kSpan / kVectorFloats];
  int count = 0;
  ForChosen(chosen, [&](int v) { columns[count++] = KeysOfVector(piece, span, v); });
  const Rows queries = RowsFor(call, piece, PageSource::kPlain, scratch);
  for (int first = 0; first < count; first += kChosenChunk) {
    LineList lines;
    for (int c = first + kChosenChunk; c < std::min(first + 2 * kChosenChunk, count); ++c) {
      AddKeyLines(stored, columns[c], lines);
    }
    if (first + kChosenChunk >= count) {
      const ChosenSteps steps(piece, span, chosen);
      for (int i = 0; i < steps.count; ++i) {
        for (int g = 0; g < stored.ValuePanels(); ++g) {
          const int64_t bytes = PanelRowBytes(stored, g);
          lines.Add(steps.page[i] + stored.PanelOffset(g) + steps.row[i] * bytes, 64,
                    (bytes + 63) / 64);
        }
      }
    }
    kernels_.chosen_keys[static_cast<int>(stored.dtype)](
        {queries.data, queries.stride, rows, columns + first, std::min(kChosenChunk, count - first),
         stored.key_steps, scratch.scores + first * kVectorFloats, kSpan, lines.Part(0, 1)});
  }
}

void CpuAttention::WeighChosen(const Call& call, const Piece& piece, int64_t span,
                               const Chosen& chosen, int rows, const Scratch& scratch,
                               float* values) const {
  const PageLayout& stored = piece.stored;
  // The keys that come next.
  LineList lines;
  for (int64_t s = span + 1; s < piece.first_span + piece.spans; ++s) {
    const Chosen next = ChosenOf(call, piece, s);
    if (next.vectors == 0) continue;
    int count = 0;
    ForChosen(next, [&](int v) {
      if (count++ < 2 * kChosenChunk) AddKeyLines(stored, KeysOfVector(piece, s, v), lines);
    });
    break;
  }
  const void* a = call.bf16_rows ? static_cast<const void*>(scratch.weights)
                                 : static_cast<void*>(scratch.scores);
  const ChosenSteps chosen_steps(piece, span, chosen);
  const void* steps[kSpan];
  const int panels = stored.ValuePanels();
  for (int g = 0; g < panels; ++g) {
    for (int i = 0; i < chosen_steps.count; ++i) {
      steps[i] = chosen_steps.page[i] + stored.PanelOffset(g) +
                 chosen_steps.row[i] * PanelRowBytes(stored, g);
    }
    kernels_.chosen_values[static_cast<int>(stored.dtype)](
        {a, kSpan, rows, steps, chosen_steps.at, chosen_steps.run, chosen_steps.count,
         stored.PanelDims(g), values + g * kPanelWidth, call.value_stride, lines.Part(g, panels)});
  }
}

}  // namespace kvgauge::attention_schedule

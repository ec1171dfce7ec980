// SPDX-License-Identifier: Apache-2.0
#include "src/compress/view.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>

#include "methods/tensors.h"
#include "src/cache/rope_tables.h"
#include "src/compress/chunk_sums.h"
#include "src/compress/prompt_reach.h"
#include "src/compress/query_moments.h"

namespace kvgauge {
namespace {

int32_t PlaceAlong(VisualAxis axis, const VisualSpan& span, int64_t position) {
  if (axis == VisualAxis::kItem) return span.index;
  const VisualPlace place = PlaceIn(span, position);
  if (place.nowhere) return axis == VisualAxis::kFrame ? span.frame : -1;
  if (axis == VisualAxis::kFrame) return span.frame + place.frame;
  if (axis == VisualAxis::kRow) {
    return span.piece == VisualSpan::Piece::kNewline ? -1 : place.row;
  }
  return place.newline ? -1 : place.column;
}

}  // namespace

void ViewMemory::Begin() {
  for (Place& place : places_) {
    std::erase_if(place.chunks, [this](const Chunk& chunk) {
      return chunk.memory.size_bytes() > most_kept_bytes_;
    });
    for (Chunk& chunk : place.chunks) chunk.used = true;
    place.current = 0;
    place.cut_bytes = 0;
  }
}

// Stages ask for many small pieces: they are cut from larger ones, each twice as large as the one
// before.
Tensor ViewMemory::Take(Ops& ops, DType dtype, std::initializer_list<int64_t> dims,
                        Contents contents) {
  constexpr int64_t kCutAlignment = 64, kFirst = 16 << 10;
  int64_t bytes = SizeOf(dtype);
  for (const int64_t d : dims) bytes *= d;
  auto found = std::find_if(places_.begin(), places_.end(),
                            [&](const Place& place) { return place.ops == &ops; });
  if (found == places_.end()) found = places_.insert(found, {.ops = &ops});
  auto& [own, chunks, current, cut_bytes] = *found;
  while (current < chunks.size() && cut_bytes + bytes > chunks[current].memory.size_bytes()) {
    ++current;
    cut_bytes = 0;
  }
  if (current == chunks.size()) {
    const int64_t doubled = chunks.empty() ? kFirst : 2 * chunks.back().memory.size_bytes();
    int64_t size_bytes = std::max({std::min(doubled, kChunkBytes), bytes, int64_t{1}});
    // What is kept may be asked for with a little more each time.
    if (size_bytes > kChunkBytes && size_bytes <= most_kept_bytes_) {
      size_bytes = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(size_bytes)));
    }
    chunks.push_back({ops.memory->Allocate(size_bytes)});
  }
  const Chunk& chunk = chunks[current];
  Tensor piece = chunk.memory.As(DType::kU8, {chunk.memory.size_bytes()});
  piece = piece.Slice(cut_bytes, cut_bytes + bytes);
  if (chunk.used && contents == Contents::kZero) ops.memory->Clear(piece);
  cut_bytes += (bytes + kCutAlignment - 1) / kCutAlignment * kCutAlignment;
  return Tensor(piece.data, dtype, dims, piece.device);
}

int64_t ViewMemory::PlannedBytes(const ModelShape& shape, int64_t entries) {
  constexpr int64_t kOfHeads = 3;                                        // positions, too
  const int64_t rows = (entries / kKvPageEntries + 2) * kKvPageEntries;  // those of RoomyValues
  const int64_t numbers = kOfHeads * shape.query_heads + shape.key_dim + shape.value_dim;
  const int64_t taken = rows * numbers * SizeOf(DType::kF32);
  // A piece that is kept may be rounded up to twice its size, or leave as much of the one before it
  // free. Keys are one more piece, and values another.
  return kChunkBytes + taken + std::min(taken, (kOfHeads + 2) * kMostKeptOnDevice);
}

template <class T, class Append>
Tensor TokenMarks::Grown(Ops& ops, OnDevices& all_marks, int64_t size, Append append) {
  constexpr DType kType = std::is_same_v<T, float> ? DType::kF32 : DType::kI32;
  auto found = std::find_if(all_marks.begin(), all_marks.end(),
                            [&](const Marks& marks) { return marks.ops == &ops; });
  if (found == all_marks.end()) found = all_marks.insert(found, {.ops = &ops});
  Marks& marks = *found;
  if (marks.memory.size_bytes() < size * SizeOf(kType)) {
    marks.memory = ops.memory->Allocate((size + size / 2) * SizeOf(kType));
    marks.count = 0;
  }
  const Tensor all = marks.memory.As(kType, {size});
  if (marks.count < size) {
    std::vector<T> numbers;
    append(marks.count, size, numbers);
    ops.memory->Copy(View(numbers, {size - marks.count}), all.Slice(marks.count, size));
  }
  marks.count = size;
  return all;
}

Tensor TokenMarks::OfClass(Ops& ops, const TokenClasses& classes, TokenClass wanted,
                           const Prompt& prompt) {
  return Grown<float>(ops, classes_[static_cast<size_t>(wanted)], prompt.size(),
                      [&](int64_t begin, int64_t end, std::vector<float>& is) {
                        for (int64_t at = begin; at < end; ++at) {
                          const PromptPosition& token = prompt.positions[static_cast<size_t>(at)];
                          is.push_back(classes.Has(token.token_id, wanted) ? 1.0f : 0.0f);
                        }
                      });
}

Tensor TokenMarks::OfModality(Ops& ops, Modality wanted, const Prompt& prompt) {
  return Grown<float>(ops, modalities_[static_cast<size_t>(wanted)], prompt.size(),
                      [&](int64_t begin, int64_t end, std::vector<float>& is) {
                        for (int64_t at = begin; at < end; ++at) {
                          const PromptPosition& token = prompt.positions[static_cast<size_t>(at)];
                          is.push_back(token.modality == wanted ? 1.0f : 0.0f);
                        }
                      });
}

Tensor TokenMarks::Places(Ops& ops, VisualAxis axis, const Prompt& prompt) {
  return Grown<int32_t>(ops, places_[static_cast<size_t>(axis)], prompt.size(),
                        [&](int64_t begin, int64_t end, std::vector<int32_t>& places) {
                          places.assign(static_cast<size_t>(end - begin), -1);
                          for (const VisualSpan& span : prompt.spans) {
                            const int64_t last = std::min(span.first + span.count, end);
                            for (int64_t at = std::max(span.first, begin); at < last; ++at) {
                              places[static_cast<size_t>(at - begin)] = PlaceAlong(axis, span, at);
                            }
                          }
                        });
}

Tensor ScoresAtWidth(const LayerView& view, const Tensor& own, int64_t width, Buffer& memory) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const int64_t heads = own.shape[0];
  memory = view.ops().memory->Allocate(heads * width * 4);
  const Tensor wide = memory.As(DType::kF32, {heads, width});
  view.ops().rows->Fill(kNone, wide);
  for (int64_t head = 0; head < heads; ++head) {
    const int64_t length = view.lengths()[static_cast<size_t>(head)];
    if (length == 0) continue;
    view.ops().memory->Copy(own[head].Slice(0, length), wide[head].Slice(0, length));
  }
  return wide;
}

CacheView::CacheView(const ViewSource& source, int64_t layer) : source_(source), layer_(layer) {
  if (source.memory != nullptr) source.memory->Begin();
  if (!source.shape->heads.empty()) of_layer_ = source.shape->OfLayer(layer);
  for (int64_t head = 0; head < source.cache->kv_heads(layer); ++head) {
    lengths_.push_back(source.cache->length(layer, head) - later());
    width_ = std::max(width_, lengths_.back());
  }
}

Tensor CacheView::Scratch(DType dtype, std::initializer_list<int64_t> dims) {
  return passing().Take(ops(), dtype, dims);
}

void CacheView::Lend(ViewMemory* memory, bool keeps_attention) {
  for (Parts* parts : {&positions_, &keys_, &raw_keys_, &values_}) parts->clear();
  roomy_ = roomy_values_ = {};
  if (!keeps_attention_) {
    window_attention_.clear();
    step_attention_ = {};
  }
  lent_ = memory;
  keeps_attention_ = keeps_attention;
  if (memory != nullptr) memory->Begin();
}

int64_t CacheView::Count(int64_t head, int64_t first) const {
  const int64_t count = lengths_[static_cast<size_t>(head)] - first;
  KVG_CHECK(first >= 0 && count >= 0, "entries that the head does not hold");
  return count;
}

Tensor CacheView::Positions(int64_t head, int64_t first) {
  Tensor& part = positions_[{head, first}];
  if (part.empty()) {
    const int64_t count = Count(head, first);
    part = EntryRows(DType::kI32, {count});
    source_.cache->ReadPositions(layer_, head, first, part);
  }
  return part;
}

Tensor CacheView::Keys(int64_t head, int64_t first) {
  Tensor& part = keys_[{head, first}];
  if (part.empty()) {
    part = EntryRows(DType::kF32, {Count(head, first), source_.cache->format(layer_).key_dim});
    source_.cache->ReadKeys(layer_, head, first, part);
  }
  return part;
}

namespace {

int64_t RoundedToPages(int64_t entries) {
  return (entries + kKvPageEntries - 1) / kKvPageEntries * kKvPageEntries;
}

// Whether attention sees the numbers that are stored, of which some may be coded.
bool SeesAsStored(const KvHead& head, KvSide side) {
  return std::all_of(head.segments, head.segments + head.count, [&](const KvSegment& segment) {
    return side == KvSide::kKeys ? segment.key_basis.empty() && segment.rotation == nullptr &&
                                       segment.key_scale == nullptr
                                 : segment.value_basis.empty() && !segment.values_in_keys &&
                                       segment.value_scale == nullptr;
  });
}

bool HasFloats(const KvHead& head, KvSide side) {
  if (head.count != 1 || !SeesAsStored(head, side)) return false;
  const KvSegment& segment = head.segments[0];
  return (side == KvSide::kKeys ? segment.keys : segment.values).entries == 0;
}

// By slot, with those of the last page that are free.
KvSegment AllSlots(const KvSegment& segment) {
  KvSegment slots = segment;
  slots.length = RoundedToPages(segment.slots());
  slots.skip = 0;
  return slots;
}

// Entries of a segment from `first` on and, as far as rows and pages reach, free slots behind them.
// What is submitted changes with the page in which codes end, and not with each entry that is
// coded: floats are read from the beginning of that page, and codes are written over them.
void ReadSlots(Ops& ops, const KvFormat& format, const KvSegment& segment, KvSide side,
               int64_t first, const Tensor& rows) {
  const bool keys = side == KvSide::kKeys;
  const KvCoded& coded = keys ? segment.keys : segment.values;
  const KvSegment slots = AllSlots(segment);
  const int64_t n = std::min(rows.shape[0], slots.length - segment.skip - first);
  const int64_t from = std::max(first, coded.entries / kKvPageEntries * kKvPageEntries);
  if (coded.entries < segment.length && from < first + n) {
    const Tensor floats = rows.Slice(from - first, n);
    ops.attention->ReadKv(format, slots, segment.skip + from, keys ? floats : Tensor(),
                          keys ? Tensor() : floats);
  }
  const int64_t codes = std::min(coded.entries - first, n);
  if (codes > 0) ops.codecs->Decode(*coded.codec, coded.pages, first, rows.Slice(0, codes));
}

}  // namespace

// Rows behind the last entry mean nothing.
void CacheView::ReadRoomy(KvSide side, int64_t head, int64_t first, const Tensor& rows) {
  const KvHead& held = source_.cache->Layer(layer_)[static_cast<size_t>(head)];
  if (!SeesAsStored(held, side)) {
    const Tensor own = rows.Slice(0, Count(head, first));
    if (side == KvSide::kKeys) return source_.cache->ReadKeys(layer_, head, first, own);
    return source_.cache->ReadValues(layer_, head, first, own);
  }
  int64_t begin = 0;
  for (int64_t i = 0; i < held.count; ++i) {
    const KvSegment& segment = held.segments[i];
    const int64_t end = begin + segment.length, from = std::max(first, begin);
    if (from < end) {
      // Only the last one may have room behind it.
      const int64_t last = i + 1 == held.count ? rows.shape[0] : end - first;
      ReadSlots(ops(), source_.cache->format(layer_), segment, side, from - begin,
                rows.Slice(from - first, last));
    }
    begin = end;
  }
}

Tensor CacheView::Filled(KvSide side, int64_t head, int64_t first, int64_t rows) {
  const auto last = static_cast<int32_t>(Count(head, first)) - 1;
  KVG_CHECK(last >= 0 && last < rows, "no entry, or more than rows");
  std::vector<int32_t> from(static_cast<size_t>(rows), last);
  std::iota(from.begin(), from.begin() + last, 0);
  const bool keys = side == KvSide::kKeys;
  const KvFormat& format = source_.cache->format(layer_);
  const int64_t dim = keys ? format.key_dim : format.value_dim;
  const Tensor out = EntryRows(DType::kF32, {rows, dim});
  const KvHead& held = source_.cache->Layer(layer_)[static_cast<size_t>(head)];
  if (HasFloats(held, side)) {
    for (int32_t& entry : from) entry += static_cast<int32_t>(held.segments[0].skip + first);
    ops().attention->GatherKv(format, AllSlots(held.segments[0]), Upload(*this, from),
                              keys ? out : Tensor(), keys ? Tensor() : out);
    return out;
  }
  // Whole pages around them, which are the same for as many steps as a page has entries.
  const int64_t begin = first / kKvPageEntries * kKvPageEntries;
  const Tensor around = EntryRows(DType::kF32, {RoundedToPages(first + last + 1) - begin, dim});
  ReadRoomy(side, head, begin, around);
  for (int32_t& entry : from) entry += static_cast<int32_t>(first - begin);
  ops().select->Gather(around, Upload(*this, from), out);
  return out;
}

Tensor CacheView::NewestRawKey(int64_t head) {
  const int64_t newest = Count(head, 0) - 1;
  const KvHead& held = source_.cache->Layer(layer_)[static_cast<size_t>(head)];
  if (!SeesAsStored(held, KvSide::kKeys) || !InOrder(head)) return RawKeys(head, newest);
  const Tensor key = Filled(KvSide::kKeys, head, newest, 1);
  const RopeFrequencies& frequencies = source_.cache->frequencies(layer_);
  if (frequencies.inverse.empty()) return key;
  constexpr RopeDirection kBack = RopeDirection::kInverse;
  const double factor = RotationFactor(frequencies, kBack);
  TurnRows(ops(), RotationsTimes(factor, newest, 1), shape().rope_layout, kBack, key);
  return key;
}

Tensor CacheView::RoomyPositions(int64_t head, int64_t first) {
  const int64_t count = RoundedToPages(first + Count(head, first)) - first;
  const Tensor out = EntryRows(DType::kI32, {count});
  source_.cache->ReadRoomyPositions(layer_, head, first, out);
  return out;
}

Tensor CacheView::RoomyKeys(int64_t head, int64_t first) {
  const int64_t rows = RoundedToPages(first + Count(head, first)) - first;
  const int64_t dim = source_.cache->format(layer_).key_dim;
  if (roomy_.empty()) roomy_ = EntryRows(DType::kF32, {RoundedToPages(width_), dim});
  const Tensor out = roomy_.Slice(0, rows);
  ReadRoomy(KvSide::kKeys, head, first, out);
  return out;
}

// As many rows are cleared in each step, wherever entries end.
Tensor CacheView::RoomyValues(int64_t head, int64_t first) {
  const int64_t count = Count(head, first), rows = RoundedToPages(first + count) - first;
  const int64_t dim = source_.cache->format(layer_).value_dim;
  const int64_t room = RoundedToPages(width_) + kKvPageEntries;
  if (roomy_values_.empty()) roomy_values_ = EntryRows(DType::kF32, {room, dim});
  const Tensor out = roomy_values_.Slice(0, rows);
  ReadRoomy(KvSide::kValues, head, first, out);
  ops().rows->FillColumns(0.0f, count * dim, (count + kKvPageEntries) * dim,
                          roomy_values_.Reshape({1, room * dim}));
  return out;
}

bool CacheView::InOrder(int64_t head) const {
  const KvHead& held = source_.cache->Layer(layer_)[static_cast<size_t>(head)];
  return std::all_of(held.segments, held.segments + held.count, [](const KvSegment& segment) {
    return segment.positions == nullptr && segment.skip == 0;
  });
}

Tensor CacheView::RawKeys(int64_t head, int64_t first) {
  Tensor& part = raw_keys_[{head, first}];
  if (part.empty()) {
    part = EntryRows(DType::kF32, {Count(head, first), source_.cache->format(layer_).key_dim});
    source_.cache->ReadRawKeys(layer_, head, first, part);
  }
  return part;
}

Tensor CacheView::Values(int64_t head, int64_t first) {
  Tensor& part = values_[{head, first}];
  if (part.empty()) {
    part = EntryRows(DType::kF32, {Count(head, first), source_.cache->format(layer_).value_dim});
    source_.cache->ReadValues(layer_, head, first, part);
  }
  return part;
}

Tensor CacheView::OfClass(TokenClass wanted, int64_t head, int64_t first) {
  const TokenClasses* classes = source_.model->token_classes();
  KVG_CHECK(classes != nullptr && source_.prompt != nullptr, "tokens whose text is not known");
  return Marked(marks().OfClass(ops(), *classes, wanted, *source_.prompt), head, first);
}

Tensor CacheView::Marked(const Tensor& of_token, int64_t head, int64_t first) {
  const int64_t count = Count(head, first);
  const Tensor out = Scratch(of_token.dtype, {count});
  if (count == 0) return out;
  ops().select->Gather(AsColumn(of_token), Positions(head, first), AsColumn(out));
  return out;
}

const Prompt& CacheView::prompt() const {
  KVG_CHECK(source_.prompt != nullptr, "a view of tokens that are not known");
  return *source_.prompt;
}

Tensor CacheView::OfModality(Modality wanted, int64_t head, int64_t first) {
  return Marked(marks().OfModality(ops(), wanted, prompt()), head, first);
}

Tensor CacheView::VisualPlaces(VisualAxis axis, int64_t head, int64_t first) {
  return Marked(marks().Places(ops(), axis, prompt()), head, first);
}

std::span<const VisualSpan> CacheView::VisualSpans() { return prompt().spans; }

int64_t CacheView::QuestionRows(int64_t most) {
  const int64_t rows = std::min(RowsOfQuestion(prompt(), most), prefill().window(layer_));
  KVG_CHECK(rows > 0, "no stage declared the rows of the question");
  return rows;
}

Tensor CacheView::LastRow(int64_t of_layer) { return prefill().LastRow(of_layer); }

const PrefillCapture& CacheView::prefill() const {
  KVG_CHECK(source_.prefill != nullptr, "signals of the prefill are there after it only");
  return *source_.prefill;
}

const StepCapture& CacheView::step() const {
  KVG_CHECK(source_.step != nullptr, "signals of a step are there after one only");
  return *source_.step;
}

Tensor CacheView::NewestAttention(const Tensor& q, const Tensor& log_sum_exp) {
  const int64_t rows = q.shape[0];
  const Tensor out =
      of_attention().Take(ops(), DType::kF32, {source_.shape->query_heads, rows, width_});
  const PromptReach* reach = decoding() ? nullptr : prefill().reach(layer_);
  if (reach != nullptr && !reach->whole()) {
    reach->Probabilities(ops(), LayerAttention(config(), *source_.cache, layer_),
                         source_.cache->Layer(layer_), tokens() - rows, q, log_sum_exp, out);
    return out;
  }
  std::vector<int32_t> ahead;
  if (config().mutual_pictures) ahead = RowsAhead(config(), prompt(), tokens() - rows, tokens());
  const AttentionItem item = {.first_row = 0,
                              .rows = rows,
                              .token_position = tokens() - rows,
                              .heads = source_.cache->Layer(layer_),
                              .ahead = ahead};
  ops().attention->WindowProbabilities(LayerAttention(config(), *source_.cache, layer_), item, q,
                                       log_sum_exp, out);
  return out;
}

Tensor CacheView::NewestLogSumExp(const Tensor& q) {
  const int64_t rows = q.shape[0], heads = source_.shape->query_heads;
  const AttentionItem item = {.first_row = 0,
                              .rows = rows,
                              .token_position = tokens() - rows,
                              .heads = source_.cache->Layer(layer_)};
  AttentionCapture capture;
  capture.log_sum_exp = Scratch(DType::kF32, {heads, rows});
  const Tensor out = Scratch(DType::kF32, {rows, heads, source_.cache->format(layer_).value_dim});
  ops().attention->Attend(LayerAttention(config(), *source_.cache, layer_), {&item, 1}, q, out,
                          capture);
  return capture.log_sum_exp;
}

int64_t CacheView::RowsOfWindow(int64_t rows) const {
  // A short prompt has no more.
  if (!decoding()) return std::min(rows, prefill().window(layer_));
  for (const int64_t length : lengths_) rows = std::min(rows, length);
  return rows;
}

Tensor CacheView::WindowQueries(int64_t rows) {
  rows = RowsOfWindow(rows);
  if (!decoding()) return prefill().WindowQueries(layer_, rows);
  const ModelShape& of = shape();
  const Tensor out = Scratch(DType::kF32, {rows, of.query_heads, of.key_dim});
  step().LastQueries(layer_, tokens(), out);
  return out;
}

Tensor CacheView::WindowAttention(int64_t rows) {
  rows = RowsOfWindow(rows);
  Tensor& attention = window_attention_[rows];
  if (attention.empty() && decoding()) {
    const Tensor queries = WindowQueries(rows);
    attention = NewestAttention(queries, NewestLogSumExp(queries));
  }
  if (attention.empty()) {
    const Tensor all = prefill().WindowLogSumExp(layer_);
    const int64_t heads = source_.shape->query_heads;
    const Tensor log_sum_exp = Scratch(DType::kF32, {heads, rows});
    Tensor last = all;
    last.data = all.f32() + (all.shape[1] - rows);
    last.shape[1] = rows;
    ops().rows->Convert(last, log_sum_exp);
    attention = NewestAttention(prefill().WindowQueries(layer_, rows), log_sum_exp);
  }
  return attention;
}

Tensor CacheView::ColumnSums() { return prefill().ColumnSums(layer_); }

Tensor CacheView::ColumnSquares() { return prefill().ColumnSquares(layer_); }
Tensor CacheView::Surprise() { return prefill().Surprise(); }

Tensor CacheView::ChunkSums(const ChunkAttention& of) {
  return prefill().SumsOfChunks(of).Of(layer_);
}

Tensor CacheView::ProbeMaxima() {
  KVG_CHECK(!source_.probe_maxima.empty(), "no probes of this scorer");
  return source_.probe_maxima[static_cast<size_t>(layer_)];
}

Tensor CacheView::DraftQueries() {
  KVG_CHECK(!source_.draft_queries.empty(), "no draft for this scorer");
  return source_.draft_queries[static_cast<size_t>(layer_)];
}

Tensor CacheView::GateScores(const Gate& gate) {
  if (source_.row != nullptr) {
    KVG_CHECK(source_.row->gates != nullptr, "no stage declared a gate");
    return Columns(source_.row->gates->Of(gate, layer_), source_.row->at, source_.row->at + 1);
  }
  if (decoding()) return step().GateScores(gate, layer_);
  const Tensor of_rows = prefill().GateScores(gate, layer_);
  const int64_t rows = of_rows.shape[1];
  if (rows == width_) return of_rows;
  const Tensor all = Scratch(DType::kF32, {of_rows.shape[0], width_});
  ops().rows->Convert(of_rows, Columns(all, width_ - rows, width_));
  const Tensor before = prefill().GateScoresBefore(gate, layer_);
  if (!before.empty()) ops().rows->Convert(before, Columns(all, 0, width_ - rows));
  return all;
}

Tensor CacheView::QueryMean(int64_t from) { return prefill().MomentsFrom(from).Mean(layer_); }

Tensor CacheView::QueryCovariance(int64_t from) {
  const ModelShape& of = shape();
  const Tensor out = Scratch(DType::kF32, {of.query_heads, of.key_dim, of.key_dim});
  prefill().MomentsFrom(from).Covariance(layer_, out);
  return out;
}

Tensor CacheView::Rotations(int64_t first, int64_t count) {
  if (!config().rope) return {};
  return RotationsTimes(source_.cache->frequencies(layer_).attention_factor, first, count);
}

// Each step has memory for them.
Tensor CacheView::RotationsTimes(double factor, int64_t first, int64_t count) {
  const RopeFrequencies& frequencies = source_.cache->frequencies(layer_);
  std::vector<int32_t> positions(static_cast<size_t>(count)), placed;
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(first));
  const Tensor at = PlacedPositions(ops(), frequencies, source_.cache->rope_places(),
                                    View(positions, {count}), &placed);
  const Tensor memory = lasting().Take(ops(), DType::kF32, {RotationNumbers(frequencies, at)},
                                       ViewMemory::Contents::kAny);
  return MakeRotations(ops(), frequencies, factor, at, memory);
}

// Weights are packed as the backend multiplies them fastest: unit vectors bring them back, exactly,
// since a product with 1 and sums with 0 round nothing.
Tensor CacheView::OutputWeights(int64_t query_head) {
  const ModelShape& of = shape();
  const int64_t dim = of.value_dim, width = of.query_heads * dim;
  std::vector<float> units(static_cast<size_t>(dim * width));
  for (int64_t i = 0; i < dim; ++i) {
    units[static_cast<size_t>(i * width + query_head * dim + i)] = 1.0f;
  }
  const Buffer memory = ops().memory->Allocate(dim * width * SizeOf(DType::kF32));
  const Tensor rows = memory.As(DType::kF32, {dim, width});
  ops().memory->Copy(View(units, {dim, width}), rows);
  const Tensor out = Scratch(DType::kF32, {dim, of.hidden_size});
  ops().linear->MatMul(rows, source_.model->output_projection(layer_), {}, MatMulMode::kSet, out);
  return out;
}

Tensor CacheView::StepQueries() {
  return source_.row != nullptr ? source_.row->queries : step().Queries(layer_);
}

Tensor CacheView::StepAttention() {
  if (source_.row != nullptr && step_attention_.empty()) {
    step_attention_ = of_attention().Take(ops(), DType::kF32, {source_.shape->query_heads, width_});
    ops().rows->Convert(Columns(source_.row->attention, 0, width_), step_attention_);
  }
  if (step_attention_.empty()) step_attention_ = step().Attention(layer_);
  if (step_attention_.empty()) {
    const Tensor queries = step().Queries(layer_);
    const Tensor row = queries.Reshape({1, queries.shape[0], queries.shape[1]});
    step_attention_ = NewestAttention(row, step().LogSumExp(layer_))
                          .Reshape({source_.shape->query_heads, width_});
  }
  return step_attention_;
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Segments that are not multiplied as they are stored: their pages are rebuilt in scratch as f32
// panels, which the ordinary products take.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "cpu/attention/attention_fixed.h"
#include "cpu/attention/attention_schedule.h"

namespace kvgauge::attention_schedule {
namespace {

int64_t PadFloats(int64_t count) {
  return (count + kVectorFloats - 1) / kVectorFloats * kVectorFloats;
}

// Whether the lower half of the float is 0.
bool IsShort(float number) { return (std::bit_cast<uint32_t>(number) & 0xffff) == 0; }

}  // namespace

StreamPlan::StreamPlan(const KvCodec& kv_codec)
    : codec(kv_codec),
      integers(false),
      numbers(false),
      form(NumberForm::kTable),
      step_scales(false),
      code_middle(0),
      middle(0),
      largest(0) {
  const CodedLayout& layout = codec.layout;
  // Scales must be one to a step, which folds them into rows, and groups whole strips or whole
  // vectors, so that a vector of columns has one group. (Along the entries for keys, along the dims
  // for values.)
  const bool along =
      layout.axis == (layout.side == KvSide::kKeys ? CodeAxis::kChannel : CodeAxis::kToken);
  const bool alone = !IsRecord(codec.kind) && layout.vectors % 4 == 0 && !kv_codec.has_outliers() &&
                     kv_codec.rank == 0;
  const bool whole_vectors = layout.group % kCodeLanes == 0 || layout.groups <= 1;
  integers = codec.kind == KvCodecKind::kAffine && along && layout.bits >= 2 && layout.bits <= 4 &&
             layout.steps % kCodeLanes == 0 && alone && whole_vectors;
  if (codec.kind == KvCodecKind::kFp8E4M3) form = NumberForm::kE4M3;
  if (codec.kind == KvCodecKind::kFp8E5M2) form = NumberForm::kE5M2;
  const bool float8 = form != NumberForm::kTable;
  if (layout.bits == 8 && !float8) form = NumberForm::kByte;
  if (form == NumberForm::kTable && std::ranges::all_of(codec.table, IsShort)) {
    form = NumberForm::kShortTable;
  }
  // Scales that are fixed ahead belong to dims, which are the steps of keys.
  step_scales = codec.fixed_scales != nullptr ? layout.side == KvSide::kKeys : along;
  numbers = !integers && alone && (layout.bits == 4 || layout.bits == 8) &&
            layout.zero_offset == 0 && codec.low == nullptr && layout.steps % 2 == 0 &&
            (step_scales ? whole_vectors : layout.group % 2 == 0 || layout.groups <= 1);
  const int count = 1 << layout.bits;
  code_middle = 0.5f * static_cast<float>(count - 1);
  middle = code_middle - codec.offset;
  for (int i = 0; i < 16; ++i) table[i] = static_cast<float>(i % count) - code_middle;
  const int64_t field = layout.bits == 2   ? kLargestField<2>
                        : layout.bits == 3 ? kLargestField<3>
                                           : kLargestField<4>;
  largest = static_cast<float>(std::min<int64_t>(INT16_MAX, INT32_MAX / (layout.steps * field)));
}

Next CpuAttention::NextUnit(const Call& call, Following* following) {
  if (following == nullptr || following->piece == nullptr) return {};
  const Following taken = std::exchange(*following, {});
  return NextKeys(call, *taken.piece, taken.page);
}

// The pages of a span, as lists name them.
void CpuAttention::FetchLists(const Piece& piece, int64_t page) {
  const KvSegment& segment = *piece.segment;
  for (const auto* list : {segment.key_pages, segment.value_pages}) {
    if (list != nullptr) __builtin_prefetch(list + page, 0, 3);
  }
}

Piece CpuAttention::Call::MakePiece(const KvSegment& segment) const {
  KvFormat format = shape.format;
  format.by_entry = segment.by_entry;
  if (!segment.key_basis.empty()) format.key_dim = segment.key_basis.shape[1];
  if (!segment.value_basis.empty()) format.value_dim = segment.value_basis.shape[1];
  Piece piece{PageLayout(format)};
  piece.segment = &segment;
  piece.absorbed = !segment.key_basis.empty() && segment.rotation == nullptr;
  piece.key_plan = PlanOf(segment.keys);
  piece.value_plan = PlanOf(segment.values);
  // Queries that absorbed a basis are f32, so float pages are multiplied as such, too.
  piece.tail_tile = piece.absorbed && bf16_rows;
  if (segment.rotation != nullptr) {
    piece.keys = PageSource::kTile;
  } else if (piece.key_plan != nullptr) {
    piece.keys = piece.key_plan->fused() ? PageSource::kCodes : PageSource::kTile;
  } else if (piece.tail_tile) {
    piece.keys = PageSource::kTile;
  }
  if (segment.values_in_keys) {
    piece.values = PageSource::kTile;
  } else if (piece.value_plan != nullptr) {
    piece.values = piece.value_plan->fused() ? PageSource::kCodes : PageSource::kTile;
  }
  piece.f32_entries = f32_entry_rows && segment.by_entry && segment.read != nullptr &&
                      piece.keys == PageSource::kPlain;
  return piece;
}

const StreamPlan* CpuAttention::Call::PlanOf(const KvCoded& stream) const {
  if (stream.entries == 0) return nullptr;
  for (const auto& [codec, plan] : plans) {
    if (codec == stream.codec) return plan.get();
  }
  return nullptr;
}

void CpuAttention::Call::AddPlan(const KvCoded& stream) {
  if (stream.entries == 0 || PlanOf(stream) != nullptr) return;
  plans.emplace_back(stream.codec, std::make_unique<StreamPlan>(*stream.codec));
}

void CpuAttention::Call::Survey(const KvSegment& segment) {
  AddPlan(segment.keys);
  AddPlan(segment.values);
  const Piece piece = MakePiece(segment);
  const auto raise = [](auto& value, auto least) { value = std::max(value, least); };
  raise(value_stride, piece.stored.value_width);
  raise(page_steps, int64_t{piece.stored.key_steps});
  if (piece.keys != PageSource::kPlain || segment.values_in_keys) {
    raise(stored_tile, int64_t{kEntries} * piece.stored.key_steps);
  }
  if (piece.key_plan != nullptr) raise(tail_tile, int64_t{kEntries} * piece.stored.key_steps);
  if (piece.value_plan != nullptr) raise(tail_tile, int64_t{kEntries} * kPanelWidth);
  if (piece.keys != PageSource::kPlain) {
    raise(key_tile, int64_t{kEntries} * layout.key_steps);
  }
  if (piece.values != PageSource::kPlain) {
    raise(value_tile, int64_t{kEntries} * piece.stored.value_width);
  }
  exact_rows |= bf16_rows && NeedsExactRows(piece);
  if (piece.absorbed) {
    raise(latent_queries, PadFloats(piece.stored.key_dim));
    raise(basis, layout.key_dim * PadFloats(piece.stored.key_dim));
  }
  const auto raise_fold = [&](const StreamPlan* plan) {
    if (plan == nullptr || !plan->fused()) return;
    raise(folded, int64_t{plan->ScaleGroups()} * plan->codec.layout.steps);
    if (plan->integers) {
      raise(fold_groups, int64_t{plan->codec.layout.groups});
      raise(fold_steps, int64_t{plan->codec.layout.steps});
    }
    if (plan->numbers) raise(code_scales, plan->Scales());
  };
  raise_fold(piece.key_plan);
  raise_fold(piece.value_plan);
  if (piece.LatentValues()) {
    latent_values = true;
    raise(basis, int64_t{piece.stored.value_dim} * layout.value_width);
  }
  if (segment.by_entry) {
    raise(entry_panel, std::max(piece.stored.KeyBytes(), piece.stored.ValueBytes()));
  }
  extras |= segment.bias != nullptr || segment.key_scale != nullptr ||
            segment.value_scale != nullptr || segment.read_bias != nullptr;
}

bool CpuAttention::SomeHeadReads(const Call& call, const Piece& piece, int64_t page) {
  for (int g = 0; g < call.group; ++g) {
    if (piece.segment->read[g][page] != 0) return true;
  }
  return false;
}

CpuAttention::Rows CpuAttention::RowsFor(const Call& call, const Piece& piece, PageSource source,
                                         const Scratch& scratch) const {
  const int64_t steps = call.layout.key_steps, float_bytes = sizeof(float);
  if (piece.absorbed) {
    const int64_t width = PadFloats(piece.stored.key_dim);
    return {reinterpret_cast<const char*>(scratch.latent_queries), width, width * float_bytes};
  }
  if (source == PageSource::kPlain || !call.bf16_rows) {
    return {scratch.queries, steps, steps * call.QueryBytes()};
  }
  return {reinterpret_cast<const char*>(scratch.exact_queries), steps, steps * float_bytes};
}

PageSource CpuAttention::KeySource(const Piece& piece, int64_t page) const {
  if (piece.keys != PageSource::kCodes) return piece.keys;
  const int64_t coded = piece.segment->keys.entries;
  if ((page + 1) * kEntries <= coded) return PageSource::kCodes;
  return page * kEntries < coded || piece.tail_tile ? PageSource::kTile : PageSource::kPlain;
}

const void* CpuAttention::KeyPanel(const Piece& piece, int64_t page, const Scratch& scratch) const {
  const void* keys = piece.segment->key_pages[page];
  if (!piece.stored.by_entry) return keys;
  const char* rows[kEntries];
  for (int e = 0; e < kEntries; ++e) {
    rows[e] = static_cast<const char*>(keys) + e * piece.stored.KeyRowBytes();
  }
  kernels_.turn_rows[static_cast<int>(piece.stored.dtype)](rows, kEntries, piece.stored.key_steps,
                                                           scratch.entry_panel);
  return scratch.entry_panel;
}

const char* CpuAttention::ValuePanels(const Piece& piece, int64_t page, const Scratch& scratch) {
  const void* values = piece.segment->value_pages[page];
  if (!piece.stored.by_entry) return static_cast<const char*>(values);
  PanelsOfValueRows(piece.stored, values, scratch.entry_panel);
  return scratch.entry_panel;
}

void CpuAttention::ScorePage(const Call& call, const Piece& piece, int64_t page, const Next& next,
                             int64_t row, int rows, const Scratch& scratch, float* scores,
                             int64_t stride) const {
  const KvSegment& segment = *piece.segment;
  const PageSource source = KeySource(piece, page);
  const Rows queries = RowsFor(call, piece, source, scratch);
  const char* a = queries.data + row * queries.row_bytes;
  if (source == PageSource::kPlain) {
    MultiplyPage(call, KeyPanel(piece, page, scratch), next.data, piece.stored.key_steps,
                 kPanelWidth, a, queries.stride, rows, false, scores, stride, scratch.page);
  } else if (source == PageSource::kCodes) {
    MultiplyCodes(call, *piece.key_plan,
                  {.pages = segment.keys.pages.codes + page,
                   .after = &next,
                   .count = 1,
                   .a = reinterpret_cast<const float*>(a),
                   .a_stride = queries.stride,
                   .a_page = 0,
                   .rows = rows,
                   .accumulate = false,
                   .out = scores,
                   .out_stride = stride,
                   .out_page = 0},
                  scratch);
  } else {
    const float* tile = KeyTile(call, piece, page, next, scratch);
    const int steps = piece.absorbed ? piece.stored.key_dim : call.layout.key_dim;
    kernels_.product[static_cast<int>(DType::kF32)](
        {a, queries.stride, rows, tile, tile, steps, kPanelWidth, scores, stride, false});
  }
}

// Rows times pages of codes. Each group's scales go into the rows, its zeros into a constant.
void CpuAttention::MultiplyCodes(const Call& call, const StreamPlan& plan, const CodeRun& run,
                                 const Scratch& scratch) const {
  if (plan.numbers) return MultiplyNumbers(plan, run, scratch);
  const CodedLayout& layout = plan.codec.layout;
  const int fixed = kernels_.fixed_codes && call.layout.dtype != DType::kF32 ? 1 : 0;
  const int64_t group_stride = int64_t{run.rows} * layout.steps;
  FoldArgs fold = {.scales = nullptr,
                   .zeros = nullptr,
                   .scale_stride = layout.scale_stride,
                   .groups = layout.groups,
                   .steps = layout.steps,
                   .middle = plan.middle,
                   .code_middle = plan.code_middle,
                   .largest = plan.largest,
                   .unit = 1.0f / plan.largest,
                   .a = run.a,
                   .a_stride = run.a_stride,
                   .rows = run.rows,
                   .folded = scratch.folded,
                   .folded_stride = layout.steps,
                   .group_stride = group_stride,
                   .constants = scratch.constants,
                   .units = scratch.units,
                   .products = scratch.products};
  CodedProductArgs args = {
      .codes = nullptr,
      .top_codes = nullptr,
      .pairs = layout.steps / 2,
      .vectors = layout.vectors,
      .group_vectors = layout.groups == 1 ? layout.vectors : layout.group / kCodeLanes,
      .table = plan.table,
      .a = scratch.folded,
      .a_stride = layout.steps,
      .group_stride = group_stride,
      .rows = run.rows,
      .constants = scratch.constants,
      .units = scratch.units,
      .next = nullptr,
      .next_bytes = 0,
      .out = run.out,
      .out_stride = run.out_stride,
      .accumulate = run.accumulate};
  const auto fold_rows = kernels_.fold[fixed];
  const auto multiply = kernels_.coded_product[fixed][layout.bits - 2];
  for (int i = 0; i < run.count; ++i) {
    const auto* page = static_cast<const char*>(run.pages[i]);
    const Next& next = run.after[i];
    fold.scales = reinterpret_cast<const uint16_t*>(page + layout.scale_offset);
    if (layout.zero_offset != 0) {
      fold.zeros = reinterpret_cast<const uint16_t*>(page + layout.zero_offset);
    }
    fold_rows(fold);
    args.codes = page;
    args.top_codes = page + layout.high_offset;
    args.next = static_cast<const char*>(next.data);
    args.next_bytes = next.bytes;
    multiply(args);
    fold.a += run.a_page;
    args.out += run.out_page;
  }
}

// Rows times pages of codes that stand for numbers. Scales of steps go into the rows.
void CpuAttention::MultiplyNumbers(const StreamPlan& plan, const CodeRun& run,
                                   const Scratch& scratch) const {
  const CodedLayout& layout = plan.codec.layout;
  const bool own_scales = layout.scale != ScaleType::kNone;
  const bool by_bytes =
      kernels_.byte_scales && layout.scale == ScaleType::kE4M3 && layout.steps % 64 == 0;
  const bool some = own_scales || plan.codec.fixed_scales != nullptr;
  const bool scaled = some && plan.step_scales;
  const float* scales = own_scales ? scratch.code_scales : plan.codec.fixed_scales;
  if (by_bytes) scales = nullptr;
  ScaleRowsArgs scale = {.scales = scales,
                         .bytes = {nullptr, 0x1p8f * plan.codec.fixed_scale},
                         .scale_stride = layout.scale_stride,
                         .groups = plan.ScaleGroups(),
                         .steps = layout.steps,
                         .a = run.a,
                         .a_stride = run.a_stride,
                         .rows = run.rows,
                         .folded = scratch.folded};
  NumberProductArgs args = {.codes = nullptr,
                            .pairs = layout.steps / 2,
                            .vectors = layout.vectors,
                            .table = plan.codec.table,
                            .offset = plan.codec.offset,
                            .a = scratch.folded,
                            .a_stride = layout.steps,
                            .rows_stride = 0,
                            .vectors_of_rows = layout.vectors,
                            .rows = run.rows,
                            .scales = scaled ? nullptr : scales,
                            .bytes = {},
                            .scale_stride = layout.scale_stride,
                            .group_pairs = layout.steps / 2,
                            .next = nullptr,
                            .next_bytes = 0,
                            .out = run.out,
                            .out_stride = run.out_stride,
                            .accumulate = run.accumulate};
  if (scaled) {
    args.rows_stride = int64_t{run.rows} * layout.steps;
    if (layout.groups > 1) args.vectors_of_rows = layout.group / kCodeLanes;
  } else if (some && layout.groups > 1) {
    args.group_pairs = layout.group / 2;
  }
  const bool raises = plan.form == NumberForm::kE4M3 && kernels_.raise_rows != nullptr;
  for (int i = 0; i < run.count; ++i) {
    const auto* page = static_cast<const char*>(run.pages[i]);
    Next next = run.after[i];
    if (own_scales) {
      next = FetchFirst(next, next.bytes / 64 % args.pairs);
      if (by_bytes) {
        scale.bytes.codes = reinterpret_cast<const uint8_t*>(page) + layout.scale_offset;
        if (!scaled) args.bytes = scale.bytes;
      } else {
        codec_kernels_.scales(plan.codec, page, scratch.code_scales);
      }
    }
    if (scaled) kernels_.scale_rows(scale);
    NumberForm form = plan.form;
    bool as_given = !scaled;
    if (raises) {
      const RaiseRowsArgs raise = {.a = scaled ? scratch.folded : scale.a,
                                   .a_stride = scaled ? layout.steps : run.a_stride,
                                   .rows = scaled ? run.rows * plan.ScaleGroups() : run.rows,
                                   .steps = layout.steps,
                                   .raised = scratch.folded};
      if (kernels_.raise_rows(raise)) {
        form = NumberForm::kRaisedE4M3;
        as_given = false;
      } else if (scaled) {
        kernels_.scale_rows(scale);  // they were raised where they lay
      }
    }
    args.a = as_given ? scale.a : scratch.folded;
    args.a_stride = as_given ? run.a_stride : layout.steps;
    args.codes = page;
    args.next = static_cast<const char*>(next.data);
    args.next_bytes = next.bytes;
    kernels_.number_product[static_cast<int>(form)](args);
    scale.a += run.a_page;
    args.out += run.out_page;
  }
}

// Keys that are not rotated are never rebuilt: q . (B l) = (B^T q) . l.
void CpuAttention::Absorb(const Call& call, const Piece& piece, int64_t rows,
                          const Scratch& scratch) const {
  const float* queries =
      call.bf16_rows ? scratch.exact_queries : reinterpret_cast<const float*>(scratch.queries);
  const Tensor& basis = piece.segment->key_basis;
  const int dim = call.layout.key_dim, latent = piece.stored.key_dim;
  const int width = static_cast<int>(PadFloats(latent));
  for (int k = 0; k < dim; ++k) {
    float* row = scratch.basis + int64_t{k} * width;
    std::copy_n(basis.f32() + k * basis.stride[0], latent, row);
    std::fill(row + latent, row + width, 0.0f);
  }
  kernels_.product[static_cast<int>(DType::kF32)](
      {queries, call.layout.key_steps, static_cast<int>(rows), scratch.basis, scratch.basis, dim,
       width, scratch.latent_queries, width, false});
}

// What entries [first, first + count) of a segment bring to the scores of one head of the group.
// Arrays that end within them are completed in scratch.
ScoreExtras CpuAttention::ExtrasOf(const Piece& piece, int64_t first, int64_t count, int group_head,
                                   const Scratch& scratch, const float** value_scale) const {
  const KvSegment& segment = *piece.segment;
  const int64_t held = std::min(count, segment.slots() - first);
  int used = 0;
  const auto reach = [&](const float* values) -> const float* {
    if (values == nullptr || held == count) return values == nullptr ? nullptr : values + first;
    float* padded = scratch.extras + kSpan * used++;
    std::copy_n(values + first, held, padded);
    std::fill(padded + held, padded + PadFloats(held), 0.0f);
    return padded;
  };
  ScoreExtras extras = {};
  extras.key_scale = reach(segment.key_scale);
  extras.bias = reach(segment.bias);
  if (segment.read_bias != nullptr) extras.read_bias = reach(segment.read_bias[group_head]);
  if (value_scale != nullptr) *value_scale = reach(segment.value_scale);
  if (segment.read != nullptr) extras.read = segment.read[group_head] + first / kEntries;
  return extras;
}

void CpuAttention::ExpandPage(const Call& call, const void* page, int steps, int width,
                              float* out) const {
  if (call.layout.dtype == DType::kF32) {
    std::memcpy(out, page, sizeof(float) * static_cast<size_t>(int64_t{steps} * width));
  } else {
    kernels_.expand[static_cast<int>(call.layout.dtype)](page, steps, width, out);
  }
}

// A coded page as a tile.
void CpuAttention::Rebuild(const StreamPlan& plan, const KvCoded& stream, int64_t page,
                           const Next& next, float* tile) const {
  Fetch(next);
  DecodeTile(codec_kernels_, plan.codec, PageOf(stream.pages, page), tile);
}

// Keys as stored, [stored key dim][64]: in `tile`, or the page itself.
const float* CpuAttention::StoredKeys(const Call& call, const Piece& piece, int64_t page,
                                      const Next& next, const Scratch& scratch, float* tile) const {
  const KvSegment& segment = *piece.segment;
  const int64_t coded = piece.key_plan == nullptr ? 0 : segment.keys.entries - page * kEntries;
  const int64_t held = std::min<int64_t>(kEntries, segment.slots() - page * kEntries);
  const int steps = piece.stored.key_steps;
  if (coded <= 0) {
    Fetch(next);
    const void* keys = KeyPanel(piece, page, scratch);
    if (call.layout.dtype == DType::kF32) return static_cast<const float*>(keys);
    ExpandPage(call, keys, steps, kPanelWidth, tile);
    return tile;
  }
  Rebuild(*piece.key_plan, segment.keys, page, next, tile);
  if (coded < held) {
    ExpandPage(call, KeyPanel(piece, page, scratch), steps, kPanelWidth, scratch.tail_tile);
    for (int k = 0; k < piece.stored.key_dim; ++k) {
      std::copy(scratch.tail_tile + k * kPanelWidth + coded,
                scratch.tail_tile + (k + 1) * kPanelWidth, tile + k * kPanelWidth + coded);
    }
  }
  return tile;
}

// Keys as queries meet them: [key_dim][64], or [stored key dim][64] for absorbed queries.
const float* CpuAttention::KeyTile(const Call& call, const Piece& piece, int64_t page,
                                   const Next& next, const Scratch& scratch) const {
  const KvSegment& segment = *piece.segment;
  const Tensor& basis = segment.key_basis;
  const int dim = call.layout.key_dim;
  if (segment.rotation == nullptr || piece.absorbed) {
    return StoredKeys(call, piece, page, next, scratch, scratch.stored_tile);
  }
  const bool floats = piece.key_plan == nullptr || segment.keys.entries <= page * kEntries;
  if (basis.empty() && floats && 2 * call.shape.rope->cos.shape[0] == dim) {
    RotateTile(call, piece, page, next, call.layout.dtype, KeyPanel(piece, page, scratch),
               scratch.key_tile);
    return scratch.key_tile;
  }
  const float* stored = StoredKeys(call, piece, page, next, scratch,
                                   basis.empty() ? scratch.key_tile : scratch.stored_tile);
  if (!basis.empty()) {
    kernels_.product[static_cast<int>(DType::kF32)]({basis.f32(), basis.stride[0], dim, stored,
                                                     stored, piece.stored.key_dim, kPanelWidth,
                                                     scratch.key_tile, kPanelWidth, false});
  } else if (stored != scratch.key_tile) {
    std::memcpy(scratch.key_tile, stored, sizeof(float) * static_cast<size_t>(dim * kEntries));
  }
  RotateTile(call, piece, page, {}, DType::kF32, scratch.key_tile, scratch.key_tile);
  return scratch.key_tile;
}

// Turns the keys of a page, a panel of `dtype`, to the angles of their places. What comes next is
// fetched with each few pairs: all at once would hold up the loads of this page.
void CpuAttention::RotateTile(const Call& call, const Piece& piece, int64_t page, const Next& next,
                              DType dtype, const void* panel, float* tile) const {
  const DeferredRope& rope = *call.shape.rope;
  const int32_t* at = piece.segment->rotation + page * kEntries;
  const int64_t held = std::min<int64_t>(kEntries, piece.segment->slots() - page * kEntries);
  const auto pairs = static_cast<int>(rope.cos.shape[0]);
  const bool half = rope.layout == RopeLayout::kHalf;
  RotateArgs args = {.panel = panel,
                     .first = 0,
                     .last = pairs,
                     .step = half ? 1 : 2,
                     .other = half ? pairs : 1,
                     .cos = rope.cos.f32(),
                     .sin = rope.sin.f32(),
                     .stride = rope.cos.stride[0],
                     .out = tile};
  const auto rotate = kernels_.rotate[static_cast<int>(dtype)];
  // Skipped slots are never seen: they may turn to any angle.
  const int64_t begin = std::clamp<int64_t>(piece.segment->skip - page * kEntries, 0, held - 1);
  bool run = true;
  for (int64_t e = begin; e < held; ++e) run &= at[e] - at[begin] == e - begin;
  const int64_t first = at[begin] - begin;  // of column 0, as the others go on
  const bool tabled = first >= 0 && first + kEntries <= rope.cos.shape[1] &&
                      rope.sin.stride[0] == rope.cos.stride[0];
  if (run && tabled) {
    args.cos += first;
    args.sin += first;
    const auto groups = static_cast<int>((next.bytes / 64 + kLinesAtOnce - 1) / kLinesAtOnce);
    const int group = groups == 0 ? pairs : (pairs + groups - 1) / groups;
    Next rest = next;
    for (int k = 0; k < pairs; k += group) {
      rest = FetchFirst(rest, kLinesAtOnce);
      args.first = k;
      args.last = std::min(pairs, k + group);
      rotate(args);
      args.cos += group * args.stride;
      args.sin += group * args.stride;
    }
    return Fetch(rest);
  }
  Fetch(next);
  alignas(64) float page_cos[kEntries] = {}, page_sin[kEntries] = {};
  args.cos = page_cos;
  args.sin = page_sin;
  for (int k = 0; k < pairs; ++k) {
    const float* cos = rope.cos.f32() + k * rope.cos.stride[0];
    const float* sin = rope.sin.f32() + k * rope.sin.stride[0];
    if (run) {
      std::copy(cos + at[begin], cos + at[begin] + (held - begin), page_cos + begin);
      std::copy(sin + at[begin], sin + at[begin] + (held - begin), page_sin + begin);
    } else {
      for (int64_t e = begin; e < held; ++e) page_cos[e] = cos[at[e]], page_sin[e] = sin[at[e]];
    }
    args.first = k;
    args.last = k + 1;
    rotate(args);
  }
}

// The first `dims` numbers of keys [dims][64] become a panel [64][width], in squares of four.
void CpuAttention::TurnKeys(const float* keys, int dims, int width, float* panel) {
  using Four [[gnu::vector_size(16)]] = float;
  int d = 0;
  for (; d + 4 <= dims; d += 4) {
    const float* in = keys + d * kPanelWidth;
    float* out = panel + d;
    for (int e = 0; e < kEntries; e += 4, in += 4, out += 4 * width) {
      Four a, b, c, f;
      std::memcpy(&a, in, sizeof a);
      std::memcpy(&b, in + kPanelWidth, sizeof b);
      std::memcpy(&c, in + 2 * kPanelWidth, sizeof c);
      std::memcpy(&f, in + 3 * kPanelWidth, sizeof f);
      const Four low_ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
      const Four high_ab = __builtin_shufflevector(a, b, 2, 6, 3, 7);
      const Four low_cf = __builtin_shufflevector(c, f, 0, 4, 1, 5);
      const Four high_cf = __builtin_shufflevector(c, f, 2, 6, 3, 7);
      a = __builtin_shufflevector(low_ab, low_cf, 0, 1, 4, 5);
      b = __builtin_shufflevector(low_ab, low_cf, 2, 3, 6, 7);
      c = __builtin_shufflevector(high_ab, high_cf, 0, 1, 4, 5);
      f = __builtin_shufflevector(high_ab, high_cf, 2, 3, 6, 7);
      std::memcpy(out, &a, sizeof a);
      std::memcpy(out + width, &b, sizeof b);
      std::memcpy(out + 2 * width, &c, sizeof c);
      std::memcpy(out + 3 * width, &f, sizeof f);
    }
  }
  for (; d < width; ++d) {
    for (int e = 0; e < kEntries; ++e) {
      panel[e * width + d] = d < dims ? keys[d * kPanelWidth + e] : 0.0f;
    }
  }
}

// Entries [begin, 64) of a float page into the value tile.
void CpuAttention::StoredValues(const Call& call, const Piece& piece, int64_t page, int begin,
                                const Scratch& scratch) const {
  const PageLayout& stored = piece.stored;
  const char* data = ValuePanels(piece, page, scratch);
  for (int g = 0; g < stored.ValuePanels(); ++g) {
    const int width = stored.PanelDims(g);
    ExpandPage(call, data + stored.PanelOffset(g), kEntries, width, scratch.tail_tile);
    for (int e = begin; e < kEntries; ++e) {
      std::copy_n(scratch.tail_tile + e * width, width,
                  scratch.value_tile + int64_t{e} * stored.value_width + g * kPanelWidth);
    }
  }
}

// Values as stored: [64][stored value width], or, where they live in the keys, panels of it.
const float* CpuAttention::ValueTile(const Call& call, const Piece& piece, int64_t page,
                                     const Next& next, const Scratch& scratch) const {
  const KvSegment& segment = *piece.segment;
  if (segment.values_in_keys) {
    // In panels: rows of a whole entry would all fall into the same few sets of the cache.
    const float* keys = StoredKeys(call, piece, page, next, scratch, scratch.stored_tile);
    for (int g = 0; g < piece.stored.ValuePanels(); ++g) {
      const int64_t at = int64_t{g} * kPanelWidth * kEntries;
      TurnKeys(keys + at, std::min(kPanelWidth, piece.stored.value_dim - g * kPanelWidth),
               piece.stored.PanelDims(g), scratch.value_tile + at);
    }
    return scratch.value_tile;
  }
  const int64_t coded = segment.values.entries - page * kEntries;
  const int64_t held = std::min<int64_t>(kEntries, segment.slots() - page * kEntries);

  if (coded > 0) {
    Rebuild(*piece.value_plan, segment.values, page, next, scratch.value_tile);
  } else {
    Fetch(next);
  }
  if (coded < held) {
    StoredValues(call, piece, page, static_cast<int>(std::max<int64_t>(0, coded)), scratch);
  }
  return scratch.value_tile;
}

// Weighted latents become weighted values.
void CpuAttention::ExpandValues(const Call& call, const Piece& piece, int64_t rows,
                                const Scratch& scratch, float* values) const {
  const Tensor& basis = piece.segment->value_basis;
  const int width = call.layout.value_width, dim = call.layout.value_dim;
  const int latent = piece.stored.value_dim;
  for (int l = 0; l < latent; ++l) {
    float* row = scratch.basis + int64_t{l} * width;
    for (int d = 0; d < dim; ++d) row[d] = basis.f32()[d * basis.stride[0] + l];
    std::fill(row + dim, row + width, 0.0f);
  }
  kernels_.product[static_cast<int>(DType::kF32)](
      {scratch.latent_values, call.value_stride, static_cast<int>(rows), scratch.basis,
       scratch.basis, latent, width, values, call.value_stride, false});
}

}  // namespace kvgauge::attention_schedule

// SPDX-License-Identifier: Apache-2.0
#include "cuda/attention_tables.h"

#include <algorithm>
#include <cmath>

#include "cuda/attention_kernels.h"
#include "cuda/device/simt.h"

namespace kvgauge::cuda {
namespace {

constexpr double kLog2E = 1.44269504088896340736;

int64_t PagesOf(int64_t entries) { return (entries + kPageEntries - 1) / kPageEntries; }

// In a list of pages: as many as its last span has, so that what lies behind the list moves when a
// kernel is launched otherwise anyway, and not with every page.
int64_t RoomOf(int64_t entries) {
  return PagesOf((entries + kAttentionSpan - 1) / kAttentionSpan * kAttentionSpan);
}

MatrixView MatrixOf(const Tensor& t) {
  if (t.empty()) return {nullptr, 0};
  return {t.As<const float>(), t.stride[0]};
}

const KvCoded& CodedOf(const KvSegment& segment, KvSide side) {
  return side == KvSide::kKeys ? segment.keys : segment.values;
}

// Hands out a block's shared memory.
class SharedCarver {
 public:
  explicit SharedCarver(int used = 0) : used_(used) {}
  int Take(int64_t bytes) {
    const int at = used_;
    used_ += static_cast<int>((bytes + 15) / 16 * 16);
    return at;
  }
  int used() const { return used_; }

 private:
  int used_;
};

// Whether rows in fixed point can meet such codes (attention_fixed.cu).
bool MeetsFixedRows(const CodecView& c) {
  const bool float8 = c.kind == KvCodecKind::kFp8E4M3 || c.kind == KvCodecKind::kFp8E5M2;
  if (HoldsRecords(c) || float8 || c.has_levels || !c.range_table || c.range_of_dims) return false;
  if (c.scale != ScaleType::kF16 || c.bits < 2 || c.bits > 4) return false;
  if (c.keys) return !c.by_token && c.dim % 64 == 0;
  return c.by_token && (c.group % 16 == 0 || c.group >= c.dim);
}

}  // namespace

AttendCall CallOf(const AttentionShape& shape, const Tensor& q) {
  AttendCall call = {};
  call.q = q.As<const float>();
  call.q_stride = q.stride[0];
  call.q_head_stride = q.stride[1];
  call.key_dim = static_cast<int>(shape.format.key_dim);
  call.value_dim = static_cast<int>(shape.format.value_dim);
  if (shape.softcap > 0) {
    call.factor = shape.scale / shape.softcap;
    call.cap = static_cast<float>(shape.softcap * kLog2E);
  } else {
    call.factor = static_cast<float>(shape.scale * kLog2E);
  }
  call.window = static_cast<int>(std::min<int64_t>(shape.window, INT32_MAX));
  call.chunked = shape.chunked;
  if (shape.rope != nullptr && !shape.rope->cos.empty()) {
    call.rope_pairs = static_cast<int>(shape.rope->cos.shape[0]);
    call.rope_half = shape.rope->layout == RopeLayout::kHalf;
    call.cos = MatrixOf(shape.rope->cos);
    call.sin = MatrixOf(shape.rope->sin);
  }
  return call;
}

int64_t SegmentTables::SizeBytes(const KvHead& head) const {
  int64_t bytes = 0;
  for (int64_t s = 0; s < head.count; ++s) {
    const KvSegment& segment = head.segments[s];
    bytes += static_cast<int64_t>(sizeof(SegmentView)) + 2 * RoomOf(segment.slots()) * 8 +
             shape_.query_heads / shape_.kv_heads * 8 + 4 * Tables::kGap;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const KvCoded& coded = CodedOf(segment, side);
      if (coded.entries == 0) continue;
      bytes += static_cast<int64_t>(sizeof(CodecView)) + 12 * coded.codec->dim +
               RecordTableBytes(*coded.codec) +
               RoomOf(coded.entries) * static_cast<int64_t>(sizeof(CodedPage)) + 6 * Tables::kGap;
    }
  }
  return bytes;
}

SideView SegmentTables::SideOf(const KvSegment& segment, KvSide side, Tables& tables) {
  const bool keys = side == KvSide::kKeys;
  const Tensor& basis = keys ? segment.key_basis : segment.value_basis;
  SideView view = {};
  view.basis = MatrixOf(basis);
  view.dim = static_cast<int>(!basis.empty() ? basis.shape[1]
                              : keys         ? shape_.format.key_dim
                                             : shape_.format.value_dim);
  void* const* pages = keys ? segment.key_pages : segment.value_pages;
  if (pages != nullptr) {
    const Tables::Place<void*> list = tables.Put<void*>(RoomOf(segment.slots()));
    std::copy_n(pages, PagesOf(segment.slots()), list.host);
    view.pages = list.device;
    const PageLayout layout = {shape_.format.dtype, view.dim, view.dim};
    const int64_t size_bytes = keys ? layout.KeyBytes() : layout.ValueBytes();
    for (int64_t p = 0; p < PagesOf(segment.slots()) && on_host_ != nullptr; ++p) {
      AddOnHost(segment, p, size_bytes, &list.host[p]);
    }
  }
  const KvCoded& coded = CodedOf(segment, side);
  if (coded.entries == 0) return view;
  view.coded_entries = static_cast<int>(coded.entries);
  CodecView codec = ViewOf(*coded.codec);
  PutRanges(*coded.codec, tables, &codec);
  view.codec = tables.Put(std::span<const CodecView>(&codec, 1));
  view.fixed = MeetsFixedRows(codec);
  const Tables::Place<CodedPage> list = tables.Put<CodedPage>(RoomOf(coded.entries));
  const auto at = [](void* const* from, int64_t p) { return from == nullptr ? nullptr : from[p]; };
  for (int64_t p = 0; p < PagesOf(coded.entries); ++p) {
    list.host[p] = {static_cast<uint8_t*>(coded.pages.codes[p]),
                    static_cast<const uint8_t*>(at(coded.pages.outliers, p)),
                    static_cast<const uint16_t*>(at(coded.pages.latents, p)),
                    static_cast<const uint16_t*>(at(coded.pages.bases, p))};
    AddOnHost(segment, p, CodedPageBytes(codec), &list.host[p].codes);
  }
  view.coded = list.device;
  return view;
}

namespace {

// Whether a head's codes are expanded to 16-bit pages: nothing else of it is expanded, and pages of
// both sides fit in shared memory beside the queries of few rows. It follows from the head, the
// shape and the devices alone, so that a row has the same bits in any company.
bool HasNarrowCodes(const AttentionShape& shape, const KvHead& head) {
  constexpr int64_t kMostDims = 256;
  const KvFormat& format = shape.format;
  if (format.dtype == DType::kF32 || format.key_dim > kMostDims || format.value_dim > kMostDims) {
    return false;
  }
  SharedNeeds needs;
  needs.keys16 = needs.values16 = needs.narrow_codes = true;
  needs.value_dim = static_cast<int>(format.value_dim);
  if (SpanShared(shape, needs, 1).total > MostSharedBytes()) return false;
  return std::all_of(head.segments, head.segments + head.count, [](const KvSegment& s) {
    return s.rotation == nullptr && s.key_basis.empty() && s.value_basis.empty() &&
           !s.values_in_keys;
  });
}

}  // namespace

int SegmentTables::Fill(const KvHead& head, Tables& tables) {
  const int begin = static_cast<int>(views_.size());
  const bool narrow_codes = HasNarrowCodes(shape_, head);
  int64_t first = 0;
  for (int64_t s = 0; s < head.count; ++s) {
    const KvSegment& segment = head.segments[s];
    SegmentView view = {};
    view.keys = SideOf(segment, KvSide::kKeys, tables);
    if (!segment.values_in_keys) {
      view.values = SideOf(segment, KvSide::kValues, tables);
    } else {
      view.values.basis = MatrixOf(segment.value_basis);
      view.values.dim = static_cast<int>(
          segment.value_basis.empty() ? shape_.format.value_dim : segment.value_basis.shape[1]);
    }
    view.stored = {shape_.format.dtype, view.keys.dim, view.values.dim};
    view.length = static_cast<int>(segment.slots());
    view.skip = static_cast<int>(segment.skip);
    view.first = static_cast<int>(first - segment.skip);
    view.values_in_keys = segment.values_in_keys;
    view.numbers = segment.rotation != nullptr || !segment.key_basis.empty();
    view.narrow_codes = narrow_codes;
    if (narrow_codes && view.keys.fixed && view.values.fixed) {
      view.fixed_pages =
          std::min(view.keys.coded_entries, view.values.coded_entries) / kPageEntries;
    }
    view.bias = segment.bias;
    view.key_scale = segment.key_scale;
    view.value_scale = segment.value_scale;
    view.rotation = segment.rotation;
    view.positions = segment.positions;
    if (segment.read != nullptr) {
      view.read = tables.Put(std::span<const uint64_t* const>(
          segment.read, static_cast<size_t>(shape_.query_heads / shape_.kv_heads)));
    }
    if (segment.read_bias != nullptr) {
      view.read_bias = tables.Put(std::span<const float* const>(
          segment.read_bias, static_cast<size_t>(shape_.query_heads / shape_.kv_heads)));
    }
    views_.push_back(view);
    first += segment.length;
  }
  KVG_CHECK(first <= INT32_MAX / 2, "cuda: a head of more than 2^30 entries");
  return begin;
}

void SharedNeeds::Add(const AttentionShape& shape, const SegmentView& view, int first_page) {
  const bool wide = shape.format.dtype == DType::kF32;
  const int first = first_page * kPageEntries;
  const bool coded_keys = view.keys.coded_entries > first;
  const bool coded_values = view.values_in_keys ? coded_keys : view.values.coded_entries > first;
  const bool narrow = view.narrow_codes;
  narrow_codes = narrow_codes || (narrow && (coded_keys || coded_values));
  keys16 = keys16 || (!wide && !view.numbers);
  if (wide || view.numbers || (coded_keys && !narrow)) {
    const bool projected = view.keys.basis.data != nullptr && view.rotation == nullptr;
    const auto full = static_cast<int>(shape.format.key_dim);
    expanded_dims = std::max(expanded_dims, projected ? view.keys.dim : full);
    rebuilt = rebuilt || (view.keys.basis.data != nullptr && !projected);
  }
  values16 = values16 || !wide;
  values32 = values32 || wide || (coded_values && !narrow);
  value_dim = std::max(value_dim, view.values.dim);
  if (view.values.basis.data != nullptr) latent_values = std::max(latent_values, view.values.dim);
  page_bytes = std::max(
      page_bytes, view.stored.KeyBytes() + (view.values_in_keys ? 0 : view.stored.ValueBytes()));
}

namespace {

constexpr int64_t kExpandedKeys = 64 * 64 * 4;  // of one part of a page
constexpr int64_t kExpandedEntries = 16;        // of values
constexpr int64_t kSixteenths = 4;

// How a page lies whose entries are no latents.
PageLayout StoredLayout(const AttentionShape& shape) {
  return {shape.format.dtype, static_cast<int>(shape.format.key_dim),
          static_cast<int>(shape.format.value_dim)};
}

SharedPlan PlanOf(const AttentionShape& shape, const SharedNeeds& needs, int row_tiles,
                  int64_t weights16, int64_t weights32, int64_t least_room) {
  const int64_t rows = int64_t{16} * row_tiles;
  SharedCarver carver;
  SharedPlan plan = {};
  plan.q16 = carver.Take(needs.keys16 ? (shape.format.key_dim + 15) / 16 * 512 * row_tiles : 0);
  plan.q32 = carver.Take(rows * needs.expanded_dims * 4);
  plan.weights16 = carver.Take(weights16);
  plan.weights32 = carver.Take(weights32);
  plan.maxima = carver.Take(2 * kSixteenths * rows * 4);
  int64_t room = least_room;
  if (needs.expanded_dims > 0) room = std::max(room, kExpandedKeys * (needs.rebuilt ? 2 : 1));
  plan.tile = carver.Take(room);
  if (needs.narrow_codes) {
    plan.keys = carver.Take(kKeyParts * StoredLayout(shape).KeyBytes());
    plan.key_ranges = carver.Take(int64_t{8} * kMostRanges);
  }
  plan.total = carver.used();
  return plan;
}

// Pages on their way while one is multiplied, so many that two blocks share a multiprocessor.
void AddStages(const SharedNeeds& needs, SharedPlan* plan) {
  if (needs.page_bytes == 0) return;
  constexpr int64_t kMostStages = 2, kHalf = 112 * 1024;
  const int64_t limit = MostSharedBytes(), half = std::min(kHalf, limit);
  const int64_t count = std::min(kMostStages, (half - plan->total) / needs.page_bytes);
  const int64_t most = std::min(kMostStages, (limit - plan->total) / needs.page_bytes);
  const int64_t stages = count >= 2 ? count : std::min<int64_t>(most, 2);
  if (stages < 2) return;
  plan->stages = plan->total;
  plan->stage_count = static_cast<int>(stages);
  plan->stage_bytes = static_cast<int>(needs.page_bytes);
  plan->total += static_cast<int>(stages * needs.page_bytes);
}

}  // namespace

SharedPlan SpanShared(const AttentionShape& shape, const SharedNeeds& needs, int row_tiles) {
  const int64_t rows = int64_t{16} * row_tiles, width = (needs.value_dim + 7) / 8 * 8;
  const int64_t parts = shape.format.dtype == DType::kF16 ? 2 : 1;
  const int64_t latents = (needs.latent_values + 7) / 8 * 8;
  SharedPlan plan =
      PlanOf(shape, needs, row_tiles, needs.values16 ? kSixteenths * parts * 512 * row_tiles : 0,
             needs.values32 ? kPageEntries * rows * 4 : 0,
             std::max(needs.values32 ? kExpandedEntries * width * 4 : 0, rows * latents * 4));
  if (needs.plain()) {
    AddStages(needs, &plan);
    return plan;
  }
  if (!needs.narrow_codes) return plan;
  SharedCarver carver(plan.total);
  plan.values = carver.Take(StoredLayout(shape).ValueBytes());
  plan.value_ranges = carver.Take(int64_t{8} * kMostRanges);
  plan.total = carver.used();
  return plan;
}

SharedPlan CaptureShared(const AttentionShape& shape, const SharedNeeds& needs, int row_tiles) {
  return PlanOf(shape, needs, row_tiles, 0, int64_t{16} * row_tiles * kPageEntries * 4, 0);
}

}  // namespace kvgauge::cuda

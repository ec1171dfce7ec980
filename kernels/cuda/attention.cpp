// SPDX-License-Identifier: Apache-2.0
// Attention on a device: what is worked on is decided here, in lists that go to the device in one
// copy a call. Nothing is read back.
#include <algorithm>
#include <cstddef>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "cuda/attention_capture.h"
#include "cuda/attention_kernels.h"
#include "cuda/attention_tables.h"
#include "cuda/backend_parts.h"
#include "cuda/device/context.h"
#include "cuda/device/graph_recorder.h"
#include "cuda/device/mapped.h"
#include "cuda/kv_keep_lists.h"
#include "cuda/page_fetch.h"
#include "cuda/pages_kernels.h"
#include "cuda/prefill_choice.h"

namespace kvgauge::cuda {
namespace {

constexpr int64_t kPage = kKvPageEntries;
// Partial states that may wait for their merge at a time.
constexpr int64_t kMostPartialBytes = int64_t{256} << 20;
constexpr int kFewTiles = 1, kManyTiles = 4;
// Beyond this many dims, queries of many rows do not fit in shared memory beside what is expanded.
constexpr int64_t kMostManyDims = 256;

// The bytes of a unit's partial states.
int64_t UnitBytes(int64_t rows, int64_t value_stride) {
  return rows * (static_cast<int64_t>(sizeof(RowState)) + 4 * value_stride);
}

int64_t PagesOf(int64_t entries) { return (entries + kPage - 1) / kPage; }

PageLayout LayoutOf(const KvFormat& format) {
  return {format.dtype, static_cast<int>(format.key_dim), static_cast<int>(format.value_dim)};
}

RowsView RowsOf(const Tensor& t) {
  return {t.As<float>(), t.stride[0], t.rank == 3 ? t.stride[1] : 0};
}

int64_t IndexOfRow0(const AttentionItem& item, const KvHead& head) {
  if (item.first_position == kSeesAll) return head.length() - 1;
  return item.first_position == kEndAligned ? head.length() - item.rows : item.first_position;
}

// Work of one shape of SpanAttention: few rows or many, of heads that are plain, that have codes
// which are expanded to 16 bits, or of which something is expanded to f32. A block's shared memory
// is the most that any of the heads needs.
constexpr int kNeeds = 3, kWorks = 2 * kNeeds;
struct SpanWork {
  std::vector<SpanUnit> units, fixed;  // the latter of FixedSpans
  // What a job's units begin at in these lists. Its places are theirs, and follow each other.
  struct JobBegin {
    int64_t unit, fixed;
  };
  std::vector<MergeJob> jobs;
  std::vector<JobBegin> begins;  // [jobs]
  SharedNeeds needs;             // of `units`
  std::vector<int64_t> chunks;   // [jobs] of pages on the host; or fewer: none

  int64_t places() const { return std::ssize(units) + std::ssize(fixed); }
  JobBegin BeginOf(size_t job) const {
    return job < begins.size() ? begins[job] : JobBegin{std::ssize(units), std::ssize(fixed)};
  }

  int64_t ChunkOf(size_t job) const { return job < chunks.size() ? chunks[job] : kNoChunk; }
  static constexpr int64_t kNoChunk = -1;
};

// Its lists on the device.
struct SpanLists {
  const SpanUnit *units, *fixed;
  const MergeJob* jobs;
};

// A head with pages on the host, and the jobs that read it.
struct HeadOnHost {
  HostPages pages;
  size_t first_job, jobs;
};

class CudaAttention final : public AttentionOps {
 public:
  explicit CudaAttention(const Context& context)
      : stream_(context.stream()),
        prefill_(context.info(), stream_),
        tables_(stream_),
        lists_(stream_),
        keeper_(stream_),
        fetch_(stream_),
        partial_states_(stream_),
        partial_values_(stream_) {}

  int64_t KeyPageBytes(const KvFormat& format) const override {
    return LayoutOf(format).KeyBytes();
  }
  int64_t ValuePageBytes(const KvFormat& format) const override {
    return LayoutOf(format).ValueBytes();
  }

 private:
  void DoWriteKv(const KvFormat& format, const Tensor& keys, const Tensor& values,
                 std::span<const KvTarget> heads) override {
    const int64_t n = (keys.empty() ? values : keys).shape[0];
    const auto count = static_cast<int64_t>(heads.size());
    int64_t bytes = 2 * (count * static_cast<int64_t>(sizeof(WriteTarget)) + Tables::kGap);
    const auto pages_of = [n](const KvTarget& head) {
      return PagesOf(head.first_entry % kPage + n);
    };
    for (const KvTarget& head : heads) bytes += 2 * (pages_of(head) * 8 + Tables::kGap);
    if (AnyMapped() && AnyOnHost(heads, n)) NoteWriteToMapped();
    tables_.Begin(bytes);
    const WriteTarget* targets[2] = {};
    for (const bool is_keys : {true, false}) {
      if ((is_keys ? keys : values).empty()) continue;
      const Tables::Place<WriteTarget> list = tables_.Put<WriteTarget>(count);
      for (int64_t h = 0; h < count; ++h) {
        const KvTarget& head = heads[static_cast<size_t>(h)];
        void* const* pages = is_keys ? head.key_pages : head.value_pages;
        list.host[h] = {tables_.Put(std::span<void* const>(pages + head.first_entry / kPage,
                                                           static_cast<size_t>(pages_of(head)))),
                        head.first_entry};
      }
      targets[is_keys ? 0 : 1] = list.device;
    }
    tables_.Send(stream_);
    const PageLayout layout = LayoutOf(format);
    if (!keys.empty()) WritePages(layout, true, RowsOf(keys), n, count, targets[0], stream_);
    if (!values.empty()) WritePages(layout, false, RowsOf(values), n, count, targets[1], stream_);
  }

  static bool AnyOnHost(std::span<const KvTarget> heads, int64_t n) {
    MappedLookup mapped;
    for (const KvTarget& head : heads) {
      for (int64_t p = head.first_entry / kPage; p < PagesOf(head.first_entry + n); ++p) {
        for (void* const* pages : {head.key_pages, head.value_pages}) {
          if (pages != nullptr && mapped.Holds(pages[p])) return true;
        }
      }
    }
    return false;
  }

  void Read(const KvFormat& format, const KvSegment& segment, const int32_t* index, int64_t first,
            const Tensor& keys, const Tensor& values) {
    const int64_t pages = PagesOf(segment.length);
    const int sides = (keys.empty() ? 0 : 1) + (values.empty() ? 0 : 1);
    tables_.Begin(sides * (pages * 8 + Tables::kGap));
    const auto list = [&](void* const* from, const Tensor& rows) -> void* const* {
      if (rows.empty()) return nullptr;
      return tables_.Put(std::span<void* const>(from, static_cast<size_t>(pages)));
    };
    void* const* const key_pages = list(segment.key_pages, keys);
    void* const* const value_pages = list(segment.value_pages, values);
    tables_.Send(stream_);
    const PageLayout layout = LayoutOf(format);
    if (!keys.empty()) {
      ReadPages(layout, true, key_pages, index, first, RowsOf(keys), keys.shape[0], stream_);
    }
    if (!values.empty()) {
      ReadPages(layout, false, value_pages, index, first, RowsOf(values), values.shape[0], stream_);
    }
  }
  void DoReadKv(const KvFormat& format, const KvSegment& segment, int64_t first_entry, Tensor keys,
                Tensor values) override {
    Read(format, segment, nullptr, first_entry, keys, values);
  }
  void DoGatherKv(const KvFormat& format, const KvSegment& segment, const Tensor& index,
                  Tensor keys, Tensor values) override {
    Read(format, segment, index.As<const int32_t>(), 0, keys, values);
  }

  void DoCopyKv(const KvFormat& format, const KvSegment& from, const Tensor& index,
                const KvTarget& to) override {
    const int64_t n = index.shape[0];
    const int64_t from_pages = PagesOf(from.length), to_pages = PagesOf(to.first_entry + n);
    if (AnyMapped()) NoteWriteToMapped();
    tables_.Begin(2 * ((from_pages + to_pages) * 8 + 2 * Tables::kGap));
    struct Side {
      void* const* from = nullptr;
      void* const* to = nullptr;
      bool in_place = false;
    };
    const auto side_of = [&](void* const* source, void* const* target) {
      if (target == nullptr) return Side();
      const Side side = {
          tables_.Put(std::span<void* const>(source, static_cast<size_t>(from_pages))),
          tables_.Put(std::span<void* const>(target, static_cast<size_t>(to_pages))),
          source == target};
      return side;
    };
    const Side keys = side_of(from.key_pages, to.key_pages);
    const Side values = side_of(from.value_pages, to.value_pages);
    tables_.Send(stream_);
    const PageLayout layout = LayoutOf(format);
    for (const bool is_keys : {true, false}) {
      const Side& side = is_keys ? keys : values;
      if (side.to == nullptr) continue;
      CopyPages(layout, is_keys, side.from, index.As<const int32_t>(), n, side.to, to.first_entry,
                side.in_place, stream_);
    }
  }

  void DoKeepKv(const KvFormat& format, std::span<const KvKeep> heads, Tensor outcome) override {
    if (AnyMapped()) NoteWriteToMapped();
    keeper_.Keep(LayoutOf(format), heads, outcome);
  }

  // Rows over nothing but 16-bit float pages.
  static bool Plain(const KvHead& head) {
    return std::all_of(head.segments, head.segments + head.count, [](const KvSegment& s) {
      return s.keys.entries == 0 && s.values.entries == 0 && s.rotation == nullptr &&
             s.key_basis.empty() && s.value_basis.empty() && !s.values_in_keys;
    });
  }

  // Which rows see ahead, in the tables; null: none.
  static int64_t SizeOfAhead(const AttentionItem& item) {
    return item.ahead.empty() ? 0 : std::ssize(item.ahead) * 4 + Tables::kGap;
  }
  const int32_t* PutAhead(const AttentionItem& item) {
    return item.ahead.empty() ? nullptr : tables_.Put(item.ahead);
  }

  // What the pages of a segment need that rows in fixed point do not meet.
  static void AddNeeds(const AttentionShape& shape, const KvSegment& segment,
                       const SegmentView& view, SharedNeeds* needs) {
    if (segment.length == 0 || segment.slots() <= view.fixed_pages * kPage) return;
    needs->Add(shape, view, view.fixed_pages);
  }

  // The spans of a head's segments that a tile of rows may see.
  static void AddSpans(const AttentionShape& shape, const AttentionItem& item, const KvHead& head,
                       int first_segment, const RowTile& tile, int tile_index,
                       const SegmentTables& segments, SpanWork* work) {
    const int64_t least = tile.index0 + tile.item_row(0);
    const int last_row = tile.item_row(tile.count - 1);
    const int64_t most = tile.index0 + last_row +
                         (item.ahead.empty() ? 0 : item.ahead[static_cast<size_t>(last_row)]);
    const int64_t reach = shape.chunked ? least % shape.window + 1 : shape.window;
    const int64_t first_unit = work->places();
    work->begins.push_back(work->BeginOf(work->jobs.size()));
    for (int64_t s = 0; s < head.count; ++s) {
      const KvSegment& segment = head.segments[s];
      const SegmentView& view = segments.views()[static_cast<size_t>(first_segment + s)];
      const int64_t fixed_end = view.fixed_pages * kPage;
      AddNeeds(shape, segment, view, &work->needs);
      for (int64_t begin = 0; begin < segment.slots(); begin += kAttentionSpan) {
        const int64_t end = std::min(begin + kAttentionSpan, segment.slots());
        if (view.first + begin > most) break;
        const bool passed = shape.window > 0 && segment.positions == nullptr &&
                            view.first + end - 1 <= least - reach;
        if (passed) continue;
        const auto add = [&](std::vector<SpanUnit>& units) {
          units.push_back({static_cast<int>(first_segment + s),
                           static_cast<int>(begin / kAttentionSpan), tile_index,
                           static_cast<int>(work->places())});
        };
        if (begin < fixed_end) add(work->fixed);
        if (end > fixed_end) add(work->units);
      }
    }
    work->jobs.push_back({first_unit, static_cast<int>(work->places() - first_unit), tile_index});
  }

  void DoAttend(const AttentionShape& shape, std::span<const AttentionItem> items, const Tensor& q,
                Tensor out, const AttentionCapture& capture) override {
    const int group = static_cast<int>(shape.query_heads / shape.kv_heads);
    const auto key_dim = static_cast<int>(shape.format.key_dim);
    const auto value_dim = static_cast<int>(shape.format.value_dim);
    const PrefillWay& way = prefill_.For(shape.format.dtype, key_dim, value_dim);
    const int prefill_rows =
        capture.entropy.empty() ? way.rows(shape.format.dtype, key_dim, value_dim) : 0;
    std::vector<HostPage> on_host;
    std::vector<HeadOnHost> heads_on_host;
    SegmentTables segments(shape, AnyMapped() ? &on_host : nullptr);
    int64_t bytes = 0;
    for (const AttentionItem& item : items) {
      for (const KvHead& head : item.heads) bytes += segments.SizeBytes(head);
      bytes += SizeOfAhead(item);
    }
    tables_.Begin(bytes + Tables::kGap);
    std::vector<RowTile> tiles;
    std::vector<PrefillJob> prefill;
    SpanWork works[kWorks];
    for (const AttentionItem& item : items) {
      const int32_t* const ahead = PutAhead(item);
      for (int64_t h = 0; h < shape.kv_heads && item.rows > 0; ++h) {
        const KvHead& head = item.heads[static_cast<size_t>(h)];
        const size_t first_on_host = on_host.size();
        const int first_segment = segments.Fill(head, tables_);
        bool fetched = on_host.size() > first_on_host;
        const int64_t rows = item.rows * group;
        // Pages on the host come head by head, as spans do; rows have the same bits either way.
        const bool long_rows =
            prefill_rows > 0 && rows > kManyTiles * 16 && !fetched && Plain(head);
        const auto with_head = [&](SharedNeeds needs) {
          for (int64_t s = 0; s < head.count; ++s) {
            AddNeeds(shape, head.segments[s],
                     segments.views()[static_cast<size_t>(first_segment + s)], &needs);
          }
          return needs;
        };
        const SharedNeeds needs = with_head({});
        const int need = needs.plain() ? 0 : needs.narrow_codes ? 1 : 2;
        const SharedNeeds together = with_head(works[kNeeds + need].needs);
        const bool few_rows = rows <= kFewTiles * 16 || !ManyRowsFit(shape, head) ||
                              SpanShared(shape, together, kManyTiles).total > MostSharedBytes();
        const int kind = (few_rows ? 0 : kNeeds) + need;
        SpanWork* const work = &works[kind];
        const size_t first_job = work->jobs.size();
        const SpanWork::JobBegin first = work->BeginOf(first_job);
        const int64_t step = long_rows ? prefill_rows : 16 * (few_rows ? kFewTiles : kManyTiles);
        for (int64_t r0 = 0; r0 < rows; r0 += step) {
          const auto tile_index = static_cast<int>(tiles.size());
          tiles.push_back({.first_row = item.first_row,
                           .index0 = static_cast<int>(IndexOfRow0(item, head)),
                           .token0 = static_cast<int>(item.token_position),
                           .r0 = static_cast<int>(r0),
                           .count = static_cast<int>(std::min(step, rows - r0)),
                           .group = group,
                           .head0 = static_cast<int>(h) * group,
                           .mask_head0 = 0,
                           .ahead = ahead});
          if (long_rows) {
            prefill.push_back({first_segment, static_cast<int>(head.count), tile_index, 0});
          } else {
            AddSpans(shape, item, head, first_segment, tiles.back(), tile_index, segments, work);
          }
        }
        if (fetched) {
          std::vector<SpanUnit> added(work->units.begin() + first.unit, work->units.end());
          added.insert(added.end(), work->fixed.begin() + first.fixed, work->fixed.end());
          KeepSpans(added, first_on_host, &on_host);
          fetched = on_host.size() > first_on_host;
        }
        if (fetched) {
          heads_on_host.push_back({{first_on_host, on_host.size() - first_on_host, kind},
                                   first_job,
                                   work->jobs.size() - first_job});
        }
      }
    }
    // The rows that see most begin first.
    std::stable_sort(prefill.begin(), prefill.end(), [&](const PrefillJob& a, const PrefillJob& b) {
      const auto last = [&](const PrefillJob& job) {
        const RowTile& tile = tiles[static_cast<size_t>(job.tile)];
        return tile.index0 + tile.item_row(tile.count - 1);
      };
      return last(a) > last(b);
    });

    int64_t works_bytes = 0;
    for (const SpanWork& work : works) {
      works_bytes += SizeOf(work.units) + SizeOf(work.fixed) + SizeOf(work.jobs);
    }
    lists_.Begin(SizeOf(segments.views()) + SizeOf(tiles) + SizeOf(prefill) + works_bytes);
    const AttendTables tables = {lists_.Put(std::span<const SegmentView>(segments.views())),
                                 lists_.Put(std::span<const RowTile>(tiles))};
    const PrefillJob* const prefill_jobs = lists_.Put(std::span<const PrefillJob>(prefill));
    SpanLists span_lists[kWorks];
    for (int i = 0; i < kWorks; ++i) {
      span_lists[i] = {lists_.Put(std::span<const SpanUnit>(works[i].units)),
                       lists_.Put(std::span<const SpanUnit>(works[i].fixed)),
                       lists_.Put(std::span<const MergeJob>(works[i].jobs))};
    }
    if (!on_host.empty()) PlanFetch(on_host, heads_on_host, group, works);
    tables_.Send(stream_);
    lists_.Send(stream_);

    AttendCall call = CallOf(shape, q);
    call.entropy = !capture.entropy.empty();
    const RowResults results = {out.As<float>(),
                                out.stride[0],
                                out.stride[1],
                                capture.log_sum_exp.As<float>(),
                                capture.log_sum_exp.stride[0],
                                capture.entropy.As<float>(),
                                capture.entropy.stride[0]};
    way.attend(call, tables, shape.format.dtype, prefill_jobs, static_cast<int64_t>(prefill.size()),
               results, stream_);
    for (int i = 0; i < kWorks; ++i) {
      RunSpans(shape, call, tables, i < kNeeds ? kFewTiles : kManyTiles, works[i], span_lists[i],
               results);
    }
  }

  // Forgets the pages from `first` on that lie in none of these spans: they are behind a window.
  static void KeepSpans(std::span<const SpanUnit> units, size_t first,
                        std::vector<HostPage>* pages) {
    std::set<std::pair<int, int>> seen;
    for (const SpanUnit& unit : units) seen.emplace(unit.segment, unit.span);
    const auto unseen = [&](const HostPage& page) {
      return !seen.contains({page.segment, page.index / kSpanPages});
    };
    pages->erase(
        std::remove_if(pages->begin() + static_cast<std::ptrdiff_t>(first), pages->end(), unseen),
        pages->end());
  }

  // Gives pages on the host their places on the device, in the order in which jobs are done.
  void PlanFetch(std::span<const HostPage> pages, std::vector<HeadOnHost>& heads, int group,
                 std::span<SpanWork> works) {
    if (Recorder::Open() != nullptr) throw NotRecordable();
    std::stable_sort(heads.begin(), heads.end(), [](const HeadOnHost& a, const HeadOnHost& b) {
      return a.pages.kind < b.pages.kind;
    });
    std::vector<HostPages> needed;
    for (const HeadOnHost& head : heads) needed.push_back(head.pages);
    const std::vector<int64_t> chunks = fetch_.Plan(pages, needed, group);
    for (size_t h = 0; h < heads.size(); ++h) {
      SpanWork& work = works[static_cast<size_t>(heads[h].pages.kind)];
      work.chunks.resize(work.jobs.size(), SpanWork::kNoChunk);
      std::fill_n(work.chunks.begin() + static_cast<std::ptrdiff_t>(heads[h].first_job),
                  heads[h].jobs, chunks[h]);
    }
    // A job without such pages goes with those before it.
    for (SpanWork& work : works) {
      for (size_t job = 1; job < work.chunks.size(); ++job) {
        work.chunks[job] = std::max(work.chunks[job], work.chunks[job - 1]);
      }
    }
    fetch_.Send();
  }

  template <class T>
  static int64_t SizeOf(const std::vector<T>& list) {
    return static_cast<int64_t>(list.size() * sizeof(T)) + Tables::kGap;
  }

  static bool ManyRowsFit(const AttentionShape& shape, const KvHead& head) {
    if (shape.format.key_dim > kMostManyDims || shape.format.value_dim > kMostManyDims)
      return false;
    return std::all_of(head.segments, head.segments + head.count, [](const KvSegment& s) {
      constexpr int64_t kMostLatents = 128;  // the results of all rows, before their basis
      return (s.key_basis.empty() || s.key_basis.shape[1] <= kMostManyDims) &&
             (s.value_basis.empty() || s.value_basis.shape[1] <= kMostLatents);
    });
  }

  void RunSpans(const AttentionShape& shape, const AttendCall& call, const AttendTables& tables,
                int row_tiles, const SpanWork& work, const SpanLists& lists,
                const RowResults& results) {
    if (work.jobs.empty()) return;
    SpanShape span = {};
    span.dtype = shape.format.dtype;
    span.row_tiles = row_tiles;
    // Where codes are expanded more warps share the work.
    span.warps = work.needs.narrow_codes ? 8 : 4;
    const int most_dims = std::max(work.needs.value_dim, static_cast<int>(shape.format.value_dim));
    while (MostValueDims(row_tiles, span.warps) < most_dims) {
      span.warps *= 2;
      KVG_CHECK(MostValueDims(row_tiles, span.warps) > 0, "cuda: values of more than 1024 dims");
    }
    span.value_stride = static_cast<int>((shape.format.value_dim + 7) / 8 * 8);
    span.shared = SpanShared(shape, work.needs, row_tiles);
    span.plain = work.needs.plain() && span.shared.stage_count > 1;
    KVG_CHECK(span.shared.total <= MostSharedBytes(),
              "cuda: keys or values of more dims than shared memory takes");
    const int64_t rows = int64_t{16} * row_tiles;
    // At a time as many units as there is room for, at least those of any one job.
    int64_t largest = 1;
    for (const MergeJob& job : work.jobs) largest = std::max<int64_t>(largest, job.units);
    int64_t most_units =
        std::min(work.places(), kMostPartialBytes / UnitBytes(rows, span.value_stride));
    RowState* states = nullptr;
    float* values = nullptr;
    while (values == nullptr) {
      most_units = std::max(most_units, largest);
      try {
        states = partial_states_.Of<RowState>(most_units * rows);
        values = partial_values_.Of<float>(most_units * rows * span.value_stride);
      } catch (const OutOfDeviceMemory&) {
        if (most_units == largest) throw;
        most_units /= 2;
      }
    }
    int64_t started = SpanWork::kNoChunk;
    for (size_t begin = 0; begin < work.jobs.size();) {
      const int64_t first_unit = work.jobs[begin].first_unit;
      const int64_t chunk = work.ChunkOf(begin);
      size_t end = begin;
      int64_t count = 0;
      while (end < work.jobs.size() && work.ChunkOf(end) == chunk &&
             (end == begin || count + work.jobs[end].units <= most_units)) {
        count += work.jobs[end++].units;
      }
      if (chunk != SpanWork::kNoChunk && chunk != started) fetch_.Start(chunk);
      started = chunk;
      const SpanWork::JobBegin from = work.BeginOf(begin), to = work.BeginOf(end);
      FixedSpans(call, tables, span, lists.fixed + from.fixed, to.fixed - from.fixed, first_unit,
                 states, values, stream_);
      SpanAttention(call, tables, span, lists.units + from.unit, to.unit - from.unit, first_unit,
                    states, values, stream_);
      MergeSpans(call, tables, span, lists.jobs + begin, static_cast<int64_t>(end - begin),
                 first_unit, states, values, results, stream_);
      const bool last = end == work.jobs.size() || work.ChunkOf(end) != chunk;
      if (chunk != SpanWork::kNoChunk && last) fetch_.Done(chunk);
      begin = end;
    }
  }

  // What both captures begin with: views of an item's heads and a list of all their pages.
  struct CaptureTables {
    const SegmentView* segments;
    const CapturePage* pages;
    int64_t count;
    CaptureShape shape;
    const int32_t* ahead = nullptr;
  };
  CaptureTables PrepareCapture(const AttentionShape& shape, const AttentionItem& item,
                               int64_t rows) {
    SegmentTables segments(shape);
    int64_t bytes = Tables::kGap + SizeOfAhead(item);
    for (const KvHead& head : item.heads) bytes += segments.SizeBytes(head);
    tables_.Begin(bytes);
    const int32_t* const ahead = PutAhead(item);
    std::vector<CapturePage> pages;
    SharedNeeds needs;
    bool many = rows > 16;
    for (int64_t h = 0; h < shape.kv_heads; ++h) {
      const KvHead& head = item.heads[static_cast<size_t>(h)];
      const int first_segment = segments.Fill(head, tables_);
      many = many && ManyRowsFit(shape, head);
      for (int64_t s = 0; s < head.count; ++s) {
        const SegmentView& view = segments.views()[static_cast<size_t>(first_segment + s)];
        if (view.length > 0) needs.Add(shape, view);
        for (int64_t p = 0; p < PagesOf(view.length); ++p) {
          pages.push_back({static_cast<int>(first_segment + s), static_cast<int>(p),
                           static_cast<int>(h), static_cast<int>(IndexOfRow0(item, head))});
        }
      }
    }
    lists_.Begin(SizeOf(segments.views()) + SizeOf(pages));
    CaptureTables tables = {lists_.Put(std::span<const SegmentView>(segments.views())),
                            lists_.Put(std::span<const CapturePage>(pages)),
                            static_cast<int64_t>(pages.size()),
                            {},
                            ahead};
    tables.shape.dtype = shape.format.dtype;
    tables.shape.row_tiles = many ? kManyTiles : kFewTiles;
    tables.shape.shared = CaptureShared(shape, needs, tables.shape.row_tiles);
    if (many && tables.shape.shared.total > MostSharedBytes()) {  // heads of several needs
      tables.shape.row_tiles = kFewTiles;
      tables.shape.shared = CaptureShared(shape, needs, kFewTiles);
    }
    KVG_CHECK(tables.shape.shared.total <= MostSharedBytes(),
              "cuda: keys of more dims than shared memory takes");
    tables_.Send(stream_);
    lists_.Send(stream_);
    return tables;
  }

  void DoAddSinks(const Tensor& sinks, Tensor out, Tensor log_sum_exp, Tensor entropy) override {
    const bool with_entropy = !entropy.empty();
    ShareWithSinks({.out = RowsOf(out),
                    .rows = out.shape[0],
                    .heads = out.shape[1],
                    .dim = out.shape[2],
                    .sinks = sinks.f32(),
                    .log_sum_exp = log_sum_exp.f32(),
                    .log_sum_exp_stride = log_sum_exp.stride[0],
                    .entropy = with_entropy ? entropy.f32() : nullptr,
                    .entropy_stride = with_entropy ? entropy.stride[0] : 0},
                   stream_);
  }

  void DoWindowProbabilities(const AttentionShape& shape, const AttentionItem& item,
                             const Tensor& q, const Tensor& log_sum_exp, Tensor out) override {
    const int group = static_cast<int>(shape.query_heads / shape.kv_heads);
    const CaptureTables tables = PrepareCapture(shape, item, item.rows * group);
    WindowRequest request = {};
    request.rows.first_row = item.first_row;
    request.rows.token0 = static_cast<int>(item.token_position);
    request.rows.group = group;
    request.rows.count = static_cast<int>(item.rows) * group;
    request.rows.ahead = tables.ahead;
    request.log_sum_exp = log_sum_exp.As<const float>();
    request.log_sum_exp_stride = log_sum_exp.stride[0];
    request.out = out.As<float>();
    request.head_stride = out.stride[0];
    request.row_stride = out.stride[1];
    request.columns = out.shape[2];
    request.heads = shape.query_heads;
    CaptureWindow(CallOf(shape, q), tables.shape, tables.segments, tables.pages, tables.count,
                  request, stream_);
  }

  void DoReduceColumns(const AttentionShape& shape, const AttentionItem& item, const Tensor& q,
                       const Tensor& log_sum_exp, const ColumnRequest& request,
                       Tensor out) override {
    const CaptureTables tables = PrepareCapture(shape, item, request.rows);
    ColumnsRequest columns = {};
    columns.rows.first_row = item.first_row;
    columns.rows.token0 = static_cast<int>(item.token_position);
    columns.rows.group = 1;
    columns.rows.ahead = tables.ahead;
    columns.kind = request.kind;
    columns.threshold = request.threshold;
    columns.group = static_cast<int>(shape.query_heads / shape.kv_heads);
    columns.first_row = static_cast<int>(request.first_row);
    columns.row_count = static_cast<int>(request.rows);
    columns.weights = request.row_weights.As<const float>();
    columns.log_sum_exp = log_sum_exp.As<const float>();
    columns.log_sum_exp_stride = log_sum_exp.stride[0];
    columns.out = out.As<float>();
    columns.head_stride = out.stride[0];
    columns.columns = out.shape[1];
    columns.heads = shape.query_heads;
    CaptureColumns(CallOf(shape, q), tables.shape, tables.segments, tables.pages, tables.count,
                   columns, stream_);
  }

  const Stream stream_;
  const PrefillChoice prefill_;
  Tables tables_, lists_;
  Keeper keeper_;
  PageFetch fetch_;
  Scratch partial_states_, partial_values_;
};

}  // namespace

int64_t AttentionScratchBytes(const PassSize& size) {
  // One more where a span has pages of two kinds.
  const int64_t spans = (size.entries + kAttentionSpan - 1) / kAttentionSpan + 1;
  const int64_t value_stride = (size.value_dim + 7) / 8 * 8;
  const int64_t heads = size.sequences * size.kv_heads;
  const int64_t states =
      std::max(std::min(heads * spans * UnitBytes(16 * kFewTiles, value_stride), kMostPartialBytes),
               spans * UnitBytes(16 * kManyTiles, value_stride));
  const int64_t tables = heads * (2 * 8 * PagesOf(size.entries) + int64_t{sizeof(SegmentView)} +
                                  spans * int64_t{sizeof(SpanUnit)});
  const int64_t head_bytes = PagesOf(size.entries) * kPage * size.fetched_entry_bytes;
  return (states + tables + PageFetch::RingBytes(head_bytes, heads * head_bytes)) / 2 *
         3;  // as scratch grows
}

std::unique_ptr<AttentionOps> MakeCudaAttention(const Context& context) {
  return std::make_unique<CudaAttention>(context);
}

}  // namespace kvgauge::cuda

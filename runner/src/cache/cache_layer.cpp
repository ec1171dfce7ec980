// SPDX-License-Identifier: Apache-2.0
#include "src/cache/cache_layer.h"

#include <algorithm>
#include <numeric>

#include "core/strings.h"
#include "kernels/window_sums.h"

namespace kvgauge {
namespace {

// Heads [first, first + count) of x [n, heads, dim].
Tensor HeadsOf(const Tensor& x, int64_t first, int64_t count) {
  Tensor heads = x;
  heads.data = static_cast<char*>(x.data) + first * x.stride[1] * SizeOf(x.dtype);
  heads.shape[1] = count;
  return heads;
}

std::vector<int32_t> HostIndices(Ops& ops, const Tensor& indices) {
  std::vector<int32_t> host(static_cast<size_t>(indices.empty() ? 0 : indices.shape[0]));
  if (!host.empty()) ops.memory->Copy(indices, View(host, {std::ssize(host)}));
  return host;
}

// The rows that sums over windows are made of: those that something goes to, those behind them that
// their windows reach, and as many before them, so that sums have the order of those over all rows.
struct WindowRows {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};

WindowRows WindowRowsOf(std::span<const int32_t> to, int64_t width, int64_t rows) {
  int64_t first = rows, last = -1;
  for (const int32_t row : to) {
    if (row < 0) continue;
    first = std::min<int64_t>(first, row);
    last = std::max<int64_t>(last, row);
  }
  if (last < 0) return {};
  return {std::max<int64_t>(0, first - (width - 1)), std::min(rows, last + width)};
}

}  // namespace

CacheLayer::CacheLayer(std::shared_ptr<const LayerSetup> setup,
                       std::span<const KvBasis* const> bases)
    : entries_(std::move(setup)), layout_(MakeLayerLayout("plain")) {
  for (const KvBasis* basis : bases) {
    entries_.bases[static_cast<size_t>(basis->side)].push_back(basis->basis);
  }
  parts().push_back(layout_->EmptyPart(entries_));
  Publish();
}

CacheLayer::CacheLayer(const CacheLayer& other)
    : entries_(other.entries_),
      layout_(other.layout_->Fork()),
      stored_(other.stored_),
      every_position_(other.every_position_),
      places_(other.places_),
      tokens_(other.tokens_),
      last_rows_(other.last_rows_),
      distances_(other.distances_) {
  Publish();
  PlaceDistances();
}

Status CacheLayer::Grow(std::span<const int32_t> of) {
  const int64_t rows = std::ssize(of);
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    for (Stream& stream : entries_.parts.back().of(side)) {
      KVG_TRY(stream.Grow(rows));
      if (!setup().running || stream.length() == 0) continue;
      const auto newest = static_cast<int32_t>(stream.length() - 1);
      KVG_TRY(stream.Own({&newest, 1}));
    }
  }
  for (HeadEntries& head : entries_.heads) {
    const bool in_order =
        !setup().running && of.front() == head.length && of.back() == head.length + rows - 1;
    if (!head.has_positions && !in_order) {
      std::vector<int32_t> positions(static_cast<size_t>(head.length));
      std::iota(positions.begin(), positions.end(), 0);
      KVG_TRY(head.positions.Assign(positions));
      head.has_positions = true;
    }
    if (head.has_positions) KVG_TRY(head.positions.Reserve(head.length + rows));
    if (!head.log_weights.empty()) KVG_TRY(head.log_weights.Reserve(head.length + rows));
    for (int64_t i = 0; i < entries_.kept_scores; ++i) {
      KVG_TRY(head.score(i).Reserve(head.length + rows));
    }
    if (Clips()) KVG_TRY(head.rotations.Reserve(head.length + rows));
  }
  return {};
}

void CacheLayer::Trim() {
  for (Stream& stream : entries_.parts.back().keys) stream.Trim();
  for (Stream& stream : entries_.parts.back().values) stream.Trim();
  Publish();
}

void CacheLayer::Count(const Tensor& positions, const Tensor& zeros,
                       std::vector<MemoryOps::CopyJob>* copies) {
  const int64_t rows = positions.shape[0];
  for (Stream& stream : entries_.parts.back().keys) stream.Count(rows);
  for (Stream& stream : entries_.parts.back().values) stream.Count(rows);
  tokens_ = positions.i32()[rows - 1] + 1;
  for (int64_t h = 0; h < setup().kv_heads; ++h) {
    HeadEntries& head = entries_.heads[static_cast<size_t>(h)];
    head.length += rows;
    if (head.has_positions) {
      const MemoryOps::CopyJob job = {positions, head.positions.Extend(rows)};
      // Rotations are made of what is there.
      Clips() ? ops().memory->Copy(job.from, job.to) : copies->push_back(job);
    }
    if (!head.log_weights.empty()) copies->push_back({zeros, head.log_weights.Extend(rows)});
    for (int64_t i = 0; i < entries_.kept_scores; ++i) {
      copies->push_back({zeros, head.score(i).Extend(rows)});
    }
    if (Clips()) {
      head.rotations.Truncate(0);
      ClipPositions(head, head.rotations.Extend(head.length));
    }
  }
  last_rows_ = rows;
  ForgetRead();
  Publish();
}

bool CacheLayer::AddTargets(std::vector<KvTarget>* targets) const {
  if (transforms() || entries_.by_entry) return false;
  const std::vector<KvTarget> mine = Targets();
  targets->insert(targets->end(), mine.begin(), mine.end());
  return true;
}

std::vector<KvTarget> CacheLayer::Targets() const {
  const LayerPart& part = entries_.parts.back();
  std::vector<KvTarget> targets;
  targets.reserve(part.keys.size());
  for (size_t h = 0; h < part.keys.size(); ++h) {
    void* const* value_pages = setup().values_in_keys ? nullptr : part.values[h].float_pages();
    targets.push_back({part.keys[h].float_pages(), value_pages,
                       part.keys[h].SlotOf(part.keys[h].length() - last_rows_)});
  }
  return targets;
}

void CacheLayer::Write(const Tensor& keys, const Tensor& values) {
  KVG_CHECK(keys.shape[0] == last_rows_, "other rows than were appended");
  const size_t last = entries_.parts.size() - 1;
  LayerPart& part = entries_.parts[last];
  if (!transforms()) {
    KvFormat format = setup().format;
    format.by_entry = entries_.by_entry;
    ops().attention->WriteKv(format, keys, setup().values_in_keys ? Tensor() : values, Targets());
    return;
  }
  layout_->TakeValues(values);
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    std::vector<Stream>& streams = part.of(side);
    if (streams.empty()) continue;
    const int64_t group = entries_.HeadsOf(side, last);
    for (int64_t o = 0; o < std::ssize(streams); ++o) {
      Buffer many;  // of a question's rows
      const Tensor rows = layout_->Transformed(entries_, side, o,
                                               HeadsOf(side == KvSide::kKeys ? keys : values,
                                                       entries_.FirstHeadOf(side, o, last), group),
                                               last_rows_ == 1 ? &row_memory_ : &many);
      Stream& stream = streams[static_cast<size_t>(o)];
      stream.Write(rows, stream.length() - last_rows_);
    }
  }
}

void CacheLayer::EndRows(std::span<const int64_t> lengths,
                         std::span<const std::vector<int32_t>> positions) {
  KVG_CHECK(setup().running && !stored_, "rows join plain entries of a model that says so");
  std::vector<MemoryOps::CopyJob> copies;
  for (size_t h = 0; h < entries_.heads.size(); ++h) {
    HeadEntries& head = entries_.heads[h];
    const int64_t length = lengths[h], placed = std::ssize(positions[h]);
    KVG_CHECK(placed <= length && length <= head.length, "more entries than rows");
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      entries_.parts[0].of(side)[h].Shrink(length, false);
    }
    head.length = length;
    head.positions.Truncate(length - placed);
    copies.push_back({View(positions[h], {placed}), head.positions.Extend(placed)});
  }
  ops().memory->CopyAll(copies);
  Publish();
}

void CacheLayer::Publish() {
  const size_t parts = entries_.parts.size();
  const int64_t group = setup().query_heads / setup().kv_heads;
  segments_.assign(entries_.heads.size() * parts, {});
  views_.clear();
  for (int64_t h = 0; h < setup().kv_heads; ++h) {
    const HeadEntries& head = entries_.heads[static_cast<size_t>(h)];
    int64_t first = 0;
    for (size_t p = 0; p < parts; ++p) {
      const size_t at = static_cast<size_t>(h) * parts + p;
      KvSegment& segment = segments_[at];
      const Stream& keys =
          entries_.parts[p].keys[static_cast<size_t>(entries_.OwnerOf(KvSide::kKeys, h, p))];
      segment.length = keys.length();
      segment.skip = keys.skip();
      segment.key_pages = keys.float_pages();
      segment.keys = keys.coded_pages();
      segment.values_in_keys = setup().values_in_keys;
      segment.by_entry = keys.spec().by_entry;
      if (!setup().values_in_keys) {
        const Stream& values =
            entries_.parts[p].values[static_cast<size_t>(entries_.OwnerOf(KvSide::kValues, h, p))];
        segment.value_pages = values.float_pages();
        segment.values = values.coded_pages();
        KVG_CHECK(values.skip() == segment.skip, "keys and values in other slots");
      }
      if (entries_.turn.raw) {
        const int32_t* const own = RotationsFrom(head, first);
        segment.rotation = (read_turns_ != nullptr ? read_turns_ + first : own) - segment.skip;
      }
      if (head.has_positions && segment.skip == 0) {
        segment.positions = head.positions.data<int32_t>() + first;
      }
      if (!head.log_weights.empty()) segment.bias = head.log_weights.data<float>() + first;
      if (!read_words_.empty()) segment.read = &read_words_[at * static_cast<size_t>(group)];
      if (!read_biases_.empty()) {
        segment.read_bias = &read_biases_[at * static_cast<size_t>(group)];
      }
      first += segment.length;
    }
    views_.push_back({&segments_[static_cast<size_t>(h) * parts], static_cast<int64_t>(parts)});
  }
  PublishDistances();
  layout_->Describe(entries_, segments_);
}

// That say of each slot whether it is read.
int64_t CacheLayer::WordsOf(const KvSegment& segment) { return (segment.slots() + 63) / 64; }

void CacheLayer::ForgetRead() {
  read_words_.clear();
  read_biases_.clear();
  read_turns_ = nullptr;
}

void CacheLayer::SetRead(const Tensor& words, const Tensor& bias, const Tensor& places) {
  ForgetRead();
  if (!words.empty()) {
    const int64_t columns = (width() + 63) / 64;
    KVG_CHECK(words.dtype == DType::kI64 && words.rank == 2 && words.IsContiguous() &&
                  words.shape[0] == setup().query_heads && words.shape[1] == columns,
              "words must be i64 [query_heads, ceil(longest head / 64)]");
    // Parts begin anywhere in a word, so bits are moved to where each part counts from.
    const auto parts = std::ssize(entries_.parts);
    const int64_t group = setup().query_heads / setup().kv_heads;
    int64_t wanted = 0;
    for (const KvSegment& segment : segments_) wanted += group * WordsOf(segment);
    if (read_memory_.size_bytes() < 8 * wanted) read_memory_ = ops().memory->Allocate(16 * wanted);
    const Tensor memory = read_memory_.As(DType::kI64, {read_memory_.size_bytes() / 8});
    int64_t next = 0;
    for (int64_t h = 0; h < setup().kv_heads; ++h) {
      int64_t first = 0;
      for (int64_t p = 0; p < parts; ++p) {
        const KvSegment& segment = segments_[static_cast<size_t>(h * parts + p)];
        const int64_t count = WordsOf(segment);
        const Tensor part = memory.Slice(next, next + group * count).Reshape({group, count});
        for (int64_t g = 0; g < group; ++g) read_words_.push_back(part[g].As<const uint64_t>());
        ops().select->MoveBits(words.Slice(h * group, (h + 1) * group), first, segment.skip, part);
        next += group * count;
        first += segment.length;
      }
    }
    if (!bias.empty()) PlaceBias(bias);
    if (!places.empty()) PlaceTurns(places);
  }
  Publish();
}

void CacheLayer::PlaceTurns(const Tensor& places) {
  KVG_CHECK(entries_.turn.raw && entries_.turn.position == PositionPolicy::kOriginal,
            "keys that are turned, or turn by another rule");
  KVG_CHECK(places.dtype == DType::kI32 && places.rank == 1 && places.shape[0] >= width(),
            "places must be i32 [longest head or more]");
  const int64_t numbers = kKvPageEntries + places.shape[0];
  if (turn_memory_.size_bytes() < 4 * numbers) turn_memory_ = ops().memory->Allocate(8 * numbers);
  const Tensor memory = turn_memory_.As(DType::kI32, {numbers});
  // Slots that are skipped turn, too.
  ops().memory->Clear(memory.Slice(0, kKvPageEntries));
  ops().memory->Copy(places, memory.Slice(kKvPageEntries, numbers));
  read_turns_ = memory.i32() + kKvPageEntries;
}

void CacheLayer::PlaceBias(const Tensor& bias) {
  KVG_CHECK(bias.dtype == DType::kF32 && bias.rank == 2 && bias.shape[0] == setup().query_heads &&
                bias.shape[1] == width(),
            "biases must be f32 [query_heads, longest head]");
  const auto parts = std::ssize(entries_.parts);
  const int64_t group = setup().query_heads / setup().kv_heads;
  int64_t wanted = 0;
  for (const KvSegment& segment : segments_) wanted += group * segment.slots();
  if (bias_memory_.size_bytes() < 4 * wanted) bias_memory_ = ops().memory->Allocate(8 * wanted);
  const Tensor memory = bias_memory_.As(DType::kF32, {bias_memory_.size_bytes() / 4});
  int64_t next = 0;
  for (int64_t h = 0; h < setup().kv_heads; ++h) {
    int64_t first = 0;
    for (int64_t p = 0; p < parts; ++p) {
      const KvSegment& segment = segments_[static_cast<size_t>(h * parts + p)];
      const int64_t slots = segment.slots();
      for (int64_t g = 0; g < group; ++g) {
        const Tensor own = memory.Slice(next, next + slots);
        read_biases_.push_back(own.f32());
        if (segment.length > 0) {
          const Tensor held = own.Slice(segment.skip, slots);
          ops().rows->Convert(bias[h * group + g].Slice(first, first + segment.length), held);
          if (!distance_starts_.empty()) {
            const Tensor gained(const_cast<float*>(distance_starts_[read_biases_.size() - 1]),
                                DType::kF32, {segment.length}, ops().device);
            ops().rows->Combine(held, gained, Binary::kAdd, held);
          }
        }
        next += slots;
      }
      first += segment.length;
    }
  }
}

// The indices of all heads come to the host together, or are read where they lie.
CacheLayer::Keeps CacheLayer::KeepsOf(std::span<const HeadPlan> plan) const {
  Keeps keeps;
  const bool on_host = std::all_of(plan.begin(), plan.end(), [&](const HeadPlan& one) {
    return one.keep.empty() || (one.keep.device == Device::kHost && one.keep.IsContiguous());
  });
  if (ops().device == Device::kHost && on_host) {
    for (const HeadPlan& one : plan) {
      const int64_t count = one.keep.empty() ? 0 : one.keep.shape[0];
      keeps.host.emplace_back(one.keep.i32(), one.keep.i32() + count);
      keeps.device.push_back(count > 0 ? one.keep : Tensor());
    }
    return keeps;
  }
  const auto count = [](const HeadPlan& one) { return one.keep.empty() ? 0 : one.keep.shape[0]; };
  int64_t total = 0;
  for (const HeadPlan& one : plan) total += count(one);
  keeps.memory = ops().memory->Allocate(std::max<int64_t>(total, 1) * SizeOf(DType::kI32));
  const Tensor all = keeps.memory.As(DType::kI32, {total});
  int64_t next = 0;
  for (const HeadPlan& one : plan) {
    keeps.device.push_back(all.Slice(next, next + count(one)));
    if (count(one) > 0) ops().memory->Copy(one.keep, keeps.device.back());
    next += count(one);
  }
  const std::vector<int32_t> host = HostIndices(ops(), all);
  for (const Tensor& one : keeps.device) {
    const auto begin = host.begin() + (one.i32() - all.i32());
    keeps.host.emplace_back(begin, begin + one.shape[0]);
  }
  return keeps;
}

Status CacheLayer::CheckKeep(int64_t head, const KeptEntries& kept, const HeadPlan& plan) const {
  const int64_t length = this->length(head), count = std::ssize(kept);
  int wrong = count > 0 && (kept.front() < 0 || kept.back() >= length) ? 1 : 0;
#pragma omp simd reduction(| : wrong)
  for (int64_t i = 1; i < count; ++i) {
    wrong |= static_cast<int>(kept[static_cast<size_t>(i)] <= kept[static_cast<size_t>(i - 1)]);
  }
  int32_t before = -1;
  for (int64_t at = 0; at < (wrong != 0 ? count : 0); ++at) {
    const int32_t i = kept[static_cast<size_t>(at)];
    if (i <= before || i >= length) {
      return BadInput(StrCat("plan for KV head ", head, ": entry ", i, " after entry ", before,
                             " of ", length, "; kept entries ascend and are held"));
    }
    before = i;
  }
  if (!plan.log_weight.empty() && plan.log_weight.shape[0] != std::ssize(kept)) {
    return BadInput(StrCat("plan for KV head ", head, ": ", plan.log_weight.shape[0],
                           " log weights for ", kept.size(), " kept entries"));
  }
  return {};
}

Tensor CacheLayer::Merged(KvSide side, int64_t head, const KeptEntries& kept,
                          const MergeList& merge, Buffer* memory) const {
  if (merge.empty() && merge.self.empty()) return {};
  const int64_t n = length(head), count = std::ssize(kept);
  const std::vector<int32_t> from = HostIndices(ops(), merge.from);
  std::vector<int32_t> to = HostIndices(ops(), merge.to);
  const int64_t moved = std::ssize(from);
  // Entries from one stretch are taken where they lie.
  bool stretch = true;
  for (int64_t i = 0; i < moved && stretch; ++i) {
    stretch = from[static_cast<size_t>(i)] == from[0] + i;
  }
  const int64_t gathered = stretch ? 0 : moved;
  const int64_t owner = entries_.OwnerOf(side, head);
  const int64_t dim = entries_.parts[0].of(side)[static_cast<size_t>(owner)].spec().dim;
  const int64_t scaled = merge.self.empty() ? 0 : count;
  // From now on targets are counted as they will be.
  std::vector<int32_t> place(static_cast<size_t>(n), -1);
  for (size_t i = 0; i < kept.size(); ++i)
    place[static_cast<size_t>(kept[i])] = static_cast<int32_t>(i);
  for (int32_t& entry : to) entry = entry < 0 ? -1 : place[static_cast<size_t>(entry)];
  WindowRows within;
  if (merge.spread > 1) within = WindowRowsOf(to, merge.spread, count);
  const int64_t spread = within.count();
  const int64_t rows = n + gathered + count + scaled + 4 * spread;
  const int64_t numbers = rows * dim + std::ssize(to) + 4 * count;
  // The heads of a layer share it: fresh memory costs more than what is done in it.
  if (memory->size_bytes() < numbers * 4) *memory = ops().memory->Allocate(numbers * 4);
  const Tensor all = memory->As(DType::kF32, {numbers});
  int64_t used = 0;
  const auto matrix = [&](int64_t height) {
    used += height * dim;
    return all.Slice(used - height * dim, used).Reshape({height, dim});
  };
  const auto indices = [&](std::span<const int32_t> values) {
    used += std::ssize(values);
    Tensor index = all.Slice(used - std::ssize(values), used);
    index.dtype = DType::kI32;
    ops().memory->Copy(View(values, {std::ssize(values)}), index);
    return index;
  };
  const Tensor before = matrix(n), given = matrix(gathered), out = matrix(count);
  const Tensor unscaled = matrix(scaled);
  const Tensor sums = matrix(spread), windows = matrix(spread), spare = matrix(2 * spread);
  if (count == 0) return {};
  entries_.ReadStream(side, owner, 0, before);
  const Tensor keep = indices(kept);
  ops().select->Gather(before, keep, scaled > 0 ? unscaled : out);
  if (scaled > 0 || spread > 0) {
    // Sums begin at zero.
    const Tensor nothing = indices(std::vector<int32_t>(kept.size(), -1));
    if (scaled > 0) ops().select->Gather(before, nothing, out);
    if (spread > 0) ops().select->Gather(before, nothing.Slice(0, spread), sums);
  }
  if (scaled > 0) {
    std::vector<int32_t> every(kept.size());
    std::iota(every.begin(), every.end(), 0);
    const Tensor index = indices(every), share = all.Slice(used, used + count);
    ops().select->Gather(merge.self.Reshape({merge.self.shape[0], 1}), keep,
                         share.Reshape({count, 1}));
    used += count;
    ops().select->ScatterAdd(unscaled, index, share, out);
  }
  if (moved == 0) return out;
  const Tensor source = stretch ? before.Slice(from[0], from[0] + moved) : given;
  if (!stretch) ops().select->Gather(before, merge.from, given);
  if (merge.spread <= 1) {
    ops().select->ScatterAdd(source, indices(to), merge.weight, out);
    return out;
  }
  if (spread > 0) {
    for (int32_t& entry : to) entry -= entry < 0 ? 0 : static_cast<int32_t>(within.begin);
    ops().select->ScatterAdd(source, indices(to), merge.weight, sums);
    WindowSums(ops(), sums, merge.spread, WindowSide::kBehind, spare, windows);
    const Tensor reached = out.Slice(within.begin, within.end);
    ops().rows->Combine(reached, windows, Binary::kAdd, reached);
  }
  // The other rows get zeros, which turn -0 into 0: where windows end decides no sign.
  for (const Tensor& rest : {out.Slice(0, within.begin), out.Slice(within.end, count)}) {
    if (rest.shape[0] > 0) ops().rows->Affine(rest, 1.0f, 0.0f, rest);
  }
  return out;
}

Result<CacheLayer::Keeps> CacheLayer::CheckedKeeps(std::span<const HeadPlan> plan) const {
  KVG_CHECK(std::ssize(plan) == setup().kv_heads, "a plan for each head");
  Keeps keeps = KeepsOf(plan);
  const std::vector<KeptEntries>& kept = keeps.host;
  for (int64_t h = 0; h < setup().kv_heads; ++h) {
    KVG_TRY(CheckKeep(h, kept[static_cast<size_t>(h)], plan[static_cast<size_t>(h)]));
  }
  // Heads that share a stream can only keep the same entries of it.
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    if (entries_.parts[0].of(side).empty()) continue;
    for (int64_t h = 1; h < setup().kv_heads; ++h) {
      const int64_t other = entries_.key_owners.empty()
                                ? h - 1
                                : entries_.FirstHeadOf(side, entries_.OwnerOf(side, h));
      if (entries_.OwnerOf(side, h) != entries_.OwnerOf(side, other)) continue;
      if (kept[static_cast<size_t>(h)] == kept[static_cast<size_t>(other)]) continue;
      return Unsupported(StrCat("plan for KV head ", h, ": it shares latents with head ", other,
                                ", so both must keep the same entries"));
    }
  }
  return keeps;
}

std::vector<KeptEntries> CacheLayer::KeptOfParts(KvSide side, int64_t owner,
                                                 const KeptEntries& kept) const {
  if (entries_.parts.size() == 1) return std::vector<KeptEntries>(1, kept);
  std::vector<KeptEntries> parts;
  int64_t first = 0;
  size_t done = 0;
  for (const LayerPart& part : entries_.parts) {
    const int64_t length = part.of(side)[static_cast<size_t>(owner)].length();
    KeptEntries& local = parts.emplace_back();
    for (; done < kept.size() && kept[done] - first < length; ++done) {
      local.push_back(static_cast<int32_t>(kept[done] - first));
    }
    first += length;
  }
  return parts;
}

Status CacheLayer::Reduce(std::span<const HeadPlan> plan) {
  KVG_ASSIGN(const Keeps keeps, CheckedKeeps(plan));
  return Rebuild(keeps.host, plan);
}

Status CacheLayer::Rebuild(std::span<const KeptEntries> kept, std::span<const HeadPlan> plan) {
  KVG_TRY(layout_->CheckReduce(plan));
  std::vector<LayerPart> parts(entries_.parts.size());
  Buffer memory;  // of merges
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    const int64_t owners = std::ssize(entries_.parts[0].of(side));
    for (int64_t o = 0; o < owners; ++o) {  // none where the values are in the keys
      const auto head = static_cast<size_t>(entries_.FirstHeadOf(side, o));
      Tensor rows;
      if (!plan.empty()) {
        const HeadPlan& one = plan[head];
        rows = Merged(side, static_cast<int64_t>(head), kept[head],
                      side == KvSide::kKeys ? one.keys : one.values, &memory);
      }
      const std::vector<KeptEntries> locals = KeptOfParts(side, o, kept[head]);
      int64_t done = 0;
      for (size_t p = 0; p < entries_.parts.size(); ++p) {
        const Stream& stream = entries_.parts[p].of(side)[static_cast<size_t>(o)];
        const int64_t end = done + std::ssize(locals[p]);
        KVG_ASSIGN(Stream fresh,
                   stream.Gathered(locals[p], rows.empty() ? Tensor() : rows.Slice(done, end)));
        parts[p].of(side).push_back(std::move(fresh));
        done = end;
      }
    }
  }
  std::vector<HeadEntries> heads;
  for (int64_t h = 0; h < setup().kv_heads; ++h) {
    const auto i = static_cast<size_t>(h);
    KVG_ASSIGN(HeadEntries head,
               entries_.Gathered(h, kept[i], plan.empty() ? Tensor() : plan[i].log_weight));
    heads.push_back(std::move(head));
  }
  entries_.parts = std::move(parts);
  entries_.heads = std::move(heads);
  KVG_TRY(AssignRotations());
  Republish();
  return {};
}

Status CacheLayer::Truncate(int64_t tokens) {
  tokens_ = std::min(tokens_, tokens);
  std::vector<KeptEntries> kept;
  for (int64_t h = 0; h < setup().kv_heads; ++h) {
    const std::vector<int32_t> positions = Positions(h);
    KeptEntries one;
    for (size_t i = 0; i < positions.size(); ++i) {
      if (positions[i] < tokens) one.push_back(static_cast<int32_t>(i));
    }
    kept.push_back(std::move(one));
  }
  KVG_TRY(Rebuild(kept, {}));
  layout_->Truncated(entries_);
  return {};
}

Status CacheLayer::KeepScores(const Tensor& scores) {
  const int64_t count = CountScores(scores);
  KVG_CHECK(count <= 2, "at most two numbers of each entry are kept");
  std::vector<EntryArray> fresh;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t h = 0; h < setup().kv_heads; ++h) {
      fresh.emplace_back(*entries_.pool, DType::kF32);
      if (length(h) == 0) continue;
      const Tensor row = count == 1 ? scores[h] : scores[i][h];
      KVG_TRY(fresh.back().Reserve(length(h)));
      ops().memory->Copy(row.Slice(0, length(h)), fresh.back().Extend(length(h)));
    }
  }
  const size_t heads = entries_.heads.size();
  for (size_t i = 0; i < fresh.size(); ++i) {
    entries_.heads[i % heads].score(static_cast<int64_t>(i / heads)) = std::move(fresh[i]);
  }
  entries_.kept_scores = count;
  return {};
}

// Numbers of each entry in [kv_heads, longest head], or in as many of these.
int64_t CacheLayer::CountScores(const Tensor& scores) const {
  const auto at = static_cast<size_t>(scores.rank) - 2;
  KVG_CHECK(scores.dtype == DType::kF32 && (scores.rank == 2 || scores.rank == 3) &&
                scores.shape[at] == setup().kv_heads && scores.shape[at + 1] >= width(),
            "scores must be f32 [kv_heads, longest head], or two of them");
  return scores.rank == 2 ? 1 : scores.shape[0];
}

void CacheLayer::ReadScores(Tensor scores) const {
  const int64_t count = CountScores(scores);
  KVG_CHECK(count == entries_.kept_scores && scores.IsContiguous(), "no such scores are kept");
  const int64_t all = scores.shape[static_cast<size_t>(scores.rank) - 1];
  const std::vector<float> zeros(static_cast<size_t>(all));
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t h = 0; h < setup().kv_heads; ++h) {
      const EntryArray& held = entries_.heads[static_cast<size_t>(h)].score(i);
      const Tensor row = count == 1 ? scores[h] : scores[i][h];
      const int64_t rest = all - held.size();
      if (!held.empty()) ops().memory->Copy(held.view(), row.Slice(0, held.size()));
      if (rest > 0) {
        ops().memory->Copy(View(std::span(zeros).first(static_cast<size_t>(rest)), {rest}),
                           row.Slice(held.size(), all));
      }
    }
  }
}

std::vector<float> CacheLayer::LogWeights(int64_t head) const {
  const HeadEntries& one = entries_.heads[static_cast<size_t>(head)];
  if (!one.log_weights.empty()) return one.log_weights.ToHost<float>();
  return std::vector<float>(static_cast<size_t>(one.length));
}

KvBytes CacheLayer::Bytes() const {
  KvBytes bytes;
  layout_->AddBytes(entries_, bytes);
  for (const HeadEntries& head : entries_.heads) {
    bytes.indices += head.positions.bytes() + head.rotations.bytes();
    bytes.biases += head.log_weights.bytes() + head.scores.bytes() + head.second_scores.bytes();
    for (const EntryArray* array : head.arrays()) {
      bytes.slack += array->allocated_bytes() - array->bytes();
    }
  }
  return bytes;
}

}  // namespace kvgauge

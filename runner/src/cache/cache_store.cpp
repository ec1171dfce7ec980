// SPDX-License-Identifier: Apache-2.0
// How a layer's entries come to be stored otherwise than plainly, and how they are read.
#include <algorithm>
#include <numeric>

#include "core/strings.h"
#include "methods/tensors.h"
#include "src/cache/cache_layer.h"
#include "src/cache/rope_tables.h"

namespace kvgauge {
namespace {

// first, first + 1 .. in `memory`.
Tensor Counted(int64_t first, int64_t n, std::vector<int32_t>* memory) {
  memory->resize(static_cast<size_t>(n));
  std::iota(memory->begin(), memory->end(), static_cast<int32_t>(first));
  return View(*memory, {n});
}

}  // namespace

Tensor CacheLayer::PositionsOf(int64_t head, int64_t first, int64_t n,
                               std::vector<int32_t>* memory) const {
  const HeadEntries& one = entries_.heads[static_cast<size_t>(head)];
  return one.has_positions ? one.positions.view().Slice(first, first + n)
                           : Counted(first, n, memory);
}

Tensor CacheLayer::RoomyPositionsOf(int64_t head, int64_t first, int64_t n,
                                    std::vector<int32_t>* memory) const {
  const HeadEntries& one = entries_.heads[static_cast<size_t>(head)];
  if (!one.has_positions) return Counted(first, n, memory);
  const Tensor all = one.positions.roomy_view();
  return all.Slice(first, std::min(first + n, all.shape[0]));
}

void CacheLayer::Read(KvSide side, int64_t head, int64_t first, Tensor rows) const {
  const int64_t n = rows.shape[0], dim = entries_.HeadDim(side);
  KVG_CHECK(first >= 0 && first + n <= length(head), "entries outside the head");
  KVG_CHECK(rows.shape[1] == dim && rows.IsContiguous(), "rows must be contiguous [n, dim]");
  if (n == 0) return;
  if (side == KvSide::kKeys || !setup().values_in_keys || layout_->joins_sides()) {
    layout_->Read(entries_, side, head, first, rows);
    return;
  }
  const int64_t width = entries_.HeadDim(KvSide::kKeys);
  const Buffer memory = ops().memory->Allocate(n * width * 4);
  const Tensor keys = memory.As(DType::kF32, {n, width});
  layout_->Read(entries_, KvSide::kKeys, head, first, keys);
  ops().rows->Convert(Columns(keys, 0, dim), rows);
}

Tensor CacheLayer::RotationsOf(int64_t head, int64_t first, int64_t n,
                               std::vector<int32_t>* memory) const {
  if (Clips())
    return entries_.heads[static_cast<size_t>(head)].rotations.view().Slice(first, first + n);
  if (entries_.turn.position == PositionPolicy::kSlot) return Counted(first, n, memory);
  return PositionsOf(head, first, n, memory);
}

Status CacheLayer::AssignRotations() {
  if (!Clips()) return {};
  for (HeadEntries& head : entries_.heads) {
    EntryArray fresh(*entries_.pool, DType::kI32);
    KVG_TRY(fresh.Reserve(head.length));
    if (head.length > 0) ClipPositions(head, fresh.Extend(head.length));
    head.rotations = std::move(fresh);
  }
  return {};
}

void CacheLayer::ClipPositions(const HeadEntries& head, Tensor out) const {
  KVG_CHECK(head.has_positions || every_position_ != nullptr, "raw keys turn by no positions");
  const Tensor every(const_cast<int32_t*>(every_position_), DType::kI32, {head.length},
                     ops().device);
  const auto nearest = static_cast<int32_t>(tokens_ - 1 - entries_.turn.position_limit);
  ops().select->AtLeast(head.has_positions ? head.positions.view() : every, nearest, out);
}

const int32_t* CacheLayer::RotationsFrom(const HeadEntries& head, int64_t first) const {
  if (Clips()) return head.rotations.data<int32_t>() + first;
  if (entries_.turn.position == PositionPolicy::kOriginal && head.has_positions) {
    return head.positions.data<int32_t>() + first;
  }
  KVG_CHECK(every_position_ != nullptr, "raw keys turn by no positions");
  return every_position_ + first;
}

Status CacheLayer::Store(const StorePlan& plan, std::unique_ptr<LayerLayout> layout,
                         std::span<CacheLayer* const> below) {
  if (stored_) return Unsupported("the layer is stored by another plan already");
  KVG_CHECK(!entries_.by_entry, "what is to be stored otherwise is not kept by entry");
  entries_.turn = plan.turn;
  KVG_TRY(layout->Use(*plan.layout, entries_));
  return Adopt(std::move(layout), below);
}

Status CacheLayer::KeepByEntry() {
  if (stored_ || entries_.by_entry || setup().values_in_keys || setup().running) return {};
  const LayerPart before = std::move(entries_.parts[0]);
  entries_.by_entry = true;
  entries_.parts[0] = layout_->EmptyPart(entries_);
  Buffer memory;
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    for (size_t h = 0; h < entries_.heads.size(); ++h) {
      const Stream& from = before.of(side)[h];
      const int64_t n = from.length(), dim = from.spec().dim;
      if (n == 0) continue;
      if (memory.size_bytes() < n * dim * 4) memory = ops().memory->Allocate(n * dim * 4);
      const Tensor rows = memory.As(DType::kF32, {n, dim});
      from.Read(0, rows);
      KVG_TRY(entries_.parts[0].of(side)[h].Append(rows));
    }
  }
  Republish();
  return {};
}

Status CacheLayer::Adopt(std::unique_ptr<LayerLayout> layout, std::span<CacheLayer* const> below) {
  KeyTurn& turn = entries_.turn;
  if (setup().mla && turn.raw) {
    return Unsupported("raw keys: the model's own latent attention keeps its keys rotated");
  }
  if (turn.position_limit < 0) {
    return BadInput(StrCat("position_limit ", turn.position_limit, ": must not be negative"));
  }
  KVG_TRY(layout->Check(entries_));
  layout_ = std::move(layout);
  stored_ = true;
  entries_.key_owners = layout_->KeyOwners(entries_);
  // Without frequencies nothing ever turns.
  const bool turns = !setup().frequencies.inverse.empty();
  turn.raw = turns && (turn.raw || layout_->wants_raw_keys(entries_));
  KVG_TRY(Represent());
  std::vector<LayerPair> pairs;
  for (CacheLayer* layer : below) pairs.push_back({&layer->entries_, &layer->layout_});
  KVG_TRY(layout_->Convert(entries_, pairs));
  for (CacheLayer* layer : below) {
    layer->stored_ = true;
    layer->Republish();
  }
  KVG_TRY(AssignRotations());
  Status sealed = Seal();
  ForgetRead();
  ForgetDistances();
  Publish();
  PlaceDistances();
  return sealed;
}

Status CacheLayer::Represent() {
  LayerPart before = std::move(entries_.parts[0]);
  entries_.parts[0] = layout_->EmptyPart(entries_);
  if (layout_->stores_inputs()) return {};
  KVG_TRY(RepresentSide(KvSide::kKeys, entries_.turn.raw, before));
  return setup().values_in_keys ? Status() : RepresentSide(KvSide::kValues, false, before);
}

Status CacheLayer::RepresentSide(KvSide side, bool turn, LayerPart& before) {
  std::vector<Stream>&from = before.of(side), &to = entries_.parts[0].of(side);
  if (!turn && !layout_->transforms(side)) {
    to = std::move(from);
    return {};
  }
  const int64_t dim = entries_.HeadDim(side), group = entries_.HeadsOf(side);
  RowRotator back(ops(), setup().frequencies, places_, setup().rope_layout,
                  RopeDirection::kInverse);
  for (int64_t o = 0; o < std::ssize(to); ++o) {
    const int64_t of = entries_.FirstHeadOf(side, o), n = length(of);
    if (n == 0) continue;
    const Buffer memory = ops().memory->Allocate(n * group * dim * 4);
    // [heads, n, dim]: each head is read whole.
    const Tensor heads = memory.As(DType::kF32, {group, n, dim});
    for (int64_t g = 0; g < group; ++g) {
      const int64_t h = of + g;
      if (length(h) != n) {
        return Unsupported(StrCat("KV heads ", h - g, " and ", h, " hold ", n, " and ", length(h),
                                  " entries, so they cannot share latents"));
      }
      from[static_cast<size_t>(h)].Read(0, heads[g]);
      if (turn) {
        std::vector<int32_t> counted;
        back.Rotate(PositionsOf(h, 0, n, &counted), heads[g]);
      }
    }
    Tensor rows = heads;
    rows.shape = {n, group, dim, 0};
    rows.stride = {dim, n * dim, 1, 0};
    Buffer transformed;
    KVG_TRY(to[static_cast<size_t>(o)].Append(
        layout_->Transformed(entries_, side, o, rows, &transformed)));
  }
  return {};
}

void CacheLayer::Republish() {
  ForgetRead();
  last_rows_ = 0;
  ForgetDistances();
  Publish();
  PlaceDistances();
}

Status CacheLayer::Seal() {
  bool changed = false;
  Status status = layout_->Seal(entries_, &changed);
  if (!changed) return status;
  ForgetRead();
  ForgetDistances();
  Publish();
  PlaceDistances();
  return status;
}

Status CacheLayer::Classify(std::span<const std::vector<int32_t>> classes) {
  KVG_TRY(layout_->Classify(entries_, classes));
  KVG_TRY(AssignRotations());
  Republish();
  return {};
}

Status CacheLayer::Place(const Placement& place, int64_t layer, BlockMoves* moves) {
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    if (!(side == KvSide::kKeys ? place.keys : place.values)) continue;
    // Where a part begins, for each head.
    std::vector<int64_t> begin(entries_.heads.size());
    for (size_t p = 0; p < entries_.parts.size(); ++p) {
      std::vector<Stream>& streams = entries_.parts[p].of(side);
      for (int64_t o = 0; o < std::ssize(streams); ++o) {
        const int64_t head = entries_.FirstHeadOf(side, o, p);
        const EntryRange range = place.OnHost(layer, length(head));
        const int64_t before = begin[static_cast<size_t>(head)];
        KVG_TRY(streams[static_cast<size_t>(o)].Place(range.first - before, range.last - before,
                                                      moves));
      }
      for (int64_t h = 0; h < std::ssize(begin) && !streams.empty(); ++h) {
        const auto owner = static_cast<size_t>(entries_.OwnerOf(side, h, p));
        begin[static_cast<size_t>(h)] += streams[owner].length();
      }
    }
  }
  moves->Copy();
  return {};
}

int64_t CacheLayer::PlacedBytes() const {
  int64_t bytes = 0;
  for (const LayerPart& part : entries_.parts) {
    for (const Stream& stream : part.keys) bytes += stream.placed_bytes();
    for (const Stream& stream : part.values) bytes += stream.placed_bytes();
  }
  return bytes;
}

int64_t CacheLayer::BeforeLastPart(int64_t head) const {
  const LayerPart& last = entries_.parts.back();
  const auto owner =
      static_cast<size_t>(entries_.OwnerOf(KvSide::kKeys, head, entries_.parts.size() - 1));
  return length(head) - last.keys[owner].length();
}

Status CacheLayer::SealTogether(CacheLayer& above, Buffer* memory) {
  KVG_TRY(layout_->SealTogether(entries_, {&above.entries_, &above.layout_}, memory));
  for (CacheLayer* layer : {this, &above}) layer->Republish();
  return {};
}

}  // namespace kvgauge

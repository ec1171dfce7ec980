// SPDX-License-Identifier: Apache-2.0
// Plans that drop or merge a few entries of what a layer holds, as decode steps do, executed where
// the entries lie; and the gaps that they leave.
#include <algorithm>
#include <bit>
#include <numeric>

#include "src/cache/cache_layer.h"

namespace kvgauge {
namespace {

// A head with more than one gap for so many entries closes them.
constexpr int64_t kEntriesOfAGap = 64;

std::vector<int32_t> OnHost(Ops& ops, const Tensor& index) {
  std::vector<int32_t> host(static_cast<size_t>(index.shape[0]));
  ops.memory->Copy(index, View(host, {index.shape[0]}));
  return host;
}

int32_t PlaceOf(std::span<const int32_t> ascending, int32_t entry) {
  return static_cast<int32_t>(std::lower_bound(ascending.begin(), ascending.end(), entry) -
                              ascending.begin());
}

std::vector<int32_t> Picked(const std::vector<int32_t>& all, std::span<const int32_t> index) {
  std::vector<int32_t> picked;
  picked.reserve(index.size());
  for (const int32_t i : index) picked.push_back(all[static_cast<size_t>(i)]);
  return picked;
}

void SortUnique(std::vector<int32_t>& numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

// What a merge makes of the entries it goes to.
struct Patch {
  std::vector<int32_t> entries;  // where they lie, ascending
  Buffer memory;
  Tensor rows;  // [entries, dim]
};

// places: where the stream has each entry.
Patch MergedRows(Ops& ops, const Stream& stream, std::span<const int32_t> places,
                 const MergeList& merge) {
  std::vector<int32_t> to = OnHost(ops, merge.to), from = OnHost(ops, merge.from);
  for (int32_t& entry : from) entry = places[static_cast<size_t>(entry)];
  for (int32_t& entry : to) entry = entry < 0 ? -1 : places[static_cast<size_t>(entry)];
  Patch patch;
  std::vector<int32_t> sources = from;
  for (const int32_t entry : to) {
    if (entry >= 0) patch.entries.push_back(entry);
  }
  if (patch.entries.empty()) return patch;
  SortUnique(patch.entries);
  SortUnique(sources);
  for (int32_t& entry : from) entry = PlaceOf(sources, entry);
  for (int32_t& entry : to) entry = entry < 0 ? -1 : PlaceOf(patch.entries, entry);
  const int64_t dim = stream.spec().dim, moved = std::ssize(from);
  const int64_t touched = std::ssize(patch.entries), held = touched + std::ssize(sources);
  const int64_t numbers = (held + moved) * dim, indices = moved + std::ssize(to);
  patch.memory = ops.memory->Allocate((numbers + indices) * 4);
  const Tensor all = patch.memory.As(DType::kF32, {numbers + indices});
  const auto rows = [&](int64_t begin, int64_t end) {
    return all.Slice(begin * dim, end * dim).Reshape({end - begin, dim});
  };
  const auto index = [&](int64_t begin, std::span<const int32_t> values) {
    Tensor at = all.Slice(numbers + begin, numbers + begin + std::ssize(values));
    at.dtype = DType::kI32;
    ops.memory->Copy(View(values, {std::ssize(values)}), at);
    return at;
  };
  patch.rows = rows(0, touched);
  stream.ReadEntries(patch.entries, patch.rows);
  stream.ReadEntries(sources, rows(touched, held));
  // In the order of the list, as every merge.
  const Tensor given = rows(held, held + moved), targets = index(moved, to);
  ops.select->Gather(rows(touched, held), index(0, from), given);
  for (int64_t begin = 0; begin < std::ssize(to); begin += moved) {
    ops.select->ScatterAdd(given, targets.Slice(begin, begin + moved), merge.weight, patch.rows);
  }
  return patch;
}

}  // namespace

bool CacheLayer::HasGaps() const {
  return std::any_of(heads_.begin(), heads_.end(),
                     [](const Head& head) { return !head.held.empty(); });
}

std::vector<int32_t> CacheLayer::PlacesOf(const Head& head) {
  std::vector<int32_t> places(static_cast<size_t>(head.length));
  if (head.held.empty()) {
    std::iota(places.begin(), places.end(), 0);
    return places;
  }
  auto next = places.begin();
  int32_t first = 0;
  for (uint64_t word : head.held) {
    if (word == ~uint64_t{0}) {
      std::iota(next, next + 64, first);
      next += 64;
    } else {
      for (; word != 0; word &= word - 1) *next++ = first + std::countr_zero(word);
    }
    first += 64;
  }
  return places;
}

CacheLayer::Kept CacheLayer::PlacesOf(const Head& head, const Kept& entries) {
  return head.held.empty() ? entries : Picked(PlacesOf(head), entries);
}

void CacheLayer::HideGaps() {
  const auto group = static_cast<size_t>(setup_->query_heads / setup_->kv_heads);
  const bool on_host = ops().device == Device::kHost;
  std::vector<uint64_t> all;
  for (const Head& head : heads_) all.insert(all.end(), head.held.begin(), head.held.end());
  const int64_t words = std::ssize(all);
  if (!on_host) {
    if (read_memory_.size_bytes() < words * 8) read_memory_ = ops().memory->Allocate(words * 8);
    ops().memory->Copy(Tensor(all.data(), DType::kI64, {words}),
                       read_memory_.As(DType::kI64, {words}));
  }
  const auto* next = static_cast<const uint64_t*>(read_memory_.data());
  for (const Head& head : heads_) {
    const uint64_t* own = on_host ? head.held.data() : next;
    read_words_.insert(read_words_.end(), group, head.held.empty() ? nullptr : own);
    if (!on_host) next += head.held.size();
  }
}

Status CacheLayer::CloseGaps() {
  if (!HasGaps()) return {};
  std::vector<Kept> every;
  for (const Head& head : heads_) {
    Kept& entries = every.emplace_back(static_cast<size_t>(head.length));
    std::iota(entries.begin(), entries.end(), 0);
  }
  return Rebuild(every, {});
}

Result<bool> CacheLayer::ReduceInPlace(std::span<const HeadPlan> plan) {
  if (sharing_ != Sharing::kNone || parts_.size() > 1 || plan_.keys.coded() ||
      plan_.values.coded()) {
    return false;
  }
  KVG_ASSIGN(const std::vector<Kept> kept, CheckedKeeps(plan));
  for (size_t h = 0; h < plan.size(); ++h) {
    const int64_t dropped = heads_[h].length - std::ssize(kept[h]);
    if (!plan[h].log_weight.empty() || !heads_[h].has_positions || dropped > kKvPageEntries ||
        !plan[h].keys.self.empty() || !plan[h].values.self.empty()) {
      return false;
    }
  }
  // What can fail comes first and changes no entry.
  std::vector<Kept> before;      // where each entry lies
  std::vector<Kept> places;      // of what is kept
  std::vector<uint8_t> closing;  // by head
  for (size_t h = 0; h < heads_.size(); ++h) {
    Head& head = heads_[h];
    before.push_back(PlacesOf(head));
    places.push_back(Picked(before[h], kept[h]));
    const int64_t length = std::ssize(kept[h]);
    closing.push_back(head.stored - length > length / kEntriesOfAGap);
    for (EntryArray* array : {&head.positions, &head.log_weights, &head.scores}) {
      KVG_TRY(array->Reserve(array->size()));
    }
    const bool clipped = plan_.position == PositionPolicy::kClipped;
    const bool placed = plan_.position == PositionPolicy::kSlot && closing.back() == 0;
    if (plan_.raw_keys && (clipped || placed)) KVG_TRY(head.rotations.Reserve(head.stored));
  }
  struct Move {
    Stream* stream;
    size_t head;
    Patch patch;
  };
  std::vector<Move> moves;
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    std::vector<Stream>& streams = side == KvSide::kKeys ? parts_[0].keys : parts_[0].values;
    for (int64_t o = 0; o < std::ssize(streams); ++o) {
      const auto head = static_cast<size_t>(FirstHeadOf(side, o));
      Stream& stream = streams[static_cast<size_t>(o)];
      const MergeList& merge = side == KvSide::kKeys ? plan[head].keys : plan[head].values;
      if (closing[head] != 0) KVG_TRY(stream.OwnBehind(places[head]));
      Patch patch;
      if (!merge.empty()) patch = MergedRows(ops(), stream, before[head], merge);
      KVG_TRY(stream.Own(patch.entries));
      moves.push_back({&stream, head, std::move(patch)});
    }
  }
  for (Move& move : moves) {
    if (closing[move.head] != 0) {
      move.stream->KeepInPlace(places[move.head]);
      for (int32_t& entry : move.patch.entries) entry = PlaceOf(places[move.head], entry);
    }
    if (!move.patch.entries.empty()) move.stream->WriteEntries(move.patch.rows, move.patch.entries);
  }
  for (size_t h = 0; h < heads_.size(); ++h) {
    Head& head = heads_[h];
    head.length = std::ssize(kept[h]);
    if (keeps_scores_) head.scores.Keep(kept[h]);
    head.held.clear();
    if (closing[h] != 0) {
      head.stored = head.length;
      head.positions.Keep(places[h]);
      if (!head.log_weights.empty()) head.log_weights.Keep(places[h]);
    } else if (head.stored > head.length) {
      head.held.resize(static_cast<size_t>((head.stored + 63) / 64));
      for (const int32_t place : places[h]) {
        head.held[static_cast<size_t>(place / 64)] |= uint64_t{1} << place % 64;
      }
    }
    head.rotations.Truncate(0);
    if (TurnsByOwn(head)) head.rotations.Append(StoredRotations(head));
  }
  read_words_.clear();
  last_rows_ = 0;
  Publish();
  return true;
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Plans that drop or merge a few entries of what a layer holds, as decode steps do, executed where
// the entries lie.
#include <algorithm>
#include <deque>

#include "src/cache/cache_layer.h"

namespace kvgauge {
namespace {

std::vector<int32_t> OnHost(Ops& ops, const Tensor& index) {
  std::vector<int32_t> host(static_cast<size_t>(index.shape[0]));
  ops.memory->Copy(index, View(host, {index.shape[0]}));
  return host;
}

int32_t PlaceOf(std::span<const int32_t> ascending, int32_t entry) {
  return static_cast<int32_t>(std::lower_bound(ascending.begin(), ascending.end(), entry) -
                              ascending.begin());
}

void SortUnique(std::vector<int32_t>& numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
}

// What a merge makes of the entries it goes to.
struct Patch {
  std::vector<int32_t> entries;  // ascending
  Buffer memory;
  Tensor rows;  // [entries, dim]
};

// What each entry goes to, and behind that `spread` - 1 times what follows it among the kept.
std::vector<int32_t> Targets(Ops& ops, const MergeList& merge, std::span<const int32_t> kept) {
  std::vector<int32_t> to = OnHost(ops, merge.to), places;
  for (const int32_t entry : to) {
    places.push_back(entry < 0 ? static_cast<int32_t>(kept.size()) : PlaceOf(kept, entry));
  }
  to.reserve(to.size() * static_cast<size_t>(merge.spread));
  for (int64_t step = 1; step < merge.spread; ++step) {
    for (const int32_t place : places) {
      const int64_t at = place + step;
      to.push_back(at < std::ssize(kept) ? kept[static_cast<size_t>(at)] : -1);
    }
  }
  return to;
}

// kept: ascending
Patch MergedRows(Ops& ops, const Stream& stream, const MergeList& merge,
                 std::span<const int32_t> kept) {
  std::vector<int32_t> to = Targets(ops, merge, kept);
  const std::vector<int32_t> from = OnHost(ops, merge.from);
  Patch patch;
  std::vector<int32_t> sources = from;
  for (const int32_t entry : to) {
    if (entry >= 0) patch.entries.push_back(entry);
  }
  if (patch.entries.empty()) return patch;
  SortUnique(patch.entries);
  SortUnique(sources);
  // Each target has a row of its own to be added: a call for each step costs more than the copies.
  const int64_t moved = std::ssize(to);
  std::vector<int32_t> member, given_of;  // of the list, and of the sources
  for (int64_t i = 0; i < moved; ++i) {
    member.push_back(static_cast<int32_t>(i % std::ssize(from)));
    given_of.push_back(PlaceOf(sources, from[static_cast<size_t>(member.back())]));
  }
  for (int32_t& entry : to) entry = entry < 0 ? -1 : PlaceOf(patch.entries, entry);
  const int64_t dim = stream.spec().dim;
  const int64_t touched = std::ssize(patch.entries), held = touched + std::ssize(sources);
  const int64_t numbers = (held + moved) * dim, indices = 4 * moved;
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
  const Tensor given = rows(held, held + moved);
  ops.select->Gather(rows(touched, held), index(0, given_of), given);
  const Tensor weight = all.Slice(numbers + 3 * moved, numbers + 4 * moved);
  ops.select->Gather(merge.weight.Reshape({std::ssize(from), 1}), index(2 * moved, member),
                     weight.Reshape({moved, 1}));
  ops.select->ScatterAdd(given, index(moved, to), weight, patch.rows);
  return patch;
}

}  // namespace

bool CacheLayer::MaySkip() const {
  const KeyTurn& turn = entries_.turn;
  return entries_.parts.size() == 1 && !setup().windowed && setup().slopes.empty() &&
         !layout_->seals() && (!turn.raw || turn.position == PositionPolicy::kSlot) &&
         std::all_of(entries_.heads.begin(), entries_.heads.end(),
                     [](const HeadEntries& head) { return head.log_weights.empty(); });
}

Result<bool> CacheLayer::ReduceInPlace(std::span<const HeadPlan> plan) {
  if (!layout_->CheckReduce(plan).ok()) return false;
  KVG_ASSIGN(const Keeps keeps, CheckedKeeps(plan));
  const std::vector<KeptEntries>& kept = keeps.host;
  for (size_t h = 0; h < plan.size(); ++h) {
    const HeadPlan& one = plan[h];
    const int64_t dropped = entries_.heads[h].length - std::ssize(kept[h]);
    if (!one.log_weight.empty() || !entries_.heads[h].has_positions || dropped > kKvPageEntries) {
      return false;
    }
    for (const MergeList* merge : {&one.keys, &one.values}) {
      if (!merge->self.empty() || (!merge->empty() && entries_.parts.size() > 1)) return false;
    }
  }
  struct Move {
    Stream* stream;
    std::span<const int32_t> kept;
    Patch patch;
  };
  std::deque<std::vector<KeptEntries>> split;  // what moves refer to, of a layer of several parts
  std::vector<Move> moves;
  const bool may_skip = MaySkip();
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    const int64_t owners = std::ssize(entries_.parts[0].of(side));
    for (int64_t o = 0; o < owners; ++o) {
      const auto head = static_cast<size_t>(entries_.FirstHeadOf(side, o));
      std::span<const KeptEntries> locals(&kept[head], 1);
      if (entries_.parts.size() > 1) {
        locals = split.emplace_back(KeptOfParts(side, o, kept[head]));
      }
      for (size_t p = 0; p < entries_.parts.size(); ++p) {
        LayerPart& part = entries_.parts[p];
        Stream& stream = part.of(side)[static_cast<size_t>(o)];
        const MergeList& merge = side == KvSide::kKeys ? plan[head].keys : plan[head].values;
        if (!stream.CanKeepInPlace()) return false;
        Patch patch;
        if (!merge.empty()) patch = MergedRows(ops(), stream, merge, kept[head]);
        moves.push_back({&stream, locals[p], std::move(patch)});
      }
    }
  }
  // What can fail comes first and changes no entry. Who else shares pages decides neither which
  // slots are skipped nor how much room is left: a row takes as many bytes alone as in company.
  // Without room for pages of its own, there may be some for a layer that is built anew.
  for (const Move& move : moves) {
    if (!move.stream->OwnWhatMoves(move.kept, may_skip).ok() ||
        !move.stream->Own(move.patch.entries).ok()) {
      return false;
    }
  }
  Buffer spare;
  if (!entries_.pool->OnHost()) {
    int64_t most = 1;
    for (const KeptEntries& one : kept) most = std::max(most, std::ssize(one));
    spare = ops().memory->Allocate(most * 4);
  }
  for (HeadEntries& head : entries_.heads) {
    for (EntryArray* array : head.arrays()) {
      KVG_TRY(array->Reserve(array->size()));
    }
  }
  for (Move& move : moves) {
    move.stream->KeepInPlace(move.kept, may_skip);
    if (move.patch.entries.empty()) continue;
    for (int32_t& entry : move.patch.entries) entry = PlaceOf(move.kept, entry);
    move.stream->WriteEntries(move.patch.rows, move.patch.entries);
  }
  for (size_t h = 0; h < entries_.heads.size(); ++h) {
    HeadEntries& head = entries_.heads[h];
    head.length = std::ssize(kept[h]);
    for (EntryArray* array : head.arrays()) {
      if (!array->empty()) array->Keep(keeps.device[h], spare);
    }
  }
  Republish();
  return true;
}

}  // namespace kvgauge

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

template <class T>
std::vector<T> Pick(const std::vector<T>& all, std::span<const int32_t> kept) {
  std::vector<T> picked;
  picked.reserve(kept.size());
  for (const int32_t i : kept) picked.push_back(all[static_cast<size_t>(i)]);
  return picked;
}

bool IsPrefix(std::span<const int32_t> kept) {
  return kept.empty() || kept.back() == std::ssize(kept) - 1;  // ascending and distinct
}

}  // namespace

CacheLayer::Head::Head(BlockPool& pool)
    : positions(pool, DType::kI32),
      log_weights(pool, DType::kF32),
      scores(pool, DType::kF32),
      rotations(pool, DType::kI32),
      key_scales(pool, DType::kF32),
      value_scales(pool, DType::kF32) {}

CacheLayer::CacheLayer(std::shared_ptr<const LayerSetup> setup,
                       std::span<const KvBasis* const> bases)
    : setup_(std::move(setup)),
      pool_(&setup_->pools->of(Tier::kDevice)),
      ranges_(ops().device == Device::kHost ? *pool_ : setup_->pools->of(Tier::kHost)),
      choices_(*pool_) {
  for (const KvBasis* basis : bases) {
    (basis->side == KvSide::kKeys ? given_key_bases_ : given_value_bases_).push_back(basis->basis);
  }
  parts_.push_back(NewPart(PartKind::kPlain));
  heads_.assign(static_cast<size_t>(setup_->kv_heads), Head(*pool_));
  Publish();
}

CacheLayer::CacheLayer(const CacheLayer& other)
    : setup_(other.setup_),
      pool_(other.pool_),
      given_key_bases_(other.given_key_bases_),
      given_value_bases_(other.given_value_bases_),
      key_bases_(other.key_bases_),
      value_bases_(other.value_bases_),
      plan_(other.plan_),
      tables_(other.tables_),
      ranges_(other.ranges_),
      narrow_bases_(other.narrow_bases_),
      choices_(other.choices_),
      sharing_(other.sharing_),
      split_(other.split_),
      every_position_(other.every_position_),
      tokens_(other.tokens_),
      parts_(other.parts_),
      heads_(other.heads_),
      keeps_scores_(other.keeps_scores_),
      last_rows_(other.last_rows_) {
  Publish();
}

int64_t CacheLayer::width() const {
  int64_t width = 0;
  for (const Head& head : heads_) width = std::max(width, head.length);
  return width;
}

int64_t CacheLayer::OwnerOf(KvSide side, int64_t head) const {
  return head * std::ssize(StreamsOf(parts_[0], side)) / setup_->kv_heads;
}

CacheLayer::Part CacheLayer::NewPart(PartKind kind) const {
  Part part;
  const bool as_planned = kind == PartKind::kPlanned;
  BlockPool& pool = setup_->pools->of(as_planned ? plan_.tier : Tier::kDevice);
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    if (side == KvSide::kValues && setup_->values_in_keys) continue;
    StreamSpec spec;
    spec.side = side;
    spec.dtype = setup_->format.dtype;
    spec.dim = HeadDim(side);
    if (kind == PartKind::kNarrow && side == KvSide::kKeys) spec.dim = plan_.narrow_dim;
    if (as_planned) spec.rule = side == KvSide::kKeys ? plan_.seal_keys : plan_.seal_values;
    std::vector<Stream>& streams = side == KvSide::kKeys ? part.keys : part.values;
    const std::vector<Tensor>& bases = BasesOf(side);
    const int64_t owners = bases.empty() ? setup_->kv_heads : std::ssize(bases);
    for (int64_t o = 0; o < owners; ++o) {
      if (!bases.empty()) spec.dim = bases[static_cast<size_t>(o)].shape[1];
      if (as_planned) spec.codec = CodecOf(side, o);
      streams.emplace_back(spec, pool);
    }
  }
  return part;
}

Status CacheLayer::Grow(int64_t rows, int64_t first_position) {
  for (Stream& stream : parts_.back().keys) KVG_TRY(stream.Grow(rows));
  for (Stream& stream : parts_.back().values) KVG_TRY(stream.Grow(rows));
  for (Head& head : heads_) {
    if (!head.has_positions && head.length != first_position) {
      std::vector<int32_t> positions(static_cast<size_t>(head.length));
      std::iota(positions.begin(), positions.end(), 0);
      KVG_TRY(head.positions.Assign(positions));
      head.has_positions = true;
    }
    if (head.has_positions) KVG_TRY(head.positions.Reserve(head.length + rows));
    if (!head.log_weights.empty()) KVG_TRY(head.log_weights.Reserve(head.length + rows));
    if (keeps_scores_) KVG_TRY(head.scores.Reserve(head.length + rows));
    if (Clips()) KVG_TRY(head.rotations.Reserve(head.length + rows));
  }
  return {};
}

void CacheLayer::Trim() {
  for (Stream& stream : parts_.back().keys) stream.Trim();
  for (Stream& stream : parts_.back().values) stream.Trim();
  Publish();
}

void CacheLayer::Count(const Tensor& positions, const Tensor& zeros,
                       std::vector<MemoryOps::CopyJob>* copies) {
  const int64_t rows = positions.shape[0];
  for (Stream& stream : parts_.back().keys) stream.Count(rows);
  for (Stream& stream : parts_.back().values) stream.Count(rows);
  tokens_ = positions.i32()[0] + rows;
  for (int64_t h = 0; h < setup_->kv_heads; ++h) {
    Head& head = heads_[static_cast<size_t>(h)];
    head.length += rows;
    if (head.has_positions) {
      const MemoryOps::CopyJob job = {positions, head.positions.Extend(rows)};
      // Rotations are made of what is there.
      Clips() ? ops().memory->Copy(job.from, job.to) : copies->push_back(job);
    }
    if (!head.log_weights.empty()) copies->push_back({zeros, head.log_weights.Extend(rows)});
    if (keeps_scores_) copies->push_back({zeros, head.scores.Extend(rows)});
    if (Clips()) {
      head.rotations.Truncate(0);
      ClipPositions(head, head.rotations.Extend(head.length));
    }
  }
  last_rows_ = rows;
  read_words_.clear();
  Publish();
}

bool CacheLayer::AddTargets(std::vector<KvTarget>* targets) const {
  if (!key_bases_.empty() || !value_bases_.empty()) return false;
  const Part& part = parts_.back();
  for (size_t h = 0; h < part.keys.size(); ++h) {
    void* const* value_pages = setup_->values_in_keys ? nullptr : part.values[h].float_pages();
    targets->push_back({part.keys[h].float_pages(), value_pages,
                        part.keys[h].SlotOf(part.keys[h].length() - last_rows_)});
  }
  return true;
}

void CacheLayer::Write(const Tensor& keys, const Tensor& values) {
  KVG_CHECK(keys.shape[0] == last_rows_, "other rows than were appended");
  Part& part = parts_.back();
  std::vector<KvTarget> targets;
  targets.reserve(part.keys.size());
  if (AddTargets(&targets)) {
    ops().attention->WriteKv(setup_->format, keys, setup_->values_in_keys ? Tensor() : values,
                             targets);
    return;
  }
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    std::vector<Stream>& streams = side == KvSide::kKeys ? part.keys : part.values;
    const int64_t group = setup_->kv_heads / std::ssize(streams);
    for (int64_t o = 0; o < std::ssize(streams); ++o) {
      Buffer many;  // of a question's rows
      const Tensor rows =
          Projected(side, o, HeadsOf(side == KvSide::kKeys ? keys : values, o * group, group),
                    last_rows_ == 1 ? &row_memory_ : &many);
      Stream& stream = streams[static_cast<size_t>(o)];
      stream.Write(rows, stream.length() - last_rows_);
    }
  }
}

void CacheLayer::Publish() {
  const size_t parts = parts_.size();
  const int64_t group = setup_->query_heads / setup_->kv_heads;
  segments_.assign(heads_.size() * parts, {});
  views_.clear();
  for (int64_t h = 0; h < setup_->kv_heads; ++h) {
    const Head& head = heads_[static_cast<size_t>(h)];
    int64_t first = 0;
    for (size_t p = 0; p < parts; ++p) {
      const size_t at = static_cast<size_t>(h) * parts + p;
      KvSegment& segment = segments_[at];
      const Stream& keys = parts_[p].keys[static_cast<size_t>(OwnerOf(KvSide::kKeys, h))];
      segment.length = keys.length();
      segment.skip = keys.skip();
      segment.key_pages = keys.float_pages();
      segment.keys = keys.coded_pages();
      segment.key_basis = p == 0 && !narrow_bases_.empty() ? narrow_bases_[static_cast<size_t>(h)]
                                                           : BasisOf(KvSide::kKeys, h);
      segment.values_in_keys = setup_->values_in_keys;
      if (!setup_->values_in_keys) {
        const Stream& values = parts_[p].values[static_cast<size_t>(OwnerOf(KvSide::kValues, h))];
        segment.value_pages = values.float_pages();
        segment.values = values.coded_pages();
        segment.value_basis = BasisOf(KvSide::kValues, h);
        KVG_CHECK(values.skip() == segment.skip, "keys and values in other slots");
      }
      if (sharing_ != Sharing::kNone && p == 1) {
        segment.key_scale = head.key_scales.data<float>();
        segment.value_scale = head.value_scales.data<float>();
      }
      if (plan_.raw_keys) segment.rotation = RotationsFrom(head, first) - segment.skip;
      if (head.has_positions && segment.skip == 0) {
        segment.positions = head.positions.data<int32_t>() + first;
      }
      if (!head.log_weights.empty()) segment.bias = head.log_weights.data<float>() + first;
      if (!read_words_.empty()) segment.read = &read_words_[at * static_cast<size_t>(group)];
      first += segment.length;
    }
    views_.push_back({&segments_[static_cast<size_t>(h) * parts], static_cast<int64_t>(parts)});
  }
}

// That say of each slot whether it is read.
int64_t CacheLayer::WordsOf(const KvSegment& segment) { return (segment.slots() + 63) / 64; }

void CacheLayer::SetRead(const Tensor& words) {
  read_words_.clear();
  if (!words.empty()) {
    const int64_t columns = (width() + 63) / 64;
    KVG_CHECK(words.dtype == DType::kI64 && words.rank == 2 && words.IsContiguous() &&
                  words.shape[0] == setup_->query_heads && words.shape[1] == columns,
              "words must be i64 [query_heads, ceil(longest head / 64)]");
    // Parts begin anywhere in a word, so bits are moved to where each part counts from.
    const auto parts = std::ssize(parts_);
    const int64_t group = setup_->query_heads / setup_->kv_heads;
    int64_t wanted = 0;
    for (const KvSegment& segment : segments_) wanted += group * WordsOf(segment);
    if (read_memory_.size_bytes() < 8 * wanted) read_memory_ = ops().memory->Allocate(16 * wanted);
    const Tensor memory = read_memory_.As(DType::kI64, {read_memory_.size_bytes() / 8});
    int64_t next = 0;
    for (int64_t h = 0; h < setup_->kv_heads; ++h) {
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
  }
  Publish();
}

Result<CacheLayer::Kept> CacheLayer::CheckedKeep(int64_t head, const HeadPlan& plan) const {
  Kept kept = HostIndices(ops(), plan.keep);
  const int64_t length = this->length(head);
  int32_t before = -1;
  for (const int32_t i : kept) {
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
  return kept;
}

Tensor CacheLayer::Merged(KvSide side, int64_t head, const Kept& kept, const MergeList& merge,
                          Buffer* memory) const {
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
  const int64_t owner = OwnerOf(side, head);
  const int64_t dim = StreamsOf(parts_[0], side)[static_cast<size_t>(owner)].spec().dim;
  const int64_t scaled = merge.self.empty() ? 0 : count;
  const int64_t spread = merge.spread > 1 ? count : 0;
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
  ReadStream(side, owner, 0, before);
  const Tensor keep = indices(kept);
  ops().select->Gather(before, keep, scaled > 0 ? unscaled : out);
  if (scaled > 0 || spread > 0) {
    // Sums begin at zero.
    const Tensor nothing = indices(std::vector<int32_t>(kept.size(), -1));
    if (scaled > 0) ops().select->Gather(before, nothing, out);
    if (spread > 0) ops().select->Gather(before, nothing, sums);
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
  // From now on entries are counted as they will be.
  std::vector<int32_t> place(static_cast<size_t>(n), -1);
  for (size_t i = 0; i < kept.size(); ++i)
    place[static_cast<size_t>(kept[i])] = static_cast<int32_t>(i);
  for (int32_t& entry : to) entry = entry < 0 ? -1 : place[static_cast<size_t>(entry)];
  const Tensor source = stretch ? before.Slice(from[0], from[0] + moved) : given;
  if (!stretch) ops().select->Gather(before, merge.from, given);
  if (spread == 0) {
    ops().select->ScatterAdd(source, indices(to), merge.weight, out);
    return out;
  }
  ops().select->ScatterAdd(source, indices(to), merge.weight, sums);
  WindowSums(ops(), sums, merge.spread, WindowSide::kBehind, spare, windows);
  ops().rows->Combine(out, windows, Binary::kAdd, out);
  return out;
}

Result<CacheLayer::Head> CacheLayer::GatheredHead(int64_t index, const Kept& kept,
                                                  const Tensor& log_weight) const {
  const Head& head = heads_[static_cast<size_t>(index)];
  Head fresh(*pool_);
  fresh.length = std::ssize(kept);
  fresh.has_positions = head.has_positions || !IsPrefix(kept);
  if (fresh.has_positions) {
    KVG_TRY(fresh.positions.Assign(head.has_positions ? Pick(head.positions.ToHost<int32_t>(), kept)
                                                      : kept));
  }
  if (!log_weight.empty()) {
    std::vector<float> weights(kept.size());
    ops().memory->Copy(log_weight, View(weights, {std::ssize(weights)}));
    KVG_TRY(fresh.log_weights.Assign(weights));
  } else if (!head.log_weights.empty()) {
    KVG_TRY(fresh.log_weights.Assign(Pick(head.log_weights.ToHost<float>(), kept)));
  }
  if (keeps_scores_) KVG_TRY(fresh.scores.Assign(Pick(head.scores.ToHost<float>(), kept)));
  return fresh;
}

Result<std::vector<CacheLayer::Kept>> CacheLayer::CheckedKeeps(
    std::span<const HeadPlan> plan) const {
  KVG_CHECK(std::ssize(plan) == setup_->kv_heads, "a plan for each head");
  std::vector<Kept> kept;
  for (int64_t h = 0; h < setup_->kv_heads; ++h) {
    KVG_ASSIGN(Kept one, CheckedKeep(h, plan[static_cast<size_t>(h)]));
    kept.push_back(std::move(one));
  }
  // Heads that share a stream can only keep the same entries of it.
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    if (StreamsOf(parts_[0], side).empty()) continue;
    for (int64_t h = 1; h < setup_->kv_heads; ++h) {
      if (OwnerOf(side, h) != OwnerOf(side, h - 1)) continue;
      if (kept[static_cast<size_t>(h)] == kept[static_cast<size_t>(h - 1)]) continue;
      return Unsupported(StrCat("plan for KV head ", h, ": it shares latents with head ", h - 1,
                                ", so both must keep the same entries"));
    }
  }
  return kept;
}

std::vector<CacheLayer::Kept> CacheLayer::KeptOfParts(KvSide side, int64_t owner,
                                                      const Kept& kept) const {
  if (parts_.size() == 1) return {kept};
  std::vector<Kept> parts;
  int64_t first = 0;
  size_t done = 0;
  for (const Part& part : parts_) {
    const int64_t length = StreamsOf(part, side)[static_cast<size_t>(owner)].length();
    Kept& local = parts.emplace_back();
    for (; done < kept.size() && kept[done] - first < length; ++done) {
      local.push_back(static_cast<int32_t>(kept[done] - first));
    }
    first += length;
  }
  return parts;
}

Status CacheLayer::Reduce(std::span<const HeadPlan> plan) {
  KVG_ASSIGN(const std::vector<Kept> kept, CheckedKeeps(plan));
  return Rebuild(kept, plan);
}

Status CacheLayer::Rebuild(std::span<const Kept> kept, std::span<const HeadPlan> plan) {
  if (sharing_ != Sharing::kNone) {
    return Unsupported("entries that are shared with another layer cannot be dropped or merged");
  }
  for (const HeadPlan& one : plan) {
    if (narrow_bases_.empty() || one.keys.empty()) continue;
    return Unsupported("keys that gave up some of their numbers cannot be merged with others");
  }
  std::vector<Part> parts(parts_.size());
  Buffer memory;  // of merges
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    const int64_t owners = std::ssize(StreamsOf(parts_[0], side));
    for (int64_t o = 0; o < owners; ++o) {  // none where the values are in the keys
      const auto head = static_cast<size_t>(FirstHeadOf(side, o));
      Tensor rows;
      if (!plan.empty()) {
        const HeadPlan& one = plan[head];
        rows = Merged(side, static_cast<int64_t>(head), kept[head],
                      side == KvSide::kKeys ? one.keys : one.values, &memory);
      }
      const std::vector<Kept> locals = KeptOfParts(side, o, kept[head]);
      int64_t done = 0;
      for (size_t p = 0; p < parts_.size(); ++p) {
        const Stream& stream = StreamsOf(parts_[p], side)[static_cast<size_t>(o)];
        const int64_t end = done + std::ssize(locals[p]);
        KVG_ASSIGN(Stream fresh,
                   stream.Gathered(locals[p], rows.empty() ? Tensor() : rows.Slice(done, end)));
        (side == KvSide::kKeys ? parts[p].keys : parts[p].values).push_back(std::move(fresh));
        done = end;
      }
    }
  }
  std::vector<Head> heads;
  for (int64_t h = 0; h < setup_->kv_heads; ++h) {
    const auto i = static_cast<size_t>(h);
    KVG_ASSIGN(Head head, GatheredHead(h, kept[i], plan.empty() ? Tensor() : plan[i].log_weight));
    heads.push_back(std::move(head));
  }
  parts_ = std::move(parts);
  heads_ = std::move(heads);
  read_words_.clear();
  last_rows_ = 0;
  KVG_TRY(AssignRotations());
  Publish();
  return {};
}

Status CacheLayer::Truncate(int64_t tokens) {
  tokens_ = std::min(tokens_, tokens);
  std::vector<Kept> kept;
  for (int64_t h = 0; h < setup_->kv_heads; ++h) {
    const std::vector<int32_t> positions = Positions(h);
    const auto end = std::lower_bound(positions.begin(), positions.end(), tokens);
    Kept one(static_cast<size_t>(end - positions.begin()));
    std::iota(one.begin(), one.end(), 0);
    kept.push_back(std::move(one));
  }
  return Rebuild(kept, {});
}

Status CacheLayer::KeepScores(const Tensor& scores) {
  KVG_CHECK(scores.dtype == DType::kF32 && scores.rank == 2 &&
                scores.shape[0] == setup_->kv_heads && scores.shape[1] >= width(),
            "scores must be f32 [kv_heads, longest head]");
  std::vector<EntryArray> fresh;
  for (int64_t h = 0; h < setup_->kv_heads; ++h) {
    fresh.emplace_back(*pool_, DType::kF32);
    if (length(h) == 0) continue;
    KVG_TRY(fresh.back().Reserve(length(h)));
    ops().memory->Copy(scores[h].Slice(0, length(h)), fresh.back().Extend(length(h)));
  }
  for (size_t h = 0; h < heads_.size(); ++h) heads_[h].scores = std::move(fresh[h]);
  keeps_scores_ = true;
  return {};
}

void CacheLayer::ReadScores(Tensor scores) const {
  KVG_CHECK(keeps_scores_, "no scores are kept");
  KVG_CHECK(scores.dtype == DType::kF32 && scores.rank == 2 && scores.IsContiguous() &&
                scores.shape[0] == setup_->kv_heads && scores.shape[1] >= width(),
            "scores must be f32 [kv_heads, longest head]");
  const std::vector<float> zeros(static_cast<size_t>(scores.shape[1]));
  for (int64_t h = 0; h < setup_->kv_heads; ++h) {
    const EntryArray& held = heads_[static_cast<size_t>(h)].scores;
    const int64_t rest = scores.shape[1] - held.size();
    if (!held.empty()) ops().memory->Copy(held.view(), scores[h].Slice(0, held.size()));
    if (rest > 0) {
      ops().memory->Copy(View(std::span(zeros).first(static_cast<size_t>(rest)), {rest}),
                         scores[h].Slice(held.size(), scores.shape[1]));
    }
  }
}

std::vector<int32_t> CacheLayer::Positions(int64_t head) const {
  const Head& one = heads_[static_cast<size_t>(head)];
  if (one.has_positions) return one.positions.ToHost<int32_t>();
  std::vector<int32_t> positions(static_cast<size_t>(one.length));
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

std::vector<float> CacheLayer::LogWeights(int64_t head) const {
  const Head& one = heads_[static_cast<size_t>(head)];
  if (!one.log_weights.empty()) return one.log_weights.ToHost<float>();
  return std::vector<float>(static_cast<size_t>(one.length));
}

KvBytes CacheLayer::Bytes() const {
  KvBytes bytes;
  for (size_t p = 0; p < parts_.size(); ++p) {
    if (sharing_ == Sharing::kBorrower && p == 1) continue;
    for (const Stream& stream : parts_[p].keys) stream.AddBytes(bytes);
    for (const Stream& stream : parts_[p].values) stream.AddBytes(bytes);
  }
  for (const Head& head : heads_) {
    bytes.indices += head.positions.bytes() + head.rotations.bytes();
    bytes.biases += head.log_weights.bytes() + head.scores.bytes() + head.key_scales.bytes() +
                    head.value_scales.bytes();
    for (const EntryArray* array : {&head.positions, &head.log_weights, &head.scores,
                                    &head.rotations, &head.key_scales, &head.value_scales}) {
      bytes.slack += array->allocated_bytes() - array->bytes();
    }
  }
  for (const KvCodec* codec : {&plan_.keys, &plan_.values}) {
    for (const Tensor* table : {&codec->levels, &codec->channel_low, &codec->channel_high}) {
      if (!table->empty()) bytes.codebooks += table->SizeBytes();
    }
  }
  // Ranges found in this sequence are its own.
  int64_t ranges = 0;
  for (const Tensor* table : {&plan_.key_low, &plan_.key_high}) {
    if (!table->empty()) ranges += table->SizeBytes();
  }
  if (plan_.constant_ranges) {
    bytes.codebooks += ranges;
  } else {
    bytes.scales += ranges;
    bytes.slack += ranges_.allocated_bytes() - ranges;
  }
  // A method must hold which numbers stay; as a matrix they take more.
  if (!narrow_bases_.empty()) {
    const int64_t indices = setup_->kv_heads * plan_.narrow_dim * SizeOf(DType::kI32);
    bytes.indices += indices;
    bytes.slack += choices_.allocated_bytes() - indices;
  }
  for (const std::vector<Tensor>* bases : {&key_bases_, &value_bases_}) {
    for (const Tensor& basis : *bases) bytes.projections += basis.SizeBytes();
  }
  return bytes;
}

}  // namespace kvgauge

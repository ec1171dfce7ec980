// SPDX-License-Identifier: Apache-2.0
// How a layer's entries are stored otherwise than plainly: unrotated, as latents, coded, elsewhere.
#include <algorithm>
#include <numeric>

#include "core/strings.h"
#include "src/cache/cache_layer.h"
#include "src/cache/rope_tables.h"
#include "src/compress/columns.h"

namespace kvgauge {
namespace {

// Head h of x [n, heads, dim] as [n, dim].
Tensor HeadOf(const Tensor& x, int64_t h) {
  Tensor one = x;
  one.data = static_cast<char*>(x.data) + h * x.stride[1] * SizeOf(x.dtype);
  one.rank = 2;
  one.shape = {x.shape[0], x.shape[2], 0, 0};
  one.stride = {x.stride[0], 1, 0, 0};
  return one;
}

Status CheckSide(const char* name, KvCodec codec, const SealRule& rule, int64_t dim) {
  codec.dim = dim;
  if (!codec.coded()) return {};
  const Status status = CheckCodec(codec);
  if (!status.ok()) return status.error().Wrap(StrCat("codec of ", name));
  if (rule.unit < 1 || rule.unit % SealUnit(codec) != 0 || rule.keep_recent < 0) {
    return BadInput(StrCat("seal rule of ", name, ": ", rule.unit, " entries at a time, ",
                           rule.keep_recent, " kept; the codec seals multiples of ",
                           SealUnit(codec)));
  }
  return {};
}

// first, first + 1 .. in `memory`.
Tensor Counted(int64_t first, int64_t n, std::vector<int32_t>* memory) {
  memory->resize(static_cast<size_t>(n));
  std::iota(memory->begin(), memory->end(), static_cast<int32_t>(first));
  return View(*memory, {n});
}

}  // namespace

Tensor CacheLayer::PositionsOf(int64_t head, int64_t first, int64_t n,
                               std::vector<int32_t>* memory) const {
  const Head& one = heads_[static_cast<size_t>(head)];
  return one.has_positions ? one.positions.view().Slice(first, first + n)
                           : Counted(first, n, memory);
}

Tensor CacheLayer::BasisOf(KvSide side, int64_t head) const {
  const std::vector<Tensor>& bases = BasesOf(side);
  if (bases.empty()) return {};
  const int64_t group = setup_->kv_heads / std::ssize(bases), dim = HeadDim(side);
  const Tensor& basis = bases[static_cast<size_t>(head / group)];
  return basis.Slice(head % group * dim, (head % group + 1) * dim);
}

Tensor CacheLayer::Projected(KvSide side, int64_t owner, const Tensor& rows, Buffer* memory) const {
  const std::vector<Tensor>& bases = BasesOf(side);
  if (bases.empty()) return HeadOf(rows, 0);
  const Tensor& basis = bases[static_cast<size_t>(owner)];
  const int64_t n = rows.shape[0], heads = rows.shape[1], dim = rows.shape[2];
  const int64_t width = heads * dim, rank = basis.shape[1];
  const int64_t numbers = n * (width + rank);
  if (memory->size_bytes() < numbers * 4) *memory = ops().memory->Allocate(numbers * 4);
  const Tensor all = memory->As(DType::kF32, {numbers});
  const Tensor full = all.Slice(0, n * width).Reshape({n, width});
  const Tensor latent = all.Slice(n * width, n * (width + rank)).Reshape({n, rank});
  for (int64_t h = 0; h < heads; ++h) {
    ops().rows->Convert(HeadOf(rows, h), ColumnsFrom(full, h * dim, dim));
  }
  ops().linear->MatMulNN(full.Reshape({1, n, width}), basis.Reshape({1, width, rank}), 1.0f,
                         latent.Reshape({1, n, rank}));
  return latent;
}

void CacheLayer::ReadStream(KvSide side, int64_t owner, int64_t first, Tensor rows) const {
  int64_t begin = 0, done = 0;
  for (const Part& part : parts_) {
    const Stream& stream = StreamsOf(part, side)[static_cast<size_t>(owner)];
    const int64_t from = first + done - begin;
    const int64_t count = std::min(rows.shape[0] - done, stream.length() - from);
    if (count > 0) {
      stream.Read(from, rows.Slice(done, done + count));
      done += count;
    }
    begin += stream.length();
  }
}

void CacheLayer::Read(KvSide side, int64_t head, int64_t first, Tensor rows) const {
  const int64_t n = rows.shape[0], dim = HeadDim(side);
  KVG_CHECK(first >= 0 && first + n <= length(head), "entries outside the head");
  KVG_CHECK(rows.shape[1] == dim && rows.IsContiguous(), "rows must be contiguous [n, dim]");
  if (n == 0) return;
  if (side == KvSide::kValues && setup_->values_in_keys) {
    const int64_t width = HeadDim(KvSide::kKeys);
    const Buffer memory = ops().memory->Allocate(n * width * 4);
    ReadStream(KvSide::kKeys, 0, first, memory.As(DType::kF32, {n, width}));
    ops().rows->Convert(ColumnsFrom(memory.As(DType::kF32, {n, width}), 0, dim), rows);
    return;
  }
  if (side == KvSide::kKeys && !narrow_bases_.empty()) return ReadNarrow(head, first, rows);
  const Tensor basis = BasisOf(side, head);
  if (basis.empty()) {
    ReadStream(side, OwnerOf(side, head), first, rows);
    if (sharing_ != Sharing::kNone) ScaleShared(side, head, first, rows);
    return;
  }
  const int64_t rank = basis.shape[1];
  const Buffer memory = ops().memory->Allocate(n * rank * 4);
  const Tensor latent = memory.As(DType::kF32, {n, rank});
  ReadStream(side, OwnerOf(side, head), first, latent);
  ops().linear->MatMulNT(latent.Reshape({1, n, rank}), basis.Reshape({1, dim, rank}), 1.0f,
                         rows.Reshape({1, n, dim}));
}

void CacheLayer::ReadNarrow(int64_t head, int64_t first, Tensor rows) const {
  const auto at = static_cast<size_t>(head);
  const Stream &narrow = parts_[0].keys[at], &wide = parts_[1].keys[at];
  const int64_t n = rows.shape[0], dim = rows.shape[1], held = narrow_bases_[at].shape[1];
  const int64_t front = std::clamp<int64_t>(narrow.length() - first, 0, n);
  if (front > 0) {
    const Buffer memory = ops().memory->Allocate(front * held * 4);
    const Tensor some = memory.As(DType::kF32, {front, held});
    narrow.Read(first, some);
    ops().linear->MatMulNT(some.Reshape({1, front, held}),
                           narrow_bases_[at].Reshape({1, dim, held}), 1.0f,
                           rows.Slice(0, front).Reshape({1, front, dim}));
  }
  if (front < n) wide.Read(first + front - narrow.length(), rows.Slice(front, n));
}

Tensor CacheLayer::RotationsOf(int64_t head, int64_t first, int64_t n,
                               std::vector<int32_t>* memory) const {
  if (Clips()) return heads_[static_cast<size_t>(head)].rotations.view().Slice(first, first + n);
  if (plan_.position == PositionPolicy::kSlot) return Counted(first, n, memory);
  return PositionsOf(head, first, n, memory);
}

Status CacheLayer::AssignRotations() {
  if (!Clips()) return {};
  for (Head& head : heads_) {
    EntryArray fresh(*pool_, DType::kI32);
    KVG_TRY(fresh.Reserve(head.length));
    if (head.length > 0) ClipPositions(head, fresh.Extend(head.length));
    head.rotations = std::move(fresh);
  }
  return {};
}

void CacheLayer::ClipPositions(const Head& head, Tensor out) const {
  KVG_CHECK(head.has_positions || every_position_ != nullptr, "raw keys turn by no positions");
  const Tensor every(const_cast<int32_t*>(every_position_), DType::kI32, {head.length},
                     ops().device);
  const auto nearest = static_cast<int32_t>(tokens_ - 1 - plan_.position_limit);
  ops().select->AtLeast(head.has_positions ? head.positions.view() : every, nearest, out);
}

const int32_t* CacheLayer::RotationsFrom(const Head& head, int64_t first) const {
  if (Clips()) return head.rotations.data<int32_t>() + first;
  if (plan_.position == PositionPolicy::kOriginal && head.has_positions) {
    return head.positions.data<int32_t>() + first;
  }
  KVG_CHECK(every_position_ != nullptr, "raw keys turn by no positions");
  return every_position_ + first;
}

// Its channels are on the host.
Status CacheLayer::CheckNarrow(const StorePlan& plan) const {
  const bool otherwise = plan.keys.coded() || plan.values.coded() || plan.raw_keys || plan.latent ||
                         plan.mla_latent || plan.sinks > 0 || plan.tier != Tier::kDevice;
  if (otherwise) {
    return Unsupported("narrow_dim: only rotated, uncoded keys on the device give up numbers");
  }
  const Tensor& channels = plan.key_channels;
  const int64_t dim = HeadDim(KvSide::kKeys), kept = plan.narrow_dim;
  const bool shaped = channels.dtype == DType::kI32 && channels.rank == 2 &&
                      channels.shape[0] == setup_->kv_heads && channels.shape[1] == kept;
  if (!shaped || kept > dim || plan.wide_recent < 0) {
    return BadInput(StrCat("narrow_dim ", kept, ", wide_recent ", plan.wide_recent, ", channels ",
                           channels.DebugString(), ": must be at most ", dim,
                           ", not negative, and i32[", setup_->kv_heads, ", ", kept, "]"));
  }
  for (int64_t i = 0; i < channels.Numel(); ++i) {
    const int32_t* at = channels.i32() + i;
    if (*at < 0 || *at >= dim || (i % kept > 0 && at[-1] >= *at)) {
      return BadInput(StrCat("key channel ", *at, " of KV head ", i / kept,
                             ": channels ascend from 0 to ", dim - 1));
    }
  }
  return {};
}

Status CacheLayer::CheckPlan(const StorePlan& plan) const {
  if (plan.mla_latent != setup_->values_in_keys) {
    return Unsupported(setup_->values_in_keys
                           ? "the cache holds the model's own latents; a store must say mla_latent"
                           : "mla_latent: the cache was filled with expanded keys; it must be made "
                             "for latents before the prefill");
  }
  if (setup_->mla && (plan.raw_keys || plan.latent)) {
    return Unsupported("raw_keys, latent: the model's own latent attention keeps its keys rotated");
  }
  if (setup_->values_in_keys && plan.values.coded()) {
    return Unsupported(
        "mla_latent goes with a codec for the keys alone: values are read from the same latents");
  }
  if (plan.tier != Tier::kDevice && ops().device != Device::kHost) {
    return Unsupported(StrCat("tier ", NameOf(plan.tier),
                              ": attention of this device reads its "
                              "own memory only"));
  }
  if (plan.narrow_dim > 0) KVG_TRY(CheckNarrow(plan));
  if (plan.sinks < 0 || plan.position_limit < 0) {
    return BadInput(StrCat("sinks ", plan.sinks, ", position_limit ", plan.position_limit,
                           ": neither may be negative"));
  }
  if (plan.latent && given_key_bases_.empty() && given_value_bases_.empty()) {
    return BadInput("latent: no basis was written for this layer; a prepare stage must do that");
  }
  for (const std::vector<Tensor>* bases : {&given_key_bases_, &given_value_bases_}) {
    const bool keys = bases == &given_key_bases_;
    KvCodec codec = keys ? plan.keys : plan.values;
    if (keys && !plan.key_low.empty()) {
      // Of the first head for all: their shape is what is checked.
      KVG_CHECK(plan.key_low.rank == 2 && plan.key_low.shape[0] == setup_->kv_heads &&
                    plan.key_high.rank == 2 && plan.key_high.shape[0] == setup_->kv_heads,
                "key ranges must be f32 [kv_heads, key_dim]");
      if (plan.latent && !bases->empty()) {
        return Unsupported("key ranges are of channels; latents of groups of heads have none");
      }
      codec.channel_low = plan.key_low[0];
      codec.channel_high = plan.key_high[0];
    }
    const SealRule& rule = keys ? plan.seal_keys : plan.seal_values;
    const char* name = keys ? "keys" : "values";
    if (plan.latent && !bases->empty()) {
      for (const Tensor& basis : *bases) KVG_TRY(CheckSide(name, codec, rule, basis.shape[1]));
    } else {
      KVG_TRY(CheckSide(name, codec, rule, HeadDim(keys ? KvSide::kKeys : KvSide::kValues)));
    }
  }
  return {};
}

Status CacheLayer::OwnTables() {
  auto tables = std::make_shared<std::vector<std::vector<float>>>();
  const auto own = [&](Tensor& table, void* memory) {
    Tensor host = table;
    host.data = memory;
    host.device = Device::kHost;
    ops().memory->Copy(table, host);
    table = host;
  };
  for (Tensor* table :
       {&plan_.keys.levels, &plan_.keys.channel_low, &plan_.keys.channel_high, &plan_.values.levels,
        &plan_.values.channel_low, &plan_.values.channel_high}) {
    if (table->empty()) continue;
    own(*table, tables->emplace_back(static_cast<size_t>(table->Numel())).data());
  }
  if (Tensor& channels = plan_.key_channels; !channels.empty()) {
    own(channels, tables->emplace_back(static_cast<size_t>(channels.Numel())).data());
  }
  for (Tensor* table : {&plan_.key_low, &plan_.key_high}) {
    if (table->empty()) continue;
    if (plan_.constant_ranges) {
      own(*table, tables->emplace_back(static_cast<size_t>(table->Numel())).data());
      continue;
    }
    KVG_TRY(ranges_.Push(table->SizeBytes()));
    own(*table, ranges_[ranges_.size() - 1]);
  }
  tables_ = std::move(tables);
  return {};
}

KvCodec CacheLayer::CodecOf(KvSide side, int64_t owner) const {
  if (side == KvSide::kValues) return plan_.values;
  KvCodec codec = plan_.keys;
  if (!plan_.key_low.empty()) {
    codec.channel_low = plan_.key_low[owner];
    codec.channel_high = plan_.key_high[owner];
  }
  return codec;
}

Status CacheLayer::Store(const StorePlan& plan) {
  if (split_ || sharing_ != Sharing::kNone || tables_ != nullptr || !key_bases_.empty() ||
      !value_bases_.empty()) {
    return Unsupported("the layer is stored by another plan already");
  }
  plan_ = plan;
  KVG_TRY(OwnTables());
  KVG_TRY(CheckPlan(plan_));
  if (plan.latent) {
    key_bases_ = given_key_bases_;
    value_bases_ = given_value_bases_;
    // A basis spans keys before rotation.
    plan_.raw_keys = plan_.raw_keys || !key_bases_.empty();
  }
  if (setup_->frequencies.inverse.empty()) plan_.raw_keys = false;  // nothing ever turns
  KVG_TRY(Represent());
  if (plan_.narrow_dim > 0) KVG_TRY(NarrowKeys());
  KVG_TRY(AssignRotations());
  const Status sealed = Seal();
  read_words_.clear();
  Publish();
  return sealed;
}

Status CacheLayer::Represent() {
  Part before = std::move(parts_[0]);
  parts_[0] = NewPart(PartKind::kPlain);
  const auto represent = [&](KvSide side, bool turn) -> Status {
    std::vector<Stream>& from = side == KvSide::kKeys ? before.keys : before.values;
    std::vector<Stream>& to = side == KvSide::kKeys ? parts_[0].keys : parts_[0].values;
    if (!turn && BasesOf(side).empty()) {
      to = std::move(from);
      return {};
    }
    const int64_t dim = HeadDim(side), group = setup_->kv_heads / std::ssize(to);
    RowRotator back(ops(), setup_->frequencies, setup_->rope_layout, RopeDirection::kInverse);
    for (int64_t o = 0; o < std::ssize(to); ++o) {
      const int64_t n = length(o * group);
      if (n == 0) continue;
      const Buffer memory = ops().memory->Allocate(n * group * dim * 4);
      // [heads, n, dim]: each head is read whole.
      const Tensor heads = memory.As(DType::kF32, {group, n, dim});
      for (int64_t g = 0; g < group; ++g) {
        const int64_t h = o * group + g;
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
      Buffer projected;
      KVG_TRY(to[static_cast<size_t>(o)].Append(Projected(side, o, rows, &projected)));
    }
    return {};
  };
  KVG_TRY(represent(KvSide::kKeys, plan_.raw_keys));
  return setup_->values_in_keys ? Status() : represent(KvSide::kValues, false);
}

Status CacheLayer::NarrowKeys() {
  const int64_t dim = HeadDim(KvSide::kKeys), kept = plan_.narrow_dim;
  for (int64_t h = 0; h < setup_->kv_heads; ++h) {
    std::vector<float> choice(static_cast<size_t>(dim * kept));
    const int32_t* channels = plan_.key_channels[h].i32();
    for (int64_t i = 0; i < kept; ++i) choice[static_cast<size_t>(channels[i] * kept + i)] = 1.0f;
    KVG_TRY(choices_.Push(dim * kept * SizeOf(DType::kF32)));
    const Tensor basis(choices_[h], DType::kF32, {dim, kept}, ops().device);
    ops().memory->Copy(View(choice, {dim, kept}), basis);
    narrow_bases_.push_back(basis);
  }
  Part narrow = NewPart(PartKind::kNarrow), wide = NewPart(PartKind::kPlain);
  for (int64_t h = 0; h < setup_->kv_heads; ++h) {
    const auto at = static_cast<size_t>(h);
    const int64_t n = length(h), front = std::max<int64_t>(0, n - plan_.wide_recent);
    if (n == 0) continue;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const bool keys = side == KvSide::kKeys;
      const int64_t width = HeadDim(side);
      const Buffer memory = ops().memory->Allocate((n * width + front * kept) * 4);
      const Tensor all = memory.As(DType::kF32, {n * width + front * kept});
      const Tensor rows = all.Slice(0, n * width).Reshape({n, width});
      Tensor first = rows.Slice(0, front);
      StreamsOf(parts_[0], side)[at].Read(0, rows);
      if (keys && front > 0) {
        first = all.Slice(n * width, all.shape[0]).Reshape({front, kept});
        ops().linear->MatMulNN(rows.Slice(0, front).Reshape({1, front, width}),
                               narrow_bases_[at].Reshape({1, width, kept}), 1.0f,
                               first.Reshape({1, front, kept}));
      }
      if (front > 0) KVG_TRY((keys ? narrow.keys : narrow.values)[at].Append(first));
      if (front < n) KVG_TRY((keys ? wide.keys : wide.values)[at].Append(rows.Slice(front, n)));
    }
  }
  parts_.clear();
  parts_.push_back(std::move(narrow));
  parts_.push_back(std::move(wide));
  return {};
}

Status CacheLayer::Split() {
  Part sinks = NewPart(PartKind::kPlain), body = NewPart(PartKind::kPlanned);
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    const std::vector<Stream>& from = StreamsOf(parts_[0], side);
    for (size_t o = 0; o < from.size(); ++o) {
      const int64_t n = from[o].length(), first = std::min(n, plan_.sinks);
      const int64_t dim = from[o].spec().dim;
      if (n == 0) continue;
      const Buffer memory = ops().memory->Allocate(n * dim * 4);
      const Tensor rows = memory.As(DType::kF32, {n, dim});
      from[o].Read(0, rows);
      Stream& head = side == KvSide::kKeys ? sinks.keys[o] : sinks.values[o];
      Stream& rest = side == KvSide::kKeys ? body.keys[o] : body.values[o];
      if (first > 0) KVG_TRY(head.Append(rows.Slice(0, first)));
      if (first < n) KVG_TRY(rest.Append(rows.Slice(first, n)));
    }
  }
  parts_.clear();
  if (plan_.sinks > 0) parts_.push_back(std::move(sinks));
  parts_.push_back(std::move(body));
  split_ = true;
  return {};
}

Status CacheLayer::Seal() {
  const bool planned = plan_.keys.coded() || plan_.values.coded() || plan_.tier != Tier::kDevice;
  const bool splits = planned && !split_ && width() > plan_.sinks;
  if (splits) KVG_TRY(Split());
  bool sealed = false;
  Status status;
  for (std::vector<Stream>* streams : {&parts_.back().keys, &parts_.back().values}) {
    for (Stream& stream : *streams) {
      if (!split_ || !status.ok() || stream.Due() <= 0) continue;
      status = stream.Seal();
      sealed = true;
    }
  }
  if (!splits && !sealed) return {};
  read_words_.clear();
  Publish();
  return status;
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Two layers that share the directions of their keys and values (MiniCache, arXiv:2405.14366).
//
// Both layers keep one direction of each key and of each value, between theirs on the sphere, and a
// magnitude each. Keys whose directions differ most stay as they are, and so do such values. An
// entry's key and value are in the same part, so there is a part for each of the four cases. Later
// entries wait in a fifth part, and share when they are sealed if the plan says so. The upper
// layer's plan asks for it; both get a layout of this kind, and directions count with the lower
// one.
#include "methods/layouts/shared_directions.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/strings.h"
#include "kernels/sphere.h"
#include "src/cache/bytes.h"
#include "src/cache/layer_layout.h"

namespace kvgauge {
namespace {

// One side of one head in both layers, on the host.
struct Pair {
  int64_t dim = 0;
  std::vector<float> lower, upper;                    // [n, dim]
  std::vector<double> lower_norm, upper_norm, angle;  // [n]

  void Measure() {
    const int64_t n = std::ssize(lower) / dim;
    for (int64_t i = 0; i < n; ++i) {
      const Arc arc = ArcOf(i);
      lower_norm.push_back(arc.a_norm);
      upper_norm.push_back(arc.b_norm);
      angle.push_back(arc.angle);
    }
  }
  Arc ArcOf(int64_t i) const {
    return Arc(&lower[static_cast<size_t>(i * dim)], &upper[static_cast<size_t>(i * dim)], dim);
  }
  std::vector<float> Directions(std::span<const int32_t> picked, double weight) const {
    std::vector<float> directions(picked.size() * static_cast<size_t>(dim));
    for (size_t i = 0; i < picked.size(); ++i) {
      ArcOf(picked[i]).Between(weight, &directions[i * static_cast<size_t>(dim)]);
    }
    return directions;
  }
};

// The parts of a head: whether its keys and its values stay apart; shared entries end with kShared,
// to which sealing adds.
enum SharedPart : size_t { kApart, kKeysApart, kValuesApart, kShared, kFresh, kParts };

bool IsShared(size_t part, KvSide side) {
  return part == kShared || part == (side == KvSide::kKeys ? kValuesApart : kKeysApart);
}

// Marks the `retained` entries whose angles are largest; the first of equal ones.
std::vector<bool> MostDistinct(const std::vector<double>& angle, int64_t retained) {
  std::vector<int32_t> order(angle.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return angle[static_cast<size_t>(a)] > angle[static_cast<size_t>(b)];
  });
  std::vector<bool> distinct(angle.size());
  for (int64_t i = 0; i < retained; ++i) distinct[static_cast<size_t>(order[i])] = true;
  return distinct;
}

std::vector<float> Rows(const std::vector<float>& all, int64_t dim,
                        std::span<const int32_t> picked) {
  std::vector<float> rows;
  for (const int32_t i : picked) {
    const float* row = &all[static_cast<size_t>(i * dim)];
    rows.insert(rows.end(), row, row + dim);
  }
  return rows;
}

std::vector<int32_t> Pick(const std::vector<int32_t>& all, std::span<const int32_t> picked) {
  std::vector<int32_t> numbers;
  for (const int32_t i : picked) numbers.push_back(all[static_cast<size_t>(i)]);
  return numbers;
}

std::vector<float> Narrow(const std::vector<double>& all, std::span<const int32_t> picked) {
  std::vector<float> numbers;
  for (const int32_t i : picked) numbers.push_back(static_cast<float>(all[static_cast<size_t>(i)]));
  return numbers;
}

class SharedDirectionsLayer final : public LayerLayout {
 public:
  std::string_view id() const override { return SharedDirections::kId; }
  std::unique_ptr<LayerLayout> Fork() const override {
    return std::make_unique<SharedDirectionsLayer>(*this);
  }

  Status Use(const StoreLayout& plan, const LayerEntries&) override {
    plan_ = static_cast<const SharedDirections&>(plan);
    return {};
  }
  Status Put(std::string& out) const override {
    PutNumber(out, owns_ ? 1 : 0);
    PutNumber(out, plan_.later ? 1 : 0);
    PutNumber(out, plan_.bits);
    PutNumber(out, plan_.group);
    PutArray(out, std::vector<double>{plan_.weight, plan_.retain});
    return {};
  }
  Status Take(std::string_view& in, const LayerEntries&) override {
    int64_t bits = 0;
    std::vector<double> shares;
    taken_ = true;
    KVG_TRY(TakeFlag(in, "the lower of two layers", &owns_));
    KVG_TRY(TakeFlag(in, "whether later entries share", &plan_.later));
    KVG_TRY(TakeNumber(in, "bits of a direction", 0, 8, &bits));
    KVG_TRY(TakeNumber(in, "group of a direction", 0, int64_t{1} << 20, &plan_.group));
    KVG_TRY(TakeArray(in, &shares));
    if (shares.size() != 2) {
      return BadInput(StrCat("cache bytes: ", shares.size(),
                             " numbers; expected 2, a weight and a share that stays apart"));
    }
    plan_.bits = static_cast<int>(bits);
    plan_.weight = shares[0];
    plan_.retain = shares[1];
    return {};
  }
  void PutEntries(const LayerEntries& entries, std::string& out) const override;
  Status TakeEntries(std::string_view& in, LayerEntries& entries) override;
  bool ascends_by_part() const override { return true; }
  int64_t shared_with_below() const override { return owns_ ? 0 : 1; }
  Status TakeShared(LayerEntries& upper, std::span<const LayerPair> below) override;
  Status Check(const LayerEntries& entries) const override {
    KVG_TRY(LayerLayout::Check(entries));
    if (entries.turn.raw) {
      return Unsupported(StrCat(id(), ": only rotated keys can be shared"));
    }
    if (!(plan_.weight >= 0 && plan_.weight <= 1) || !(plan_.retain >= 0 && plan_.retain <= 1)) {
      return BadInput(StrCat(id(), ": weight ", plan_.weight, ", retain ", plan_.retain,
                             ": both must be 0 to 1"));
    }
    if (plan_.bits == 0) return {};
    StreamSpec spec;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      spec.side = side;
      spec.dim = entries.HeadDim(side);
      const Status codes = CheckCodec(CodedSpec(spec).codec);
      if (!codes.ok()) return codes.error().Wrap(StrCat(id(), ": directions"));
    }
    return {};
  }

  int64_t layers_below(const StoreLayout&) const override { return 1; }
  Status Convert(LayerEntries& upper, std::span<const LayerPair> below) override;
  bool seals_with_above() const override { return owns_ && plan_.later; }
  Status SealTogether(LayerEntries& lower, const LayerPair& above, Buffer* memory) override;
  Status CheckReduce(std::span<const HeadPlan>) const override {
    return Unsupported("entries that are shared with another layer cannot be dropped or merged");
  }

  void Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
            Tensor rows) const override {
    LayerLayout::Read(entries, side, head, first, rows);
    Scale(entries, side, head, first, rows);
  }
  void Describe(const LayerEntries& entries, std::span<KvSegment> segments) const override {
    const size_t parts = entries.parts.size();
    for (size_t h = 0; h < scales_.size(); ++h) {
      for (size_t p = 0; p < kFresh; ++p) {
        KvSegment& segment = segments[h * parts + p];
        if (IsShared(p, KvSide::kKeys)) segment.key_scale = scales_[h][0][p].data<float>();
        if (IsShared(p, KvSide::kValues)) segment.value_scale = scales_[h][1][p].data<float>();
      }
    }
  }
  void AddBytes(const LayerEntries& entries, KvBytes& bytes) const override {
    for (size_t p = 0; p < entries.parts.size(); ++p) {
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        if (!owns_ && IsShared(p, side)) continue;
        for (const Stream& stream : entries.parts[p].of(side)) stream.AddBytes(bytes);
      }
    }
    for (const Scales& head : scales_) {
      for (const auto& side : head) {
        for (const EntryArray& one : side) {
          bytes.biases += one.bytes();
          bytes.slack += one.allocated_bytes() - one.bytes();
        }
      }
    }
  }

 private:
  // The spec of directions: coded each by itself, if the plan says so.
  StreamSpec CodedSpec(StreamSpec spec) const {
    if (plan_.bits == 0) return spec;
    spec.codec.kind = KvCodecKind::kAffine;
    spec.codec.side = spec.side;
    spec.codec.dim = spec.dim;
    spec.codec.dtype = spec.dtype;
    spec.codec.bits = plan_.bits;
    spec.codec.group = plan_.group == 0 ? spec.dim : std::min(plan_.group, spec.dim);
    spec.rule = SealWhole(spec.codec);
    return spec;
  }
  static Status SealDue(Stream& stream) { return stream.Due() > 0 ? stream.Seal() : Status(); }

  // f32, of keys and of values, by part; empty where the side is not shared.
  using Scales = std::array<std::vector<EntryArray>, 2>;

  Status CheckScales(const LayerEntries& entries) const;
  void MakeParts(LayerEntries& entries);
  // Directions among entries from `first` on become what they stand for.
  void Scale(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
             Tensor rows) const;

  SharedDirections plan_;
  bool owns_ = false;           // the lower layer
  bool taken_ = false;          // from bytes
  std::vector<Scales> scales_;  // [kv_heads]
};

std::vector<float> HostRows(const LayerEntries& entries, KvSide side, int64_t head) {
  const int64_t n = entries.length(head), dim = entries.HeadDim(side);
  std::vector<float> host(static_cast<size_t>(n * dim));
  if (n == 0) return host;
  const Buffer memory = entries.ops().memory->Allocate(n * dim * 4);
  const Tensor rows = memory.As(DType::kF32, {n, dim});
  entries.ReadStream(side, head, 0, rows);
  entries.ops().memory->Copy(rows, View(host, {n, dim}));
  return host;
}

Status AppendHost(Ops& ops, Stream& stream, const std::vector<float>& rows) {
  const int64_t dim = stream.spec().dim, n = std::ssize(rows) / dim;
  if (n == 0) return {};
  const Buffer memory = ops.memory->Allocate(n * dim * 4);
  const Tensor device = memory.As(DType::kF32, {n, dim});
  ops.memory->Copy(View(rows, {n, dim}), device);
  return stream.Append(device);
}

void SharedDirectionsLayer::PutEntries(const LayerEntries& entries, std::string& out) const {
  for (size_t p = 0; p < kParts; ++p) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const bool shared = IsShared(p, side);
      for (size_t h = 0; h < scales_.size(); ++h) {
        if (owns_ || !shared) entries.parts[p].of(side)[h].Serialize(out);
        if (!shared) continue;
        PutArray(out, scales_[h][static_cast<size_t>(side)][p].ToHost<float>());
      }
    }
  }
}

Status SharedDirectionsLayer::TakeEntries(std::string_view& in, LayerEntries& entries) {
  for (size_t p = 0; p < kParts; ++p) {
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const bool shared = IsShared(p, side);
      for (size_t h = 0; h < scales_.size(); ++h) {
        if (owns_ || !shared) KVG_TRY(entries.parts[p].of(side)[h].Deserialize(in));
        if (!shared) continue;
        std::vector<float> scales;
        KVG_TRY(TakeArray(in, &scales));
        KVG_TRY(scales_[h][static_cast<size_t>(side)][p].Assign(scales));
      }
    }
  }
  return owns_ ? CheckScales(entries) : Status();
}

Status SharedDirectionsLayer::CheckScales(const LayerEntries& entries) const {
  for (size_t h = 0; h < scales_.size(); ++h) {
    for (size_t p = 0; p < kFresh; ++p) {
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        const int64_t scales = scales_[h][static_cast<size_t>(side)][p].size();
        const int64_t entry_count = entries.parts[p].of(side)[h].length();
        if (!IsShared(p, side) || scales == entry_count) continue;
        return BadInput(
            StrCat("cache bytes: ", scales, " sizes of shared directions; expected ", entry_count));
      }
    }
  }
  return {};
}

Status SharedDirectionsLayer::TakeShared(LayerEntries& upper, std::span<const LayerPair> below) {
  if (owns_) return {};
  const auto* owner = dynamic_cast<const SharedDirectionsLayer*>(below[0].layout->get());
  if (owner == nullptr || !owner->owns_ || owner->plan_.bits != plan_.bits) {
    return BadInput("cache bytes: the layer below has no directions to share");
  }
  const LayerEntries& lower = *below[0].entries;
  for (size_t h = 0; h < scales_.size(); ++h) {
    for (size_t p = 0; p < kFresh; ++p) {
      for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
        if (IsShared(p, side)) upper.parts[p].of(side)[h] = lower.parts[p].of(side)[h];
      }
    }
    if (upper.heads[h].length == lower.heads[h].length &&
        upper.parts[kFresh].keys[h].length() == lower.parts[kFresh].keys[h].length()) {
      continue;
    }
    return BadInput("cache bytes: two layers that share have other entries to come");
  }
  return CheckScales(upper);
}

// Makes the parts of a layer that bytes fill.
void SharedDirectionsLayer::MakeParts(LayerEntries& entries) {
  std::vector<LayerPart> parts;
  for (size_t p = 0; p < kParts; ++p) {
    parts.push_back(EmptyPart(entries));
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      for (Stream& stream : parts.back().of(side)) {
        if (IsShared(p, side)) stream = Stream(CodedSpec(stream.spec()), *entries.pool);
      }
    }
  }
  entries.parts = std::move(parts);
  const std::vector<EntryArray> none(kFresh, EntryArray(*entries.pool, DType::kF32));
  scales_.assign(static_cast<size_t>(entries.setup->kv_heads), Scales{none, none});
}

Status SharedDirectionsLayer::Convert(LayerEntries& upper, std::span<const LayerPair> below) {
  if (taken_) {
    MakeParts(upper);
    return {};
  }
  if (below.empty()) {
    return BadInput(StrCat(id(), ": the first layer has none before it to share with"));
  }
  LayerEntries& lower = *below[0].entries;
  if ((*below[0].layout)->id() != "plain" || lower.parts.size() != 1 || lower.turn.raw) {
    return Unsupported(
        StrCat(id(),
               ": only rotated, uncoded keys and values on the device can be shared, and the layer "
               "before is stored as ",
               (*below[0].layout)->id()));
  }
  auto owner = std::make_unique<SharedDirectionsLayer>();
  owner->plan_ = plan_;
  owner->owns_ = true;
  Ops& ops = lower.ops();
  const std::array<LayerEntries*, 2> both = {&lower, &upper};
  const std::array<SharedDirectionsLayer*, 2> layouts = {owner.get(), this};
  std::array<std::vector<LayerPart>, 2> parts;
  for (std::vector<LayerPart>& fresh : parts) {
    for (size_t part = 0; part < kParts; ++part) fresh.push_back(EmptyPart(upper));
  }
  for (int64_t h = 0; h < lower.setup->kv_heads; ++h) {
    const auto at = static_cast<size_t>(h);
    const std::vector<int32_t> positions = lower.Positions(h);
    if (positions != upper.Positions(h)) {
      return Unsupported(StrCat(id(), ": KV head ", h, " holds other entries in the layer before"));
    }
    const auto retained = static_cast<int64_t>(
        std::floor(plan_.retain * static_cast<double>(positions.size()) + 0.5));
    std::array<Pair, 2> pairs;
    std::array<std::vector<bool>, 2> distinct;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const auto s = static_cast<size_t>(side);
      pairs[s].dim = lower.HeadDim(side);
      pairs[s].lower = HostRows(lower, side, h);
      pairs[s].upper = HostRows(upper, side, h);
      pairs[s].Measure();
      distinct[s] = MostDistinct(pairs[s].angle, retained);
    }
    std::array<std::vector<int32_t>, kFresh> members;  // of each part, ascending
    for (size_t i = 0; i < positions.size(); ++i) {
      const SharedPart part = distinct[0][i] ? (distinct[1][i] ? kApart : kKeysApart)
                                             : (distinct[1][i] ? kValuesApart : kShared);
      members[part].push_back(static_cast<int32_t>(i));
    }
    std::vector<int32_t> order;
    for (const auto& some : members) order.insert(order.end(), some.begin(), some.end());
    for (size_t l = 0; l < both.size(); ++l) {
      KVG_ASSIGN(HeadEntries head, both[l]->Gathered(h, order, {}));
      head.has_positions = both[l]->heads[at].has_positions || retained > 0;
      if (head.has_positions) KVG_TRY(head.positions.Assign(Pick(positions, order)));
      both[l]->heads[at] = std::move(head);
      const std::vector<EntryArray> none(kFresh, EntryArray(*lower.pool, DType::kF32));
      layouts[l]->scales_.push_back({none, none});
    }
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const auto s = static_cast<size_t>(side);
      const Pair& pair = pairs[s];
      for (size_t p = 0; p < kFresh; ++p) {
        Stream& below_stream = parts[0][p].of(side)[at];
        Stream& upper_stream = parts[1][p].of(side)[at];
        if (!IsShared(p, side)) {
          KVG_TRY(AppendHost(ops, below_stream, Rows(pair.lower, pair.dim, members[p])));
          KVG_TRY(AppendHost(ops, upper_stream, Rows(pair.upper, pair.dim, members[p])));
          continue;
        }
        below_stream = Stream(CodedSpec(below_stream.spec()), *lower.pool);
        KVG_TRY(AppendHost(ops, below_stream, pair.Directions(members[p], plan_.weight)));
        KVG_TRY(SealDue(below_stream));
        upper_stream = below_stream;
        KVG_TRY(owner->scales_[at][s][p].Assign(Narrow(pair.lower_norm, members[p])));
        KVG_TRY(scales_[at][s][p].Assign(Narrow(pair.upper_norm, members[p])));
      }
    }
  }
  for (size_t l = 0; l < both.size(); ++l) both[l]->parts = std::move(parts[l]);
  *below[0].layout = std::move(owner);
  return {};
}

Status SharedDirectionsLayer::SealTogether(LayerEntries& lower, const LayerPair& above,
                                           Buffer* memory) {
  LayerEntries& upper = *above.entries;
  auto* other = dynamic_cast<SharedDirectionsLayer*>(above.layout->get());
  KVG_CHECK(other != nullptr, "the layer above shares no directions");
  Ops& ops = lower.ops();
  const std::array<LayerEntries*, 2> both = {&lower, &upper};
  const std::array<SharedDirectionsLayer*, 2> layouts = {this, other};
  for (int64_t h = 0; h < lower.setup->kv_heads; ++h) {
    const auto at = static_cast<size_t>(h);
    const int64_t n = lower.parts[kFresh].keys[at].length();
    if (n == 0) continue;
    const int64_t first = lower.length(h) - n;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const auto s = static_cast<size_t>(side);
      const int64_t dim = lower.HeadDim(side), numbers = n * (3 * dim + 2);
      if (memory->size_bytes() < numbers * 4) *memory = ops.memory->Allocate(numbers * 4);
      const Tensor all = memory->As(DType::kF32, {numbers});
      const auto matrix = [&](int64_t i) {
        return all.Slice(i * n * dim, (i + 1) * n * dim).Reshape({n, dim});
      };
      const Tensor norms = all.Slice(3 * n * dim, numbers).Reshape({2, n});
      lower.ReadStream(side, h, first, matrix(0));
      upper.ReadStream(side, h, first, matrix(1));
      ops.algebra->DirectionsBetween(matrix(0), matrix(1), plan_.weight, matrix(2), norms[0],
                                     norms[1]);
      Stream& shared = lower.parts[kShared].of(side)[at];
      KVG_TRY(shared.Append(matrix(2)));
      KVG_TRY(SealDue(shared));
      upper.parts[kShared].of(side)[at] = shared;
      for (size_t l = 0; l < both.size(); ++l) {
        EntryArray& scales = layouts[l]->scales_[at][s][kShared];
        KVG_TRY(scales.Reserve(scales.size() + n));
        ops.memory->Copy(norms[static_cast<int64_t>(l)], scales.Extend(n));
        Stream& fresh = both[l]->parts[kFresh].of(side)[at];
        fresh = Stream(fresh.spec(), *lower.pool);
      }
    }
  }
  return {};
}

void SharedDirectionsLayer::Scale(const LayerEntries& entries, KvSide side, int64_t head,
                                  int64_t first, Tensor rows) const {
  const auto at = static_cast<size_t>(head);
  Ops& ops = entries.ops();
  int64_t begin = 0, end = 0;  // of a part, in the head
  for (size_t p = 0; p < kFresh; ++p, begin = end) {
    end += entries.parts[p].of(side)[at].length();
    const int64_t from = std::max(begin, first), to = std::min(end, first + rows.shape[0]);
    if (from >= to || !IsShared(p, side)) continue;
    const Tensor scales = scales_[at][static_cast<size_t>(side)][p].view();
    const int64_t n = to - from, dim = rows.shape[1];
    std::vector<int32_t> every(static_cast<size_t>(n));
    std::iota(every.begin(), every.end(), 0);
    const Buffer memory = ops.memory->Allocate(n * (dim + 1) * 4);
    const Tensor all = memory.As(DType::kF32, {n * (dim + 1)});
    const Tensor directions = all.Slice(0, n * dim).Reshape({n, dim});
    Tensor index = all.Slice(n * dim, n * (dim + 1));
    index.dtype = DType::kI32;
    ops.memory->Copy(View(every, {n}), index);
    const Tensor part = rows.Slice(from - first, to - first);
    ops.memory->Copy(part, directions);
    ops.rows->Fill(0.0f, part);
    ops.select->ScatterAdd(directions, index, scales.Slice(from - begin, to - begin), part);
  }
}

}  // namespace
KVG_REGISTER_LAYOUT(shared_directions, SharedDirections, SharedDirectionsLayer)
}  // namespace kvgauge

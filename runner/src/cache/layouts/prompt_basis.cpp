// SPDX-License-Identifier: Apache-2.0
// The prompt's entries as coordinates in bases of this sequence: of one layer, or of a group.
#include "src/cache/layouts/prompt_basis.h"

#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "methods/layouts/group_basis.h"
#include "methods/layouts/prompt_basis.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

using PromptBasisPlan = PromptBasis;

constexpr std::array<KvSide, 2> kBasisSides = {KvSide::kKeys, KvSide::kValues};

}  // namespace

Status BasisLayer::PlaceBases(const LayerEntries& entries) {
  memory_ = std::make_shared<BlockList>(*entries.pool);
  for (Side& own : sides_) {
    if (own.rank == 0) continue;
    KVG_TRY(memory_->Push(std::ssize(own.host) * SizeOf(DType::kF32)));
    own.basis = Tensor((*memory_)[memory_->size() - 1], DType::kF32, {own.shape[0], own.shape[1]},
                       entries.ops().device);
    entries.ops().memory->Copy(View(own.host, {own.shape[0], own.shape[1]}), own.basis);
  }
  return {};
}

void BasisLayer::AddBasisBytes(KvBytes& bytes) const {
  if (!converted()) return;
  int64_t held = 0;
  for (const Side& side : sides_) held += std::ssize(side.host) * SizeOf(DType::kF32);
  bytes.low_rank += held;
  bytes.slack += memory_->allocated_bytes() - held;
}

LayerPart BasisLayer::CoordinatePart(const LayerEntries& entries) const {
  const int64_t heads = entries.setup->kv_heads;
  std::array<int64_t, 2> owners = {};
  for (const KvSide side : kBasisSides) {
    owners[static_cast<size_t>(side)] = transformed(side) ? 1 : heads;
  }
  return entries.NewPart(owners, *entries.pool, [&](KvSide side, int64_t) {
    StreamSpec spec;
    spec.side = side;
    spec.dtype = entries.setup->format.dtype;
    spec.dim = transformed(side) ? Of(side).rank : entries.HeadDim(side);
    return spec;
  });
}

Status BasisLayer::CheckEven(const LayerEntries& entries) const {
  for (int64_t h = 1; h < entries.setup->kv_heads; ++h) {
    if (entries.length(h) == entries.length(0)) continue;
    return Unsupported(StrCat(id(), ": KV heads 0 and ", h, " hold ", entries.length(0), " and ",
                              entries.length(h), " entries, so they cannot share coordinates"));
  }
  return {};
}

void BasisLayer::Join(const LayerEntries& entries, KvSide side, const Tensor& own,
                      const Tensor& rows, int64_t column) {
  const int64_t dim = entries.HeadDim(side);
  for (const Stream& stream : entries.parts[0].of(side)) {
    stream.Read(0, own);
    entries.ops().rows->Convert(own, Columns(rows, column, column + dim));
    column += dim;
  }
}

void BasisLayer::Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
                      Tensor rows) const {
  if (!converted()) return LayerLayout::Read(entries, side, head, first, rows);
  const auto at = static_cast<size_t>(head);
  const bool turned = transformed(side);
  const Stream& front = entries.parts[0].of(side)[turned ? 0 : at];
  const Stream& back = entries.parts[1].of(side)[at];
  const int64_t n = rows.shape[0], dim = rows.shape[1];
  const int64_t some = std::clamp<int64_t>(front.length() - first, 0, n);
  if (some > 0 && !turned) front.Read(first, rows.Slice(0, some));
  if (some > 0 && turned) {
    const int64_t rank = Of(side).rank;
    Ops& ops = entries.ops();
    const Buffer memory = ops.memory->Allocate(some * rank * 4);
    const Tensor held = memory.As(DType::kF32, {some, rank});
    front.Read(first, held);
    ops.linear->MatMulNT(held.Reshape({1, some, rank}),
                         BasisOf(entries, side, head).Reshape({1, dim, rank}), 1.0f,
                         rows.Slice(0, some).Reshape({1, some, dim}));
  }
  if (some < n) back.Read(first + some - front.length(), rows.Slice(some, n));
}

void BasisLayer::Describe(const LayerEntries& entries, std::span<KvSegment> segments) const {
  if (!converted()) return;
  const size_t parts = entries.parts.size();
  for (size_t at = 0; at < segments.size(); at += parts) {
    const auto head = static_cast<int64_t>(at / parts);
    if (transformed(KvSide::kKeys)) {
      segments[at].key_basis = BasisOf(entries, KvSide::kKeys, head);
    }
    if (transformed(KvSide::kValues)) {
      segments[at].value_basis = BasisOf(entries, KvSide::kValues, head);
    }
  }
}

namespace {

class PromptBasisLayer final : public BasisLayer {
 public:
  std::string_view id() const override { return PromptBasisPlan::kId; }
  std::unique_ptr<LayerLayout> Fork() const override {
    return std::make_unique<PromptBasisLayer>(*this);
  }

  Status Use(const StoreLayout& plan, const LayerEntries& entries) override;
  Status Put(std::string& out) const override {
    for (const KvSide side : kBasisSides) {
      PutNumber(out, Of(side).rank);
      PutArray(out, Of(side).host);
    }
    return {};
  }
  Status Take(std::string_view& in, const LayerEntries& entries) override;
  Status Check(const LayerEntries& entries) const override;
  bool wants_raw_keys(const LayerEntries&) const override { return transformed(KvSide::kKeys); }
  Status Convert(LayerEntries& entries, std::span<const LayerPair> below) override;
  void AddBytes(const LayerEntries& entries, KvBytes& bytes) const override {
    LayerLayout::AddBytes(entries, bytes);
    AddBasisBytes(bytes);
  }

 private:
  Status ConvertSide(LayerEntries& entries, KvSide side, LayerPart& coordinates) const;
};

Status PromptBasisLayer::Use(const StoreLayout& plan, const LayerEntries& entries) {
  const auto& all = static_cast<const PromptBasisPlan&>(plan);
  for (const KvSide side : kBasisSides) {
    const bool keys = side == KvSide::kKeys;
    Side& own = Of(side);
    own.rank = keys ? all.key_rank : all.value_rank;
    const Tensor& given = keys ? all.key_basis : all.value_basis;
    if (given.empty()) continue;
    own.host.resize(static_cast<size_t>(given.Numel()));
    own.shape = {given.shape[0], given.rank == 2 ? given.shape[1] : 0};
    Tensor host = given;
    host.data = own.host.data();
    host.device = Device::kHost;
    entries.ops().memory->Copy(given, host);
  }
  return {};
}

Status PromptBasisLayer::Take(std::string_view& in, const LayerEntries& entries) {
  for (const KvSide side : kBasisSides) {
    Side& own = Of(side);
    const int64_t width = entries.setup->kv_heads * entries.HeadDim(side);
    KVG_TRY(TakeNumber(in, "rank of a basis", 0, width, &own.rank));
    KVG_TRY(TakeArray(in, &own.host));
    const int64_t numbers = std::ssize(own.host);
    own.shape = {width, numbers % width == 0 ? numbers / width : 0};
  }
  return {};
}

Status PromptBasisLayer::Check(const LayerEntries& entries) const {
  KVG_TRY(LayerLayout::Check(entries));
  if (entries.setup->mla) {
    return Unsupported("prompt_basis: the model's own latent attention keeps its keys rotated");
  }
  for (const KvSide side : kBasisSides) {
    const Side& own = Of(side);
    if (own.rank == 0 && own.host.empty()) continue;
    const std::array<int64_t, 2> right = {entries.setup->kv_heads * entries.HeadDim(side),
                                          own.rank};
    if (own.shape != right || own.rank < 1 || own.rank > right[0]) {
      return BadInput(StrCat("prompt_basis: a basis [", own.shape[0], ", ", own.shape[1],
                             "]; right is [", right[0], ", ", right[1], "]"));
    }
    if (!std::all_of(own.host.begin(), own.host.end(), [](float x) { return std::isfinite(x); })) {
      return BadInput("prompt_basis: a basis with a number that is not finite");
    }
  }
  return {};
}

Status PromptBasisLayer::ConvertSide(LayerEntries& entries, KvSide side,
                                     LayerPart& coordinates) const {
  std::vector<Stream>& from = entries.parts[0].of(side);
  if (!transformed(side)) {
    coordinates.of(side) = std::move(from);
    return {};
  }
  const int64_t heads = entries.setup->kv_heads, dim = entries.HeadDim(side), n = entries.length(0);
  const int64_t width = heads * dim, rank = Of(side).rank;
  if (n == 0) return {};
  Ops& ops = entries.ops();
  const Buffer memory = ops.memory->Allocate(n * (width + dim + rank) * 4);
  const Tensor all = memory.As(DType::kF32, {n * (width + dim + rank)});
  const Tensor rows = all.Slice(0, n * width).Reshape({n, width});
  const Tensor own = all.Slice(n * width, n * (width + dim)).Reshape({n, dim});
  const Tensor out = all.Slice(n * (width + dim), n * (width + dim + rank)).Reshape({n, rank});
  Join(entries, side, own, rows, 0);
  ops.linear->MatMulNN(rows.Reshape({1, n, width}), Of(side).basis.Reshape({1, width, rank}), 1.0f,
                       out.Reshape({1, n, rank}));
  return coordinates.of(side)[0].Append(out);
}

Status PromptBasisLayer::Convert(LayerEntries& entries, std::span<const LayerPair>) {
  KVG_TRY(CheckEven(entries));
  KVG_TRY(PlaceBases(entries));
  LayerPart whole = EmptyPart(entries);
  LayerPart coordinates = CoordinatePart(entries);
  for (const KvSide side : kBasisSides) KVG_TRY(ConvertSide(entries, side, coordinates));
  entries.parts.clear();
  entries.parts.push_back(std::move(coordinates));
  entries.parts.push_back(std::move(whole));
  return {};
}

// Neighbouring layers together (xKV, arXiv:2503.18893): when the uppermost layer of a group is
// stored, the entries of all of them are joined, and the first right singular vectors of what that
// gives are the bases. Each layer has its rows of them, and all share the stream of coordinates.
class GroupBasisLayer final : public BasisLayer {
 public:
  std::string_view id() const override { return GroupBasis::kId; }
  std::unique_ptr<LayerLayout> Fork() const override {
    return std::make_unique<GroupBasisLayer>(*this);
  }

  Status Use(const StoreLayout& plan, const LayerEntries&) override {
    plan_ = static_cast<const GroupBasis&>(plan);
    return {};
  }
  Status Put(std::string& out) const override {
    for (const int64_t number : {plan_.layers, plan_.below, plan_.key_rank, plan_.value_rank}) {
      PutNumber(out, number);
    }
    for (const KvSide side : kBasisSides) PutArray(out, Of(side).host);
    return {};
  }
  Status Take(std::string_view& in, const LayerEntries& entries) override;
  void PutEntries(const LayerEntries& entries, std::string& out) const override;
  Status TakeEntries(std::string_view& in, LayerEntries& entries) override;
  int64_t shared_with_below() const override { return plan_.below; }
  Status TakeShared(LayerEntries& entries, std::span<const LayerPair> below) override;
  Status Check(const LayerEntries& entries) const override {
    KVG_TRY(LayerLayout::Check(entries));
    if (!entries.setup->mla) return {};
    return Unsupported("group_basis: the model's own latent attention keeps its keys rotated");
  }
  bool wants_raw_keys(const LayerEntries&) const override { return plan_.key_rank > 0; }
  int64_t layers_below(const StoreLayout& plan) const override {
    const auto& own = static_cast<const GroupBasis&>(plan);
    return own.uppermost() ? own.below : 0;
  }
  Status Convert(LayerEntries& upper, std::span<const LayerPair> below) override;
  void AddBytes(const LayerEntries& entries, KvBytes& bytes) const override {
    for (size_t p = 0; p < entries.parts.size(); ++p) {
      for (const KvSide side : kBasisSides) {
        // Coordinates count with the lowest layer.
        if (converted() && p == 0 && transformed(side) && plan_.below > 0) continue;
        for (const Stream& stream : entries.parts[p].of(side)) stream.AddBytes(bytes);
      }
    }
    AddBasisBytes(bytes);
  }

 private:
  int64_t RankOf(KvSide side) const {
    return side == KvSide::kKeys ? plan_.key_rank : plan_.value_rank;
  }
  // Coordinates are in the lowest layer of the group.
  bool IsBelow(size_t part, KvSide side) const {
    return part == 0 && plan_.below > 0 && RankOf(side) > 0;
  }

  GroupBasis plan_;
  bool taken_ = false;  // from bytes
};

// A layer of the group, lowest first.
struct Member {
  LayerEntries* entries = nullptr;
  GroupBasisLayer* layout = nullptr;
};

// Products of all pairs of columns of rows [n, width]: rows^T rows, by the transpose that the
// identity makes.
void AddProducts(Ops& ops, const Tensor& rows, const Tensor& products) {
  const int64_t n = rows.shape[0], width = rows.shape[1];
  std::vector<float> unit(static_cast<size_t>(width * width));
  for (int64_t i = 0; i < width; ++i) unit[static_cast<size_t>(i * width + i)] = 1.0f;
  ops.memory->Copy(View(unit, {width, width}), products);
  const Buffer memory = ops.memory->Allocate(width * n * 4);
  const Tensor columns = memory.As(DType::kF32, {1, width, n});
  ops.linear->MatMulNT(products.Reshape({1, width, width}), rows.Reshape({1, n, width}), 1.0f,
                       columns);
  ops.linear->MatMulNT(columns, columns, 1.0f, products.Reshape({1, width, width}));
}

// The first right singular vectors of rows [n, width] as columns, on the host: [width, rank].
std::vector<float> LeadingColumns(Ops& ops, const Tensor& rows, int64_t rank) {
  const int64_t width = rows.shape[1];
  const Buffer memory = ops.memory->Allocate((width * width + rank * width + rank) * 4);
  const Tensor all = memory.As(DType::kF32, {width * width + rank * width + rank});
  const Tensor products = all.Slice(0, width * width).Reshape({width, width});
  const Tensor vectors =
      all.Slice(width * width, width * width + rank * width).Reshape({rank, width});
  if (rows.shape[0] > 0) {
    AddProducts(ops, rows, products);
  } else {
    ops.rows->Fill(0.0f, products);
  }
  ops.algebra->Eigenvectors(products, all.Slice(width * width + rank * width, all.shape[0]),
                            vectors);
  const std::vector<float> by_row = Fetch(ops, vectors);
  std::vector<float> columns(by_row.size());
  for (int64_t r = 0; r < rank; ++r) {
    for (int64_t i = 0; i < width; ++i) {
      columns[static_cast<size_t>(i * rank + r)] = by_row[static_cast<size_t>(r * width + i)];
    }
  }
  return columns;
}

Status GroupBasisLayer::Take(std::string_view& in, const LayerEntries& entries) {
  taken_ = true;
  KVG_TRY(TakeNumber(in, "layers of a group", 1, INT32_MAX, &plan_.layers));
  KVG_TRY(TakeNumber(in, "layers below in a group", 0, plan_.layers - 1, &plan_.below));
  for (const KvSide side : kBasisSides) {
    Side& own = Of(side);
    const int64_t width = entries.setup->kv_heads * entries.HeadDim(side);
    int64_t& rank = side == KvSide::kKeys ? plan_.key_rank : plan_.value_rank;
    KVG_TRY(TakeNumber(in, "rank of a group", 0, int64_t{1} << 20, &rank));
    own.rank = rank;
    own.shape = {width, rank};
  }
  for (const KvSide side : kBasisSides) {
    Side& own = Of(side);
    KVG_TRY(TakeArray(in, &own.host));
    const bool finite =
        std::all_of(own.host.begin(), own.host.end(), [](float x) { return std::isfinite(x); });
    if (finite && std::ssize(own.host) == own.shape[0] * own.shape[1]) continue;
    return BadInput(StrCat("cache bytes: a basis of ", own.host.size(), " numbers; expected ",
                           own.shape[0], " by ", own.shape[1], " finite ones"));
  }
  return {};
}

void GroupBasisLayer::PutEntries(const LayerEntries& entries, std::string& out) const {
  for (size_t p = 0; p < entries.parts.size(); ++p) {
    for (const KvSide side : kBasisSides) {
      if (IsBelow(p, side)) continue;
      for (const Stream& stream : entries.parts[p].of(side)) stream.Serialize(out);
    }
  }
}

Status GroupBasisLayer::TakeEntries(std::string_view& in, LayerEntries& entries) {
  for (size_t p = 0; p < entries.parts.size(); ++p) {
    for (const KvSide side : kBasisSides) {
      if (IsBelow(p, side)) continue;
      for (Stream& stream : entries.parts[p].of(side)) KVG_TRY(stream.Deserialize(in));
    }
  }
  return {};
}

Status GroupBasisLayer::TakeShared(LayerEntries& entries, std::span<const LayerPair> below) {
  if (plan_.below == 0) return {};
  const auto* lowest = dynamic_cast<const GroupBasisLayer*>(below[0].layout->get());
  if (lowest == nullptr || lowest->plan_.below != 0 || lowest->plan_.layers != plan_.layers ||
      lowest->plan_.key_rank != plan_.key_rank || lowest->plan_.value_rank != plan_.value_rank) {
    return BadInput("cache bytes: the lowest layer of a group has no coordinates to share");
  }
  for (const KvSide side : kBasisSides) {
    if (RankOf(side) > 0) entries.parts[0].of(side) = below[0].entries->parts[0].of(side);
  }
  return {};
}

Status GroupBasisLayer::Convert(LayerEntries& upper, std::span<const LayerPair> below) {
  if (taken_) {
    KVG_TRY(PlaceBases(upper));
    LayerPart coordinates = CoordinatePart(upper), whole = EmptyPart(upper);
    upper.parts.clear();
    upper.parts.push_back(std::move(coordinates));
    upper.parts.push_back(std::move(whole));
    return {};
  }
  if (!plan_.uppermost()) return {};
  std::vector<Member> members;
  for (const LayerPair& pair : below) {
    auto* layout = dynamic_cast<GroupBasisLayer*>(pair.layout->get());
    if (layout == nullptr || layout->converted()) {
      return Unsupported(
          StrCat(id(), ": a layer of the group is stored as ", (*pair.layout)->id()));
    }
    members.push_back({pair.entries, layout});
  }
  members.push_back({&upper, this});
  if (std::ssize(members) != plan_.layers) {
    return BadInput(
        StrCat(id(), ": ", plan_.layers, " layers share, and ", members.size(), " are there"));
  }
  const int64_t heads = upper.setup->kv_heads, n = upper.length(0);
  for (const Member& member : members) {
    KVG_TRY(CheckEven(*member.entries));
    if (member.entries->length(0) == n) continue;
    return Unsupported(StrCat(id(), ": layers of a group hold ", n, " and ",
                              member.entries->length(0),
                              " entries, so they cannot share coordinates"));
  }
  Ops& ops = upper.ops();
  std::array<Buffer, 2> memory;
  std::array<Tensor, 2> coordinates;  // [n, rank]
  for (const KvSide side : kBasisSides) {
    const int64_t rank = RankOf(side), dim = upper.HeadDim(side), own = heads * dim;
    const int64_t width = plan_.layers * own;
    if (rank == 0) continue;
    const Buffer joined = ops.memory->Allocate((n * (width + dim) + width * rank) * 4);
    const Tensor all = joined.As(DType::kF32, {n * (width + dim) + width * rank});
    const Tensor rows = all.Slice(0, n * width).Reshape({n, width});
    const Tensor head = all.Slice(n * width, n * (width + dim)).Reshape({n, dim});
    const Tensor basis = all.Slice(n * (width + dim), all.shape[0]).Reshape({width, rank});
    for (int64_t m = 0; n > 0 && m < plan_.layers; ++m) {
      Join(*members[static_cast<size_t>(m)].entries, side, head, rows, m * own);
    }
    const std::vector<float> found = LeadingColumns(ops, rows, rank);
    for (int64_t m = 0; m < plan_.layers; ++m) {
      Side& side_of = members[static_cast<size_t>(m)].layout->Of(side);
      side_of.rank = rank;
      side_of.shape = {own, rank};
      const auto begin = found.begin() + m * own * rank;
      side_of.host.assign(begin, begin + own * rank);
    }
    if (n == 0) continue;
    ops.memory->Copy(View(found, {width, rank}), basis);
    memory[static_cast<size_t>(side)] = ops.memory->Allocate(n * rank * 4);
    Tensor& out = coordinates[static_cast<size_t>(side)];
    out = memory[static_cast<size_t>(side)].As(DType::kF32, {n, rank});
    ops.linear->MatMulNN(rows.Reshape({1, n, width}), basis.Reshape({1, width, rank}), 1.0f,
                         out.Reshape({1, n, rank}));
  }
  std::array<std::vector<Stream>, 2> shared;
  for (const Member& member : members) {
    LayerEntries& entries = *member.entries;
    KVG_TRY(member.layout->PlaceBases(entries));
    LayerPart whole = EmptyPart(entries), part = member.layout->CoordinatePart(entries);
    for (const KvSide side : kBasisSides) {
      if (RankOf(side) == 0) {
        part.of(side) = std::move(entries.parts[0].of(side));
        continue;
      }
      std::vector<Stream>& all = shared[static_cast<size_t>(side)];
      if (all.empty()) {
        all = part.of(side);
        if (n > 0) KVG_TRY(all[0].Append(coordinates[static_cast<size_t>(side)]));
      }
      part.of(side) = all;
    }
    entries.parts.clear();
    entries.parts.push_back(std::move(part));
    entries.parts.push_back(std::move(whole));
  }
  return {};
}

}  // namespace
KVG_REGISTER_LAYOUT(prompt_basis, PromptBasis, PromptBasisLayer)
KVG_REGISTER_LAYOUT(group_basis, GroupBasis, GroupBasisLayer)
}  // namespace kvgauge

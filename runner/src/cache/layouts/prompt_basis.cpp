// SPDX-License-Identifier: Apache-2.0
// The prompt's entries as coordinates in bases of this sequence, in a part of their own before the
// whole ones. All heads of the layer share a stream of coordinates; attention takes each head's
// rows of the basis as that of latents.
#include "methods/layouts/prompt_basis.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/strings.h"
#include "methods/tensors.h"
#include "src/cache/bytes.h"
#include "src/cache/layer_layout.h"

namespace kvgauge {
namespace {

using PromptBasisPlan = PromptBasis;

constexpr std::array<KvSide, 2> kBasisSides = {KvSide::kKeys, KvSide::kValues};

class PromptBasisLayer final : public LayerLayout {
 public:
  std::string_view id() const override { return PromptBasisPlan::kId; }
  std::unique_ptr<LayerLayout> Fork() const override {
    return std::make_unique<PromptBasisLayer>(*this);
  }

  Status Use(const StoreLayout& plan, const LayerEntries& entries) override;
  Status Put(std::string& out) const override {
    for (const Side& side : sides_) {
      PutNumber(out, side.rank);
      PutArray(out, side.host);
    }
    return {};
  }
  Status Take(std::string_view& in, const LayerEntries& entries) override;
  Status Check(const LayerEntries& entries) const override;
  bool wants_raw_keys(const LayerEntries&) const override { return Of(KvSide::kKeys).rank > 0; }
  Status Convert(LayerEntries& entries, std::span<const LayerPair> below) override;
  Status CheckReduce(std::span<const HeadPlan>) const override {
    return Unsupported("entries whose coordinates heads share cannot be dropped or merged");
  }
  void Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
            Tensor rows) const override;
  void Describe(const LayerEntries& entries, std::span<KvSegment> segments) const override {
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
  void AddBytes(const LayerEntries& entries, KvBytes& bytes) const override {
    LayerLayout::AddBytes(entries, bytes);
    int64_t held = 0;
    for (const Side& side : sides_) held += std::ssize(side.host) * SizeOf(DType::kF32);
    bytes.low_rank += held;
    bytes.slack += memory_->allocated_bytes() - held;
  }

 private:
  struct Side {
    int64_t rank = 0;
    std::vector<float> host;       // [kv_heads * dim, rank]
    std::array<int64_t, 2> shape;  // that it came in
    Tensor basis;                  // the same, in memory_
  };

  const Side& Of(KvSide side) const { return sides_[static_cast<size_t>(side)]; }
  bool transformed(KvSide side) const { return Of(side).rank > 0; }
  // [dim, rank]
  Tensor BasisOf(const LayerEntries& entries, KvSide side, int64_t head) const {
    const int64_t dim = entries.HeadDim(side);
    return Of(side).basis.Slice(head * dim, (head + 1) * dim);
  }
  Status ConvertSide(LayerEntries& entries, KvSide side, LayerPart& coordinates) const;

  std::array<Side, 2> sides_;
  std::shared_ptr<BlockList> memory_;  // of bases; never written again
};

Status PromptBasisLayer::Use(const StoreLayout& plan, const LayerEntries& entries) {
  const auto& all = static_cast<const PromptBasisPlan&>(plan);
  for (const KvSide side : kBasisSides) {
    const bool keys = side == KvSide::kKeys;
    Side& own = sides_[static_cast<size_t>(side)];
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
    Side& own = sides_[static_cast<size_t>(side)];
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
  for (int64_t h = 0; h < heads; ++h) {
    from[static_cast<size_t>(h)].Read(0, own);
    ops.rows->Convert(own, Columns(rows, h * dim, (h + 1) * dim));
  }
  ops.linear->MatMulNN(rows.Reshape({1, n, width}), Of(side).basis.Reshape({1, width, rank}), 1.0f,
                       out.Reshape({1, n, rank}));
  return coordinates.of(side)[0].Append(out);
}

Status PromptBasisLayer::Convert(LayerEntries& entries, std::span<const LayerPair>) {
  const int64_t heads = entries.setup->kv_heads;
  for (int64_t h = 1; h < heads; ++h) {
    if (entries.length(h) == entries.length(0)) continue;
    return Unsupported(StrCat("prompt_basis: KV heads 0 and ", h, " hold ", entries.length(0),
                              " and ", entries.length(h),
                              " entries, so they cannot share coordinates"));
  }
  memory_ = std::make_shared<BlockList>(*entries.pool);
  std::array<int64_t, 2> owners = {};
  for (const KvSide side : kBasisSides) {
    Side& own = sides_[static_cast<size_t>(side)];
    owners[static_cast<size_t>(side)] = own.rank > 0 ? 1 : heads;
    if (own.rank == 0) continue;
    KVG_TRY(memory_->Push(std::ssize(own.host) * SizeOf(DType::kF32)));
    own.basis = Tensor((*memory_)[memory_->size() - 1], DType::kF32, {own.shape[0], own.shape[1]},
                       entries.ops().device);
    entries.ops().memory->Copy(View(own.host, {own.shape[0], own.shape[1]}), own.basis);
  }
  LayerPart whole = EmptyPart(entries);
  LayerPart coordinates = entries.NewPart(owners, *entries.pool, [&](KvSide side, int64_t) {
    StreamSpec spec;
    spec.side = side;
    spec.dtype = entries.setup->format.dtype;
    spec.dim = transformed(side) ? Of(side).rank : entries.HeadDim(side);
    return spec;
  });
  for (const KvSide side : kBasisSides) KVG_TRY(ConvertSide(entries, side, coordinates));
  entries.parts.clear();
  entries.parts.push_back(std::move(coordinates));
  entries.parts.push_back(std::move(whole));
  return {};
}

void PromptBasisLayer::Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
                            Tensor rows) const {
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

}  // namespace
KVG_REGISTER_LAYOUT(prompt_basis, PromptBasis, PromptBasisLayer)
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Entries as coordinates in bases: absorbed into queries and outputs by attention, rebuilt when
// they are read.
#include "methods/layouts/latent.h"

#include "methods/tensors.h"
#include "src/cache/layouts/coded.h"

namespace kvgauge {
namespace {

class LatentLayer final : public CodedLayer {
 public:
  std::string_view id() const override { return Latent::kId; }
  std::unique_ptr<LayerLayout> Fork() const override {
    return std::make_unique<LatentLayer>(*this);
  }

  Status Use(const StoreLayout& plan, const LayerEntries& entries) override {
    bases_ = entries.bases;
    return CodedLayer::Use(plan, entries);
  }
  Status Take(std::string_view& in, const LayerEntries& entries) override {
    bases_ = entries.bases;
    return CodedLayer::Take(in, entries);
  }

  Status Check(const LayerEntries& entries) const override {
    if (entries.setup->mla) {
      return Unsupported("latent: the model's own latent attention keeps its keys rotated");
    }
    if (bases_[0].empty() && bases_[1].empty()) {
      return BadInput("latent: no basis was written for this layer; a prepare stage must do that");
    }
    return CodedLayer::Check(entries);
  }

  // A basis spans keys before rotation.
  bool wants_raw_keys(const LayerEntries& entries) const override {
    return !entries.bases[static_cast<size_t>(KvSide::kKeys)].empty();
  }
  int64_t owners(const LayerEntries& entries, KvSide side) const override {
    return transforms(side) ? std::ssize(BasesOf(side)) : entries.setup->kv_heads;
  }
  int64_t dim(const LayerEntries& entries, KvSide side, int64_t owner) const override {
    if (!transforms(side)) return entries.HeadDim(side);
    return BasesOf(side)[static_cast<size_t>(owner)].shape[1];
  }
  bool transforms(KvSide side) const override { return !BasesOf(side).empty(); }
  Tensor Transformed(const LayerEntries& entries, KvSide side, int64_t owner, const Tensor& rows,
                     Buffer* memory) const override;

  void Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
            Tensor rows) const override;
  void Describe(const LayerEntries& entries, std::span<KvSegment> segments) const override;
  void AddBytes(const LayerEntries& entries, KvBytes& bytes) const override {
    CodedLayer::AddBytes(entries, bytes);
    for (const std::vector<Tensor>& bases : bases_) {
      for (const Tensor& basis : bases) bytes.projections += basis.SizeBytes();
    }
  }

 private:
  const std::vector<Tensor>& BasesOf(KvSide side) const {
    return bases_[static_cast<size_t>(side)];
  }
  // One head's part of its owner's basis, [dim, rank]; empty where there is none.
  Tensor BasisOf(const LayerEntries& entries, KvSide side, int64_t head) const {
    const std::vector<Tensor>& bases = BasesOf(side);
    if (bases.empty()) return {};
    const int64_t group = entries.setup->kv_heads / std::ssize(bases),
                  width = entries.HeadDim(side);
    const Tensor& basis = bases[static_cast<size_t>(head / group)];
    return basis.Slice(head % group * width, (head % group + 1) * width);
  }

  std::array<std::vector<Tensor>, 2> bases_;  // by side: [owners], or empty; of the model
};

Tensor LatentLayer::Transformed(const LayerEntries& entries, KvSide side, int64_t owner,
                                const Tensor& rows, Buffer* memory) const {
  if (!transforms(side)) return HeadRows(rows, 0);
  Ops& ops = entries.ops();
  const Tensor& basis = BasesOf(side)[static_cast<size_t>(owner)];
  const int64_t n = rows.shape[0], heads = rows.shape[1], width = rows.shape[2];
  const int64_t all_width = heads * width, rank = basis.shape[1];
  const int64_t numbers = n * (all_width + rank);
  if (memory->size_bytes() < numbers * 4) *memory = ops.memory->Allocate(numbers * 4);
  const Tensor all = memory->As(DType::kF32, {numbers});
  const Tensor full = all.Slice(0, n * all_width).Reshape({n, all_width});
  const Tensor latent = all.Slice(n * all_width, numbers).Reshape({n, rank});
  for (int64_t h = 0; h < heads; ++h) {
    ops.rows->Convert(HeadRows(rows, h), Columns(full, h * width, h * width + width));
  }
  ops.linear->MatMulNN(full.Reshape({1, n, all_width}), basis.Reshape({1, all_width, rank}), 1.0f,
                       latent.Reshape({1, n, rank}));
  return latent;
}

void LatentLayer::Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
                       Tensor rows) const {
  const Tensor basis = BasisOf(entries, side, head);
  if (basis.empty()) return CodedLayer::Read(entries, side, head, first, rows);
  Ops& ops = entries.ops();
  const int64_t n = rows.shape[0], width = rows.shape[1], rank = basis.shape[1];
  const Buffer memory = ops.memory->Allocate(n * rank * 4);
  const Tensor latent = memory.As(DType::kF32, {n, rank});
  entries.ReadStream(side, entries.OwnerOf(side, head), first, latent);
  ops.linear->MatMulNT(latent.Reshape({1, n, rank}), basis.Reshape({1, width, rank}), 1.0f,
                       rows.Reshape({1, n, width}));
}

void LatentLayer::Describe(const LayerEntries& entries, std::span<KvSegment> segments) const {
  const size_t parts = entries.parts.size();
  for (size_t at = 0; at < segments.size(); ++at) {
    const auto head = static_cast<int64_t>(at / parts);
    segments[at].key_basis = BasisOf(entries, KvSide::kKeys, head);
    segments[at].value_basis = BasisOf(entries, KvSide::kValues, head);
  }
}

}  // namespace
KVG_REGISTER_LAYOUT(latent, Latent, LatentLayer)
}  // namespace kvgauge

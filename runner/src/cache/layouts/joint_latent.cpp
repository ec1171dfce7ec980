// SPDX-License-Identifier: Apache-2.0
// Coordinates that both sides share, in the keys' stream: attention rebuilds keys from them, and
// absorbs the basis of values.
#include "methods/layouts/joint_latent.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "core/strings.h"
#include "methods/tensors.h"
#include "src/cache/bytes.h"
#include "src/cache/layer_layout.h"

namespace kvgauge {
namespace {

class JointLatentLayer final : public LayerLayout {
 public:
  std::string_view id() const override { return JointLatent::kId; }
  std::unique_ptr<LayerLayout> Fork() const override {
    auto fork = std::make_unique<JointLatentLayer>(*this);
    fork->values_ = {};  // rows of a pass are this sequence's alone
    return fork;
  }

  Status Use(const StoreLayout&, const LayerEntries& entries) override {
    bases_ = entries.bases;
    return {};
  }
  Status Take(std::string_view&, const LayerEntries& entries) override {
    bases_ = entries.bases;
    return {};
  }
  Status Check(const LayerEntries& entries) const override {
    if (entries.setup->mla) {
      return Unsupported("joint_latent: the model's own latent attention keeps its keys rotated");
    }
    for (const std::vector<Tensor>& side : bases_) {
      if (side.size() == 1 && side[0].shape[1] == bases_[0][0].shape[1]) continue;
      return BadInput(
          "joint_latent: no basis of all heads was written for both sides of this layer; "
          "prepare.joint_svd does that");
    }
    return LayerLayout::Check(entries);
  }

  bool wants_raw_keys(const LayerEntries&) const override { return true; }
  // Until Convert entries are as they were, keys before rotation.
  int64_t owners(const LayerEntries& entries, KvSide side) const override {
    if (!joined_) return LayerLayout::owners(entries, side);
    return side == KvSide::kKeys ? 1 : 0;
  }
  int64_t dim(const LayerEntries& entries, KvSide side, int64_t owner) const override {
    return joined_ ? bases_[0][0].shape[1] : LayerLayout::dim(entries, side, owner);
  }
  bool transforms(KvSide) const override { return joined_; }
  bool joins_sides() const override { return joined_; }
  bool rounds() const override { return true; }

  void TakeValues(const Tensor& values) override { values_ = values; }
  Tensor Transformed(const LayerEntries& entries, KvSide side, int64_t owner, const Tensor& rows,
                     Buffer* memory) const override {
    if (!joined_) return LayerLayout::Transformed(entries, side, owner, rows, memory);
    KVG_CHECK(values_.shape[0] == rows.shape[0], "joint_latent: keys without their values");
    const int64_t heads = entries.setup->kv_heads;
    return Joined(entries, rows.shape[0], memory, [&](KvSide of, const Tensor& all) {
      const int64_t width = entries.HeadDim(of);
      for (int64_t h = 0; h < heads; ++h) {
        entries.ops().rows->Convert(HeadRows(of == KvSide::kKeys ? rows : values_, h),
                                    Columns(all, h * width, (h + 1) * width));
      }
    });
  }

  Status Convert(LayerEntries& entries, std::span<const LayerPair> below) override;
  void Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
            Tensor rows) const override;
  void Describe(const LayerEntries& entries, std::span<KvSegment> segments) const override {
    const size_t parts = entries.parts.size();
    for (size_t at = 0; at < segments.size(); ++at) {
      const auto head = static_cast<int64_t>(at / parts);
      segments[at].key_basis = BasisOf(entries, KvSide::kKeys, head);
      segments[at].value_basis = BasisOf(entries, KvSide::kValues, head);
    }
  }
  void AddBytes(const LayerEntries& entries, KvBytes& bytes) const override {
    LayerLayout::AddBytes(entries, bytes);
    for (const std::vector<Tensor>& side : bases_) bytes.projections += side[0].SizeBytes();
  }

 private:
  // [dim, rank] of a head.
  Tensor BasisOf(const LayerEntries& entries, KvSide side, int64_t head) const {
    const int64_t width = entries.HeadDim(side);
    return bases_[static_cast<size_t>(side)][0].Slice(head * width, (head + 1) * width);
  }

  // Coordinates [n, rank] of rows that `fill` puts side by side, [n, heads * dim] of each side.
  template <class Fill>
  Tensor Joined(const LayerEntries& entries, int64_t n, Buffer* memory, const Fill& fill) const {
    Ops& ops = entries.ops();
    const int64_t rank = bases_[0][0].shape[1];
    const int64_t widest = std::max(bases_[0][0].shape[0], bases_[1][0].shape[0]);
    const int64_t numbers = n * (widest + 2 * rank);
    if (memory->size_bytes() < numbers * 4) *memory = ops.memory->Allocate(numbers * 4);
    const Tensor all = memory->As(DType::kF32, {numbers});
    const Tensor sum = all.Slice(0, n * rank).Reshape({n, rank});
    const Tensor part = all.Slice(n * rank, 2 * n * rank).Reshape({n, rank});
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const Tensor& basis = bases_[static_cast<size_t>(side)][0];
      const int64_t width = basis.shape[0];
      const Tensor rows = all.Slice(2 * n * rank, n * (2 * rank + width)).Reshape({n, width});
      fill(side, rows);
      const Tensor& out = side == KvSide::kKeys ? sum : part;
      ops.linear->MatMulNN(rows.Reshape({1, n, width}), basis.Reshape({1, width, rank}), 1.0f,
                           out.Reshape({1, n, rank}));
    }
    ops.rows->Combine(sum, part, Binary::kAdd, sum);
    return sum;
  }

  std::array<std::vector<Tensor>, 2> bases_;  // by side, of the model
  Tensor values_;                             // of the rows that are written
  bool joined_ = false;
};

Status JointLatentLayer::Convert(LayerEntries& entries, std::span<const LayerPair>) {
  const int64_t n = entries.width(), heads = entries.setup->kv_heads;
  for (const HeadEntries& head : entries.heads) {
    if (head.length == n) continue;
    return Unsupported(StrCat("joint_latent: KV heads hold ", n, " and ", head.length,
                              " entries, so they cannot share coordinates"));
  }
  auto setup = std::make_shared<LayerSetup>(*entries.setup);
  setup->values_in_keys = true;
  LayerPart before = std::move(entries.parts[0]);
  entries.setup = std::move(setup);
  joined_ = true;
  entries.parts[0] = EmptyPart(entries);
  if (n == 0) return {};
  Ops& ops = entries.ops();
  const int64_t widest = std::max(entries.HeadDim(KvSide::kKeys), entries.HeadDim(KvSide::kValues));
  const Buffer own = ops.memory->Allocate(n * widest * SizeOf(DType::kF32));
  Buffer memory;
  return entries.parts[0].keys[0].Append(
      Joined(entries, n, &memory, [&](KvSide side, const Tensor& all) {
        const int64_t width = entries.HeadDim(side);
        const Tensor rows = own.As(DType::kF32, {n, width});
        for (int64_t h = 0; h < heads; ++h) {
          before.of(side)[static_cast<size_t>(h)].Read(0, rows);
          ops.rows->Convert(rows, Columns(all, h * width, (h + 1) * width));
        }
      }));
}

void JointLatentLayer::Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
                            Tensor rows) const {
  if (!joined_) return LayerLayout::Read(entries, side, head, first, rows);
  Ops& ops = entries.ops();
  const Tensor basis = BasisOf(entries, side, head);
  const int64_t n = rows.shape[0], width = rows.shape[1], rank = basis.shape[1];
  const Buffer memory = ops.memory->Allocate(n * rank * SizeOf(DType::kF32));
  const Tensor held = memory.As(DType::kF32, {n, rank});
  entries.ReadStream(KvSide::kKeys, 0, first, held);
  ops.linear->MatMulNT(held.Reshape({1, n, rank}), basis.Reshape({1, width, rank}), 1.0f,
                       rows.Reshape({1, n, width}));
}

}  // namespace
KVG_REGISTER_LAYOUT(joint_latent, JointLatent, JointLatentLayer)
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Layers whose prompt lies as coordinates in a part of its own before the whole entries. All heads
// share a stream of coordinates, and each has its rows of the basis, which attention takes as that
// of latents.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "src/cache/bytes.h"
#include "src/cache/layer_layout.h"

namespace kvgauge {

class BasisLayer : public LayerLayout {
 public:
  Status CheckReduce(std::span<const HeadPlan>) const override {
    return Unsupported("entries whose coordinates heads share cannot be dropped or merged");
  }
  void Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
            Tensor rows) const override;
  void Describe(const LayerEntries& entries, std::span<KvSegment> segments) const override;

 protected:
  struct Side {
    int64_t rank = 0;
    std::vector<float> host;       // [kv_heads * dim, rank]
    std::array<int64_t, 2> shape;  // that it came in
    Tensor basis;                  // the same, in memory_
  };

  const Side& Of(KvSide side) const { return sides_[static_cast<size_t>(side)]; }
  Side& Of(KvSide side) { return sides_[static_cast<size_t>(side)]; }
  // Sides without a rank stay whole.
  bool transformed(KvSide side) const { return Of(side).rank > 0; }
  bool converted() const { return memory_ != nullptr; }
  // [dim, rank]
  Tensor BasisOf(const LayerEntries& entries, KvSide side, int64_t head) const {
    const int64_t dim = entries.HeadDim(side);
    return Of(side).basis.Slice(head * dim, (head + 1) * dim);
  }
  // Copies bases from the host into blocks of the pool.
  Status PlaceBases(const LayerEntries& entries);
  void AddBasisBytes(KvBytes& bytes) const;
  // A part for coordinates; sides that stay whole have a stream for each head.
  LayerPart CoordinatePart(const LayerEntries& entries) const;
  // An error if heads hold different numbers of entries.
  Status CheckEven(const LayerEntries& entries) const;
  // What the heads hold of a side, side by side, into columns of `rows` [n, ..] from `column` on.
  // The entries lie in one part. `own`: [n, dim], working memory.
  static void Join(const LayerEntries& entries, KvSide side, const Tensor& own, const Tensor& rows,
                   int64_t column);

 private:
  std::array<Side, 2> sides_;
  std::shared_ptr<BlockList> memory_;  // of bases; never written again
};

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Entries in other coordinates, coded or not: written through one matrix of their head, read back
// through another. Attention absorbs the second into queries and outputs, as it does bases of
// latents.
#include "methods/layouts/transformed.h"

#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "src/cache/bytes.h"
#include "src/cache/layouts/coded.h"

namespace kvgauge {
namespace {

using Matrices = BasisChange::Matrices;
using TransformedPlan = Transformed;  // a member of layers has that name

// Matrices where a device reads them, one copy for all sequences.
struct DeviceMatrices {
  Matrices host;  // stays as long as anybody reads it
  Buffer memory;  // empty: the device reads the host's memory
  const void* data() const { return memory.size_bytes() > 0 ? memory.data() : host->data(); }
};

std::shared_ptr<const DeviceMatrices> Uploaded(Ops& ops, const Matrices& host) {
  static std::mutex mutex;
  static std::map<std::pair<const void*, const void*>, std::weak_ptr<const DeviceMatrices>> known;
  const std::lock_guard lock(mutex);
  std::erase_if(known, [](const auto& one) { return one.second.expired(); });
  std::weak_ptr<const DeviceMatrices>& slot = known[{ops.memory.get(), host.get()}];
  if (auto held = slot.lock()) return held;
  auto fresh = std::make_shared<DeviceMatrices>();
  fresh->host = host;
  if (ops.device != Device::kHost) {
    const int64_t count = std::ssize(*host);
    fresh->memory = ops.memory->Allocate(count * SizeOf(DType::kF32));
    ops.memory->Copy(View(*host, {count}), fresh->memory.As(DType::kF32, {count}));
  }
  slot = fresh;
  return fresh;
}

class TransformedLayer final : public CodedLayer {
 public:
  std::string_view id() const override { return TransformedPlan::kId; }
  std::unique_ptr<LayerLayout> Fork() const override {
    return std::make_unique<TransformedLayer>(*this);
  }

  Status Use(const StoreLayout& plan, const LayerEntries& entries) override {
    const auto& all = static_cast<const TransformedPlan&>(plan);
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      KVG_TRY(Adopt(entries, side, all.change(side)));
    }
    return CodedLayer::Use(plan, entries);
  }

  Status Put(std::string& out) const override {
    for (const Side& side : sides_) {
      PutNumber(out, side.change.empty() ? 0 : side.change.heads);
      if (side.change.empty()) continue;
      PutNumber(out, side.change.stored);
      PutArray(out, side.change.kept);
      PutNumber(out, side.change.constant ? 1 : 0);
      PutNumber(out, side.change.back == nullptr ? 0 : 1);
      PutArray(out, *side.change.there);
      if (side.change.back != nullptr) PutArray(out, *side.change.back);
    }
    return CodedLayer::Put(out);
  }

  Status Take(std::string_view& in, const LayerEntries& entries) override {
    constexpr int64_t kMostStored = int64_t{1} << 16;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const int64_t heads = entries.setup->kv_heads;
      BasisChange change;
      change.dim = entries.HeadDim(side);
      bool has_back = false;
      KVG_TRY(TakeNumber(in, "heads of a matrix", 0, heads, &change.heads));
      if (change.heads == 0) continue;
      KVG_TRY(TakeNumber(in, "numbers of a stored entry", 1, kMostStored, &change.stored));
      KVG_TRY(TakeArray(in, &change.kept));
      KVG_TRY(TakeFlag(in, "constant matrices", &change.constant));
      KVG_TRY(TakeFlag(in, "a second matrix", &has_back));
      const auto take = [&](Matrices* matrices) -> Status {
        auto taken = std::make_shared<std::vector<float>>();
        KVG_TRY(TakeArray(in, taken.get()));
        *matrices = std::move(taken);
        return {};
      };
      KVG_TRY(take(&change.there));
      if (has_back) KVG_TRY(take(&change.back));
      KVG_TRY(CheckBasisChange("cache bytes: matrices", change, heads, change.dim));
      KVG_TRY(Adopt(entries, side, change));
    }
    return CodedLayer::Take(in, entries);
  }

  Status Check(const LayerEntries& entries) const override {
    if (entries.setup->mla) {
      return Unsupported(
          "transformed: the model's own latent attention keeps its values in its keys");
    }
    return CodedLayer::Check(entries);
  }

  int64_t dim(const LayerEntries& entries, KvSide side, int64_t owner) const override {
    return transforms(side) ? Of(side).change.width(owner) : entries.HeadDim(side);
  }
  bool transforms(KvSide side) const override { return !Of(side).change.empty(); }

  Tensor Transformed(const LayerEntries& entries, KvSide side, int64_t owner, const Tensor& rows,
                     Buffer* memory) const override {
    if (!transforms(side)) return HeadRows(rows, 0);
    Ops& ops = entries.ops();
    const int64_t n = rows.shape[0], width = rows.shape[2];
    const int64_t stored = Of(side).change.width(owner);
    const int64_t numbers = n * (width + stored);
    if (memory->size_bytes() < numbers * 4) *memory = ops.memory->Allocate(numbers * 4);
    const Tensor all = memory->As(DType::kF32, {numbers});
    const Tensor own = all.Slice(0, n * width).Reshape({n, width});
    const Tensor changed = all.Slice(n * width, numbers).Reshape({n, stored});
    ops.rows->Convert(HeadRows(rows, 0), own);
    ops.linear->MatMulNN(own.Reshape({1, n, width}),
                         MatrixOf(entries, side, owner, Way::kThere).Reshape({1, width, stored}),
                         1.0f, changed.Reshape({1, n, stored}));
    return changed;
  }

  void Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
            Tensor rows) const override {
    if (!transforms(side)) return CodedLayer::Read(entries, side, head, first, rows);
    Ops& ops = entries.ops();
    const int64_t n = rows.shape[0], width = rows.shape[1];
    const int64_t stored = Of(side).change.width(head);
    const Buffer memory = ops.memory->Allocate(n * stored * 4);
    const Tensor held = memory.As(DType::kF32, {n, stored});
    CodedLayer::Read(entries, side, head, first, held);
    ops.linear->MatMulNT(held.Reshape({1, n, stored}),
                         MatrixOf(entries, side, head, Way::kBack).Reshape({1, width, stored}),
                         1.0f, rows.Reshape({1, n, width}));
  }

  void Describe(const LayerEntries& entries, std::span<KvSegment> segments) const override {
    const size_t parts = entries.parts.size();
    for (size_t at = 0; at < segments.size(); ++at) {
      const auto head = static_cast<int64_t>(at / parts);
      if (transforms(KvSide::kKeys)) {
        segments[at].key_basis = MatrixOf(entries, KvSide::kKeys, head, Way::kBack);
      }
      if (transforms(KvSide::kValues)) {
        segments[at].value_basis = MatrixOf(entries, KvSide::kValues, head, Way::kBack);
      }
    }
  }

  void AddBytes(const LayerEntries& entries, KvBytes& bytes) const override {
    CodedLayer::AddBytes(entries, bytes);
    for (const Side& side : sides_) {
      int64_t held = 0;
      for (const Matrices* matrices : {&side.change.there, &side.change.back}) {
        if (*matrices != nullptr) held += std::ssize(**matrices) * SizeOf(DType::kF32);
      }
      if (side.own == nullptr) {
        bytes.projections += held;
        continue;
      }
      // Those found in this sequence are its own.
      bytes.low_rank += held;
      bytes.slack += side.own->allocated_bytes() - held;
    }
  }

 private:
  enum class Way { kThere, kBack };
  struct Side {
    BasisChange change;
    std::shared_ptr<const DeviceMatrices> there, back;  // of all sequences
    std::shared_ptr<BlockList> own;  // of this one, in their place; never written again
  };

  const Side& Of(KvSide side) const { return sides_[static_cast<size_t>(side)]; }

  Status Adopt(const LayerEntries& entries, KvSide side, const BasisChange& change) {
    Side& own = sides_[static_cast<size_t>(side)];
    own.change = change;
    if (change.empty()) return {};
    if (change.constant) {
      own.there = Uploaded(entries.ops(), change.there);
      own.back = change.back == nullptr ? own.there : Uploaded(entries.ops(), change.back);
      return {};
    }
    own.own = std::make_shared<BlockList>(*entries.pool);
    for (const Matrices* matrices : {&own.change.there, &own.change.back}) {
      if (*matrices == nullptr) continue;
      const int64_t count = std::ssize(**matrices);
      KVG_TRY(own.own->Push(count * SizeOf(DType::kF32)));
      const Tensor there((*own.own)[own.own->size() - 1], DType::kF32, {count},
                         entries.ops().device);
      entries.ops().memory->Copy(View(**matrices, {count}), there);
    }
    return {};
  }

  // [dim, stored] of a head.
  Tensor MatrixOf(const LayerEntries& entries, KvSide side, int64_t head, Way way) const {
    const Side& own = Of(side);
    const BasisChange& change = own.change;
    const void* all = nullptr;
    if (own.own != nullptr) {
      all = (*own.own)[way == Way::kBack && change.back != nullptr ? 1 : 0];
    } else {
      all = (way == Way::kThere ? *own.there : *own.back).data();
    }
    auto* first =
        static_cast<char*>(const_cast<void*>(all)) + change.begin(head) * SizeOf(DType::kF32);
    return Tensor(first, DType::kF32, {change.dim, change.width(head)}, entries.ops().device);
  }

  std::array<Side, 2> sides_;
};

}  // namespace
KVG_REGISTER_LAYOUT(transformed, Transformed, TransformedLayer)
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Keys without some of their numbers, in a part of their own before the whole ones. Attention and
// reads take the choice of numbers as the basis of latents: a matrix of zeros and ones.
#include "methods/layouts/narrow_keys.h"

#include <algorithm>

#include "core/strings.h"
#include "src/cache/bytes.h"
#include "src/cache/layer_layout.h"

namespace kvgauge {
namespace {

class NarrowKeysLayer final : public LayerLayout {
 public:
  std::string_view id() const override { return NarrowKeys::kId; }
  std::unique_ptr<LayerLayout> Fork() const override {
    return std::make_unique<NarrowKeysLayer>(*this);
  }

  Status Use(const StoreLayout& plan, const LayerEntries& entries) override {
    plan_ = static_cast<const NarrowKeys&>(plan);
    if (plan_.channels.empty()) return {};
    channels_.resize(static_cast<size_t>(plan_.channels.Numel()));
    Tensor host = plan_.channels;
    host.data = channels_.data();
    host.device = Device::kHost;
    entries.ops().memory->Copy(plan_.channels, host);
    plan_.channels = {};
    shape_ = {host.shape[0], host.rank == 2 ? host.shape[1] : 0};
    return {};
  }

  Status Put(std::string& out) const override {
    PutNumber(out, plan_.dim);
    PutNumber(out, plan_.recent);
    PutArray(out, channels_);
    return {};
  }

  Status Take(std::string_view& in, const LayerEntries& entries) override {
    const int64_t heads = entries.setup->kv_heads;
    KVG_TRY(
        TakeNumber(in, "numbers of a narrow key", 0, entries.HeadDim(KvSide::kKeys), &plan_.dim));
    KVG_TRY(TakeNumber(in, "entries that stay wide", 0, INT32_MAX, &plan_.recent));
    KVG_TRY(TakeArray(in, &channels_));
    if (std::ssize(channels_) != heads * plan_.dim) {
      return BadInput(
          StrCat("cache bytes: ", channels_.size(), " key channels; expected ", heads * plan_.dim));
    }
    shape_ = {heads, plan_.dim};
    return {};
  }

  Status Check(const LayerEntries& entries) const override;
  Status Convert(LayerEntries& entries, std::span<const LayerPair> below) override;

  Status CheckReduce(std::span<const HeadPlan> plan) const override {
    for (const HeadPlan& one : plan) {
      if (one.keys.empty()) continue;
      return Unsupported("keys that gave up some of their numbers cannot be merged with others");
    }
    return {};
  }

  void Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
            Tensor rows) const override;
  void Describe(const LayerEntries& entries, std::span<KvSegment> segments) const override {
    const size_t parts = entries.parts.size();
    for (size_t head = 0; head < choices_.size(); ++head) {
      segments[head * parts].key_basis = choices_[head];
    }
  }

  void AddBytes(const LayerEntries& entries, KvBytes& bytes) const override {
    LayerLayout::AddBytes(entries, bytes);
    // A method must hold which numbers stay; as a matrix they take more.
    const int64_t indices = std::ssize(channels_) * SizeOf(DType::kI32);
    bytes.indices += indices;
    bytes.slack += memory_->allocated_bytes() - indices;
  }

 private:
  NarrowKeys plan_;                    // its tensor lies in channels_
  std::vector<int32_t> channels_;      // [kv_heads, dim]
  std::array<int64_t, 2> shape_ = {};  // that they came in
  std::vector<Tensor> choices_;        // [kv_heads] of [key_dim, dim], in memory_
  std::shared_ptr<BlockList> memory_;  // never written again
};

Status NarrowKeysLayer::Check(const LayerEntries& entries) const {
  KVG_TRY(LayerLayout::Check(entries));
  if (entries.turn.raw) {
    return Unsupported("narrow_keys: only rotated keys give up numbers");
  }
  const int64_t width = entries.HeadDim(KvSide::kKeys), heads = entries.setup->kv_heads;
  const int64_t kept = plan_.dim;
  if (kept < 1 || kept > width || plan_.recent < 0 ||
      shape_ != std::array<int64_t, 2>{heads, kept}) {
    return BadInput(StrCat("narrow_keys: dim ", kept, ", recent ", plan_.recent, ", channels [",
                           shape_[0], ", ", shape_[1], "]; expected 1 .. ", width,
                           ", 0 or more, and [", heads, ", ", kept, "]"));
  }
  for (size_t i = 0; i < channels_.size(); ++i) {
    const int32_t at = channels_[i];
    const bool first = static_cast<int64_t>(i) % kept == 0;
    if (at < 0 || at >= width || (!first && channels_[i - 1] >= at)) {
      return BadInput(StrCat("key channel ", at, " of KV head ", static_cast<int64_t>(i) / kept,
                             ": channels ascend from 0 to ", width - 1));
    }
  }
  return {};
}

Status NarrowKeysLayer::Convert(LayerEntries& entries, std::span<const LayerPair>) {
  Ops& ops = entries.ops();
  const int64_t dim = entries.HeadDim(KvSide::kKeys), kept = plan_.dim;
  const int64_t heads = entries.setup->kv_heads;
  memory_ = std::make_shared<BlockList>(*entries.pool);
  for (int64_t h = 0; h < heads; ++h) {
    std::vector<float> choice(static_cast<size_t>(dim * kept));
    const int32_t* channels = channels_.data() + h * kept;
    for (int64_t i = 0; i < kept; ++i) choice[static_cast<size_t>(channels[i] * kept + i)] = 1.0f;
    KVG_TRY(memory_->Push(dim * kept * SizeOf(DType::kF32)));
    const Tensor basis((*memory_)[h], DType::kF32, {dim, kept}, ops.device);
    ops.memory->Copy(View(choice, {dim, kept}), basis);
    choices_.push_back(basis);
  }
  LayerPart wide = EmptyPart(entries);
  LayerPart narrow = entries.NewPart({heads, heads}, *entries.pool, [&](KvSide side, int64_t o) {
    StreamSpec spec = wide.of(side)[static_cast<size_t>(o)].spec();
    if (side == KvSide::kKeys) spec.dim = kept;
    return spec;
  });
  for (int64_t h = 0; h < heads; ++h) {
    const auto at = static_cast<size_t>(h);
    const int64_t n = entries.length(h), front = std::max<int64_t>(0, n - plan_.recent);
    if (n == 0) continue;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const int64_t width = entries.HeadDim(side);
      const Buffer memory = ops.memory->Allocate((n * width + front * kept) * 4);
      const Tensor all = memory.As(DType::kF32, {n * width + front * kept});
      const Tensor rows = all.Slice(0, n * width).Reshape({n, width});
      Tensor first = rows.Slice(0, front);
      entries.parts[0].of(side)[at].Read(0, rows);
      if (side == KvSide::kKeys && front > 0) {
        first = all.Slice(n * width, all.shape[0]).Reshape({front, kept});
        ops.linear->MatMulNN(rows.Slice(0, front).Reshape({1, front, width}),
                             choices_[at].Reshape({1, width, kept}), 1.0f,
                             first.Reshape({1, front, kept}));
      }
      if (front > 0) KVG_TRY(narrow.of(side)[at].Append(first));
      if (front < n) KVG_TRY(wide.of(side)[at].Append(rows.Slice(front, n)));
    }
  }
  entries.parts.clear();
  entries.parts.push_back(std::move(narrow));
  entries.parts.push_back(std::move(wide));
  return {};
}

// Zeros for what was given up.
void NarrowKeysLayer::Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
                           Tensor rows) const {
  if (side == KvSide::kValues) return LayerLayout::Read(entries, side, head, first, rows);
  Ops& ops = entries.ops();
  const auto at = static_cast<size_t>(head);
  const Stream &narrow = entries.parts[0].keys[at], &wide = entries.parts[1].keys[at];
  const int64_t n = rows.shape[0], dim = rows.shape[1], held = plan_.dim;
  const int64_t front = std::clamp<int64_t>(narrow.length() - first, 0, n);
  if (front > 0) {
    const Buffer memory = ops.memory->Allocate(front * held * 4);
    const Tensor some = memory.As(DType::kF32, {front, held});
    narrow.Read(first, some);
    ops.linear->MatMulNT(some.Reshape({1, front, held}), choices_[at].Reshape({1, dim, held}), 1.0f,
                         rows.Slice(0, front).Reshape({1, front, dim}));
  }
  if (front < n) wide.Read(first + front - narrow.length(), rows.Slice(front, n));
}

}  // namespace
KVG_REGISTER_LAYOUT(narrow_keys, NarrowKeys, NarrowKeysLayer)
}  // namespace kvgauge

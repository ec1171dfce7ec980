// SPDX-License-Identifier: Apache-2.0
// Keys without some of their numbers, in a part of their own before the whole ones and behind the
// sinks, where there are any. Attention and
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
    PutNumber(out, plan_.sinks);
    PutNumber(out, plan_.recent);
    PutArray(out, plan_.kept);
    PutArray(out, channels_);
    return {};
  }

  Status Take(std::string_view& in, const LayerEntries& entries) override {
    const int64_t heads = entries.setup->kv_heads;
    KVG_TRY(
        TakeNumber(in, "numbers of a narrow key", 0, entries.HeadDim(KvSide::kKeys), &plan_.dim));
    KVG_TRY(TakeNumber(in, "first entries that stay wide", 0, INT32_MAX, &plan_.sinks));
    KVG_TRY(TakeNumber(in, "entries that stay wide", 0, INT32_MAX, &plan_.recent));
    KVG_TRY(TakeArray(in, &plan_.kept));
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
      segments[head * parts + narrow_part()].key_basis = choices_[head];
    }
  }

  void AddBytes(const LayerEntries& entries, KvBytes& bytes) const override {
    LayerLayout::AddBytes(entries, bytes);
    // A method must hold which numbers stay; as a matrix they take more.
    int64_t indices = 0;
    for (int64_t h = 0; h < entries.setup->kv_heads; ++h) {
      indices += plan_.width(h) * SizeOf(DType::kI32);
    }
    bytes.indices += indices;
    bytes.slack += memory_->allocated_bytes() - indices;
  }

 private:
  size_t narrow_part() const { return plan_.sinks > 0 ? 1 : 0; }

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
  const int64_t most = plan_.dim;
  if (most < 1 || most > width || plan_.recent < 0 || plan_.sinks < 0 ||
      shape_ != std::array<int64_t, 2>{heads, most}) {
    return BadInput(StrCat("narrow_keys: dim ", most, ", sinks ", plan_.sinks, ", recent ",
                           plan_.recent, ", channels [", shape_[0], ", ", shape_[1],
                           "]; expected 1 .. ", width, ", 0 or more, 0 or more, and [", heads, ", ",
                           most, "]"));
  }
  const auto legal = [&](int64_t kept) { return kept >= 1 && kept <= most; };
  if (!plan_.kept.empty() && (std::ssize(plan_.kept) != heads ||
                              !std::all_of(plan_.kept.begin(), plan_.kept.end(), legal))) {
    return BadInput(StrCat("narrow_keys: ", plan_.kept.size(),
                           " heads keep numbers of keys; right ", "are ", heads,
                           " heads that keep 1 .. ", most));
  }
  for (int64_t h = 0; h < heads; ++h) {
    const int32_t* own = channels_.data() + h * most;
    for (int64_t i = 0; i < plan_.width(h); ++i) {
      if (own[i] >= 0 && own[i] < width && (i == 0 || own[i - 1] < own[i])) continue;
      return BadInput(StrCat("key channel ", own[i], " of KV head ", h,
                             ": channels ascend from 0 to ", width - 1));
    }
  }
  return {};
}

Status NarrowKeysLayer::Convert(LayerEntries& entries, std::span<const LayerPair>) {
  Ops& ops = entries.ops();
  const int64_t dim = entries.HeadDim(KvSide::kKeys);
  const int64_t heads = entries.setup->kv_heads;
  memory_ = std::make_shared<BlockList>(*entries.pool);
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t kept = plan_.width(h);
    std::vector<float> choice(static_cast<size_t>(dim * kept));
    const int32_t* channels = channels_.data() + h * plan_.dim;
    for (int64_t i = 0; i < kept; ++i) choice[static_cast<size_t>(channels[i] * kept + i)] = 1.0f;
    KVG_TRY(memory_->Push(dim * kept * SizeOf(DType::kF32)));
    const Tensor basis((*memory_)[h], DType::kF32, {dim, kept}, ops.device);
    ops.memory->Copy(View(choice, {dim, kept}), basis);
    choices_.push_back(basis);
  }
  LayerPart wide = EmptyPart(entries), sinks = EmptyPart(entries);
  LayerPart narrow = entries.NewPart({heads, heads}, *entries.pool, [&](KvSide side, int64_t o) {
    StreamSpec spec = wide.of(side)[static_cast<size_t>(o)].spec();
    if (side == KvSide::kKeys) spec.dim = plan_.width(o);
    return spec;
  });
  for (int64_t h = 0; h < heads; ++h) {
    const auto at = static_cast<size_t>(h);
    const int64_t n = entries.length(h), kept = plan_.width(h);
    const int64_t first = std::min(n, plan_.sinks);
    const int64_t front = std::max<int64_t>(first, n - plan_.recent), count = front - first;
    if (n == 0) continue;
    for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
      const int64_t width = entries.HeadDim(side);
      const Buffer memory = ops.memory->Allocate((n * width + count * kept) * 4);
      const Tensor all = memory.As(DType::kF32, {n * width + count * kept});
      const Tensor rows = all.Slice(0, n * width).Reshape({n, width});
      Tensor middle = rows.Slice(first, front);
      entries.parts[0].of(side)[at].Read(0, rows);
      if (side == KvSide::kKeys && count > 0) {
        middle = all.Slice(n * width, all.shape[0]).Reshape({count, kept});
        ops.linear->MatMulNN(rows.Slice(first, front).Reshape({1, count, width}),
                             choices_[at].Reshape({1, width, kept}), 1.0f,
                             middle.Reshape({1, count, kept}));
      }
      if (first > 0) KVG_TRY(sinks.of(side)[at].Append(rows.Slice(0, first)));
      if (count > 0) KVG_TRY(narrow.of(side)[at].Append(middle));
      if (front < n) KVG_TRY(wide.of(side)[at].Append(rows.Slice(front, n)));
    }
  }
  entries.parts.clear();
  if (plan_.sinks > 0) entries.parts.push_back(std::move(sinks));
  entries.parts.push_back(std::move(narrow));
  entries.parts.push_back(std::move(wide));
  return {};
}

// Zeros for what was given up.
void NarrowKeysLayer::Read(const LayerEntries& entries, KvSide side, int64_t head, int64_t first,
                           Tensor rows) const {
  if (side == KvSide::kValues) return LayerLayout::Read(entries, side, head, first, rows);
  Ops& ops = entries.ops();
  const int64_t n = rows.shape[0], dim = rows.shape[1];
  int64_t begin = 0;  // of the part, among the head's entries
  for (size_t p = 0; p < entries.parts.size(); ++p) {
    const Stream& stream = entries.parts[p].keys[static_cast<size_t>(head)];
    const int64_t end = begin + stream.length();
    const int64_t from = std::max(first, begin), to = std::min(first + n, end), some = to - from;
    if (some > 0 && p != narrow_part()) {
      stream.Read(from - begin, rows.Slice(from - first, to - first));
    } else if (some > 0) {
      const Tensor& choice = choices_[static_cast<size_t>(head)];
      const int64_t held = choice.shape[1];
      const Buffer memory = ops.memory->Allocate(some * held * 4);
      const Tensor numbers = memory.As(DType::kF32, {some, held});
      stream.Read(from - begin, numbers);
      ops.linear->MatMulNT(numbers.Reshape({1, some, held}), choice.Reshape({1, dim, held}), 1.0f,
                           rows.Slice(from - first, to - first).Reshape({1, some, dim}));
    }
    begin = end;
  }
}

}  // namespace
KVG_REGISTER_LAYOUT(narrow_keys, NarrowKeys, NarrowKeysLayer)
}  // namespace kvgauge

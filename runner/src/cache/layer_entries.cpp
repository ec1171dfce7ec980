// SPDX-License-Identifier: Apache-2.0
#include "src/cache/layer_entries.h"

#include <algorithm>
#include <numeric>

namespace kvgauge {
namespace {

template <class T>
std::vector<T> Pick(const std::vector<T>& all, std::span<const int32_t> kept) {
  std::vector<T> picked;
  picked.reserve(kept.size());
  for (const int32_t i : kept) picked.push_back(all[static_cast<size_t>(i)]);
  return picked;
}

bool IsPrefix(std::span<const int32_t> kept) {
  return kept.empty() || kept.back() == std::ssize(kept) - 1;  // ascending and distinct
}

}  // namespace

Tensor HeadRows(const Tensor& x, int64_t h) {
  Tensor one = x;
  one.data = static_cast<char*>(x.data) + h * x.stride[1] * SizeOf(x.dtype);
  one.rank = 2;
  one.shape = {x.shape[0], x.shape[2], 0, 0};
  one.stride = {x.stride[0], 1, 0, 0};
  return one;
}

HeadEntries::HeadEntries(BlockPool& pool)
    : positions(pool, DType::kI32),
      log_weights(pool, DType::kF32),
      scores(pool, DType::kF32),
      second_scores(pool, DType::kF32),
      rotations(pool, DType::kI32) {}

LayerEntries::LayerEntries(std::shared_ptr<const LayerSetup> all)
    : setup(std::move(all)), pool(&setup->pools->of(Tier::kDevice)) {
  heads.assign(static_cast<size_t>(setup->kv_heads), HeadEntries(*pool));
}

int64_t LayerEntries::width() const {
  int64_t width = 0;
  for (const HeadEntries& head : heads) width = std::max(width, head.length);
  return width;
}

int64_t LayerEntries::OwnerOf(KvSide side, int64_t head, size_t part) const {
  if (side == KvSide::kKeys && !key_owners.empty()) return key_owners[static_cast<size_t>(head)];
  return head * std::ssize(parts[part].of(side)) / setup->kv_heads;
}

int64_t LayerEntries::FirstHeadOf(KvSide side, int64_t owner, size_t part) const {
  if (side == KvSide::kKeys && !key_owners.empty()) {
    return std::find(key_owners.begin(), key_owners.end(), owner) - key_owners.begin();
  }
  return owner * setup->kv_heads / std::ssize(parts[part].of(side));
}

int64_t LayerEntries::HeadsOf(KvSide side, size_t part) const {
  if (side == KvSide::kKeys && !key_owners.empty()) return 1;
  return setup->kv_heads / std::ssize(parts[part].of(side));
}

LayerPart LayerEntries::NewPart(const std::array<int64_t, 2>& owners, BlockPool& of,
                                const SpecOf& spec) const {
  LayerPart part;
  for (const KvSide side : {KvSide::kKeys, KvSide::kValues}) {
    if (side == KvSide::kValues && setup->values_in_keys) continue;
    for (int64_t o = 0; o < owners[static_cast<size_t>(side)]; ++o) {
      part.of(side).emplace_back(spec(side, o), of);
    }
  }
  return part;
}

void LayerEntries::ReadStream(KvSide side, int64_t owner, int64_t first, Tensor rows) const {
  int64_t begin = 0, done = 0;
  for (const LayerPart& part : parts) {
    const Stream& stream = part.of(side)[static_cast<size_t>(owner)];
    const int64_t from = first + done - begin;
    const int64_t count = std::min(rows.shape[0] - done, stream.length() - from);
    if (count > 0) {
      stream.Read(from, rows.Slice(done, done + count));
      done += count;
    }
    begin += stream.length();
  }
}

double LayerEntries::BytesOf(KvSide side, int64_t head, int64_t first, int64_t last) const {
  double bytes = 0;
  int64_t begin = 0;
  for (size_t p = 0; p < parts.size(); ++p) {
    const std::vector<Stream>& streams = parts[p].of(side);
    if (streams.empty()) continue;
    const int64_t owner = OwnerOf(side, head, p);
    const Stream& stream = streams[static_cast<size_t>(owner)];
    const bool chosen = side == KvSide::kKeys && !key_owners.empty();
    const int64_t sharing =
        chosen ? std::count(key_owners.begin(), key_owners.end(), owner) : HeadsOf(side, p);
    const int64_t from = std::max<int64_t>(first - begin, 0);
    const int64_t to = std::min(last - begin, stream.length());
    if (from < to) bytes += stream.BytesOf(from, to) / static_cast<double>(sharing);
    begin += stream.length();
  }
  return bytes;
}

std::vector<int32_t> LayerEntries::Positions(int64_t head) const {
  const HeadEntries& one = heads[static_cast<size_t>(head)];
  if (one.has_positions) return one.positions.ToHost<int32_t>();
  std::vector<int32_t> positions(static_cast<size_t>(one.length));
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

Result<HeadEntries> LayerEntries::Gathered(int64_t index, const KeptEntries& kept,
                                           const Tensor& log_weight) const {
  const HeadEntries& head = heads[static_cast<size_t>(index)];
  HeadEntries fresh(*pool);
  fresh.length = std::ssize(kept);
  fresh.has_positions = head.has_positions || !IsPrefix(kept);
  if (fresh.has_positions) {
    KVG_TRY(fresh.positions.Assign(head.has_positions ? Pick(head.positions.ToHost<int32_t>(), kept)
                                                      : kept));
  }
  if (!log_weight.empty()) {
    std::vector<float> weights(kept.size());
    ops().memory->Copy(log_weight, View(weights, {std::ssize(weights)}));
    KVG_TRY(fresh.log_weights.Assign(weights));
  } else if (!head.log_weights.empty()) {
    KVG_TRY(fresh.log_weights.Assign(Pick(head.log_weights.ToHost<float>(), kept)));
  }
  for (int64_t i = 0; i < kept_scores; ++i) {
    KVG_TRY(fresh.score(i).Assign(Pick(head.score(i).ToHost<float>(), kept)));
  }
  return fresh;
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "methods/entry_blocks.h"

#include <algorithm>

#include "core/strings.h"
#include "methods/joining_reader.h"
#include "methods/state_fields.h"
#include "methods/tensors.h"

namespace kvgauge {

Status CheckEntryBlocks(const ModelShape& shape) {
  if (shape.latent_dim == 0) return {};
  return BadInput(
      "compares keys before rotation, and latent attention rotates a part of each key of its own; "
      "use a model with keys of single heads, or another reader");
}

Tensor UnturnedQueries(LayerView& view, const Tensor& q) {
  Ops& ops = view.ops();
  const int64_t rows = q.shape[0], heads = q.shape[1], dim = q.shape[2];
  Tensor flat = q;  // the heads of a row are not far apart
  flat.rank = 2;
  flat.shape = {rows, heads * dim, 0, 0};
  flat.stride = {q.stride[0], 1, 0, 0};
  const Tensor raw = view.Scratch(DType::kF32, {rows, heads, dim});
  ops.rows->Convert(flat, raw.Reshape({rows, heads * dim}));
  const Tensor at = view.Rotations(view.tokens() - rows, rows);
  if (!at.empty()) {
    ops.rows->Rope(at[0], at[1], view.shape().rope_layout, RopeDirection::kInverse, raw);
  }
  return raw;
}

int64_t EntryBlocks::size(int64_t block) const {
  const auto at = static_cast<size_t>(block);
  return ends[at] - (block == 0 ? 0 : ends[at - 1]);
}

int64_t EntryBlocks::longest() const {
  int64_t most = 0;
  for (int64_t b = 0; b < count(); ++b) most = std::max(most, size(b));
  return most;
}

void EntryBlocks::AllocateKeys(LayerView& view, int64_t heads) {
  const int64_t numbers = count() * heads * view.shape().key_dim;
  keys = view.ops().memory->Allocate(numbers * SizeOf(DType::kF32));
}

std::vector<int32_t> EntryBlocks::InRows(int64_t width) const {
  std::vector<int32_t> places;
  for (int64_t b = 0; b < count(); ++b) {
    const int64_t n = size(b), begin = first + ends[static_cast<size_t>(b)] - n;
    for (int64_t i = 0; i < width; ++i) {
      places.push_back(i < n ? static_cast<int32_t>(begin + i) : -1);
    }
  }
  return places;
}

std::vector<int32_t> EntryBlocks::EntriesOf(std::span<const int32_t> picked) const {
  std::vector<int32_t> all(static_cast<size_t>(first));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  for (const int32_t block : picked) {
    const int64_t end = first + ends[static_cast<size_t>(block)];
    for (int64_t at = end - size(block); at < end; ++at) all.push_back(static_cast<int32_t>(at));
  }
  return all;
}

void EntryBlocks::StandByMeans(LayerView& view, int64_t copies) {
  if (ends.empty()) return;
  Ops& ops = view.ops();
  const int64_t dim = view.shape().key_dim, heads = view.shape().kv_heads * copies;
  const int64_t wide = longest();
  AllocateKeys(view, heads);
  std::vector<float> shares;
  for (int64_t b = 0; b < count(); ++b) {
    shares.insert(shares.end(), static_cast<size_t>(wide), 1.0f / static_cast<float>(size(b)));
  }
  const Tensor index = Upload(view, InRows(wide));
  const Tensor share = Upload(view, shares).Reshape({count(), 1, wide});
  const Tensor rows = view.Scratch(DType::kF32, {count() * wide, dim});
  const Tensor means = view.Scratch(DType::kF32, {count(), dim});
  const Tensor all = keys.As(DType::kF32, {count(), heads * dim});
  for (int64_t h = 0; h < heads; ++h) {
    if (h % copies == 0) {
      ops.select->Gather(view.RawKeys(h / copies), index, rows);
      ops.linear->MatMulNN(share, rows.Reshape({count(), wide, dim}), 1.0f,
                           means.Reshape({count(), 1, dim}));
    }
    ops.rows->Convert(means, Columns(all, h * dim, (h + 1) * dim));
  }
}

void EntryBlocks::Stand(LayerView& view, const Tensor& sums, int64_t representatives,
                        int64_t distance) {
  if (ends.empty()) return;
  Ops& ops = view.ops();
  const ModelShape& shape = view.shape();
  const int64_t heads = shape.query_heads, dim = shape.key_dim, group = shape.group();
  const int64_t widest = longest();
  const int64_t stand = std::min(representatives, widest);
  std::vector<int32_t> counts;
  std::vector<float> shares;
  for (int64_t b = 0; b < count(); ++b) {
    counts.push_back(static_cast<int32_t>(std::min(stand, size(b))));
    shares.push_back(1.0f / static_cast<float>(counts.back()));
  }
  AllocateKeys(view, heads);
  std::vector<float> units(static_cast<size_t>(widest * widest));
  for (int64_t i = 0; i < widest; ++i) units[static_cast<size_t>(i * widest + i)] = 1.0f;

  const Tensor index = Upload(view, InRows(widest)), many = Upload(view, counts);
  const Tensor unit = Upload(view, units).Reshape({widest, widest});
  const Tensor share = Upload(view, shares);
  const Tensor rows = view.Scratch(DType::kF32, {count() * widest, dim});
  const Tensor scores = view.Scratch(DType::kF32, {count(), widest});
  const Tensor chosen = view.Scratch(DType::kI32, {count(), stand});
  const Tensor picks = view.Scratch(DType::kF32, {count() * stand, widest});
  const Tensor found = view.Scratch(DType::kF32, {count(), stand, dim});
  const Tensor all = keys.As(DType::kF32, {count(), heads * dim});
  for (int64_t h = 0; h < heads; ++h) {
    if (h % group == 0) ops.select->Gather(view.RawKeys(h / group), index, rows);
    ops.select->Gather(AsColumn(sums[h]), index, scores.Reshape({count() * widest, 1}));
    ops.select->TopK(scores, many, chosen);
    // A row of units for each that stands for its block; of zeros where there are fewer.
    ops.select->Gather(unit, chosen.Reshape({count() * stand}), picks);
    ops.linear->MatMulNN(picks.Reshape({count(), stand, widest}),
                         rows.Reshape({count(), widest, dim}), 1.0f, found);
    const Tensor own = Columns(all, h * dim, (h + 1) * dim);
    const Tensor flat = found.Reshape({count(), stand * dim});
    ops.rows->Convert(Columns(flat, 0, dim), own);
    for (int64_t s = 1; s < stand; ++s) {
      ops.rows->Combine(own, Columns(flat, s * dim, (s + 1) * dim), Binary::kAdd, own);
    }
    ops.rows->Combine(own, Spread(view, share, dim), Binary::kMultiply, own);
  }
  PlaceAt(view, distance);
}

void EntryBlocks::PlaceAt(LayerView& view, int64_t distance) {
  Ops& ops = view.ops();
  std::vector<int32_t> owners;
  for (int64_t b = 0; b < count(); ++b) {
    owners.insert(owners.end(), static_cast<size_t>(size(b)), static_cast<int32_t>(b));
  }
  block_of = ops.memory->Allocate(entries() * SizeOf(DType::kI32));
  ops.memory->Copy(View(owners, {entries()}), block_of.As(DType::kI32, {entries()}));
  const Tensor angles = view.Rotations(distance, 1);
  if (angles.empty()) return;
  turn = ops.memory->Allocate(angles.Numel() * SizeOf(DType::kF32));
  ops.memory->Copy(angles.Reshape({angles.Numel()}), turn.As(DType::kF32, {angles.Numel()}));
}

Status EntryBlocks::Fields(LayerView& view, int64_t heads, std::optional<int64_t> distance,
                           StateFields& fields) {
  int64_t blocks = count();
  KVG_TRY(fields.Number("entries before the first block", 0, view.width(), &first));
  const int64_t most = view.width() - first;
  KVG_TRY(fields.Number("blocks of entries", 0, most, &blocks));
  if (fields.reads()) ends.assign(static_cast<size_t>(blocks), 0);
  int64_t before = 0;
  for (int64_t& end : ends) {
    KVG_TRY(fields.Number("end of a block", before + 1, most, &end));
    before = end;
  }
  KVG_TRY(fields.Memory("keys of blocks", view.ops(), DType::kF32,
                        blocks * heads * view.shape().key_dim, &keys));
  if (fields.reads() && distance && blocks > 0) PlaceAt(view, *distance);
  return {};
}

Tensor EntryBlocks::Scores(LayerView& view, const Tensor& q) const {
  Ops& ops = view.ops();
  const ModelShape& shape = view.shape();
  const int64_t heads = shape.query_heads, dim = shape.key_dim;
  const Tensor query = view.Scratch(DType::kF32, {heads, dim});
  ops.rows->Convert(q, query);
  if (turn.size_bytes() > 0) {
    const Tensor rows = query.Reshape({1, heads, dim});
    const Tensor at = view.Rotations(view.tokens() - 1, 1);
    const Tensor there = turn.As(DType::kF32, {2, 1, at.shape[2]});
    ops.rows->Rope(at[0], at[1], shape.rope_layout, RopeDirection::kInverse, rows);
    ops.rows->Rope(there[0], there[1], shape.rope_layout, RopeDirection::kForward, rows);
  }
  const Tensor scores = view.Scratch(DType::kF32, {1, count()});
  ops.linear->MatMulNT(query.Reshape({1, 1, heads * dim}),
                       keys.As(DType::kF32, {1, count(), heads * dim}), 1.0f,
                       scores.Reshape({1, 1, count()}));
  return scores;
}

void EntryBlocks::Mark(LayerView& view, const Tensor& blocks, const Tensor& words) const {
  Ops& ops = view.ops();
  const int64_t n = entries();
  const Tensor is_read = view.Scratch(DType::kF32, {count(), 1});
  const Tensor of_entries = view.Scratch(DType::kF32, {1, n});
  ops.select->Scatter(AsColumn(Filled(view, blocks.shape[0], 1.0f)), blocks, is_read);
  ops.select->Gather(is_read, block_of.As(DType::kI32, {n}), AsColumn(of_entries[0]));
  MarkWhere(view, of_entries, first, words);
  // Every head holds as many entries: nothing was evicted.
  MarkEnds(view, first, first + n, view.width(), words);
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/cache/token_rows.h"

#include "kernels/ops.h"
#include "methods/tensors.h"

namespace kvgauge {
namespace {

// Columns of `n` tokens: those of one head together, and all heads side by side.
struct TokenMemory {
  TokenMemory(Ops& ops, int64_t n, int64_t dim, int64_t width)
      : memory(ops.memory->Allocate(n * (dim + width) * 4)) {
    const Tensor all = memory.As(DType::kF32, {n * (dim + width)});
    of_head = all.Slice(0, n * dim).Reshape({n, dim});
    of_all = all.Slice(n * dim, n * (dim + width)).Reshape({n, width});
  }
  Buffer memory;
  Tensor of_head, of_all;
};

}  // namespace

int64_t TokenWidth(const LayerEntries& entries, KvSide side) {
  return entries.setup->kv_heads * entries.HeadDim(side);
}

std::vector<float> ReadTokenRows(const LayerEntries& entries, KvSide side, int64_t first,
                                 int64_t end) {
  const int64_t n = end - first, dim = entries.HeadDim(side), width = TokenWidth(entries, side);
  std::vector<float> numbers(static_cast<size_t>(n * width));
  if (n == 0) return numbers;
  Ops& ops = entries.ops();
  const TokenMemory rows(ops, n, dim, width);
  for (int64_t h = 0; h < entries.setup->kv_heads; ++h) {
    entries.ReadStream(side, h, first, rows.of_head);
    ops.rows->Convert(rows.of_head, Columns(rows.of_all, h * dim, (h + 1) * dim));
  }
  ops.memory->Copy(rows.of_all, View(numbers, {n, width}));
  ops.memory->Synchronize();
  return numbers;
}

Status AppendTokenRows(const LayerEntries& entries, const std::vector<float>& rows, KvSide side,
                       std::vector<Stream>& streams) {
  const int64_t dim = entries.HeadDim(side), width = TokenWidth(entries, side);
  const int64_t n = std::ssize(rows) / width;
  if (n == 0) return {};
  Ops& ops = entries.ops();
  const TokenMemory on_device(ops, n, dim, width);
  ops.memory->Copy(View(rows, {n, width}), on_device.of_all);
  for (size_t h = 0; h < streams.size(); ++h) {
    const auto at = static_cast<int64_t>(h) * dim;
    ops.rows->Convert(Columns(on_device.of_all, at, at + dim), on_device.of_head);
    KVG_TRY(streams[h].Append(on_device.of_head));
  }
  ops.memory->Synchronize();
  return {};
}

}  // namespace kvgauge

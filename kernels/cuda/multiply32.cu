// SPDX-License-Identifier: Apache-2.0
#include "cuda/multiply32.h"
#include "cuda/reduce.h"

namespace kvgauge::cuda {
namespace {

// 64 x 64 outputs a block, 4 x 4 a thread; batches by BlockZ.
constexpr int kTile32 = kRows32, kStep32 = 16, kPadded32 = kTile32 + 4;

// Row r of a tile: where it is in a, where its results go; -1 past the last one.
struct PlainRows {
  int64_t first, end;
  KVG_MEMBER int64_t OfA(int64_t r) const { return OfOut(r); }
  KVG_MEMBER int64_t OfOut(int64_t r) const { return first + r < end ? first + r : -1; }
};
struct RowsOfTile {
  const int32_t* order;
  int64_t count, share;
  KVG_MEMBER int64_t OfA(int64_t r) const { return r < count ? order[r] / share : -1; }
  KVG_MEMBER int64_t OfOut(int64_t r) const { return r < count ? order[r] : -1; }
};

template <class Rows>
KVG_DEVICE void MultiplyTile32(const Product32& p, const float* a, const float* b, float* out,
                               const Rows& rows) {
  KVG_SHARED(float, tile_a, kStep32* kPadded32);
  KVG_SHARED(float, tile_b, kStep32* kPadded32);
  const int64_t column = BlockX() * kTile32;
  const int tx = Thread() % 16, ty = Thread() / 16;
  float sum[4][4] = {};
  for (int64_t k = 0; k < p.k; k += kStep32) {
    SyncBlock();
    for (int i = Thread(); i < kTile32 * kStep32; i += kBlockThreads) {
      // Neighbouring threads read neighbouring numbers of whichever operand is dense along k.
      const int r = i / kStep32, s = i % kStep32;
      const int64_t from = rows.OfA(r);
      const bool inside = from >= 0 && k + s < p.k;
      tile_a[s * kPadded32 + r] = inside ? a[from * p.a_stride + k + s] : 0.0f;
    }
    for (int i = Thread(); i < kTile32 * kStep32; i += kBlockThreads) {
      const int r = p.b_k == 1 ? i / kStep32 : i % kTile32;
      const int s = p.b_k == 1 ? i % kStep32 : i / kTile32;
      const bool inside = column + r < p.n && k + s < p.k;
      tile_b[s * kPadded32 + r] = inside ? b[(column + r) * p.b_row + (k + s) * p.b_k] : 0.0f;
    }
    SyncBlock();
    // Products behind the end of k are left out: 0 * inf of a neighbour would be NaN.
    const auto here = static_cast<int>(Least<int64_t>(kStep32, p.k - k));
    for (int s = 0; s < here; ++s) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float left = tile_a[s * kPadded32 + ty * 4 + i];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sum[i][j] = Fma(left, tile_b[s * kPadded32 + tx * 4 + j], sum[i][j]);
        }
      }
    }
  }
  for (int i = 0; i < 4; ++i) {
    for (int j = 0; j < 4; ++j) {
      const int64_t r = rows.OfOut(ty * 4 + i), c = column + tx * 4 + j;
      if (r < 0 || c >= p.n) continue;
      float value = p.alpha * sum[i][j];
      if (p.bias != nullptr) value += p.bias[c];
      float* at = out + r * p.out_stride + c;
      *at = p.add ? *at + value : value;
    }
  }
}

KVG_KERNEL(kBlockThreads) Multiply32Kernel(Product32 p) {
  MultiplyTile32(p, p.a + BlockZ() * p.m * p.k, p.b + BlockZ() * p.n * p.k,
                 p.out + BlockZ() * p.m * p.n, PlainRows{BlockY() * kTile32, p.m});
}

KVG_KERNEL(kBlockThreads)
MultiplyChosen32Kernel(Product32 p, const void* const* matrices, ChosenRows rows) {
  const ChosenTile tile = rows.tiles[BlockY()];
  if (tile.matrix < 0) return;  // the whole block
  MultiplyTile32(p, p.a, static_cast<const float*>(matrices[tile.matrix]), p.out,
                 RowsOfTile{rows.order + tile.first, tile.count, rows.share});
}

}  // namespace

void MultiplyChosen32(const Product32& product, const void* const* matrices, const ChosenRows& rows,
                      Stream stream) {
  KVG_LAUNCH(
      MultiplyChosen32Kernel,
      {.grid_x = CeilDiv(product.n, kTile32), .grid_y = rows.tile_count, .threads = kBlockThreads},
      stream, product, matrices, rows);
}

void Multiply32(const Product32& product, Stream stream) {
  constexpr int64_t kMostBatches = 32768, kMostRows = int64_t{65535} * kTile32;  // of one grid
  const int64_t at_once = product.m <= kMostRows ? kMostBatches : 1;
  for (int64_t first = 0; first < product.batches; first += at_once) {
    for (int64_t row = 0; row < product.m; row += kMostRows) {
      Product32 p = product;
      p.a += first * p.m * p.k + row * p.a_stride;
      p.b += first * p.n * p.k;
      p.out += first * p.m * p.n + row * p.out_stride;
      p.m = Least(kMostRows, p.m - row);
      KVG_LAUNCH(Multiply32Kernel,
                 {.grid_x = CeilDiv(p.n, kTile32),
                  .grid_y = CeilDiv(p.m, kTile32),
                  .grid_z = Least(at_once, p.batches - first),
                  .threads = kBlockThreads},
                 stream, p);
    }
  }
}

}  // namespace kvgauge::cuda

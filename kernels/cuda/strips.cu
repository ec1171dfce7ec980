// SPDX-License-Identifier: Apache-2.0
// A block is one warp, which takes a strip of 16 rows of w over one span of k, as left operands; x
// comes packed as right ones. So nothing but the warp's own copies is waited for, and many reads
// are on their way for each multiplication.
#include "cuda/device/mma.h"
#include "cuda/elements.h"
#include "cuda/many_rows.h"
#include "cuda/reduce.h"
#include "cuda/strips.h"

namespace kvgauge::cuda {
namespace {

template <bool kBf16>
KVG_DEVICE void Multiply16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (kBf16) {
    MultiplyAddBf16(c, a, b);
  } else {
    MultiplyAddF16(c, a, b);
  }
}

constexpr int kStripRows = 16;
constexpr int kEight = 8;  // rows of x of one right operand
constexpr int kUnitNumbers = kStripRows * kUnit;
constexpr int kEightNumbers = kEight * kUnit;

// Where a piece of 8 numbers lies in a unit: eight rows of one piece meet all banks.
KVG_DEVICE int PieceOf(int row, int piece) { return row * kUnit + (piece ^ (row / 2 & 3)) * 8; }

// x [m, stride] as right operands: [8 rows][kUnit of k][lane] of {k 2t, 2t + 8, 2t + 16, 2t + 24}
// and one further each, of row lane / 4. Rows and numbers that x does not have are 0.
KVG_KERNEL(kBlockThreads)
PackRowsKernel(const void* x, DType from, int64_t stride, int64_t m, int64_t k, bool to_bf16,
               int64_t padded_k, int64_t eights, Uint4* out) {
  const int64_t at = BlockX() * kBlockThreads + Thread();
  const int64_t units = padded_k / kUnit;
  if (at >= eights * units * kWarp) return;
  const auto lane = static_cast<int>(at % kWarp);
  const int64_t unit = at / kWarp % units, row = at / kWarp / units * kEight + lane / 4;
  const auto number = [&](int64_t column) {
    return row < m && column < k ? LoadAs(from, x, row * stride + column) : 0.0f;
  };
  const auto pair = [&](int first) {
    const int64_t column = unit * kUnit + first + lane % 4 * 2;
    const float low = number(column), high = number(column + 1);
    return to_bf16 ? PackBf16x2(low, high) : PackHalf2(low, high);
  };
  out[at] = {pair(0), pair(8), pair(16), pair(24)};
}

// Units of k that are on their way: 1 KiB of w each, and x beside it.
template <int eights>
struct Ring {
  static constexpr int kUnits = eights <= 2 ? 16 : 8;
  static constexpr int kStage = kUnitNumbers + eights * kEightNumbers;
  static constexpr int64_t kBytes = int64_t{2} * kUnits * kStage;
};

// What one unit of k multiplies: w as two left operands, x as two right ones for each eight.
template <int eights>
struct StripOperands {
  uint32_t w[2][4];
  Uint4 x[eights];
};

template <int eights, bool kBf16>
KVG_KERNEL(kWarp)
StripKernel(StripCall p, const Uint4* x) {
  KVG_DYNAMIC_SHARED(uint16_t, ring);
  constexpr int kRing = Ring<eights>::kUnits, kStage = Ring<eights>::kStage;
  const int64_t row0 = BlockX() * kStripRows;
  const int lane = Lane();
  const int64_t all_units = p.k / kUnit, begin = BlockZ() * (kProductSpan / kUnit);
  const auto units = static_cast<int>(Least<int64_t>(all_units - begin, kProductSpan / kUnit));
  // A lane copies one piece of row lane / 4 and of the row 8 after. Rows past the last one repeat
  // it; their outputs are not stored.
  const int copied = lane / 4, piece = lane % 4;
  const uint16_t* near = p.w + Least(row0 + copied, p.n - 1) * p.k + begin * kUnit + piece * 8;
  const uint16_t* far = p.w + Least(row0 + copied + 8, p.n - 1) * p.k + begin * kUnit + piece * 8;
  const Uint4* packed = x + begin * kWarp + lane;
  const int to_near = PieceOf(copied, piece), to_far = PieceOf(copied + 8, piece);
  int left = units, to_stage = 0;  // of copies
  const auto copy = [&] {
    if (left > 0) {
      uint16_t* const to = ring + to_stage * kStage;
      CopyAsync16(to + to_near, near);
      CopyAsync16(to + to_far, far);
#pragma unroll
      for (int e = 0; e < eights; ++e) {
        CopyAsync16(to + kUnitNumbers + e * kEightNumbers + lane * 8,
                    packed + e * all_units * kWarp);
      }
      near += kUnit;
      far += kUnit;
      packed += kWarp;
      to_stage = to_stage + 1 < kRing ? to_stage + 1 : 0;
      --left;
    }
    CommitCopies();
  };
  const int from = PieceOf(lane % 16, lane / 16), from_next = PieceOf(lane % 16, lane / 16 + 2);
  const auto load = [&](int stage, StripOperands<eights>& operands) {
    const uint16_t* const at = ring + stage * kStage;
    LoadMatrix4(operands.w[0], at + from);
    LoadMatrix4(operands.w[1], at + from_next);
#pragma unroll
    for (int e = 0; e < eights; ++e) {
      operands.x[e] =
          *reinterpret_cast<const Uint4*>(at + kUnitNumbers + e * kEightNumbers + lane * 8);
    }
  };
  float sum[eights][4] = {};
  for (int unit = 0; unit < kRing - 1; ++unit) copy();
  WaitCopies<kRing - 2>();
  SyncWarp();
  StripOperands<eights> operands;
  if (units > 0) load(0, operands);
  for (int unit = 0, stage = 0; unit < units; ++unit) {
    // The operands of the next unit come while those of this one are multiplied.
    const StripOperands<eights> mine = operands;
    stage = stage + 1 < kRing ? stage + 1 : 0;
    WaitCopies<kRing - 3>();
    SyncWarp();
    if (unit + 1 < units) load(stage, operands);
    copy();
#pragma unroll
    for (int e = 0; e < eights; ++e) {
      const uint32_t first[2] = {mine.x[e].x, mine.x[e].y};
      Multiply16<kBf16>(sum[e], mine.w[0], first);
    }
#pragma unroll
    for (int e = 0; e < eights; ++e) {
      const uint32_t second[2] = {mine.x[e].z, mine.x[e].w};
      Multiply16<kBf16>(sum[e], mine.w[1], second);
    }
  }
  const bool partial = p.k > kProductSpan;
  float* const out = p.out + (partial ? BlockZ() * p.m * p.n : 0);
  const int64_t out_stride = partial ? p.n : p.out_stride;
#pragma unroll
  for (int e = 0; e < eights; ++e) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t r = e * kEight + lane % 4 * 2 + i % 2, c = row0 + lane / 4 + i / 2 * 8;
      if (r >= p.m || c >= p.n) continue;
      float* const at = out + r * out_stride + c;
      if (partial) {
        *at = sum[e][i];
        continue;
      }
      float value = 0.0f + sum[e][i];
      if (p.bias != nullptr) value += p.bias[c];
      *at = p.add ? *at + value : value;
    }
  }
}

template <int eights>
void RunStrips(const StripCall& call, const Uint4* x, Stream stream) {
  const LaunchShape shape = {.grid_x = CeilDiv(call.n, kStripRows),
                             .grid_z = Most<int64_t>(CeilDiv(call.k, kProductSpan), 1),
                             .threads = kWarp,
                             .shared_bytes = Ring<eights>::kBytes};
  if (call.dtype == DType::kBF16) {
    KVG_LAUNCH((StripKernel<eights, true>), shape, stream, call, x);
  } else {
    KVG_LAUNCH((StripKernel<eights, false>), shape, stream, call, x);
  }
}

int64_t EightsOf(int64_t m) {
  int64_t eights = 1;  // a power of two
  while (eights * kEight < m) eights *= 2;
  return eights;
}

}  // namespace

int64_t StripScratchBytes(int64_t m, int64_t k) { return EightsOf(m) * kEight * k * 2; }

void MultiplyStrips(const StripCall& call, void* scratch, Stream stream) {
  auto* const x = static_cast<Uint4*>(scratch);
  const int64_t eights = EightsOf(call.m), threads = eights * (call.k / kUnit) * kWarp;
  KVG_LAUNCH(PackRowsKernel, {.grid_x = CeilDiv(threads, kBlockThreads), .threads = kBlockThreads},
             stream, call.x, call.x_dtype, call.x_stride, call.m, call.x_columns,
             call.dtype == DType::kBF16, call.k, eights, x);
  static_assert(kMostStripColumns == 8 * kEight);
  if (eights == 1) {
    RunStrips<1>(call, x, stream);
  } else if (eights == 2) {
    RunStrips<2>(call, x, stream);
  } else if (eights == 4) {
    RunStrips<4>(call, x, stream);
  } else {
    RunStrips<8>(call, x, stream);
  }
}

}  // namespace kvgauge::cuda

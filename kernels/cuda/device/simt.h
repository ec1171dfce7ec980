// SPDX-License-Identifier: Apache-2.0
// The one header kernels are written against, so that the same source runs on a device (nvcc) and,
// in tests, on the processor (emulated/: every thread of a block is a fiber).
//
// Rules, which the emulator enforces where it can:
// - Blocks are one-dimensional, a multiple of 32 threads, at most 1024; grids have three
// dimensions.
// - SyncBlock and WaitCopies + SyncBlock are reached by every thread of the block, warp functions
// by
//   all 32 lanes of a warp: clamp indices and predicate loads and stores instead of returning
//   early.
// - Shared memory is declared with the macros, before the first barrier, and written before it is
//   read. Blocks do not talk to each other within a launch.
// - Arithmetic is what the source says: both compilers keep a * b + c apart, Fma() fuses. So a
// chain
//   of +, *, / and Sqrt has the same bits on device and emulator; Exp and its like do not.
// - A sum's order depends on one row's shape alone, never on the grid (WarpSum: a fixed butterfly).
//
//   KVG_KERNEL(256) ScaleRow(const float* x, float scale, float* out, int64_t n) {
//     const int64_t i = BlockX() * BlockThreads() + Thread();
//     if (i < n) out[i] = x[i] * scale;
//   }
//   void Scale(const float* x, float scale, float* out, int64_t n, Stream stream) {
//     KVG_LAUNCH(ScaleRow, {.grid_x = CeilDiv(n, 256), .threads = 256}, stream, x, scale, out, n);
//   }
//
// Arguments are copied at the launch; pointers in them are device memory. Kernels see raw pointers
// and small structs, never a Tensor.
#pragma once

#include <cstdint>

#include "core/check.h"
#include "core/strings.h"
#include "cuda/device/driver.h"
#include "cuda/device/graph_recorder.h"

namespace kvgauge::cuda {

// shared_bytes: what KVG_DYNAMIC_SHARED yields, at most kMostSharedBytes. warpgroups: the kernel is
// for sm_90a alone; it may ask for kMostWarpgroupSharedBytes.
struct LaunchShape {
  int64_t grid_x = 1, grid_y = 1, grid_z = 1;  // at most kMostBlocksX, kMostBlocksYZ
  int threads = 0;
  int64_t shared_bytes = 0;
  bool warpgroups = false;
};

inline constexpr int kWarp = 32;
inline constexpr int64_t kMostBlocksX = INT32_MAX, kMostBlocksYZ = 65535;
// Blocks of sm_80 and of sm_90 may both have so much, those of other devices less: 99 KiB of 8.6,
// 8.9 and 12.0 (BlockSharedBytes).
inline constexpr int64_t kMostSharedBytes = 163 * 1024;
inline constexpr int64_t kMostWarpgroupSharedBytes = 227 * 1024;

// Ends the program where a launch has more blocks than a grid: a device would say that something is
// wrong, or take the low bits of their number.
inline void CheckGrid(const char* kernel, const LaunchShape& shape) {
  KVG_CHECK(shape.grid_x > 0 && shape.grid_x <= kMostBlocksX && shape.grid_y > 0 &&
                shape.grid_y <= kMostBlocksYZ && shape.grid_z > 0 && shape.grid_z <= kMostBlocksYZ,
            StrCat("cuda: kernel ", kernel, ": a grid of ", shape.grid_x, " x ", shape.grid_y,
                   " x ", shape.grid_z, " blocks; expected at most ", kMostBlocksX, " x ",
                   kMostBlocksYZ, " x ", kMostBlocksYZ));
}

}  // namespace kvgauge::cuda

// Both define, in kvgauge::cuda:
//   KVG_KERNEL(threads) name(args)      a kernel, launched with at most `threads` threads a block;
//                                       (threads, blocks): so many blocks fit on a multiprocessor
//   KVG_DEVICE  KVG_MEMBER              before a function, a member that kernels call
//   KVG_CONSTANT                        before a table
//   KVG_SHARED(type, name, count)       type* name: count numbers of the block, 16-byte aligned
//   KVG_DYNAMIC_SHARED(type, name)      type* name: LaunchShape::shared_bytes
//   KVG_LAUNCH(kernel, shape, stream, args...)  no launch if a grid dimension is 0; for a template
//                                       put the kernel in parentheses
//   Thread BlockThreads Lane WarpIndex BlockX/Y/Z GridX/Y/Z
//   SyncBlock SyncWarp ShuffleXor(v, mask) Shuffle(v, lane) Ballot(bool)
//   WarpSum WarpMax WarpMin             every lane gets the result; float, double, int32_t
//   WarpReduce(v, fold)                 the same with any commutative fold
//   AtomicAdd AtomicMax AtomicMin AtomicOr  i32, u32, u64; return the old value; no floats
//   Exp Exp2 Log Log2 Sqrt Rsqrt Tanh Erf Erfc Cos Sin Abs Fma RoundEven Floor  of f32, some of
//                                       f64
//   HalfToFloat FloatToHalf Bf16ToFloat FloatToBf16 PackHalf2 PackBf16x2(low, high)
//   BitsOf(float) FloatOf(uint32_t) IsNan PopCount CountLeadingZeros FindFirst (0: none, else 1 ..)
//   PermuteBytes(a, b, selector)        byte i is the one of b:a that the selector's hex digit i
//                                       names, 0 .. 7
//   Float2 Float4 Uint2 Uint4           8 and 16 bytes, aligned
//   CopyAsync16(shared, global) CommitCopies() WaitCopies<groups that may be pending>()
#ifdef __CUDACC__
#include "cuda/device/simt_cuda.h"
#else
#include "cuda/emulated/simt_emulated.h"
#endif

namespace kvgauge::cuda {

#ifdef __CUDACC__
#define KVG_HOST_DEVICE __host__ __device__
#else
#define KVG_HOST_DEVICE
#endif

KVG_HOST_DEVICE constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
KVG_HOST_DEVICE constexpr int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }
template <class T>
KVG_HOST_DEVICE constexpr T Least(T a, T b) {
  return b < a ? b : a;
}
template <class T>
KVG_HOST_DEVICE constexpr T Most(T a, T b) {
  return a < b ? b : a;
}

}  // namespace kvgauge::cuda

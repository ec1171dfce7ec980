// SPDX-License-Identifier: Apache-2.0
// simt.h on a device. Included by simt.h only.
#pragma once

#include <cuda_runtime.h>

#define KVG_KERNEL(...) static __global__ void __launch_bounds__(__VA_ARGS__)
#define KVG_DEVICE static __device__ __forceinline__
#define KVG_MEMBER __device__ __forceinline__
#define KVG_CONSTANT static __constant__ const
#define KVG_SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define KVG_DYNAMIC_SHARED(type, name)                                \
  extern __shared__ __align__(16) unsigned char kvg_dynamic_shared[]; \
  type* const name = reinterpret_cast<type*>(kvg_dynamic_shared)
#define KVG_LAUNCH(kernel, ...) ::kvgauge::cuda::Launch(#kernel, kernel, __VA_ARGS__)

namespace kvgauge::cuda {

// Makes the device of a stream the one that the calling thread launches on.
void ActOn(Stream stream);
// Ends the program when a launch could not be made.
void CheckLaunch(const char* kernel, cudaError_t status);

template <class... P, class... A>
void Launch(const char* name, void (*kernel)(P...), const LaunchShape& shape, Stream stream,
            A... args) {
  if (shape.grid_x == 0 || shape.grid_y == 0 || shape.grid_z == 0) return;
  CheckGrid(name, shape);
  if (!Submits(stream, kernel, shape.grid_x, shape.grid_y, shape.grid_z, shape.threads,
               shape.shared_bytes, static_cast<P>(args)...)) {
    return;
  }
  ActOn(stream);
  constexpr int64_t kWithoutAsking = 48 * 1024;
  if (shape.shared_bytes > kWithoutAsking) {
    CheckLaunch(name, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(shape.shared_bytes)));
  }
  const dim3 grid(static_cast<unsigned>(shape.grid_x), static_cast<unsigned>(shape.grid_y),
                  static_cast<unsigned>(shape.grid_z));
  kernel<<<grid, static_cast<unsigned>(shape.threads), static_cast<size_t>(shape.shared_bytes),
           stream>>>(static_cast<P>(args)...);
  CheckLaunch(name, cudaGetLastError());
}

using Float2 = float2;
using Float4 = float4;
using Uint2 = uint2;
using Uint4 = uint4;

KVG_DEVICE int Thread() { return static_cast<int>(threadIdx.x); }
KVG_DEVICE int BlockThreads() { return static_cast<int>(blockDim.x); }
KVG_DEVICE int Lane() { return static_cast<int>(threadIdx.x & 31); }
KVG_DEVICE int WarpIndex() { return static_cast<int>(threadIdx.x >> 5); }
KVG_DEVICE int64_t BlockX() { return blockIdx.x; }
KVG_DEVICE int64_t BlockY() { return blockIdx.y; }
KVG_DEVICE int64_t BlockZ() { return blockIdx.z; }
KVG_DEVICE int64_t GridX() { return gridDim.x; }
KVG_DEVICE int64_t GridY() { return gridDim.y; }
KVG_DEVICE int64_t GridZ() { return gridDim.z; }

inline constexpr unsigned kAllLanes = 0xffffffffu;

KVG_DEVICE void SyncBlock() { __syncthreads(); }
KVG_DEVICE void SyncWarp() { __syncwarp(); }
template <class T>
KVG_DEVICE T ShuffleXor(T value, int mask) {
  return __shfl_xor_sync(kAllLanes, value, mask);
}
template <class T>
KVG_DEVICE T Shuffle(T value, int lane) {
  return __shfl_sync(kAllLanes, value, lane);
}
KVG_DEVICE uint32_t Ballot(bool value) { return __ballot_sync(kAllLanes, value); }
template <class T, class Fold>
KVG_DEVICE T WarpReduce(T value, Fold fold) {
#pragma unroll
  for (int mask = 16; mask > 0; mask >>= 1) value = fold(value, ShuffleXor(value, mask));
  return value;
}
template <class T>
KVG_DEVICE T WarpSum(T value) {
  return WarpReduce(value, [](T a, T b) { return a + b; });
}
template <class T>
KVG_DEVICE T WarpMax(T value) {
  return WarpReduce(value, [](T a, T b) { return a < b ? b : a; });
}
template <class T>
KVG_DEVICE T WarpMin(T value) {
  return WarpReduce(value, [](T a, T b) { return b < a ? b : a; });
}

// u64 is `unsigned long long` to the compiler's atomics.
KVG_DEVICE int32_t AtomicAdd(int32_t* at, int32_t v) { return atomicAdd(at, v); }
KVG_DEVICE uint32_t AtomicAdd(uint32_t* at, uint32_t v) { return atomicAdd(at, v); }
KVG_DEVICE uint64_t AtomicAdd(uint64_t* at, uint64_t v) {
  return atomicAdd(reinterpret_cast<unsigned long long*>(at), v);
}
KVG_DEVICE int32_t AtomicMax(int32_t* at, int32_t v) { return atomicMax(at, v); }
KVG_DEVICE uint32_t AtomicMax(uint32_t* at, uint32_t v) { return atomicMax(at, v); }
KVG_DEVICE int32_t AtomicMin(int32_t* at, int32_t v) { return atomicMin(at, v); }
KVG_DEVICE uint32_t AtomicMin(uint32_t* at, uint32_t v) { return atomicMin(at, v); }
KVG_DEVICE uint32_t AtomicOr(uint32_t* at, uint32_t v) { return atomicOr(at, v); }
KVG_DEVICE uint64_t AtomicOr(uint64_t* at, uint64_t v) {
  return atomicOr(reinterpret_cast<unsigned long long*>(at), v);
}

KVG_DEVICE float Exp(float x) { return expf(x); }
KVG_DEVICE double Exp(double x) { return exp(x); }
KVG_DEVICE float Exp2(float x) { return exp2f(x); }
KVG_DEVICE float Log(float x) { return logf(x); }
KVG_DEVICE float Log2(float x) { return log2f(x); }
KVG_DEVICE float Sqrt(float x) { return __fsqrt_rn(x); }
KVG_DEVICE float Rsqrt(float x) { return __fdiv_rn(1.0f, __fsqrt_rn(x)); }
KVG_DEVICE float Tanh(float x) { return tanhf(x); }
KVG_DEVICE float Erf(float x) { return erff(x); }
KVG_DEVICE float Erfc(float x) { return erfcf(x); }
KVG_DEVICE float Cos(float x) { return cosf(x); }
KVG_DEVICE float Sin(float x) { return sinf(x); }
KVG_DEVICE double Cos(double x) { return cos(x); }
KVG_DEVICE double Sin(double x) { return sin(x); }
KVG_DEVICE double Sqrt(double x) { return __dsqrt_rn(x); }
KVG_DEVICE float Abs(float x) { return fabsf(x); }
KVG_DEVICE double Abs(double x) { return fabs(x); }
KVG_DEVICE float Fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
KVG_DEVICE double Fma(double a, double b, double c) { return __fma_rn(a, b, c); }
KVG_DEVICE float RoundEven(float x) { return rintf(x); }
KVG_DEVICE float Floor(float x) { return floorf(x); }

KVG_DEVICE uint32_t BitsOf(float x) { return __float_as_uint(x); }
KVG_DEVICE float FloatOf(uint32_t bits) { return __uint_as_float(bits); }
KVG_DEVICE bool IsNan(float x) { return x != x; }
KVG_DEVICE int PopCount(uint32_t x) { return __popc(x); }
KVG_DEVICE int PopCount(uint64_t x) { return __popcll(x); }
KVG_DEVICE int CountLeadingZeros(uint32_t x) { return __clz(static_cast<int>(x)); }
KVG_DEVICE int FindFirst(uint32_t x) { return __ffs(static_cast<int>(x)); }
KVG_DEVICE uint32_t PermuteBytes(uint32_t a, uint32_t b, uint32_t selector) {
  return __byte_perm(a, b, selector);
}

KVG_DEVICE float HalfToFloat(uint16_t bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
KVG_DEVICE float Bf16ToFloat(uint16_t bits) { return FloatOf(static_cast<uint32_t>(bits) << 16); }
KVG_DEVICE uint32_t PackHalf2(float low, float high) {
  uint32_t bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
KVG_DEVICE uint32_t PackBf16x2(float low, float high) {
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(high), "f"(low));
  return bits;
}
// One number by way of a pair: ptxas 13.0 stores a wrong low byte of what cvt.rn.f16.f32 gave.
KVG_DEVICE uint16_t FloatToHalf(float x) { return static_cast<uint16_t>(PackHalf2(x, 0.0f)); }
KVG_DEVICE uint16_t FloatToBf16(float x) { return static_cast<uint16_t>(PackBf16x2(x, 0.0f)); }

KVG_DEVICE uint32_t SharedAddress(const void* shared) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(shared));
}
KVG_DEVICE void CopyAsync16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(SharedAddress(shared)), "l"(global)
               : "memory");
}
KVG_DEVICE void CommitCopies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int pending>
KVG_DEVICE void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}

}  // namespace kvgauge::cuda

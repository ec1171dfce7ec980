// SPDX-License-Identifier: Apache-2.0
// Tensor core products of a warpgroup, which is four neighbouring warps, on sm_90a: c[64, 64] +=
// a[64, 16] * b[16, 64], f32 sums. Kernels that use them are launched where DeviceInfo::warpgroups
// is set, and are empty in code for other devices.
//
// c: warp w of the group has rows 16 w and the 15 after, and c[4 j] to c[4 j + 3] are what mma.h
// says of columns 8 j and the 7 after. `a` in registers is the warp's 16 rows, as mma.h says. In
// shared memory both operands are slabs: [2 halves of k][64][8 numbers], where the 64 are rows of a
// or columns of b; 16-byte aligned.
//
// Products are asynchronous, and chains onto one c are done in order. A thread goes through
//   WarpgroupBegin    what it wrote to c and to `a` is there
//   WarpgroupMultiply any number of them
//   WarpgroupCommit   those since the last commit are a group
//   WarpgroupWait     until at most so many groups are pending
// and touches no c and no `a` of pending products in between. Hold() around all of that keeps the
// compiler from moving work on them there. What threads wrote to shared memory is seen by products
// that begin behind their FenceSlabs() and a barrier, and stays until the products were waited for
// by every warp. Reached by all threads of the warpgroup; no kernel that uses them calls functions
// that are not inlined, since products then wait one by one.
//
// By the models of MMA-Sim, and as far as it was tried on an H100, a product has the bits of mma.h.
#pragma once

#include "core/dtype.h"
#include "cuda/device/simt.h"

namespace kvgauge::cuda {

inline constexpr int kWarpgroup = 4 * kWarp;
inline constexpr int kWarpgroupSide = 64;  // rows of a, columns of b
inline constexpr int kSlabBytes = 2048, kHalfSlabBytes = kSlabBytes / 2;

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
inline constexpr bool kHasWarpgroups = true;
#else
inline constexpr bool kHasWarpgroups = false;
#endif

// The fields of a shared memory descriptor, without swizzle: from one half of k to the other, and
// from eight rows to the next.
KVG_HOST_DEVICE constexpr uint64_t SlabDescriptor(uint32_t shared_address) {
  constexpr uint64_t kUnit = 16, kRowsBytes = 128;
  return (shared_address & 0x3ffffu) / kUnit | kHalfSlabBytes / kUnit << 16 |
         kRowsBytes / kUnit << 32;
}

#ifdef __CUDACC__

KVG_DEVICE void WarpgroupBegin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
KVG_DEVICE void WarpgroupCommit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int pending>
KVG_DEVICE void WarpgroupWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
KVG_DEVICE void FenceSlabs() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

template <int count>
KVG_DEVICE void Hold(float (&c)[count]) {
#pragma unroll
  for (int i = 0; i < count; ++i) asm volatile("" : "+f"(c[i])::"memory");
}
KVG_DEVICE void Hold(Uint4& a) {
  asm volatile("" : "+r"(a.x), "+r"(a.y), "+r"(a.z), "+r"(a.w)::"memory");
}

// Sums that an instruction names as %0 to %31, and says that it changes.
#define KVG_WARPGROUP_SUMS                                                                 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, " \
  "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
#define KVG_WARPGROUP_CHANGES(c)                                                                  \
  "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]), \
      "+f"(c[8]), "+f"(c[9]), "+f"(c[10]), "+f"(c[11]), "+f"(c[12]), "+f"(c[13]), "+f"(c[14]),    \
      "+f"(c[15]), "+f"(c[16]), "+f"(c[17]), "+f"(c[18]), "+f"(c[19]), "+f"(c[20]), "+f"(c[21]),  \
      "+f"(c[22]), "+f"(c[23]), "+f"(c[24]), "+f"(c[25]), "+f"(c[26]), "+f"(c[27]), "+f"(c[28]),  \
      "+f"(c[29]), "+f"(c[30]), "+f"(c[31])
// The numbers behind the operands: scale of c (a predicate), signs of a and b, both along k.
#define KVG_WARPGROUP_A_REGISTERS(c, a, b, types)                                \
  asm volatile(                                                                  \
      "{.reg .pred keep; setp.eq.u32 keep, 0, 0;\n"                              \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." types " " KVG_WARPGROUP_SUMS \
      ", {%32, %33, %34, %35}, %36, keep, 1, 1, 0;}"                             \
      : KVG_WARPGROUP_CHANGES(c)                                                 \
      : "r"((a).x), "r"((a).y), "r"((a).z), "r"((a).w), "l"(b))
#define KVG_WARPGROUP_A_SHARED(c, a, b, types)                                   \
  asm volatile(                                                                  \
      "{.reg .pred keep; setp.eq.u32 keep, 0, 0;\n"                              \
      "wgmma.mma_async.sync.aligned.m64n64k16.f32." types " " KVG_WARPGROUP_SUMS \
      ", %32, %33, keep, 1, 1, 0, 0;}"                                           \
      : KVG_WARPGROUP_CHANGES(c)                                                 \
      : "l"(a), "l"(b))

template <DType type>
KVG_DEVICE void WarpgroupMultiply(float (&c)[32], const Uint4& a, const void* b_slab) {
  const uint64_t b = SlabDescriptor(SharedAddress(b_slab));
  if constexpr (type == DType::kBF16) {
    KVG_WARPGROUP_A_REGISTERS(c, a, b, "bf16.bf16");
  } else {
    KVG_WARPGROUP_A_REGISTERS(c, a, b, "f16.f16");
  }
}
template <DType type>
KVG_DEVICE void WarpgroupMultiply(float (&c)[32], const void* a_slab, const void* b_slab) {
  const uint64_t a = SlabDescriptor(SharedAddress(a_slab));
  const uint64_t b = SlabDescriptor(SharedAddress(b_slab));
  if constexpr (type == DType::kBF16) {
    KVG_WARPGROUP_A_SHARED(c, a, b, "bf16.bf16");
  } else {
    KVG_WARPGROUP_A_SHARED(c, a, b, "f16.f16");
  }
}
#undef KVG_WARPGROUP_SUMS
#undef KVG_WARPGROUP_CHANGES
#undef KVG_WARPGROUP_A_REGISTERS
#undef KVG_WARPGROUP_A_SHARED

// The opposite of LoadMatrix4: lane l gives r[i], columns 2t, 2t + 1 of row g of matrix i, and the
// address of row l % 8 of matrix l / 8, 16-byte aligned.
KVG_DEVICE void StoreMatrix4(void* row, const Uint4& r) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(SharedAddress(row)),
      "r"(r.x), "r"(r.y), "r"(r.z), "r"(r.w)
      : "memory");
}

#else

// Beside what the device does, these end the program where the rules above are broken. Sums are NaN
// while products onto them are pending, and so is what StoreMatrix4 wrote until it is fenced.
void WarpgroupBegin();
void WarpgroupCommit();
void FenceSlabs();
void StoreMatrix4(void* row, const Uint4& r);
namespace emulated {
void WaitForProducts(int pending);
void Multiply(DType type, float* c, const Uint4* a, const void* a_slab, const void* b_slab);
}  // namespace emulated
template <int pending>
void WarpgroupWait() {
  emulated::WaitForProducts(pending);
}
template <int count>
void Hold(float (&)[count]) {}
inline void Hold(Uint4&) {}
template <DType type>
void WarpgroupMultiply(float (&c)[32], const Uint4& a, const void* b_slab) {
  emulated::Multiply(type, c, &a, nullptr, b_slab);
}
template <DType type>
void WarpgroupMultiply(float (&c)[32], const void* a_slab, const void* b_slab) {
  emulated::Multiply(type, c, nullptr, a_slab, b_slab);
}

#endif

}  // namespace kvgauge::cuda

// SPDX-License-Identifier: Apache-2.0
// Tensor core products of one warp: c[16, 8] += a[16, 16] * b[16, 8], f32 sums.
//
// What lane l holds, with g = l / 4 and t = l % 4 (two 16-bit numbers in a register, low half
// first):  a[0]: row g, k 2t, 2t + 1;  a[1]: row g + 8;  a[2]: row g, k 2t + 8, 2t + 9;  a[3]: row
// g + 8, the same;  b[0]: k 2t, 2t + 1 of column g;  b[1]: k 2t + 8, 2t + 9;  c[0], c[1]: row g,
// columns 2t, 2t + 1;  c[2], c[3]: row g + 8. Reached by all lanes of a warp. The order of the 16
// sums is the device's own, the same every time.
//
// Products of bytes: c[16, 8] += a[16, 32] * b[32, 8], a signed and b unsigned, exact. A register
// has four, the low byte first:  a[0]: row g, k 4t .. 4t + 3;  a[1]: row g + 8;  a[2]: row g, 16
// on;  a[3]: row g + 8, 16 on;  b[0]: k 4t .. 4t + 3 of column g;  b[1]: 16 on;  c as above.
#pragma once

#include "cuda/device/simt.h"

namespace kvgauge::cuda {

#ifdef __CUDACC__

KVG_DEVICE void MultiplyAddBf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
KVG_DEVICE void MultiplyAddF16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

KVG_DEVICE void MultiplyAddBytes(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8x8 matrices of 16-bit numbers from shared memory. `row`: lane l gives the address of row l
// % 8 of matrix l / 8, 16-byte aligned. Lane l gets columns 2t, 2t + 1 of row g of each;
// transposed: rows 2t, 2t + 1 of column g.
KVG_DEVICE void LoadMatrix4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}
KVG_DEVICE void LoadMatrix4Transposed(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(SharedAddress(row))
               : "memory");
}

#else

void MultiplyAddBf16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void MultiplyAddF16(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void MultiplyAddBytes(int32_t (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]);
void LoadMatrix4(uint32_t (&r)[4], const void* row);
void LoadMatrix4Transposed(uint32_t (&r)[4], const void* row);

#endif

}  // namespace kvgauge::cuda

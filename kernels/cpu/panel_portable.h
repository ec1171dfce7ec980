// SPDX-License-Identifier: Apache-2.0
// Panels in vector extensions of the compiler: runs on any processor.
#pragma once

#include "cpu/panel.h"

namespace kvgauge {
namespace {

// Four lanes, which the compiler maps to whatever the target has. Products and sums round
// separately: a fused multiply-add without hardware is a library call.
struct PortableVec {
  static constexpr int kLanes = 4;
  static constexpr int kRegisters = 16;
  using F = float __attribute__((vector_size(16)));
  using U = uint32_t __attribute__((vector_size(16)));

  static F Zero() { return F{}; }
  static F Set1(float x) { return F{x, x, x, x}; }
  static F Load(const float* p) {
    F v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  static void Store(float* p, F v) { std::memcpy(p, &v, sizeof(v)); }
  static F MulAdd(F a, F b, F c) { return a * b + c; }
  static F Add(F a, F b) { return a + b; }
  static F Mul(F a, F b) { return a * b; }
  static F Max(F a, F b) { return a > b ? a : b; }

  static U LoadU16(const uint16_t* p) { return U{p[0], p[1], p[2], p[3]}; }
  static F LoadBf16(const uint16_t* p) { return Bits(LoadU16(p) << 16); }
  static F LoadBf16Even(const uint16_t* p) { return Bits(LoadPairs(p) << 16); }
  static F LoadBf16Odd(const uint16_t* p) { return Bits(LoadPairs(p) & 0xffff0000u); }
  static F LoadF16(const uint16_t* p) {
    const U h = LoadU16(p);
    const U magnitude = (h & 0x7fffu) << 13;
    // The multiplication moves the exponent bias and normalises subnormals, exactly.
    const U finite = Bits(Bits(magnitude) * Set1(0x1p112f));
    const U special = reinterpret_cast<U>(magnitude >= 0x0f800000u) & 0x7f800000u;
    return Bits(finite | special | (h & 0x8000u) << 16);
  }
  // Rounded to nearest even; NaN stays NaN.
  static void StoreBf16(uint16_t* p, F v) {
    const U bits = Bits(v);
    const U rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const U nan = reinterpret_cast<U>((bits & 0x7fffffffu) > 0x7f800000u);
    const U out = (nan & (bits >> 16 | 0x40u)) | (~nan & rounded);
    for (int i = 0; i < kLanes; ++i) p[i] = static_cast<uint16_t>(out[i]);
  }
  static void StoreF16(uint16_t* p, F v) {
    for (int i = 0; i < kLanes; ++i) p[i] = F16(v[i]);
  }
  static void Prefetch(const void* p) { __builtin_prefetch(p); }

 private:
  static F Bits(U v) { return reinterpret_cast<F>(v); }
  static U Bits(F v) { return reinterpret_cast<U>(v); }
  static U LoadPairs(const uint16_t* p) {  // little-endian: the even value is the low half
    U v;
    std::memcpy(&v, p, sizeof(v));
    return v;
  }
  // core/dtype.h has the same function with its reasons; not used here because of the linker rule
  // in panel.h.
  static uint16_t F16(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
    if (magnitude < 0x38800000u) {
      float shifted;
      std::memcpy(&shifted, &magnitude, 4);
      shifted += 0.5f;
      std::memcpy(&bits, &shifted, 4);
      return static_cast<uint16_t>(sign | (bits - 0x3f000000u));
    }
    const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }
};

struct Panels {
  using ThreadScope = NoThreadScope;
  using Vec = PortableVec;
  using F32 = F32Panel<PortableVec>;
  using F16 = F16Panel<PortableVec>;
  using Bf16 = Bf16WidenPanel<PortableVec>;
};

}  // namespace
}  // namespace kvgauge

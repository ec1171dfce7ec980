// SPDX-License-Identifier: Apache-2.0
// Packing kernels over lanes.h; each packing_<isa>.cpp includes this once and exports the table.
//
// Eight codes, one per byte of a 64-bit word, become 8 * bits bits in three steps: neighbours move
// together within 16, then 32, then 64 bits. Unpacking runs the steps backwards.
#pragma once

#include "cpu/code_lanes.h"
#include "cpu/packing_kernels.h"

namespace kvgauge {
namespace {

constexpr int kWords = kLanes / 2;  // 64-bit words of a vector
constexpr float kHuge = 3.4e38f;

// The low `bits` of every field of `width` bits.
constexpr uint64_t FieldMask(int bits, int width) {
  uint64_t mask = 0;
  for (int at = 0; at < 64; at += width) mask |= ((uint64_t{1} << bits) - 1) << at;
  return mask;
}

template <int kBits, class Word>
KVG_INLINE Word Squeeze(Word x) {
  constexpr uint64_t k16 = FieldMask(kBits, 16), k32 = FieldMask(2 * kBits, 32),
                     k64 = FieldMask(4 * kBits, 64);
  x = (x & k16) | ((x >> (8 - kBits)) & (k16 << kBits));
  x = (x & k32) | ((x >> (16 - 2 * kBits)) & (k32 << (2 * kBits)));
  return (x & k64) | ((x >> (32 - 4 * kBits)) & (k64 << (4 * kBits)));
}
template <int kBits, class Word>
KVG_INLINE Word Spread(Word x) {
  constexpr uint64_t k16 = FieldMask(kBits, 16), k32 = FieldMask(2 * kBits, 32),
                     k64 = FieldMask(4 * kBits, 64);
  x = (x & k64) | ((x & (k64 << (4 * kBits))) << (32 - 4 * kBits));
  x = (x & k32) | ((x & (k32 << (2 * kBits))) << (16 - 2 * kBits));
  return (x & k16) | ((x & (k16 << kBits)) << (8 - kBits));
}

// The integer with 8 * kBits bits, where there is one.
template <int kBits>
struct Narrowed;
template <>
struct Narrowed<1> {
  typedef uint8_t Vector __attribute__((vector_size(kWords)));
};
template <>
struct Narrowed<2> {
  typedef uint16_t Vector __attribute__((vector_size(2 * kWords)));
};
template <>
struct Narrowed<4> {
  typedef uint32_t Vector __attribute__((vector_size(4 * kWords)));
};

template <int kBits>
void PackRow(const uint8_t* codes, int64_t n, uint8_t* packed) {
  int64_t i = 0;
  if constexpr (kBits != 3) {
    for (; i + 8 * kWords <= n; i += 8 * kWords, packed += kBits * kWords) {
      const U64 words = Squeeze<kBits>(LoadAs<U64>(codes + i));
      StoreAs(packed, __builtin_convertvector(words, typename Narrowed<kBits>::Vector));
    }
  }
  if constexpr (kBits == 3) {  // four bytes where the next word will overwrite the fourth
    for (; i + 16 <= n; i += 8, packed += kBits) {
      StoreAs(packed, static_cast<uint32_t>(Squeeze<kBits>(LoadAs<uint64_t>(codes + i))));
    }
  }
  for (; i + 8 <= n; i += 8, packed += kBits) {
    const uint64_t word = Squeeze<kBits>(LoadAs<uint64_t>(codes + i));
    std::memcpy(packed, &word, kBits);
  }
  if (i == n) return;
  uint64_t word = 0;
  for (int64_t k = i; k < n; ++k) word |= uint64_t{codes[k]} << (8 * (k - i));
  word = Squeeze<kBits>(word);
  for (int64_t k = 0; k < ((n - i) * kBits + 7) / 8; ++k) {
    packed[k] = static_cast<uint8_t>(word >> (8 * k));
  }
}

template <int kBits>
void UnpackRow(const uint8_t* packed, int64_t n, uint8_t* codes) {
  int64_t i = 0;
  if constexpr (kBits != 3) {
    for (; i + 8 * kWords <= n; i += 8 * kWords, packed += kBits * kWords) {
      const auto narrow = LoadAs<typename Narrowed<kBits>::Vector>(packed);
      StoreAs(codes + i, Spread<kBits>(__builtin_convertvector(narrow, U64)));
    }
  }
  if constexpr (kBits == 3) {  // the fourth byte belongs to the next word
    for (; i + 16 <= n; i += 8, packed += kBits) {
      StoreAs(codes + i, Spread<kBits>(LoadAs<uint32_t>(packed) & uint64_t{0xffffff}));
    }
  }
  for (; i + 8 <= n; i += 8, packed += kBits) {
    uint64_t word = 0;
    std::memcpy(&word, packed, kBits);
    StoreAs(codes + i, Spread<kBits>(word));
  }
  if (i == n) return;
  uint64_t word = 0;
  for (int64_t k = 0; k < ((n - i) * kBits + 7) / 8; ++k) word |= uint64_t{packed[k]} << (8 * k);
  word = Spread<kBits>(word);
  for (int64_t k = i; k < n; ++k) codes[k] = static_cast<uint8_t>(word >> (8 * (k - i)));
}

void Pack(const uint8_t* codes, int64_t n, int bits, uint8_t* packed) {
  switch (bits) {
    case 1:
      return PackRow<1>(codes, n, packed);
    case 2:
      return PackRow<2>(codes, n, packed);
    case 3:
      return PackRow<3>(codes, n, packed);
    case 4:
      return PackRow<4>(codes, n, packed);
    default:
      std::memcpy(packed, codes, static_cast<size_t>(n));
  }
}

void Unpack(const uint8_t* packed, int64_t n, int bits, uint8_t* codes) {
  switch (bits) {
    case 1:
      return UnpackRow<1>(packed, n, codes);
    case 2:
      return UnpackRow<2>(packed, n, codes);
    case 3:
      return UnpackRow<3>(packed, n, codes);
    case 4:
      return UnpackRow<4>(packed, n, codes);
    default:
      std::memcpy(codes, packed, static_cast<size_t>(n));
  }
}

void Quantize(const float* x, int64_t n, int bits, int64_t group, GroupQuantization kind,
              uint8_t* codes, float* scale, float* zero) {
  const bool symmetric = kind == GroupQuantization::kSymmetric;
  const float top_code = static_cast<float>((1 << bits) - 1);
  const float middle = static_cast<float>(1 << (bits - 1));
  for (int64_t g = 0; g < n / group; ++g, x += group, codes += group) {
    F low_lanes = Splat(x[0]), high_lanes = low_lanes;
    ForLanes(group, [&](int64_t i, auto count) {
      const F v = KeepOr(Load(x + i, count), count, x[0]);
      low_lanes = Min(v, low_lanes);
      high_lanes = Max(v, high_lanes);
    });
    const float low = -MaxLanes(-low_lanes), high = MaxLanes(high_lanes);
    const float largest = high > -low ? high : -low;
    const float step = symmetric ? largest / (middle - 1) : (high - low) / top_code;
    const float shift = symmetric ? 0.0f : low;
    const float base = symmetric ? middle : 0.0f;
    scale[g] = step;
    if (!symmetric) zero[g] = shift;
    // A step of 0 would divide 0 by 0; all codes are then `base`.
    const float divisor = step == 0 ? kHuge : step;
    ForLanes(group, [&](int64_t i, auto count) {
      const F code = Round((Load(x + i, count) - shift) / divisor) + base;
      const F kept = Min(Max(code, F{}), Splat(top_code));
      StoreCodes(codes + i, __builtin_convertvector(kept, I), count);
    });
  }
}

void Dequantize(const uint8_t* codes, const float* scale, const float* zero, int64_t n, int bits,
                int64_t group, GroupQuantization kind, float* out) {
  const bool symmetric = kind == GroupQuantization::kSymmetric;
  const float middle = static_cast<float>(1 << (bits - 1));
  for (int64_t g = 0; g < n / group; ++g, codes += group, out += group) {
    const float step = scale[g];
    if (symmetric) {
      ForLanes(group, [&](int64_t i, auto count) {
        Store(out + i, (LoadCodes(codes + i, count) - middle) * step, count);
      });
    } else {
      const float shift = zero[g];
      ForLanes(group, [&](int64_t i, auto count) {
        Store(out + i, LoadCodes(codes + i, count) * step + shift, count);
      });
    }
  }
}

constexpr PackingKernels kPackingKernels = {
    .pack = Pack,
    .unpack = Unpack,
    .quantize = Quantize,
    .dequantize = Dequantize,
};

}  // namespace
}  // namespace kvgauge

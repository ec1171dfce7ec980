// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/gguf/blocks.h"

#include <array>
#include <bit>

#include "core/dtype.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

constexpr int64_t kSmall = 32;   // elements of a block of the plain types
constexpr int64_t kLarge = 256;  // of those with two levels of scales

uint16_t U16(const uint8_t* at) { return static_cast<uint16_t>(at[0] | at[1] << 8); }
uint32_t U32(const uint8_t* at) { return U16(at) | uint32_t{U16(at + 2)} << 16; }
float F16(const uint8_t* at) { return F16ToF32(U16(at)); }
float AsFloat(int value) { return static_cast<float>(value); }

void ReadF32(const uint8_t* in, float* out) { out[0] = std::bit_cast<float>(U32(in)); }
void ReadF16(const uint8_t* in, float* out) { out[0] = F16(in); }
void ReadBf16(const uint8_t* in, float* out) { out[0] = Bf16ToF32(U16(in)); }

// Low halves of 16 bytes are elements 0-15, high halves 16-31.
int Nibble(const uint8_t* bytes, int i) { return i < 16 ? bytes[i] & 15 : bytes[i - 16] >> 4; }

void ReadQ41(const uint8_t* in, float* out) {
  const float d = F16(in), m = F16(in + 2);
  for (int i = 0; i < kSmall; ++i) out[i] = d * AsFloat(Nibble(in + 4, i)) + m;
}

int FiveBits(uint32_t high, const uint8_t* low, int i) {
  return Nibble(low, i) | static_cast<int>(high >> i & 1) << 4;
}

void ReadQ50(const uint8_t* in, float* out) {
  const float d = F16(in);
  const uint32_t high = U32(in + 2);
  for (int i = 0; i < kSmall; ++i) out[i] = d * AsFloat(FiveBits(high, in + 6, i) - 16);
}

void ReadQ51(const uint8_t* in, float* out) {
  const float d = F16(in), m = F16(in + 2);
  const uint32_t high = U32(in + 4);
  for (int i = 0; i < kSmall; ++i) out[i] = d * AsFloat(FiveBits(high, in + 8, i)) + m;
}

// Element `i` of 256 in two bits: runs of 32 bytes hold 128 elements, the first 32 of them lowest.
int TwoBits(const uint8_t* bytes, int i) {
  return bytes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

void ReadQ2K(const uint8_t* in, float* out) {
  const uint8_t *scales = in, *bits = in + 16;
  const float d = F16(in + 80), m = F16(in + 82);
  for (int i = 0; i < kLarge; ++i) {
    const uint8_t scale = scales[i / 16];
    out[i] = d * AsFloat(scale & 15) * AsFloat(TwoBits(bits, i)) - m * AsFloat(scale >> 4);
  }
}

void ReadQ3K(const uint8_t* in, float* out) {
  const uint8_t *mask = in, *bits = in + 32, *scales = in + 96;
  const float d = F16(in + 108);
  for (int i = 0; i < kLarge; ++i) {
    const int part = i / 16;
    const int low = part < 8 ? scales[part] & 15 : scales[part - 8] >> 4;
    const int high = scales[8 + part % 4] >> (part / 4 * 2) & 3;
    const int scale = (low | high << 4) - 32;
    const int lowered = (mask[i % 32] >> (i / 32) & 1) != 0 ? 0 : 4;
    out[i] = d * AsFloat(scale) * AsFloat(TwoBits(bits, i) - lowered);
  }
}

// Element `i` of 256 in four bits: runs of 32 bytes hold 64 elements, the first 32 of them low.
int FourBits(const uint8_t* bytes, int i) {
  return bytes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 15;
}

void ReadQ5K(const uint8_t* in, float* out) {
  const float d = F16(in), m = F16(in + 2);
  const uint8_t* high = in + 16;
  for (int part = 0; part < 8; ++part) {
    const SixBitPair six = SixBitsAt(in + 4, part);
    const float scale = d * AsFloat(six.scale), least = m * AsFloat(six.least);
    for (int i = part * 32; i < part * 32 + 32; ++i) {
      const int value = FourBits(in + 48, i) | (high[i % 32] >> part & 1) << 4;
      out[i] = scale * AsFloat(value) - least;
    }
  }
}

constexpr std::array<int8_t, 16> kIq4 = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};

void ReadIq4Nl(const uint8_t* in, float* out) {
  const float d = F16(in);
  for (int i = 0; i < kSmall; ++i) {
    out[i] = d * AsFloat(kIq4[static_cast<size_t>(Nibble(in + 2, i))]);
  }
}

void ReadIq4Xs(const uint8_t* in, float* out) {
  const float d = F16(in);
  const uint16_t high = U16(in + 2);
  for (int part = 0; part < 8; ++part) {
    const int low = in[4 + part / 2] >> (part % 2 * 4) & 15;
    const int scale = (low | (high >> (2 * part) & 3) << 4) - 32;
    for (int i = 0; i < 32; ++i) {
      const int index = Nibble(in + 8 + part * 16, i);
      out[part * 32 + i] = d * AsFloat(scale) * AsFloat(kIq4[static_cast<size_t>(index)]);
    }
  }
}

// Twice the values of E2M1.
constexpr std::array<int8_t, 16> kE2m1 = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

void ReadMxfp4(const uint8_t* in, float* out) {
  // Half of 2^(exponent - 127); the two least are below the normal numbers.
  const uint32_t exponent = in[0];
  const float d =
      std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
  for (int i = 0; i < kSmall; ++i) {
    out[i] = d * AsFloat(kE2m1[static_cast<size_t>(Nibble(in + 1, i))]);
  }
}

// Types that products read as they are: the formulas are theirs.
template <BlockFormat kFormat>
void ReadKept(const uint8_t* in, float* out) {
  ReadBlock(kFormat, in, out);
}

constexpr BlockType kTypes[] = {
    {0, "f32", 1, 4, ReadF32},
    {1, "f16", 1, 2, ReadF16},
    {2, "q4_0", kSmall, 18, ReadKept<BlockFormat::kQ40>, BlockFormat::kQ40},
    {3, "q4_1", kSmall, 20, ReadQ41},
    {6, "q5_0", kSmall, 22, ReadQ50},
    {7, "q5_1", kSmall, 24, ReadQ51},
    {8, "q8_0", kSmall, 34, ReadKept<BlockFormat::kQ80>, BlockFormat::kQ80},
    {10, "q2_k", kLarge, 84, ReadQ2K},
    {11, "q3_k", kLarge, 110, ReadQ3K},
    {12, "q4_k", kLarge, 144, ReadKept<BlockFormat::kQ4K>, BlockFormat::kQ4K},
    {13, "q5_k", kLarge, 176, ReadQ5K},
    {14, "q6_k", kLarge, 210, ReadKept<BlockFormat::kQ6K>, BlockFormat::kQ6K},
    {20, "iq4_nl", kSmall, 18, ReadIq4Nl},
    {23, "iq4_xs", kLarge, 136, ReadIq4Xs},
    {30, "bf16", 1, 2, ReadBf16},
    {39, "mxfp4", kSmall, 17, ReadMxfp4},
};

// Types that files may have and that are not read.
struct OtherType {
  uint32_t id;
  std::string_view name;
};
constexpr OtherType kOthers[] = {
    {9, "q8_1"},   {15, "q8_k"},  {16, "iq2_xxs"}, {17, "iq2_xs"}, {18, "iq3_xxs"}, {19, "iq1_s"},
    {21, "iq3_s"}, {22, "iq2_s"}, {24, "i8"},      {25, "i16"},    {26, "i32"},     {27, "i64"},
    {28, "f64"},   {29, "iq1_m"}, {34, "tq1_0"},   {35, "tq2_0"},  {40, "nvfp4"},
};

}  // namespace

std::span<const BlockType> BlockTypes() { return kTypes; }

Result<const BlockType*> FindBlockType(uint32_t id, std::string_view where) {
  std::vector<std::string> names;
  for (const BlockType& type : kTypes) {
    if (type.id == id) return &type;
    names.emplace_back(type.name);
  }
  for (const OtherType& other : kOthers) {
    if (other.id != id) continue;
    return Unsupported(StrCat(where, " is stored as ", other.name, ", which is not read; read are ",
                              Join(names, ", ")));
  }
  return BadInput(StrCat(where, " has the unknown type ", id, "; read are ", Join(names, ", ")));
}

}  // namespace kvgauge

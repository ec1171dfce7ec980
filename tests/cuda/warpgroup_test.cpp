// SPDX-License-Identifier: Apache-2.0
// The stand-in of the products of warpgroups: where numbers lie, the bits, and the mistakes that it
// must not let pass.
#include "cuda/device/warpgroup.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "core/rng.h"
#include "core/strings.h"
#include "cuda/attention_math.h"
#include "cuda/emulated_arrays.h"

namespace kvgauge::cuda {
namespace {

using emulated::Warpgroups;

// As the instruction set has it: address and both offsets in units of 16 bytes, no swizzle.
static_assert(SlabDescriptor(0) == (uint64_t{64} << 16 | uint64_t{8} << 32));
static_assert(SlabDescriptor(0x12340) == (SlabDescriptor(0) | 0x1234));
static_assert(SlabDescriptor(227 * 1024 - kSlabBytes) >> 62 == 0);

constexpr int kSteps = 3, kDeep = 16 * kSteps;  // of 16 along k
constexpr LaunchShape kOneWarpgroup = {
    .threads = kWarpgroup, .shared_bytes = 2 * kSteps * kSlabBytes, .warpgroups = true};

KVG_DEVICE uint32_t PairAt(const uint16_t* x, int row, int k) {
  return uint32_t{x[row * kDeep + k]} | uint32_t{x[row * kDeep + k + 1]} << 16;
}
// 16 rows of one step, as mma.h takes them on the left.
KVG_DEVICE Uint4 RowsAt(const uint16_t* x, int first_row, int step) {
  const int row = first_row + Lane() / 4, k = step * 16 + Lane() % 4 * 2;
  return {PairAt(x, row, k), PairAt(x, row + 8, k), PairAt(x, row, k + 8),
          PairAt(x, row + 8, k + 8)};
}

// c[64, 64] = a[64, kDeep] * b[64, kDeep]^T.
template <DType type>
KVG_KERNEL(kWarpgroup)
ProductOfWarps(const uint16_t* a, const uint16_t* b, float* c) {
  const int first_row = WarpIndex() * 16, g = Lane() / 4, t = Lane() % 4;
  for (int n = 0; n < 64; n += 8) {
    float sums[4] = {};
    for (int s = 0; s < kSteps; ++s) {
      MultiplyAdd<type>(sums, RowsAt(a, first_row, s), PairAt(b, n + g, s * 16 + t * 2),
                        PairAt(b, n + g, s * 16 + t * 2 + 8));
    }
    for (int i = 0; i < 4; ++i) c[(first_row + g + i / 2 * 8) * 64 + n + t * 2 + i % 2] = sums[i];
  }
}

KVG_DEVICE void MakeSlabs(const uint16_t* a, const uint16_t* b, unsigned char* slabs) {
  auto* const words = reinterpret_cast<uint32_t*>(slabs);
  for (int i = Thread(); i < kSteps * kSlabBytes / 4; i += kWarpgroup) {
    words[i] = PairAt(a, i / 4 % 64, i / 512 * 16 + i / 256 % 2 * 8 + i % 4 * 2);
  }
  const int first = WarpIndex() * 16, matrix = Lane() / 8;
  for (int s = 0; s < kSteps; ++s) {
    StoreMatrix4(slabs + (kSteps + s) * kSlabBytes + matrix / 2 * kHalfSlabBytes +
                     (first + matrix % 2 * 8 + Lane() % 8) * 16,
                 RowsAt(b, first, s));
  }
}
KVG_DEVICE void WriteSums(const float (&sums)[32], float* c) {
  for (int i = 0; i < 32; ++i) {
    const int row = WarpIndex() * 16 + Lane() / 4 + i % 4 / 2 * 8;
    c[row * 64 + i / 4 * 8 + Lane() % 4 * 2 + i % 2] = sums[i];
  }
}

template <DType type>
KVG_KERNEL(kWarpgroup)
ProductOfWarpgroup(const uint16_t* a, const uint16_t* b, bool in_registers, float* c) {
  KVG_DYNAMIC_SHARED(unsigned char, slabs);
  MakeSlabs(a, b, slabs);
  FenceSlabs();
  SyncBlock();
  Uint4 rows[kSteps];
  for (int s = 0; s < kSteps; ++s) rows[s] = RowsAt(a, WarpIndex() * 16, s);
  float sums[32] = {};
  Hold(sums);
  WarpgroupBegin();
  for (int s = 0; s < kSteps; ++s) {
    const unsigned char* const columns = slabs + (kSteps + s) * kSlabBytes;
    if (in_registers) {
      WarpgroupMultiply<type>(sums, rows[s], columns);
    } else {
      WarpgroupMultiply<type>(sums, slabs + s * kSlabBytes, columns);
    }
  }
  WarpgroupCommit();
  WarpgroupWait<0>();
  Hold(sums);
  WriteSums(sums, c);
}

std::vector<uint16_t> RandomNumbers(DType type, uint64_t seed) {
  Rng rng(seed, 0);
  std::vector<uint16_t> numbers;
  for (int i = 0; i < 64 * kDeep; ++i) {
    const float value = std::ldexp(static_cast<float>(rng.NextBelow(4095)) - 2047.0f,
                                   static_cast<int>(rng.NextBelow(12)) - 16);
    numbers.push_back(type == DType::kBF16 ? F32ToBf16(value) : F32ToF16(value));
  }
  return numbers;
}

template <DType type>
void ExpectBitsOfWarps(Warpgroups warpgroups, bool equal) {
  const WithWarpgroups given(warpgroups);
  const DeviceArray<uint16_t> a(RandomNumbers(type, 1)), b(RandomNumbers(type, 2));
  const DeviceArray<float> want(64 * 64), got(64 * 64);
  KVG_LAUNCH((ProductOfWarps<type>), {.threads = kWarpgroup}, nullptr, a.get(), b.get(),
             want.get());
  for (const bool in_registers : {true, false}) {
    for (int launch = 0; launch < 2; ++launch) {  // both orders
      KVG_LAUNCH((ProductOfWarpgroup<type>), kOneWarpgroup, nullptr, a.get(), b.get(), in_registers,
                 got.get());
      EXPECT_EQ(got.values() == want.values(), equal) << NameOf(type) << in_registers;
    }
  }
}

TEST(Warpgroup, ProductsHaveTheBitsOfThoseOfWarps) {
  const int64_t before = emulated::WarpgroupProducts();
  ExpectBitsOfWarps<DType::kBF16>(Warpgroups::kAsMma, true);
  ExpectBitsOfWarps<DType::kF16>(Warpgroups::kAsMma, true);
  EXPECT_EQ(emulated::WarpgroupProducts() - before, 2 * 4 * kSteps);
  ExpectBitsOfWarps<DType::kBF16>(Warpgroups::kInHalves, false);
}

KVG_KERNEL(kWarpgroup) TwoGroups(const uint16_t* a, const uint16_t* b, float* early, float* late) {
  KVG_DYNAMIC_SHARED(unsigned char, slabs);
  MakeSlabs(a, b, slabs);
  FenceSlabs();
  SyncBlock();
  float first[32] = {}, second[32] = {};
  WarpgroupBegin();
  for (float(*const sums)[32] : {&first, &second}) {
    WarpgroupMultiply<DType::kBF16>(*sums, slabs, slabs + kSteps * kSlabBytes);
    WarpgroupCommit();
  }
  WarpgroupWait<1>();
  WriteSums(first, early);
  WriteSums(second, early + 64 * 64);
  WarpgroupWait<0>();
  WriteSums(second, late);
}

TEST(Warpgroup, GroupsAreDoneWhenTheyAreWaitedFor) {
  const WithWarpgroups given(Warpgroups::kAsMma);
  const DeviceArray<uint16_t> a(RandomNumbers(DType::kBF16, 1)), b(RandomNumbers(DType::kBF16, 2));
  const DeviceArray<float> early(2 * 64 * 64), late(64 * 64);
  KVG_LAUNCH(TwoGroups, kOneWarpgroup, nullptr, a.get(), b.get(), early.get(), late.get());
  const std::vector<float> seen = early.values(), want = late.values();
  EXPECT_TRUE(std::equal(want.begin(), want.end(), seen.begin()));
  for (size_t i = want.size(); i < seen.size(); ++i) EXPECT_TRUE(std::isnan(seen[i]));
}

enum class Mistake { kNone, kNoBegin, kSlab, kRegisters, kSums, kNoWait, kNoFence };
KVG_KERNEL(kWarpgroup)
MakeMistake(Mistake mistake, const uint16_t* a, const uint16_t* b, float* c) {
  KVG_DYNAMIC_SHARED(unsigned char, slabs);
  MakeSlabs(a, b, slabs);
  if (mistake != Mistake::kNoFence) FenceSlabs();
  SyncBlock();
  float sums[32] = {};
  Uint4 rows = RowsAt(a, WarpIndex() * 16, 0);
  if (mistake != Mistake::kNoBegin) WarpgroupBegin();
  WarpgroupMultiply<DType::kBF16>(sums, rows, slabs + kSteps * kSlabBytes);
  WarpgroupCommit();
  if (mistake == Mistake::kSlab) slabs[kSteps * kSlabBytes + Thread()] ^= 1;
  if (mistake == Mistake::kRegisters) ++rows.w;
  for (float& sum : sums) sum = mistake == Mistake::kSums ? sum * 0.5f : sum;
  if (mistake != Mistake::kNoWait) WarpgroupWait<0>();
  WriteSums(sums, c);
}

TEST(WarpgroupDeathTest, FindsMistakes) {
  const DeviceArray<uint16_t> a(64 * kDeep), b(64 * kDeep);
  const DeviceArray<float> c(64 * 64);
  const auto launch = [&](Mistake mistake) {
    KVG_LAUNCH(MakeMistake, kOneWarpgroup, nullptr, mistake, a.get(), b.get(), c.get());
  };
  EXPECT_DEATH(launch(Mistake::kNone), "no instructions of warpgroups");
  const WithWarpgroups given(Warpgroups::kAsMma);
  launch(Mistake::kNone);
  EXPECT_DEATH(launch(Mistake::kNoBegin), "called no WarpgroupBegin");
  EXPECT_DEATH(launch(Mistake::kSlab), "a slab was written while");
  EXPECT_DEATH(launch(Mistake::kRegisters), "registers were written while");
  EXPECT_DEATH(launch(Mistake::kSums), "sums were written while");
  EXPECT_DEATH(launch(Mistake::kNoWait), "returns while its products are pending");
  EXPECT_DEATH(launch(Mistake::kNoFence), "writes that it did not fence");
}

}  // namespace
}  // namespace kvgauge::cuda

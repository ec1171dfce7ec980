// SPDX-License-Identifier: Apache-2.0
// The emulator itself: what kernels may rely on, and the mistakes it must not let pass.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "cuda/device/mma.h"
#include "cuda/device/simt.h"
#include "cuda/emulated/device_memory.h"
#include "cuda/emulated_arrays.h"

namespace kvgauge::cuda {
namespace {

KVG_KERNEL(64) SumOfBlock(const int32_t* x, int32_t* out) {
  KVG_SHARED(int32_t, sums, 2);
  const int32_t sum = WarpSum(x[BlockX() * 64 + Thread()]);
  if (Lane() == 0) sums[WarpIndex()] = sum;
  SyncBlock();
  if (Thread() == 0) out[BlockX()] = sums[0] + sums[1];
}

TEST(Emulator, BlocksReduceThroughWarpsAndSharedMemory) {
  std::vector<int32_t> values(3 * 64);
  std::iota(values.begin(), values.end(), 0);
  const DeviceArray<int32_t> x(values), out(3);
  for (int launch = 0; launch < 2; ++launch) {  // both orders
    KVG_LAUNCH(SumOfBlock, {.grid_x = 3, .threads = 64}, nullptr, x.get(), out.get());
    EXPECT_EQ(out.values(), (std::vector<int32_t>{2016, 6112, 10208}));
  }
}

KVG_KERNEL(32) WarpFunctions(int32_t* out) {
  const int lane = Lane();
  out[0 * 32 + lane] = ShuffleXor(lane, 5);
  out[1 * 32 + lane] = Shuffle(lane * 2, 7);
  out[2 * 32 + lane] = static_cast<int32_t>(Ballot(lane % 3 == 0));
  out[3 * 32 + lane] = WarpMax(lane ^ 9);
  out[4 * 32 + lane] = WarpMin(40 - lane);
  AtomicAdd(out + 5 * 32, lane);
}

TEST(Emulator, WarpFunctionsAnswerAsDevicesDo) {
  const DeviceArray<int32_t> out(6 * 32);
  KVG_LAUNCH(WarpFunctions, {.threads = 32}, nullptr, out.get());
  const std::vector<int32_t> got = out.values();
  uint32_t thirds = 0;
  for (int lane = 0; lane < 32; lane += 3) thirds |= uint32_t{1} << lane;
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(got[lane], lane ^ 5);
    EXPECT_EQ(got[32 + lane], 14);
    EXPECT_EQ(static_cast<uint32_t>(got[64 + lane]), thirds);
    EXPECT_EQ(got[96 + lane], 31);
    EXPECT_EQ(got[128 + lane], 9);
  }
  EXPECT_EQ(got[160], 31 * 32 / 2);
}

// c = a * b with both operands through shared memory, as kernels load them. a: [16, 16], b: [16, 8]
// row by row.
KVG_KERNEL(32) MultiplyTile(const uint16_t* a, const uint16_t* b, float* c) {
  KVG_SHARED(uint16_t, tile_a, 256);
  KVG_SHARED(uint16_t, tile_b, 256);
  for (int i = Lane(); i < 256; i += kWarp) tile_a[i] = a[i];
  for (int i = Lane(); i < 256; i += kWarp) tile_b[i] = i < 128 ? b[i] : 0;
  SyncBlock();
  const int lane = Lane();
  uint32_t fragment_a[4], loaded_b[4];
  LoadMatrix4(fragment_a, tile_a + lane % 16 * 16 + lane / 16 * 8);
  LoadMatrix4Transposed(loaded_b, tile_b + lane * 8);
  const uint32_t fragment_b[2] = {loaded_b[0], loaded_b[1]};
  float sums[4] = {0, 0, 0, 0};
  MultiplyAddBf16(sums, fragment_a, fragment_b);
  const int g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

TEST(Emulator, FragmentsAndMatrixLoadsFitTogether) {
  std::vector<uint16_t> a(256), b(128);
  for (int i = 0; i < 256; ++i) a[i] = F32ToBf16(static_cast<float>(i * 7 % 31 - 15));
  for (int i = 0; i < 128; ++i) b[i] = F32ToBf16(static_cast<float>(i * 5 % 23 - 11));
  const DeviceArray<uint16_t> device_a(a), device_b(b);
  const DeviceArray<float> c(128);
  KVG_LAUNCH(MultiplyTile, {.threads = 32}, nullptr, device_a.get(), device_b.get(), c.get());
  const std::vector<float> got = c.values();
  for (int i = 0; i < 16; ++i) {
    for (int j = 0; j < 8; ++j) {
      float sum = 0;
      for (int k = 0; k < 16; ++k) sum += Bf16ToF32(a[i * 16 + k]) * Bf16ToF32(b[k * 8 + j]);
      EXPECT_EQ(got[i * 8 + j], sum) << i << ", " << j;
    }
  }
}

// a: [16, 32] signed, b: [32, 8] unsigned; sums begin with `first`.
KVG_KERNEL(32) MultiplyByteTile(const int8_t* a, const uint8_t* b, int32_t first, int32_t* c) {
  const int g = Lane() / 4, t = Lane() % 4;
  uint32_t fragment_a[4] = {}, fragment_b[2] = {};
  for (int i = 0; i < 4; ++i) {
    for (int k = 0; k < 4; ++k) {
      const int column = i / 2 * 16 + 4 * t + k;
      fragment_a[i] |= uint32_t{static_cast<uint8_t>(a[(g + i % 2 * 8) * 32 + column])} << 8 * k;
      if (i < 2) fragment_b[i] |= uint32_t{b[(i * 16 + 4 * t + k) * 8 + g]} << 8 * k;
    }
  }
  int32_t sums[4] = {first, first, first, first};
  MultiplyAddBytes(sums, fragment_a, fragment_b);
  for (int i = 0; i < 4; ++i) c[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

TEST(Emulator, ProductsOfBytesAreExact) {
  std::vector<int8_t> a(512);
  std::vector<uint8_t> b(256);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<int8_t>(i * 77 % 256 - 128);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<uint8_t>(i * 91 % 256);
  const DeviceArray<int8_t> device_a(a);
  const DeviceArray<uint8_t> device_b(b);
  const DeviceArray<int32_t> c(128);
  KVG_LAUNCH(MultiplyByteTile, {.threads = 32}, nullptr, device_a.get(), device_b.get(), 1 << 30,
             c.get());
  const std::vector<int32_t> got = c.values();
  for (size_t i = 0; i < 16; ++i) {
    for (size_t j = 0; j < 8; ++j) {
      int32_t sum = 1 << 30;
      for (size_t k = 0; k < 32; ++k) sum += a[i * 32 + k] * b[k * 8 + j];
      EXPECT_EQ(got[i * 8 + j], sum) << i << ", " << j;
    }
  }
}

KVG_KERNEL(32) CopyInTwoGroups(const float* x, float* early, float* late) {
  KVG_DYNAMIC_SHARED(float, buffer);
  CopyAsync16(buffer + 4 * Lane(), x + 4 * Lane());
  CommitCopies();
  CopyAsync16(buffer + 128 + 4 * Lane(), x + 128 + 4 * Lane());
  CommitCopies();
  WaitCopies<1>();
  SyncBlock();
  for (int i = Lane(); i < 256; i += kWarp) early[i] = buffer[i];
  SyncBlock();
  WaitCopies<0>();
  SyncBlock();
  for (int i = Lane(); i < 256; i += kWarp) late[i] = buffer[i];
}

TEST(Emulator, CopiesArriveWhenTheyAreWaitedFor) {
  std::vector<float> values(256);
  std::iota(values.begin(), values.end(), 1.0f);
  const DeviceArray<float> x(values), early(256), late(256);
  KVG_LAUNCH(CopyInTwoGroups, {.threads = 32, .shared_bytes = 1024}, nullptr, x.get(), early.get(),
             late.get());
  EXPECT_EQ(late.values(), values);
  const std::vector<float> got = early.values();
  EXPECT_EQ(got[127], 128.0f);
  for (int i = 128; i < 256; ++i) EXPECT_TRUE(std::isnan(got[i]));
}

KVG_KERNEL(64) BarrierOfSome() {
  if (Thread() < 40) SyncBlock();
}
KVG_KERNEL(32) ShuffleOfSome(int32_t* out) {
  if (Lane() < 31) out[Lane()] = ShuffleXor(1, 1);
}
KVG_KERNEL(32) TwoFunctions(int32_t* out) {
  out[Lane()] = Lane() < 16 ? ShuffleXor(1, 1) : WarpSum(1);
}
KVG_KERNEL(32) WritePastShared(int32_t n) {
  KVG_SHARED(int32_t, small, 8);
  if (Thread() < n) small[Thread()] = 1;
}
KVG_KERNEL(32) WritePastEnd(int32_t* x) { x[Thread()] = 1; }

TEST(EmulatorDeathTest, NamesTheKernelThatDiverges) {
  const DeviceArray<int32_t> out(32);
  EXPECT_DEATH(KVG_LAUNCH(BarrierOfSome, {.threads = 64}, nullptr),
               "kernel BarrierOfSome.*SyncBlock.*40 wait");
  EXPECT_DEATH(KVG_LAUNCH(ShuffleOfSome, {.threads = 32}, nullptr, out.get()),
               "kernel ShuffleOfSome.*ShuffleXor");
  EXPECT_DEATH(KVG_LAUNCH(TwoFunctions, {.threads = 32}, nullptr, out.get()),
               "kernel TwoFunctions.*(ShuffleXor|WarpSum).*(ShuffleXor|WarpSum)");
  EXPECT_DEATH(KVG_LAUNCH(ShuffleOfSome, {.threads = 33}, nullptr, out.get()), "33 threads");
}

// A device has as many blocks along y as 16 bits count.
TEST(EmulatorDeathTest, SaysHowManyBlocksAGridHas) {
  const DeviceArray<int32_t> x(32);
  EXPECT_DEATH(KVG_LAUNCH(WritePastEnd, {.grid_y = 65536, .threads = 32}, nullptr, x.get()),
               "kernel WritePastEnd: a grid of 1 x 65536 x 1 blocks; expected at most 2147483647 x "
               "65535 x 65535");
}

TEST(EmulatorDeathTest, FindsWritesOutsideOfArrays) {
  EXPECT_DEATH(KVG_LAUNCH(WritePastShared, {.threads = 32}, nullptr, 9), "shared array small");
  EXPECT_DEATH(
      {
        const DeviceArray<int32_t> x(31);
        KVG_LAUNCH(WritePastEnd, {.threads = 32}, nullptr, x.get());
      },
      "past the end of a buffer of 124 bytes");
}

template <int count>
KVG_KERNEL(32)
TwoArrays(int32_t* out) {
  KVG_SHARED(int32_t, one, count);
  KVG_SHARED(int32_t, other, count);
  one[Thread()] = other[Thread()] = Thread();
  out[Thread()] = one[Thread()] + other[Thread()];
}

// Arrays, and arrays beside what a launch asks for, have the room that a device has.
TEST(EmulatorDeathTest, ArraysTakeNoMoreThanThereIs) {
  const DeviceArray<int32_t> out(32);
  constexpr int64_t kBoth = int64_t{48} * 1024;
  KVG_LAUNCH((TwoArrays<6144>), {.threads = 32, .shared_bytes = kMostSharedBytes - kBoth}, nullptr,
             out.get());
  EXPECT_EQ(out.values()[31], 62);
  EXPECT_DEATH(KVG_LAUNCH((TwoArrays<6148>), {.threads = 32}, nullptr, out.get()),
               "shared array other brings the arrays of a block to 49184 bytes");
  EXPECT_DEATH(
      KVG_LAUNCH((TwoArrays<6144>), {.threads = 32, .shared_bytes = kMostSharedBytes - kBoth + 16},
                 nullptr, out.get()),
      "49152 bytes, beside 117776 that the launch asks for");
}

TEST(EmulatorDeathTest, TheHostCannotTouchDeviceMemory) {
  const DeviceArray<int32_t> x(4);
  EXPECT_DEATH(x.get()[0] = 1, "");
  EXPECT_EQ(x.values()[0], 0);
  std::vector<int32_t> host(8);
  EXPECT_DEATH(CopyToHost(host.data(), x.get(), 32, nullptr), "leaves its buffer of 16");
  EXPECT_DEATH(CopyToDevice(x.get(), x.get(), 4, nullptr), "source of CopyToDevice");
}

TEST(Emulator, MemoryIsBoundedAndGivenBack) {
  const int64_t before = emulated::AllocatedBytes(), all = before + FreeBytes(nullptr);
  emulated::SetCapacity(before + (int64_t{1} << 20));
  const int64_t room = FreeBytes(nullptr);
  void* half = Malloc(room / 2, nullptr);
  ASSERT_NE(half, nullptr);
  EXPECT_EQ(Malloc(room / 2 + 1, nullptr), nullptr);
  EXPECT_EQ(emulated::AllocatedBytes(), before + room / 2);
  Free(half);
  EXPECT_EQ(emulated::AllocatedBytes(), before);
  emulated::SetCapacity(all);
}

}  // namespace
}  // namespace kvgauge::cuda

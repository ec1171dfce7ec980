// SPDX-License-Identifier: Apache-2.0
// Who attends to many rows: warpgroups only where they give the bits of the portable kernel.
#include "cuda/prefill_choice.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda/backend_parts.h"
#include "cuda/emulated_arrays.h"

namespace kvgauge::cuda {
namespace {

using emulated::Warpgroups;

PrefillChoice ChoiceNow() {
  DeviceInfo info;
  std::string why;
  EXPECT_TRUE(UseDevice(0, &info, &why)) << why;
  return {info, StreamOf(0)};
}

TEST(PrefillChoice, WarpgroupsThatAgreeAreUsed) {
  const WithWarpgroups given(Warpgroups::kAsMma);
  const int64_t before = emulated::WarpgroupProducts(), bytes = emulated::AllocatedBytes();
  const PrefillChoice choice = ChoiceNow();
  EXPECT_EQ(choice.Describe(), "prefill attention of bf16, f16 on warpgroups");
  EXPECT_GT(emulated::WarpgroupProducts(), before);
  EXPECT_EQ(emulated::AllocatedBytes(), bytes);
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    for (const int dim : {1, 8, 64, 72, 128, 200, 256}) {
      EXPECT_EQ(&choice.For(dtype, dim, dim), &kWarpgroupPrefill) << dim;
    }
    // Dims that one of the kernels has no room for.
    EXPECT_EQ(&choice.For(dtype, 64, 512), &kPortablePrefill);
    EXPECT_EQ(&choice.For(dtype, 576, 512), &kPortablePrefill);
  }
  EXPECT_EQ(&choice.For(DType::kF32, 64, 64), &kPortablePrefill);
}

TEST(PrefillChoice, OtherBitsLeaveThePortableKernel) {
  const WithWarpgroups given(Warpgroups::kInHalves);
  const PrefillChoice choice = ChoiceNow();
  EXPECT_EQ(choice.Describe(),
            "prefill attention by the portable kernel (warpgroups give other bits for dims of 64 "
            "and 64)");
  EXPECT_EQ(&choice.For(DType::kBF16, 64, 64), &kPortablePrefill);
  EXPECT_EQ(&choice.For(DType::kF16, 128, 128), &kPortablePrefill);
}

TEST(PrefillChoice, NothingIsTriedWhereItIsNotWanted) {
  const int64_t before = emulated::WarpgroupProducts();
  EXPECT_EQ(ProbePrefill(0),
            "prefill attention by the portable kernel (the device has no warpgroups)");
  const WithWarpgroups given(Warpgroups::kAsMma);
  ASSERT_EQ(setenv("KVGAUGE_CUDA_WARPGROUPS", "off", 1), 0);
  EXPECT_EQ(ProbePrefill(0),
            "prefill attention by the portable kernel (KVGAUGE_CUDA_WARPGROUPS=off is set)");
  ASSERT_EQ(unsetenv("KVGAUGE_CUDA_WARPGROUPS"), 0);
  EXPECT_EQ(emulated::WarpgroupProducts(), before);
}

TEST(PrefillChoice, ATypeWithoutRoomForItsTestIsLeft) {
  const WithWarpgroups given(Warpgroups::kAsMma);
  emulated::RefuseAllocations(0, 1);
  EXPECT_EQ(ChoiceNow().Describe(),
            "prefill attention of f16 on warpgroups, of bf16 by the portable kernel (the device "
            "has no room for the test)");
  EXPECT_EQ(emulated::RefusalsLeft(), 0);
}

}  // namespace
}  // namespace kvgauge::cuda

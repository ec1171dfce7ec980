// SPDX-License-Identifier: Apache-2.0
#include "kernels/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cpu/cpu.h"

namespace kvgauge {
namespace {

TEST(Tensor, SlicesAndIndexes) {
  std::vector<float> values(24);
  for (int i = 0; i < 24; ++i) values[i] = static_cast<float>(i);
  const Tensor t = View(values, {2, 3, 4});
  EXPECT_EQ(t.Numel(), 24);
  EXPECT_EQ(t[1].rank, 2);
  EXPECT_EQ(t[1][2].f32()[3], 23.0f);
  EXPECT_EQ(t.Slice(1, 2).f32()[0], 12.0f);
  EXPECT_EQ(t.Reshape({6, 4})[5].f32()[0], 20.0f);
  EXPECT_EQ(t.DebugString(), "f32[2, 3, 4]");
  Tensor strided = t;
  strided.shape[2] = 2;
  EXPECT_FALSE(strided.IsContiguous());
}

TEST(Buffer, IsZeroedAlignedAndMoves) {
  for (const int64_t size : {int64_t{1}, int64_t{1000}, int64_t{3} << 20}) {
    Buffer a = HostBuffer(size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
    EXPECT_GE(a.size_bytes(), size);
    const auto* bytes = static_cast<const uint8_t*>(a.data());
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(bytes[i], 0);
    const Buffer b = std::move(a);
    EXPECT_EQ(b.data(), bytes);
  }
  EXPECT_EQ(HostBuffer(0).data(), nullptr);
}

TEST(Buffer, WhatDoesNotFitIsThrownWithItsSize) {
  std::string message;
  try {
    HostBuffer(int64_t{1} << 60);
  } catch (const std::bad_alloc& error) {
    message = error.what();
  }
  EXPECT_THAT(message, ::testing::StartsWith("out of memory: cannot allocate 1"));
}

TEST(Isa, UnknownNamesTheKnown) {
  EXPECT_TRUE(ChooseIsa("portable").ok());
  EXPECT_TRUE(ChooseIsa("").ok());
  const Result<Isa> bad = ChooseIsa("portible");
  ASSERT_FALSE(bad.ok());
  EXPECT_THAT(bad.error().message, ::testing::HasSubstr("did you mean 'portable'"));
}

}  // namespace
}  // namespace kvgauge

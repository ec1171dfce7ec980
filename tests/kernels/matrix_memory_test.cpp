// SPDX-License-Identifier: Apache-2.0
#include "cpu/linear/matrix_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace kvgauge {
namespace {

char* Bytes(const Buffer& buffer) { return static_cast<char*>(buffer.data()); }

bool IsZero(const Buffer& buffer) {
  return std::all_of(Bytes(buffer), Bytes(buffer) + buffer.size_bytes(),
                     [](char byte) { return byte == 0; });
}

TEST(MatrixMemory, MatricesLieOneBehindTheOther) {
  const Buffer first = MatrixBuffer(100'000), second = MatrixBuffer(int64_t{70} << 20);
  Buffer third = MatrixBuffer(65'536);
  EXPECT_EQ(first.size_bytes(), 100'032);
  EXPECT_EQ(Bytes(second), Bytes(first) + 102'400);
  EXPECT_EQ(Bytes(third), Bytes(second) + second.size_bytes());
  EXPECT_TRUE(IsZero(first) && IsZero(third));
  std::memset(second.data(), 1, static_cast<size_t>(second.size_bytes()));
  std::memset(third.data(), 1, static_cast<size_t>(third.size_bytes()));
  // Its pages go; those of its neighbours stay.
  third = MatrixBuffer(65'536);
  EXPECT_TRUE(IsZero(third));
  EXPECT_TRUE(IsZero(first));
  EXPECT_EQ(Bytes(second)[second.size_bytes() - 1], 1);
}

TEST(MatrixMemory, OfAnySize) {
  for (const int64_t size : {0, 1, 63, 64, 65'535, 65'536, 5'000'001}) {
    const Buffer buffer = MatrixBuffer(size);
    ASSERT_GE(buffer.size_bytes(), size);
    EXPECT_LT(buffer.size_bytes(), size + 64);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    EXPECT_TRUE(IsZero(buffer));
  }
}

}  // namespace
}  // namespace kvgauge

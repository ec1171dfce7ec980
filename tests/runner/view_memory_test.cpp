// SPDX-License-Identifier: Apache-2.0
// Scratch of stages: zeros each time, apart from what else is in use, and cut from memory of
// before.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "kernels/ops.h"
#include "src/compress/view.h"

namespace kvgauge {
namespace {

TEST(ViewMemory, IsZerosEachTime) {
  const std::unique_ptr<Ops> ops = std::move(*MakeOps("cpu", MakeThreadSettings(1)));
  ViewMemory memory(int64_t{1} << 30);
  std::set<char*> before;
  for (int round = 0; round < 3; ++round) {
    memory.Begin();
    std::vector<Tensor> pieces;
    for (const int64_t n : {3, 5000, 0, 100000, 7, 60000, 1}) {
      pieces.push_back(memory.Take(*ops, DType::kF32, {n}));
      const Tensor& piece = pieces.back();
      const float* numbers = piece.f32();
      EXPECT_TRUE(std::all_of(numbers, numbers + n, [](float x) { return x == 0; }));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(piece.data) % 64, 0U);
      std::memset(piece.data, 0x7f, static_cast<size_t>(4 * n));
    }
    std::sort(pieces.begin(), pieces.end(),
              [](const Tensor& a, const Tensor& b) { return a.data < b.data; });
    for (size_t i = 1; i < pieces.size(); ++i) {
      EXPECT_LE(static_cast<char*>(pieces[i - 1].data) + pieces[i - 1].SizeBytes(),
                static_cast<char*>(pieces[i].data));
    }
    std::set<char*> places;
    for (const Tensor& piece : pieces) places.insert(static_cast<char*>(piece.data));
    if (round > 0) {
      EXPECT_EQ(places, before);
    }
    before = places;
  }
}

// A large piece that grows from step to step is seldom in another place.
TEST(ViewMemory, WhatIsKeptHasRoom) {
  const std::unique_ptr<Ops> ops = std::move(*MakeOps("cpu", MakeThreadSettings(1)));
  ViewMemory memory(int64_t{4} << 20);
  std::set<void*> places;
  for (int64_t n = 70000; n < 900000; n += 5000) {
    memory.Begin();
    const Tensor piece = memory.Take(*ops, DType::kF32, {n});
    places.insert(piece.data);
    std::memset(piece.data, 0x7f, static_cast<size_t>(4 * n));
  }
  EXPECT_LE(places.size(), 4U);
}

}  // namespace
}  // namespace kvgauge

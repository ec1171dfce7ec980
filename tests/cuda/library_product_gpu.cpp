// SPDX-License-Identifier: Apache-2.0
// The vendor's product is what it is taken for. Only a real device has one.
#include <gtest/gtest.h>

#include "core/rng.h"
#include "cuda/suite_device.h"
#include "kernels/library.h"

namespace kvgauge {
namespace {

// Integers so small that every sum is exact, in any order and in bf16.
std::vector<float> Signs(int64_t count, uint64_t seed) {
  Rng rng(seed, 0);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = static_cast<float>(rng.NextBelow(3)) - 1;
  return values;
}

TEST(LibraryProduct, MultipliesByTheTransposed) {
  Ops& ops = TestDevice();
  const Result<std::unique_ptr<LibraryProduct>> library = MakeLibraryProduct(ops);
  if (!library.ok()) GTEST_SKIP() << library.error().message;
  EXPECT_EQ((*library)->name().substr(0, 7), "cuBLAS ");
  constexpr int64_t m = 33, n = 70, k = 128;
  const std::vector<float> x = Signs(m * k, 1), w = Signs(n * k, 2);
  std::vector<Buffer> memory;
  const auto tensor = [&](int64_t rows, int64_t columns, DType dtype) {
    memory.push_back(ops.memory->Allocate(rows * columns * SizeOf(dtype)));
    return memory.back().As(dtype, {rows, columns});
  };
  const auto narrow = [&](const std::vector<float>& values, int64_t rows) {
    const Tensor wide = tensor(rows, k, DType::kF32), out = tensor(rows, k, DType::kBF16);
    ops.memory->Copy(View(values, {rows, k}), wide);
    ops.rows->Convert(wide, out);
    return out;
  };
  const Tensor product = tensor(m, n, DType::kBF16), wide = tensor(m, n, DType::kF32);
  (*library)->Multiply(narrow(x, m), narrow(w, n), product);
  ops.rows->Convert(product, wide);
  std::vector<float> got(static_cast<size_t>(m * n));
  ops.memory->Copy(wide, View(got, {m, n}));
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      float want = 0;
      for (int64_t p = 0; p < k; ++p) {
        want += x[static_cast<size_t>(i * k + p)] * w[static_cast<size_t>(j * k + p)];
      }
      ASSERT_EQ(got[static_cast<size_t>(i * n + j)], want) << i << ", " << j;
    }
  }
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "kernels/algebra.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends.h"
#include "reference/reference.h"
#include "support/compare.h"

namespace kvgauge {
namespace {

class EveryAlgebraBackend : public ::testing::Test {
 protected:
  EveryAlgebraBackend()
      : twin(MakeReferenceAlgebra()), backends(CpuBackends(MakeCpuAlgebra, {1, 2, 4})) {
    backends.push_back({"reference", MakeReferenceAlgebra()});
  }
  std::unique_ptr<AlgebraOps> twin;
  std::vector<Backend<AlgebraOps>> backends;
};

// [m, k] times [k, n] in double.
std::vector<float> Product(const std::vector<float>& a, const std::vector<float>& b, int64_t m,
                           int64_t k, int64_t n, bool a_transposed = false) {
  std::vector<float> out(m * n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < k; ++l) {
        sum += double{a[a_transposed ? l * m + i : i * k + l]} * b[l * n + j];
      }
      out[i * n + j] = static_cast<float>(sum);
    }
  }
  return out;
}

std::vector<float> Identity(int64_t n) {
  std::vector<float> out(n * n, 0.0f);
  for (int64_t i = 0; i < n; ++i) out[i * n + i] = 1;
  return out;
}

TEST_F(EveryAlgebraBackend, CosineHandWorked) {
  const std::vector<float> a = {3, 4, 0, 0}, b = {4, 3, 0, 5, 0, 0};
  for (const auto& [name, ops] : backends) {
    std::vector<float> out(6, 9.0f);
    ops->CosineSimilarity(View(a, {2, 2}), View(b, {3, 2}), View(out, {2, 3}));
    EXPECT_TRUE(AllWithin(out, std::vector<float>{0.96f, 0.8f, 0, 0, 0, 0}, 2e-7)) << name;
  }
}

TEST_F(EveryAlgebraBackend, CosineAgreesWithTwin) {
  for (const int64_t d : {1, 3, 16, 64, 130}) {
    for (const int64_t n : {1, 31, 32, 33}) {
      const int64_t m = 67;
      const std::vector<float> a = RandomValues(m * d, 1), b = RandomValues(n * d, 2);
      std::vector<float> want(m * n), alone(n);
      twin->CosineSimilarity(View(a, {m, d}), View(b, {n, d}), View(want, {m, n}));
      for (const auto& [name, ops] : backends) {
        std::vector<float> got(m * n);
        ops->CosineSimilarity(View(a, {m, d}), View(b, {n, d}), View(got, {m, n}));
        // d products and sums, relative to |a||b|.
        ASSERT_TRUE(AllWithin(got, want, kRound * (2.0 * static_cast<double>(d) + 4))) << name;
        for (int64_t i = 0; i < m; ++i) {
          ops->CosineSimilarity(View(a, {m, d}).Slice(i, i + 1), View(b, {n, d}),
                                View(alone, {1, n}));
          ASSERT_TRUE(SameBits(std::span(got).subspan(i * n, n), alone)) << name;
        }
      }
    }
  }
}

double Objective(const std::vector<float>& x, const std::vector<float>& centroids,
                 const std::vector<int32_t>& assignment, int64_t d) {
  double sum = 0;
  for (size_t i = 0; i < assignment.size(); ++i) {
    for (int64_t j = 0; j < d; ++j) {
      const double diff = double{x[i * d + j]} - centroids[assignment[i] * d + j];
      sum += diff * diff;
    }
  }
  return sum;
}

TEST_F(EveryAlgebraBackend, KMeansHandWorked) {
  // Two groups on a line; the third centroid is nobody's nearest and stays.
  const std::vector<float> x = {0, 2, 10, 12};
  for (const auto& [name, ops] : backends) {
    std::vector<float> centroids = {1, 9, 1000};
    std::vector<int32_t> assignment(4, -1);
    ops->KMeans(View(x, {4, 1}), 0, View(centroids, {3, 1}), View(assignment, {4}));
    EXPECT_THAT(assignment, ::testing::ElementsAre(0, 0, 1, 1)) << name;
    EXPECT_THAT(centroids, ::testing::ElementsAre(1, 9, 1000)) << name;
    ops->KMeans(View(x, {4, 1}), 3, View(centroids, {3, 1}), View(assignment, {4}));
    EXPECT_THAT(centroids, ::testing::ElementsAre(1, 11, 1000)) << name;
    // Half way between two equal choices: the lower index.
    std::vector<float> same = {5, 5, 7};
    std::vector<int32_t> one(1);
    ops->KMeans(View(std::vector<float>{6}, {1, 1}), 0, View(same, {3, 1}), View(one, {1}));
    EXPECT_EQ(one[0], 0) << name;
  }
}

TEST_F(EveryAlgebraBackend, KMeansImprovesAndAgreesWithTwin) {
  for (const auto& [n, d, k] : {std::array<int64_t, 3>{200, 5, 3}, {500, 32, 40}, {130, 67, 9}}) {
    // A channel with a large offset, as keys have.
    std::vector<float> x = RandomValues(n * d, 5);
    for (int64_t i = 0; i < n; ++i) x[i * d] += 100;
    const std::vector<float> start(x.begin(), x.begin() + k * d);
    std::vector<float> expected = start;
    std::vector<int32_t> twin_assignment(n);
    twin->KMeans(View(x, {n, d}), 6, View(expected, {k, d}), View(twin_assignment, {n}));
    const double twin_objective = Objective(x, expected, twin_assignment, d);
    for (const auto& [name, ops] : backends) {
      double before = 0;
      std::vector<float> centroids;
      std::vector<int32_t> assignment(n);
      for (int steps = 0; steps <= 6; steps += 2) {
        centroids = start;
        ops->KMeans(View(x, {n, d}), steps, View(centroids, {k, d}), View(assignment, {n}));
        const double now = Objective(x, centroids, assignment, d);
        if (steps > 0) {
          EXPECT_LE(now, before * (1 + 1e-6)) << name << " step " << steps;
        }
        before = now;
        // Each is with its nearest centroid, up to the rounding of a distance.
        for (int64_t i = 0; i < n; ++i) {
          double nearest = 1e300, own = 0;
          for (int64_t c = 0; c < k; ++c) {
            double distance = 0;
            for (int64_t j = 0; j < d; ++j) {
              const double diff = double{x[i * d + j]} - centroids[c * d + j];
              distance += diff * diff;
            }
            nearest = std::min(nearest, distance);
            if (c == assignment[i]) own = distance;
          }
          ASSERT_LE(own, nearest * (1 + kRound * (2.0 * static_cast<double>(d) + 8))) << name;
        }
      }
      EXPECT_NEAR(before, twin_objective, before * 1e-5) << name;
    }
  }
}

struct Size {
  int64_t m, n;
};

void CheckSvd(AlgebraOps& ops, const std::vector<float>& a, int64_t m, int64_t n,
              std::vector<float>* s_out = nullptr) {
  const int64_t r = std::min(m, n);
  std::vector<float> u(m * r), s(r), vt(r * n);
  ops.Svd(View(a, {m, n}), View(u, {m, r}), View(s, {r}), View(vt, {r, n}));
  const double size = Norm(a) + 1e-30;
  for (int64_t j = 0; j < r; ++j) {
    EXPECT_GE(s[j], 0);
    if (j > 0) {
      EXPECT_LE(s[j], s[j - 1]);
    }
    const float* row = vt.data() + j * n;
    const float largest =
        *std::max_element(row, row + n, [](float x, float y) { return std::abs(x) < std::abs(y); });
    EXPECT_GT(largest, 0) << "row " << j;
  }
  // The factors are computed in double and rounded to f32 once: each entry is off by kRound of
  // itself, a product of unit vectors by a few of those.
  std::vector<float> us = u;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < r; ++j) us[i * r + j] *= s[j];
  }
  EXPECT_TRUE(AllWithin(Product(us, vt, m, r, n), a, 5 * kRound * size));
  EXPECT_TRUE(AllWithin(Product(u, u, r, m, r, true), Identity(r), 4 * kRound));
  std::vector<float> v(n * r);
  for (int64_t j = 0; j < r; ++j) {
    for (int64_t i = 0; i < n; ++i) v[i * r + j] = vt[j * n + i];
  }
  EXPECT_TRUE(AllWithin(Product(v, v, r, n, r, true), Identity(r), 4 * kRound));
  if (s_out != nullptr) *s_out = s;
}

TEST_F(EveryAlgebraBackend, SvdReconstructs) {
  for (const Size size : {Size{1, 1},
                          {1, 7},
                          {7, 1},
                          {2, 2},
                          {5, 5},
                          {20, 6},
                          {6, 20},
                          {33, 32},
                          {64, 64},
                          {100, 17}}) {
    const std::vector<float> a = RandomValues(size.m * size.n, 77);
    std::vector<float> want, got;
    CheckSvd(*twin, a, size.m, size.n, &want);
    for (const auto& [name, ops] : backends) {
      SCOPED_TRACE(StrCat(name, " ", size.m, "x", size.n));
      CheckSvd(*ops, a, size.m, size.n, &got);
      EXPECT_TRUE(AllWithin(got, want, 2 * kRound * Norm(a)));
    }
  }
}

TEST_F(EveryAlgebraBackend, SvdOfDeficientMatrices) {
  for (const auto& [name, ops] : backends) {
    SCOPED_TRACE(name);
    CheckSvd(*ops, std::vector<float>(12, 0.0f), 4, 3);
    CheckSvd(*ops, std::vector<float>(12, 1.0f), 3, 4);  // rank 1
    const std::vector<float> thin = RandomValues(20 * 3, 4), wide = RandomValues(3 * 8, 5);
    CheckSvd(*ops, Product(thin, wide, 20, 3, 8), 20, 8);  // rank 3
    CheckSvd(*ops, Identity(6), 6, 6);
  }
}

TEST_F(EveryAlgebraBackend, SvdHandWorked) {
  const std::vector<float> a = {0, 2, -3, 0};  // already orthogonal, in the wrong order
  for (const auto& [name, ops] : backends) {
    std::vector<float> u(4), s(2), vt(4);
    ops->Svd(View(a, {2, 2}), View(u, {2, 2}), View(s, {2}), View(vt, {2, 2}));
    EXPECT_TRUE(AllWithin(s, std::vector<float>{3, 2}, 1e-6)) << name;
    EXPECT_TRUE(AllWithin(u, std::vector<float>{0, 1, -1, 0}, 1e-7)) << name;
    EXPECT_TRUE(AllWithin(vt, std::vector<float>{1, 0, 0, 1}, 1e-7)) << name;
  }
}

// The symmetric products of the columns of x, [n, n]: no negative eigenvalues.
std::vector<float> ProductsOfColumns(const std::vector<float>& x, int64_t rows, int64_t n) {
  return Product(x, x, n, rows, n, true);
}

void CheckEigenvectors(AlgebraOps& ops, const std::vector<float>& a, int64_t n, int64_t r,
                       std::vector<float>* values_out = nullptr) {
  std::vector<float> values(r), vectors(r * n);
  ops.Eigenvectors(View(a, {n, n}), View(values, {r}), View(vectors, {r, n}));
  std::vector<float> across(n * r), sized(n * r);
  for (int64_t i = 0; i < r; ++i) {
    if (i > 0) {
      EXPECT_LE(values[i], values[i - 1]);
    }
    const float* row = vectors.data() + i * n;
    const float largest =
        *std::max_element(row, row + n, [](float x, float y) { return std::abs(x) < std::abs(y); });
    EXPECT_GT(largest, 0) << "row " << i;
    for (int64_t j = 0; j < n; ++j) {
      across[j * r + i] = row[j];
      sized[j * r + i] = row[j] * values[i];
    }
  }
  // Computed in double and rounded to f32 once, as the factors of Svd are.
  EXPECT_TRUE(AllWithin(Product(across, across, r, n, r, true), Identity(r), 4 * kRound));
  EXPECT_TRUE(AllWithin(Product(a, across, n, n, r), sized, 5 * kRound * (Norm(a) + 1e-30)));
  if (values_out != nullptr) *values_out = values;
}

void CheckEigenvectorsOfSizes(AlgebraOps& twin, const std::vector<Backend<AlgebraOps>>& backends,
                              const std::vector<Size>& sizes) {
  for (const Size size : sizes) {
    const int64_t n = size.m, r = size.n;
    for (const int64_t rows : {2 * n, std::max<int64_t>(n / 3, 1)}) {  // the latter: of lower rank
      const std::vector<float> a = ProductsOfColumns(RandomValues(rows * n, 31), rows, n);
      std::vector<float> want, got;
      CheckEigenvectors(twin, a, n, r, &want);
      for (const auto& [name, ops] : backends) {
        SCOPED_TRACE(StrCat(name, " ", r, " of ", n, ", rank ", std::min(rows, n)));
        CheckEigenvectors(*ops, a, n, r, &got);
        EXPECT_TRUE(AllWithin(got, want, 2 * kRound * Norm(a)));
      }
    }
  }
}

TEST_F(EveryAlgebraBackend, EigenvectorsAreTurnedIntoMultiples) {
  CheckEigenvectorsOfSizes(*twin, backends, {{1, 1}, {2, 2}, {3, 1}, {5, 5}, {16, 3}, {64, 64}});
}

TEST_F(EveryAlgebraBackend, EigenvectorsOfLargerMatrices) {
  CheckEigenvectorsOfSizes(*twin, backends, {{130, 9}});
}

// More rows than mirrors that are kept beside a matrix, and enough for several parts of its rows.
TEST_F(EveryAlgebraBackend, EigenvectorsOfManyRows) {
  constexpr int64_t n = 333;
  for (const int64_t rows : {2 * n, n / 3}) {
    const std::vector<float> a = ProductsOfColumns(RandomValues(rows * n, 32), rows, n);
    for (const auto& [name, ops] : backends) {
      if (name == "reference") continue;  // takes its time
      SCOPED_TRACE(name);
      CheckEigenvectors(*ops, a, n, 40);
    }
  }
}

TEST_F(EveryAlgebraBackend, EigenvectorsOfSpecialMatrices) {
  std::vector<float> parts(36, 0.0f);  // two squares that share nothing, one of them of rank 1
  for (int i = 0; i < 3; ++i) {
    for (int j = 0; j < 3; ++j) parts[i * 6 + j] = 1.0f;
    parts[(i + 3) * 6 + i + 3] = static_cast<float>(i);
  }
  for (const auto& [name, ops] : backends) {
    SCOPED_TRACE(name);
    CheckEigenvectors(*ops, std::vector<float>(16, 0.0f), 4, 4);
    CheckEigenvectors(*ops, std::vector<float>(25, 2.0f), 5, 5);  // rank 1
    CheckEigenvectors(*ops, Identity(6), 6, 4);
    CheckEigenvectors(*ops, parts, 6, 6);
    std::vector<float> tiny = ProductsOfColumns(RandomValues(40 * 20, 8, 1e-12f), 40, 20);
    CheckEigenvectors(*ops, tiny, 20, 20);
  }
}

// Squares that share nothing, of many sizes: the steps of one leave vectors of others alone.
TEST_F(EveryAlgebraBackend, EigenvectorsOfSquaresSideBySide) {
  constexpr int64_t n = 131;
  std::vector<float> a(n * n, 0.0f);
  int64_t first = 0;
  for (const int64_t size : {40, 1, 2, 50, 3, 35}) {
    const std::vector<float> square = ProductsOfColumns(
        RandomValues(2 * size * size, static_cast<uint64_t>(size)), 2 * size, size);
    for (int64_t i = 0; i < size; ++i) {
      for (int64_t j = 0; j < size; ++j) a[(first + i) * n + first + j] = square[i * size + j];
    }
    first += size;
  }
  ASSERT_EQ(first, n);
  for (const auto& [name, ops] : backends) {
    SCOPED_TRACE(name);
    std::vector<float> want, got;
    CheckEigenvectors(*twin, a, n, n, &want);
    for (const int64_t r : {1, 33, 131}) {
      CheckEigenvectors(*ops, a, n, r, &got);
      EXPECT_TRUE(AllWithin(got, {want.begin(), want.begin() + r}, 2 * kRound * Norm(a)));
    }
  }
}

TEST_F(EveryAlgebraBackend, QrReconstructs) {
  for (const Size size : {Size{1, 1}, {5, 1}, {4, 4}, {17, 5}, {64, 33}, {200, 30}}) {
    const int64_t m = size.m, n = size.n;
    for (const bool deficient : {false, true}) {
      std::vector<float> a = RandomValues(m * n, 12);
      for (int64_t i = 0; deficient && i < m; ++i) a[i * n] = 0;  // a column of zeros
      std::vector<float> want_q(m * n), want_r(n * n);
      twin->Qr(View(a, {m, n}), View(want_q, {m, n}), View(want_r, {n, n}));
      for (const auto& [name, ops] : backends) {
        SCOPED_TRACE(StrCat(name, " ", m, "x", n));
        std::vector<float> q(m * n), r(n * n);
        ops->Qr(View(a, {m, n}), View(q, {m, n}), View(r, {n, n}));
        EXPECT_TRUE(AllWithin(Product(q, r, m, n, n), a, 5 * kRound * Norm(a)));
        EXPECT_TRUE(AllWithin(Product(q, q, n, m, n, true), Identity(n), 4 * kRound));
        for (int64_t i = 0; i < n; ++i) {
          EXPECT_GE(r[i * n + i], 0);
          for (int64_t j = 0; j < i; ++j) EXPECT_EQ(r[i * n + j], 0);
        }
        if (!deficient) {
          EXPECT_TRUE(AllWithin(r, want_r, 2 * kRound * Norm(a)));
        }
      }
    }
  }
}

TEST_F(EveryAlgebraBackend, DirectionsBetweenHandWorked) {
  const float half = std::sqrt(0.5f);
  // A right angle, one direction twice, opposite ones, none, and one of the two.
  const std::vector<float> a = {2, 0, 0, 3, 1, 0, 0, 0, 0, 0};
  const std::vector<float> b = {0, 5, 0, 1, -4, 0, 0, 0, 0, 2};
  for (const auto& [name, ops] : backends) {
    std::vector<float> out(10, 9.0f), a_norm(5), b_norm(5);
    ops->DirectionsBetween(View(a, {5, 2}), View(b, {5, 2}), 0.5, View(out, {5, 2}),
                           View(a_norm, {5}), View(b_norm, {5}));
    const std::vector<float> want = {half, half, 0, 1, 0, 0, 0, 0, 0, 1};
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(out[i], want[i], 1e-6) << name << i;
    EXPECT_EQ(a_norm, (std::vector<float>{2, 3, 1, 0, 0})) << name;
    EXPECT_EQ(b_norm, (std::vector<float>{5, 1, 4, 0, 2})) << name;
  }
}

// At that share of the arc, whatever its length.
TEST_F(EveryAlgebraBackend, DirectionsBetweenLieOnTheArc) {
  constexpr int64_t n = 70, d = 33;
  for (const double weight : {0.0, 0.3, 0.6, 1.0}) {
    std::vector<float> a = RandomValues(n * d, 1), b = RandomValues(n * d, 2);
    for (int64_t i = 0; i < n; ++i) {  // from nearly alike to nearly opposite
      const float share = static_cast<float>(i) / n, sign = i % 2 == 0 ? 1.0f : -1.0f;
      for (int64_t k = i * d; k < (i + 1) * d; ++k) {
        b[k] = share * b[k] + sign * (1 - share) * a[k];
      }
    }
    for (const auto& [name, ops] : backends) {
      SCOPED_TRACE(StrCat(name, " weight ", weight));
      std::vector<float> out(n * d), a_norm(n), b_norm(n);
      ops->DirectionsBetween(View(a, {n, d}), View(b, {n, d}), weight, View(out, {n, d}),
                             View(a_norm, {n}), View(b_norm, {n}));
      const auto dot = [&](const std::vector<float>& x, const std::vector<float>& y, int64_t i) {
        double sum = 0;
        for (int64_t k = i * d; k < (i + 1) * d; ++k) sum += double{x[k]} * y[k];
        return sum;
      };
      for (int64_t i = 1; i < n; ++i) {
        const double aa = std::sqrt(dot(a, a, i)), bb = std::sqrt(dot(b, b, i));
        ASSERT_NEAR(a_norm[i], aa, 1e-5 * aa);
        ASSERT_NEAR(b_norm[i], bb, 1e-5 * bb);
        ASSERT_NEAR(dot(out, out, i), 1, 1e-5);
        if (i % 2 == 1 && i < 3) continue;  // all but opposite: any direction is as near
        const double angle = std::acos(std::clamp(dot(a, b, i) / aa / bb, -1.0, 1.0));
        ASSERT_NEAR(dot(a, out, i) / aa, std::cos(weight * angle), 1e-4) << i;
        ASSERT_NEAR(dot(b, out, i) / bb, std::cos((1 - weight) * angle), 1e-4) << i;
      }
    }
  }
}

TEST_F(EveryAlgebraBackend, HadamardHandWorked) {
  for (const auto& [name, ops] : backends) {
    std::vector<float> x = {1, 2, 3, 4};
    ops->Hadamard(View(x, {1, 4}));
    EXPECT_THAT(x, ::testing::ElementsAre(5, -1, -2, 0)) << name;
    std::vector<float> one = {3};
    ops->Hadamard(View(one, {1, 1}));
    EXPECT_EQ(one[0], 3) << name;
  }
}

TEST_F(EveryAlgebraBackend, HadamardAgreesWithTwinAndUndoesItself) {
  for (const int64_t d : {1, 2, 4, 8, 16, 32, 64, 128, 1024}) {
    const int64_t m = d == 128 ? 64 : 5;
    const std::vector<float> data = RandomValues(m * d, 6);
    Matrix want = Matrix::Of(data, d);
    twin->Hadamard(want.view());
    const double stages = std::log2(static_cast<double>(d)) + 2;
    for (const auto& [name, ops] : backends) {
      Matrix got = Matrix::Of(data, d, 3), alone = Matrix::Of(data, d);
      ops->Hadamard(got.view());
      ASSERT_TRUE(got.Intact()) << name;
      // Every stage rounds once; entries are below the norm.
      ASSERT_TRUE(AllWithin(got.values(), want.values(), stages * kRound * Norm(data))) << name;
      for (int64_t i = 0; i < m; ++i) ops->Hadamard(alone.view().Slice(i, i + 1));
      ASSERT_EQ(got.FirstDifference(alone), -1) << name;
      ops->Hadamard(got.view());
      ASSERT_TRUE(AllWithin(got.values(), data, 2 * stages * kRound * Norm(data))) << name;
    }
  }
}

// Threads share out rows, clusters and pairs of columns: none may change a bit. Sizes are such that
// threads are woken.
TEST_F(EveryAlgebraBackend, ThreadsDoNotChangeBits) {
  const int64_t n = 300, d = 64, k = 50;
  const std::vector<float> x = RandomValues(n * d, 8);
  for (const Isa isa : SupportedIsas()) {
    std::vector<std::vector<float>> results;
    for (const int threads : {1, 2, 4}) {
      const auto ops = MakeCpuAlgebra(isa, ThreadSettings{threads});
      std::vector<float> centroids(x.begin(), x.begin() + k * d), cosine(n * n), q(n * d), r(d * d),
          all;
      std::vector<int32_t> assignment(n);
      ops->KMeans(View(x, {n, d}), 4, View(centroids, {k, d}), View(assignment, {n}));
      ops->CosineSimilarity(View(x, {n, d}), View(x, {n, d}), View(cosine, {n, n}));
      ops->Qr(View(x, {n, d}), View(q, {n, d}), View(r, {d, d}));
      for (const auto* part : {&centroids, &cosine, &q, &r}) {
        all.insert(all.end(), part->begin(), part->end());
      }
      all.insert(all.end(), assignment.begin(), assignment.end());
      results.push_back(std::move(all));
    }
    EXPECT_TRUE(SameBits(results[1], results[0])) << NameOf(isa);
    EXPECT_TRUE(SameBits(results[2], results[0])) << NameOf(isa);
  }
}

TEST(AlgebraOps, ThreadsDoNotChangeTheSvd) {
  // Nearly diagonal: a few sweeps, each of many rounds that wake threads.
  const int64_t n = 112;
  std::vector<float> a = RandomValues(n * n, 9, 0.003f);
  for (int64_t i = 0; i < n; ++i) a[i * n + i] += static_cast<float>(i + 1);
  std::vector<float> u[2], s[2], vt[2];
  for (const int threads : {1, 2}) {
    u[threads - 1].resize(n * n), s[threads - 1].resize(n), vt[threads - 1].resize(n * n);
    MakeCpuAlgebra(SupportedIsas().back(), ThreadSettings{threads})
        ->Svd(View(a, {n, n}), View(u[threads - 1], {n, n}), View(s[threads - 1], {n}),
              View(vt[threads - 1], {n, n}));
  }
  EXPECT_TRUE(SameBits(u[1], u[0]));
  EXPECT_TRUE(SameBits(s[1], s[0]));
  EXPECT_TRUE(SameBits(vt[1], vt[0]));
}

TEST(AlgebraOps, ThreadsDoNotChangeEigenvectors) {
  const int64_t n = 300;
  const std::vector<float> a = ProductsOfColumns(RandomValues(2 * n * n, 9), 2 * n, n);
  std::vector<float> values[2], vectors[2];
  for (const int threads : {1, 2}) {
    values[threads - 1].resize(n), vectors[threads - 1].resize(n * n);
    MakeCpuAlgebra(SupportedIsas().back(), ThreadSettings{threads})
        ->Eigenvectors(View(a, {n, n}), View(values[threads - 1], {n}),
                       View(vectors[threads - 1], {n, n}));
  }
  EXPECT_TRUE(SameBits(values[1], values[0]));
  EXPECT_TRUE(SameBits(vectors[1], vectors[0]));
}

TEST(AlgebraOps, MoreEigenvectorsDoNotChangeTheFirst) {
  const int64_t n = 150;
  const std::vector<float> a = ProductsOfColumns(RandomValues(2 * n * n, 10), 2 * n, n);
  for (const Isa isa : SupportedIsas()) {
    const auto ops = MakeCpuAlgebra(isa, ThreadSettings{1});
    std::vector<float> values(n), vectors(n * n);
    ops->Eigenvectors(View(a, {n, n}), View(values, {n}), View(vectors, {n, n}));
    for (const int64_t r : {1, 32, 70}) {
      std::vector<float> few(r), few_vectors(r * n);
      ops->Eigenvectors(View(a, {n, n}), View(few, {r}), View(few_vectors, {r, n}));
      EXPECT_TRUE(SameBits(few, {values.begin(), values.begin() + r})) << r;
      EXPECT_TRUE(SameBits(few_vectors, {vectors.begin(), vectors.begin() + r * n})) << r;
    }
  }
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Householder mirrors leave a matrix of three diagonals; implicit QL steps with Wilkinson's shift
// leave one (Golub and Van Loan, Matrix Computations, 8.3). Threads share out rows, or columns of
// one row's step, and no sum goes across two threads, so their number does not change a bit.
#include "cpu/algebra/algebra_eigen.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "cpu/split_work.h"

namespace kvgauge {
namespace {

constexpr double kDouble_ns = 0.3;

// Row-major square of doubles.
struct Square {
  explicit Square(int64_t size) : n(size), values(static_cast<size_t>(size * size), 0.0) {}
  double* operator[](int64_t i) { return values.data() + i * n; }
  const double* operator[](int64_t i) const { return values.data() + i * n; }

  int64_t n;
  std::vector<double> values;
};

// a = Q T Q^T: row i of `mirrors` holds, from i + 1 on, the vector h of the i-th mirror
// 1 - shares[i] h h^T, and Q is their product in order. T has `diagonal`, and beside[i] between
// i and i + 1.
struct Tridiagonal {
  Tridiagonal(const AlgebraKernels& k, ThreadSettings threads, const Tensor& a)
      : mirrors(a.shape[0]), shares(size(), 0.0), diagonal(size()), beside(size(), 0.0) {
    const int64_t n = mirrors.n;
    Square rest(n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < n; ++j) rest[i][j] = a.f32()[std::max(i, j) * n + std::min(i, j)];
    }
    std::vector<double> image(size());
    for (int64_t i = 0; i + 1 < n; ++i) {
      double* h = mirrors[i];
      const int64_t from = i + 1, count = n - from;
      std::copy_n(rest[i] + from, count, h + from);
      const double norm = std::sqrt(k.dot(h + from, h + from, count));
      // What is left of a row that is zero already needs no mirror.
      const double others = k.dot(h + from + 1, h + from + 1, count - 1);
      if (others == 0) {
        beside[static_cast<size_t>(i)] = h[from];
        continue;
      }
      const double sign = h[from] < 0 ? -1 : 1;
      beside[static_cast<size_t>(i)] = -sign * norm;
      h[from] += sign * norm;
      const double share = 2 / k.dot(h + from, h + from, count);
      shares[static_cast<size_t>(i)] = share;
      // rest - h w^T - w h^T, where w = p - share / 2 (p . h) h and p = share rest h.
      const double cost = kDouble_ns * static_cast<double>(count);
      SplitWork(threads, count, cost, [&](int64_t row) {
        image[static_cast<size_t>(from + row)] =
            share * k.dot(rest[from + row] + from, h + from, count);
      });
      const double back = share / 2 * k.dot(image.data() + from, h + from, count);
      k.axpy(-back, h + from, count, image.data() + from);
      SplitWork(threads, count, 2 * cost, [&](int64_t row) {
        double* own = rest[from + row] + from;
        k.axpy(-h[from + row], image.data() + from, count, own);
        k.axpy(-image[static_cast<size_t>(from + row)], h + from, count, own);
      });
    }
    for (int64_t i = 0; i < n; ++i) diagonal[static_cast<size_t>(i)] = rest[i][i];
  }

  // row = Q row, for a vector of T's coordinates.
  void TurnBack(const AlgebraKernels& k, double* row) const {
    for (int64_t i = mirrors.n - 1; i-- > 0;) {
      const double share = shares[static_cast<size_t>(i)];
      if (share == 0) continue;
      const int64_t from = i + 1, count = mirrors.n - from;
      const double* h = mirrors[i] + from;
      k.axpy(-share * k.dot(h, row + from, count), h, count, row + from);
    }
  }

  size_t size() const { return static_cast<size_t>(mirrors.n); }

  Square mirrors;
  std::vector<double> shares, diagonal, beside;
};

// One rotation of rows i and i + 1.
struct Rotation {
  int64_t i;
  double cosine, sine;
};

// Ends with the eigenvalues in `diagonal`, and in row i of `vectors` the eigenvector of the i-th,
// in coordinates of T.
void QlSteps(const AlgebraKernels& k, ThreadSettings threads, std::vector<double>& diagonal,
             std::vector<double>& beside, Square& vectors) {
  const int64_t n = vectors.n;
  for (int64_t i = 0; i < n; ++i) vectors[i][i] = 1;
  double norm = 0;
  for (int64_t i = 0; i < n; ++i) {
    norm = std::max(norm, std::fabs(diagonal[static_cast<size_t>(i)]) +
                              std::fabs(beside[static_cast<size_t>(i)]));
  }
  const double nothing = std::numeric_limits<double>::epsilon() * norm;
  const auto d = [&](int64_t i) -> double& { return diagonal[static_cast<size_t>(i)]; };
  const auto e = [&](int64_t i) -> double& { return beside[static_cast<size_t>(i)]; };
  std::vector<Rotation> rotations;
  // Columns that one thread turns at a time: two rows of them stay in its nearest cache.
  constexpr int64_t kColumns = 128;
  const int64_t parts = (n + kColumns - 1) / kColumns;
  for (int64_t first = 0; first < n; ++first) {
    // Two steps an eigenvalue are usual.
    constexpr int kMostSteps = 100;
    for (int step = 0; step < kMostSteps; ++step) {
      int64_t last = first;
      while (last + 1 < n && std::fabs(e(last)) > nothing) ++last;
      if (last == first) break;
      // The eigenvalue of the upper two rows that is nearer to the first number.
      const double half = (d(first + 1) - d(first)) / (2 * e(first));
      const double root = std::copysign(std::hypot(half, 1.0), half);
      double bulge = d(last) - d(first) + e(first) / (half + root);
      double cosine = 1, sine = 1, moved = 0;
      rotations.clear();
      bool split = false;
      for (int64_t i = last; i-- > first;) {
        const double out = sine * e(i), kept = cosine * e(i);
        const double length = std::hypot(out, bulge);
        e(i + 1) = length;
        if (length == 0) {
          d(i + 1) -= moved;
          e(last) = 0;
          split = true;
          break;
        }
        sine = out / length;
        cosine = bulge / length;
        const double shifted = d(i + 1) - moved;
        const double change = (d(i) - shifted) * sine + 2 * cosine * kept;
        moved = sine * change;
        d(i + 1) = shifted + moved;
        bulge = cosine * change - kept;
        rotations.push_back({i, cosine, sine});
      }
      SplitWork(threads, parts, kDouble_ns * 2 * static_cast<double>(rotations.size() * kColumns),
                [&](int64_t part) {
                  const int64_t from = part * kColumns, count = std::min(kColumns, n - from);
                  for (const Rotation& r : rotations) {
                    k.rotate(r.cosine, r.sine, count, vectors[r.i] + from, vectors[r.i + 1] + from);
                  }
                });
      if (split) continue;
      d(first) -= moved;
      e(first) = bulge;
      e(last) = 0;
    }
  }
}

}  // namespace

void SymmetricEigenvectors(const AlgebraKernels& k, ThreadSettings threads, const Tensor& a,
                           Tensor values, Tensor vectors) {
  const int64_t n = a.shape[0], r = vectors.shape[0];
  Tridiagonal t(k, threads, a);
  Square turned(n);
  QlSteps(k, threads, t.diagonal, t.beside, turned);
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t p, int64_t q) {
    return t.diagonal[static_cast<size_t>(p)] > t.diagonal[static_cast<size_t>(q)];
  });
  SplitWork(threads, r, kDouble_ns * static_cast<double>(n * n), [&](int64_t i) {
    const int64_t from = order[static_cast<size_t>(i)];
    double* row = turned[from];
    t.TurnBack(k, row);
    const double* largest = std::max_element(
        row, row + n, [](double x, double y) { return std::fabs(x) < std::fabs(y); });
    const double sign = *largest < 0 ? -1 : 1;
    for (int64_t j = 0; j < n; ++j) vectors.f32()[i * n + j] = static_cast<float>(sign * row[j]);
    values.f32()[i] = static_cast<float>(t.diagonal[static_cast<size_t>(from)]);
  });
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Householder mirrors leave a matrix of three diagonals; implicit QL steps with Wilkinson's shift
// leave one (Golub and Van Loan, Matrix Computations, 8.3). The steps write their rotations down.
// Then the vectors that are wanted, and no others, go back through all of them and through the
// mirrors, some columns at a time, which stay in a cache meanwhile. Threads share out parts of the
// matrix that are the same for any number of threads, or such columns, so that their number does
// not change a bit; neither does that of vectors.
#include "cpu/algebra/algebra_eigen.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
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
//
// A mirror h makes of what is left: rest - h w^T - w h^T, where w = p - share / 2 (p . h) h and
// p = share rest h. Some mirrors at a time are kept beside `rest`, which is then only read, and
// taken from it together (Golub and Van Loan, 5.2.3, and LAPACK's DSYTRD).
struct Tridiagonal {
  Tridiagonal(const AlgebraKernels& kernels, ThreadSettings settings, const Tensor& a)
      : mirrors(a.shape[0]),
        shares(size(), 0.0),
        diagonal(size()),
        beside(size(), 0.0),
        k(kernels),
        threads(settings) {
    const int64_t n = mirrors.n;
    Square rest(n);  // above the diagonal and on it
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i; j < n; ++j) rest[i][j] = a.f32()[j * n + i];
    }
    Kept kept(n);
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < kept.count; ++j) {
        k.axpy(-kept.h(j)[i], kept.w(j) + i, n - i, rest[i] + i);
        k.axpy(-kept.w(j)[i], kept.h(j) + i, n - i, rest[i] + i);
      }
      diagonal[static_cast<size_t>(i)] = rest[i][i];
      if (i + 1 == n) break;
      double* h = mirrors[i];
      std::copy_n(rest[i] + i + 1, n - i - 1, h + i + 1);
      const double share = Mirror(i);
      shares[static_cast<size_t>(i)] = share;
      if (share != 0) {
        Image(rest, kept, i, h, share, kept.w(kept.count));
        std::copy_n(h, n, kept.h(kept.count));
        ++kept.count;
      }
      if (kept.count == Kept::kMost) Settle(kept, i + 1, rest);
    }
  }

  // columns [n, kColumns] = Q columns, for columns of T's coordinates.
  void TurnBack(double* columns) const {
    for (int64_t i = mirrors.n - 1; i-- > 0;) {
      const double share = shares[static_cast<size_t>(i)];
      if (share == 0) continue;
      k.mirror_rows(mirrors[i] + i + 1, share, mirrors.n - i - 1, columns + (i + 1) * kColumns);
    }
  }

  size_t size() const { return static_cast<size_t>(mirrors.n); }

  Square mirrors;
  std::vector<double> shares, diagonal, beside;

  const AlgebraKernels& k;
  const ThreadSettings threads;

 private:
  // Mirrors that `rest` has not got yet: h, w, and room for h once more, so that h and w lie behind
  // each other and w and h do.
  struct Kept {
    static constexpr int64_t kMost = 32;
    explicit Kept(int64_t size) : n(size), values(static_cast<size_t>(3 * kMost * n), 0.0) {}
    double* h(int64_t j) { return values.data() + j * n; }
    double* w(int64_t j) { return values.data() + (kMost + j) * n; }

    int64_t n, count = 0;
    std::vector<double> values;
  };

  // Makes a mirror of row i, which stands where its vector is to be, and returns its share.
  double Mirror(int64_t i) {
    double* h = mirrors[i] + i + 1;
    const int64_t count = mirrors.n - i - 1;
    const double norm = std::sqrt(k.dot(h, h, count));
    // What is left of a row that is zero already needs no mirror.
    if (k.dot(h + 1, h + 1, count - 1) == 0) {
      beside[static_cast<size_t>(i)] = h[0];
      return 0;
    }
    const double sign = h[0] < 0 ? -1 : 1;
    beside[static_cast<size_t>(i)] = -sign * norm;
    h[0] += sign * norm;
    return 2 / k.dot(h, h, count);
  }

  // out: w of the mirror h of row i.
  void Image(const Square& rest, Kept& kept, int64_t i, const double* h, double share,
             double* out) {
    const int64_t n = mirrors.n, from = i + 1;
    // A row is met twice, as itself and as a column, so parts of the rows have sums of their own.
    // There are as many whatever the number of threads, and as much to do in each.
    constexpr int64_t kParts = 8;
    const int64_t count = n - from, parts = count < 256 ? 1 : kParts;
    partial_.assign(static_cast<size_t>(parts * n), 0.0);
    const auto begin = [&](int64_t part) {
      const double left = std::sqrt(1 - static_cast<double>(part) / static_cast<double>(parts));
      return part == parts ? n : n - static_cast<int64_t>(left * static_cast<double>(count));
    };
    const double cost =
        kDouble_ns * static_cast<double>(count * count) / static_cast<double>(parts);
    SplitWork(threads, parts, cost, [&](int64_t part) {
      double* image = partial_.data() + part * n;
      for (int64_t row = begin(part); row < begin(part + 1); ++row) {
        const double* x = rest[row] + row;
        image[row] += x[0] * h[row];
        image[row] += k.dot_and_add(x + 1, h + row + 1, h[row], n - row - 1, image + row + 1);
      }
    });
    std::copy_n(partial_.data() + from, count, out + from);
    for (int64_t part = 1; part < parts; ++part) {
      k.axpy(1.0, partial_.data() + part * n + from, count, out + from);
    }
    for (int64_t j = 0; j < kept.count; ++j) {
      const double of_h = k.dot(kept.h(j) + from, h + from, count);
      const double of_w = k.dot(kept.w(j) + from, h + from, count);
      k.axpy(-of_w, kept.h(j) + from, count, out + from);
      k.axpy(-of_h, kept.w(j) + from, count, out + from);
    }
    for (int64_t c = from; c < n; ++c) out[c] *= share;
    const double back = share / 2 * k.dot(out + from, h + from, count);
    k.axpy(-back, h + from, count, out + from);
  }

  // Takes what is kept from rows of `rest`, from `first` on.
  void Settle(Kept& kept, int64_t first, Square& rest) {
    const int64_t n = mirrors.n;
    for (int64_t j = 0; j < kept.count; ++j) std::copy_n(kept.h(j), n, kept.w(kept.count + j));
    const int64_t tiles = (n - first) / kTile;
    const double cost = kDouble_ns * static_cast<double>(kTile * kept.count * (n - first));
    SplitWork(threads, tiles, cost, [&](int64_t tile) {
      const int64_t row = first + tile * kTile;
      k.subtract_products(kept.h(0) + row, kept.w(0) + row, 2 * kept.count, n, n - row,
                          rest[row] + row);
    });
    for (int64_t row = first + tiles * kTile; row < n; ++row) {
      for (int64_t j = 0; j < 2 * kept.count; ++j) {
        k.axpy(-kept.h(j)[row], kept.w(j) + row, n - row, rest[row] + row);
      }
    }
    kept.count = 0;
  }

  std::vector<double> partial_;
};

// It turns rows i and i + 1.
struct Rotation {
  double cosine, sine;
};

// Rotations of neighbouring rows, from `first` on; the last one was done first.
struct Sweep {
  int64_t first;
  size_t begin, end;  // in all rotations
};

struct Sweeps {
  std::vector<Rotation> rotations;
  std::vector<Sweep> in_turn;

  void Begin() { begin_ = rotations.size(); }
  void End(int64_t first) {
    if (begin_ == rotations.size()) return;
    std::reverse(rotations.begin() + static_cast<int64_t>(begin_), rotations.end());
    in_turn.push_back({first, begin_, rotations.size()});
  }

  // columns: [n, kColumns], unit vectors whose ones stand in rows up to `last_one`. Makes
  // eigenvectors of them, in coordinates of T.
  void TurnBack(const AlgebraKernels& k, int64_t last_one, double* columns) const {
    bool still_units = true;
    for (auto sweep = in_turn.rbegin(); sweep != in_turn.rend(); ++sweep) {
      if (still_units && sweep->first > last_one) continue;  // it turns zeros
      still_units = false;
      k.turn_rows(&rotations[sweep->begin].cosine, static_cast<int64_t>(sweep->end - sweep->begin),
                  columns + sweep->first * kColumns);
    }
  }

 private:
  size_t begin_ = 0;
};

// Ends with the eigenvalues in `diagonal`. All rotations in turn make the eigenvector of the i-th
// of row i of a unit matrix.
Sweeps QlSteps(std::vector<double>& diagonal, std::vector<double>& beside) {
  const int64_t n = std::ssize(diagonal);
  Sweeps sweeps;
  sweeps.rotations.reserve(static_cast<size_t>(n * n));  // as many are usual
  double norm = 0;
  for (int64_t i = 0; i < n; ++i) {
    norm = std::max(norm, std::fabs(diagonal[static_cast<size_t>(i)]) +
                              std::fabs(beside[static_cast<size_t>(i)]));
  }
  const double nothing = std::numeric_limits<double>::epsilon() * norm;
  const auto d = [&](int64_t i) -> double& { return diagonal[static_cast<size_t>(i)]; };
  const auto e = [&](int64_t i) -> double& { return beside[static_cast<size_t>(i)]; };
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
      sweeps.Begin();
      int64_t lowest = last;
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
        sweeps.rotations.push_back({cosine, sine});
        lowest = i;
      }
      sweeps.End(lowest);
      if (split) continue;
      d(first) -= moved;
      e(first) = bulge;
      e(last) = 0;
    }
  }
  return sweeps;
}

}  // namespace

void SymmetricEigenvectors(const AlgebraKernels& k, ThreadSettings threads, const Tensor& a,
                           Tensor values, Tensor vectors) {
  const int64_t n = a.shape[0], r = vectors.shape[0];
  Tridiagonal t(k, threads, a);
  const Sweeps sweeps = QlSteps(t.diagonal, t.beside);
  std::vector<int64_t> order(static_cast<size_t>(n));  // eigenvalues, the largest first
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t p, int64_t q) {
    return t.diagonal[static_cast<size_t>(p)] > t.diagonal[static_cast<size_t>(q)];
  });
  // Places in `order`. Those of neighbouring rows go together, so that they skip the same sweeps.
  std::vector<int64_t> places(static_cast<size_t>(r));
  std::iota(places.begin(), places.end(), int64_t{0});
  const auto row_of = [&](int64_t place) { return order[static_cast<size_t>(place)]; };
  std::sort(places.begin(), places.end(),
            [&](int64_t p, int64_t q) { return row_of(p) < row_of(q); });
  const double cost = kDouble_ns * 6 * static_cast<double>(n * n * kColumns);
  SplitWork(threads, (r + kColumns - 1) / kColumns, cost, [&](int64_t part) {
    const std::span<const int64_t> own =
        std::span(places).subspan(static_cast<size_t>(part * kColumns),
                                  static_cast<size_t>(std::min(kColumns, r - part * kColumns)));
    std::vector<double> columns(static_cast<size_t>(n * kColumns), 0.0);
    for (size_t c = 0; c < own.size(); ++c) {
      columns[static_cast<size_t>(row_of(own[c]) * kColumns) + c] = 1;
    }
    sweeps.TurnBack(k, row_of(own.back()), columns.data());
    t.TurnBack(columns.data());
    for (size_t c = 0; c < own.size(); ++c) {
      double largest = columns[c];
      for (size_t j = c; j < columns.size(); j += kColumns) {
        if (std::fabs(columns[j]) > std::fabs(largest)) largest = columns[j];
      }
      const double sign = largest < 0 ? -1 : 1;
      float* out = vectors.f32() + own[c] * n;
      for (size_t j = c; j < columns.size(); j += kColumns) {
        *out++ = static_cast<float>(sign * columns[j]);
      }
      values.f32()[own[c]] = static_cast<float>(t.diagonal[static_cast<size_t>(row_of(own[c]))]);
    }
  });
}

}  // namespace kvgauge

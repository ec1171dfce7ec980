// SPDX-License-Identifier: Apache-2.0
#include "cpu/algebra/algebra_factor.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "cpu/split_work.h"

namespace kvgauge {
namespace {

constexpr double kDouble_ns = 0.3;

// Column-major doubles.
struct Columns {
  int64_t rows = 0, count = 0;
  std::vector<double> values;

  Columns() = default;
  Columns(int64_t m, int64_t n) : rows(m), count(n), values(static_cast<size_t>(m * n), 0.0) {}
  double* operator[](int64_t j) { return values.data() + j * rows; }
  const double* operator[](int64_t j) const { return values.data() + j * rows; }
};

Columns Identity(int64_t m, int64_t n) {
  Columns c(m, n);
  for (int64_t j = 0; j < n; ++j) c[j][j] = 1;
  return c;
}

Columns Read(const Tensor& a, bool transposed) {
  const int64_t m = a.shape[transposed ? 1 : 0], n = a.shape[transposed ? 0 : 1];
  const int64_t row_step = transposed ? 1 : a.shape[1], column_step = transposed ? a.shape[1] : 1;
  Columns c(m, n);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < m; ++i) c[j][i] = a.f32()[i * row_step + j * column_step];
  }
  return c;
}

class Factor {
 public:
  Factor(const AlgebraKernels& k, ThreadSettings threads) : k_(k), threads_(threads) {}

  // Householder: a (m >= n) becomes R above the diagonal (signed); returns thin Q.
  Columns Householder(Columns& a) const {
    const int64_t m = a.rows, n = a.count;
    Columns mirrors(m, n);
    std::vector<double> lengths(static_cast<size_t>(n));  // squared
    for (int64_t j = 0; j < n; ++j) {
      double* h = mirrors[j];
      std::copy(a[j] + j, a[j] + m, h + j);
      const double norm = std::sqrt(k_.dot(h + j, h + j, m - j));
      h[j] += h[j] < 0 ? -norm : norm;
      lengths[j] = k_.dot(h + j, h + j, m - j);
      Reflect(h, lengths[j], j, j, a);
    }
    Columns q = Identity(m, n);
    // Column c of the identity is untouched by mirrors that begin below it.
    for (int64_t j = n; j-- > 0;) Reflect(mirrors[j], lengths[j], j, j, q);
    return q;
  }

  // One-sided Jacobi: turns pairs of columns of w, and of v alike, until those of w are orthogonal.
  // Pairs of a round have no column in common, so threads do not change the result.
  void Jacobi(Columns& w, Columns& v) const {
    const int64_t n = w.count, players = n + n % 2;
    if (n < 2) return;
    std::vector<int64_t> seat(static_cast<size_t>(players));
    std::iota(seat.begin(), seat.end(), int64_t{0});
    std::vector<char> turned(static_cast<size_t>(players / 2));
    const double cost = kDouble_ns * 6 * static_cast<double>(w.rows + v.rows);
    // Columns of rounding noise may go on turning; by then the others have settled.
    constexpr int kMaxSweeps = 60;
    for (int sweep = 0; sweep < kMaxSweeps; ++sweep) {
      bool any = false;
      for (int64_t round = 0; round + 1 < players; ++round) {
        SplitWork(threads_, players / 2, cost, [&](int64_t pair) {
          const auto [p, q] = std::minmax(seat[pair], seat[players - 1 - pair]);
          turned[pair] = q < n && Turn(w, v, p, q);
        });
        any = any || std::find(turned.begin(), turned.end(), 1) != turned.end();
        // A round-robin tournament: the first stays, the others move on by one.
        std::rotate(seat.begin() + 1, seat.end() - 1, seat.end());
      }
      if (!any) return;
    }
  }

  // Makes column j a unit vector orthogonal to the columns before it.
  void Complete(Columns& c, int64_t j) const {
    // Some axis keeps at least 1 - j / rows of its squared length; take the one with the most.
    std::vector<double> kept(static_cast<size_t>(c.rows), 1.0);
    for (int64_t i = 0; i < j; ++i) {
      for (int64_t k = 0; k < c.rows; ++k) kept[k] -= c[i][k] * c[i][k];
    }
    std::fill_n(c[j], c.rows, 0.0);
    c[j][std::max_element(kept.begin(), kept.end()) - kept.begin()] = 1;
    for (int pass = 0; pass < 2; ++pass) {  // the second removes what rounding left
      for (int64_t i = 0; i < j; ++i) k_.axpy(-k_.dot(c[i], c[j], c.rows), c[i], c.rows, c[j]);
    }
    const double length = std::sqrt(k_.dot(c[j], c[j], c.rows));
    for (int64_t k = 0; k < c.rows; ++k) c[j][k] /= length;
  }

 private:
  // Columns [first, count) of c lose twice their share of h, which is zero above row `from`.
  void Reflect(const double* h, double squared, int64_t from, int64_t first, Columns& c) const {
    if (squared == 0) return;
    const int64_t size = c.rows - from;
    SplitWork(threads_, c.count - first, kDouble_ns * 2 * static_cast<double>(size),
              [&](int64_t i) {
                double* column = c[first + i] + from;
                k_.axpy(-2 * k_.dot(h + from, column, size) / squared, h + from, size, column);
              });
  }

  bool Turn(Columns& w, Columns& v, int64_t p, int64_t q) const {
    const int64_t m = w.rows;
    const double pp = k_.dot(w[p], w[p], m), qq = k_.dot(w[q], w[q], m), pq = k_.dot(w[p], w[q], m);
    if (pq == 0 || std::fabs(pq) <= 1e-13 * std::sqrt(pp * qq)) return false;
    const double zeta = (qq - pp) / (2 * pq);
    const double t = (zeta < 0 ? -1 : 1) / (std::fabs(zeta) + std::sqrt(1 + zeta * zeta));
    const double c = 1 / std::sqrt(1 + t * t), s = c * t;
    k_.rotate(c, s, m, w[p], w[q]);
    k_.rotate(c, s, v.rows, v[p], v[q]);
    return true;
  }

  const AlgebraKernels& k_;
  const ThreadSettings threads_;
};

}  // namespace

void FactorQr(const AlgebraKernels& k, ThreadSettings threads, const Tensor& a, Tensor q,
              Tensor r) {
  const int64_t m = a.shape[0], n = a.shape[1];
  Columns upper = Read(a, false);
  const Columns basis = Factor(k, threads).Householder(upper);
  for (int64_t j = 0; j < n; ++j) {
    const double sign = upper[j][j] < 0 ? -1 : 1;
    for (int64_t i = 0; i < m; ++i) q.f32()[i * n + j] = static_cast<float>(sign * basis[j][i]);
    for (int64_t c = 0; c < n; ++c) {
      r.f32()[j * n + c] = c < j ? 0.0f : static_cast<float>(sign * upper[c][j]);
    }
  }
}

void FactorSvd(const AlgebraKernels& k, ThreadSettings threads, const Tensor& a, Tensor u, Tensor s,
               Tensor vt) {
  const Factor factor(k, threads);
  // Works on the tall form a = Q R: turning the short columns of R is cheap, and R V = W with
  // orthogonal columns gives a = (Q W) V^T.
  const bool wide = a.shape[0] < a.shape[1];
  Columns tall = Read(a, wide);
  const int64_t m = tall.rows, r = tall.count;
  Columns basis;
  Columns w(r, r), v = Identity(r, r);
  if (m > r) basis = factor.Householder(tall);
  for (int64_t j = 0; j < r; ++j) std::copy_n(tall[j], m > r ? j + 1 : r, w[j]);
  factor.Jacobi(w, v);

  std::vector<double> length(static_cast<size_t>(r));
  std::vector<int64_t> order(static_cast<size_t>(r));
  for (int64_t j = 0; j < r; ++j) length[j] = std::sqrt(k.dot(w[j], w[j], r));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t p, int64_t q) { return length[p] > length[q]; });
  Columns left(r, r), right(r, r);
  for (int64_t j = 0; j < r; ++j) {
    const double sigma = length[order[j]];
    s.f32()[j] = static_cast<float>(sigma);
    std::copy_n(v[order[j]], r, right[j]);
    if (sigma > length[order[0]] * 1e-13) {
      for (int64_t i = 0; i < r; ++i) left[j][i] = w[order[j]][i] / sigma;
    } else {
      factor.Complete(left, j);
    }
  }
  if (m > r) {
    Columns full(m, r);
    SplitWork(threads, r, kDouble_ns * static_cast<double>(m * r), [&](int64_t j) {
      for (int64_t i = 0; i < r; ++i) k.axpy(left[j][i], basis[i], m, full[j]);
    });
    left = std::move(full);
  }
  if (wide) std::swap(left, right);
  for (int64_t j = 0; j < r; ++j) {
    const double* row = right[j];
    const double* largest = std::max_element(
        row, row + right.rows, [](double x, double y) { return std::fabs(x) < std::fabs(y); });
    const double sign = *largest < 0 ? -1 : 1;
    for (int64_t i = 0; i < left.rows; ++i) {
      u.f32()[i * r + j] = static_cast<float>(sign * left[j][i]);
    }
    for (int64_t i = 0; i < right.rows; ++i) {
      vt.f32()[j * right.rows + i] = static_cast<float>(sign * row[i]);
    }
  }
}

}  // namespace kvgauge

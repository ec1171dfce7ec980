// SPDX-License-Identifier: Apache-2.0
// The factorisations here are the textbook forms on whole matrices of doubles.
#include "kernels/algebra.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "reference/reference.h"
#include "reference/views.h"

namespace kvgauge {
namespace {

// Columns of doubles.
using Columns = std::vector<std::vector<double>>;

double Dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

// Makes column `i` a unit vector that is orthogonal to the columns before it.
void CompleteColumn(Columns& columns, size_t i) {
  double best = 0;
  std::vector<double> widest;
  for (size_t axis = 0; axis < columns[i].size(); ++axis) {
    std::vector<double> v(columns[i].size(), 0.0);
    v[axis] = 1;
    for (int pass = 0; pass < 2; ++pass) {
      for (size_t k = 0; k < i; ++k) {
        const double share = Dot(v, columns[k]);
        for (size_t j = 0; j < v.size(); ++j) v[j] -= share * columns[k][j];
      }
    }
    const double norm = std::sqrt(Dot(v, v));
    if (norm > best) {
      best = norm;
      widest = v;
    }
  }
  for (size_t j = 0; j < widest.size(); ++j) columns[i][j] = widest[j] / best;
}

class ReferenceAlgebra final : public AlgebraOps {
  void DoCosineSimilarity(const Tensor& a, const Tensor& b, Tensor out) override {
    for (int64_t i = 0; i < a.shape[0]; ++i) {
      for (int64_t j = 0; j < b.shape[0]; ++j) {
        double dot = 0, aa = 0, bb = 0;
        for (int64_t k = 0; k < a.shape[1]; ++k) {
          dot += At(a, i, k) * At(b, j, k);
          aa += At(a, i, k) * At(a, i, k);
          bb += At(b, j, k) * At(b, j, k);
        }
        Put(out, i, j, aa == 0 || bb == 0 ? 0 : dot / std::sqrt(aa) / std::sqrt(bb));
      }
    }
  }

  void DoKMeans(const Tensor& x, int iterations, Tensor centroids, Tensor assignment) override {
    const int64_t n = x.shape[0], d = x.shape[1], k = centroids.shape[0];
    Assign(x, centroids, assignment);
    for (int step = 0; step < iterations; ++step) {
      for (int64_t c = 0; c < k; ++c) {
        std::vector<double> sum(static_cast<size_t>(d), 0.0);
        int64_t members = 0;
        for (int64_t i = 0; i < n; ++i) {
          if (assignment.i32()[i] != c) continue;
          ++members;
          for (int64_t j = 0; j < d; ++j) sum[j] += At(x, i, j);
        }
        if (members == 0) continue;
        for (int64_t j = 0; j < d; ++j) Put(centroids, c, j, sum[j] / static_cast<double>(members));
      }
      Assign(x, centroids, assignment);
    }
  }

  static void Assign(const Tensor& x, const Tensor& centroids, const Tensor& assignment) {
    for (int64_t i = 0; i < x.shape[0]; ++i) {
      double nearest = std::numeric_limits<double>::infinity();
      assignment.i32()[i] = 0;
      for (int64_t c = 0; c < centroids.shape[0]; ++c) {
        double distance = 0;
        for (int64_t j = 0; j < x.shape[1]; ++j) {
          const double diff = At(x, i, j) - At(centroids, c, j);
          distance += diff * diff;
        }
        if (distance < nearest) {
          nearest = distance;
          assignment.i32()[i] = static_cast<int32_t>(c);
        }
      }
    }
  }

  void DoSvd(const Tensor& a, Tensor u, Tensor s, Tensor vt) override {
    // Works on the tall form: its columns are turned until they are orthogonal.
    const bool wide = a.shape[0] < a.shape[1];
    const size_t m = static_cast<size_t>(std::max(a.shape[0], a.shape[1]));
    const size_t r = static_cast<size_t>(std::min(a.shape[0], a.shape[1]));
    Columns w(r, std::vector<double>(m)), v(r, std::vector<double>(r, 0.0));
    for (size_t j = 0; j < r; ++j) {
      v[j][j] = 1;
      for (size_t i = 0; i < m; ++i) w[j][i] = wide ? At(a, j, i) : At(a, i, j);
    }
    // Columns of rounding noise may go on turning; by then the others have settled.
    constexpr int kMaxSweeps = 60;
    bool turned = true;
    for (int sweep = 0; turned && sweep < kMaxSweeps; ++sweep) {
      turned = false;
      for (size_t p = 0; p + 1 < r; ++p) {
        for (size_t q = p + 1; q < r; ++q) turned |= Turn(w[p], w[q], v[p], v[q]);
      }
    }
    std::vector<double> length(r);
    std::vector<size_t> order(r);
    for (size_t j = 0; j < r; ++j) length[j] = std::sqrt(Dot(w[j], w[j]));
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t p, size_t q) { return length[p] > length[q]; });
    Columns left(r), right(r);
    for (size_t j = 0; j < r; ++j) {
      const double sigma = length[order[j]];
      s.f32()[j] = static_cast<float>(sigma);
      left[j] = w[order[j]];
      right[j] = v[order[j]];
      if (sigma > length[order[0]] * 1e-13) {
        for (double& value : left[j]) value /= sigma;
      } else {
        CompleteColumn(left, j);
      }
    }
    if (wide) std::swap(left, right);
    for (size_t j = 0; j < r; ++j) {
      const auto largest =
          std::max_element(right[j].begin(), right[j].end(),
                           [](double x, double y) { return std::fabs(x) < std::fabs(y); });
      const double sign = *largest < 0 ? -1 : 1;
      for (size_t i = 0; i < left[j].size(); ++i) Put(u, i, j, sign * left[j][i]);
      for (size_t i = 0; i < right[j].size(); ++i) Put(vt, j, i, sign * right[j][i]);
    }
  }

  // Jacobi's own form: every pair of a sweep loses what stands off the diagonal between the two.
  void DoEigenvectors(const Tensor& a, Tensor values, Tensor vectors) override {
    const auto n = static_cast<size_t>(a.shape[0]);
    Columns m(n, std::vector<double>(n)), v(n, std::vector<double>(n, 0.0));
    double squares = 0;
    for (size_t i = 0; i < n; ++i) {
      v[i][i] = 1;
      for (size_t j = 0; j < n; ++j) {
        m[i][j] = At(a, static_cast<int64_t>(std::max(i, j)), static_cast<int64_t>(std::min(i, j)));
      }
      squares += Dot(m[i], m[i]);
    }
    constexpr int kMaxSweeps = 60;
    bool turned = true;
    for (int sweep = 0; turned && sweep < kMaxSweeps; ++sweep) {
      turned = false;
      for (size_t p = 0; p + 1 < n; ++p) {
        for (size_t q = p + 1; q < n; ++q) {
          if (std::fabs(m[p][q]) <= 1e-17 * std::sqrt(squares)) continue;
          turned = true;
          const double zeta = (m[q][q] - m[p][p]) / (2 * m[p][q]);
          const double t = (zeta < 0 ? -1 : 1) / (std::fabs(zeta) + std::sqrt(1 + zeta * zeta));
          const double c = 1 / std::sqrt(1 + t * t), s = c * t;
          const auto turn = [c, s](double& x, double& y) {
            const double old = x;
            x = c * old - s * y;
            y = s * old + c * y;
          };
          for (size_t i = 0; i < n; ++i) turn(m[i][p], m[i][q]);
          for (size_t i = 0; i < n; ++i) turn(m[p][i], m[q][i]);
          for (size_t i = 0; i < n; ++i) turn(v[p][i], v[q][i]);
        }
      }
    }
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t p, size_t q) { return m[p][p] > m[q][q]; });
    for (int64_t i = 0; i < vectors.shape[0]; ++i) {
      const std::vector<double>& row = v[order[static_cast<size_t>(i)]];
      const auto largest = std::max_element(
          row.begin(), row.end(), [](double x, double y) { return std::fabs(x) < std::fabs(y); });
      const double sign = *largest < 0 ? -1 : 1;
      values.f32()[i] =
          static_cast<float>(m[order[static_cast<size_t>(i)]][order[static_cast<size_t>(i)]]);
      for (size_t j = 0; j < n; ++j) Put(vectors, i, static_cast<int64_t>(j), sign * row[j]);
    }
  }

  // One Jacobi rotation that makes columns p and q orthogonal; false when they are already.
  static bool Turn(std::vector<double>& wp, std::vector<double>& wq, std::vector<double>& vp,
                   std::vector<double>& vq) {
    const double pp = Dot(wp, wp), qq = Dot(wq, wq), pq = Dot(wp, wq);
    if (std::fabs(pq) <= 1e-14 * std::sqrt(pp * qq) || pq == 0) return false;
    const double zeta = (qq - pp) / (2 * pq);
    const double t = (zeta < 0 ? -1 : 1) / (std::fabs(zeta) + std::sqrt(1 + zeta * zeta));
    const double c = 1 / std::sqrt(1 + t * t), s = c * t;
    const auto rotate = [c, s](std::vector<double>& x, std::vector<double>& y) {
      for (size_t i = 0; i < x.size(); ++i) {
        const double old = x[i];
        x[i] = c * old - s * y[i];
        y[i] = s * old + c * y[i];
      }
    };
    rotate(wp, wq);
    rotate(vp, vq);
    return true;
  }

  void DoQr(const Tensor& a, Tensor q, Tensor r) override {
    const size_t m = static_cast<size_t>(a.shape[0]), n = static_cast<size_t>(a.shape[1]);
    Columns w(n, std::vector<double>(m)), e(n, std::vector<double>(m, 0.0));
    for (size_t j = 0; j < n; ++j) {
      e[j][j] = 1;
      for (size_t i = 0; i < m; ++i) w[j][i] = At(a, i, j);
    }
    Columns mirrors(n);
    for (size_t j = 0; j < n; ++j) {
      std::vector<double> h(w[j]);
      std::fill_n(h.begin(), j, 0.0);
      const double norm = std::sqrt(Dot(h, h));
      h[j] += h[j] < 0 ? -norm : norm;
      mirrors[j] = h;
      for (size_t k = j; k < n; ++k) Reflect(h, w[k]);
    }
    for (size_t j = n; j-- > 0;) {
      for (size_t k = 0; k < n; ++k) Reflect(mirrors[j], e[k]);
    }
    for (size_t j = 0; j < n; ++j) {
      const double sign = w[j][j] < 0 ? -1 : 1;
      for (size_t i = 0; i < m; ++i) Put(q, i, j, sign * e[j][i]);
      for (size_t k = 0; k < n; ++k) Put(r, j, k, k < j ? 0 : sign * w[k][j]);
    }
  }

  // x -= 2 h (h.x) / (h.h); nothing for h = 0.
  static void Reflect(const std::vector<double>& h, std::vector<double>& x) {
    const double hh = Dot(h, h);
    if (hh == 0) return;
    const double scale = 2 * Dot(h, x) / hh;
    for (size_t i = 0; i < x.size(); ++i) x[i] -= scale * h[i];
  }

  void DoHadamard(Tensor x) override {
    const int64_t d = x.shape[1];
    std::vector<double> row(static_cast<size_t>(d));
    for (int64_t i = 0; i < x.shape[0]; ++i) {
      for (int64_t j = 0; j < d; ++j) row[j] = At(x, i, j);
      for (int64_t j = 0; j < d; ++j) {
        double sum = 0;
        for (int64_t k = 0; k < d; ++k) {
          sum += std::popcount(static_cast<uint64_t>(j & k)) % 2 == 0 ? row[k] : -row[k];
        }
        Put(x, i, j, sum / std::sqrt(static_cast<double>(d)));
      }
    }
  }
};

}  // namespace

std::unique_ptr<AlgebraOps> MakeReferenceAlgebra() { return std::make_unique<ReferenceAlgebra>(); }

}  // namespace kvgauge

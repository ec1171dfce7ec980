// SPDX-License-Identifier: Apache-2.0
// AlgebraOps. The factorisations run in double: they are small, made once, and their users compare
// singular values that differ by orders of magnitude.
#include <algorithm>

#include "cuda/backend_parts.h"
#include "cuda/device/context.h"
#include "cuda/multiply32.h"
#include "cuda/reduce.h"
#include "kernels/algebra.h"

namespace kvgauge::cuda {
namespace {

// Sum over i of body(i), by all threads of a team.
template <class Team, class Body>
KVG_DEVICE double SumOf(int64_t n, Body body) {
  double sum = 0;
  for (int64_t i = Team::index(); i < n; i += Team::kThreads) sum += body(i);
  return TeamSum<Team>(sum);
}

// Rows of unit length; zero rows stay zero.
KVG_KERNEL(kBlockThreads) UnitRowsKernel(const float* x, int64_t d, float* out) {
  const float* row = x + BlockX() * d;
  const double squares = SumOf<BlockTeam>(d, [row](int64_t j) {
    const double v = row[j];
    return v * v;
  });
  const double scale = squares == 0 ? 0 : 1 / Sqrt(squares);
  for (int64_t j = Thread(); j < d; j += kBlockThreads) {
    out[BlockX() * d + j] = static_cast<float>(row[j] * scale);
  }
}

// A warp a point.
KVG_KERNEL(kBlockThreads)
AssignKernel(const float* x, int64_t n, int64_t d, const float* centroids, int64_t k,
             int32_t* assignment) {
  const int64_t i = BlockX() * kBlockWarps + WarpIndex();
  if (i >= n) return;  // the whole warp
  const float* point = x + i * d;
  float nearest = __builtin_inff();
  int32_t best = 0;
  for (int64_t c = 0; c < k; ++c) {
    const float* centroid = centroids + c * d;
    float distance = 0;
    for (int64_t j = Lane(); j < d; j += kWarp) {
      const float difference = point[j] - centroid[j];
      distance = Fma(difference, difference, distance);
    }
    distance = WarpSum(distance);
    if (distance < nearest) {
      nearest = distance;
      best = static_cast<int32_t>(c);
    }
  }
  if (Lane() == 0) assignment[i] = best;
}

// A warp owns 32 columns of one centroid and takes its members in ascending order.
KVG_KERNEL(kBlockThreads)
CentroidKernel(const float* x, int64_t n, int64_t d, const int32_t* assignment, float* centroids) {
  const auto own = static_cast<int32_t>(BlockX());
  const int64_t j = (BlockY() * kBlockWarps + WarpIndex()) * kWarp + Lane();
  double sum = 0;
  int64_t members = 0;
  for (int64_t base = 0; base < n; base += kWarp) {
    const int64_t i = base + Lane();
    for (uint32_t hits = Ballot(i < n && assignment[i] == own); hits != 0; hits &= hits - 1) {
      ++members;
      if (j < d) sum += x[(base + FindFirst(hits) - 1) * d + j];
    }
  }
  if (members > 0 && j < d) {
    centroids[own * d + j] = static_cast<float>(sum / static_cast<double>(members));
  }
}

// The tall form of a matrix, column by column: w [r][m]; v [r][r] = 1.
KVG_KERNEL(kBlockThreads)
LoadColumnsKernel(const float* a, int64_t columns, bool wide, int64_t m, int64_t r, double* w,
                  double* v) {
  const int64_t j = BlockX();
  for (int64_t i = Thread(); i < m; i += kBlockThreads) {
    w[j * m + i] = wide ? a[j * columns + i] : a[i * columns + j];
  }
  for (int64_t i = Thread(); v != nullptr && i < r; i += kBlockThreads) v[j * r + i] = i == j;
}

// One round of a sweep: pairs of a round-robin tournament, so that no two share a column. A team
// turns a pair.
template <class Team>
KVG_KERNEL(kBlockThreads)
JacobiKernel(double* w, double* v, int64_t m, int64_t r, int64_t round, int32_t* turned) {
  const int64_t players = r + r % 2, others = players - 1, pair = Team::row();
  if (pair >= players / 2) return;  // the whole team
  const int64_t one = pair == 0 ? others : (round + pair) % others;
  const int64_t two = (round + others - pair) % others;
  const int64_t p = Least(one, two), q = Most(one, two);
  if (q >= r) return;  // sits out; the whole team
  double *wp = w + p * m, *wq = w + q * m;
  const double pp = SumOf<Team>(m, [wp](int64_t i) { return wp[i] * wp[i]; });
  const double qq = SumOf<Team>(m, [wq](int64_t i) { return wq[i] * wq[i]; });
  const double pq = SumOf<Team>(m, [wp, wq](int64_t i) { return wp[i] * wq[i]; });
  if (Abs(pq) <= 1e-14 * Sqrt(pp * qq) || pq == 0) return;  // the whole team
  const double zeta = (qq - pp) / (2 * pq);
  const double t = (zeta < 0 ? -1 : 1) / (Abs(zeta) + Sqrt(1 + zeta * zeta));
  const double c = 1 / Sqrt(1 + t * t), s = c * t;
  const auto rotate = [c, s](double* x, double* y, int64_t n) {
    for (int64_t i = Team::index(); i < n; i += Team::kThreads) {
      const double old = x[i];
      x[i] = c * old - s * y[i];
      y[i] = s * old + c * y[i];
    }
  };
  rotate(wp, wq, m);
  rotate(v + p * r, v + q * r, r);
  if (Team::index() == 0) AtomicMax(turned, 1);
}

KVG_KERNEL(kBlockThreads) LengthKernel(const double* w, int64_t m, double* length) {
  const double* column = w + BlockX() * m;
  const double squares = SumOf<BlockTeam>(m, [column](int64_t i) { return column[i] * column[i]; });
  if (Thread() == 0) length[BlockX()] = Sqrt(squares);
}

// Longest first, equals in order of index. Columns of rounding noise are left for CompleteKernel:
// their place gets length 0.
KVG_KERNEL(kBlockThreads)
ArrangeKernel(const double* w, const double* v, const double* length, int64_t m, int64_t r,
              double* left, double* right, double* sorted) {
  const int64_t j = BlockX();
  const double own = length[j];
  double longest = 0, before = 0;
  for (int64_t i = Thread(); i < r; i += kBlockThreads) {
    longest = Most(longest, length[i]);
    before += length[i] > own || (length[i] == own && i < j) ? 1 : 0;
  }
  longest = BlockTeam::Reduce(longest, [](double a, double b) { return a < b ? b : a; });
  const auto place = static_cast<int64_t>(TeamSum<BlockTeam>(before));
  const bool noise = own <= longest * 1e-13;
  for (int64_t i = Thread(); i < m; i += kBlockThreads) {
    left[place * m + i] = noise ? 0 : w[j * m + i] / own;
  }
  for (int64_t i = Thread(); i < r; i += kBlockThreads) right[place * r + i] = v[j * r + i];
  if (Thread() == 0) {
    sorted[2 * place] = own;
    sorted[2 * place + 1] = noise ? 1 : 0;
  }
}

// One block: makes each column that was left out a unit vector orthogonal to those before it, from
// the axis that lies farthest from them.
KVG_KERNEL(kBlockThreads)
CompleteKernel(double* left, const double* sorted, int64_t m, int64_t r) {
  for (int64_t j = 0; j < r; ++j) {
    if (sorted[2 * j + 1] == 0) continue;
    double* column = left + j * m;
    double farthest = -1;
    auto axis = static_cast<int32_t>(m);
    for (int64_t i = Thread(); i < m; i += kBlockThreads) {
      double rest = 1;
      for (int64_t k = 0; k < j; ++k) rest -= left[k * m + i] * left[k * m + i];
      if (rest > farthest) {
        farthest = rest;
        axis = static_cast<int32_t>(i);
      }
    }
    const double best =
        BlockTeam::Reduce(farthest, [](double a, double b) { return a < b ? b : a; });
    if (farthest != best) axis = static_cast<int32_t>(m);
    axis = BlockTeam::Reduce(axis, [](int32_t a, int32_t b) { return b < a ? b : a; });
    for (int64_t i = Thread(); i < m; i += kBlockThreads) column[i] = i == axis ? 1 : 0;
    SyncBlock();
    for (int pass = 0; pass < 2; ++pass) {
      for (int64_t k = 0; k < j; ++k) {
        const double* other = left + k * m;
        const double share =
            SumOf<BlockTeam>(m, [column, other](int64_t i) { return column[i] * other[i]; });
        for (int64_t i = Thread(); i < m; i += kBlockThreads) column[i] -= share * other[i];
        SyncBlock();
      }
    }
    const double norm =
        Sqrt(SumOf<BlockTeam>(m, [column](int64_t i) { return column[i] * column[i]; }));
    for (int64_t i = Thread(); i < m; i += kBlockThreads) column[i] = column[i] / norm;
    SyncBlock();
  }
}

// u: columns of `first`, vt: rows of `second`, with the sign that makes the largest number of a row
// of vt positive.
KVG_KERNEL(kBlockThreads)
StoreSvdKernel(const double* first, int64_t m, const double* second, int64_t n,
               const double* sorted, int64_t r, float* u, float* s, float* vt) {
  const int64_t j = BlockX();
  const double* row = second + j * n;
  double largest = 0;
  auto at = static_cast<int32_t>(n);
  for (int64_t i = Thread(); i < n; i += kBlockThreads) {
    if (Abs(row[i]) > largest) {
      largest = Abs(row[i]);
      at = static_cast<int32_t>(i);
    }
  }
  const double top = BlockTeam::Reduce(largest, [](double a, double b) { return a < b ? b : a; });
  if (largest != top) at = static_cast<int32_t>(n);
  at = BlockTeam::Reduce(at, [](int32_t a, int32_t b) { return b < a ? b : a; });
  const double sign = at < n && row[at] < 0 ? -1 : 1;
  for (int64_t i = Thread(); i < m; i += kBlockThreads) {
    u[i * r + j] = static_cast<float>(sign * first[j * m + i]);
  }
  for (int64_t i = Thread(); i < n; i += kBlockThreads) {
    vt[j * n + i] = static_cast<float>(sign * row[i]);
  }
  if (Thread() == 0) s[j] = static_cast<float>(sorted[2 * j]);
}

// x -= 2 h (h.x) / (h.h), a warp's.
KVG_DEVICE void Reflect(const double* h, double hh, double* x, int64_t m) {
  if (hh == 0) return;
  const double scale = 2 * SumOf<WarpTeam>(m, [h, x](int64_t i) { return h[i] * x[i]; }) / hh;
  for (int64_t i = Lane(); i < m; i += kWarp) x[i] -= scale * h[i];
}

// One block. w: columns of a [n][m]; e, mirrors: [n][m]; squares: [n].
KVG_KERNEL(kBlockThreads)
QrKernel(double* w, double* e, double* mirrors, double* squares, int64_t m, int64_t n, float* q,
         float* r) {
  for (int64_t j = 0; j < n; ++j) {
    double *h = mirrors + j * m, *column = w + j * m;
    const double norm = Sqrt(SumOf<BlockTeam>(
        m, [column, j](int64_t i) { return i < j ? 0.0 : column[i] * column[i]; }));
    for (int64_t i = Thread(); i < m; i += kBlockThreads) {
      double v = i < j ? 0.0 : column[i];
      if (i == j) v += v < 0 ? -norm : norm;
      h[i] = v;
      e[j * m + i] = i == j;
    }
    SyncBlock();
    const double hh = SumOf<BlockTeam>(m, [h](int64_t i) { return h[i] * h[i]; });
    if (Thread() == 0) squares[j] = hh;
    for (int64_t k = j + WarpIndex(); k < n; k += kBlockWarps) Reflect(h, hh, w + k * m, m);
    SyncBlock();
  }
  for (int64_t k = WarpIndex(); k < n; k += kBlockWarps) {
    for (int64_t j = n - 1; j >= 0; --j) {
      Reflect(mirrors + j * m, squares[j], e + k * m, m);
      SyncWarp();
    }
  }
  SyncBlock();
  for (int64_t j = 0; j < n; ++j) {
    const double sign = w[j * m + j] < 0 ? -1 : 1;
    for (int64_t i = Thread(); i < m; i += kBlockThreads) {
      q[i * n + j] = static_cast<float>(sign * e[j * m + i]);
    }
    for (int64_t k = Thread(); k < n; k += kBlockThreads) {
      r[j * n + k] = k < j ? 0.0f : static_cast<float>(sign * w[k * m + j]);
    }
  }
}

// A block a row, in shared memory while it fits, else where it lies.
KVG_KERNEL(kBlockThreads)
HadamardKernel(float* x, int64_t d, int64_t stride, bool in_shared, float scale) {
  KVG_DYNAMIC_SHARED(float, shared);
  float* row = x + BlockX() * stride;
  float* at = in_shared ? shared : row;
  for (int64_t j = Thread(); in_shared && j < d; j += kBlockThreads) at[j] = row[j];
  SyncBlock();
  for (int64_t half = 1; half < d; half *= 2) {
    for (int64_t k = Thread(); k < d / 2; k += kBlockThreads) {
      const int64_t j = (k / half) * 2 * half + k % half;
      const float a = at[j], b = at[j + half];
      at[j] = a + b;
      at[j + half] = a - b;
    }
    SyncBlock();
  }
  for (int64_t j = Thread(); j < d; j += kBlockThreads) row[j] = at[j] * scale;
}

// The angle of a cosine in (-1, 1): a polynomial that is right to 7e-5, and Newton's steps from
// there. Near both ends they divide by next to nothing; there the polynomial is right enough for
// who asks.
KVG_DEVICE double AngleOf(double cosine) {
  const double x = Abs(cosine);
  const double series = 1.5707288 + x * (-0.2121144 + x * (0.0742610 + x * -0.0187293));
  double angle = Sqrt(1 - x) * series;
  if (cosine < 0) angle = 3.14159265358979323846 - angle;
  for (int step = 0; step < 3; ++step) {
    const double sine = Sin(angle);
    if (sine > 1e-6) angle += (Cos(angle) - cosine) / sine;
  }
  return angle;
}

// A warp for each row: Arc of kernels/sphere.h.
KVG_KERNEL(kBlockThreads)
DirectionsKernel(const float* a, const float* b, int64_t n, int64_t d, double weight, float* out,
                 float* a_norm, float* b_norm) {
  const int64_t i = WarpTeam::row();
  if (i >= n) return;  // the whole warp
  const float *a_row = a + i * d, *b_row = b + i * d;
  const double aa =
      Sqrt(SumOf<WarpTeam>(d, [a_row](int64_t j) { return double{a_row[j]} * a_row[j]; }));
  const double bb =
      Sqrt(SumOf<WarpTeam>(d, [b_row](int64_t j) { return double{b_row[j]} * b_row[j]; }));
  const double ab =
      SumOf<WarpTeam>(d, [a_row, b_row](int64_t j) { return double{a_row[j]} * b_row[j]; });
  const double cosine = aa * bb > 0 ? Most(-1.0, Least(1.0, ab / (aa * bb))) : 1.0;
  const double angle = AngleOf(cosine), sine = Sin(angle);
  constexpr double kStraightSine = 1e-4;
  const bool straight = sine < kStraightSine;
  const double from_a = straight ? 1 - weight : Sin((1 - weight) * angle) / sine;
  const double from_b = straight ? weight : Sin(weight * angle) / sine;
  const double a_share = aa > 0 ? from_a / aa : 0, b_share = bb > 0 ? from_b / bb : 0;
  const double squares = SumOf<WarpTeam>(d, [=](int64_t j) {
    const double sum = a_share * a_row[j] + b_share * b_row[j];
    return sum * sum;
  });
  const double scale = squares > 0 ? 1 / Sqrt(squares) : 0;
  for (int64_t j = Lane(); j < d; j += kWarp) {
    out[i * d + j] = static_cast<float>(scale * (a_share * a_row[j] + b_share * b_row[j]));
  }
  if (Lane() == 0) {
    a_norm[i] = static_cast<float>(aa);
    b_norm[i] = static_cast<float>(bb);
  }
}

class DeviceAlgebra final : public AlgebraOps {
 public:
  explicit DeviceAlgebra(Context& context) : context_(context) {}

 private:
  LaunchShape Blocks(int64_t count) const { return {.grid_x = count, .threads = kBlockThreads}; }

  void DoCosineSimilarity(const Tensor& a, const Tensor& b, Tensor out) override {
    const int64_t m = a.shape[0], n = b.shape[0], d = a.shape[1];
    ScratchScope scratch(context_);
    auto *unit_a = scratch.Take<float>(m * d), *unit_b = scratch.Take<float>(n * d);
    KVG_LAUNCH(UnitRowsKernel, Blocks(m), context_.stream(), a.f32(), d, unit_a);
    KVG_LAUNCH(UnitRowsKernel, Blocks(n), context_.stream(), b.f32(), d, unit_b);
    Multiply32({.a = unit_a,
                .b = unit_b,
                .m = m,
                .n = n,
                .k = d,
                .a_stride = d,
                .b_row = d,
                .b_k = 1,
                .out = out.f32(),
                .out_stride = n},
               context_.stream());
  }

  void DoKMeans(const Tensor& x, int iterations, Tensor centroids, Tensor assignment) override {
    const int64_t n = x.shape[0], d = x.shape[1], k = centroids.shape[0];
    const auto assign = [&] {
      KVG_LAUNCH(AssignKernel, Blocks(CeilDiv(n, kBlockWarps)), context_.stream(), x.f32(), n, d,
                 centroids.f32(), k, assignment.i32());
    };
    assign();
    for (int step = 0; step < iterations; ++step) {
      KVG_LAUNCH(CentroidKernel,
                 {.grid_x = k, .grid_y = CeilDiv(d, kBlockThreads), .threads = kBlockThreads},
                 context_.stream(), x.f32(), n, d, assignment.i32(), centroids.f32());
      assign();
    }
  }

  // Each sweep asks the device whether anything turned: a few waits for one factorisation.
  void DoSvd(const Tensor& a, Tensor u, Tensor s, Tensor vt) override {
    const bool wide = a.shape[0] < a.shape[1];
    const int64_t m = std::max(a.shape[0], a.shape[1]), r = std::min(a.shape[0], a.shape[1]);
    ScratchScope scratch(context_);
    auto *w = scratch.Take<double>(r * m), *v = scratch.Take<double>(r * r);
    auto *left = scratch.Take<double>(r * m), *right = scratch.Take<double>(r * r);
    auto *length = scratch.Take<double>(r), *sorted = scratch.Take<double>(2 * r);
    auto* turned = scratch.Take<int32_t>(1);
    const Stream stream = context_.stream();
    KVG_LAUNCH(LoadColumnsKernel, Blocks(r), stream, a.f32(), a.shape[1], wide, m, r, w, v);
    // Columns of rounding noise may go on turning; by then the others have settled.
    constexpr int kMaxSweeps = 60;
    const int64_t players = r + r % 2;
    int32_t any = r > 1 ? 1 : 0;
    for (int sweep = 0; any != 0 && sweep < kMaxSweeps; ++sweep) {
      Fill(turned, 0, sizeof(int32_t), stream);
      for (int64_t round = 0; round < players - 1; ++round) {
        if (m <= kWarpRow) {
          KVG_LAUNCH(JacobiKernel<WarpTeam>, Blocks(CeilDiv(players / 2, kBlockWarps)), stream, w,
                     v, m, r, round, turned);
        } else {
          KVG_LAUNCH(JacobiKernel<BlockTeam>, Blocks(players / 2), stream, w, v, m, r, round,
                     turned);
        }
      }
      CopyToHost(&any, turned, sizeof any, stream);
    }
    KVG_LAUNCH(LengthKernel, Blocks(r), stream, w, m, length);
    KVG_LAUNCH(ArrangeKernel, Blocks(r), stream, w, v, length, m, r, left, right, sorted);
    KVG_LAUNCH(CompleteKernel, Blocks(1), stream, left, sorted, m, r);
    if (wide) {
      KVG_LAUNCH(StoreSvdKernel, Blocks(r), stream, right, r, left, m, sorted, r, u.f32(), s.f32(),
                 vt.f32());
    } else {
      KVG_LAUNCH(StoreSvdKernel, Blocks(r), stream, left, m, right, r, sorted, r, u.f32(), s.f32(),
                 vt.f32());
    }
  }

  // The singular vectors of a matrix without negative eigenvalues are its eigenvectors.
  void DoEigenvectors(const Tensor& a, Tensor values, Tensor vectors) override {
    const int64_t n = a.shape[0], r = vectors.shape[0];
    ScratchScope scratch(context_);
    auto *left = scratch.Take<float>(n * n), *right = scratch.Take<float>(n * n);
    auto* sizes = scratch.Take<float>(n);
    const Tensor all(right, DType::kF32, {n, n}, a.device);
    const Tensor most(sizes, DType::kF32, {n}, a.device);
    DoSvd(a, Tensor(left, DType::kF32, {n, n}, a.device), most, all);
    CopyOnDevice(values.data, sizes, r * static_cast<int64_t>(sizeof(float)), context_.stream());
    CopyOnDevice(vectors.data, right, r * n * static_cast<int64_t>(sizeof(float)),
                 context_.stream());
  }

  void DoQr(const Tensor& a, Tensor q, Tensor r) override {
    const int64_t m = a.shape[0], n = a.shape[1];
    ScratchScope scratch(context_);
    auto *w = scratch.Take<double>(n * m), *e = scratch.Take<double>(n * m);
    auto *mirrors = scratch.Take<double>(n * m), *squares = scratch.Take<double>(n);
    KVG_LAUNCH(LoadColumnsKernel, Blocks(n), context_.stream(), a.f32(), n, false, m, n, w,
               nullptr);
    KVG_LAUNCH(QrKernel, Blocks(1), context_.stream(), w, e, mirrors, squares, m, n, q.f32(),
               r.f32());
  }

  void DoHadamard(Tensor x) override {
    constexpr int64_t kMostShared = 8192;
    const int64_t d = x.shape[1];
    const bool in_shared = d <= kMostShared;
    LaunchShape shape = Blocks(x.shape[0]);
    shape.shared_bytes = in_shared ? d * static_cast<int64_t>(sizeof(float)) : 0;
    const auto scale = static_cast<float>(1 / __builtin_sqrt(static_cast<double>(d)));
    KVG_LAUNCH(HadamardKernel, shape, context_.stream(), x.f32(), d, x.stride[0], in_shared, scale);
  }

  void DoDirectionsBetween(const Tensor& a, const Tensor& b, double weight, Tensor out,
                           Tensor a_norm, Tensor b_norm) override {
    KVG_LAUNCH(DirectionsKernel, Blocks(CeilDiv(a.shape[0], WarpTeam::kTeams)), context_.stream(),
               a.f32(), b.f32(), a.shape[0], a.shape[1], weight, out.f32(), a_norm.f32(),
               b_norm.f32());
  }

  Context& context_;
};

}  // namespace

std::unique_ptr<AlgebraOps> MakeCudaAlgebra(Context& context) {
  return std::make_unique<DeviceAlgebra>(context);
}

}  // namespace kvgauge::cuda

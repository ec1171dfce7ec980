// SPDX-License-Identifier: Apache-2.0
#include "kernels/algebra.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "cpu/algebra/algebra_eigen.h"
#include "cpu/algebra/algebra_factor.h"
#include "cpu/algebra/algebra_kernels.h"
#include "cpu/cpu.h"
#include "cpu/split_work.h"

namespace kvgauge {
namespace {

const AlgebraKernels& KernelsOf([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return Avx512AlgebraKernels();
  if (isa >= Isa::kAvx2) return Avx2AlgebraKernels();
#endif
  return PortableAlgebraKernels();
}

constexpr double kFlop_ns = 0.05;
constexpr double kMove_ns = 0.2;
// Rows of the first matrix that meet a panel while it is in the cache.
constexpr int64_t kRowBlock = 64;

// Rows of b, transposed by panels of kPanel; the last one is filled up with zeros.
std::vector<float> Panels(const Tensor& b) {
  const int64_t n = b.shape[0], d = b.shape[1];
  std::vector<float> panels(static_cast<size_t>((n + kPanel - 1) / kPanel * kPanel * d), 0.0f);
  for (int64_t j = 0; j < n; ++j) {
    float* panel = panels.data() + j / kPanel * kPanel * d + j % kPanel;
    for (int64_t k = 0; k < d; ++k) panel[k * kPanel] = b.f32()[j * d + k];
  }
  return panels;
}

class CpuAlgebra final : public AlgebraOps {
 public:
  CpuAlgebra(Isa isa, ThreadSettings threads) : k_(KernelsOf(isa)), threads_(threads) {}

 private:
  // take(i, first, values, count): row i of a against rows [first, first + count) of the other.
  template <class Kernel, class Take>
  void ForPanels(const Tensor& a, const std::vector<float>& panels, int64_t n, Kernel kernel,
                 const Take& take) const {
    const int64_t m = a.shape[0], d = a.shape[1];
    const double cost = kFlop_ns * static_cast<double>(std::min(kRowBlock, m) * n * d);
    SplitWork(threads_, (m + kRowBlock - 1) / kRowBlock, cost, [&](int64_t block) {
      const int64_t end = std::min(m, (block + 1) * kRowBlock);
      float tile[kTile * kPanel];
      for (int64_t first = 0; first < n; first += kPanel) {
        for (int64_t i = block * kRowBlock; i < end; i += kTile) {
          const int64_t rows = std::min(kTile, end - i);
          kernel(a.f32() + i * d, rows, d, panels.data() + first * d, tile);
          for (int64_t row = 0; row < rows; ++row) {
            take(i + row, first, tile + row * kPanel, std::min(kPanel, n - first));
          }
        }
      }
    });
  }

  std::vector<float> InverseNorms(const Tensor& x) const {
    const int64_t d = x.shape[1];
    std::vector<float> inverse(static_cast<size_t>(x.shape[0]));
    for (int64_t i = 0; i < x.shape[0]; ++i) {
      double squares = 0;
      for (int64_t k = 0; k < d; ++k) squares += double{x.f32()[i * d + k]} * x.f32()[i * d + k];
      inverse[i] = squares == 0 ? 0.0f : static_cast<float>(1 / std::sqrt(squares));
    }
    return inverse;
  }

  void DoCosineSimilarity(const Tensor& a, const Tensor& b, Tensor out) override {
    const int64_t n = b.shape[0];
    const std::vector<float> a_scale = InverseNorms(a), b_scale = InverseNorms(b);
    ForPanels(a, Panels(b), n, k_.dot_panel,
              [&](int64_t i, int64_t first, const float* dots, int64_t count) {
                float* row = out.As<float>() + i * n + first;
                const float scale = a_scale[i];
                for (int64_t j = 0; j < count; ++j) row[j] = dots[j] * scale * b_scale[first + j];
              });
  }

  void DoKMeans(const Tensor& x, int iterations, Tensor centroids, Tensor assignment) override {
    Assign(x, centroids, assignment);
    std::vector<int32_t> last;
    for (int step = 0; step < iterations; ++step) {
      // Same members, same means: nothing will move again.
      const bool settled = !last.empty() && std::equal(last.begin(), last.end(), assignment.i32());
      if (settled) return;
      last.assign(assignment.i32(), assignment.i32() + x.shape[0]);
      Update(x, assignment, centroids);
      Assign(x, centroids, assignment);
    }
  }

  // Distances from differences, not from products: keys have channels whose offset dwarfs their
  // spread, and |x|^2 - 2xc + |c|^2 would cancel there.
  void Assign(const Tensor& x, const Tensor& centroids, const Tensor& assignment) const {
    int32_t* nearest = assignment.i32();
    std::vector<float> best(static_cast<size_t>(x.shape[0]),
                            std::numeric_limits<float>::infinity());
    std::fill_n(nearest, x.shape[0], 0);
    ForPanels(x, Panels(centroids), centroids.shape[0], k_.squared_distance_panel,
              [&](int64_t i, int64_t first, const float* distances, int64_t count) {
                for (int64_t c = 0; c < count; ++c) {
                  if (distances[c] >= best[i]) continue;
                  best[i] = distances[c];
                  nearest[i] = static_cast<int32_t>(first + c);
                }
              });
  }

  // Each cluster adds up its members in order; threads share out clusters.
  void Update(const Tensor& x, const Tensor& assignment, const Tensor& centroids) const {
    const int64_t n = x.shape[0], d = x.shape[1], k = centroids.shape[0];
    std::vector<int64_t> start(static_cast<size_t>(k) + 1, 0);
    for (int64_t i = 0; i < n; ++i) ++start[assignment.i32()[i] + 1];
    for (int64_t c = 0; c < k; ++c) start[c + 1] += start[c];
    std::vector<int64_t> members(static_cast<size_t>(n)), next(start);
    for (int64_t i = 0; i < n; ++i) members[next[assignment.i32()[i]]++] = i;
    const double cost = kMove_ns * static_cast<double>(n * d) / static_cast<double>(k);
    SplitWork(threads_, k, cost, [&](int64_t c) {
      const int64_t count = start[c + 1] - start[c];
      if (count == 0) return;
      std::vector<double> sums(static_cast<size_t>(d), 0.0);
      for (int64_t i = start[c]; i < start[c + 1]; ++i) {
        k_.add(x.f32() + members[i] * d, d, sums.data());
      }
      for (int64_t j = 0; j < d; ++j) {
        centroids.f32()[c * d + j] = static_cast<float>(sums[j] / static_cast<double>(count));
      }
    });
  }

  void DoSvd(const Tensor& a, Tensor u, Tensor s, Tensor vt) override {
    FactorSvd(k_, threads_, a, u, s, vt);
  }

  void DoEigenvectors(const Tensor& a, Tensor values, Tensor vectors) override {
    SymmetricEigenvectors(k_, threads_, a, values, vectors);
  }

  void DoQr(const Tensor& a, Tensor q, Tensor r) override { FactorQr(k_, threads_, a, q, r); }

  void DoHadamard(Tensor x) override {
    SplitWork(threads_, x.shape[0], kMove_ns * static_cast<double>(x.shape[1]),
              [&](int64_t i) { k_.hadamard(x.f32() + i * x.stride[0], x.shape[1]); });
  }

  const AlgebraKernels& k_;
  const ThreadSettings threads_;
};

}  // namespace

std::unique_ptr<AlgebraOps> MakeCpuAlgebra(Isa isa, ThreadSettings threads) {
  return std::make_unique<CpuAlgebra>(isa, threads);
}

}  // namespace kvgauge

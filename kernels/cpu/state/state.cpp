// SPDX-License-Identifier: Apache-2.0
// Spreads state kernels over threads: rows of a convolution, heads of a scan.
#include "kernels/state.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "cpu/cpu.h"
#include "cpu/split_work.h"
#include "cpu/state/state_kernels.h"

namespace kvgauge {
namespace {

const StateKernels& StateKernelsOf([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return Avx512StateKernels();
  if (isa >= Isa::kAvx2) return Avx2StateKernels();
#endif
  return PortableStateKernels();
}

// Rough cost of one product of a tap, and of one number of a state.
constexpr double kTap_ns = 0.1;
constexpr double kStateNumber_ns = 0.3;
constexpr double kSelectedNumber_ns = 1.0;  // it has a decay of its own
constexpr double kAverage_ns = 3.0;         // four exponentials and a quotient
// Columns that a thread scans at once: their states stay in its first cache.
constexpr int64_t kColumnsAtOnce = 128;

// log(1 + e^x), whatever x is.
float SoftPlus(float x) { return std::max(x, 0.0f) + std::log1p(std::exp(-std::abs(x))); }

class CpuState final : public StateOps {
 public:
  CpuState(Isa isa, ThreadSettings threads) : k_(StateKernelsOf(isa)), threads_(threads) {}

 private:
  void DoConvolve(const Tensor& x, const Tensor& taps, const Tensor& bias, Tensor past,
                  Tensor out) override {
    const int64_t n = x.shape[0], columns = x.shape[1], width = taps.shape[0], before = width - 1;
    // Row t of those before the first, and of the rows behind them.
    std::vector<const float*> rows;
    for (int64_t i = 0; i < before; ++i) rows.push_back(past.f32() + i * columns);
    for (int64_t t = 0; t < n; ++t) rows.push_back(x.f32() + t * x.stride[0]);
    const double cost = kTap_ns * static_cast<double>(columns * width);
    SplitWork(threads_, n, cost, [&](int64_t t) {
      k_.convolve(rows.data() + t, taps.f32(), bias.As<float>(), width, columns,
                  out.f32() + t * out.stride[0]);
    });
    // Ascending: what is read lies behind what is written.
    for (int64_t i = 0; i < before; ++i) {
      std::memcpy(past.f32() + i * columns, rows[static_cast<size_t>(n + i)],
                  static_cast<size_t>(columns) * sizeof(float));
    }
  }

  void DoScan(const StateScan& scan, Tensor state, Tensor out) override {
    const int64_t n = scan.values.shape[0], heads = scan.values.shape[1];
    const int64_t dk = scan.keys.shape[2], dv = scan.values.shape[2];
    const int64_t group = heads / scan.keys.shape[1];
    const auto row = [](const Tensor& t, int64_t i, int64_t h) {
      return t.f32() + i * t.stride[0] + h * t.stride[1];
    };
    const double cost = kStateNumber_ns * static_cast<double>(n * dk * dv);
    SplitWork(threads_, heads, cost, [&](int64_t h) {
      const float bias = scan.step_bias.f32()[h], rate = scan.rates.f32()[h];
      const float skip = scan.skip.empty() ? 0.0f : scan.skip.f32()[h];
      for (int64_t t = 0; t < n; ++t) {
        const float length = SoftPlus(*row(scan.steps, t, h) + bias);
        const float step = std::min(std::max(length, scan.least_step), scan.most_step);
        const float weight =
            scan.weights.empty() ? step : 1.0f / (1.0f + std::exp(-*row(scan.weights, t, h)));
        k_.scan(state.f32() + h * dk * dv, row(scan.queries, t, h / group),
                row(scan.keys, t, h / group), row(scan.values, t, h), dk, dv, std::exp(rate * step),
                weight, skip, scan.corrects, row(out, t, h));
      }
    });
  }

  void DoScanColumns(const ColumnScan& scan, Tensor state, Tensor out) override {
    const int64_t n = scan.values.shape[0], columns = scan.values.shape[1];
    const int64_t dim = scan.keys.shape[1],
                  blocks = (columns + kColumnsAtOnce - 1) / kColumnsAtOnce;
    const double cost = kSelectedNumber_ns * static_cast<double>(n * dim * kColumnsAtOnce);
    SplitWork(threads_, blocks, cost, [&](int64_t block) {
      const int64_t first = block * kColumnsAtOnce,
                    count = std::min(kColumnsAtOnce, columns - first);
      const auto row = [first](const Tensor& t, int64_t i) {
        return t.f32() + i * t.stride[0] + first;
      };
      const float* const bias = scan.step_bias.f32() + first;
      const float* const skip = scan.skip.empty() ? nullptr : scan.skip.f32() + first;
      float step[kColumnsAtOnce];
      for (int64_t t = 0; t < n; ++t) {
        const float* const logits = row(scan.steps, t);
        for (int64_t c = 0; c < count; ++c) step[c] = SoftPlus(logits[c] + bias[c]);
        k_.scan_columns(state.f32() + first, scan.queries.f32() + t * scan.queries.stride[0],
                        scan.keys.f32() + t * scan.keys.stride[0], row(scan.values, t), step,
                        scan.rates.f32() + first, skip, dim, columns, count, row(out, t));
      }
    });
  }

  void DoScanAverages(const AverageScan& scan, Tensor state, Tensor out) override {
    const int64_t n = scan.values.shape[0], columns = scan.values.shape[1];
    const int64_t blocks = (columns + kColumnsAtOnce - 1) / kColumnsAtOnce;
    const double cost = kAverage_ns * static_cast<double>(n * kColumnsAtOnce);
    SplitWork(threads_, blocks, cost, [&](int64_t block) {
      const int64_t first = block * kColumnsAtOnce,
                    count = std::min(kColumnsAtOnce, columns - first);
      k_.scan_averages(state.f32() + first, scan.keys.f32() + first, scan.keys.stride[0],
                       scan.values.f32() + first, scan.values.stride[0], scan.rates.f32() + first,
                       scan.first.f32() + first, n, columns, count, out.f32() + first,
                       out.stride[0]);
    });
  }

  void DoScanDecays(const DecayScan& scan, Tensor state, Tensor out) override {
    const int64_t n = scan.values.shape[0], heads = scan.values.shape[1];
    const int64_t dk = scan.keys.shape[2], dv = scan.values.shape[2];
    const auto row = [](const Tensor& t, int64_t i, int64_t h) {
      return t.f32() + i * t.stride[0] + h * t.stride[1];
    };
    const double cost = kStateNumber_ns * static_cast<double>(n * dk * dv);
    SplitWork(threads_, heads, cost, [&](int64_t h) {
      std::vector<float> decays(static_cast<size_t>(dk));
      for (int64_t t = 0; t < n; ++t) {
        k_.exponents(row(scan.rates, t, h), dk, decays.data());
        k_.scan_decays(state.f32() + h * dk * dv, row(scan.queries, t, h), row(scan.keys, t, h),
                       row(scan.values, t, h), decays.data(), row(scan.finds, t, h),
                       row(scan.writes, t, h), dk, dv, row(out, t, h));
      }
    });
  }

  void DoScanBonus(const BonusScan& scan, Tensor state, Tensor out) override {
    const int64_t n = scan.values.shape[0], heads = scan.values.shape[1];
    const int64_t dk = scan.keys.shape[2], dv = scan.values.shape[2];
    const auto row = [](const Tensor& t, int64_t i, int64_t h) {
      return t.f32() + i * t.stride[0] + h * t.stride[1];
    };
    const double cost = kStateNumber_ns * static_cast<double>(n * dk * dv);
    SplitWork(threads_, heads, cost, [&](int64_t h) {
      std::vector<float> decays(static_cast<size_t>(dk));
      const float* const bonus = scan.bonus.empty() ? nullptr : scan.bonus.f32() + h * dk;
      for (int64_t t = 0; t < n; ++t) {
        k_.exponents(row(scan.rates, t, h), dk, decays.data());
        k_.scan_bonus(state.f32() + h * dk * dv, row(scan.queries, t, h), row(scan.keys, t, h),
                      row(scan.values, t, h), decays.data(), bonus, dk, dv, row(out, t, h));
      }
    });
  }

  const StateKernels& k_;
  ThreadSettings threads_;
};

}  // namespace

std::unique_ptr<StateOps> MakeCpuState(Isa isa, ThreadSettings threads) {
  return std::make_unique<CpuState>(isa, threads);
}

}  // namespace kvgauge

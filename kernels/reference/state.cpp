// SPDX-License-Identifier: Apache-2.0
#include "kernels/state.h"

#include <cmath>
#include <vector>

#include "reference/reference.h"

namespace kvgauge {
namespace {

double Number(const Tensor& t, int64_t i) { return t.f32()[i * t.stride[0]]; }
double Number(const Tensor& t, int64_t i, int64_t j) {
  return t.f32()[i * t.stride[0] + j * t.stride[1]];
}
double Number(const Tensor& t, int64_t i, int64_t j, int64_t l) {
  return t.f32()[i * t.stride[0] + j * t.stride[1] + l];
}

class ReferenceState final : public StateOps {
  void DoConvolve(const Tensor& x, const Tensor& taps, const Tensor& bias, Tensor past,
                  Tensor out) override {
    const int64_t n = x.shape[0], columns = x.shape[1], before = past.shape[0];
    for (int64_t c = 0; c < columns; ++c) {
      // The rows before the first and the rows themselves.
      std::vector<float> all;
      for (int64_t i = 0; i < before; ++i) all.push_back(past.f32()[i * columns + c]);
      for (int64_t t = 0; t < n; ++t) all.push_back(x.f32()[t * x.stride[0] + c]);
      for (int64_t t = 0; t < n; ++t) {
        double sum = bias.empty() ? 0.0 : Number(bias, c);
        for (int64_t i = 0; i <= before; ++i) {
          sum += Number(taps, i, c) * double{all[static_cast<size_t>(t + i)]};
        }
        out.f32()[t * out.stride[0] + c] = static_cast<float>(sum);
      }
      for (int64_t i = 0; i < before; ++i) {
        past.f32()[i * columns + c] = all[static_cast<size_t>(n + i)];
      }
    }
  }

  void DoScan(const StateScan& scan, Tensor state, Tensor out) override {
    const int64_t n = scan.values.shape[0], heads = scan.values.shape[1];
    const int64_t dk = scan.keys.shape[2], dv = scan.values.shape[2];
    const int64_t group = heads / scan.keys.shape[1];
    for (int64_t h = 0; h < heads; ++h) {
      float* const kept = state.f32() + h * dk * dv;
      std::vector<double> s(kept, kept + dk * dv);
      const auto at = [&](int64_t i, int64_t j) -> double& {
        return s[static_cast<size_t>(i * dv + j)];
      };
      for (int64_t t = 0; t < n; ++t) {
        const double logit = Number(scan.steps, t, h) + Number(scan.step_bias, h);
        const double length = std::fmax(logit, 0.0) + std::log1p(std::exp(-std::fabs(logit)));
        const double step =
            std::fmin(std::fmax(length, double{scan.least_step}), double{scan.most_step});
        const double decay = std::exp(Number(scan.rates, h) * step);
        const double weight =
            scan.weights.empty() ? step : 1 / (1 + std::exp(-Number(scan.weights, t, h)));
        const double skip = scan.skip.empty() ? 0.0 : Number(scan.skip, h);
        for (double& number : s) number *= decay;
        for (int64_t j = 0; j < dv; ++j) {
          const double value = Number(scan.values, t, h, j);
          double found = 0, read = skip * value;
          for (int64_t i = 0; scan.corrects && i < dk; ++i) {
            found += Number(scan.keys, t, h / group, i) * at(i, j);
          }
          for (int64_t i = 0; i < dk; ++i) {
            at(i, j) += Number(scan.keys, t, h / group, i) * weight * (value - found);
            read += Number(scan.queries, t, h / group, i) * at(i, j);
          }
          out.f32()[t * out.stride[0] + h * out.stride[1] + j] = static_cast<float>(read);
        }
        // A call's rows keep no more of the state than calls of one row each do.
        for (double& number : s) number = static_cast<float>(number);
      }
      for (size_t i = 0; i < s.size(); ++i) kept[i] = static_cast<float>(s[i]);
    }
  }

  void DoScanColumns(const ColumnScan& scan, Tensor state, Tensor out) override {
    const int64_t n = scan.values.shape[0], columns = scan.values.shape[1];
    const int64_t dim = scan.keys.shape[1];
    for (int64_t c = 0; c < columns; ++c) {
      const double skip = scan.skip.empty() ? 0.0 : Number(scan.skip, c);
      for (int64_t t = 0; t < n; ++t) {
        const double logit = Number(scan.steps, t, c) + Number(scan.step_bias, c);
        const double step = std::fmax(logit, 0.0) + std::log1p(std::exp(-std::fabs(logit)));
        const double value = Number(scan.values, t, c);
        double read = skip * value;
        for (int64_t i = 0; i < dim; ++i) {
          float& kept = state.f32()[i * columns + c];
          const double s = double{kept} * std::exp(Number(scan.rates, i, c) * step) +
                           Number(scan.keys, t, i) * step * value;
          read += Number(scan.queries, t, i) * s;
          kept = static_cast<float>(s);
        }
        out.f32()[t * out.stride[0] + c] = static_cast<float>(read);
      }
    }
  }

  void DoScanAverages(const AverageScan& scan, Tensor state, Tensor out) override {
    const int64_t n = scan.values.shape[0], columns = scan.values.shape[1];
    for (int64_t c = 0; c < columns; ++c) {
      float &sum = state.f32()[c], &weight = state.f32()[columns + c];
      float& top = state.f32()[2 * columns + c];
      const double rate = Number(scan.rates, c), first = Number(scan.first, c);
      for (int64_t t = 0; t < n; ++t) {
        const double key = Number(scan.keys, t, c), value = Number(scan.values, t, c);
        // Without a row before it a weight is 0, whatever it is a multiple of.
        const bool seen = weight > 0;
        const double before = double{top};
        const double most = seen ? std::fmax(before, key + first) : key + first;
        const double kept = seen ? std::exp(before - most) : 0, own = std::exp(key + first - most);
        out.f32()[t * out.stride[0] + c] =
            static_cast<float>((kept * sum + own * value) / (kept * weight + own));
        const double next = seen ? std::fmax(before + rate, key) : key;
        const double shrunk = seen ? std::exp(before + rate - next) : 0,
                     added = std::exp(key - next);
        sum = static_cast<float>(shrunk * sum + added * value);
        weight = static_cast<float>(shrunk * weight + added);
        top = static_cast<float>(next);
      }
    }
  }

  void DoScanDecays(const DecayScan& scan, Tensor state, Tensor out) override {
    const int64_t n = scan.values.shape[0], heads = scan.values.shape[1];
    const int64_t dk = scan.keys.shape[2], dv = scan.values.shape[2];
    for (int64_t h = 0; h < heads; ++h) {
      float* const kept = state.f32() + h * dk * dv;
      for (int64_t t = 0; t < n; ++t) {
        for (int64_t j = 0; j < dv; ++j) {
          const double value = Number(scan.values, t, h, j);
          double found = 0, read = 0;
          for (int64_t i = 0; i < dk; ++i) {
            found += Number(scan.finds, t, h, i) * double{kept[i * dv + j]};
          }
          for (int64_t i = 0; i < dk; ++i) {
            const double s = std::exp(Number(scan.rates, t, h, i)) * double{kept[i * dv + j]} +
                             Number(scan.writes, t, h, i) * found +
                             Number(scan.keys, t, h, i) * value;
            read += Number(scan.queries, t, h, i) * s;
            kept[i * dv + j] = static_cast<float>(s);
          }
          out.f32()[t * out.stride[0] + h * out.stride[1] + j] = static_cast<float>(read);
        }
      }
    }
  }

  void DoScanBonus(const BonusScan& scan, Tensor state, Tensor out) override {
    const int64_t n = scan.values.shape[0], heads = scan.values.shape[1];
    const int64_t dk = scan.keys.shape[2], dv = scan.values.shape[2];
    for (int64_t h = 0; h < heads; ++h) {
      float* const kept = state.f32() + h * dk * dv;
      for (int64_t t = 0; t < n; ++t) {
        for (int64_t j = 0; j < dv; ++j) {
          const double value = Number(scan.values, t, h, j);
          double read = 0;
          for (int64_t i = 0; i < dk; ++i) {
            const double own = Number(scan.keys, t, h, i) * value, before = kept[i * dv + j];
            const double weight = scan.bonus.empty() ? 0 : Number(scan.bonus, h, i);
            read += Number(scan.queries, t, h, i) * (before + weight * own);
            kept[i * dv + j] =
                static_cast<float>(std::exp(Number(scan.rates, t, h, i)) * before + own);
          }
          out.f32()[t * out.stride[0] + h * out.stride[1] + j] = static_cast<float>(read);
        }
      }
    }
  }
};

}  // namespace

std::unique_ptr<StateOps> MakeReferenceState() { return std::make_unique<ReferenceState>(); }

}  // namespace kvgauge

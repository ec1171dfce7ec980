// SPDX-License-Identifier: Apache-2.0
#include "kernels/rows.h"

#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "core/rng.h"
#include "reference/reference.h"
#include "reference/views.h"

namespace kvgauge {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double Apply(Activation act, double x) {
  switch (act) {
    case Activation::kRelu:
      return std::isnan(x) ? x : std::fmax(x, 0.0);
    case Activation::kSilu:
      return x / (1 + std::exp(-x));
    case Activation::kGelu:
      // erfc keeps the small values on the negative side.
      return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
    case Activation::kGeluTanh: {
      const double inner = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
      // 0.5 (1 + tanh), in the form that does not cancel.
      return x / (1 + std::exp(-2 * inner));
    }
    case Activation::kExp:
      return std::exp(x);
    case Activation::kLog:
      return x < std::numeric_limits<float>::min() ? -kInfinity : std::log(x);
    case Activation::kSqrt:
      return std::sqrt(x);
    case Activation::kGeluQuick:
      return x / (1 + std::exp(-1.702 * x));
    case Activation::kSigmoid:
      return 1 / (1 + std::exp(-x));
  }
  return kNan;
}

double Apply(Binary op, double a, double b) {
  switch (op) {
    case Binary::kAdd:
      return a + b;
    case Binary::kSubtract:
      return a - b;
    case Binary::kMultiply:
      return a * b;
    case Binary::kDivide:
      return a / b;
    case Binary::kMin:
      return a < b ? a : b;
    case Binary::kMax:
      return a > b ? a : b;
    case Binary::kLess:
      return a < b ? 1 : 0;
  }
  return kNan;
}

double Start(Reduction kind) {
  if (kind == Reduction::kMax) return -kInfinity;
  if (kind == Reduction::kMin) return kInfinity;
  return 0;
}

double Step(Reduction kind, double so_far, double v) {
  if (std::isnan(so_far) || std::isnan(v)) return kNan;
  switch (kind) {
    case Reduction::kMax:
      return std::fmax(so_far, v);
    case Reduction::kMin:
      return std::fmin(so_far, v);
    case Reduction::kSumAbs:
      return so_far + std::abs(v);
    case Reduction::kSumSquares:
    case Reduction::kNorm:
      return so_far + v * v;
    default:
      return so_far + v;
  }
}

double Finish(Reduction kind, double result, int64_t count) {
  if (kind == Reduction::kMean) return result / static_cast<double>(count);
  return kind == Reduction::kNorm ? std::sqrt(result) : result;
}

class ReferenceRows final : public RowOps {
  void DoRmsNorm(const Tensor& x, const Tensor& weight, float weight_offset, float eps,
                 Tensor out) override {
    const int64_t d = x.shape[1];
    for (int64_t i = 0; i < x.shape[0]; ++i) {
      double squares = 0;
      for (int64_t j = 0; j < d; ++j) squares += At(x, i, j) * At(x, i, j);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(d) + double{eps});
      for (int64_t j = 0; j < d; ++j) {
        Put(out, i, j, At(x, i, j) * scale * (double{weight_offset} + weight.f32()[j]));
      }
    }
  }

  void DoLayerNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                   Tensor out) override {
    const int64_t d = x.shape[1];
    const double count = static_cast<double>(d);
    for (int64_t i = 0; i < x.shape[0]; ++i) {
      double sum = 0, squares = 0;
      for (int64_t j = 0; j < d; ++j) sum += At(x, i, j);
      const double mean = sum / count;
      for (int64_t j = 0; j < d; ++j) squares += (At(x, i, j) - mean) * (At(x, i, j) - mean);
      const double scale = 1 / std::sqrt(squares / count + double{eps});
      for (int64_t j = 0; j < d; ++j) {
        const double w = weight.empty() ? 1 : weight.f32()[j];
        const double b = bias.empty() ? 0 : bias.f32()[j];
        Put(out, i, j, (At(x, i, j) - mean) * scale * w + b);
      }
    }
  }

  void DoRopeTable(const Tensor& positions, const Tensor& inverse_frequency, const Tensor& axis,
                   float attention_factor, Tensor cos, Tensor sin) override {
    for (int64_t i = 0; i < cos.shape[0]; ++i) {
      for (int64_t j = 0; j < cos.shape[1]; ++j) {
        const int32_t which = axis.empty() ? 0 : axis.i32()[j];
        KVG_CHECK(which >= 0 && which < positions.shape[1], "RopeTable: axis out of range");
        const int32_t position = positions.i32()[i * positions.stride[0] + which];
        // The product is rounded to f32, as the models were trained; the rest is exact.
        const float angle = static_cast<float>(position) * inverse_frequency.f32()[j];
        Put(cos, i, j, static_cast<float>(std::cos(double{angle})) * double{attention_factor});
        Put(sin, i, j, static_cast<float>(std::sin(double{angle})) * double{attention_factor});
      }
    }
  }

  void DoRope(const Tensor& cos, const Tensor& sin, RopeLayout layout, RopeDirection direction,
              Tensor x) override {
    const int64_t half = cos.shape[1];
    for (int64_t i = 0; i < x.shape[0]; ++i) {
      for (int64_t h = 0; h < x.shape[1]; ++h) {
        float* head = x.f32() + i * x.stride[0] + h * x.stride[1];
        for (int64_t j = 0; j < half; ++j) {
          const int64_t first = layout == RopeLayout::kHalf ? j : 2 * j;
          const int64_t second = layout == RopeLayout::kHalf ? j + half : 2 * j + 1;
          const double c = At(cos, i, j);
          const double s = direction == RopeDirection::kForward ? At(sin, i, j) : -At(sin, i, j);
          const double a = head[first], b = head[second];
          head[first] = static_cast<float>(a * c - b * s);
          head[second] = static_cast<float>(b * c + a * s);
        }
      }
    }
  }

  void DoActivate(const Tensor& x, Activation act, Tensor out) override {
    ForEach(out, [&](int64_t i, int64_t j) { return Apply(act, At(x, i, j)); });
  }

  void DoGatedActivate(const Tensor& x, Activation act, Tensor out) override {
    const int64_t f = out.shape[1];
    ForEach(out, [&](int64_t i, int64_t j) { return Apply(act, At(x, i, j)) * At(x, i, f + j); });
  }

  void DoCombine(const Tensor& a, const Tensor& b, Binary op, Tensor out) override {
    ForEach(out, [&](int64_t i, int64_t j) {
      return Apply(op, At(a, i, j), b.rank == 1 ? b.f32()[j] : At(b, i, j));
    });
  }

  void DoAffine(const Tensor& x, float scale, float shift, Tensor out) override {
    ForEach(out, [&](int64_t i, int64_t j) { return double{scale} * At(x, i, j) + shift; });
  }

  void DoFill(float value, Tensor out) override {
    ForEach(out, [&](int64_t, int64_t) { return double{value}; });
  }

  void DoSoftCap(const Tensor& x, float cap, Tensor out) override {
    ForEach(out, [&](int64_t i, int64_t j) { return cap * std::tanh(At(x, i, j) / cap); });
  }

  void DoSoftmax(const Tensor& x, float scale, Tensor out) override {
    std::vector<double> row(static_cast<size_t>(x.shape[1]));
    for (int64_t i = 0; i < x.shape[0]; ++i) {
      double top = -kInfinity, sum = 0;
      for (int64_t j = 0; j < x.shape[1]; ++j) {
        const double v = At(x, i, j);
        row[j] = v == -kInfinity ? v : scale * v;
        top = std::fmax(top, row[j]);
      }
      // A row of only -inf: any finite shift makes every weight 0 instead of inf - inf.
      if (top == -kInfinity) top = 0;
      for (double& v : row) sum += v = std::exp(v - top);
      for (int64_t j = 0; j < x.shape[1]; ++j) Put(out, i, j, sum == 0 ? 0 : row[j] / sum);
    }
  }

  void DoLogSumExp(const Tensor& x, Tensor out) override {
    for (int64_t i = 0; i < x.shape[0]; ++i) {
      double top = -kInfinity, sum = 0;
      for (int64_t j = 0; j < x.shape[1]; ++j) top = Step(Reduction::kMax, top, At(x, i, j));
      // Without the shift an infinite maximum gives inf - inf.
      const double shift = std::isinf(top) ? 0 : top;
      for (int64_t j = 0; j < x.shape[1]; ++j) sum += std::exp(At(x, i, j) - shift);
      out.f32()[i] = static_cast<float>(shift + std::log(sum));
    }
  }

  void DoReduceRows(const Tensor& x, Reduction kind, Tensor out) override {
    for (int64_t i = 0; i < x.shape[0]; ++i) {
      double result = Start(kind);
      for (int64_t j = 0; j < x.shape[1]; ++j) result = Step(kind, result, At(x, i, j));
      out.f32()[i] = static_cast<float>(Finish(kind, result, x.shape[1]));
    }
  }

  void DoReduceColumns(const Tensor& x, Reduction kind, Tensor out) override {
    for (int64_t j = 0; j < x.shape[1]; ++j) {
      double result = Start(kind);
      for (int64_t i = 0; i < x.shape[0]; ++i) result = Step(kind, result, At(x, i, j));
      out.f32()[j] = static_cast<float>(Finish(kind, result, x.shape[0]));
    }
  }

  void DoArgMax(const Tensor& x, Tensor out) override {
    for (int64_t i = 0; i < x.shape[0]; ++i) {
      int64_t best = -1;
      for (int64_t j = 0; j < x.shape[1]; ++j) {
        const double v = At(x, i, j);
        if (!std::isnan(v) && (best < 0 || v > At(x, i, best))) best = j;
      }
      out.i32()[i] = static_cast<int32_t>(best < 0 ? 0 : best);
    }
  }

  void DoConvert(const Tensor& x, Tensor out) override {
    ForEach(out, [&](int64_t i, int64_t j) {
      return x.dtype == DType::kI32 ? static_cast<double>(x[i].i32()[j]) : At(x, i, j);
    });
  }

  void DoUniform(uint64_t seed, uint64_t stream, const Tensor& counter, Tensor out) override {
    for (int64_t i = 0; i < counter.shape[0]; ++i) {
      const uint32_t word = Rng(seed, stream).At(static_cast<uint32_t>(counter.i32()[i]))[0];
      out.f32()[i] = static_cast<float>(std::floor(word / 256.0) / 16777216.0);
    }
  }

  template <class Value>
  static void ForEach(const Tensor& out, Value value) {
    for (int64_t i = 0; i < out.shape[0]; ++i) {
      for (int64_t j = 0; j < out.shape[1]; ++j) Put(out, i, j, value(i, j));
    }
  }
};

}  // namespace

std::unique_ptr<RowOps> MakeReferenceRows() { return std::make_unique<ReferenceRows>(); }

}  // namespace kvgauge

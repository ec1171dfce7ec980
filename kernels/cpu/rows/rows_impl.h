// SPDX-License-Identifier: Apache-2.0
// Row kernels over lanes.h; each rows_<isa>.cpp includes this once and exports the table.
//
// Sums run in blocks: within a block four vectors of partial sums, then a fixed tree; the blocks
// are added as doubles. The order follows from the row length alone.
#pragma once

#include <type_traits>

#include "cpu/isa/lanes.h"
#include "cpu/rows/rows_kernels.h"

namespace kvgauge {
namespace {

constexpr float kInfinity = __builtin_inff();
constexpr int64_t kSumBlock = 4096;

// acc = step(acc, i, count) adds the elements at i; lanes that take no part must not change.
template <class Step>
KVG_INLINE double BlockedSum(int64_t n, Step step) {
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kSumBlock) {
    const int64_t end = n - begin < kSumBlock ? n : begin + kSumBlock;
    F a = {}, b = {}, c = {}, d = {};
    int64_t i = begin;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      a = step(a, i, Whole{});
      b = step(b, i + kLanes, Whole{});
      c = step(c, i + 2 * kLanes, Whole{});
      d = step(d, i + 3 * kLanes, Whole{});
    }
    for (; i + kLanes <= end; i += kLanes) a = step(a, i, Whole{});
    if (i < end) b = step(b, i, Part{static_cast<int>(end - i)});
    total += static_cast<double>(SumLanes((a + b) + (c + d)));
  }
  return total;
}

// Maximum of term(i, count), -inf for none; terms that are NaN do not count.
template <class Term>
KVG_INLINE float MaxOf(int64_t n, Term term) {
  F a = Splat(-kInfinity), b = a;
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    a = Max(term(i, Whole{}), a);
    b = Max(term(i + kLanes, Whole{}), b);
  }
  if (i + kLanes <= n) {
    a = Max(term(i, Whole{}), a);
    i += kLanes;
  }
  if (i < n) {
    const Part part{static_cast<int>(n - i)};
    b = Max(KeepOr(term(i, part), part, -kInfinity), b);
  }
  return MaxLanes(Max(a, b));
}

// Calls body with the dtype as a constant.
template <class Body>
KVG_INLINE void WithType(DType type, Body body) {
  switch (type) {
    case DType::kBF16:
      return body(std::integral_constant<DType, DType::kBF16>{});
    case DType::kF16:
      return body(std::integral_constant<DType, DType::kF16>{});
    default:
      return body(std::integral_constant<DType, DType::kF32>{});
  }
}

struct Relu {
  KVG_INLINE F operator()(F v) const { return Max(F{}, v); }
};
struct Exponential {
  KVG_INLINE F operator()(F v) const { return Exp(v); }
};
struct Logarithm {
  KVG_INLINE F operator()(F v) const { return Log(v); }
};
struct SquareRoot {
  KVG_INLINE F operator()(F v) const { return Sqrt(v); }
};
struct Silu {
  KVG_INLINE F operator()(F v) const { return v / (Exp(-v) + 1.0f); }
};
struct Gelu {
  KVG_INLINE F operator()(F v) const { return GeluErf(v); }
};
// 0.5 x (1 + tanh u) = x / (1 + e^-2u), which does not cancel on the negative side.
struct GeluTanh {
  KVG_INLINE F operator()(F v) const {
    constexpr float kMinusTwoRootTwoOverPi = -1.5957691216057308f;
    const F u = v * Fma(v * v, Splat(0.044715f), Splat(1.0f));
    return v / (Exp(u * kMinusTwoRootTwoOverPi) + 1.0f);
  }
};
struct GeluQuick {
  KVG_INLINE F operator()(F v) const { return v / (Exp(v * -1.702f) + 1.0f); }
};
struct Sigmoid {
  KVG_INLINE F operator()(F v) const { return Splat(1.0f) / (Exp(-v) + 1.0f); }
};
template <class Body>
KVG_INLINE void WithActivation(Activation act, Body body) {
  switch (act) {
    case Activation::kRelu:
      return body(Relu{});
    case Activation::kSilu:
      return body(Silu{});
    case Activation::kGelu:
      return body(Gelu{});
    case Activation::kGeluTanh:
      return body(GeluTanh{});
    case Activation::kExp:
      return body(Exponential{});
    case Activation::kLog:
      return body(Logarithm{});
    case Activation::kSqrt:
      return body(SquareRoot{});
    case Activation::kGeluQuick:
      return body(GeluQuick{});
    case Activation::kSigmoid:
      return body(Sigmoid{});
  }
}

void RmsNormRow(const float* x, const float* weight, int64_t d, float offset, float eps, void* out,
                DType out_type) {
  const double squares = BlockedSum(d, [x](F acc, int64_t i, auto count) {
    const F v = Load(x + i, count);
    return Fma(v, v, acc);
  });
  const double mean = squares / static_cast<double>(d);
  const float scale = static_cast<float>(1 / __builtin_sqrt(mean + static_cast<double>(eps)));
  WithType(out_type, [&](auto type) {
    ForLanes(d, [&](int64_t i, auto count) {
      const F w = Load(weight + i, count) + offset;
      StoreAny(out, type, i, Load(x + i, count) * scale * w, count);
    });
  });
}

void LayerNormRow(const float* x, const float* weight, const float* bias, int64_t d, float eps,
                  void* out, DType out_type) {
  const double sum =
      BlockedSum(d, [x](F acc, int64_t i, auto count) { return acc + Load(x + i, count); });
  const float mean = static_cast<float>(sum / static_cast<double>(d));
  const double squares = BlockedSum(d, [x, mean](F acc, int64_t i, auto count) {
    const F v = KeepOr(Load(x + i, count) - mean, count, 0.0f);
    return Fma(v, v, acc);
  });
  const double variance = squares / static_cast<double>(d);
  const float scale = static_cast<float>(1 / __builtin_sqrt(variance + static_cast<double>(eps)));
  WithType(out_type, [&](auto type) {
    ForLanes(d, [&](int64_t i, auto count) {
      F v = (Load(x + i, count) - mean) * scale;
      if (weight != nullptr) v = v * Load(weight + i, count);
      if (bias != nullptr) v = v + Load(bias + i, count);
      StoreAny(out, type, i, v, count);
    });
  });
}

// Sine and cosine in double, good to its last digits for |x| < 1.6e6: the first part of pi/2 has 33
// bits, so that its product with the quadrant is exact. Polynomials of fdlibm.
constexpr double kSinCosLimit = 1.6e6;
KVG_INLINE void SinCos(D x, D* sin, D* cos) {
  constexpr double kMagic = 6755399441055744.0;  // 1.5 * 2^52: rounds to an integer
  const D shifted = x * 6.36619772367581382433e-01 + kMagic;
  const D n = shifted - kMagic;
  const L quadrant = (L)shifted;
  const D r = (x - n * 1.57079632673412561417e+00) - n * 6.07710050650619224932e-11;
  const D z = r * r;
  D s = z * 1.58969099521155010221e-10 - 2.50507602534068634195e-08;
  s = s * z + 2.75573137070700676789e-06;
  s = s * z - 1.98412698298579493134e-04;
  s = s * z + 8.33333333332248946124e-03;
  s = s * z - 1.66666666666666324348e-01;
  s = s * z * r + r;
  D c = 2.08757232129817482790e-09 - z * 1.13596475577881948265e-11;
  c = c * z - 2.75573143513906633035e-07;
  c = c * z + 2.48015872894767294178e-05;
  c = c * z - 1.38888888888741095749e-03;
  c = c * z + 4.16666666666666019037e-02;
  c = (c * z - 0.5) * z + 1.0;
  const L odd = -(quadrant & 1);
  const L sin_sign = (quadrant & 2) << 62, cos_sign = ((quadrant + 1) & 2) << 62;
  *sin = (D)(((odd & (L)c) | (~odd & (L)s)) ^ sin_sign);
  *cos = (D)(((odd & (L)s) | (~odd & (L)c)) ^ cos_sign);
}

void RopeTableRow(const int32_t* positions, const float* inverse_frequency, const int32_t* axis,
                  int64_t half, float factor, float* cos, float* sin) {
  constexpr int kWidth = kLanes / 2;
  for (int64_t begin = 0; begin < half; begin += kWidth) {
    const int count = half - begin < kWidth ? static_cast<int>(half - begin) : kWidth;
    double angles[kWidth] = {}, sines[kWidth], cosines[kWidth];
    bool small = true;
    for (int i = 0; i < count; ++i) {
      const int32_t position = positions[axis == nullptr ? 0 : axis[begin + i]];
      const float angle = static_cast<float>(position) * inverse_frequency[begin + i];
      angles[i] = angle;
      small = small && angle < kSinCosLimit && angle > -kSinCosLimit;
    }
    if (small) {
      D s, c;
      SinCos(LoadAs<D>(angles), &s, &c);
      StoreAs(sines, s);
      StoreAs(cosines, c);
    } else {
      for (int i = 0; i < count; ++i) {
        sines[i] = __builtin_sin(angles[i]);
        cosines[i] = __builtin_cos(angles[i]);
      }
    }
    for (int i = 0; i < count; ++i) {
      cos[begin + i] = static_cast<float>(cosines[i]) * factor;
      sin[begin + i] = static_cast<float>(sines[i]) * factor;
    }
  }
}

void RopeRow(const float* cos, const float* sin, int64_t half, RopeLayout layout, bool inverse,
             float* x, int64_t heads, int64_t head_stride) {
  const float turn = inverse ? -1.0f : 1.0f;
  if (layout == RopeLayout::kHalf) {
    for (int64_t h = 0; h < heads; ++h) {
      float* head = x + h * head_stride;
      ForLanes(half, [&](int64_t i, auto count) {
        const F c = Load(cos + i, count), s = Load(sin + i, count) * turn;
        const F a = Load(head + i, count), b = Load(head + half + i, count);
        Store(head + i, Fma(a, c, -(b * s)), count);
        Store(head + half + i, Fma(b, c, a * s), count);
      });
    }
    return;
  }
  // Each pair's cosine twice and its sine with both signs, once for all heads.
  constexpr int64_t kPairs = 256;
  alignas(64) float twice_cos[2 * kPairs], signed_sin[2 * kPairs];
  for (int64_t begin = 0; begin < half; begin += kPairs) {
    const int64_t pairs = half - begin < kPairs ? half - begin : kPairs;
    for (int64_t i = 0; i < pairs; ++i) {
      twice_cos[2 * i] = twice_cos[2 * i + 1] = cos[begin + i];
      signed_sin[2 * i] = -turn * sin[begin + i];
      signed_sin[2 * i + 1] = turn * sin[begin + i];
    }
    for (int64_t h = 0; h < heads; ++h) {
      float* head = x + h * head_stride + 2 * begin;
      ForLanes(2 * pairs, [&](int64_t i, auto count) {
        const F v = Load(head + i, count), c = Load(twice_cos + i, count);
        Store(head + i, Fma(v, c, Exchange<1>(v) * Load(signed_sin + i, count)), count);
      });
    }
  }
}

void ActivateRow(const float* x, int64_t n, Activation act, float* out) {
  WithActivation(act, [&](auto f) {
    ForLanes(n, [&](int64_t i, auto count) { Store(out + i, f(Load(x + i, count)), count); });
  });
}

void GatedActivateRow(const float* gate, const float* up, int64_t n, Activation act, void* out,
                      DType out_type) {
  WithActivation(act, [&](auto f) {
    WithType(out_type, [&](auto type) {
      ForLanes(n, [&](int64_t i, auto count) {
        StoreAny(out, type, i, f(Load(gate + i, count)) * Load(up + i, count), count);
      });
    });
  });
}

void CombineRow(const float* a, const float* b, int64_t n, Binary op, float* out) {
  const auto each = [&](auto f) {
    ForLanes(n, [&](int64_t i, auto count) {
      Store(out + i, f(Load(a + i, count), Load(b + i, count)), count);
    });
  };
  switch (op) {
    case Binary::kAdd:
      return each([](F p, F q) { return p + q; });
    case Binary::kSubtract:
      return each([](F p, F q) { return p - q; });
    case Binary::kMultiply:
      return each([](F p, F q) { return p * q; });
    case Binary::kDivide:
      return each([](F p, F q) { return p / q; });
    case Binary::kMin:
      return each([](F p, F q) { return p < q ? p : q; });
    case Binary::kMax:
      return each([](F p, F q) { return p > q ? p : q; });
    case Binary::kLess:
      return each([](F p, F q) { return p < q ? Splat(1.0f) : F{}; });
  }
}

void AffineRow(const float* x, int64_t n, float scale, float shift, float* out) {
  ForLanes(n, [&](int64_t i, auto count) {
    Store(out + i, Fma(Load(x + i, count), Splat(scale), Splat(shift)), count);
  });
}

void SoftCapRow(const float* x, int64_t n, float cap, float* out) {
  const float inverse = 1 / cap;
  ForLanes(n, [&](int64_t i, auto count) {
    Store(out + i, Tanh(Load(x + i, count) * inverse) * cap, count);
  });
}

void SoftmaxRow(const float* x, int64_t n, float scale, float* out) {
  const float top = MaxOf(n, [=](int64_t i, auto count) { return Load(x + i, count) * scale; });
  // With only -inf (or NaN) any finite shift will do: the sum is then 0 (or NaN).
  const F shift = Splat(top == -kInfinity ? 0.0f : -top);
  const double sum = BlockedSum(n, [=](F acc, int64_t i, auto count) {
    const F e = Exp(Fma(Load(x + i, count), Splat(scale), shift));
    Store(out + i, e, count);
    return acc + KeepOr(e, count, 0.0f);
  });
  const float share = sum == 0 ? 0.0f : static_cast<float>(1 / sum);
  ForLanes(n, [=](int64_t i, auto count) { Store(out + i, Load(out + i, count) * share, count); });
}

float LogSumExpRow(const float* x, int64_t n) {
  const float top = MaxOf(n, [=](int64_t i, auto count) { return Load(x + i, count); });
  const float shift = top == -kInfinity || top == kInfinity ? 0.0f : top;
  const double sum = BlockedSum(n, [=](F acc, int64_t i, auto count) {
    return acc + KeepOr(Exp(Load(x + i, count) - shift), count, 0.0f);
  });
  return static_cast<float>(static_cast<double>(shift) + __builtin_log(sum));
}

// Maximum (or minimum) of the row; a NaN gets in and stays.
template <bool kMax>
KVG_INLINE float Extreme(const float* x, int64_t n) {
  const float start = kMax ? -kInfinity : kInfinity;
  const auto step = [](F acc, F v) {
    const I better = kMax ? v > acc : v < acc;
    return (better | (v != v)) ? v : acc;
  };
  F a = Splat(start), b = a, c = a, d = a;
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    a = step(a, Load(x + i, Whole{}));
    b = step(b, Load(x + i + kLanes, Whole{}));
    c = step(c, Load(x + i + 2 * kLanes, Whole{}));
    d = step(d, Load(x + i + 3 * kLanes, Whole{}));
  }
  for (; i + kLanes <= n; i += kLanes) a = step(a, Load(x + i, Whole{}));
  if (i < n) {
    const Part part{static_cast<int>(n - i)};
    b = step(b, KeepOr(Load(x + i, part), part, start));
  }
  const F all = step(step(a, b), step(c, d));
  if (AnyLane(all != all)) return __builtin_nanf("");
  return kMax ? MaxLanes(all) : -MaxLanes(-all);
}

float ReduceRow(const float* x, int64_t n, Reduction kind) {
  switch (kind) {
    case Reduction::kMax:
      return Extreme<true>(x, n);
    case Reduction::kMin:
      return Extreme<false>(x, n);
    case Reduction::kSumAbs:
      return static_cast<float>(BlockedSum(
          n, [x](F acc, int64_t i, auto count) { return acc + Abs(Load(x + i, count)); }));
    case Reduction::kSumSquares:
    case Reduction::kNorm: {
      const double squares = BlockedSum(n, [x](F acc, int64_t i, auto count) {
        const F v = Load(x + i, count);
        return Fma(v, v, acc);
      });
      return static_cast<float>(kind == Reduction::kNorm ? __builtin_sqrt(squares) : squares);
    }
    default: {
      const double sum =
          BlockedSum(n, [x](F acc, int64_t i, auto count) { return acc + Load(x + i, count); });
      const double parts = kind == Reduction::kMean ? static_cast<double>(n) : 1.0;
      return static_cast<float>(sum / parts);
    }
  }
}

enum class Term { kValue, kAbsolute, kSquare };
template <Term kTerm>
void AddColumns(const float* x, int64_t stride, int64_t m, int64_t columns, double* sums) {
  constexpr int kWidth = kLanes / 2;
  for (int64_t i = 0; i < m; ++i) {
    const float* row = x + i * stride;
    int64_t j = 0;
    for (; j + kWidth <= columns; j += kWidth) {
      D v = __builtin_convertvector(LoadAs<HalfF>(row + j), D);
      if (kTerm == Term::kSquare) v = v * v;
      if (kTerm == Term::kAbsolute) v = v < 0.0 ? -v : v;
      StoreAs(sums + j, LoadAs<D>(sums + j) + v);
    }
    for (; j < columns; ++j) {
      double v = row[j];
      if (kTerm == Term::kSquare) v = v * v;
      if (kTerm == Term::kAbsolute) v = v < 0 ? -v : v;
      sums[j] += v;
    }
  }
}

void ReduceColumnsBlock(const float* x, int64_t stride, int64_t m, int64_t columns, Reduction kind,
                        float* out) {
  if (kind == Reduction::kMax || kind == Reduction::kMin) {
    const bool max = kind == Reduction::kMax;
    for (int64_t j = 0; j < columns; ++j) out[j] = x[j];
    for (int64_t i = 1; i < m; ++i) {
      const float* row = x + i * stride;
      ForLanes(columns, [&](int64_t j, auto count) {
        const F v = Load(row + j, count), acc = Load(out + j, count);
        const I replace = (max ? v > acc : v < acc) | (v != v);
        Store(out + j, replace ? v : acc, count);
      });
    }
    return;
  }
  double sums[kColumnBlock];
  for (int64_t j = 0; j < columns; ++j) sums[j] = 0;
  if (kind == Reduction::kSumSquares || kind == Reduction::kNorm) {
    AddColumns<Term::kSquare>(x, stride, m, columns, sums);
  } else if (kind == Reduction::kSumAbs) {
    AddColumns<Term::kAbsolute>(x, stride, m, columns, sums);
  } else {
    AddColumns<Term::kValue>(x, stride, m, columns, sums);
  }
  if (kind == Reduction::kNorm) {
    for (int64_t j = 0; j < columns; ++j) sums[j] = __builtin_sqrt(sums[j]);
  }
  const auto put = [&](auto share) {
    int64_t j = 0;
    for (; j + kLanes / 2 <= columns; j += kLanes / 2) {
      StoreAs(out + j, __builtin_convertvector(share(LoadAs<D>(sums + j)), HalfF));
    }
    for (; j < columns; ++j) out[j] = static_cast<float>(share(sums[j]));
  };
  const int64_t parts = kind == Reduction::kMean ? m : 1;
  if ((parts & (parts - 1)) == 0) {
    // Then a product is exact, and takes a fraction of a division's time.
    const double inverse = 1.0 / static_cast<double>(parts);
    put([inverse](auto sum) { return sum * inverse; });
  } else {
    put([parts](auto sum) { return sum / static_cast<double>(parts); });
  }
}

// Several vectors at a time, so that none waits for the last; then only the block that holds the
// maximum is searched.
int64_t ArgMaxRow(const float* x, int64_t n) {
  constexpr int64_t kChains = 8, kBlock = 2048;
  float top = -kInfinity;
  int64_t block = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t end = n - begin < kBlock ? n : begin + kBlock;
    F chains[kChains];
    for (F& chain : chains) chain = Splat(-kInfinity);
    int64_t i = begin;
    for (; i + kChains * kLanes <= end; i += kChains * kLanes) {
#pragma GCC unroll 8
      for (int64_t c = 0; c < kChains; ++c) {
        chains[c] = Max(LoadAs<F>(x + i + c * kLanes), chains[c]);
      }
    }
    for (; i + kLanes <= end; i += kLanes) chains[0] = Max(LoadAs<F>(x + i), chains[0]);
    if (i < end) {
      const Part part{static_cast<int>(end - i)};
      chains[1] = Max(KeepOr(Load(x + i, part), part, -kInfinity), chains[1]);
    }
#pragma GCC unroll 8
    for (int64_t c = 1; c < kChains; ++c) chains[0] = Max(chains[c], chains[0]);
    const float most = MaxLanes(chains[0]);
    if (!(most > top)) continue;
    top = most;
    block = begin;
  }
  int64_t i = block;
  while (i + kLanes <= n && !AnyLane(LoadAs<F>(x + i) == Splat(top))) i += kLanes;
  for (; i < n; ++i) {
    if (x[i] == top) return i;
  }
  return 0;  // every entry is NaN
}

void ConvertRow(const void* x, DType type, int64_t n, void* out, DType out_type) {
  WithType(type, [&](auto from) {
    WithType(out_type, [&](auto to) {
      ForLanes(n, [&](int64_t i, auto count) {
        StoreAny(out, to, i, LoadAny(x, from, i, count), count);
      });
    });
  });
}

constexpr RowKernels kRowKernels = {
    .rms_norm = RmsNormRow,
    .layer_norm = LayerNormRow,
    .rope_table = RopeTableRow,
    .rope = RopeRow,
    .activate = ActivateRow,
    .gated_activate = GatedActivateRow,
    .combine = CombineRow,
    .affine = AffineRow,
    .soft_cap = SoftCapRow,
    .softmax = SoftmaxRow,
    .log_sum_exp = LogSumExpRow,
    .reduce = ReduceRow,
    .reduce_columns = ReduceColumnsBlock,
    .arg_max = ArgMaxRow,
    .convert = ConvertRow,
};

}  // namespace
}  // namespace kvgauge

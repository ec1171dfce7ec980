// SPDX-License-Identifier: Apache-2.0
// Algebra kernels over lanes.h; each algebra_<isa>.cpp includes this once and exports the table.
#pragma once

#include "cpu/algebra/algebra_kernels.h"
#include "cpu/isa/lanes.h"

namespace kvgauge {
namespace {

constexpr int kDoubles = kLanes / 2;

template <int kRows, bool kDistance>
KVG_INLINE void PanelTile(const float* a, int64_t d, const float* panel, float* out) {
  for (int64_t column = 0; column < kPanel; column += 2 * kLanes) {
    F left[kRows] = {}, right[kRows] = {};
    for (int64_t k = 0; k < d; ++k) {
      const F b0 = LoadAs<F>(panel + k * kPanel + column);
      const F b1 = LoadAs<F>(panel + k * kPanel + column + kLanes);
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) {
        const F v = Splat(a[r * d + k]);
        if constexpr (kDistance) {
          left[r] = Fma(v - b0, v - b0, left[r]);
          right[r] = Fma(v - b1, v - b1, right[r]);
        } else {
          left[r] = Fma(v, b0, left[r]);
          right[r] = Fma(v, b1, right[r]);
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      StoreAs(out + r * kPanel + column, left[r]);
      StoreAs(out + r * kPanel + column + kLanes, right[r]);
    }
  }
}

template <bool kDistance>
void Panel(const float* a, int64_t rows, int64_t d, const float* panel, float* out) {
  switch (rows) {
    case 1:
      return PanelTile<1, kDistance>(a, d, panel, out);
    case 2:
      return PanelTile<2, kDistance>(a, d, panel, out);
    case 3:
      return PanelTile<3, kDistance>(a, d, panel, out);
    default:
      return PanelTile<4, kDistance>(a, d, panel, out);
  }
}

// One butterfly inside a vector: sums in the lower lane of a pair, differences in the upper.
template <int kDistance>
KVG_INLINE F Butterfly(F v) {
  if constexpr (kDistance < kLanes) {
    F sign;
    for (int i = 0; i < kLanes; ++i) sign[i] = (i & kDistance) != 0 ? -1.0f : 1.0f;
    return Fma(v, sign, Exchange<kDistance>(v));
  } else {
    return v;
  }
}

void HadamardRow(float* x, int64_t d) {
  const float scale = static_cast<float>(1 / __builtin_sqrt(static_cast<double>(d)));
  if (d < kLanes) {
    for (int64_t h = 1; h < d; h *= 2) {
      for (int64_t i = 0; i < d; ++i) {
        if ((i & h) != 0) continue;
        const float a = x[i], b = x[i + h];
        x[i] = a + b;
        x[i + h] = a - b;
      }
    }
    for (int64_t i = 0; i < d; ++i) x[i] *= scale;
    return;
  }
  for (int64_t i = 0; i < d; i += kLanes) {
    F v = LoadAs<F>(x + i);
    v = Butterfly<8>(Butterfly<4>(Butterfly<2>(Butterfly<1>(v))));
    StoreAs(x + i, v * scale);
  }
  for (int64_t h = kLanes; h < d; h *= 2) {
    for (int64_t begin = 0; begin < d; begin += 2 * h) {
      for (int64_t i = begin; i < begin + h; i += kLanes) {
        const F a = LoadAs<F>(x + i), b = LoadAs<F>(x + i + h);
        StoreAs(x + i, a + b);
        StoreAs(x + i + h, a - b);
      }
    }
  }
}

void AddRow(const float* x, int64_t n, double* sums) {
  int64_t i = 0;
  for (; i + kDoubles <= n; i += kDoubles) {
    const D v = __builtin_convertvector(LoadAs<HalfF>(x + i), D);
    StoreAs(sums + i, LoadAs<D>(sums + i) + v);
  }
  for (; i < n; ++i) sums[i] += static_cast<double>(x[i]);
}

double DotRow(const double* x, const double* y, int64_t n) {
  D a = {}, b = {};
  int64_t i = 0;
  for (; i + 2 * kDoubles <= n; i += 2 * kDoubles) {
    a += LoadAs<D>(x + i) * LoadAs<D>(y + i);
    b += LoadAs<D>(x + i + kDoubles) * LoadAs<D>(y + i + kDoubles);
  }
  a += b;
  double sum = 0;
  for (; i < n; ++i) sum += x[i] * y[i];
  for (int k = 0; k < kDoubles; ++k) sum += a[k];
  return sum;
}

void AxpyRow(double scale, const double* x, int64_t n, double* y) {
  int64_t i = 0;
  for (; i + kDoubles <= n; i += kDoubles) {
    StoreAs(y + i, LoadAs<D>(y + i) + LoadAs<D>(x + i) * scale);
  }
  for (; i < n; ++i) y[i] += scale * x[i];
}

double DotAndAdd(const double* x, const double* h, double scale, int64_t n, double* image) {
  D a = {}, b = {};
  int64_t i = 0;
  for (; i + 2 * kDoubles <= n; i += 2 * kDoubles) {
    const D v = LoadAs<D>(x + i), w = LoadAs<D>(x + i + kDoubles);
    a += v * LoadAs<D>(h + i);
    b += w * LoadAs<D>(h + i + kDoubles);
    StoreAs(image + i, LoadAs<D>(image + i) + v * scale);
    StoreAs(image + i + kDoubles, LoadAs<D>(image + i + kDoubles) + w * scale);
  }
  a += b;
  double sum = 0;
  for (; i < n; ++i) {
    sum += x[i] * h[i];
    image[i] += scale * x[i];
  }
  for (int k = 0; k < kDoubles; ++k) sum += a[k];
  return sum;
}

void SubtractProducts(const double* p, const double* q, int64_t count, int64_t stride, int64_t n,
                      double* rows) {
  constexpr int kVectors = 2;  // of a row at a time
  int64_t c = 0;
  for (; c + kVectors * kDoubles <= n; c += kVectors * kDoubles) {
    D own[kTile][kVectors];
#pragma GCC unroll 4
    for (int r = 0; r < kTile; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        own[r][v] = LoadAs<D>(rows + r * stride + c + v * kDoubles);
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      const double* const row = q + i * stride + c;
      const D b0 = LoadAs<D>(row), b1 = LoadAs<D>(row + kDoubles);
#pragma GCC unroll 4
      for (int r = 0; r < kTile; ++r) {
        const double scale = p[i * stride + r];
        own[r][0] -= b0 * scale;
        own[r][1] -= b1 * scale;
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < kTile; ++r) {
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) {
        StoreAs(rows + r * stride + c + v * kDoubles, own[r][v]);
      }
    }
  }
  for (; c < n; ++c) {
    for (int r = 0; r < kTile; ++r) {
      double own = rows[r * stride + c];
      for (int64_t i = 0; i < count; ++i) own -= p[i * stride + r] * q[i * stride + c];
      rows[r * stride + c] = own;
    }
  }
}

void RotateRow(double c, double s, int64_t n, double* x, double* y) {
  int64_t i = 0;
  for (; i + kDoubles <= n; i += kDoubles) {
    const D a = LoadAs<D>(x + i), b = LoadAs<D>(y + i);
    StoreAs(x + i, a * c - b * s);
    StoreAs(y + i, a * s + b * c);
  }
  for (; i < n; ++i) {
    const double a = x[i], b = y[i];
    x[i] = a * c - b * s;
    y[i] = a * s + b * c;
  }
}

// Vectors of columns that go through rows together: enough that none waits for itself.
constexpr int kStrip = 4;

void TurnRows(const double* cosines_sines, int64_t count, double* rows) {
  for (int64_t column = 0; column < kColumns; column += kStrip * kDoubles) {
    double* row = rows + column;
    D x[kStrip];
#pragma GCC unroll 4
    for (int v = 0; v < kStrip; ++v) x[v] = LoadAs<D>(row + v * kDoubles);
    for (int64_t i = 0; i < count; ++i, row += kColumns) {
      const double c = cosines_sines[2 * i], s = cosines_sines[2 * i + 1];
#pragma GCC unroll 4
      for (int v = 0; v < kStrip; ++v) {
        const D y = LoadAs<D>(row + kColumns + v * kDoubles);
        StoreAs(row + v * kDoubles, x[v] * c + y * s);
        x[v] = y * c - x[v] * s;
      }
    }
#pragma GCC unroll 4
    for (int v = 0; v < kStrip; ++v) StoreAs(row + v * kDoubles, x[v]);
  }
}

void MirrorRows(const double* h, double share, int64_t count, double* rows) {
  for (int64_t column = 0; column < kColumns; column += kStrip * kDoubles) {
    D sum[kStrip] = {};
    for (int64_t i = 0; i < count; ++i) {
      const double* row = rows + i * kColumns + column;
#pragma GCC unroll 4
      for (int v = 0; v < kStrip; ++v) sum[v] += LoadAs<D>(row + v * kDoubles) * h[i];
    }
#pragma GCC unroll 4
    for (int v = 0; v < kStrip; ++v) sum[v] *= share;
    for (int64_t i = 0; i < count; ++i) {
      double* row = rows + i * kColumns + column;
#pragma GCC unroll 4
      for (int v = 0; v < kStrip; ++v) {
        StoreAs(row + v * kDoubles, LoadAs<D>(row + v * kDoubles) - sum[v] * h[i]);
      }
    }
  }
}

constexpr AlgebraKernels kAlgebraKernels = {
    .dot_panel = Panel<false>,
    .squared_distance_panel = Panel<true>,
    .hadamard = HadamardRow,
    .add = AddRow,
    .dot = DotRow,
    .axpy = AxpyRow,
    .dot_and_add = DotAndAdd,
    .subtract_products = SubtractProducts,
    .rotate = RotateRow,
    .turn_rows = TurnRows,
    .mirror_rows = MirrorRows,
};

}  // namespace
}  // namespace kvgauge

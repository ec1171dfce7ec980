// SPDX-License-Identifier: Apache-2.0
// exp and tanh over the vector types of vector_math_*.h. Every instruction set runs the same
// operations, so a kernel that needs a value twice (softmax and a later second pass) gets the same
// bits both times. No tables, no branches on data.
#pragma once

#include <cstdint>

#include "cpu/isa/inline.h"

namespace kvgauge {

// Arguments below this give exactly 0: the result would be denormal.
inline constexpr float kExpUnderflow = -87.336540f;

// e^x for x <= 88, within 2 ulp (2.5 where multiply and add round apart); Exp(0) is 1. NaN stays
// NaN, -inf gives 0. x = n ln2 + r, |r| <= ln2 / 2; ln2 is split so that n * high is exact; e^r by
// a minimax polynomial with constant term 1 (relative error 9.2e-8).
//
// Several vectors go side by side: one alone waits for itself at every step.
template <class V, int kCount>
[[gnu::always_inline]] inline void ExpEach(typename V::F (&x)[kCount]) {
  using F = typename V::F;
  F n[kCount], r[kCount], p[kCount];
  const auto each = [](auto step) KVG_INLINE_LAMBDA {
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) step(i);
  };
  const auto horner = [&](float coefficient) KVG_INLINE_LAMBDA {
    each([&](int i) KVG_INLINE_LAMBDA { p[i] = V::Fma(p[i], r[i], V::Set(coefficient)); });
  };
  each([&](int i) KVG_INLINE_LAMBDA { n[i] = V::Mul(x[i], V::Set(1.44269504089f)); });
  each([&](int i) KVG_INLINE_LAMBDA { n[i] = V::Round(n[i]); });
  each([&](int i) KVG_INLINE_LAMBDA { r[i] = V::Fma(n[i], V::Set(-0.693145751953125f), x[i]); });
  each([&](int i) KVG_INLINE_LAMBDA {
    r[i] = V::Fma(n[i], V::Set(-1.428606765330187e-06f), r[i]);
    p[i] = V::Set(8.2902722e-03f);
  });
  horner(4.1898160e-02f);
  horner(1.666763813e-01f);
  horner(4.999914784e-01f);
  horner(9.999997063e-01f);
  horner(1.0f);
  each([&](int i) KVG_INLINE_LAMBDA {
    x[i] = V::ZeroWhereLess(x[i], V::Set(kExpUnderflow), V::ScaleByPowerOf2(p[i], n[i]));
  });
}

template <class V>
[[gnu::always_inline]] inline typename V::F Exp(typename V::F x) {
  typename V::F each[1] = {x};
  ExpEach<V>(each);
  return each[0];
}

// tanh within 3 ulp. Near 0 an odd polynomial (relative error 4.8e-10); beyond 0.35 the form
// 1 - 2 / (e^2|x| + 1), which loses nothing there. Saturates at 1; NaN stays NaN.
template <class V>
[[gnu::always_inline]] inline typename V::F Tanh(typename V::F x) {
  using F = typename V::F;
  const F size = V::Abs(x);
  const F x2 = V::Mul(x, x);
  F p = V::Set(1.94209502e-02f);
  p = V::Fma(p, x2, V::Set(-5.37226323e-02f));
  p = V::Fma(p, x2, V::Set(1.333234893e-01f));
  p = V::Fma(p, x2, V::Set(-3.3333321e-01f));
  const F near = V::Fma(V::Mul(x2, size), p, size);
  // Max returns its second operand when either is NaN, so NaN passes.
  const F bounded = V::Min(V::Set(10.0f), size);
  const F e = Exp<V>(V::Add(bounded, bounded));
  const F far = V::Sub(V::Set(1.0f), V::Div(V::Set(2.0f), V::Add(e, V::Set(1.0f))));
  return V::CopySign(V::ChooseWhereLess(size, V::Set(0.35f), near, far), x);
}

}  // namespace kvgauge

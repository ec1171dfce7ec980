// SPDX-License-Identifier: Apache-2.0
// Operations on rows: norms, rotary embedding, activations, softmax, reductions.
//
// Unless said otherwise tensors are f32 and [m, d], rows may be strided, `out` may be the input.
// Calls that map a row to a row (norms, activations, Combine, Affine, SoftCap, Softmax, Convert)
// take any rank, and so does Fill: the leading dimensions are rows. Where these do not fold into
// one evenly strided run, as heads inside a fused buffer, rank 3 is taken apart into calls of rank
// 2 (not Combine). Backends only ever see rank 2, and the rank 3 of Rope.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace kvgauge {

enum class RopeLayout {
  kHalf,         // pairs (i, i + r/2)
  kInterleaved,  // pairs (2i, 2i + 1)
};
enum class RopeDirection { kForward, kInverse };
enum class Activation {
  kRelu,
  kSilu,
  kGelu,  // erf
  kGeluTanh,
  kExp,        // x <= 88
  kLog,        // natural; -inf for every number below 2^-126, negative ones too
  kSqrt,       // correctly rounded; NaN for negative numbers
  kGeluQuick,  // x * sigmoid(1.702 x)
  kSigmoid,    // 1 / (1 + e^-x)
};
enum class Reduction {
  kSum,
  kMean,
  kMax,
  kMin,
  kSumAbs,
  kSumSquares,
  kNorm,  // the square root of the sum of squares
};
enum class Binary {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kMin,   // a where a < b, else b; so b where either is NaN
  kMax,   // a where a > b, else b
  kLess,  // 1 where a < b, else 0
};

class RowOps {
 public:
  virtual ~RowOps() = default;

  // out = x * rsqrt(mean(x^2) + eps) * (weight_offset + weight). weight: [d] f32.
  // weight_offset is 0 (Llama) or 1 (Gemma). out may be f32, f16 or bf16.
  void RmsNorm(const Tensor& x, const Tensor& weight, float weight_offset, float eps, Tensor out);
  // out = (x - mean) * rsqrt(var + eps) * weight + bias; weight and bias may be empty.
  // out may be f32, f16 or bf16.
  void LayerNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps, Tensor out);

  // Angle tables. positions: [m, axes] i32; inverse_frequency: [r/2] f32; axis: [r/2] i32, which
  // of the positions a frequency turns with, or empty when axes is 1. cos, sin: [m, r/2] f32, each
  // times `attention_factor`. Angles are position * frequency in f32; their cosines and sines are
  // right to the last bit or the one before it, however large.
  void RopeTable(const Tensor& positions, const Tensor& inverse_frequency, const Tensor& axis,
                 float attention_factor, Tensor cos, Tensor sin);
  // Rotates the first r = 2 * cos.shape[1] dims of every head in place. x: [m, heads, d], m and
  // heads may be strided. kInverse undoes kForward (attention_factor 1).
  void Rope(const Tensor& cos, const Tensor& sin, RopeLayout layout, RopeDirection direction,
            Tensor x);

  // out = act(x).
  void Activate(const Tensor& x, Activation act, Tensor out);
  // x: [m, 2f] = gate | up; out[m, f] = act(gate) * up; out may be f32, f16 or bf16, not x.
  void GatedActivate(const Tensor& x, Activation act, Tensor out);
  // out = a (op) b, same shapes; b may be [d], applied to every row.
  void Combine(const Tensor& a, const Tensor& b, Binary op, Tensor out);
  // out = scale * x + shift.
  void Affine(const Tensor& x, float scale, float shift, Tensor out);
  // Every number of out becomes `value`, whatever it was before.
  void Fill(float value, Tensor out);
  // Columns [begin, end) of a matrix become `value`.
  void FillColumns(float value, int64_t begin, int64_t end, Tensor out);
  // out = cap * tanh(x / cap).
  void SoftCap(const Tensor& x, float cap, Tensor out);

  // Row softmax of scale * x, scale > 0. -inf entries get exactly 0; a row of only -inf becomes all
  // 0. A NaN or +inf in the row makes all of it NaN.
  void Softmax(const Tensor& x, float scale, Tensor out);
  // out: [m]; log(sum(exp(row))). -inf for a row of only -inf, +inf where +inf is in it.
  void LogSumExp(const Tensor& x, Tensor out);
  // out: [m]. A NaN in the row gives NaN for every kind.
  void ReduceRows(const Tensor& x, Reduction kind, Tensor out);
  // out: [d]; rows are taken in order.
  void ReduceColumns(const Tensor& x, Reduction kind, Tensor out);
  // out: [m] i32, lowest index among equals; NaN never wins unless all are NaN (then 0).
  void ArgMax(const Tensor& x, Tensor out);

  // Conversion between float dtypes, or from i32 to f32, round to nearest even. Same shape, rows
  // may be strided.
  void Convert(const Tensor& x, Tensor out);

  // out[i]: uniform in [0, 1), 24 bits, a function of seed, stream and counter[i] alone; the same
  // bits on every backend. counter: [n] i32; out: [n].
  void Uniform(uint64_t seed, uint64_t stream, const Tensor& counter, Tensor out);

 private:
  virtual void DoRmsNorm(const Tensor& x, const Tensor& weight, float weight_offset, float eps,
                         Tensor out) = 0;
  virtual void DoLayerNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                           Tensor out) = 0;
  virtual void DoRopeTable(const Tensor& positions, const Tensor& inverse_frequency,
                           const Tensor& axis, float attention_factor, Tensor cos, Tensor sin) = 0;
  virtual void DoRope(const Tensor& cos, const Tensor& sin, RopeLayout layout,
                      RopeDirection direction, Tensor x) = 0;
  virtual void DoActivate(const Tensor& x, Activation act, Tensor out) = 0;
  virtual void DoGatedActivate(const Tensor& x, Activation act, Tensor out) = 0;
  virtual void DoCombine(const Tensor& a, const Tensor& b, Binary op, Tensor out) = 0;
  virtual void DoAffine(const Tensor& x, float scale, float shift, Tensor out) = 0;
  virtual void DoFill(float value, Tensor out) = 0;
  virtual void DoFillColumns(float value, int64_t begin, int64_t end, Tensor out);
  virtual void DoSoftCap(const Tensor& x, float cap, Tensor out) = 0;
  virtual void DoSoftmax(const Tensor& x, float scale, Tensor out) = 0;
  virtual void DoLogSumExp(const Tensor& x, Tensor out) = 0;
  virtual void DoReduceRows(const Tensor& x, Reduction kind, Tensor out) = 0;
  virtual void DoReduceColumns(const Tensor& x, Reduction kind, Tensor out) = 0;
  virtual void DoArgMax(const Tensor& x, Tensor out) = 0;
  virtual void DoConvert(const Tensor& x, Tensor out) = 0;
  virtual void DoUniform(uint64_t seed, uint64_t stream, const Tensor& counter, Tensor out) = 0;
};

}  // namespace kvgauge

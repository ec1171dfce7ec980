// SPDX-License-Identifier: Apache-2.0
// Low-bit integers: packing of n-bit codes and group quantisation. Rows may be strided.
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace kvgauge {

// How a group of values becomes codes 0 .. 2^bits - 1.
enum class GroupQuantization {
  kAsymmetric,  // value = scale * code + zero; zero = min, scale = (max - min) / (2^bits - 1)
  kSymmetric,   // value = scale * (code - 2^(bits-1)); scale = max|x| / (2^(bits-1) - 1); bits >= 2
};

class PackingOps {
 public:
  virtual ~PackingOps() = default;

  // Codes of `bits` (1, 2, 3, 4, 8) packed little-endian: code i of a row sits at bits
  // [i*bits, (i+1)*bits). codes: [m, n] u8, each < 2^bits; packed: [m, ceil(n*bits/8)] u8, unused
  // high bits of the last byte 0.
  void PackBits(const Tensor& codes, int bits, Tensor packed);
  void UnpackBits(const Tensor& packed, int bits, Tensor codes);

  // Quantises runs of `group` values along each row; n is a multiple of group. x: [m, n] f32;
  // codes: [m, n] u8; scale, zero: [m, n/group] f32 (zero unused and may be empty for
  // kSymmetric); bits 1 .. 8. Codes round half to even and are clamped to their range. A constant
  // group (kSymmetric: one of zeros) gets scale 0 and reproduces its value. Values are finite.
  // Every backend gives the same codes and scales, because each step is one f32 operation, rounded
  // once: range = max - min, scale = range / top, code = round((x - zero) / scale); and back:
  // product = scale * code, value = product + zero, not fused.
  void QuantizeGroups(const Tensor& x, int bits, int64_t group, GroupQuantization kind,
                      Tensor codes, Tensor scale, Tensor zero);
  void DequantizeGroups(const Tensor& codes, const Tensor& scale, const Tensor& zero, int bits,
                        int64_t group, GroupQuantization kind, Tensor out);

 private:
  virtual void DoPackBits(const Tensor& codes, int bits, Tensor packed) = 0;
  virtual void DoUnpackBits(const Tensor& packed, int bits, Tensor codes) = 0;
  virtual void DoQuantizeGroups(const Tensor& x, int bits, int64_t group, GroupQuantization kind,
                                Tensor codes, Tensor scale, Tensor zero) = 0;
  virtual void DoDequantizeGroups(const Tensor& codes, const Tensor& scale, const Tensor& zero,
                                  int bits, int64_t group, GroupQuantization kind, Tensor out) = 0;
};

}  // namespace kvgauge

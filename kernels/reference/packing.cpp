// SPDX-License-Identifier: Apache-2.0
// Quantisation is f32 arithmetic here as everywhere: the contract fixes each rounding, so that all
// backends give the same codes.
#include "kernels/packing.h"

#include <algorithm>
#include <cmath>

#include "reference/reference.h"

namespace kvgauge {
namespace {

uint8_t* Bytes(const Tensor& t, int64_t row) { return t.As<uint8_t>() + row * t.stride[0]; }
float* Floats(const Tensor& t, int64_t row) { return t.f32() + row * t.stride[0]; }

class ReferencePacking final : public PackingOps {
  void DoPackBits(const Tensor& codes, int bits, Tensor packed) override {
    for (int64_t i = 0; i < codes.shape[0]; ++i) {
      uint8_t* to = Bytes(packed, i);
      std::fill_n(to, packed.shape[1], uint8_t{0});
      for (int64_t bit = 0; bit < codes.shape[1] * bits; ++bit) {
        const int value = Bytes(codes, i)[bit / bits] >> (bit % bits) & 1;
        to[bit / 8] = static_cast<uint8_t>(to[bit / 8] | value << (bit % 8));
      }
    }
  }

  void DoUnpackBits(const Tensor& packed, int bits, Tensor codes) override {
    for (int64_t i = 0; i < codes.shape[0]; ++i) {
      uint8_t* to = Bytes(codes, i);
      std::fill_n(to, codes.shape[1], uint8_t{0});
      for (int64_t bit = 0; bit < codes.shape[1] * bits; ++bit) {
        const int value = Bytes(packed, i)[bit / 8] >> (bit % 8) & 1;
        to[bit / bits] = static_cast<uint8_t>(to[bit / bits] | value << (bit % bits));
      }
    }
  }

  void DoQuantizeGroups(const Tensor& x, int bits, int64_t group, GroupQuantization kind,
                        Tensor codes, Tensor scale, Tensor zero) override {
    const bool symmetric = kind == GroupQuantization::kSymmetric;
    const float top_code = static_cast<float>((1 << bits) - 1);
    const float middle = static_cast<float>(1 << (bits - 1));
    for (int64_t i = 0; i < x.shape[0]; ++i) {
      for (int64_t g = 0; g < scale.shape[1]; ++g) {
        const float* values = Floats(x, i) + g * group;
        const auto [low, high] = std::minmax_element(values, values + group);
        const float largest = std::max(std::fabs(*low), std::fabs(*high));
        const float step = symmetric ? largest / (middle - 1) : (*high - *low) / top_code;
        const float shift = symmetric ? 0.0f : *low;
        Floats(scale, i)[g] = step;
        if (!symmetric) Floats(zero, i)[g] = shift;
        for (int64_t j = 0; j < group; ++j) {
          float code = step == 0 ? 0.0f : std::nearbyint((values[j] - shift) / step);
          if (symmetric) code += middle;
          Bytes(codes, i)[g * group + j] =
              static_cast<uint8_t>(code > 0 ? std::min(code, top_code) : 0.0f);
        }
      }
    }
  }

  void DoDequantizeGroups(const Tensor& codes, const Tensor& scale, const Tensor& zero, int bits,
                          int64_t group, GroupQuantization kind, Tensor out) override {
    const bool symmetric = kind == GroupQuantization::kSymmetric;
    const float middle = static_cast<float>(1 << (bits - 1));
    for (int64_t i = 0; i < out.shape[0]; ++i) {
      for (int64_t j = 0; j < out.shape[1]; ++j) {
        const float code = Bytes(codes, i)[j];
        const float step = Floats(scale, i)[j / group];
        Floats(out, i)[j] =
            symmetric ? step * (code - middle) : step * code + Floats(zero, i)[j / group];
      }
    }
  }
};

}  // namespace

std::unique_ptr<PackingOps> MakeReferencePacking() { return std::make_unique<ReferencePacking>(); }

}  // namespace kvgauge

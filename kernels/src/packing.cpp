// SPDX-License-Identifier: Apache-2.0
#include "kernels/packing.h"

#include "src/op_checks.h"

namespace kvgauge {
namespace {

bool IsPackable(int bits) { return (bits >= 1 && bits <= 4) || bits == 8; }

void CheckPacked(const char* op, const Tensor& codes, int bits, const Tensor& packed) {
  KVG_OP_CHECK(IsMatrix(codes, DType::kU8) && IsMatrix(packed, DType::kU8), op, codes, packed);
  KVG_OP_CHECK(IsPackable(bits), op, codes, packed);
  KVG_OP_CHECK(codes.shape[0] == packed.shape[0], op, codes, packed);
  KVG_OP_CHECK(packed.shape[1] == (codes.shape[1] * bits + 7) / 8, op, codes, packed);
  KVG_OP_CHECK(SameDevice({codes, packed}), op, codes, packed);
}

void CheckGroups(const char* op, const Tensor& x, const Tensor& codes, const Tensor& scale,
                 const Tensor& zero, int bits, int64_t group, GroupQuantization kind) {
  const bool symmetric = kind == GroupQuantization::kSymmetric;
  KVG_OP_CHECK(IsMatrix(x, DType::kF32) && IsMatrix(codes, DType::kU8), op, x, codes, scale, zero);
  KVG_OP_CHECK(SameShape(x, codes), op, x, codes, scale, zero);
  KVG_OP_CHECK(bits >= (symmetric ? 2 : 1) && bits <= 8, op, x, codes, scale, zero);
  KVG_OP_CHECK(group > 0 && x.shape[1] % group == 0, op, x, codes, scale, zero);
  KVG_OP_CHECK(IsMatrix(scale, DType::kF32) && scale.shape[0] == x.shape[0], op, x, codes, scale,
               zero);
  KVG_OP_CHECK(scale.shape[1] == x.shape[1] / group, op, x, codes, scale, zero);
  KVG_OP_CHECK(symmetric || (IsMatrix(zero, DType::kF32) && SameShape(zero, scale)), op, x, codes,
               scale, zero);
  KVG_OP_CHECK(SameDevice({x, codes, scale, zero}), op, x, codes, scale, zero);
}

}  // namespace

void PackingOps::PackBits(const Tensor& codes, int bits, Tensor packed) {
  CheckPacked("PackBits", codes, bits, packed);
  if (codes.Numel() > 0) DoPackBits(codes, bits, packed);
}

void PackingOps::UnpackBits(const Tensor& packed, int bits, Tensor codes) {
  CheckPacked("UnpackBits", codes, bits, packed);
  if (codes.Numel() > 0) DoUnpackBits(packed, bits, codes);
}

void PackingOps::QuantizeGroups(const Tensor& x, int bits, int64_t group, GroupQuantization kind,
                                Tensor codes, Tensor scale, Tensor zero) {
  CheckGroups("QuantizeGroups", x, codes, scale, zero, bits, group, kind);
  if (x.Numel() > 0) DoQuantizeGroups(x, bits, group, kind, codes, scale, zero);
}

void PackingOps::DequantizeGroups(const Tensor& codes, const Tensor& scale, const Tensor& zero,
                                  int bits, int64_t group, GroupQuantization kind, Tensor out) {
  CheckGroups("DequantizeGroups", out, codes, scale, zero, bits, group, kind);
  if (out.Numel() > 0) DoDequantizeGroups(codes, scale, zero, bits, group, kind, out);
}

}  // namespace kvgauge

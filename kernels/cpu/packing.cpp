// SPDX-License-Identifier: Apache-2.0
// Spreads packing kernels over threads, row by row.
#include "kernels/packing.h"

#include "cpu/cpu.h"
#include "cpu/packing_kernels.h"
#include "cpu/split_work.h"

namespace kvgauge {
namespace {

const PackingKernels& KernelsOf(Isa isa) {
  if (isa >= Isa::kAvx512) return Avx512PackingKernels();
  return isa == Isa::kAvx2 ? Avx2PackingKernels() : PortablePackingKernels();
}

constexpr double kByte_ns = 0.03;
constexpr double kFloat_ns = 0.15;

uint8_t* Bytes(const Tensor& t, int64_t row) { return t.As<uint8_t>() + row * t.stride[0]; }
float* Floats(const Tensor& t, int64_t row) { return t.As<float>() + row * t.stride[0]; }

class CpuPacking final : public PackingOps {
 public:
  CpuPacking(Isa isa, ThreadSettings threads) : k_(KernelsOf(isa)), threads_(threads) {}

 private:
  void DoPackBits(const Tensor& codes, int bits, Tensor packed) override {
    Rows(codes, kByte_ns,
         [&](int64_t i) { k_.pack(Bytes(codes, i), codes.shape[1], bits, Bytes(packed, i)); });
  }

  void DoUnpackBits(const Tensor& packed, int bits, Tensor codes) override {
    Rows(codes, kByte_ns,
         [&](int64_t i) { k_.unpack(Bytes(packed, i), codes.shape[1], bits, Bytes(codes, i)); });
  }

  void DoQuantizeGroups(const Tensor& x, int bits, int64_t group, GroupQuantization kind,
                        Tensor codes, Tensor scale, Tensor zero) override {
    Rows(x, kFloat_ns, [&](int64_t i) {
      float* shift = zero.empty() ? nullptr : Floats(zero, i);
      k_.quantize(Floats(x, i), x.shape[1], bits, group, kind, Bytes(codes, i), Floats(scale, i),
                  shift);
    });
  }

  void DoDequantizeGroups(const Tensor& codes, const Tensor& scale, const Tensor& zero, int bits,
                          int64_t group, GroupQuantization kind, Tensor out) override {
    Rows(out, kFloat_ns, [&](int64_t i) {
      const float* shift = zero.empty() ? nullptr : Floats(zero, i);
      k_.dequantize(Bytes(codes, i), Floats(scale, i), shift, out.shape[1], bits, group, kind,
                    Floats(out, i));
    });
  }

  template <class Body>
  void Rows(const Tensor& x, double element_ns, const Body& body) {
    SplitWork(threads_, x.shape[0], element_ns * static_cast<double>(x.shape[1]), body);
  }

  const PackingKernels& k_;
  const ThreadSettings threads_;
};

}  // namespace

std::unique_ptr<PackingOps> MakeCpuPacking(Isa isa, ThreadSettings threads) {
  return std::make_unique<CpuPacking>(isa, threads);
}

}  // namespace kvgauge

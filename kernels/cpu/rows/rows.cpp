// SPDX-License-Identifier: Apache-2.0
// Spreads row kernels over threads.
#include "kernels/rows.h"

#include <algorithm>

#include "core/rng.h"
#include "cpu/cpu.h"
#include "cpu/rows/rows_kernels.h"
#include "cpu/split_work.h"

namespace kvgauge {
namespace {

const RowKernels& KernelsOf([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return Avx512RowKernels();
  if (isa >= Isa::kAvx2) return Avx2RowKernels();
#endif
  return PortableRowKernels();
}

// Rough cost of one element, for the choice of whether threads pay; one core.
constexpr double kMove_ns = 0.1;
constexpr double kExp_ns = 0.3;
constexpr double kGate_ns = 0.6;  // the numbers come from another thread
constexpr double kHash_ns = 20;

float* Row(const Tensor& t, int64_t i) { return t.As<float>() + i * t.stride[0]; }
void* AnyRow(const Tensor& t, int64_t i) {
  return t.As<char>() + i * t.stride[0] * SizeOf(t.dtype);
}
int32_t* IntRow(const Tensor& t, int64_t i) { return t.As<int32_t>() + i * t.stride[0]; }

// What an element gets depends on itself alone in elementwise ops, so a dense matrix may be cut
// anywhere: short rows would spend their time on calls and tails, one long row on one thread.
constexpr int64_t kPiece = 16384;
bool IsDense(std::initializer_list<Tensor> tensors) {
  for (const Tensor& t : tensors) {
    if (!t.IsContiguous()) return false;
  }
  return true;
}

class CpuRows final : public RowOps {
 public:
  CpuRows(Isa isa, ThreadSettings threads) : k_(KernelsOf(isa)), threads_(threads) {}

 private:
  void DoRmsNorm(const Tensor& x, const Tensor& weight, float weight_offset, float eps,
                 Tensor out) override {
    const int64_t d = x.shape[1];
    Rows(x, kMove_ns, [&](int64_t i) {
      k_.rms_norm(Row(x, i), weight.f32(), d, weight_offset, eps, AnyRow(out, i), out.dtype);
    });
  }

  void DoLayerNorm(const Tensor& x, const Tensor& weight, const Tensor& bias, float eps,
                   Tensor out) override {
    const auto* w = weight.As<float>();
    const auto* b = bias.As<float>();
    Rows(x, kMove_ns, [&](int64_t i) {
      k_.layer_norm(Row(x, i), w, b, x.shape[1], eps, AnyRow(out, i), out.dtype);
    });
  }

  void DoRopeTable(const Tensor& positions, const Tensor& inverse_frequency, const Tensor& axis,
                   float attention_factor, Tensor cos, Tensor sin) override {
    const auto* which = axis.As<int32_t>();
    for (int64_t j = 0; which != nullptr && j < cos.shape[1]; ++j) {
      KVG_CHECK(which[j] >= 0 && which[j] < positions.shape[1], "RopeTable: axis out of range");
    }
    Rows(cos, 10 * kExp_ns, [&](int64_t i) {
      k_.rope_table(IntRow(positions, i), inverse_frequency.f32(), which, cos.shape[1],
                    attention_factor, Row(cos, i), Row(sin, i));
    });
  }

  void DoRope(const Tensor& cos, const Tensor& sin, RopeLayout layout, RopeDirection direction,
              Tensor x) override {
    const bool inverse = direction == RopeDirection::kInverse;
    const double cost = kMove_ns * static_cast<double>(x.shape[1] * x.shape[2]);
    SplitWork(threads_, x.shape[0], cost, [&](int64_t i) {
      k_.rope(Row(cos, i), Row(sin, i), cos.shape[1], layout, inverse, Row(x, i), x.shape[1],
              x.stride[1]);
    });
  }

  void DoActivate(const Tensor& x, Activation act, Tensor out) override {
    Pieces(x, out, kExp_ns, [&](const void* from, int64_t n, void* to) {
      k_.activate(static_cast<const float*>(from), n, act, static_cast<float*>(to));
    });
  }

  void DoGatedActivate(const Tensor& x, Activation act, Tensor out) override {
    const int64_t f = out.shape[1];
    Rows(out, kGate_ns, [&](int64_t i) {
      k_.gated_activate(Row(x, i), Row(x, i) + f, f, act, AnyRow(out, i), out.dtype);
    });
  }

  void DoCombine(const Tensor& a, const Tensor& b, Binary op, Tensor out) override {
    if (b.rank == 2 && IsDense({a, b, out})) {
      const int64_t n = a.Numel();
      SplitWork(threads_, (n + kPiece - 1) / kPiece, kPiece * kMove_ns, [&](int64_t piece) {
        const int64_t begin = piece * kPiece, size = std::min(kPiece, n - begin);
        k_.combine(a.f32() + begin, b.f32() + begin, size, op, out.f32() + begin);
      });
      return;
    }
    const int64_t b_stride = b.rank == 2 ? b.stride[0] : 0;
    Rows(a, kMove_ns, [&](int64_t i) {
      k_.combine(Row(a, i), b.f32() + i * b_stride, a.shape[1], op, Row(out, i));
    });
  }

  void DoAffine(const Tensor& x, float scale, float shift, Tensor out) override {
    Pieces(x, out, kMove_ns, [&](const void* from, int64_t n, void* to) {
      k_.affine(static_cast<const float*>(from), n, scale, shift, static_cast<float*>(to));
    });
  }

  void DoFill(float value, Tensor out) override {
    Pieces(out, out, kMove_ns, [&](const void*, int64_t n, void* to) {
      std::fill_n(static_cast<float*>(to), n, value);
    });
  }

  void DoSoftCap(const Tensor& x, float cap, Tensor out) override {
    Pieces(x, out, kExp_ns, [&](const void* from, int64_t n, void* to) {
      k_.soft_cap(static_cast<const float*>(from), n, cap, static_cast<float*>(to));
    });
  }

  void DoSoftmax(const Tensor& x, float scale, Tensor out) override {
    Rows(x, kExp_ns, [&](int64_t i) { k_.softmax(Row(x, i), x.shape[1], scale, Row(out, i)); });
  }

  void DoLogSumExp(const Tensor& x, Tensor out) override {
    Rows(x, kExp_ns, [&](int64_t i) { out.f32()[i] = k_.log_sum_exp(Row(x, i), x.shape[1]); });
  }

  void DoReduceRows(const Tensor& x, Reduction kind, Tensor out) override {
    Rows(x, kMove_ns, [&](int64_t i) { out.f32()[i] = k_.reduce(Row(x, i), x.shape[1], kind); });
  }

  void DoReduceColumns(const Tensor& x, Reduction kind, Tensor out) override {
    const int64_t m = x.shape[0], d = x.shape[1];
    // A column's sum is its own, so the blocks may shrink until every thread has one.
    const int64_t share = (d + threads_.threads - 1) / threads_.threads;
    const int64_t block = std::clamp<int64_t>((share + 15) / 16 * 16, 64, kColumnBlock);
    const double cost = kMove_ns * static_cast<double>(m * block);
    SplitWork(threads_, (d + block - 1) / block, cost, [&](int64_t i) {
      const int64_t begin = i * block, size = std::min(block, d - begin);
      k_.reduce_columns(x.f32() + begin, x.stride[0], m, size, kind, out.f32() + begin);
    });
  }

  void DoArgMax(const Tensor& x, Tensor out) override {
    Rows(x, kMove_ns, [&](int64_t i) {
      out.i32()[i] = static_cast<int32_t>(k_.arg_max(Row(x, i), x.shape[1]));
    });
  }

  void DoConvert(const Tensor& x, Tensor out) override {
    if (x.dtype == DType::kI32) {
      Rows(x, kMove_ns, [&](int64_t i) { std::copy_n(IntRow(x, i), x.shape[1], Row(out, i)); });
      return;
    }
    Pieces(x, out, kMove_ns, [&](const void* from, int64_t n, void* to) {
      k_.convert(from, x.dtype, n, to, out.dtype);
    });
  }

  void DoUniform(uint64_t seed, uint64_t stream, const Tensor& counter, Tensor out) override {
    const Rng rng(seed, stream);
    SplitWork(threads_, counter.shape[0], kHash_ns, [&](int64_t i) {
      const auto count = static_cast<uint32_t>(counter.i32()[i]);
      out.f32()[i] = static_cast<float>(rng.At(count)[0] >> 8) * 0x1p-24f;
    });
  }

  template <class Body>
  void Rows(const Tensor& x, double element_ns, const Body& body) {
    SplitWork(threads_, x.shape[0], element_ns * static_cast<double>(x.shape[1]), body);
  }

  // body(from, count, to) over runs that together cover an elementwise op.
  template <class Body>
  void Pieces(const Tensor& x, const Tensor& out, double element_ns, const Body& body) {
    if (!IsDense({x, out})) {
      Rows(x, element_ns, [&](int64_t i) { body(AnyRow(x, i), x.shape[1], AnyRow(out, i)); });
      return;
    }
    const int64_t n = x.Numel(), from_size = SizeOf(x.dtype), to_size = SizeOf(out.dtype);
    SplitWork(threads_, (n + kPiece - 1) / kPiece, kPiece * element_ns, [&](int64_t piece) {
      const int64_t begin = piece * kPiece, size = std::min(kPiece, n - begin);
      body(x.As<char>() + begin * from_size, size, out.As<char>() + begin * to_size);
    });
  }

  const RowKernels& k_;
  const ThreadSettings threads_;
};

}  // namespace

std::unique_ptr<RowOps> MakeCpuRows(Isa isa, ThreadSettings threads) {
  return std::make_unique<CpuRows>(isa, threads);
}

}  // namespace kvgauge

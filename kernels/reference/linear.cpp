// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "core/rounding.h"
#include "kernels/block_products.h"
#include "kernels/rounded_products.h"
#include "reference/reference.h"

namespace kvgauge {
namespace {

// Element i of row `row`, which may start at any byte.
float At(const Tensor& t, int64_t row, int64_t i) {
  const int64_t size = SizeOf(t.dtype);
  const auto* at = static_cast<const char*>(t.data) + (row * t.stride[0] + i) * size;
  if (t.dtype == DType::kF32) {
    float value;
    std::copy_n(at, size, reinterpret_cast<char*>(&value));
    return value;
  }
  uint16_t bits;
  std::copy_n(at, size, reinterpret_cast<char*>(&bits));
  return t.dtype == DType::kF16 ? F16ToF32(bits) : Bf16ToF32(bits);
}

// [n][k], values rounded to the stored dtype but kept as f32.
class ReferenceMatrix final : public PackedMatrix {
 public:
  ReferenceMatrix(int64_t n, int64_t k, DType dtype) : PackedMatrix(n, k, dtype) {
    values.reserve(static_cast<size_t>(n * k));
  }
  int64_t bytes() const override { return static_cast<int64_t>(values.size() * sizeof(float)); }

  std::vector<float> values;
  // Rows that are multiplied by rows of 8 bits have blocks; the list is empty where none are.
  struct CodedRow {
    BlockFormat format = BlockFormat::kQ80;
    std::vector<BlockCodes> blocks;
  };
  std::vector<CodedRow> coded = {};
  std::optional<RowRounding> rounding = std::nullopt;
};

// A row rounded to 8 bits.
struct Int8Row {
  static constexpr size_t kCoded = 256;  // numbers that share a scale

  explicit Int8Row(const std::vector<double>& numbers) {
    for (size_t first = 0; first < numbers.size(); first += kCoded) {
      const size_t end = std::min(first + kCoded, numbers.size());
      float largest = 0.0f;
      bool finite = true;
      for (size_t i = first; i < end; ++i) {
        finite = finite && std::isfinite(numbers[i]);
        largest = std::max(largest, std::abs(static_cast<float>(numbers[i])));
      }
      const bool some = finite && largest >= 0x1p-100f;
      scales.push_back(!finite ? std::numeric_limits<float>::quiet_NaN()
                       : some  ? largest / 127.0f
                               : 0.0f);
      const float by = some ? 127.0f / largest : 0.0f;
      for (size_t i = first; i < end; ++i) {
        const float moved = static_cast<float>(numbers[i]) * by;
        codes.push_back(some ? static_cast<int>(std::nearbyint(moved)) : 0);
      }
    }
  }

  // The products with what shares a scale of a weight row, one after the other.
  float Times(const std::vector<BlockCodes>& blocks, BlockFormat format) const {
    const auto elements = static_cast<size_t>(BlockShapeOf(format).elements);
    const size_t unit = format == BlockFormat::kQ6K ? 16 : 32;
    float sum = 0.0f;
    for (size_t first = 0; first < codes.size(); first += kCoded) {
      float t = 0.0f;
      for (size_t at = first; at < std::min(first + kCoded, codes.size()); at += unit) {
        const BlockCodes& block = blocks[at / elements];
        const size_t in_block = at % elements;
        int dot = 0, own = 0;
        for (size_t i = 0; i < unit; ++i) {
          dot += codes[at + i] * block.codes[in_block + i];
          own += codes[at + i];
        }
        t = std::fma(block.scale[in_block / 16], static_cast<float>(dot), t);
        if (format == BlockFormat::kQ4K) {
          t = std::fma(block.least[in_block / 32], static_cast<float>(-own), t);
        }
      }
      sum = std::fma(scales[first / kCoded], t, sum);
    }
    return sum;
  }

  std::vector<int> codes;
  std::vector<float> scales;
};

class ReferenceLinear final : public LinearOps, public BlockProducts, public RoundedProducts {
 private:
  std::unique_ptr<PackedMatrix> DoPack(std::span<const Tensor> parts, int64_t n, int64_t k,
                                       DType store) override {
    std::vector<StoredRows> rows;
    for (const Tensor& part : parts) rows.push_back({.floats = part, .format = std::nullopt});
    bool finite = false;
    return DoPackStored(rows, n, k, store, Keep::kFloats, finite);
  }

  std::unique_ptr<PackedMatrix> DoPackStored(std::span<const StoredRows> parts, int64_t n,
                                             int64_t k, DType store, Keep keep, bool&) override {
    auto packed = std::make_unique<ReferenceMatrix>(n, k, store);
    if (keep == Keep::kBlocksForInt8) packed->coded = CodedRowsOf(parts, n, k);
    for (const StoredRows& part : parts) {
      for (int64_t row = 0; row < part.rows(); ++row) {
        if (!part.format) {
          for (int64_t i = 0; i < k; ++i) {
            packed->values.push_back(Rounded(store, At(part.floats, row, i)));
          }
          continue;
        }
        const BlockShape& shape = BlockShapeOf(*part.format);
        std::vector<float> numbers(static_cast<size_t>(shape.elements));
        for (int64_t i = 0; i < k / shape.elements; ++i) {
          ReadBlock(*part.format, part.blocks[static_cast<size_t>(row)] + i * shape.bytes,
                    numbers.data());
          for (const float number : numbers) packed->values.push_back(Rounded(store, number));
        }
      }
    }
    return packed;
  }

  void DoRoundRowsOf(PackedMatrix& matrix, const RowRounding& rounding) override {
    auto* packed = dynamic_cast<ReferenceMatrix*>(&matrix);
    KVG_CHECK(packed != nullptr && packed->coded.empty(), "no floats that this backend packed");
    packed->rounding = rounding;
  }

  // Of 64 rows that are all of one format.
  static std::vector<ReferenceMatrix::CodedRow> CodedRowsOf(std::span<const StoredRows> parts,
                                                            int64_t n, int64_t k) {
    constexpr int64_t kTogether = 64;
    std::vector<std::optional<BlockFormat>> formats;
    std::vector<const uint8_t*> rows;
    for (const StoredRows& part : parts) {
      for (int64_t row = 0; row < part.rows(); ++row) {
        formats.push_back(part.format);
        rows.push_back(part.format ? part.blocks[static_cast<size_t>(row)] : nullptr);
      }
    }
    std::vector<ReferenceMatrix::CodedRow> coded(static_cast<size_t>(n));
    for (int64_t first = 0; first < n; first += kTogether) {
      const auto begin = formats.begin() + first;
      const auto end = formats.begin() + std::min(first + kTogether, n);
      if (!*begin || std::find_if(begin, end, [&](auto f) { return f != *begin; }) != end) continue;
      for (int64_t row = first; row < std::min(first + kTogether, n); ++row) {
        ReferenceMatrix::CodedRow& to = coded[static_cast<size_t>(row)];
        to.format = **begin;
        const BlockShape& shape = BlockShapeOf(to.format);
        to.blocks.resize(static_cast<size_t>(k / shape.elements));
        for (int64_t i = 0; i < k / shape.elements; ++i) {
          ReadBlockCodes(to.format, rows[static_cast<size_t>(row)] + i * shape.bytes,
                         to.blocks[static_cast<size_t>(i)]);
        }
      }
    }
    return coded;
  }

  void DoMatMul(const Tensor& x, const PackedMatrix& w, const Tensor& bias, MatMulMode mode,
                Tensor out) override {
    const auto* matrix = dynamic_cast<const ReferenceMatrix*>(&w);
    KVG_CHECK(matrix != nullptr, "the matrix was packed by another backend");
    const int64_t k = w.in_features();
    std::vector<double> left(static_cast<size_t>(k));
    std::vector<float> numbers(static_cast<size_t>(k));
    for (int64_t i = 0; i < x.shape[0]; ++i) {
      for (int64_t p = 0; p < k; ++p) numbers[p] = Rounded(w.dtype(), At(x, i, p));
      if (matrix->rounding) RoundRow(*matrix->rounding, numbers.data(), k, numbers.data());
      for (int64_t p = 0; p < k; ++p) left[p] = Rounded(w.dtype(), numbers[p]);
      std::optional<Int8Row> int8;
      if (!matrix->coded.empty()) int8.emplace(left);
      for (int64_t j = 0; j < w.out_features(); ++j) {
        if (int8 && !matrix->coded[static_cast<size_t>(j)].blocks.empty()) {
          const ReferenceMatrix::CodedRow& by = matrix->coded[static_cast<size_t>(j)];
          float sum = int8->Times(by.blocks, by.format);
          if (!bias.empty()) sum += bias.f32()[j];
          float& to = out.f32()[i * out.stride[0] + j];
          to = mode == MatMulMode::kAdd ? to + sum : sum;
          continue;
        }
        const float* row = matrix->values.data() + j * k;
        double sum = 0;
        for (int64_t p = 0; p < k; ++p) sum += left[p] * row[p];
        if (!bias.empty()) sum += bias.f32()[j];
        float& to = out.f32()[i * out.stride[0] + j];
        to = static_cast<float>(mode == MatMulMode::kAdd ? to + sum : sum);
      }
    }
  }

  void DoMatMulChosen(const Tensor& x, const MatrixSet& set, const Tensor& choice,
                      Tensor out) override {
    const int64_t share = out.shape[0] / x.shape[0];
    for (int64_t i = 0; i < out.shape[0]; ++i) {
      const int32_t chosen = choice.i32()[i];
      KVG_CHECK(0 <= chosen && chosen < set.size(), "no such matrix in the set");
      DoMatMul(x.Slice(i / share, i / share + 1), set[chosen], {}, MatMulMode::kSet,
               out.Slice(i, i + 1));
    }
  }

  void DoMatMulNT(const Tensor& a, const Tensor& b, float alpha, Tensor out) override {
    Batched(a, b, alpha, out, b.stride[2], b.stride[1]);
  }
  void DoMatMulNN(const Tensor& a, const Tensor& b, float alpha, Tensor out) override {
    Batched(a, b, alpha, out, b.stride[1], b.stride[2]);
  }

  static void Batched(const Tensor& a, const Tensor& b, float alpha, const Tensor& out,
                      int64_t b_k_stride, int64_t b_n_stride) {
    const int64_t m = a.shape[1], k = a.shape[2], n = out.shape[2];
    for (int64_t batch = 0; batch < a.shape[0]; ++batch) {
      const float* left = a[batch].f32();
      const float* right = b[batch].f32();
      float* to = out[batch].f32();
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j < n; ++j) {
          double sum = 0;
          for (int64_t p = 0; p < k; ++p) {
            sum += double{left[i * k + p]} * right[p * b_k_stride + j * b_n_stride];
          }
          to[i * n + j] = static_cast<float>(alpha * sum);
        }
      }
    }
  }

  void DoEmbed(const Tensor& table, const Tensor& ids, float scale, Tensor out) override {
    for (int64_t i = 0; i < ids.shape[0]; ++i) {
      const int32_t id = ids.i32()[i];
      KVG_CHECK(0 <= id && id < table.shape[0], "token id out of range");
      float* to = out.f32() + i * out.stride[0];
      for (int64_t j = 0; j < table.shape[1]; ++j) to[j] = scale * At(table, id, j);
    }
  }
};

}  // namespace

std::unique_ptr<LinearOps> MakeReferenceLinear() { return std::make_unique<ReferenceLinear>(); }

}  // namespace kvgauge

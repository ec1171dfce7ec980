// SPDX-License-Identifier: Apache-2.0
// The backends an op table is run on, and what its tests share.
#pragma once

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "core/strings.h"
#include "cpu/cpu.h"
#include "kernels/ops.h"
#include "support/test_device.h"

namespace kvgauge {

// Unit roundoff of f32: a correctly rounded operation is off by at most this, relatively.
inline constexpr double kRound = 1.0 / (1 << 24);

template <class Group>
struct Backend {
  std::string name;
  std::unique_ptr<Group> ops;
};

template <class Group>
std::unique_ptr<Group> GroupOf(Ops& ops) {
  if constexpr (std::is_same_v<Group, RowOps>) return std::move(ops.rows);
  if constexpr (std::is_same_v<Group, SelectOps>) return std::move(ops.select);
  if constexpr (std::is_same_v<Group, AlgebraOps>) return std::move(ops.algebra);
  if constexpr (std::is_same_v<Group, StateOps>) return std::move(ops.state);
  if constexpr (std::is_same_v<Group, CodecOps>) return std::move(ops.codecs);
  if constexpr (std::is_same_v<Group, AttentionOps>) return std::move(ops.attention);
}

// The cpu group for every instruction set of this machine; the device's where there is one.
template <class Group>
std::vector<Backend<Group>> CpuBackends(std::unique_ptr<Group> (*make)(Isa, ThreadSettings),
                                        std::vector<int> thread_counts = {1}) {
  std::vector<Backend<Group>> backends;
  if (OnDevice()) {
    const std::unique_ptr<Ops> device = MakeHostedDevice();
    backends.push_back({device->variant, GroupOf<Group>(*device)});
    return backends;
  }
  for (const Isa isa : SupportedIsas()) {
    for (const int threads : thread_counts) {
      backends.push_back(
          {StrCat("cpu:", NameOf(isa), " threads ", threads), make(isa, ThreadSettings{threads})});
    }
  }
  return backends;
}

// A matrix of one dtype with its own memory; `padding` elements lie between rows, and a guard
// behind the last one. Both must still hold the fill when the test is done.
class Matrix {
 public:
  Matrix(DType dtype, int64_t rows, int64_t columns, int64_t padding = 0)
      : rows_(rows), columns_(columns), stride_(columns + padding), dtype_(dtype) {
    bytes_.assign(static_cast<size_t>((rows * stride_ + kGuard) * SizeOf(dtype)), kFill);
  }
  static Matrix Rows(std::initializer_list<std::initializer_list<float>> rows) {
    Matrix m(DType::kF32, static_cast<int64_t>(rows.size()),
             static_cast<int64_t>(rows.begin()->size()));
    int64_t i = 0;
    for (const auto& values : rows) std::copy(values.begin(), values.end(), m.row(i++));
    return m;
  }
  static Matrix Of(const std::vector<float>& values, int64_t columns, int64_t padding = 0) {
    Matrix m(DType::kF32, static_cast<int64_t>(values.size()) / columns, columns, padding);
    for (int64_t i = 0; i < m.rows_; ++i) {
      std::copy_n(values.begin() + i * columns, columns, m.row(i));
    }
    return m;
  }

  Tensor view() const {
    Tensor t(const_cast<uint8_t*>(bytes_.data()), dtype_, {rows_, columns_});
    t.stride[0] = stride_;
    return t;
  }
  // Rank 1, for a matrix of one row or one column.
  Tensor flat() const { return {const_cast<uint8_t*>(bytes_.data()), dtype_, {rows_ * columns_}}; }
  template <class T = float>
  T* row(int64_t i) {
    return reinterpret_cast<T*>(bytes_.data()) + i * stride_;
  }
  // Row by row as f32.
  std::vector<float> values() const {
    std::vector<float> out;
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = 0; j < columns_; ++j) {
        const int64_t at = i * stride_ + j;
        const Tensor t = view();
        switch (dtype_) {
          case DType::kF16:
            out.push_back(F16ToF32(t.As<uint16_t>()[at]));
            break;
          case DType::kBF16:
            out.push_back(Bf16ToF32(t.As<uint16_t>()[at]));
            break;
          case DType::kU8:
            out.push_back(t.As<uint8_t>()[at]);
            break;
          case DType::kI32:
            out.push_back(static_cast<float>(t.i32()[at]));
            break;
          default:
            out.push_back(t.f32()[at]);
        }
      }
    }
    return out;
  }
  // The first of its rows that differs in any bit from the same row of `other`, or -1.
  int64_t FirstDifference(const Matrix& other) const {
    const int64_t size = SizeOf(dtype_);
    for (int64_t i = 0; i < rows_; ++i) {
      if (std::memcmp(bytes_.data() + i * stride_ * size,
                      other.bytes_.data() + i * other.stride_ * size,
                      static_cast<size_t>(columns_ * size)) != 0) {
        return i;
      }
    }
    return -1;
  }
  // Nothing was written between or behind the rows.
  bool Intact() const {
    const int64_t size = SizeOf(dtype_);
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t b = (i * stride_ + columns_) * size; b < (i + 1) * stride_ * size; ++b) {
        if (bytes_[b] != kFill) return false;
      }
    }
    return std::all_of(bytes_.end() - kGuard * size, bytes_.end(),
                       [](uint8_t byte) { return byte == kFill; });
  }

 private:
  static constexpr uint8_t kFill = 0xa5;
  static constexpr int64_t kGuard = 16;

  int64_t rows_, columns_, stride_;
  DType dtype_;
  std::vector<uint8_t> bytes_;
};

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Weights on the device, and sets of them.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "core/check.h"
#include "cuda/device/driver.h"
#include "cuda/device/simt.h"
#include "cuda/rounded_rows.h"
#include "cuda/strips.h"
#include "kernels/linear.h"

namespace kvgauge::cuda {

// [n, k] as stored, on the device. 16-bit rows are padded with zeros to whole steps.
class DeviceMatrix final : public PackedMatrix {
 public:
  DeviceMatrix(int64_t n, int64_t k, DType dtype, Stream stream)
      : PackedMatrix(n, k, dtype),
        stride_(dtype == DType::kF32 ? k : RoundUp(k, kUnit)),
        bytes_(std::max<int64_t>(n * stride_ * SizeOf(dtype), 1)) {
    data_ = Malloc(bytes_, stream);
    if (data_ == nullptr) throw OutOfDeviceMemory(bytes_, stream);
  }
  DeviceMatrix(const DeviceMatrix&) = delete;
  DeviceMatrix& operator=(const DeviceMatrix&) = delete;
  ~DeviceMatrix() override { Free(data_); }

  int64_t bytes() const override { return bytes_; }
  int64_t stride() const { return stride_; }
  char* data() const { return static_cast<char*>(data_); }
  // How rows that it is multiplied by are rounded.
  const MatrixRounding& rounding() const { return rounding_; }
  void set_rounding(const RowRounding& by) { rounding_ = {.rounds = true, .by = by}; }

 private:
  int64_t stride_, bytes_;
  MatrixRounding rounding_;
  void* data_;
};

// Where the matrices lie, on the device.
class DeviceSet final : public MatrixSet {
 public:
  DeviceSet(std::vector<const PackedMatrix*> matrices, Stream stream)
      : MatrixSet(std::move(matrices)) {
    std::vector<const void*> where;
    std::vector<MatrixRounding> roundings;
    bool alike = true;
    for (int64_t i = 0; i < size(); ++i) {
      const auto* matrix = dynamic_cast<const DeviceMatrix*>(&(*this)[i]);
      KVG_CHECK(matrix != nullptr, "the matrix was packed by another backend");
      where.push_back(matrix->data());
      roundings.push_back(matrix->rounding());
      alike = alike && roundings[0].rounds == roundings.back().rounds &&
              roundings[0].by == roundings.back().by;
    }
    stride_ = static_cast<const DeviceMatrix&>((*this)[0]).stride();
    where_ = SentOnce(where.data(), size() * int64_t{sizeof(void*)}, stream);
    if (alike) {
      rounding_ = roundings[0];
      return;
    }
    try {
      roundings_ = SentOnce(roundings.data(), size() * int64_t{sizeof(MatrixRounding)}, stream);
    } catch (...) {
      Free(where_);
      throw;
    }
  }
  DeviceSet(const DeviceSet&) = delete;
  DeviceSet& operator=(const DeviceSet&) = delete;
  ~DeviceSet() override {
    Free(where_);
    if (roundings_ != nullptr) Free(roundings_);
  }

  int64_t stride() const { return stride_; }
  const void* const* where() const { return static_cast<const void* const*>(where_); }
  // How rows are rounded, whichever they choose; or, on the device, by the matrix they choose.
  const MatrixRounding& rounding() const { return rounding_; }
  const MatrixRounding* roundings() const { return static_cast<const MatrixRounding*>(roundings_); }

 private:
  static void* SentOnce(const void* host, int64_t bytes, Stream stream) {
    void* const data = Malloc(bytes, stream);
    if (data == nullptr) throw OutOfDeviceMemory(bytes, stream);
    CopyToDevice(data, host, bytes, stream);
    return data;
  }

  int64_t stride_ = 0;
  MatrixRounding rounding_;
  void *where_, *roundings_ = nullptr;
};

}  // namespace kvgauge::cuda

// SPDX-License-Identifier: Apache-2.0
// Products of many rows by the vendor's library, with the bits of our own kernels.
//
// A row may meet our kernels alone and the library in company, so the library is of use only where
// both give the same bits. Rows are cut into blocks of fixed sizes, zeros behind the last one. For
// each shape of block the library's ways to multiply it are held against our kernels when weights
// of that shape are packed; the first that agrees in every bit is pinned, and no other is used. A
// shape without one stays with our kernels.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "core/dtype.h"
#include "cuda/device/driver.h"

namespace kvgauge::cuda {

// 16-bit sums: chains over spans of k, whose results are added in ascending order.
inline constexpr int64_t kProductSpan = 8192;

// out[i, j] = (out[i, j] +) sum over k of x[i, k] * w[j, k], in f32.
struct BlockProduct {
  DType dtype = DType::kF32;  // of x and w
  int64_t rows = 0;           // of x and out
  int64_t n = 0;              // rows of w, columns of out, whose rows have no gaps
  int64_t k = 0;
  int64_t stride = 0;  // between rows of x, and between those of w
  auto operator<=>(const BlockProduct&) const = default;
};

// The table of what is asked of a library.
class ProductLibrary {
 public:
  // How one product may be computed, in the library's own numbers.
  using Way = std::array<uint64_t, 8>;

  virtual ~ProductLibrary() = default;
  virtual std::string name() const = 0;  // "cuBLASLt 13.0.2"
  // Rows of a block, descending.
  virtual std::span<const int64_t> blocks() const = 0;
  // Those that sum each output in one place: no split of k, no reduction, no working memory, no
  // TF32. The fastest, as far as the library knows, first.
  virtual std::vector<Way> Ways(const BlockProduct& product) = 0;
  // "algorithm 66, tile 20, stages 35"
  virtual std::string Describe(const Way& way) const = 0;
  // x, w and out: 16-byte aligned. False: the library refused, nothing is submitted.
  virtual bool Multiply(const BlockProduct& product, const Way& way, const void* x, const void* w,
                        bool add, float* out, Stream stream) = 0;
};

// The library of this process on a device, behind UseDevice of that device; null, and why, where
// there is none or KVGAUGE_CUDA_LIBRARY=off is set.
ProductLibrary* FindProductLibrary(int device, std::string* why);

class ManyRows {
 public:
  // Our kernels: out [rows, n] of x [rows, stride] and w [n, stride], k being the stride.
  using OwnProduct =
      std::function<void(const BlockProduct& product, const void* x, const void* w, float* out)>;

  ManyRows(ProductLibrary& library, Stream stream, OwnProduct own)
      : library_(library), stream_(stream), own_(std::move(own)) {}

  // What was pinned for one size of block: its spans along k and their ways.
  struct Pinned {
    int64_t rows = 0;
    struct Span {
      int64_t begin;  // of k
      BlockProduct product;
      ProductLibrary::Way way;
    };
    std::vector<Span> spans;
  };

  // Tests and pins for weights [n, stride]. `w`: device memory of that size; what is in it is lost.
  // Does nothing for a shape that it knows. Waits for the device.
  void Prepare(DType dtype, int64_t n, int64_t stride, void* w);
  // The block that `rows` rows begin with; null: all of them are left to our kernels.
  const Pinned* BlockOf(DType dtype, int64_t n, int64_t stride, int64_t rows) const;
  // x [rows, stride], w [n, stride], out [rows, n] of the block.
  void Multiply(const Pinned& block, const void* x, const void* w, float* out) const;

  // "bf16 256 x 1088: 128 rows by algorithm 66, tile 20", a line for each shape and block; of a
  // block without a way, why.
  const std::vector<std::string>& records() const { return records_; }
  // Why the last of these blocks that has no way has none.
  const std::string& fault() const { return fault_; }

 private:
  using Shape = std::tuple<DType, int64_t, int64_t>;  // of weights
  struct Probe;
  // The check that a way failed, in the order in which they are made.
  enum class Failed { kNone, kRefused, kOtherRows, kOneRow, kZeros, kSpans };
  bool TryMultiply(const Pinned& block, const void* x, const void* w, float* out) const;
  Failed Check(const Pinned& block, const Probe& probe) const;
  std::optional<Pinned> Pin(const BlockProduct& whole, const Probe& probe, std::string* why) const;

  ProductLibrary& library_;
  Stream stream_;
  OwnProduct own_;
  std::map<Shape, std::vector<Pinned>> shapes_;  // rows descending
  std::vector<std::string> records_;
  std::string fault_;
};

}  // namespace kvgauge::cuda

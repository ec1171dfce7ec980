// SPDX-License-Identifier: Apache-2.0
// Matrix products of the device vendor's library. Only measurements use it, to compare our own
// products and attention with what the machine reaches; the order of its sums is not fixed.
#pragma once

#include <memory>
#include <string>

#include "core/result.h"

namespace kvgauge {

struct Ops;
struct Tensor;

class LibraryProduct {
 public:
  virtual ~LibraryProduct() = default;
  virtual std::string name() const = 0;  // "cuBLAS 13.1.0"
  // out [m, n] = x [m, k] * w [n, k]^T, all of them bf16 and contiguous, sums in f32. Submitted
  // behind what the Ops of this device were asked before; nothing waits.
  virtual void Multiply(const Tensor& x, const Tensor& w, Tensor out) = 0;
};

// The library is loaded when it is asked for. An error says what is missing.
Result<std::unique_ptr<LibraryProduct>> MakeLibraryProduct(const Ops& ops);

}  // namespace kvgauge

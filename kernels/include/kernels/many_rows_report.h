// SPDX-License-Identifier: Apache-2.0
// Who multiplies many rows on a device: a vendor's library where it has the bits of our own
// kernels, which differ from it in time alone.
#pragma once

#include <span>
#include <string>

namespace kvgauge {

// The LinearOps of a device are this, too.
class ManyRowsReport {
 public:
  virtual ~ManyRowsReport() = default;
  // "cuBLASLt 13.0.2", or "our kernels (KVGAUGE_CUDA_LIBRARY=off is set)".
  virtual std::string who() const = 0;
  // A line for each shape and type of weights that was packed, and each size of block, with the
  // library's way to multiply it, or why it is not the library's.
  virtual std::span<const std::string> pinned() const = 0;
};

}  // namespace kvgauge

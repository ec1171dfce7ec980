// SPDX-License-Identifier: Apache-2.0
// One pass over a backend: every kind of operation against the reference twin, then how near the
// costly ones come to what the device itself reaches.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvgauge {

struct Ops;

struct DeviceCheckRow {
  std::string op, shape;
  double error = 0, bound = 0;  // largest difference, relative to the largest result
  bool ok = false;
};

struct DeviceRateRow {
  std::string op, shape;
  double milliseconds = 0;
  double rate = 0;   // GB/s, or TFLOP/s where `flops`
  double share = 0;  // of what the device reaches: copies, or the product of large matrices, by
                     // its vendor's library where that is at hand
  double aim = 0;    // the share that we hold ourselves to; 0: none
  bool flops = false;
};

struct DeviceCheck {
  std::vector<DeviceCheckRow> checks;
  double copy_gbs = 0;        // bytes read and written by a large copy
  double product_tflops = 0;  // of large bf16 matrices
  std::string product_by;     // whose product that is: "cuBLAS 13.1.0", "our kernel"
  std::vector<DeviceRateRow> rates;

  bool ok() const;
};

// Results of `device` held against the reference backend.
std::vector<DeviceCheckRow> CheckOps(Ops& device);
// Times on an otherwise idle device; `entries` cached entries a head, at least 1024.
void MeasureRates(Ops& device, int64_t entries, DeviceCheck* check);
// GB/s of a copy within the device's memory, read and written, of two blocks of that size.
double MeasureCopy(Ops& device, int64_t size_bytes);

}  // namespace kvgauge

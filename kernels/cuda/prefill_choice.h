// SPDX-License-Identifier: Apache-2.0
// Which kernel attends to many rows. A device that has the instructions of warpgroup.h uses them
// for the types for which kWarpgroupPrefill gave the bits of kPortablePrefill, for the same rows,
// when the choice was made; all else goes to kPortablePrefill. So the choice changes speed and no
// bit.
#pragma once

#include <string>

#include "cuda/attention_kernels.h"

namespace kvgauge::cuda {

class PrefillChoice {
 public:
  // Tries both, unless the device lacks the instructions or KVGAUGE_CUDA_WARPGROUPS=off is set.
  // Waits for the device.
  PrefillChoice(const DeviceInfo& info, Stream stream);

  const PrefillWay& For(DType dtype, int key_dim, int value_dim) const;
  // "prefill attention of bf16, f16 on warpgroups"; or the portable kernel, and why.
  std::string Describe() const;

 private:
  bool bf16_ = false, f16_ = false;  // on warpgroups
  std::string why_not_;
};

}  // namespace kvgauge::cuda

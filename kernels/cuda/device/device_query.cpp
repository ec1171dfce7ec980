// SPDX-License-Identifier: Apache-2.0
#include "cuda/device/device_query.h"

#include "core/strings.h"
#include "kernels/device_number.h"

namespace kvgauge::cuda {
namespace {

// What the code is compiled for; see CMakeLists.txt.
constexpr int kLeastCapability = 80;

std::string Version(int version) { return StrCat(version / 1000, ".", version % 1000 / 10); }

}  // namespace

std::string WhyNotUsable(const DeviceQuery& asked) {
  const DeviceInfo& info = asked.info;
  const std::string which = StrCat("device ", asked.device, " (", info.name, ")");
  switch (asked.failed) {
    case DeviceQuery::Failed::kNone:
      break;
    case DeviceQuery::Failed::kVersion:
      if (info.driver_version == 0) return "no NVIDIA driver is installed";
      return StrCat("the NVIDIA driver is too old: it serves CUDA ", Version(info.driver_version),
                    ", this program was built with ", Version(info.runtime_version));
    case DeviceQuery::Failed::kCount:
      return StrCat("no usable device: ", asked.error);
    case DeviceQuery::Failed::kProperties:
      return StrCat("device ", asked.device, " does not answer: ", asked.error);
    case DeviceQuery::Failed::kMemory:
      return StrCat(which, " has too little memory left to begin with: of ",
                    HumanBytes(info.total_bytes),
                    " nearly all is held by other programs (nvidia-smi names them)");
    case DeviceQuery::Failed::kContext:
      return StrCat(which, " cannot be used: ", asked.error);
  }
  if (asked.count == 0) return "no usable device: none is present";
  if (asked.device < 0 || asked.device >= asked.count) {
    return WhyNoDevice(asked.device, asked.count);
  }
  if (10 * info.major + info.minor < kLeastCapability) {
    return StrCat(which, " has compute capability ", info.major, ".", info.minor,
                  "; 8.0 is the least this program is built for");
  }
  return {};
}

std::string Describe(const DeviceInfo& info) {
  return StrCat(info.name, ", sm_", info.major, info.minor, ", ", HumanBytes(info.free_bytes),
                " of ", HumanBytes(info.total_bytes), " free, driver for CUDA ",
                Version(info.driver_version));
}

}  // namespace kvgauge::cuda

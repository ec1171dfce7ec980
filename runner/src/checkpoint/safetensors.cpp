// SPDX-License-Identifier: Apache-2.0
#include "src/checkpoint/safetensors.h"

#include "runner/weights.h"

namespace kvgauge {

Result<std::unique_ptr<WeightSource>> OpenSafetensorsFile(const std::string& path) {
  return OpenStoredFile(path, ParseSafetensorsHeader);
}

Result<std::unique_ptr<WeightSource>> OpenSafetensors(const std::string& directory) {
  return OpenStored(directory, kSafetensors);
}

}  // namespace kvgauge

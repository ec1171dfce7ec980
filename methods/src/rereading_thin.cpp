// SPDX-License-Identifier: Apache-2.0
#include "methods/rereading_thin.h"

#include <algorithm>
#include <functional>

#include "methods/model_shape.h"

namespace kvgauge {

Status CheckOwnPositions(const ModelShape& shape) {
  if (shape.rotary_dim > 0) return {};
  return BadInput(
      "positions is own, and the model does not rotate, so tokens stand where they "
      "are counted; expected positions=kept");
}

float LastToLeave(std::vector<float> told, double share) {
  const auto stay = static_cast<int64_t>(static_cast<double>(told.size()) * share);
  const auto at = std::clamp<int64_t>(stay - 1, 0, std::ssize(told) - 1);
  std::ranges::nth_element(told, told.begin() + at, std::greater<>());
  return told[static_cast<size_t>(at)];
}

}  // namespace kvgauge

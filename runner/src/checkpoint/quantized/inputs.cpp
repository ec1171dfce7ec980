// SPDX-License-Identifier: Apache-2.0
// How the rows that come to a quantised matrix are rounded, with the scale that its file may have.
#include <algorithm>
#include <cmath>

#include "core/strings.h"
#include "src/checkpoint/quantized/source.h"
#include "src/checkpoint/quantized/stored.h"

namespace kvgauge {
namespace {

// The code of 0 that the file has, or 0 where it has none.
Result<float> GivenZero(const WeightSource& source, const std::string& module, bool symmetric) {
  const std::string name = module + ".input_zero_point";
  if (!source.Contains(name)) {
    if (symmetric) return 0.0f;
    return BadInput(StrCat(source.OriginOf(module + ".weight"), ": ", Quoted(module, 120),
                           " comes without a zero point of its inputs, ", Quoted(name, 120)));
  }
  KVG_ASSIGN(const std::vector<float> zeros, FiniteNumbers(source, name));
  const std::string where = StrCat(source.OriginOf(name), ": tensor ", Quoted(name, 120));
  if (symmetric) {
    const bool all = std::ranges::all_of(zeros, [](float number) { return number == 0.0f; });
    if (!all) return Unsupported(where + ": inputs are rounded around 0 alone");
    return 0.0f;
  }
  const bool code = zeros.size() == 1 && zeros[0] >= -128.0f && zeros[0] <= 127.0f &&
                    zeros[0] == std::nearbyint(zeros[0]);
  if (!code) return BadInput(where + ": expected one whole number from -128 to 127");
  return zeros[0];
}

// The scale of all rows, which the writer of the file calibrated.
Result<float> GivenScale(const WeightSource& source, const std::string& module) {
  std::string name = module + ".input_scale";
  if (!source.Contains(name)) name = module + ".activation_scale";
  if (!source.Contains(name)) {
    return BadInput(StrCat(source.OriginOf(module + ".weight"), ": ", Quoted(module, 120),
                           " comes without a scale of its inputs, '", module, ".input_scale'"));
  }
  KVG_ASSIGN(const std::vector<float> numbers, FiniteNumbers(source, name));
  if (numbers.size() != 1 || numbers[0] <= 0.0f) {
    return BadInput(StrCat(source.OriginOf(name), ": tensor ", Quoted(name, 120),
                           ": expected one scale, larger than 0"));
  }
  return numbers[0];
}

}  // namespace

std::function<Result<RowRounding>()> InputsOf(const WeightSource& source,
                                              const QuantizationConfig& config,
                                              const std::optional<InputScheme>& scheme,
                                              const std::string& module) {
  if (!scheme) return nullptr;
  return [&source, path = config.path, inputs = *scheme, module]() -> Result<RowRounding> {
    if (!inputs.refused.empty()) return Unsupported(StrCat(path, ": ", inputs.refused));
    RowRounding rounding{
        .codes = inputs.floats ? RowRounding::Codes::kE4m3 : RowRounding::Codes::kInt8,
        .powers = inputs.powers};
    if (inputs.scale == InputScheme::Scale::kGroup) rounding.group = inputs.group_size;
    if (inputs.scale == InputScheme::Scale::kGiven) {
      KVG_ASSIGN(rounding.scale, GivenScale(source, module));
      KVG_ASSIGN(rounding.zero, GivenZero(source, module, inputs.symmetric));
    } else {
      rounding.spans = !inputs.symmetric;
    }
    return rounding;
  };
}

}  // namespace kvgauge

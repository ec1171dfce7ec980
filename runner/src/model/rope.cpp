// SPDX-License-Identifier: Apache-2.0
#include "runner/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"

namespace kvgauge {
namespace {

std::vector<double> InverseFrequencies(double theta, int64_t rotary_dim) {
  std::vector<double> inverse(static_cast<size_t>(rotary_dim / 2));
  for (size_t i = 0; i < inverse.size(); ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(rotary_dim);
    inverse[i] = std::pow(theta, -exponent);
  }
  return inverse;
}

// "NTK-aware" scaling: a larger base instead of slower positions, from where the trained length
// ends.
double DynamicTheta(const RopeConfig& config, int64_t total_length) {
  const double rotary_dim = static_cast<double>(config.rotary_dim);
  const double length = static_cast<double>(std::max(total_length, config.max_position));
  const double stretch = config.factor * length / static_cast<double>(config.max_position);
  return config.theta * std::pow(stretch - (config.factor - 1.0), rotary_dim / (rotary_dim - 2.0));
}

// Short wavelengths stay, long ones are divided by the factor, those between are blended.
void ApplyLlama3(const RopeConfig& config, std::vector<double>& inverse) {
  const double original = static_cast<double>(config.original_max_position);
  const double longest_kept = original / config.high_freq_factor;
  const double shortest_divided = original / config.low_freq_factor;
  for (double& f : inverse) {
    const double wavelength = 2.0 * std::numbers::pi / f;
    if (wavelength < longest_kept) continue;
    if (wavelength > shortest_divided || longest_kept == shortest_divided) {
      f /= config.factor;
      continue;
    }
    const double blend = (original / wavelength - config.low_freq_factor) /
                         (config.high_freq_factor - config.low_freq_factor);
    f = (1.0 - blend) * f / config.factor + blend * f;
  }
}

// The (fractional) dimension whose wavelength makes `rotations` turns within the trained length.
double YarnDimension(const RopeConfig& config, double rotations) {
  const double turns =
      static_cast<double>(config.original_max_position) / (rotations * 2.0 * std::numbers::pi);
  return static_cast<double>(config.rotary_dim) * std::log(turns) / (2.0 * std::log(config.theta));
}

void ApplyYarn(const RopeConfig& config, std::vector<double>& inverse) {
  double low = YarnDimension(config, config.beta_fast);
  double high = YarnDimension(config, config.beta_slow);
  if (config.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(config.rotary_dim - 1));
  if (low == high) high += 0.001;  // as the reference does: a step, not 0 / 0
  for (size_t i = 0; i < inverse.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inverse[i] = inverse[i] / config.factor * ramp + inverse[i] * (1.0 - ramp);
  }
}

double YarnAttentionFactor(const RopeConfig& config) {
  if (config.mscale != 0.0 && config.mscale_all_dim != 0.0) {
    return YarnMagnitude(config.factor, config.mscale) /
           YarnMagnitude(config.factor, config.mscale_all_dim);
  }
  return YarnMagnitude(config.factor, 1.0);
}

double LongropeAttentionFactor(const RopeConfig& config) {
  if (config.factor <= 1.0) return 1.0;
  const double original = static_cast<double>(config.original_max_position);
  return std::sqrt(1.0 + std::log(config.factor) / std::log(original));
}

std::vector<int32_t> AxisOfFrequencies(const RopeConfig& config) {
  const int64_t pairs = config.rotary_dim / 2;
  std::vector<int32_t> axis;
  if (config.sections.empty()) return axis;
  if (!config.interleaved) {
    for (size_t a = 0; a < config.sections.size(); ++a) {
      axis.insert(axis.end(), static_cast<size_t>(config.sections[a]), static_cast<int32_t>(a));
    }
    KVG_CHECK(std::ssize(axis) == pairs, "sections cover the frequencies");
    return axis;
  }
  axis.assign(static_cast<size_t>(pairs), 0);
  for (size_t a = 1; a < config.sections.size(); ++a) {
    const int64_t end = std::min(3 * config.sections[a], pairs);
    for (auto j = static_cast<int64_t>(a); j < end; j += 3) {
      axis[static_cast<size_t>(j)] = static_cast<int32_t>(a);
    }
  }
  return axis;
}

}  // namespace

std::string_view NameOf(RopeKind kind) {
  switch (kind) {
    case RopeKind::kDefault:
      return "default";
    case RopeKind::kLinear:
      return "linear";
    case RopeKind::kDynamic:
      return "dynamic";
    case RopeKind::kLlama3:
      return "llama3";
    case RopeKind::kYarn:
      return "yarn";
    case RopeKind::kLongrope:
      return "longrope";
    case RopeKind::kProportional:
      return "proportional";
    case RopeKind::kNone:
      return "none";
  }
  CheckFailed(__FILE__, __LINE__, "kind", "unknown rope kind");
}

double YarnMagnitude(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

RopeFrequencies ComputeRope(const RopeConfig& config, int64_t total_length) {
  KVG_CHECK(config.rotary_dim > 0 && config.rotary_dim % 2 == 0, "rotary_dim is even, above 0");
  RopeFrequencies result;
  result.axis = AxisOfFrequencies(config);
  const double theta =
      config.kind == RopeKind::kDynamic ? DynamicTheta(config, total_length) : config.theta;
  result.inverse = InverseFrequencies(theta, config.rotary_dim);
  switch (config.kind) {
    case RopeKind::kDefault:
    case RopeKind::kDynamic:
      break;
    case RopeKind::kNone:
      std::fill(result.inverse.begin(), result.inverse.end(), 0.0);
      break;
    case RopeKind::kLinear:
      for (double& f : result.inverse) f /= config.factor;
      break;
    case RopeKind::kProportional:
      for (size_t i = 0; i < result.inverse.size(); ++i) {
        double& f = result.inverse[i];
        f = static_cast<int64_t>(i) < config.turned_dim / 2 ? f / config.factor : 0.0;
      }
      break;
    case RopeKind::kLlama3:
      ApplyLlama3(config, result.inverse);
      break;
    case RopeKind::kYarn:
      ApplyYarn(config, result.inverse);
      result.attention_factor = config.attention_factor.value_or(YarnAttentionFactor(config));
      break;
    case RopeKind::kLongrope: {
      const bool is_long = total_length > config.original_max_position;
      const std::vector<double>& divisors = is_long ? config.long_factor : config.short_factor;
      KVG_CHECK(divisors.size() == result.inverse.size(), "longrope has rotary_dim / 2 factors");
      for (size_t i = 0; i < divisors.size(); ++i) result.inverse[i] /= divisors[i];
      result.attention_factor = config.attention_factor.value_or(LongropeAttentionFactor(config));
      break;
    }
  }
  return result;
}

bool RopeDependsOnLength(const RopeConfig& config) {
  switch (config.kind) {
    case RopeKind::kDynamic:
      return true;
    case RopeKind::kLongrope:
      return config.short_factor != config.long_factor;
    default:
      return false;
  }
}

}  // namespace kvgauge

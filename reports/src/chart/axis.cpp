// SPDX-License-Identifier: Apache-2.0
#include "src/chart/axis.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "src/distributions.h"

namespace kvgauge::report {
namespace {

double NiceStep(double rough, Unit unit) {
  if (unit == Unit::kBytes) return std::exp2(std::ceil(std::log2(rough) - 1e-9));
  if (unit == Unit::kWhole) rough = std::max(std::ceil(rough - 1e-9), 1.0);
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0}) {
    if (rough <= factor * power * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

// Every k-th, so that at most `ticks` stay.
std::vector<double> Thinned(const std::vector<double>& all, int ticks) {
  const size_t step = (all.size() + static_cast<size_t>(ticks) - 1) / static_cast<size_t>(ticks);
  std::vector<double> kept;
  for (size_t i = 0; i < all.size(); i += std::max<size_t>(step, 1)) kept.push_back(all[i]);
  return kept;
}

}  // namespace

Axis Axis::Linear(double low, double high, Unit unit, int ticks) {
  return Linear(low, high, unit, ticks, -kInfinity, kInfinity);
}

Axis Axis::Linear(double low, double high, Unit unit, int ticks, double floor, double ceiling) {
  KVG_CHECK(low <= high && ticks > 1, "an axis needs a range");
  if (high - low <= 1e-12 * std::max(std::abs(low), std::abs(high))) {
    const bool bounded = std::isfinite(floor) && std::isfinite(ceiling);
    const double width = bounded ? (ceiling - floor) / 5 : high == 0 ? 1 : std::abs(high) * 0.1;
    low -= width / 2;
    high += width / 2;
    // Moved, not cut: what lies at an end of what can be has room on the other side.
    if (low < floor) {
      high += floor - low;
      low = floor;
    }
    if (high > ceiling) {
      low -= high - ceiling;
      high = ceiling;
    }
  }
  const double step = NiceStep((high - low) / ticks, unit);
  const double first = std::floor(low / step + 1e-9), last = std::ceil(high / step - 1e-9);
  Axis axis(first * step, last * step, unit, false);
  if (axis.low_ < floor && low >= floor) axis.low_ = floor;
  if (axis.high_ > ceiling && high <= ceiling) axis.high_ = ceiling;
  for (double i = first; i <= last; ++i) {
    // Rounded to the step, so that a tick at zero is zero.
    const double tick = i == 0 ? 0 : i * step;
    if (tick >= axis.low_ - step * 1e-9 && tick <= axis.high_ + step * 1e-9) {
      axis.ticks_.push_back(tick);
    }
  }
  return axis;
}

Axis Axis::Log(double low, double high, Unit unit, int ticks) {
  KVG_CHECK(low > 0 && low <= high && ticks > 1, "a logarithmic axis needs positive numbers");
  // A margin on both sides: points do not sit on the frame.
  const double margin = std::max(std::pow(high / low, 0.04), 1.08);
  Axis axis(low / margin, high * margin, unit, true);
  std::vector<double> all;
  const bool by_twos = unit == Unit::kBytes || unit == Unit::kTokens;
  if (by_twos) {
    for (double tick = std::exp2(std::ceil(std::log2(axis.low_))); tick <= axis.high_; tick *= 2) {
      all.push_back(tick);
    }
  } else {
    const double decades = std::log10(axis.high_ / axis.low_);
    for (double power = std::pow(10.0, std::floor(std::log10(axis.low_))); power <= axis.high_;
         power *= 10) {
      for (const double factor : {1.0, 2.0, 5.0}) {
        if (decades > 4 && factor != 1) continue;
        const double tick = factor * power;
        if (tick >= axis.low_ && tick <= axis.high_) all.push_back(tick);
      }
    }
  }
  if (all.size() >= (by_twos ? 3 : 4) || axis.high_ / axis.low_ > 8) {
    axis.ticks_ = Thinned(all, ticks);
    return axis;
  }
  // Few steps wide: the steps of a linear axis.
  const Axis linear = Linear(axis.low_, axis.high_, unit, ticks - 1);
  for (const double tick : linear.ticks()) {
    if (tick >= axis.low_ && tick <= axis.high_) axis.ticks_.push_back(tick);
  }
  return axis;
}

Axis Axis::Reversed() const {
  Axis axis = *this;
  axis.reversed_ = !reversed_;
  return axis;
}

double Axis::Place(double value) const {
  const double place =
      log_ ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
  return reversed_ ? 1 - place : place;
}

}  // namespace kvgauge::report

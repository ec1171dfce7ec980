// SPDX-License-Identifier: Apache-2.0
// An axis: which numbers it spans, where its ticks are, and where on it a number lies.
#pragma once

#include <vector>

#include "src/html/format.h"

namespace kvgauge::report {

class Axis {
 public:
  // Widened to whole steps of 1, 2, 2.5 or 5 times a power of ten (bytes: powers of two), about
  // `ticks` of them. A range without width gets some, a fifth of what can be where that is bounded.
  // Not widened beyond [floor, ceiling] where that holds the range: a score has no 105%.
  static Axis Linear(double low, double high, Unit unit, int ticks = 5);
  static Axis Linear(double low, double high, Unit unit, int ticks, double floor, double ceiling);
  // Precondition: 0 < low <= high. Ticks at powers of two for bytes and tokens, else at 1, 2 and 5
  // times powers of ten; thinned to about `ticks`.
  static Axis Log(double low, double high, Unit unit, int ticks = 7);
  // The same from right to left.
  Axis Reversed() const;

  // 0 at the low end, 1 at the high end; outside for numbers outside.
  double Place(double value) const;
  const std::vector<double>& ticks() const { return ticks_; }
  double low() const { return low_; }
  double high() const { return high_; }
  Unit unit() const { return unit_; }
  bool log() const { return log_; }

 private:
  Axis(double low, double high, Unit unit, bool log)
      : low_(low), high_(high), unit_(unit), log_(log) {}

  double low_, high_;
  Unit unit_;
  bool log_;
  bool reversed_ = false;
  std::vector<double> ticks_;
};

}  // namespace kvgauge::report

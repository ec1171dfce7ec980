// SPDX-License-Identifier: Apache-2.0
// Horizontal bars made of parts, with one legend; and the small curve that fits into a table cell.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/chart/axis.h"
#include "src/html/html.h"

namespace kvgauge::report {

struct StackedBars {
  std::string label, description;
  std::string title;               // of the axis
  std::vector<std::string> kinds;  // at most as many as there are KindShades
  struct Bar {
    std::string name;
    std::string family = {};
    std::vector<double> parts;  // one a kind, not negative
    std::string total;          // set at its end
  };
  std::vector<Bar> bars;
  Unit unit = Unit::kBytes;
  std::optional<double> rule = {};  // a line across, the full cache
  std::string rule_label = {};
  double width = 640;
};
Html Render(const StackedBars& chart);

// Points from left to right; `at` gets the dot. Scaled to [low, high].
struct Sparkline {
  std::string label;
  std::string family;
  std::vector<double> values;
  size_t at = 0;
  double low = 0, high = 1;
};
Html Render(const Sparkline& line);

}  // namespace kvgauge::report

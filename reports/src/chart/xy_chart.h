// SPDX-License-Identifier: Apache-2.0
// Points and lines over two axes: curves, scatters and fronts, with intervals, bands, reference
// lines and names set where they are needed instead of in a legend.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reports/statistics.h"
#include "src/chart/axis.h"
#include "src/html/html.h"

namespace kvgauge::report {

struct XyPoint {
  double x = 0, y = 0;
  std::optional<Interval> interval = {};  // of y
  std::optional<Interval> x_interval = {};
  std::string tip = {};     // what the point says when pointed at, in full
  std::string target = {};  // id of what it stands for; "": none
  std::string label = {};   // set beside it; "": none
  bool open = false;        // an outline only: not ranked, not proven
};

struct XySeries {
  std::string name = {};
  std::string family = {};
  size_t variety = 0;  // which of its family's methods it is
  bool line = true;
  bool marks = true;
  bool dashed = false;
  bool named = true;  // at the end of its line
  std::vector<XyPoint> points = {};
};

struct XyBand {
  std::string name = {};
  struct Slice {
    double x = 0, low = 0, high = 0;
  };
  std::vector<Slice> slices = {};  // ascending x
};

struct XyRule {
  double y = 0;
  std::string label = {};
};

struct XyChart {
  std::string label;        // what it is, for who cannot see it
  std::string description;  // what it shows, in a sentence or two
  std::string x_title, y_title;
  Axis x, y;
  std::vector<XySeries> series = {};
  std::optional<XyBand> band = {};
  std::vector<XyRule> rules = {};
  double width = 640, height = 380;
};

Html Render(const XyChart& chart);

inline constexpr double kChartFont = 11;  // pixels, of every label
// About how wide a text is set in `size` pixels.
double TextWidth(const std::string& text, double size);
// The text, less as much of its middle as does not fit: ratios at the ends of names stay.
std::string Shortened(const std::string& text, double size, double width);
// The nearest places to `wanted` (in any order) that are `gap` apart and within [low, high] as far
// as they fit. The order of neighbours stays.
std::vector<double> Spread(const std::vector<double>& wanted, double gap, double low, double high);

}  // namespace kvgauge::report

// SPDX-License-Identifier: Apache-2.0
// Differences with their intervals, one below the other, against a margin within which they are
// equivalent.
#pragma once

#include <string>
#include <vector>

#include "reports/statistics.h"
#include "src/chart/axis.h"
#include "src/html/html.h"

namespace kvgauge::report {

struct Forest {
  std::string label, description;
  std::string title;  // of the axis
  struct Line {
    std::string name;
    double value = 0;
    Interval interval;  // infinite ends: not known; one of them runs to the frame
    Verdict verdict = Verdict::kUndecided;
  };
  std::vector<Line> lines;
  double margin = 0;
  Unit unit = Unit::kPoints;
  double width = 860;
};

Html Render(const Forest& forest);

}  // namespace kvgauge::report

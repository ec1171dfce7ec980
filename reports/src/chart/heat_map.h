// SPDX-License-Identifier: Apache-2.0
// A grid of coloured cells. With texts in them (a needle's depth by the context's length) or too
// many for texts (a layer's heads).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/chart/palette.h"
#include "src/html/html.h"

namespace kvgauge::report {

struct HeatCell {
  double value = 0;        // 0 to 1, where on the scale it is
  std::string text = {};   // large; "": none
  std::string small = {};  // under it
};

struct HeatMap {
  std::string label, description;
  std::string row_title, column_title;
  std::vector<std::string> rows, columns;  // names; too narrow ones are left out evenly
  std::vector<std::vector<std::optional<HeatCell>>> cells;  // [row][column]; nothing: not measured
  HeatScale scale = HeatScale::kScore;
  double cell_width = 46, cell_height = 30;
};

Html Render(const HeatMap& map);

// The scale with the texts at its ends, to be shown once beside several maps.
Html HeatLegend(HeatScale scale, const std::string& low, const std::string& high);

}  // namespace kvgauge::report

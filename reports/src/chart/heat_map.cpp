// SPDX-License-Identifier: Apache-2.0
#include "src/chart/heat_map.h"

#include <algorithm>
#include <cmath>

#include "src/chart/xy_chart.h"

namespace kvgauge::report {
namespace {

int LevelOf(double value) {
  if (!(value > 0)) return 0;
  return std::min(static_cast<int>(value * kHeatLevels), kHeatLevels - 1);
}

Markup Prefix(HeatScale scale) { return scale == HeatScale::kAmount ? Markup("a") : Markup("s"); }

}  // namespace

Html Render(const HeatMap& map) {
  const double count_rows = static_cast<double>(map.rows.size());
  const double count_columns = static_cast<double>(map.columns.size());
  double left = 0, widest = 0;
  for (const std::string& row : map.rows) left = std::max(left, TextWidth(row, kChartFont));
  for (const std::string& column : map.columns)
    widest = std::max(widest, TextWidth(column, kChartFont));
  left += 8;
  const double top = map.row_title.empty() ? 4 : 20;
  const double width = std::max(left + count_columns * map.cell_width,
                                TextWidth(map.column_title, kChartFont) + left) +
                       1;
  const double bottom = top + count_rows * map.cell_height;
  // Columns without names leave no room for them.
  const double foot = widest > 0 ? 34 : 18;
  Html html;
  html.Put(
      "<svg class=\"heat\" width=\"{}\" height=\"{}\" viewBox=\"0 0 {} {}\" role=\"img\" "
      "aria-label=\"{}\"><desc>{}</desc>",
      {Px{width}, Px{bottom + foot}, Px{width}, Px{bottom + foot}, map.label, map.description});
  if (!map.row_title.empty())
    html.Put("<text class=\"at\" x=\"0\" y=\"11\">{}</text>", {map.row_title});

  // One path for all cells of a level, neighbours as one piece, and the lines between cells drawn
  // over them: a map of a thousand heads stays small.
  std::vector<Html> levels(kHeatLevels), texts(kHeatLevels), small(kHeatLevels);
  Html nothing;
  const double gap = map.cell_height > 12 ? 1 : 0.5;
  for (size_t r = 0; r < map.cells.size(); ++r) {
    const auto& row = map.cells[r];
    const double y = top + static_cast<double>(r) * map.cell_height;
    for (size_t c = 0; c < row.size();) {
      const double x = left + static_cast<double>(c) * map.cell_width;
      if (!row[c]) {
        nothing.Put("M{} {}h{}v{}h-{}z", {Px{x}, Px{y}, Px{map.cell_width - gap},
                                          Px{map.cell_height - gap}, Px{map.cell_width - gap}});
        ++c;
        continue;
      }
      const int level = LevelOf(row[c]->value);
      size_t end = c + 1;
      while (end < row.size() && row[end] && LevelOf(row[end]->value) == level) ++end;
      const double width_of_run = static_cast<double>(end - c) * map.cell_width - gap;
      levels[static_cast<size_t>(level)].Put(
          "M{} {}h{}v{}h-{}z",
          {Px{x}, Px{y}, Px{width_of_run}, Px{map.cell_height - gap}, Px{width_of_run}});
      for (; c < end; ++c) {
        if (row[c]->text.empty()) continue;
        const double middle =
            left + static_cast<double>(c) * map.cell_width + (map.cell_width - gap) / 2;
        const bool two = !row[c]->small.empty();
        const auto put = [&](Html& out, double below, const std::string& text) {
          out.Put("<text x=\"{}\" y=\"{}\">{}</text>",
                  {Px{middle}, Px{y + map.cell_height / 2 + below}, text});
        };
        put(texts[static_cast<size_t>(level)], two ? -0.5 : 4, row[c]->text);
        if (two) put(small[static_cast<size_t>(level)], 10, row[c]->small);
      }
    }
  }
  for (int level = 0; level < kHeatLevels; ++level) {
    const Html& path = levels[static_cast<size_t>(level)];
    if (!path.empty()) {
      html.Put("<path class=\"{}{}\" d=\"{}\"/>", {Prefix(map.scale), level, path});
    }
  }
  Html between;
  for (size_t c = 1; c < map.columns.size(); ++c) {
    between.Put("M{} {}v{}", {Px{left + static_cast<double>(c) * map.cell_width - gap / 2}, Px{top},
                              Px{bottom - top}});
  }
  if (!between.empty()) {
    html.Put("<path class=\"gap\" stroke-width=\"{}\" d=\"{}\"/>", {Px{gap}, between});
  }
  if (!nothing.empty()) html.Put("<path class=\"none\" d=\"{}\"/>", {nothing});
  for (int level = 0; level < kHeatLevels; ++level) {
    const auto at = static_cast<size_t>(level);
    if (!texts[at].empty()) {
      html.Put("<g class=\"hc {}t{}\">{}</g>", {Prefix(map.scale), level, texts[at]});
    }
    if (!small[at].empty()) {
      html.Put("<g class=\"hs {}t{}\">{}</g>", {Prefix(map.scale), level, small[at]});
    }
  }

  const size_t row_step = static_cast<size_t>(std::max(1.0, std::ceil(12 / map.cell_height)));
  html.Put("<g class=\"tk e\">");
  for (size_t r = 0; r < map.rows.size(); r += row_step) {
    html.Put("<text x=\"{}\" y=\"{}\">{}</text>",
             {Px{left - 5}, Px{top + (static_cast<double>(r) + 0.5) * map.cell_height + 3.5},
              map.rows[r]});
  }
  const size_t column_step =
      static_cast<size_t>(std::max(1.0, std::ceil((widest + 4) / map.cell_width)));
  html.Put("</g><g class=\"tk m\">");
  for (size_t c = 0; c < map.columns.size(); c += column_step) {
    if (map.columns[c].empty()) continue;
    html.Put("<text x=\"{}\" y=\"{}\">{}</text>",
             {Px{left + (static_cast<double>(c) + 0.5) * map.cell_width}, Px{bottom + 13},
              map.columns[c]});
  }
  html.Put("</g><text class=\"at\" x=\"{}\" y=\"{}\">{}</text>",
           {Px{left}, Px{bottom + foot - 5}, map.column_title});
  return html.Put("</svg>");
}

Html HeatLegend(HeatScale scale, const std::string& low, const std::string& high) {
  constexpr double kWidth = 14;
  const double left = TextWidth(low, kChartFont) + 6;
  const double width = left + kWidth * kHeatLevels + TextWidth(high, kChartFont) + 8;
  Html html;
  html.Put(
      "<svg class=\"key\" width=\"{}\" height=\"16\" viewBox=\"0 0 {} 16\" role=\"img\" "
      "aria-label=\"Scale of colours, from {} to {}\"><text class=\"tk\" x=\"0\" "
      "y=\"12\">{}</text>",
      {Px{width}, Px{width}, low, high, low});
  for (int level = 0; level < kHeatLevels; ++level) {
    html.Put("<path class=\"{}{}\" d=\"M{} 2h{}v12h-{}z\"/>",
             {Prefix(scale), level, Px{left + kWidth * level}, Px{kWidth}, Px{kWidth}});
  }
  return html.Put("<text class=\"tk\" x=\"{}\" y=\"12\">{}</text></svg>",
                  {Px{left + kWidth * kHeatLevels + 6}, high});
}

}  // namespace kvgauge::report

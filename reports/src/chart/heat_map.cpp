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

// Where the parts of a map stand.
struct Frame {
  double left = 8, top = 0, width = 0, bottom = 0, foot = 0;
  double widest_column = 0;  // of the names
  double gap = 0;            // between cells
};

Frame FrameOf(const HeatMap& map) {
  Frame frame;
  double widest_row = 0;
  for (const std::string& row : map.rows) {
    widest_row = std::max(widest_row, TextWidth(row, kChartFont));
  }
  for (const std::string& column : map.columns) {
    frame.widest_column = std::max(frame.widest_column, TextWidth(column, kChartFont));
  }
  frame.left += widest_row;
  frame.top = map.row_title.empty() ? 4 : 20;
  frame.width = std::max(frame.left + static_cast<double>(map.columns.size()) * map.cell_width,
                         TextWidth(map.column_title, kChartFont) + frame.left) +
                1;
  frame.bottom = frame.top + static_cast<double>(map.rows.size()) * map.cell_height;
  // Columns without names leave no room for them.
  frame.foot = frame.widest_column > 0 ? 34 : 18;
  frame.gap = map.cell_height > 12 ? 1 : 0.5;
  return frame;
}

// One path for all cells of a level, neighbours as one piece, and the lines between cells drawn
// over them: a map of a thousand heads stays small.
struct Cells {
  std::vector<Html> levels = std::vector<Html>(kHeatLevels);
  std::vector<Html> texts = levels, small = levels;
  Html nothing;
};

void PutTexts(const HeatMap& map, const Frame& frame, size_t column, double y, const HeatCell& cell,
              Cells& cells) {
  if (cell.text.empty()) return;
  const double middle =
      frame.left + static_cast<double>(column) * map.cell_width + (map.cell_width - frame.gap) / 2;
  const bool two = !cell.small.empty();
  const auto put = [&](Html& out, double below, const std::string& text) {
    out.Put(R"(<text x="{}" y="{}">{}</text>)",
            {Px{middle}, Px{y + map.cell_height / 2 + below}, text});
  };
  const auto level = static_cast<size_t>(LevelOf(cell.value));
  put(cells.texts[level], two ? -0.5 : 4, cell.text);
  if (two) put(cells.small[level], 10, cell.small);
}

void PutRow(const HeatMap& map, const Frame& frame, size_t r, Cells& cells) {
  const auto& row = map.cells[r];
  const double y = frame.top + static_cast<double>(r) * map.cell_height;
  const double height = map.cell_height - frame.gap;
  for (size_t c = 0; c < row.size();) {
    const double x = frame.left + static_cast<double>(c) * map.cell_width;
    if (!row[c]) {
      const double width = map.cell_width - frame.gap;
      cells.nothing.Put("M{} {}h{}v{}h-{}z", {Px{x}, Px{y}, Px{width}, Px{height}, Px{width}});
      ++c;
      continue;
    }
    const int level = LevelOf(row[c]->value);
    size_t end = c + 1;
    while (end < row.size() && row[end] && LevelOf(row[end]->value) == level) ++end;
    const double width = static_cast<double>(end - c) * map.cell_width - frame.gap;
    cells.levels[static_cast<size_t>(level)].Put("M{} {}h{}v{}h-{}z",
                                                 {Px{x}, Px{y}, Px{width}, Px{height}, Px{width}});
    for (; c < end; ++c) PutTexts(map, frame, c, y, *row[c], cells);
  }
}

void PutCells(const HeatMap& map, const Frame& frame, Html& html) {
  Cells cells;
  for (size_t r = 0; r < map.cells.size(); ++r) PutRow(map, frame, r, cells);
  for (int level = 0; level < kHeatLevels; ++level) {
    const Html& path = cells.levels[static_cast<size_t>(level)];
    if (path.empty()) continue;
    html.Put(R"(<path class="{}{}" d="{}"/>)", {Prefix(map.scale), level, path});
  }
  Html between;
  for (size_t c = 1; c < map.columns.size(); ++c) {
    between.Put("M{} {}v{}",
                {Px{frame.left + static_cast<double>(c) * map.cell_width - frame.gap / 2},
                 Px{frame.top}, Px{frame.bottom - frame.top}});
  }
  if (!between.empty()) {
    html.Put(R"(<path class="gap" stroke-width="{}" d="{}"/>)", {Px{frame.gap}, between});
  }
  if (!cells.nothing.empty()) html.Put(R"(<path class="none" d="{}"/>)", {cells.nothing});
  for (int level = 0; level < kHeatLevels; ++level) {
    const auto at = static_cast<size_t>(level);
    if (!cells.texts[at].empty()) {
      html.Put(R"(<g class="hc {}t{}">{}</g>)", {Prefix(map.scale), level, cells.texts[at]});
    }
    if (!cells.small[at].empty()) {
      html.Put(R"(<g class="hs {}t{}">{}</g>)", {Prefix(map.scale), level, cells.small[at]});
    }
  }
}

// Names of rows and columns, as many as there is room for.
void PutNames(const HeatMap& map, const Frame& frame, Html& html) {
  const size_t row_step = static_cast<size_t>(std::max(1.0, std::ceil(12 / map.cell_height)));
  html.Put(R"(<g class="tk e">)");
  for (size_t r = 0; r < map.rows.size(); r += row_step) {
    const double middle = frame.top + (static_cast<double>(r) + 0.5) * map.cell_height;
    html.Put(R"(<text x="{}" y="{}">{}</text>)",
             {Px{frame.left - 5}, Px{middle + 3.5}, map.rows[r]});
  }
  const size_t column_step =
      static_cast<size_t>(std::max(1.0, std::ceil((frame.widest_column + 4) / map.cell_width)));
  html.Put(R"(</g><g class="tk m">)");
  for (size_t c = 0; c < map.columns.size(); c += column_step) {
    if (map.columns[c].empty()) continue;
    html.Put(R"(<text x="{}" y="{}">{}</text>)",
             {Px{frame.left + (static_cast<double>(c) + 0.5) * map.cell_width},
              Px{frame.bottom + 13}, map.columns[c]});
  }
  html.Put("</g>");
}

}  // namespace

Html Render(const HeatMap& map) {
  const Frame frame = FrameOf(map);
  const Px width{frame.width}, height{frame.bottom + frame.foot};
  Html html;
  html.Put(R"(<svg class="heat" width="{}" height="{}" viewBox="0 0 {} {}" role="img" )"
           R"(aria-label="{}"><desc>{}</desc>)",
           {width, height, width, height, map.label, map.description});
  if (!map.row_title.empty()) {
    html.Put(R"(<text class="at" x="0" y="11">{}</text>)", {map.row_title});
  }
  PutCells(map, frame, html);
  PutNames(map, frame, html);
  html.Put(R"(<text class="at" x="{}" y="{}">{}</text>)",
           {Px{frame.left}, Px{frame.bottom + frame.foot - 5}, map.column_title});
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

// SPDX-License-Identifier: Apache-2.0
#include "src/chart/forest.h"

#include <algorithm>
#include <cmath>

#include "src/chart/palette.h"
#include "src/chart/xy_chart.h"

namespace kvgauge::report {
namespace {

constexpr double kFont = 11, kPitch = 19;

Markup ClassOf(Verdict verdict) {
  switch (verdict) {
    case Verdict::kSame:
      return Markup("same");
    case Verdict::kBetter:
      return Markup("better");
    case Verdict::kWorse:
      return Markup("worse");
    case Verdict::kUndecided:
      break;
  }
  return Markup("undecided");
}

}  // namespace

Html Render(const Forest& forest) {
  double low = -1.5 * forest.margin, high = 1.5 * forest.margin, left = 0;
  for (const Forest::Line& line : forest.lines) {
    left = std::max(left, TextWidth(line.name, kFont) + 12);
    low = std::min(low, line.value);
    high = std::max(high, line.value);
    if (std::isfinite(line.interval.low)) low = std::min(low, line.interval.low);
    if (std::isfinite(line.interval.high)) high = std::max(high, line.interval.high);
  }
  left = std::min(left, forest.width * 0.62);
  const double right = forest.width - 14, top = 20;
  const double bottom = top + kPitch * static_cast<double>(forest.lines.size()) + 4;
  const Axis axis = Axis::Linear(low, high, forest.unit, 6);
  const auto x = [&](double value) {
    return left + std::clamp(axis.Place(value), 0.0, 1.0) * (right - left);
  };
  Html html;
  html.Put(
      "<svg class=\"bars long\" viewBox=\"0 0 {} {}\" role=\"img\" "
      "aria-label=\"{}\"><desc>{}</desc>",
      {Px{forest.width}, Px{bottom + 34}, forest.label, forest.description});
  if (forest.margin > 0) {
    const double from = x(-forest.margin), to = x(forest.margin);
    html.Put(
        "<path class=\"band\" d=\"M{} {}H{}V{}H{}z\"/><text class=\"tk m\" x=\"{}\" y=\"12\">"
        "equivalent</text>",
        {Px{from}, Px{top - 3}, Px{to}, Px{bottom}, Px{from}, Px{(from + to) / 2}});
  }
  for (const double tick : axis.ticks()) {
    html.Put("<path class=\"{}\" d=\"M{} {}V{}\"/><text class=\"tk m\" x=\"{}\" y=\"{}\">{}</text>",
             {tick == 0 ? Markup("axis") : Markup("grid"), Px{x(tick)}, Px{top}, Px{bottom},
              Px{x(tick)}, Px{bottom + 14}, FormatTick(tick, forest.unit)});
  }
  for (size_t i = 0; i < forest.lines.size(); ++i) {
    const Forest::Line& line = forest.lines[i];
    const double y = top + kPitch * (static_cast<double>(i) + 0.5);
    html.Put(
        "<g class=\"v {}\"><text class=\"nm e\" x=\"{}\" y=\"{}\">{}</text>"
        "<path class=\"ci\" d=\"M{} {}H{}\"/><circle cx=\"{}\" cy=\"{}\" r=\"3.6\"/></g>",
        {ClassOf(line.verdict), Px{left - 8}, Px{y + 3.8}, line.name, Px{x(line.interval.low)},
         Px{y}, Px{x(line.interval.high)}, Px{x(line.value)}, Px{y}});
  }
  return html.Put("<text class=\"at m\" x=\"{}\" y=\"{}\">{}</text></svg>",
                  {Px{(left + right) / 2}, Px{bottom + 30}, forest.title});
}

}  // namespace kvgauge::report

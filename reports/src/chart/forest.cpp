// SPDX-License-Identifier: Apache-2.0
#include "src/chart/forest.h"

#include <algorithm>
#include <cmath>

#include "src/chart/palette.h"
#include "src/chart/xy_chart.h"

namespace kvgauge::report {
namespace {

constexpr double kLinePitch = 19;

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

// How far from zero the axis goes: one bar that is much longer than the others runs out of the
// frame instead of making dots of them.
double Reach(const Forest& forest) {
  std::vector<double> ends;
  for (const Forest::Line& line : forest.lines) {
    double end = std::abs(line.value);
    for (const double other : {line.interval.low, line.interval.high}) {
      if (std::isfinite(other)) end = std::max(end, std::abs(other));
    }
    ends.push_back(end);
  }
  if (ends.empty()) return 0;
  std::ranges::sort(ends);
  return std::max({1.5 * forest.margin, 4 * ends[ends.size() / 2]});
}

}  // namespace

Html Render(const Forest& forest) {
  double low = -1.5 * forest.margin, high = 1.5 * forest.margin, left = 0;
  const double most = Reach(forest);
  for (const Forest::Line& line : forest.lines) {
    left = std::max(left, TextWidth(line.name, kChartFont) + 12);
    for (const double end : {line.value, line.interval.low, line.interval.high}) {
      if (!std::isfinite(end)) continue;
      low = std::min(low, std::max(end, -most));
      high = std::max(high, std::min(end, most));
    }
  }
  left = std::min(left, forest.width * 0.62);
  const double right = forest.width - 14, top = 20;
  const double bottom = top + kLinePitch * static_cast<double>(forest.lines.size()) + 4;
  const Axis axis = Axis::Linear(low, high, forest.unit, 6);
  const auto x = [&](double value) {
    return left + std::clamp(axis.Place(value), 0.0, 1.0) * (right - left);
  };
  Html html;
  html.Put(R"(<svg class="bars long" viewBox="0 0 {} {}" role="img" )"
           R"(aria-label="{}"><desc>{}</desc>)",
           {Px{forest.width}, Px{bottom + 34}, forest.label, forest.description});
  if (forest.margin > 0) {
    const double from = x(-forest.margin), to = x(forest.margin);
    html.Put(R"(<path class="band" d="M{} {}H{}V{}H{}z"/><text class="tk m" x="{}" y="12">)"
             "equivalent</text>",
             {Px{from}, Px{top - 3}, Px{to}, Px{bottom}, Px{from}, Px{(from + to) / 2}});
  }
  for (const double tick : axis.ticks()) {
    html.Put(R"(<path class="{}" d="M{} {}V{}"/><text class="tk m" x="{}" y="{}">{}</text>)",
             {tick == 0 ? Markup("axis") : Markup("grid"), Px{x(tick)}, Px{top}, Px{bottom},
              Px{x(tick)}, Px{bottom + 14}, FormatTick(tick, forest.unit)});
  }
  for (size_t i = 0; i < forest.lines.size(); ++i) {
    const Forest::Line& line = forest.lines[i];
    const double y = top + kLinePitch * (static_cast<double>(i) + 0.5);
    html.Put(R"(<g class="v {}"><text class="nm e" x="{}" y="{}">{}</text>)",
             {ClassOf(line.verdict), Px{left - 8}, Px{y + 3.8}, line.name});
    // Without an interval only the value is drawn, hollow.
    const bool known = std::isfinite(line.interval.low) || std::isfinite(line.interval.high);
    if (known) {
      html.Put(R"(<path class="ci" d="M{} {}H{}"/>)",
               {Px{x(line.interval.low)}, Px{y}, Px{x(line.interval.high)}});
    }
    // An arrow where there is more beyond the frame.
    if (axis.Place(known ? line.interval.low : line.value) < 0) {
      html.Put(R"(<path class="on" d="M{} {}l6 -4v8z"/>)", {Px{left - 3}, Px{y}});
    }
    if (axis.Place(known ? line.interval.high : line.value) > 1) {
      html.Put(R"(<path class="on" d="M{} {}l-6 -4v8z"/>)", {Px{right + 3}, Px{y}});
    }
    const double place = axis.Place(line.value);
    if (place >= 0 && place <= 1) {
      html.Put(R"(<circle{} cx="{}" cy="{}" r="3.6"/>)",
               {known ? Markup("") : Markup(R"( class="open")"), Px{x(line.value)}, Px{y}});
    }
    html.Put("</g>");
  }
  return html.Put(R"(<text class="at m" x="{}" y="{}">{}</text></svg>)",
                  {Px{(left + right) / 2}, Px{bottom + 30}, forest.title});
}

}  // namespace kvgauge::report

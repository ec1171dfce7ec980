// SPDX-License-Identifier: Apache-2.0
#include "src/chart/bars.h"

#include <algorithm>
#include <numeric>

#include "core/check.h"
#include "src/chart/palette.h"
#include "src/chart/xy_chart.h"

namespace kvgauge::report {
namespace {

constexpr double kBarPitch = 22, kThick = 15;

}  // namespace

Html Render(const StackedBars& chart) {
  KVG_CHECK(chart.kinds.size() <= KindShades().size(), "more kinds than shades");
  double left = 0, right = 0, longest = chart.rule.value_or(0);
  std::vector<bool> used(chart.kinds.size(), false);
  for (const StackedBars::Bar& bar : chart.bars) {
    left = std::max(left, TextWidth(bar.name, kChartFont));
    right = std::max(right, TextWidth(bar.total, kChartFont));
    longest = std::max(longest, std::accumulate(bar.parts.begin(), bar.parts.end(), 0.0));
    for (size_t k = 0; k < bar.parts.size(); ++k) used[k] = used[k] || bar.parts[k] > 0;
  }
  left = std::min(left + 10, chart.width * 0.4);
  right = chart.width - right - 12;
  const Axis axis = Axis::Linear(0, longest > 0 ? longest : 1, chart.unit, 5);
  const auto x = [&](double value) { return left + axis.Place(value) * (right - left); };

  // The legend, in rows, above.
  Html legend;
  double at = 0, line = 12;
  for (size_t k = 0; k < chart.kinds.size(); ++k) {
    if (!used[k]) continue;
    const double width = TextWidth(chart.kinds[k], kChartFont) + 28;
    if (at + width > chart.width && at > 0) {
      at = 0;
      line += 17;
    }
    legend.Put(R"(<path class="{}" d="M{} {}h11v11h-11z"/><text class="tk" x="{}" )"
               R"(y="{}">{}</text>)",
               {KindShades()[k].name, Px{at}, Px{line - 9}, Px{at + 15}, Px{line}, chart.kinds[k]});
    at += width;
  }
  const double top = line + (chart.rule ? 24 : 10);
  const double bottom = top + kBarPitch * static_cast<double>(chart.bars.size());
  Html html;
  html.Put(R"(<svg class="bars" viewBox="0 0 {} {}" role="img" aria-label="{}"><desc>{}</desc>)",
           {Px{chart.width}, Px{bottom + 36}, chart.label, chart.description});
  html.Put(legend);
  for (const double tick : axis.ticks()) {
    html.Put(R"(<path class="grid" d="M{} {}V{}"/><text class="tk m" x="{}" y="{}">{}</text>)",
             {Px{x(tick)}, Px{top}, Px{bottom}, Px{x(tick)}, Px{bottom + 14},
              FormatTick(tick, chart.unit)});
  }
  for (size_t i = 0; i < chart.bars.size(); ++i) {
    const StackedBars::Bar& bar = chart.bars[i];
    const double y = top + kBarPitch * static_cast<double>(i) + (kBarPitch - kThick) / 2;
    html.Put(R"(<text class="nm e {}" x="{}" y="{}">{}</text>)",
             {FamilyClass(bar.family), Px{left - 6}, Px{y + kThick / 2 + 3.8}, bar.name});
    double from = 0;
    for (size_t k = 0; k < bar.parts.size(); ++k) {
      if (!(bar.parts[k] > 0)) continue;
      const double width = x(from + bar.parts[k]) - x(from);
      // A line of the page's colour between parts, as long as that leaves something to see.
      html.Put(R"(<path class="{}" d="M{} {}h{}v{}h-{}z"/>)",
               {KindShades()[k].name, Px{x(from)}, Px{y}, Px{std::max(width - 1, width / 2)},
                Px{kThick}, Px{std::max(width - 1, width / 2)}});
      from += bar.parts[k];
    }
    html.Put(R"(<text class="tk beside" x="{}" y="{}">{}</text>)",
             {Px{x(from) + 5}, Px{y + kThick / 2 + 3.8}, bar.total});
  }
  if (chart.rule) {
    html.Put(R"(<path class="rule" d="M{} {}V{}"/><text class="nm e" x="{}" y="{}">{}</text>)",
             {Px{x(*chart.rule)}, Px{top - 4}, Px{bottom}, Px{x(*chart.rule) + 3}, Px{top - 8},
              chart.rule_label});
  }
  html.Put(R"(<text class="at m" x="{}" y="{}">{}</text></svg>)",
           {Px{(left + right) / 2}, Px{bottom + 31}, chart.title});
  return html;
}

Html Render(const Sparkline& line) {
  constexpr double kWidth = 64, kHeight = 20, kInset = 4;
  const double range = line.high > line.low ? line.high - line.low : 1;
  const auto x = [&](size_t i) {
    const double share = line.values.size() > 1
                             ? static_cast<double>(i) / static_cast<double>(line.values.size() - 1)
                             : 0.5;
    return kInset + share * (kWidth - 2 * kInset);
  };
  const auto y = [&](size_t i) {
    return kHeight - kInset - (line.values[i] - line.low) / range * (kHeight - 2 * kInset);
  };
  Html html;
  html.Put(R"(<svg class="spark {}" width="64" height="20" viewBox="0 0 64 20" role="img" )"
           R"(aria-label="{}"><path d=")",
           {FamilyClass(line.family), line.label});
  for (size_t i = 0; i < line.values.size(); ++i) {
    html.Put(i == 0 ? Markup("M{} {}") : Markup("L{} {}"), {Px{x(i)}, Px{y(i)}});
  }
  html.Put(R"("/>)");
  if (line.at < line.values.size()) {
    html.Put(R"(<circle cx="{}" cy="{}" r="2.6"/>)", {Px{x(line.at)}, Px{y(line.at)}});
  }
  return html.Put("</svg>");
}

}  // namespace kvgauge::report

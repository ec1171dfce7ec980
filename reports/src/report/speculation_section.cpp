// SPDX-License-Identifier: Apache-2.0
// How fast the full cache is with each method's drafts, and how many of them it accepts.
#include <algorithm>

#include "core/strings.h"
#include "src/chart/xy_chart.h"
#include "src/html/format.h"
#include "src/report/sections.h"

namespace kvgauge::report {
namespace {

// More names than this at the ends of lines cannot be read; the table has them all.
constexpr size_t kDraftNames = 12;

// The vertical axis of a figure.
struct SpeculationAxis {
  const char* title;
  const char* what;
  bool speed;
};
constexpr SpeculationAxis kSpeculationAxes[] = {
    {"times as fast as the full cache alone", "speed", true},
    {"drafted tokens that were accepted", "acceptance", false},
};

std::string DraftTip(const SpeculationEntry& entry) {
  return StrCat(entry.Name(), ", ", entry.row.gamma,
                " drafted: ", Format(entry.acceptance(), Unit::kPercent), " accepted, ",
                Format(entry.tokens_per_check(), Unit::kNumber), " tokens a check, ",
                Format(entry.tokens_per_s.median, Unit::kNumber), " tokens a second, ",
                Format(entry.speedup.median, Unit::kRatio), " the full cache alone");
}

Html SpeculationFigure(const SpeculationBoard& board, const SpeculationAxis& axis,
                       MethodVarieties& varieties) {
  // Lines in the order of entries: the fastest first.
  std::vector<XySeries> all;
  int64_t longest = 1, shortest = board.entries.front().row.gamma;
  double top = axis.speed ? 1 : 0, bottom = axis.speed ? 1 : 0;
  for (const SpeculationEntry& entry : board.entries) {
    const std::string name = entry.Name();
    auto series = std::ranges::find(all, name, &XySeries::name);
    if (series == all.end()) {
      all.push_back({.name = name,
                     .family = entry.row.method.family,
                     .variety = varieties.Of(entry.row.method),
                     .named = all.size() < kDraftNames});
      series = all.end() - 1;
    }
    const double y = axis.speed ? entry.speedup.median : entry.acceptance();
    const Interval range = axis.speed ? entry.speedup.range : entry.acceptance_range;
    top = std::max(top, range.high);
    bottom = std::min(bottom, range.low);
    longest = std::max(longest, entry.row.gamma);
    shortest = std::min(shortest, entry.row.gamma);
    series->points.push_back({.x = static_cast<double>(entry.row.gamma),
                              .y = y,
                              .interval = range,
                              .tip = DraftTip(entry),
                              .open = axis.speed && entry.disturbed});
  }
  for (XySeries& series : all) {
    std::ranges::sort(series.points, {}, &XyPoint::x);
    series.line = series.points.size() > 1;
  }
  XyChart chart = {
      .label = StrCat(axis.what, " over drafted tokens: ", board.model.name, ", ", board.Title()),
      .description = StrCat("Higher is better. The fastest draft is ", board.entries[0].Name(),
                            " with ", board.entries[0].row.gamma, " tokens."),
      .x_title = "tokens drafted for a check, logarithmic",
      .y_title = axis.title,
      .x = Axis::Log(static_cast<double>(shortest), static_cast<double>(longest), Unit::kTokens),
      .y = axis.speed ? Axis::Linear(std::min(bottom, 0.0), top, Unit::kNumber)
                      : Axis::Linear(0, 1, Unit::kPercent, 5, 0, 1),
      .series = std::move(all),
      .width = 600,
      .height = 350};
  if (axis.speed) chart.rules.push_back({1, "full cache alone"});
  Html html;
  return html.Put(
      "<figure><figcaption><b>{}</b> over drafted tokens</figcaption><div "
      R"(class="scroll">{}</div></figure>)"
      "\n",
      {axis.speed ? "Speed" : "Acceptance", Render(chart)});
}

Html RangedText(double value, const Interval& range, Unit unit) {
  Html html;
  html.Text(Format(value, unit));
  if (range.low == range.high) return html;
  return html.Put("<small>[{}, {}]</small>", {Format(range.low, unit), Format(range.high, unit)});
}

Html SpeculationTableOf(const SpeculationBoard& board) {
  Html html;
  html.Put(
      R"(<div class="scroll"><table class="board"><caption class="hide">{}</caption><thead><tr>)",
      {board.Title()});
  for (const char* name :
       {"Draft", "Drafted", "Times", "Tokens/s", "Full alone", "Accepted", "Accepted a check",
        "Draft's cache", "Full cache", "Both hold", "Answers timed"}) {
    html.Put(R"(<th scope="col">{}</th>)", {name});
  }
  html.Put("</tr></thead><tbody>\n");
  for (const SpeculationEntry& entry : board.entries) {
    const SpeculationRow& row = entry.row;
    std::string note = StrCat(entry.timed);
    if (entry.disturbed) note += " ⚠ disturbed";
    if (entry.prompts < board.prompts()) {
      note += StrCat(", ", entry.prompts, " of ", board.prompts(), " prompts");
    }
    if (entry.not_engaged > 0) {
      note += StrCat(", not engaged in ", entry.not_engaged);
      if (row.not_engaged) note += StrCat(": ", row.not_engaged_because);
    }
    html.Put(
        "<tr><td>{}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
        "<td>{}</td><td>{}</td><td>{}</td><td class=\"said\">{}</td></tr>\n",
        {entry.Name(), row.method.experimental ? " *" : "", row.gamma,
         RangedText(entry.speedup.median, entry.speedup.range, Unit::kRatio),
         RangedText(entry.tokens_per_s.median, entry.tokens_per_s.range, Unit::kNumber),
         RangedText(entry.full_tokens_per_s.median, entry.full_tokens_per_s.range, Unit::kNumber),
         RangedText(entry.acceptance(), entry.acceptance_range, Unit::kPercent),
         Format(entry.accepted_per_check(), Unit::kNumber),
         Format(static_cast<double>(row.draft_bytes), Unit::kBytes),
         Format(static_cast<double>(row.judge_bytes), Unit::kBytes),
         Format(static_cast<double>(row.held_bytes), Unit::kBytes), note});
  }
  return html.Put("</tbody></table></div>\n");
}

}  // namespace

Html SpeculationSection(const PageData& data, const std::vector<SpeculationBoard>& speculations) {
  Html html;
  MethodVarieties varieties = data.varieties;
  if (speculations.empty()) return html;
  html.Put(
      R"(<p class="lead">A method's cache drafts some tokens, and the full cache checks them in )"
      "one pass: answers are the full cache's, and what differs is the speed. Each line is a "
      "draft, "
      "named at its end; bars, and brackets in the table, are the least and the most of prompts "
      "and repetitions. Outlines are times that other programs disturbed. Bytes are those behind "
      "the first prompt; entries that both caches share count once in what both hold.</p>\n");
  for (size_t i = 0; i < speculations.size(); ++i) {
    const SpeculationBoard& board = speculations[i];
    Html figures, body;
    for (const SpeculationAxis& axis : kSpeculationAxes) {
      figures.Put(SpeculationFigure(board, axis, varieties));
    }
    body.Put(R"(<div class="figures">{}</div>)", {figures});
    if (board.random_prompts()) {
      body.Put(
          "<p>Prompts are random tokens, on which acceptance says little: <code>--text</code> "
          "reads them from files.</p>\n");
    }
    body.Put(SpeculationTableOf(board));
    html.Put(Folded(Html().Put("{}, {}", {board.model.name, board.Title()}), body, "", i == 0));
  }
  return html;
}

}  // namespace kvgauge::report

// SPDX-License-Identifier: Apache-2.0
// What a memory holds and serves with each method, against its score.
#include <algorithm>

#include "core/strings.h"
#include "src/chart/xy_chart.h"
#include "src/html/format.h"
#include "src/report/sections.h"

namespace kvgauge::report {
namespace {

// A row of the leaderboard and what was measured of it.
struct CapacityMark {
  const BoardRow* row = nullptr;
  const LeaderboardLine* line = nullptr;
  const CapacityEntry* entry = nullptr;
};

// The horizontal axis of a figure.
struct CapacityAxis {
  const char* title;
  const char* what;
  std::vector<const CapacityEntry*> (CapacityBoard::*of)() const;
  bool held;
};
constexpr CapacityAxis kCapacityAxes[] = {
    {"requests held at once, logarithmic", "requests held at once", &CapacityBoard::Unbounded,
     true},
    {"tokens of answers a second at the best batch, logarithmic", "tokens a second",
     &CapacityBoard::Fastest, false},
};

const BoardRow* RowOfCapacity(const Board& board, const CapacityRow& row) {
  const auto at = std::ranges::find_if(board.rows, [&](const BoardRow& other) {
    return IsCapacityOf(row, other.method, other.budget);
  });
  return at == board.rows.end() ? nullptr : &*at;
}

std::string EntryName(const CapacityRow& row) {
  std::string name = row.method.name;
  if (!row.method.variant.empty()) name.append(StrCat(" (", row.method.variant, ")"));
  if (row.budget_kind != "none") name.append(" ").append(row.budget);
  return name;
}

// Requests that were held at once; where the workload did not fill the memory, that are planned to
// fit.
int64_t RoomOf(const CapacityRow& row) { return std::max(row.held, row.fit.value_or(0)); }

std::string CapacityTip(const CapacityRow& row) {
  return StrCat(", ", Format(row.tokens_per_s, Unit::kNumber), " tokens a second, ", row.held,
                " requests held at once, room for ", RoomOf(row), ", batch ", row.max_batch,
                row.served < row.requests
                    ? StrCat(", served ", row.served, " of ", row.requests, " requests")
                    : std::string());
}

Html CapacityFigure(const Board& board, size_t group, const CapacityBoard& capacity,
                    const CapacityAxis& axis) {
  const LeaderboardTable& table = *board.groups[group];
  std::vector<CapacityMark> marks;
  for (const CapacityEntry* entry : (capacity.*axis.of)()) {
    const BoardRow* row = RowOfCapacity(board, entry->row);
    if (row == nullptr || row->lines[group] == nullptr || row->lines[group]->scored == 0) continue;
    marks.push_back({row, row->lines[group], entry});
  }
  Html html;
  if (marks.empty()) return html;
  double low = 1e300, high = 0, bottom = 1e300, top = -1e300;
  std::vector<XySeries> all;
  for (const CapacityMark& mark : marks) {
    const CapacityEntry& entry = *mark.entry;
    const double x = axis.held ? static_cast<double>(RoomOf(entry.row)) : entry.row.tokens_per_s;
    const double y = ScoreNumber(table, mark.line->score.value);
    const Interval shown = ShownInterval(table, *mark.line);
    const Interval score = {ScoreNumber(table, shown.low), ScoreNumber(table, shown.high)};
    const Interval range = axis.held ? Interval{x, x} : entry.tokens_per_s;
    low = std::min(low, range.low > 0 ? range.low : x);
    high = std::max(high, range.high);
    bottom = std::min(bottom, score.low);
    top = std::max(top, score.high);
    XySeries series;
    series.family = mark.row->method.family;
    series.variety = board.Variety(mark.row->method.name);
    series.line = series.named = false;
    series.points.push_back(
        {.x = x,
         .y = y,
         .interval = score,
         .x_interval = axis.held ? std::nullopt : std::optional(range),
         .tip = StrCat(RowTip(table, *mark.row, *mark.line), CapacityTip(entry.row)),
         .target = mark.row->id,
         .label = mark.row->ShortName(),
         .open = !mark.line->rank || entry.partly() || (entry.disturbed && !axis.held)});
    all.push_back(std::move(series));
  }
  XyChart chart = {
      .label = StrCat(table.task, ": score against ", axis.what, ", ", capacity.Title()),
      .description = "Up and to the right is better.",
      .x_title = axis.title,
      .y_title = ScoreTitle(table),
      .x = Axis::Log(low, high, Unit::kNumber),
      .y = table.lower_is_better ? Axis::Linear(bottom, top, Unit::kNumber, 6)
                                 : Axis::Linear(bottom, top, Unit::kNumber, 6, 0, 100),
      .series = std::move(all),
      .width = 560,
      .height = 350,
  };
  if (table.lower_is_better) chart.description = "Down and to the right is better.";
  return html.Put(
      "<figure><figcaption><b>{}</b> against {}</figcaption><div "
      R"(class="scroll">{}</div></figure>)"
      "\n",
      {table.task, axis.what, Render(chart)});
}

std::string PercentilesText(double p50, double p90) {
  return StrCat(Format(p50, Unit::kSeconds), " / ", Format(p90, Unit::kSeconds));
}

// Scores of the boards of its model, in the order of `groups`.
Html CapacityTableOf(const CapacityBoard& capacity, const std::vector<const Board*>& boards) {
  Html html;
  html.Put(
      R"(<div class="scroll"><table class="board"><caption class="hide">{}</caption><thead><tr>)",
      {capacity.Title()});
  for (const char* name : {"Method", "Budget", "Batch", "Held", "Fit", "Tokens/s", "First token",
                           "Token", "Whole", "A sequence", "Peak", "Served"}) {
    html.Put(R"(<th scope="col">{}</th>)", {name});
  }
  for (const Board* board : boards) {
    for (const LeaderboardTable* table : board->groups) {
      html.Put(R"(<th scope="col">{}</th>)", {table->task});
    }
  }
  html.Put("</tr></thead><tbody>\n");
  for (const CapacityEntry& entry : capacity.entries) {
    const CapacityRow& row = entry.row;
    const std::string batch = row.batch == 0 ? StrCat("max") : StrCat(row.batch);
    const std::string name = row.method.variant.empty()
                                 ? row.method.name
                                 : StrCat(row.method.name, " (", row.method.variant, ")");
    html.Put("<tr><td>{}</td><td>{}</td><td>{}</td>", {name, row.budget, batch});
    if (!entry.ran()) {
      html.Put(R"(<td colspan="9">refused: {}</td>)", {row.refused});
    } else {
      html.Put(
          "<td>{}</td><td>{}</td><td>{}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>"
          "<td>{}</td><td>{} of {}{}</td>",
          {row.held, row.fit ? StrCat(*row.fit) : "-", Format(row.tokens_per_s, Unit::kNumber),
           entry.disturbed ? " ⚠ disturbed" : "",
           row.served > 0 ? PercentilesText(row.ttft_p50_s, row.ttft_p90_s) : "-",
           row.tokens_out > row.served ? PercentilesText(row.tpot_p50_s, row.tpot_p90_s) : "-",
           row.served > 0 ? PercentilesText(row.e2e_p50_s, row.e2e_p90_s) : "-",
           Format(static_cast<double>(row.sequence_bytes), Unit::kBytes),
           Format(static_cast<double>(row.peak_bytes), Unit::kBytes), row.served, row.requests,
           entry.partly() ? " ⚠ the figures are theirs" : ""});
    }
    for (const Board* board : boards) {
      const BoardRow* of_board = RowOfCapacity(*board, row);
      for (size_t g = 0; g < board->groups.size(); ++g) {
        const LeaderboardLine* line = of_board == nullptr ? nullptr : of_board->lines[g];
        if (line == nullptr || line->scored == 0) {
          html.Put("<td>-</td>");
          continue;
        }
        const Interval interval = ShownInterval(*board->groups[g], *line);
        html.Put(R"(<td>{} <span class="soft">[{}, {}]</span></td>)",
                 {ReportedText(*board->groups[g], line->reported),
                  ScoreText(*board->groups[g], interval.low),
                  ScoreText(*board->groups[g], interval.high)});
      }
    }
    html.Put("</tr>\n");
  }
  return html.Put("</tbody></table></div>\n");
}

// Rows of one that the other lacks, in a sentence each.
Html WithoutOne(const CapacityBoard& capacity, const std::vector<const Board*>& boards) {
  std::vector<std::string> unscored, unmeasured;
  const auto add = [](std::vector<std::string>& names, const std::string& name) {
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  };
  for (const CapacityEntry& entry : capacity.entries) {
    const bool scored = std::ranges::any_of(boards, [&](const Board* board) {
      const BoardRow* row = RowOfCapacity(*board, entry.row);
      return row != nullptr && std::ranges::any_of(row->lines, [](const LeaderboardLine* line) {
               return line != nullptr && line->scored > 0;
             });
    });
    if (!scored) add(unscored, EntryName(entry.row));
  }
  for (const Board* board : boards) {
    for (const BoardRow& row : board->rows) {
      const bool measured = std::ranges::any_of(capacity.entries, [&](const CapacityEntry& entry) {
        return entry.ran() && IsCapacityOf(entry.row, row.method, row.budget);
      });
      if (!measured && !board->InSweep(row.method)) add(unmeasured, row.NameBudget());
    }
  }
  Html html;
  if (!unscored.empty()) html.Put("<p>Without a score here: {}.</p>\n", {Join(unscored, ", ")});
  if (!unmeasured.empty()) {
    html.Put("<p>With a score, and not measured or refused here: {}.</p>\n",
             {Join(unmeasured, ", ")});
  }
  return html;
}

}  // namespace

Html CapacitySection(const PageData& data, const std::vector<CapacityBoard>& capacities) {
  Html html;
  if (capacities.empty()) return html;
  html.Put(
      R"(<p class="lead">How many requests a memory holds with each method, and how fast they )"
      "are served, against the method's score: each mark is a method and budget, up and to the "
      "right is better (down, for perplexities). Bars are 95% intervals of scores, and the range "
      "of the repetitions of tokens a second; outlines are rows that are not ranked, that did not "
      "serve every request, or that other programs disturbed. Where requests did not fill the "
      "memory, as many count as held as are "
      "planned to fit. Caches are compressed after the prompt. The table has every batch: "
      "times are medians and ninth deciles of requests.</p>\n");
  for (size_t i = 0; i < capacities.size(); ++i) {
    const CapacityBoard& capacity = capacities[i];
    std::vector<const Board*> boards;
    for (const Board& board : data.boards) {
      if (board.fingerprint == capacity.model.fingerprint) boards.push_back(&board);
    }
    Html figures;
    for (const Board* board : boards) {
      for (size_t g = 0; g < board->groups.size(); ++g) {
        for (const CapacityAxis& axis : kCapacityAxes) {
          figures.Put(CapacityFigure(*board, g, capacity, axis));
        }
      }
    }
    Html body;
    if (!figures.empty()) body.Put(R"(<div class="figures">{}</div>)", {figures});
    if (capacity.memory_bytes > 0 && capacity.Unbounded().empty()) {
      body.Put(
          "<p>How many requests are held at once is known where the batch has no limit: "
          "<code>--batches max</code>.</p>\n");
    }
    if (boards.empty()) {
      body.Put(
          "<p>There are no scores of this model here: <code>kvgauge run</code> adds them to the "
          "same file.</p>\n");
    }
    body.Put(CapacityTableOf(capacity, boards));
    if (!boards.empty()) body.Put(WithoutOne(capacity, boards));
    html.Put(
        Folded(Html().Put("{}, {}", {capacity.model.name, capacity.Title()}), body, "", i == 0));
  }
  return html;
}

}  // namespace kvgauge::report

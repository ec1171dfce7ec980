// SPDX-License-Identifier: Apache-2.0
#include "src/site/site_pages.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/strings.h"
#include "reports/statistics.h"
#include "src/chart/bars.h"
#include "src/chart/palette.h"
#include "src/html/format.h"

namespace kvgauge::site {
namespace {

using report::Html;
using report::Markup;
using report::Unit;

// More are in the stores; a page of ten thousand changes tells nobody anything.
constexpr size_t kMostChanges = 300;

Interval Clamped(const LeaderboardTable& frame, const Estimate& score) {
  Interval interval = score.interval;
  if (!frame.lower_is_better && score.value >= 0 && score.value <= 1) {
    interval.low = std::max(interval.low, 0.0);
    interval.high = std::min(interval.high, 1.0);
  }
  return interval;
}

// A row of the table of today: a method at a budget, with its series in each group.
struct Row {
  const Series* any = nullptr;
  std::map<size_t, const Series*> of_table;
};

std::vector<Row> RowsOf(const Data& data, const Board& board) {
  std::vector<Row> rows;
  std::map<std::string, size_t> place;
  for (const size_t index : board.groups) {
    for (const size_t number : data.tables()[index].series) {
      const Series& series = data.series()[number];
      const auto [at, fresh] = place.try_emplace(series.Name(), rows.size());
      if (fresh) rows.push_back({&series, {}});
      rows[at->second].of_table[index] = &series;
    }
  }
  return rows;
}

void Heading(Html& html, const std::string& key, const std::string& group, const std::string& title,
             const std::string& help, bool number = true) {
  html.Put(R"(<th scope="col" class="c-{}{}" data-help="{}">)",
           {key, number ? Markup(" n") : Markup(""), help});
  if (!group.empty()) html.Put(R"(<span class="grp">{}</span>)", {report::Breakable(group)});
  html.Put(R"(<span class="ttl">{}</span></th>)", {title});
}

// Search, families and the download of a table that scripts sort.
Html Controls(const std::string& id, const std::set<std::string>& families,
              const std::string& hint) {
  Html html;
  html.Put(R"(<div class="controls js" data-for="{}"><label class="find">Search <input )"
           R"(type="search" class="search" placeholder="{}"></label>)",
           {id, hint});
  if (families.size() > 1) {
    html.Put(R"(<fieldset class="chips"><legend>Family</legend>)");
    for (const report::FamilyLook& look : report::Families()) {
      if (!families.contains(std::string(look.family))) continue;
      html.Put(R"(<label class="chip f-{}"><input type="checkbox" checked value="{}">{})"
               "<span>{}</span></label>",
               {look.family, look.family, report::MarkBesideText(look.family, 0), look.title});
    }
    html.Put("</fieldset>");
  }
  return html.Put(R"(<button type="button" class="csv">Download CSV</button>)"
                  R"(<output class="count"></output></div>)"
                  "\n");
}

Html HistoryOf(const LeaderboardTable& frame, const Series& series, const Data& data) {
  report::Sparkline line;
  line.family = series.method.family;
  std::vector<std::string> words;
  double low = 1e300, high = -1e300;
  for (const Point& point : series.points) {
    if (point.scored == 0) continue;
    const double score = report::ScoreNumber(frame, point.score.value);
    line.values.push_back(score);
    low = std::min(low, score);
    high = std::max(high, score);
    words.push_back(StrCat(DayOf(data.sources()[point.source]), ": ",
                           report::ReportedText(frame, point.reported)));
  }
  Html html;
  if (line.values.size() < 2) return html;
  line.at = line.values.size() - 1;
  line.low = std::min(low, 0.0);
  line.high = frame.lower_is_better ? high : std::max(high, 100.0);
  line.label = Join(words, ", ");
  return html.Put(report::Render(line));
}

void TodayRow(Html& html, const Data& data, const Board& board, const Row& row) {
  const Series& any = *row.any;
  html.Put(R"(<tr data-f="{}"{}><th scope="row" class="c-method"><span class="who">{} <a )"
           R"(href="{}" title="{}">{}</a></span>)",
           {report::LookOf(any.method.family).family,
            any.method.full_cache ? Markup(R"( class="full")") : Markup(""),
            report::MarkBesideText(any.method.family, 0), MethodPath(any.method.name),
            any.method.title, report::Breakable(any.method.name)});
  if (any.method.experimental) {
    html.Put(R"(<span class="soft" data-tip="Experimental: no independent implementation has )"
             R"(confirmed what the method does.">*</span>)");
  }
  if (!any.method.variant.empty()) {
    html.Put(R"( <span class="soft">{}</span>)", {report::Breakable(any.method.variant)});
  }
  html.Put(R"(</th><td class="c-budget n" data-v="{}">{}</td>)",
           {any.budget_kind == "none" ? 1e18 : any.budget_value,
            any.budget_kind == "none" ? "all" : any.budget});
  const Point* bytes = nullptr;
  size_t newest = 0;
  Html history;
  for (const auto& [table, series] : row.of_table) {
    const Point& point = series->points.back();
    if (bytes == nullptr && point.logical_ratio > 0) bytes = &point;
    newest = std::max(newest, point.source);
    if (history.empty()) history = HistoryOf(data.tables()[table].frame, *series, data);
  }
  if (bytes != nullptr) {
    html.Put(R"(<td class="c-bytes n" data-v="{}">{}<small>{} held a token</small></td>)",
             {bytes->logical_ratio, Format(bytes->logical_ratio, Unit::kPercent),
              Format(bytes->resident_per_token, Unit::kBytes)});
  } else {
    html.Put(R"(<td class="c-bytes n nil">–</td>)");
  }
  for (size_t g = 0; g < board.groups.size(); ++g) {
    const auto found = row.of_table.find(board.groups[g]);
    const std::string key = std::to_string(g);
    if (found == row.of_table.end()) {
      html.Put(R"(<td class="c-score{} n nil">–</td><td class="c-delta{} n nil">–</td>)",
               {key, key});
    } else {
      ScoreCells(html, data.tables()[board.groups[g]].frame, *found->second, key);
    }
  }
  if (history.empty()) {
    html.Put(R"(<td class="c-history nil">–</td>)");
  } else {
    html.Put(R"(<td class="c-history">{}</td>)", {history});
  }
  const Source& source = data.sources()[newest];
  html.Put(R"(<td class="c-seen" data-tip="{}">{}</td></tr>)"
           "\n",
           {StrCat(source.name, ", ", WhenOf(source)), DayOf(source)});
}

}  // namespace

std::string MethodPath(const std::string& method) {
  std::string name;
  uint32_t hash = 0x811c9dc5u;  // FNV-1a
  bool same = !method.empty();
  for (const char c : method) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '-';
    name += plain ? c : '-';
    same = same && plain;
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x01000193u;
  }
  // Two names never share a page.
  if (!same) name += StrCat("-", hash);
  return StrCat("methods/", name, ".html");
}

std::string DayOf(const Source& source) {
  return source.date.empty() ? "undated" : source.date.substr(0, 10);
}

std::string RevisionOf(const Source& source) {
  return source.revision.empty() ? StrCat("version ", source.version)
                                 : source.revision.substr(0, 12);
}

std::string WhenOf(const Source& source) { return StrCat(DayOf(source), ", ", RevisionOf(source)); }

void ScoreCells(Html& html, const LeaderboardTable& frame, const Series& series,
                const std::string& key) {
  const Point& point = series.points.back();
  if (point.scored == 0) {
    html.Put(R"(<td class="c-score{} n nil">–</td><td class="c-delta{} n nil">–</td>)", {key, key});
    return;
  }
  html.Put(R"(<td class="c-score{} n" data-v="{}")",
           {key, report::ScoreNumber(frame, point.score.value)});
  const bool known = std::isfinite(point.score.interval.low);
  const Interval interval = Clamped(frame, point.score);
  if (known) {
    html.Put(R"( data-low="{}" data-high="{}")",
             {report::ScoreNumber(frame, interval.low), report::ScoreNumber(frame, interval.high)});
  }
  if (!point.ranked) html.Put(R"( data-tip="{}")", {StrCat("Not ranked: ", point.not_ranked)});
  html.Put("><b>{}</b>", {report::ReportedText(frame, point.reported)});
  if (known) {
    html.Put("<small>{}–{}</small>",
             {report::ScoreText(frame, interval.low), report::ScoreText(frame, interval.high)});
  }
  html.Put("</td>");
  if (series.method.full_cache) {
    html.Put(R"(<td class="c-delta{} n nil">reference</td>)", {key});
  } else if (point.versus_full) {
    html.Put(R"(<td class="c-delta{} n" data-v="{}">{}<small>{}</small></td>)",
             {key, report::ScoreNumber(frame, point.versus_full->value),
              report::DifferenceText(frame, point.versus_full->value),
              report::VerdictMark(point.verdict)});
  } else {
    html.Put(R"(<td class="c-delta{} n nil">–</td>)", {key});
  }
}

Html TodaySection(const Data& data) {
  Html html;
  if (data.boards().empty()) return html;
  html.Put(R"(<p class="lead">Each row is the newest store's that has it. Scores are of a )"
           "hundred, with the 95% interval of the mean; Δ is the difference to the full cache of "
           "the same store, on the same samples, with the verdict. A method's name leads to its "
           "page.</p>\n");
  for (size_t b = 0; b < data.boards().size(); ++b) {
    const Board& board = data.boards()[b];
    const std::vector<Row> rows = RowsOf(data, board);
    std::set<std::string> families;
    for (const Row& row : rows) {
      families.insert(std::string(report::LookOf(row.any->method.family).family));
    }
    const std::string id = StrCat("today", b);
    html.Put("<h3>{}</h3>{}", {data.TitleOf(board), Controls(id, families, "method, verdict …")});
    html.Put(
        R"(<div class="scroll"><table class="board sortable{}" id="{}" data-name="{}"><caption )"
        R"(class="hide">{}: a row for each method and budget</caption><thead><tr>)",
        {rows.size() > 150 ? Markup(" long") : Markup(""), id, id, data.TitleOf(board)});
    Heading(html, "method", "", "Method", "Its variant in brackets.", false);
    Heading(html, "budget", "", "Budget", "What it may keep, as it was asked for.");
    Heading(html, "bytes", "", "bytes", "Logical bytes of the cache, of the full cache's.");
    for (size_t g = 0; g < board.groups.size(); ++g) {
      const LeaderboardTable& frame = data.tables()[board.groups[g]].frame;
      Heading(html, StrCat("score", g), frame.task, "score",
              StrCat(report::ScoreTitle(frame), "; below it the 95% interval of the mean."));
      Heading(html, StrCat("delta", g), frame.task, "Δ full",
              "Difference to the full cache on the same samples, and the verdict.");
    }
    Heading(html, "history", "", "over stores", "The first group's score, oldest store first.",
            false);
    Heading(html, "seen", "", "newest", "The day of the newest store with this row.", false);
    html.Put("</tr></thead><tbody>\n");
    for (const Row& row : rows) TodayRow(html, data, board, row);
    html.Put("</tbody></table></div>\n");
  }
  return html;
}

Html ChangesSection(const Data& data, const std::string& method, const std::string& up) {
  struct Found {
    const Series* series;
    const Change* change;
  };
  std::vector<Found> all;
  for (const Series& series : data.series()) {
    if (!method.empty() && series.method.name != method) continue;
    for (const Change& change : series.changes) all.push_back({&series, &change});
  }
  Html html;
  if (all.empty()) return html;
  std::ranges::stable_sort(all, [&](const Found& a, const Found& b) {
    const size_t x = a.series->points[a.change->to].source;
    const size_t y = b.series->points[b.change->to].source;
    if (x != y) return x > y;
    return std::abs(a.change->evidence.value) > std::abs(b.change->evidence.value);
  });
  html.Put(
      R"(<p class="lead">A row stands here where a sample's score, or the bytes of the cache, )"
      "differ between a store and the one before it that has the same row: the same model, "
      "protocol, method and budget. The verdict is of the paired difference on the samples "
      "of both; p is corrected over all changes of this board (Holm).</p>\n");
  const std::string id = method.empty() ? "changes-table" : "changes-method";
  html.Put(Controls(id, {}, "task, method, verdict …"));
  html.Put(R"(<div class="scroll"><table class="board sortable{}" id="{}" data-name="changes">)"
           R"(<caption class="hide">Changes between stores</caption><thead><tr>)",
           {all.size() > 150 ? Markup(" long") : Markup(""), id});
  Heading(html, "row", "", "Row", "Method, variant and budget.", false);
  Heading(html, "task", "", "Task", "And the model.", false);
  Heading(html, "from", "", "before", "Score in the store before.");
  Heading(html, "to", "", "after", "Score in this store.");
  Heading(html, "delta", "", "difference", "Positive is better; with the verdict.");
  Heading(html, "p", "", "p", "Of no difference, two-sided, corrected.");
  Heading(html, "held", "", "bytes", "Logical bytes of the full cache's, before and after.");
  Heading(html, "stores", "", "stores", "Between which it came.", false);
  html.Put("</tr></thead><tbody>\n");
  for (size_t i = 0; i < std::min(all.size(), kMostChanges); ++i) {
    const Series& series = *all[i].series;
    const Change& change = *all[i].change;
    const Table& table = data.tables()[series.table];
    const Point &from = series.points[change.from], &to = series.points[change.to];
    const Source &before = data.sources()[from.source], &after = data.sources()[to.source];
    html.Put(R"(<tr data-f="{}"><th scope="row" class="c-row"><span class="who">{} <a )"
             R"(href="{}{}">{}</a></span></th><td class="c-task">{}<small>{}</small></td>)",
             {report::LookOf(series.method.family).family,
              report::MarkBesideText(series.method.family, 0), up, MethodPath(series.method.name),
              report::Breakable(series.Name()), report::Breakable(table.frame.task),
              data.TitleOf(table)});
    html.Put(R"(<td class="c-from n" data-v="{}">{}</td><td class="c-to n" data-v="{}">{}</td>)",
             {report::ScoreNumber(table.frame, from.score.value),
              report::ReportedText(table.frame, from.reported),
              report::ScoreNumber(table.frame, to.score.value),
              report::ReportedText(table.frame, to.reported)});
    if (change.evidence.differing > 0) {
      html.Put(
          R"(<td class="c-delta n" data-v="{}" data-tip="{}">{}<small>{}</small></td><td )"
          R"(class="c-p n" data-v="{}">{}</td>)",
          {report::ScoreNumber(table.frame, change.evidence.value),
           StrCat(report::Plural(change.common, "common sample", "common samples"), ", 95% ",
                  "interval ", report::DifferenceText(table.frame, change.evidence.interval.low),
                  " to ", report::DifferenceText(table.frame, change.evidence.interval.high), "; ",
                  change.evidence.test),
           report::DifferenceText(table.frame, change.evidence.value),
           report::VerdictMark(change.verdict), change.p_adjusted, PText(change.p_adjusted)});
    } else {
      html.Put(R"(<td class="c-delta n nil">none</td><td class="c-p n nil">–</td>)");
    }
    if (change.bytes_moved) {
      html.Put(R"(<td class="c-held n" data-v="{}">{} → {}</td>)",
               {to.logical_ratio, Format(from.logical_ratio, Unit::kPercent),
                Format(to.logical_ratio, Unit::kPercent)});
    } else {
      html.Put(R"(<td class="c-held n nil">–</td>)");
    }
    html.Put(R"(<td class="c-stores">{} → {}<small>{} → {}{}</small></td></tr>)"
             "\n",
             {before.name, after.name, WhenOf(before), WhenOf(after),
              from.method_version == to.method_version
                  ? ""
                  : StrCat("; version ", from.method_version, " → ", to.method_version)});
  }
  html.Put("</tbody></table></div>\n");
  if (all.size() > kMostChanges) {
    html.Put(R"(<p class="note">The {} newest of {} changes.</p>)", {kMostChanges, all.size()});
  }
  return html;
}

Html StoresSection(const Data& data) {
  Html html;
  html.Put(R"(<p class="lead">What the numbers come from, newest first. A table whose protocol )"
           "differs from that of the newest store is not mixed with it: it stands apart, with the "
           "keys of its signature that differ.</p>\n");
  html.Put(Controls("stores-table", {}, "store, revision …"));
  html.Put(R"(<div class="scroll"><table class="board sortable{}" id="stores-table" )"
           R"(data-name="stores"><caption class="hide">Stores</caption><thead><tr>)",
           {data.sources().size() > 150 ? Markup(" long") : Markup("")});
  Heading(html, "store", "", "Store", "Its path below the directory of the board.", false);
  Heading(html, "day", "", "day", "When its newest run began, UTC.", false);
  Heading(html, "revision", "", "revision", "Of the program's source.", false);
  Heading(html, "machine", "", "machine", "Of its newest run.", false);
  Heading(html, "cells", "", "cells", "Rows times tasks times seeds.");
  Heading(html, "samples", "", "samples", "Recorded, of all cells.");
  Heading(html, "apart", "", "apart", "Tables under another protocol.", false);
  html.Put("</tr></thead><tbody>\n");
  for (size_t i = data.sources().size(); i-- > 0;) {
    const Source& source = data.sources()[i];
    html.Put(R"(<tr><th scope="row" class="c-store">{}</th><td class="c-day">{}</td>)"
             R"(<td class="c-revision">{}</td><td class="c-machine">{}</td><td class="c-cells n" )"
             R"(data-v="{}">{}</td><td class="c-samples n" data-v="{}">{}</td>)",
             {report::Breakable(source.name), DayOf(source), RevisionOf(source), source.machine,
              source.cells, Format(static_cast<double>(source.cells), Unit::kNumber),
              source.samples, Format(static_cast<double>(source.samples), Unit::kNumber)});
    if (source.apart.empty()) {
      html.Put(R"(<td class="c-apart nil">–</td></tr>)"
               "\n");
      continue;
    }
    html.Put(R"(<td class="c-apart" data-tip="{}">{}</td></tr>)"
             "\n",
             {Join(source.apart, "; "),
              source.apart.size() == 1 ? source.apart[0] : StrCat(source.apart.size(), " tables")});
  }
  return html.Put("</tbody></table></div>\n");
}

}  // namespace kvgauge::site

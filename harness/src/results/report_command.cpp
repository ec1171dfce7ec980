// SPDX-License-Identifier: Apache-2.0
#include "src/results/report_command.h"

#include <filesystem>
#include <memory>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "reports/report.h"
#include "reports/report_tables.h"
#include "src/cli/print.h"
#include "src/cli/table.h"
#include "src/results/open_stores.h"
#include "src/results/set_scores.h"

namespace kvgauge {
namespace {

// The main tables under their titles, to standard output or `flags.out`.
Status WriteTables(const ReportFlags& flags, const ReportOptions& options) {
  KVG_ASSIGN(const auto store, OpenForReading(flags.stores[0]));
  KVG_ASSIGN(const std::vector<ReportTable> tables, MakeReportTables(*store, options));
  const bool markdown = flags.format == "markdown";
  std::string text;
  for (const ReportTable& table : tables) {
    TextTable shown;
    for (const ReportColumn& column : table.columns) {
      shown.columns.push_back({column.name, column.number});
    }
    for (const std::vector<ReportCell>& row : table.rows) {
      auto& cells = shown.rows.emplace_back();
      for (const ReportCell& cell : row) cells.push_back({cell.text.empty() ? "-" : cell.text});
    }
    shown.DropEmptyColumns();
    text.append(text.empty() ? "" : "\n");
    text.append(markdown ? StrCat("## ", table.title, "\n\n", shown.ToMarkdown())
                         : StrCat(table.title, "\n\n", shown.ToText(false)));
  }
  if (tables.empty()) text = StrCat(flags.stores[0], " holds no results yet\n");
  if (flags.out.empty() || flags.out == "-") {
    Print(text);
    return {};
  }
  return WriteFile(flags.out, text);
}

}  // namespace

Status RunReport(const ReportFlags& flags) {
  const size_t wanted = flags.compare ? 2 : 1;
  if (flags.stores.size() != wanted) {
    return BadInput(
        flags.compare
            ? StrCat("--compare takes two databases, the baseline first; got ", flags.stores.size())
            : StrCat("got ", flags.stores.size(),
                     " databases; one makes a report, two need "
                     "--compare, and `kvgauge merge` makes one of several"));
  }
  if (!flags.margins.empty() && !flags.compare) {
    return BadInput("--margins goes with --compare; the leaderboard's own is --margin");
  }
  const bool html_wanted = flags.format == "html";
  if (!html_wanted && (flags.compare || flags.json)) {
    return BadInput(StrCat("--format ", flags.format, " gives the tables of one database; ",
                           flags.compare ? "--compare" : "--json",
                           " goes with --format html, and `kvgauge gate --markdown` compares"));
  }
  std::string out = flags.out;
  const bool printed = out == "-";
  if (printed && flags.json) {
    return BadInput(
        "--out - and --json both print; name a file for the report, or leave out --json");
  }
  if (out.empty()) {
    out = std::filesystem::path(flags.stores.back()).replace_extension(".html").string();
  }
  for (const std::string& path : flags.stores) {
    std::error_code ignored;
    if (std::filesystem::equivalent(path, out, ignored)) {
      return BadInput(StrCat("--out ", out, " is the database itself; name another file"));
    }
  }
  ReportOptions options;
  options.leaderboard.margin = flags.margin / 100;
  options.leaderboard.set_scores = KnownSetScores();
  options.max_answers = flags.max_answers;
  options.max_text_bytes = flags.max_text_bytes;
  options.max_pictures = flags.max_pictures;
  options.title = flags.title;
  if (!html_wanted) return WriteTables(flags, options);
  std::string html;
  ReportCounts counts;
  KVG_ASSIGN(const auto first, OpenForReading(flags.stores[0]));
  if (flags.compare) {
    GateMargins margins;
    if (!flags.margins.empty()) {
      KVG_ASSIGN(margins, ReadGateMargins(flags.margins));
    }
    KVG_ASSIGN(const auto second, OpenForReading(flags.stores[1]));
    KVG_ASSIGN(html, RenderComparison(*first, *second, margins, options));
  } else {
    KVG_ASSIGN(html, RenderReport(*first, options, &counts));
  }
  if (printed) {
    Print(html);
    return {};
  }
  KVG_TRY(WriteFile(out, html));
  if (flags.json) {
    Json written = {{"out", out}, {"bytes", html.size()}};
    if (!flags.compare) {
      written["answers"] = counts.answers_held;
      written["answers_left_out"] = counts.answers - counts.answers_held;
    }
    PrintJson(written);
    return {};
  }
  Print(StrCat("wrote ", out, ", ", HumanBytes(static_cast<int64_t>(html.size())), "\n"));
  return {};
}

}  // namespace kvgauge

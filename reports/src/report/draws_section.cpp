// SPDX-License-Identifier: Apache-2.0
// What several draws of each answer say together: pass@k and the answer that most draws give.
#include "core/counted.h"
#include "core/strings.h"
#include "src/report/sections.h"

namespace kvgauge::report {
namespace {

Html EstimateCell(const LeaderboardTable& table, const std::optional<Estimate>& estimate) {
  Html html;
  if (!estimate) return html.Put(R"(<td class="n nil">–</td>)");
  return html.Put(R"(<td class="n">{}<small>{} to {}</small></td>)",
                  {ScoreText(table, estimate->value), ScoreText(table, estimate->interval.low),
                   ScoreText(table, estimate->interval.high)});
}

Html DrawsOf(const LeaderboardTable& table, const DrawTable& draws) {
  Html html;
  html.Put(R"(<h3>{} <span class="soft">{} a prompt at {}</span></h3>)"
           R"(<div class="scroll"><table class="board"><thead><tr><th>method</th><th>budget</th>)"
           R"(<th class="n">prompts</th>)",
           {table.task, Counted(draws.draws, "draw"), draws.drawn.Text()});
  for (const int64_t count : draws.counts) {
    html.Put(R"(<th class="n">{}@{}</th>)", {draws.right_or_wrong ? "pass" : "best", count});
  }
  html.Put(R"(<th class="n">majority@{}</th></tr></thead><tbody>)", {draws.draws});
  for (size_t i = 0; i < draws.lines.size(); ++i) {
    const LeaderboardLine& line = table.lines[i];
    const DrawLine& drawn = draws.lines[i];
    if (drawn.prompts == 0) continue;
    html.Put(
        R"(<tr><td>{}</td><td>{}</td><td class="n">{}</td>)",
        {line.method.variant.empty() ? line.method.name
                                     : StrCat(line.method.name, " (", line.method.variant, ")"),
         line.budget_kind == "none" ? "–" : line.budget, drawn.prompts});
    for (const std::optional<Estimate>& best : drawn.best) html.Put(EstimateCell(table, best));
    html.Put(EstimateCell(table, drawn.majority)).Put("</tr>\n");
  }
  return html.Put("</tbody></table></div>\n");
}

}  // namespace

Html DrawsSection(const Board& board, const PageData& data) {
  Html tables;
  for (const LeaderboardTable* task : board.tasks) {
    const DrawTable& draws = data.draws[static_cast<size_t>(task - data.by_task.tables.data())];
    if (!draws.empty()) tables.Put(DrawsOf(*task, draws));
  }
  if (tables.empty()) return tables;
  Html html;
  if (!board.alone) html.Put("<h3>{}</h3>", {board.Title()});
  return html.Put(
      R"(<p class="lead">Answers were drawn at a temperature, several to each prompt. pass@k: some )"
      "draw of k is right, by the unbiased estimator; best@k: the mean score of the best of k, "
      "where "
      "scores lie between; majority: the answer that most draws give, and the first one of equals. "
      "Below each number its 95% interval, which draws prompts anew and not draws.</p>\n{}",
      {tables});
}

}  // namespace kvgauge::report

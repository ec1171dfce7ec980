// SPDX-License-Identifier: Apache-2.0
#include "src/results/draw_tables.h"

#include "core/counted.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/cli/print.h"
#include "src/cli/table.h"
#include "src/results/leaderboard_fields.h"

namespace kvgauge {
namespace {

std::string BestName(const DrawTable& draws, int64_t count) {
  return StrCat(draws.right_or_wrong ? "pass@" : "best@", count);
}

Json EstimateJson(const std::optional<Estimate>& e) {
  if (!e) return nullptr;
  return {{"value", FiniteOrNull(e->value)},
          {"low", FiniteOrNull(e->interval.low)},
          {"high", FiniteOrNull(e->interval.high)},
          {"prompts", e->samples},
          {"contexts", e->clusters}};
}

}  // namespace

std::string DrawsText(const LeaderboardTable& table, const DrawTable& draws, bool markdown,
                      bool colour) {
  TextTable text;
  text.columns = {{"method"}, {"budget", true}, {"prompts", true}};
  for (const int64_t count : draws.counts) {
    text.columns.push_back({BestName(draws, count), true});
  }
  text.columns.insert(text.columns.end(), {{"interval"},
                                           {"vs full", true},
                                           {"interval"},
                                           {StrCat("majority@", draws.draws), true},
                                           {"interval"},
                                           {"vs full", true},
                                           {"interval"}});
  const auto score = [&](const std::optional<Estimate>& e) -> TableCell {
    return e ? TableCell{ShowScore(table, e->value)} : TableCell{"-", Tone::kFaint};
  };
  const auto change = [&](const std::optional<Estimate>& e) -> TableCell {
    return {e ? ShowChange(table, e->value) : ""};
  };
  const auto interval = [&](const std::optional<Estimate>& e, bool of_change) -> TableCell {
    return {e ? ShowInterval(table, e->interval, of_change) : ""};
  };
  for (size_t i = 0; i < draws.lines.size(); ++i) {
    const LeaderboardLine& line = table.lines[i];
    const DrawLine& drawn = draws.lines[i];
    const std::string method = line.method.variant.empty()
                                   ? line.method.name
                                   : StrCat(line.method.name, "[", line.method.variant, "]");
    std::vector<TableCell>& row = text.rows.emplace_back();
    row = {{method}, {line.budget_kind == "none" ? "-" : line.budget}, {StrCat(drawn.prompts)}};
    for (const std::optional<Estimate>& best : drawn.best) row.push_back(score(best));
    row.push_back(interval(drawn.best.back(), false));
    row.push_back(change(drawn.best_versus_full.back()));
    row.push_back(interval(drawn.best_versus_full.back(), true));
    row.push_back(score(drawn.majority));
    row.push_back(interval(drawn.majority, false));
    row.push_back(change(drawn.majority_versus_full));
    row.push_back(interval(drawn.majority_versus_full, true));
  }
  const std::string heading = StrCat(
      "Answers drawn at ", draws.drawn.Text(), ", ", Counted(draws.draws, "draw"), " a prompt. ",
      draws.right_or_wrong ? "pass@k: some draw of k is right"
                           : "best@k: the mean score of the best of k draws",
      ", by the unbiased\nestimator; majority: the answer that most draws give. Intervals draw "
      "prompts anew, not draws.");
  return StrCat("\n", heading, "\n\n", markdown ? text.ToMarkdown() : text.ToText(colour));
}

Json DrawsJson(const LeaderboardTable& table, const DrawTable& draws) {
  Json lines = Json::array();
  for (size_t i = 0; i < draws.lines.size(); ++i) {
    const DrawLine& line = draws.lines[i];
    Json best = Json::array(), versus = Json::array();
    for (const std::optional<Estimate>& e : line.best) best.push_back(EstimateJson(e));
    for (const std::optional<Estimate>& e : line.best_versus_full) {
      versus.push_back(EstimateJson(e));
    }
    lines.push_back({{"method", table.lines[i].method.name},
                     {"variant", table.lines[i].method.variant},
                     {"budget", table.lines[i].budget},
                     {"prompts", line.prompts},
                     {"best", best},
                     {"best_delta", versus},
                     {"majority", EstimateJson(line.majority)},
                     {"majority_delta", EstimateJson(line.majority_versus_full)}});
  }
  return {{"model", table.model},
          {"task", table.task},
          {"compress_at", table.compress_at},
          {"temperature", draws.drawn.temperature},
          {"top_p", draws.drawn.top_p},
          {"draws", draws.draws},
          {"counts", draws.counts},
          {"right_or_wrong", draws.right_or_wrong},
          {"rows", lines}};
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/results/split_tables.h"

#include <algorithm>
#include <set>

#include "core/json.h"
#include "core/strings.h"
#include "src/cli/table.h"
#include "src/results/leaderboard_fields.h"

namespace kvgauge {
namespace {

TableCell ScoreCell(const LeaderboardTable& table, const SplitScore& score) {
  if (score.samples == 0) return {"-", Tone::kFaint};
  TableCell cell = {ShowReported(table, score.reported)};
  if (table.lower_is_better || score.score < 0 || score.score > 1) return cell;
  cell.tone = score.score >= 0.9 ? Tone::kGood : score.score >= 0.5 ? Tone::kDoubtful : Tone::kBad;
  return cell;
}

}  // namespace

std::string SplitText(const LeaderboardTable& table, const LeaderboardSplit& split, bool markdown,
                      bool colour) {
  const bool grid = split.keys.size() > 1;
  const std::vector<std::string>& across = grid ? split.values[1] : split.values[0];
  TextTable text;
  text.columns = {{"method"}, {"budget", true}};
  if (grid) text.columns.push_back({split.keys[0], true});
  for (const std::string& value : across) text.columns.push_back({value, true});
  for (size_t i = 0; i < table.lines.size(); ++i) {
    const LeaderboardLine& line = table.lines[i];
    const size_t down = grid ? split.values[0].size() : 1;
    for (size_t d = 0; d < down; ++d) {
      std::vector<TableCell>& row = text.rows.emplace_back();
      const std::string method = line.method.variant.empty()
                                     ? line.method.name
                                     : StrCat(line.method.name, "[", line.method.variant, "]");
      // Markdown has no rows that belong together.
      row.push_back({d == 0 || markdown ? method : ""});
      row.push_back({d == 0 || markdown ? line.budget : ""});
      if (grid) row.push_back({split.values[0][d], Tone::kFaint});
      for (size_t a = 0; a < across.size(); ++a) {
        row.push_back(ScoreCell(table, split.lines[i][d * across.size() + a]));
      }
    }
  }
  const std::string heading =
      grid ? StrCat("Scores by ", split.keys[0], " (down) and ", split.keys[1], " (across):")
           : StrCat("Scores by ", split.keys[0], ":");
  return StrCat("\n", heading, "\n\n", markdown ? text.ToMarkdown() : text.ToText(colour));
}

Status CheckSplits(const std::vector<std::string>& keys,
                   const std::vector<LeaderboardSplit>& splits,
                   std::span<ResultStore* const> stores) {
  if (keys.empty() || !std::ranges::all_of(splits, &LeaderboardSplit::empty)) return {};
  std::set<std::string> known;
  std::string last;
  for (ResultStore* store : stores) {
    KVG_TRY(store->VisitFacts([&](int64_t, const std::string&, std::string_view facts, double,
                                  const std::vector<double>&) {
      if (facts == last) return;
      last = facts;
      const Result<Json> json = ParseJson(last, "facts");
      if (!json.ok() || !json->is_object()) return;
      for (const auto& item : json->items()) known.insert(item.key());
    }));
  }
  const std::vector<std::string> names(known.begin(), known.end());
  for (const std::string& key : keys) {
    if (known.contains(key)) continue;
    return BadInput(StrCat("--split: no sample has ", Quoted(key), DidYouMean(key, names),
                           names.empty() ? "; the data says nothing of its samples"
                                         : StrCat("; there is: ", Join(names, ", "))));
  }
  return BadInput(StrCat("--split: no sample has both ", Join(keys, " and ")));
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/score.h"

#include <vector>

#include "core/json.h"
#include "core/log.h"
#include "core/strings.h"
#include "datasets/pairs.h"
#include "src/print.h"

namespace kvgauge {

Status RunScore(const ScoreOptions& options) {
  const MetricSpec* metric = FindMetric(options.metric);
  if (metric == nullptr) {
    std::vector<std::string> names;
    for (const MetricSpec* known : ListMetrics()) names.push_back(known->name);
    return BadInput(StrCat("--metric: there is no ", Quoted(options.metric),
                           DidYouMean(options.metric, names), "; known: ", Join(names, ", ")));
  }
  KVG_ASSIGN(const PairScores result, ScorePairs(*metric, options.pairs, options.skip_bad));
  for (const std::string& message : result.bad_lines) LogWarning(StrCat("skipped: ", message));
  if (options.json) {
    Json rows = Json::array();
    for (size_t i = 0; i < result.scores.size(); ++i) {
      rows.push_back({{"line", result.lines[i]}, {"score", result.scores[i]}});
    }
    Print(Json({{"metric", metric->name},
                {"version", metric->version},
                {"reference", metric->reference},
                {"mean", result.mean},
                {"count", result.scores.size()},
                {"skipped", result.bad_lines.size()},
                {"scores", rows}})
              .dump() +
          "\n");
    return {};
  }
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < result.scores.size(); ++i) {
    rows.push_back({StrCat(result.lines[i]), Fixed(result.scores[i], 6)});
  }
  PrintTable({"line", "score"}, rows);
  Print("\n");
  PrintFacts({{"metric", metric->name},
              {"mean", Fixed(result.mean, 6)},
              {"scored", StrCat(result.scores.size())},
              {"skipped", StrCat(result.bad_lines.size())}});
  return {};
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "reports/draws.h"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "core/check.h"
#include "core/json.h"
#include "src/leaderboard_columns.h"
#include "src/resampling.h"

namespace kvgauge {
namespace {

// What is known of the draws of a prompt: of one task, under one seed.
struct DrawnPrompt {
  std::string group;
  std::vector<DrawnAnswer> answers;
};
using DrawnPrompts = std::map<std::pair<int64_t, std::string>, DrawnPrompt>;  // by seed and id

// By cell of the leaderboard.
struct DrawnCell {
  std::string task;
  DrawnPrompts prompts;
  std::set<std::string> seen;  // where several stores hold one sample
};

using DrawnCells = std::unordered_map<std::string, DrawnCell>;

std::string FactText(const Json& facts, const char* key) {
  const auto at = facts.find(key);
  return at != facts.end() && at->is_string() ? at->get<std::string>() : std::string();
}

Status ReadDraws(ResultStore& store, const std::set<std::string>& wanted, DrawnCells& cells) {
  KVG_ASSIGN(const std::vector<StoredCell> stored, store.Cells());
  struct Place {
    DrawnCell* cell;
    int64_t seed;
    std::unordered_map<std::string, std::string> groups;  // by sample
  };
  std::unordered_map<int64_t, Place> places;
  for (const StoredCell& of : stored) {
    const std::string key = of.cell.Key();
    if (!wanted.contains(key)) continue;
    DrawnCell& cell = cells[key];
    cell.task = of.cell.task.name;
    Place place = {&cell, of.cell.seed, {}};
    KVG_ASSIGN(const std::vector<ScoreRow> rows, store.Scores(of.id));
    for (const ScoreRow& row : rows) place.groups[row.sample_id] = row.group;
    places.emplace(of.id, std::move(place));
  }
  return store.VisitFacts([&](int64_t cell, const std::string& sample, std::string_view facts,
                              double score, const std::vector<double>& /*parts*/) {
    const auto at = places.find(cell);
    if (at == places.end()) return;
    const Place& place = at->second;
    if (!place.cell->seen.insert(sample).second) return;
    const NamedDraw name = ParseDrawName(sample);
    const auto group = place.groups.find(sample);
    if (name.draw < 0 || group == place.groups.end()) return;
    const Result<Json> json = ParseJson(std::string(facts), "facts");
    if (!json.ok() || !json->is_object()) return;
    DrawnPrompt& prompt = place.cell->prompts[{place.seed, name.prompt}];
    prompt.group = group->second;
    prompt.answers.push_back({name.draw, score, FactText(*json, kVoteFact)});
  });
}

// The prompts of a line by task, seeds together.
std::map<std::string, DrawnPrompts> PromptsOf(const LeaderboardLine& line,
                                              const DrawnCells& cells) {
  std::map<std::string, DrawnPrompts> tasks;
  for (const std::string& key : line.cell_keys) {
    const auto cell = cells.find(key);
    if (cell == cells.end()) continue;
    tasks[cell->second.task].insert(cell->second.prompts.begin(), cell->second.prompts.end());
  }
  return tasks;
}

// A value for each prompt of each task, from its draws.
using OfPrompt = double (*)(const DrawnPrompt& prompt, int64_t draws);

double BestOfPrompt(const DrawnPrompt& prompt, int64_t draws) {
  std::vector<double> scores;
  scores.reserve(prompt.answers.size());
  for (const DrawnAnswer& answer : prompt.answers) scores.push_back(answer.score);
  return BestOfDraws(std::move(scores), draws);
}

double MajorityOfPrompt(const DrawnPrompt& prompt, int64_t /*draws*/) {
  return MajorityScore(prompt.answers);
}

// The mean over tasks of the means over prompts, clustered by context. `other`: less its values, on
// the prompts of both. None where a prompt has fewer draws.
std::optional<MeanColumn> ColumnOfPrompts(const std::map<std::string, DrawnPrompts>& tasks,
                                          const std::map<std::string, DrawnPrompts>* other,
                                          int64_t draws, OfPrompt value) {
  MeanColumn column;
  for (const auto& [task, prompts] : tasks) {
    std::map<std::string, std::pair<double, double>> clusters;  // sum and count
    const DrawnPrompts* theirs = nullptr;
    if (other != nullptr) {
      const auto at = other->find(task);
      if (at == other->end()) continue;
      theirs = &at->second;
    }
    for (const auto& [key, prompt] : prompts) {
      double number = 0;
      if (theirs != nullptr) {
        const auto at = theirs->find(key);
        if (at == theirs->end()) continue;
        if (std::ssize(at->second.answers) < draws) return std::nullopt;
        number -= value(at->second, draws);
      }
      if (std::ssize(prompt.answers) < draws) return std::nullopt;
      number += value(prompt, draws);
      auto& [sum, count] = clusters[prompt.group];
      sum += number;
      count += 1;
      ++column.samples;
    }
    if (clusters.empty()) continue;
    MeanColumn::Stratum& stratum = column.strata.emplace_back();
    for (const auto& entry : clusters) {
      stratum.sums.push_back(entry.second.first);
      stratum.counts.push_back(entry.second.second);
    }
  }
  if (column.strata.empty()) return std::nullopt;
  for (MeanColumn::Stratum& stratum : column.strata) {
    stratum.weight = 1 / static_cast<double>(column.strata.size());
  }
  return column;
}

// The columns of a table and where their estimates go.
class DrawColumns {
 public:
  void Add(std::optional<MeanColumn> column, bool difference, std::optional<Estimate>& to) {
    if (!column) return;
    columns_.push_back(std::move(*column));
    places_.emplace_back(&to, difference);
  }
  void Fill(const LeaderboardOptions& options, double reach) {
    const std::vector<ColumnResult> results =
        ResampleMeans(columns_, {.confidence = 1 - options.alpha,
                                 .resamples = options.resamples,
                                 .seed = options.seed,
                                 .reach = reach});
    for (size_t i = 0; i < results.size(); ++i) {
      Estimate estimate = results[i].estimate;
      const auto [to, difference] = places_[i];
      if (reach > 0) ClampInterval(estimate.interval, difference ? -1 : 0, 1);
      *to = estimate;
    }
  }

 private:
  std::vector<MeanColumn> columns_;
  std::vector<std::pair<std::optional<Estimate>*, bool>> places_;
};

std::vector<int64_t> CountsUpTo(int64_t draws) {
  std::vector<int64_t> counts;
  for (int64_t k = 1; k < draws; k *= 2) counts.push_back(k);
  counts.push_back(draws);
  return counts;
}

DrawTable DrawTableOf(const LeaderboardTable& table, const DrawnBy& drawn, const DrawnCells& cells,
                      const LeaderboardOptions& options) {
  DrawTable out;
  out.drawn = drawn;
  std::vector<std::map<std::string, DrawnPrompts>> lines;
  double low = 0, high = 0;
  const std::map<std::string, DrawnPrompts>* full = nullptr;
  for (const LeaderboardLine& line : table.lines) {
    lines.push_back(PromptsOf(line, cells));
    for (const auto& task : lines.back()) {
      for (const auto& entry : task.second) {
        out.draws = std::max(out.draws, std::ssize(entry.second.answers));
        for (const DrawnAnswer& answer : entry.second.answers) {
          low = std::min(low, answer.score);
          high = std::max(high, answer.score);
          out.votes = out.votes || !answer.vote.empty();
          out.right_or_wrong = out.right_or_wrong && (answer.score == 0 || answer.score == 1);
        }
      }
    }
  }
  if (out.draws == 0) return out;
  for (size_t i = 0; i < lines.size() && full == nullptr; ++i) {
    if (table.lines[i].method.full_cache && !lines[i].empty()) full = &lines[i];
  }
  out.counts = CountsUpTo(out.draws);
  out.lines.resize(lines.size());
  DrawColumns columns;
  for (size_t i = 0; i < lines.size(); ++i) {
    DrawLine& line = out.lines[i];
    for (const auto& task : lines[i]) line.prompts += std::ssize(task.second);
    line.best.resize(out.counts.size());
    line.best_versus_full.resize(out.counts.size());
    const std::map<std::string, DrawnPrompts>* other = full == &lines[i] ? nullptr : full;
    for (size_t k = 0; k < out.counts.size(); ++k) {
      const int64_t draws = out.counts[k];
      columns.Add(ColumnOfPrompts(lines[i], nullptr, draws, BestOfPrompt), false, line.best[k]);
      if (other == nullptr) continue;
      columns.Add(ColumnOfPrompts(lines[i], other, draws, BestOfPrompt), true,
                  line.best_versus_full[k]);
    }
    if (!out.votes) continue;
    columns.Add(ColumnOfPrompts(lines[i], nullptr, out.draws, MajorityOfPrompt), false,
                line.majority);
    if (other == nullptr) continue;
    columns.Add(ColumnOfPrompts(lines[i], other, out.draws, MajorityOfPrompt), true,
                line.majority_versus_full);
  }
  columns.Fill(options, low >= 0 && high <= 1 ? 1.0 : 0.0);
  return out;
}

}  // namespace

double BestOfDraws(std::vector<double> scores, int64_t k) {
  const int64_t n = std::ssize(scores);
  KVG_CHECK(k >= 1 && k <= n, "as many draws as there are, or fewer");
  std::sort(scores.begin(), scores.end(), std::greater<>());
  // Down the ladder of scores: with C(n - i - 1, k) of C(n, k) choices the best comes behind the
  // i-th score, and is smaller by the step to the next one at least.
  double best = scores[0], behind = 1;
  for (int64_t i = 0; i + 1 < n; ++i) {
    behind *= static_cast<double>(std::max<int64_t>(n - i - k, 0)) / static_cast<double>(n - i);
    best -= (scores[static_cast<size_t>(i)] - scores[static_cast<size_t>(i + 1)]) * behind;
  }
  return best;
}

double MajorityScore(std::vector<DrawnAnswer> answers) {
  KVG_CHECK(!answers.empty(), "a vote without draws");
  std::ranges::sort(answers, {}, &DrawnAnswer::draw);
  struct Count {
    int64_t votes = 0;
    const DrawnAnswer* first = nullptr;
  };
  std::map<std::string, Count> counts;
  for (const DrawnAnswer& answer : answers) {
    if (answer.vote.empty()) continue;
    Count& count = counts[answer.vote];
    if (count.votes++ == 0) count.first = &answer;
  }
  if (counts.empty()) return answers[0].score;
  const auto most = std::ranges::max_element(counts, {}, [](const auto& entry) {
    return std::pair(entry.second.votes, -entry.second.first->draw);
  });
  return most->second.first->score;
}

Result<std::vector<DrawTable>> MakeDrawTables(std::span<ResultStore* const> stores,
                                              const LeaderboardModel& model) {
  std::vector<DrawTable> tables(model.tables.size());
  std::set<std::string> wanted;
  for (const LeaderboardTable& table : model.tables) {
    if (!table.drawn) continue;
    for (const LeaderboardLine& line : table.lines) {
      wanted.insert(line.cell_keys.begin(), line.cell_keys.end());
    }
  }
  if (wanted.empty()) return tables;
  DrawnCells cells;
  for (ResultStore* store : stores) KVG_TRY(ReadDraws(*store, wanted, cells));
  for (size_t i = 0; i < tables.size(); ++i) {
    const LeaderboardTable& table = model.tables[i];
    if (table.drawn) tables[i] = DrawTableOf(table, *table.drawn, cells, model.options);
  }
  return tables;
}

}  // namespace kvgauge

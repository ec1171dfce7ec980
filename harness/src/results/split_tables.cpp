// SPDX-License-Identifier: Apache-2.0
#include "src/results/split_tables.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/json.h"
#include "core/strings.h"
#include "src/cli/print.h"
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

namespace {

void AddShare(const ResultStore::ModalityShare& more, ModalityLine& line) {
  auto at = std::ranges::find(line.shares, more.modality, &ResultStore::ModalityShare::modality);
  if (at == line.shares.end()) {
    line.shares.push_back(more);
    return;
  }
  const auto before = static_cast<double>(at->samples), added = static_cast<double>(more.samples);
  const auto mean = [&](double a, double b) { return (a * before + b * added) / (before + added); };
  at->attention = mean(at->attention, more.attention);
  at->attention_kept = mean(at->attention_kept, more.attention_kept);
  at->samples += more.samples;
  at->entries_before += more.entries_before;
  at->entries_after += more.entries_after;
  at->bytes += more.bytes;
}

std::string Percent(double part, double whole) {
  return whole > 0 ? Fixed(100 * part / whole, 1) + "%" : "-";
}

}  // namespace

Result<std::vector<std::vector<ModalityLine>>> SplitByModality(std::span<ResultStore* const> stores,
                                                               const LeaderboardModel& model) {
  std::map<std::string, ModalityLine> of_cell;  // by key; the first store that has it counts
  for (ResultStore* store : stores) {
    KVG_ASSIGN(const std::vector<StoredCell> cells, store->Cells());
    std::map<int64_t, std::string> keys;
    for (const StoredCell& cell : cells) {
      const std::string key = cell.cell.Key();
      if (!of_cell.contains(key)) keys[cell.id] = key;
    }
    KVG_ASSIGN(const auto shares, store->Modalities());
    for (const auto& [id, share] : shares) {
      if (const auto key = keys.find(id); key != keys.end()) {
        of_cell[key->second].shares.push_back(share);
      }
    }
  }
  if (of_cell.empty()) {
    return BadInput("--split modality: no sample shows a picture, so all that is kept is text");
  }
  std::vector<std::vector<ModalityLine>> tables;
  for (const LeaderboardTable& table : model.tables) {
    std::vector<ModalityLine>& lines = tables.emplace_back();
    for (const LeaderboardLine& line : table.lines) {
      ModalityLine& sum = lines.emplace_back();
      for (const std::string& key : line.cell_keys) {
        const auto found = of_cell.find(key);
        if (found == of_cell.end()) continue;
        for (const auto& share : found->second.shares) AddShare(share, sum);
      }
    }
  }
  return tables;
}

std::string ModalityText(const LeaderboardTable& table, const std::vector<ModalityLine>& lines,
                         bool markdown, bool colour) {
  TextTable text;
  text.columns = {{"method"},          {"budget", true},          {"of"},
                  {"kept", true},      {"of what is kept", true}, {"bytes", true},
                  {"attention", true}, {"of it kept", true}};
  for (size_t i = 0; i < table.lines.size(); ++i) {
    const LeaderboardLine& line = table.lines[i];
    int64_t entries = 0, bytes = 0;
    for (const auto& share : lines[i].shares) {
      entries += share.entries_after;
      bytes += share.bytes;
    }
    bool first = true;
    for (const auto& share : lines[i].shares) {
      const std::string method = line.method.variant.empty()
                                     ? line.method.name
                                     : StrCat(line.method.name, "[", line.method.variant, "]");
      const bool named = first || markdown;
      first = false;
      const auto after = static_cast<double>(share.entries_after);
      text.rows.push_back({{named ? method : ""},
                           {named ? line.budget : ""},
                           {share.modality},
                           {Percent(after, static_cast<double>(share.entries_before))},
                           {Percent(after, static_cast<double>(entries))},
                           {Percent(static_cast<double>(share.bytes), static_cast<double>(bytes))},
                           {Percent(share.attention, 1)},
                           {Percent(share.attention_kept, share.attention)}});
    }
  }
  if (text.rows.empty()) return "";
  return StrCat(
      "\nKept by modality, all layers and heads together; attention is that of the last "
      "prompt row:\n\n",
      markdown ? text.ToMarkdown() : text.ToText(colour));
}

Json ModalityJson(const LeaderboardTable& table, const std::vector<ModalityLine>& lines) {
  Json rows = Json::array();
  for (size_t i = 0; i < table.lines.size(); ++i) {
    Json modalities = Json::array();
    for (const auto& share : lines[i].shares) {
      modalities.push_back({{"modality", share.modality},
                            {"samples", share.samples},
                            {"entries_before", share.entries_before},
                            {"entries_after", share.entries_after},
                            {"bytes", share.bytes},
                            {"attention", share.attention},
                            {"attention_kept", share.attention_kept}});
    }
    rows.push_back({{"method", table.lines[i].method.name},
                    {"variant", table.lines[i].method.variant},
                    {"budget", table.lines[i].budget},
                    {"modalities", modalities}});
  }
  return {{"model", table.model}, {"task", table.task}, {"rows", rows}};
}

}  // namespace kvgauge

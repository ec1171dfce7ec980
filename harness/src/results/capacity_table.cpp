// SPDX-License-Identifier: Apache-2.0
#include "src/results/capacity_table.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "core/json.h"
#include "core/strings.h"
#include "src/cli/print.h"
#include "src/cli/table.h"
#include "src/results/leaderboard_fields.h"

namespace kvgauge {
namespace {

std::string NamedRow(const MethodRow& method, const std::string& budget) {
  std::string name = method.name;
  if (!method.variant.empty()) name += StrCat("[", method.variant, "]");
  return budget == "none" ? name : StrCat(name, " ", budget);
}

// What makes a line's numbers less than they seem.
std::string NoteOf(const CapacityEntry& entry) {
  std::vector<std::string> notes;
  if (entry.partly()) {
    notes.push_back(StrCat("served ", entry.row.served, " of ", entry.row.requests));
  }
  if (entry.disturbed) notes.emplace_back("disturbed");
  return Join(notes, ", ");
}

struct CapacityPair {
  const LeaderboardLine* line = nullptr;  // null: the store has no scores of this model
  const CapacityEntry* fastest = nullptr;
  const CapacityEntry* unbounded = nullptr;  // null: --batches had no max

  // What counts where memories are compared: as in the report.
  int64_t room() const {
    const CapacityRow& row = unbounded != nullptr ? unbounded->row : fastest->row;
    return std::max(row.held, row.fit.value_or(0));
  }
  int64_t held() const { return unbounded != nullptr ? unbounded->row.held : fastest->row.held; }
};

const CapacityEntry* CapacityEntryFor(const std::vector<const CapacityEntry*>& entries,
                                      const MethodRow& method, const std::string& budget) {
  const auto at = std::ranges::find_if(entries, [&](const CapacityEntry* entry) {
    return IsCapacityOf(entry->row, method, budget);
  });
  return at == entries.end() ? nullptr : *at;
}

std::string PairsText(const LeaderboardTable* table, const CapacityBoard& board,
                      std::vector<CapacityPair> pairs, bool markdown, bool colour) {
  std::ranges::stable_sort(
      pairs, [](const CapacityPair& a, const CapacityPair& b) { return a.room() > b.room(); });
  TextTable text;
  text.columns = {{"method"},
                  {"budget", true},
                  {"score", true},
                  {"interval"},
                  {"held", true},
                  {"fit", true},
                  {"batch", true},
                  {"tokens/s", true},
                  {"first token p50/90", true},
                  {"token p50/90", true},
                  {"sequence", true},
                  {"note"}};
  for (const CapacityPair& pair : pairs) {
    const CapacityRow& row = pair.fastest->row;
    const bool scored = pair.line != nullptr && pair.line->scored > 0;
    text.rows.push_back(
        {{NamedRow(row.method, "none")},
         {pair.line != nullptr ? pair.line->budget : row.budget},
         {scored ? ShowScore(*table, pair.line->score.value) : ""},
         {scored ? ShowInterval(*table, pair.line->score.interval, false) : ""},
         {StrCat(pair.held())},
         {row.fit ? StrCat(*row.fit) : ""},
         {StrCat(row.max_batch)},
         {Fixed(row.tokens_per_s, 1)},
         {row.served > 0 ? TimesText({row.ttft_p50_s, row.ttft_p90_s}) : "-"},
         {row.tokens_out > row.served ? TimesText({row.tpot_p50_s, row.tpot_p90_s}) : "-"},
         {HumanBytes(row.sequence_bytes)},
         {NoteOf(*pair.fastest), Tone::kDoubtful}});
  }
  text.DropEmptyColumns();
  return StrCat("\nCapacity in ", board.Title(), "\n\n",
                markdown ? text.ToMarkdown() : text.ToText(colour));
}

std::string OneCapacity(const LeaderboardTable& table, const CapacityBoard& board, bool markdown,
                        bool colour) {
  const auto fastest = board.Fastest(), unbounded = board.Unbounded();
  std::vector<CapacityPair> pairs;
  std::vector<std::string> unmeasured, unscored;
  for (const LeaderboardLine& line : table.lines) {
    const CapacityPair pair = {&line, CapacityEntryFor(fastest, line.method, line.budget),
                               CapacityEntryFor(unbounded, line.method, line.budget)};
    if (pair.fastest != nullptr) {
      pairs.push_back(pair);
    } else {
      unmeasured.push_back(NamedRow(line.method, line.budget));
    }
  }
  for (const CapacityEntry& entry : board.entries) {
    const std::string name = NamedRow(entry.row.method, entry.row.budget);
    const bool scored = std::ranges::any_of(table.lines, [&](const LeaderboardLine& line) {
      return IsCapacityOf(entry.row, line.method, line.budget);
    });
    if (!scored && std::ranges::find(unscored, name) == unscored.end()) unscored.push_back(name);
  }
  if (pairs.empty()) return "";
  std::string out = PairsText(&table, board, std::move(pairs), markdown, colour);
  const auto note = [&](const std::string& what, const std::vector<std::string>& names) {
    if (names.empty()) return;
    out += StrCat(markdown ? "\n- " : "note: ", what, ": ", Join(names, ", "), "\n");
  };
  note("without capacity", unmeasured);
  note("without a score here", unscored);
  return out;
}

}  // namespace

Result<std::vector<CapacityBoard>> ReadCapacities(std::span<ResultStore* const> stores) {
  std::vector<CapacityRow> rows;
  std::set<std::tuple<std::string, std::string, int64_t>> seen;
  for (ResultStore* store : stores) {
    KVG_ASSIGN(std::vector<CapacityRow> held, store->Capacities());
    for (CapacityRow& row : held) {
      if (seen.emplace(row.identity, row.run_key, row.repetition).second) {
        rows.push_back(std::move(row));
      }
    }
  }
  return SummariseCapacity(rows);
}

std::string CapacityText(const LeaderboardTable& table,
                         const std::vector<CapacityBoard>& capacities, bool markdown, bool colour) {
  std::string out;
  for (const CapacityBoard& board : capacities) {
    if (board.model.fingerprint != table.model_fingerprint) continue;
    out += OneCapacity(table, board, markdown, colour);
  }
  return out;
}

std::string UnscoredCapacityText(const LeaderboardModel& model,
                                 const std::vector<CapacityBoard>& capacities, bool markdown,
                                 bool colour) {
  std::string out;
  for (const CapacityBoard& board : capacities) {
    if (std::ranges::any_of(model.tables, [&](const LeaderboardTable& table) {
          return table.model_fingerprint == board.model.fingerprint;
        })) {
      continue;
    }
    const auto unbounded = board.Unbounded();
    std::vector<CapacityPair> pairs;
    for (const CapacityEntry* entry : board.Fastest()) {
      pairs.push_back(
          {nullptr, entry, CapacityEntryFor(unbounded, entry->row.method, entry->row.budget)});
    }
    if (pairs.empty()) continue;
    out += StrCat("\n", board.model.name, ": no scores here\n",
                  PairsText(nullptr, board, std::move(pairs), markdown, colour));
  }
  return out;
}

Json CapacityJson(const std::vector<CapacityBoard>& capacities) {
  Json boards = Json::array();
  for (const CapacityBoard& board : capacities) {
    Json entries = Json::array();
    for (const CapacityEntry& entry : board.entries) {
      const CapacityRow& row = entry.row;
      Json json = {{"method", row.method.name},
                   {"variant", row.method.variant},
                   {"budget", row.budget},
                   {"batch", row.batch}};
      if (!entry.ran()) {
        json["refused"] = row.refused;
        entries.push_back(std::move(json));
        continue;
      }
      json["max_batch"] = row.max_batch;
      json["held"] = row.held;
      json["fit"] = row.fit ? Json(*row.fit) : Json(nullptr);
      json["tokens_per_s"] = row.tokens_per_s;
      json["tokens_per_s_range"] = {entry.tokens_per_s.low, entry.tokens_per_s.high};
      json["ttft_s"] = {{"p50", row.ttft_p50_s}, {"p90", row.ttft_p90_s}, {"p99", row.ttft_p99_s}};
      json["tpot_s"] = {{"p50", row.tpot_p50_s}, {"p90", row.tpot_p90_s}, {"p99", row.tpot_p99_s}};
      json["e2e_s"] = {{"p50", row.e2e_p50_s}, {"p90", row.e2e_p90_s}, {"p99", row.e2e_p99_s}};
      json["sequence_bytes"] = row.sequence_bytes;
      json["peak_bytes"] = row.peak_bytes;
      json["served"] = row.served;
      json["requests"] = row.requests;
      json["repetitions"] = entry.repetitions;
      json["left_out"] = entry.left_out;
      json["disturbed"] = entry.disturbed;
      entries.push_back(std::move(json));
    }
    boards.push_back({{"model", board.model.name},
                      {"fingerprint", board.model.fingerprint},
                      {"memory_bytes", board.memory_bytes},
                      {"host_memory_bytes", board.host_memory_bytes},
                      {"policy", board.policy},
                      {"title", board.Title()},
                      {"entries", std::move(entries)}});
  }
  return boards;
}

}  // namespace kvgauge

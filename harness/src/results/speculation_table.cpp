// SPDX-License-Identifier: Apache-2.0
#include "src/results/speculation_table.h"

#include <set>
#include <tuple>

#include "core/json.h"
#include "core/strings.h"
#include "src/cli/print.h"
#include "src/cli/table.h"

namespace kvgauge {
namespace {

std::string RangeText(const Interval& range, double scale, int digits) {
  if (range.low == range.high) return "";
  return StrCat(Fixed(scale * range.low, digits), " .. ", Fixed(scale * range.high, digits));
}

std::string NoteOn(const SpeculationBoard& board, const SpeculationEntry& entry) {
  std::vector<std::string> parts;
  if (entry.disturbed) parts.emplace_back("disturbed");
  if (entry.prompts < board.prompts()) {
    parts.push_back(StrCat(entry.prompts, " of ", board.prompts(), " prompts"));
  }
  if (entry.not_engaged > 0) parts.push_back(StrCat("not engaged in ", entry.not_engaged));
  return Join(parts, ", ");
}

std::string OneSpeculation(const SpeculationBoard& board, bool markdown, bool colour) {
  TextTable text;
  text.columns = {{"draft"},
                  {"drafted", true},
                  {"accepted %", true},
                  {"of prompts"},
                  {"accepted a check", true},
                  {"tokens/s", true},
                  {"full alone", true},
                  {"times", true},
                  {"of answers"},
                  {"draft's cache", true},
                  {"full cache", true},
                  {"both hold", true},
                  {"note"}};
  for (const SpeculationEntry& entry : board.entries) {
    const SpeculationRow& row = entry.row;
    text.rows.push_back({{entry.Name()},
                         {StrCat(row.gamma)},
                         {Fixed(100 * entry.acceptance(), 1)},
                         {RangeText(entry.acceptance_range, 100, 1)},
                         {Fixed(entry.accepted_per_check(), 2)},
                         {Fixed(entry.tokens_per_s.median, 1)},
                         {Fixed(entry.full_tokens_per_s.median, 1)},
                         {Fixed(entry.speedup.median, 2)},
                         {RangeText(entry.speedup.range, 1, 2)},
                         {HumanBytes(row.draft_bytes)},
                         {HumanBytes(row.judge_bytes)},
                         {HumanBytes(row.held_bytes)},
                         {NoteOn(board, entry), Tone::kDoubtful}});
  }
  text.DropEmptyColumns();
  std::string out = StrCat("Speculative decoding of ", board.model.name, ": ", board.Title(),
                           "\n\n", markdown ? text.ToMarkdown() : text.ToText(colour));
  if (board.random_prompts()) {
    out += StrCat(markdown ? "\n- " : "note: ",
                  "prompts are random tokens, on which acceptance says little\n");
  }
  return out;
}

}  // namespace

Result<std::vector<SpeculationBoard>> ReadSpeculations(std::span<ResultStore* const> stores) {
  std::vector<SpeculationRow> rows;
  std::set<std::tuple<std::string, std::string, int64_t>> seen;
  for (ResultStore* store : stores) {
    KVG_ASSIGN(std::vector<SpeculationRow> held, store->Speculations());
    for (SpeculationRow& row : held) {
      const std::string place = StrCat(row.prompt, " ", row.identity);
      if (seen.emplace(place, row.run_key, row.repetition).second) rows.push_back(std::move(row));
    }
  }
  return SummariseSpeculation(rows);
}

std::string SpeculationText(const std::vector<SpeculationBoard>& boards, bool markdown,
                            bool colour) {
  std::vector<std::string> parts;
  parts.reserve(boards.size());
  for (const SpeculationBoard& board : boards) {
    parts.push_back(OneSpeculation(board, markdown, colour));
  }
  return Join(parts, "\n");
}

Json SpeculationJson(const std::vector<SpeculationBoard>& boards) {
  const auto timed = [](const TimedSpeculation& time) {
    return Json({{"median", time.median}, {"low", time.range.low}, {"high", time.range.high}});
  };
  Json all = Json::array();
  for (const SpeculationBoard& board : boards) {
    Json entries = Json::array();
    for (const SpeculationEntry& entry : board.entries) {
      const SpeculationRow& row = entry.row;
      entries.push_back(
          {{"form", row.form},
           {"method", row.method.name},
           {"variant", row.method.variant},
           {"budget", row.budget},
           {"gamma", row.gamma},
           {"prompts", entry.prompts},
           {"checks", entry.checks},
           {"drafted", entry.drafted},
           {"accepted", entry.accepted},
           {"acceptance", entry.acceptance()},
           {"acceptance_range", {entry.acceptance_range.low, entry.acceptance_range.high}},
           {"accepted_per_check", entry.accepted_per_check()},
           {"tokens_per_check", entry.tokens_per_check()},
           {"tokens_per_s", timed(entry.tokens_per_s)},
           {"full_tokens_per_s", timed(entry.full_tokens_per_s)},
           {"speedup", timed(entry.speedup)},
           {"draft_bytes", row.draft_bytes},
           {"judge_bytes", row.judge_bytes},
           {"held_bytes", row.held_bytes},
           {"timed", entry.timed},
           {"left_out", entry.left_out},
           {"disturbed", entry.disturbed},
           {"not_engaged", entry.not_engaged}});
    }
    all.push_back({{"model", board.model.name},
                   {"fingerprint", board.model.fingerprint},
                   {"title", board.Title()},
                   {"random_prompts", board.random_prompts()},
                   {"entries", std::move(entries)}});
  }
  return all;
}

}  // namespace kvgauge

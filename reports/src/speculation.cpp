// SPDX-License-Identifier: Apache-2.0
#include "reports/speculation.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

// Versions of one method are drafts of their own.
auto KeyOfDraft(const SpeculationRow& row) {
  return std::tie(row.form, row.method.name, row.method.variant, row.method.spec, row.budget,
                  row.gamma);
}

double ShareOf(int64_t part, int64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

TimedSpeculation TimedFrom(std::vector<double> values) {
  std::ranges::sort(values);
  const size_t n = values.size();
  return {(values[(n - 1) / 2] + values[n / 2]) / 2, {values.front(), values.back()}};
}

SpeculationEntry SpeculationEntryFrom(const std::vector<const SpeculationRow*>& rows) {
  SpeculationEntry entry;
  std::map<int64_t, const SpeculationRow*> prompts;
  for (const SpeculationRow* row : rows) prompts.emplace(row->prompt, row);
  entry.row = *prompts.begin()->second;
  entry.prompts = std::ssize(prompts);
  std::vector<double> shares;
  for (const auto& [prompt, row] : prompts) {
    entry.checks += row->checks;
    entry.drafted += row->drafted;
    entry.accepted += row->accepted;
    entry.tokens += row->answer_tokens - 1;
    entry.not_engaged += row->not_engaged ? 1 : 0;
    shares.push_back(ShareOf(row->accepted, row->drafted));
  }
  entry.acceptance_range = TimedFrom(std::move(shares)).range;
  std::vector<const SpeculationRow*> kept;
  std::ranges::copy_if(rows, std::back_inserter(kept), [](const SpeculationRow* row) {
    return row->others_share <= LatencyRow::kMaxOthersShare;
  });
  entry.disturbed = kept.empty();
  if (kept.empty()) kept = rows;
  entry.timed = std::ssize(kept);
  entry.left_out = std::ssize(rows) - std::ssize(kept);
  std::vector<double> own, full, speedups;
  for (const SpeculationRow* row : kept) {
    own.push_back(row->tokens_per_s());
    full.push_back(row->full_tokens_per_s());
    speedups.push_back(row->seconds() > 0 ? row->full_s / row->seconds() : 0);
  }
  entry.tokens_per_s = TimedFrom(std::move(own));
  entry.full_tokens_per_s = TimedFrom(std::move(full));
  entry.speedup = TimedFrom(std::move(speedups));
  return entry;
}

// What a workload says; null where it is none of ours.
Json WorkloadOf(const std::string& text) {
  const Result<Json> workload = ParseJson(text, "workload");
  return workload.ok() && workload->is_object() ? *workload : Json::object();
}

}  // namespace

double SpeculationEntry::acceptance() const { return ShareOf(accepted, drafted); }
double SpeculationEntry::accepted_per_check() const { return ShareOf(accepted, checks); }
double SpeculationEntry::tokens_per_check() const { return ShareOf(tokens, checks); }

std::string SpeculationEntry::Name() const {
  std::string name = row.method.name;
  if (!row.form.empty()) {
    name = StrCat(row.form, ": ", row.method.name);  // a form says what it sets
  } else if (!row.method.variant.empty()) {
    name += StrCat("[", row.method.variant, "]");
  }
  return row.budget == "none" ? name : StrCat(name, " ", row.budget);
}

int64_t SpeculationBoard::prompts() const {
  const Json said = WorkloadOf(workload);
  const auto at = said.find("prompts");
  return at != said.end() && at->is_number_integer() ? at->get<int64_t>() : 0;
}

bool SpeculationBoard::random_prompts() const { return !WorkloadOf(workload).contains("texts"); }

std::string SpeculationBoard::Title() const {
  const Json said = WorkloadOf(workload);
  const auto text = [&](const char* key) {
    const auto at = said.find(key);
    if (at == said.end()) return std::string("?");
    return at->is_string() ? at->get<std::string>() : at->dump();
  };
  std::vector<std::string> names;
  if (!random_prompts() && said["texts"].is_array()) {
    for (const Json& name : said["texts"]) {
      if (name.is_string()) names.push_back(name.get<std::string>());
    }
  }
  const std::string count = text("prompts");
  return StrCat(count, count == "1" ? " prompt of " : " prompts of ", text("prompt_tokens"),
                random_prompts() ? " random tokens" : StrCat(" tokens (", Join(names, ", "), ")"),
                ", answers of ", text("answer_tokens"),
                one_of_several ? StrCat(", ", numbers) : "");
}

std::vector<SpeculationBoard> SummariseSpeculation(std::span<const SpeculationRow> rows) {
  std::vector<SpeculationBoard> boards;
  // [boards] rows by draft, budget and length, in the order of the first.
  std::vector<std::vector<std::vector<const SpeculationRow*>>> cases;
  for (const SpeculationRow& row : rows) {
    const std::string numbers = NumbersOfIdentity(row.identity);
    const auto board = std::ranges::find_if(boards, [&](const SpeculationBoard& b) {
      return b.model.fingerprint == row.model.fingerprint && b.model.name == row.model.name &&
             b.model.facts == row.model.facts && b.workload == row.workload &&
             b.machine_facts == row.machine_facts && b.numbers == numbers;
    });
    const auto at = static_cast<size_t>(board - boards.begin());
    if (board == boards.end()) {
      boards.push_back({row.model, row.workload, row.machine_facts, numbers, false, {}});
      cases.emplace_back();
    }
    const auto place = std::ranges::find_if(cases[at], [&](const auto& of_draft) {
      return KeyOfDraft(*of_draft.front()) == KeyOfDraft(row);
    });
    if (place == cases[at].end()) {
      cases[at].push_back({&row});
    } else {
      place->push_back(&row);
    }
  }
  for (size_t b = 0; b < boards.size(); ++b) {
    std::vector<SpeculationEntry>& entries = boards[b].entries;
    for (const auto& of_draft : cases[b]) entries.push_back(SpeculationEntryFrom(of_draft));
    boards[b].one_of_several = std::ranges::any_of(boards, [&](const SpeculationBoard& other) {
      return other.numbers != boards[b].numbers && other.model.name == boards[b].model.name;
    });
    std::ranges::stable_sort(entries, [](const SpeculationEntry& x, const SpeculationEntry& y) {
      return x.speedup.median > y.speedup.median;
    });
  }
  return boards;
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "reports/capacity.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

// A text or a number of a workload; "" for what it does not say.
std::string SaidBy(const Json& workload, const char* key) {
  if (!workload.is_object() || !workload.contains(key)) return "";
  const Json& value = workload.at(key);
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string WorkloadText(const std::string& text) {
  const Result<Json> workload = ParseJson(text, "workload");
  if (!workload.ok()) return text;
  const auto said = [&](const char* key) { return SaidBy(*workload, key); };
  std::string out = StrCat(said("requests"), " requests");
  if (!said("trace").empty()) {
    out += StrCat(" of ", said("trace"));
    if (said("length_scale") != "1.0") out += StrCat(", lengths x ", said("length_scale"));
    if (said("time_scale") != "1.0") out += StrCat(", times x ", said("time_scale"));
    return out;
  }
  out +=
      StrCat(", prompts of ", said("prompt_tokens"), " tokens, answers of ", said("answer_tokens"));
  if (!said("shared_tokens").empty()) out += StrCat(", ", said("shared_tokens"), " shared");
  if (!said("turns").empty()) out += StrCat(", conversations of ", said("turns"), " turns");
  if (!said("per_second").empty()) {
    out += StrCat(", ", said("arrivals"), ", ", said("per_second"), " a second");
  }
  return out;
}

// Versions of one method are entries of their own.
auto KeyOfEntry(const CapacityRow& row) {
  return std::tie(row.method.name, row.method.variant, row.method.spec, row.budget);
}

CapacityEntry CapacityEntryFrom(std::vector<const CapacityRow*> rows) {
  CapacityEntry entry;
  const auto calm = [](const CapacityRow* row) {
    return row->others_share <= LatencyRow::kMaxOthersShare;
  };
  // What was refused once, and ran later, ran.
  const auto refused = [](const CapacityRow* row) { return !row->refused.empty(); };
  if (!std::ranges::all_of(rows, refused)) std::erase_if(rows, refused);
  std::vector<const CapacityRow*> kept;
  std::ranges::copy_if(rows, std::back_inserter(kept), calm);
  entry.disturbed = kept.empty();
  if (kept.empty()) kept = rows;
  entry.left_out = std::ssize(rows) - std::ssize(kept);
  entry.repetitions = std::ssize(kept);
  std::ranges::stable_sort(kept, {}, [](const CapacityRow* row) { return row->tokens_per_s; });
  entry.row = *kept[(kept.size() - 1) / 2];
  entry.tokens_per_s = {kept.front()->tokens_per_s, kept.back()->tokens_per_s};
  return entry;
}

}  // namespace

std::string CapacityBoard::Title() const {
  const std::string memory =
      memory_bytes > 0 ? HumanBytes(memory_bytes) : std::string("No limit of memory");
  return StrCat(memory, ", ", policy, ": ", WorkloadText(workload),
                one_of_several ? StrCat(", ", numbers) : "");
}

std::vector<const CapacityEntry*> CapacityBoard::Fastest() const {
  std::vector<const CapacityEntry*> fastest;
  for (const CapacityEntry& entry : entries) {
    if (!entry.ran() || entry.row.tokens_per_s <= 0) continue;
    const auto at = std::ranges::find_if(fastest, [&](const CapacityEntry* other) {
      return KeyOfEntry(other->row) == KeyOfEntry(entry.row);
    });
    if (at == fastest.end()) {
      fastest.push_back(&entry);
    } else if (std::pair(entry.row.served, entry.row.tokens_per_s) >
               std::pair((*at)->row.served, (*at)->row.tokens_per_s)) {
      *at = &entry;
    }
  }
  return fastest;
}

std::vector<const CapacityEntry*> CapacityBoard::Unbounded() const {
  std::vector<const CapacityEntry*> unbounded;
  for (const CapacityEntry& entry : entries) {
    if (memory_bytes > 0 && entry.ran() && entry.row.batch == 0 && entry.row.held > 0) {
      unbounded.push_back(&entry);
    }
  }
  return unbounded;
}

std::vector<CapacityBoard> SummariseCapacity(std::span<const CapacityRow> rows) {
  std::vector<CapacityBoard> boards;
  // [boards] repetitions by method, variant, budget and batch, in the order of the first.
  std::vector<std::vector<std::vector<const CapacityRow*>>> cases;
  for (const CapacityRow& row : rows) {
    const std::string numbers = NumbersOfIdentity(row.identity);
    const auto same = [&](const CapacityBoard& b) {
      return b.model.fingerprint == row.model.fingerprint && b.model.name == row.model.name &&
             b.workload == row.workload && b.policy == row.policy &&
             b.memory_bytes == row.memory_bytes && b.host_memory_bytes == row.host_memory_bytes &&
             b.machine_facts == row.machine_facts && b.numbers == numbers;
    };
    const auto board = std::ranges::find_if(boards, same);
    const auto at = static_cast<size_t>(board - boards.begin());
    if (board == boards.end()) {
      CapacityBoard& added = boards.emplace_back();
      added.model = row.model;
      added.workload = row.workload;
      added.policy = row.policy;
      added.machine_facts = row.machine_facts;
      added.numbers = numbers;
      added.memory_bytes = row.memory_bytes;
      added.host_memory_bytes = row.host_memory_bytes;
      cases.emplace_back();
    }
    const auto place = std::ranges::find_if(cases[at], [&](const auto& repetitions) {
      return KeyOfEntry(*repetitions.front()) == KeyOfEntry(row) &&
             repetitions.front()->batch == row.batch;
    });
    if (place == cases[at].end()) {
      cases[at].push_back({&row});
    } else {
      place->push_back(&row);
    }
  }
  for (size_t b = 0; b < boards.size(); ++b) {
    for (const auto& repetitions : cases[b])
      boards[b].entries.push_back(CapacityEntryFrom(repetitions));
    boards[b].one_of_several = std::ranges::any_of(boards, [&](const CapacityBoard& other) {
      return other.numbers != boards[b].numbers && other.model.name == boards[b].model.name;
    });
  }
  return boards;
}

bool IsCapacityOf(const CapacityRow& row, const MethodRow& method, const std::string& budget) {
  return row.method.name == method.name && row.method.variant == method.variant &&
         row.budget == budget;
}

}  // namespace kvgauge

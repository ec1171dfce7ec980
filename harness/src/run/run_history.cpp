// SPDX-License-Identifier: Apache-2.0
#include "src/run/run_history.h"

#include <algorithm>
#include <map>
#include <memory>

#include "core/json.h"
#include "core/strings.h"
#include "reports/leaderboard.h"

namespace kvgauge {

Result<RateOf> RecordedRates(ResultStore& store) {
  struct Spent {
    double cells = 0, seconds = 0;
  };
  auto spent = std::make_shared<std::map<std::string, Spent>>();
  KVG_ASSIGN(const std::vector<StoredRun> runs, store.Runs());
  for (const StoredRun& run : runs) {
    KVG_ASSIGN(const std::vector<EventRow> events, store.Events(run.id));
    for (const EventRow& event : events) {
      if (event.kind != "note") continue;
      const Result<Json> json = ParseJson(event.message, "event");
      const auto has = [&](const char* key, bool text) {
        return json->contains(key) && (text ? (*json)[key].is_string() : (*json)[key].is_number());
      };
      if (!json.ok() || !json->is_object() || !has("group", true) || !has("cells", false) ||
          !has("seconds", false)) {
        continue;
      }
      Spent& group = (*spent)[(*json)["group"].get<std::string>()];
      group.cells += (*json)["cells"].get<double>();
      group.seconds += (*json)["seconds"].get<double>();
    }
  }
  return RateOf([spent](const PlanGroup& group) -> std::optional<double> {
    const auto found = spent->find(group.name);
    if (found == spent->end() || found->second.cells <= 0) return std::nullopt;
    return found->second.seconds / found->second.cells;
  });
}

Result<std::vector<RunProgress::Work>> WorkLeft(const RunPlan& plan, const SampleChoice& choice,
                                                ResultStore& store) {
  KVG_ASSIGN(const RateOf rate_of, RecordedRates(store));
  KVG_ASSIGN(const std::vector<StoredCell> stored, store.Cells());
  KVG_ASSIGN(const auto counts, store.SampleCounts());
  std::map<std::string, int64_t> recorded;
  for (const StoredCell& cell : stored) {
    const auto at = counts.find(cell.id);
    recorded[cell.cell.Key()] = at == counts.end() ? 0 : at->second;
  }
  std::vector<RunProgress::Work> groups;
  const int64_t draws = plan.config->sampling.draws;
  for (const PlanGroup& group : plan.groups) {
    RunProgress::Work& work = groups.emplace_back();
    work.rate_s = rate_of(group).value_or(0);
    const int64_t samples = choice.Count(plan.config->tasks[group.task].samples);
    if (samples < 0) continue;
    work.cells = 0;
    for (const CellRow& cell : group.cells) {
      work.cells += std::max<int64_t>(0, samples * draws - recorded[cell.Key()]);
    }
  }
  return groups;
}

Result<std::vector<std::string>> RecordsOfOtherInputs(const RunPlan& plan, ResultStore& store) {
  KVG_ASSIGN(const std::vector<StoredCell> stored, store.Cells());
  std::vector<std::string> said;
  for (const PlanGroup& group : plan.groups) {
    const CellRow& now = group.cells[0];
    for (const StoredCell& other : stored) {
      const CellRow& was = other.cell;
      if (was.model.name != now.model.name || was.task.name != now.task.name ||
          was.compress_at != now.compress_at || was.signature == now.signature) {
        continue;
      }
      std::string text = StrCat(now.task.name, " of ", now.model.name, " is recorded with another ",
                                DifferingSignatureKeys(was.signature, now.signature),
                                "; it is run anew, and the two are never compared in silence");
      if (std::ranges::find(said, text) == said.end()) said.push_back(std::move(text));
    }
  }
  return said;
}

Error OtherContent(const std::string& store, const Task& task, const Sample& sample,
                   const std::string& recorded_hash) {
  return BadInput(StrCat(
      store, ": sample ", Quoted(sample.id), " of task ", Quoted(task.name),
      " is recorded with another content (", recorded_hash.substr(0, 12), ", now ",
      sample.hash.substr(0, 12),
      "): ", FindSource(task.source)->generated ? "its generator" : "its data file",
      " changed since, expected what was run before; bring that back, or run into another --db"));
}

}  // namespace kvgauge

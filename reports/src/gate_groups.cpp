// SPDX-License-Identifier: Apache-2.0
#include "src/gate_groups.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/json.h"
#include "core/strings.h"
#include "reports/leaderboard.h"
#include "src/known_scope.h"

namespace kvgauge {
namespace {

std::string GroupName(const CellRow& c) {
  std::vector<std::string> parts = {c.model.name, c.task.name, c.method.name};
  if (!c.method.variant.empty()) parts.push_back(c.method.variant);
  parts.push_back(c.budget);
  parts.push_back(c.compress_at);
  return Join(parts, ", ");
}

std::string TextOfSpec(const TaskRow& task, const char* key) {
  const Result<Json> spec = ParseJson(task.spec, "task");
  if (!spec.ok() || !spec->is_object()) return "";
  const auto at = spec->find(key);
  return at != spec->end() && at->is_string() ? at->get<std::string>() : "";
}

}  // namespace

Result<std::vector<GateGroup>> ReadGateGroups(ResultStore& store) {
  KVG_ASSIGN(const std::vector<StoredCell> cells, store.Cells());
  std::vector<GateGroup> groups;
  std::map<std::string, size_t> place;
  for (const StoredCell& stored : cells) {
    const std::string name = GroupName(stored.cell);
    const size_t at = place.try_emplace(name, groups.size()).first->second;
    if (at == groups.size()) {
      groups.push_back({.name = name,
                        .model = stored.cell.model.name,
                        .task = stored.cell.task.name,
                        .compress_at = stored.cell.compress_at,
                        .task_group = TextOfSpec(stored.cell.task, "group"),
                        .metric = TextOfSpec(stored.cell.task, "metric"),
                        .lower_is_better = stored.cell.task.lower_is_better,
                        .full_cache = stored.cell.method.full_cache,
                        .cells = {}});
    }
    groups[at].cells.push_back(stored);
  }
  return groups;
}

Error NothingInScope(const std::string& path, const std::vector<GateGroup>& groups,
                     const GateScope& scope) {
  KnownScope known;
  for (const GateGroup& group : groups) {
    known.tasks.insert(group.task);
    known.models.insert(group.model);
    known.places.insert(group.compress_at);
  }
  return BadInput(StrCat(path, ": holds nothing of ", AskedAndKnown(scope, known)));
}

const GateGroup* FindGateGroup(const std::vector<GateGroup>& groups, const std::string& name) {
  const auto found = std::ranges::find(groups, name, &GateGroup::name);
  return found == groups.end() ? nullptr : &*found;
}

bool InScope(const GateGroup& group, const GateScope& scope) {
  const bool named = group.task.starts_with(scope.task) || group.task_group == scope.task;
  return named && group.model.starts_with(scope.model) &&
         group.compress_at.starts_with(scope.compress_at);
}

std::string GateObstacle(const GateGroup& a, const GateGroup& b) {
  for (const GateGroup* group : {&a, &b}) {
    std::set<int64_t> seeds;
    for (const StoredCell& cell : group->cells) {
      if (cell.signature_key != group->cells[0].signature_key) {
        return StrCat(group == &a ? "baseline" : "candidate", " holds it under two signatures: ",
                      DifferingSignatureKeys(group->cells[0].cell.signature, cell.cell.signature));
      }
      if (!seeds.insert(cell.cell.seed).second) {
        return StrCat(group == &a ? "baseline" : "candidate", " holds it twice for seed ",
                      cell.cell.seed, ", in different versions");
      }
    }
  }
  if (a.cells[0].signature_key != b.cells[0].signature_key) {
    return StrCat("signatures differ: ",
                  DifferingSignatureKeys(a.cells[0].cell.signature, b.cells[0].cell.signature));
  }
  return "";
}

Result<GatePairs> ReadGatePairs(ResultStore& baseline, const GateGroup& a, ResultStore& candidate,
                                const GateGroup& b) {
  GatePairs result;
  for (const StoredCell& cell : a.cells) {
    KVG_ASSIGN(const std::vector<ScoreRow> rows, baseline.Scores(cell.id));
    std::map<std::string, ScoreRow> others;
    for (const StoredCell& other : b.cells) {
      if (other.cell.seed != cell.cell.seed) continue;
      KVG_ASSIGN(std::vector<ScoreRow> found, candidate.Scores(other.id));
      for (ScoreRow& row : found) others.emplace(row.sample_id, std::move(row));
    }
    for (const ScoreRow& row : rows) {
      const auto other = others.find(row.sample_id);
      if (other == others.end()) {
        ++result.missing;
        continue;
      }
      if (other->second.hash != row.hash) result.differing = row.sample_id;
      result.pairs.push_back({row, other->second});
    }
  }
  return result;
}

}  // namespace kvgauge

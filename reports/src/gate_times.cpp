// SPDX-License-Identifier: Apache-2.0
#include "src/gate_times.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace kvgauge {

Result<GateGrid> ReadGateTimes(ResultStore& store, const std::vector<GateGroup>& groups,
                               const GateGroup& group, double max_others_share) {
  using Key = std::tuple<std::string, int64_t, int64_t>;  // run, context tokens, repetition
  const auto key_of = [](const LatencyRow& r) {
    return Key(r.run_key, r.context_tokens, r.repetition);
  };
  std::map<Key, LatencyRow> full;
  if (!group.full_cache) {
    for (const GateGroup& other : groups) {
      if (!other.full_cache || other.model != group.model || other.task != group.task) continue;
      for (const StoredCell& cell : other.cells) {
        KVG_ASSIGN(const std::vector<LatencyRow> rows, store.Latency(cell.id));
        for (const LatencyRow& row : rows) full.emplace(key_of(row), row);
      }
    }
  }
  std::map<std::string, std::string> machine_of;
  KVG_ASSIGN(const std::vector<StoredRun> runs, store.Runs());
  for (const StoredRun& run : runs) machine_of[run.run.key] = run.run.machine.facts;

  GateGrid grid;
  for (const StoredCell& cell : group.cells) {
    KVG_ASSIGN(const std::vector<LatencyRow> rows, store.Latency(cell.id));
    for (const LatencyRow& row : rows) {
      const auto partner = full.find(key_of(row));
      const double times[] = {row.ttft_s, row.tpot_p50_s};
      const char* const names[] = {"ttft", "tpot"};
      for (int i = 0; i < 2; ++i) {
        if (!(times[i] > 0)) continue;
        GateTimes& t = grid[{names[i], row.context_tokens}];
        t.related = !full.empty();
        double base = 1;
        double share = row.others_share;
        if (t.related) {
          if (partner == full.end()) continue;
          base = i == 0 ? partner->second.ttft_s : partner->second.tpot_p50_s;
          share = std::max(share, partner->second.others_share);
          if (!(base > 0)) continue;
        }
        if (share > max_others_share) {
          ++t.contended;
          continue;
        }
        t.machines.insert(machine_of[row.run_key]);
        t.logs.push_back(std::log(times[i] / base));
        t.by_run[row.run_key].push_back(t.logs.back());
      }
    }
  }
  return grid;
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Stores of cells whose samples' scores and bytes a test gives, and leaderboards of them.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reports/leaderboard.h"
#include "reports/store_fixture.h"

namespace kvgauge {

// What a sample has.
struct Given {
  std::optional<double> score = 1;
  int64_t bytes = 1000;
  SampleStatus status = SampleStatus::kOk;
  EngagementMark engagement = EngagementMark::kEngaged;
  std::optional<double> kl = {};
  int64_t host = 0;  // of the bytes
  bool has_cache = true;
};

inline CellRow Cell(const std::string& method, const std::string& budget = "none",
                    const std::string& task = "needle/single", int64_t seed = 0) {
  CellRow cell;
  cell.identity = StrCat(method, "|", budget, "|", task, "|", seed);
  cell.signature = StrCat(R"({"task":")", task, R"(","template":1})");
  cell.model = {"f00d", "ref-gqa", "{}"};
  cell.method.name = method;
  cell.method.family = "selection";
  cell.method.spec = "{}";
  cell.method.full_cache = method == "full";
  cell.task = {task, 1, "{}"};
  cell.budget = budget;
  cell.seed = seed;
  return cell;
}

// A store that is filled cell by cell. Samples of a cell are named by their number; `content` tells
// contents of equal numbers apart.
class Board {
 public:
  explicit Board(const std::string& name = "a.db", const std::string& run = "r")
      : scratch_("/dev/shm"), store_(MustOpen(scratch_.File(name))) {
    run_ = Must(store_->AddRun(TestRun(run)));
  }

  int64_t Add(const CellRow& cell, int count, const std::function<Given(int)>& give,
              int samples_a_group = 1, const std::string& content = "", int first = 0) {
    const int64_t id = Must(store_->AddCell(cell));
    for (int i = first; i < count; ++i) {
      const Given g = give(i);
      SampleRow s;
      s.cell = id;
      s.run = run_;
      s.sample_id = StrCat(i);
      s.hash = StrCat(content, i);
      s.group = StrCat(i / samples_a_group);
      s.position = i;
      s.status = g.status;
      s.engagement = g.engagement;
      s.kl_divergence = g.kl;
      s.tokens_in = 100;
      if (g.status == SampleStatus::kOk) {
        s.score = g.score;
      } else {
        s.reason = "out of memory";
      }
      MemoryRow memory;
      memory.nominal_bytes = g.bytes - 100;
      memory.payload_bytes = g.bytes;
      memory.resident_bytes = g.bytes + 60;
      memory.full_bytes = 4000;
      memory.host_bytes = g.host;
      if (g.host > 0) s.fetched_per_step = static_cast<double>(i);
      s.memory.push_back(g.has_cache ? memory : MemoryRow{});
      s.answers.push_back({.prediction = "x", .references = {"1"}, .score = s.score});
      Must(store_->Write(s));
    }
    return id;
  }
  void Times(int64_t cell, const std::vector<LatencyRow>& rows) {
    MustOk(store_->WriteLatency(cell, run_, rows));
  }
  LeaderboardModel Make(const LeaderboardOptions& options = {}) {
    ResultStore* const stores[] = {store_.get()};
    return Must(MakeLeaderboard(stores, options));
  }
  ResultStore& get() { return *store_; }

 private:
  ScratchDirectory scratch_;
  std::unique_ptr<ResultStore> store_;
  int64_t run_ = 0;
};

inline const LeaderboardLine& LineOf(const LeaderboardTable& table, const std::string& method,
                                     const std::string& budget = "none") {
  for (const LeaderboardLine& line : table.lines) {
    if (line.method.name == method && line.budget == budget) return line;
  }
  ADD_FAILURE() << "no " << method << " at " << budget;
  return table.lines[0];
}

inline Given Half(int i) { return {.score = i % 2 == 0 ? 1.0 : 0.0, .bytes = 4000}; }

// As Half, with `lost` of the won samples lost.
inline std::function<Given(int)> Losing(int lost, int64_t bytes = 1000) {
  return [lost, bytes](int i) {
    Given g = Half(i);
    if (i < 2 * lost) g.score = 0;
    g.bytes = bytes;
    return g;
  };
}

}  // namespace kvgauge

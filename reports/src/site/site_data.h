// SPDX-License-Identifier: Apache-2.0
// What a site knows: rows as series of points, one of each store that has them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reports/leaderboard.h"
#include "reports/site.h"
#include "reports/statistics.h"
#include "reports/store.h"

namespace kvgauge::site {

struct Source {
  std::string name = {}, date = {}, version = {}, revision = {}, machine = {};
  int64_t runs = 0, cells = 0, samples = 0;
  std::vector<std::string> apart = {};  // tables whose protocol the newest store does not have
};

// A row of one store.
struct Point {
  size_t source = 0;
  int64_t method_version = 1;
  Estimate score = {};
  double reported = 0;
  int64_t samples = 0, scored = 0;
  bool ranked = false;
  std::optional<Evidence> versus_full = {};
  Verdict verdict = Verdict::kUndecided;
  std::string not_ranked = {};
  double logical_ratio = 0, resident_ratio = 0, resident_per_token = 0;  // 0: not measured
  std::optional<double> ttft_ratio = {},
                        tpot_ratio = {};  // at the longest length that was measured alone
};

// From a point to the next.
struct Change {
  size_t from = 0, to = 0;  // of Series::points
  int64_t common = 0;       // samples of both
  Evidence evidence = {};   // positive is better; samples == 0: no sample is common
  double margin = 0;        // differences up to this are equivalent
  double p_adjusted = 1;    // Holm, over all changes of the site
  Verdict verdict = Verdict::kUndecided;
  bool bytes_moved = false;
};

struct Series {
  size_t table = 0;
  MethodRow method = {};
  std::string budget = "none", budget_kind = "none";
  double budget_value = 0;
  std::vector<Point> points = {};    // by source
  std::vector<Change> changes = {};  // of tasks, never of groups

  std::string Name() const;  // "snapkv (score.window=16) 20%"
};

struct Table {
  LeaderboardTable frame;         // without lines
  bool group = false;             // of several tasks
  std::string signature;          // keys, joined
  size_t newest = 0;              // source that has a row of it
  std::vector<size_t> series;     // in the order of the newest store's ranks
  bool current = true;            // it stands today; others have another protocol, or fewer tasks
  std::vector<std::string> text;  // of the signatures
};

// A model at one moment of compression, with the tables that stand today.
struct Board {
  std::string model, fingerprint, compress_at;
  std::vector<size_t> groups, tasks;  // tables, by name
};

class Data {
 public:
  explicit Data(SiteOptions options) : options_(std::move(options)) {}

  Status Add(const std::string& name, ResultStore& store);
  // Corrects and judges the changes, and finds which tables stand today.
  void Finish();

  const SiteOptions& options() const { return options_; }
  const std::vector<Source>& sources() const { return sources_; }
  const std::vector<Table>& tables() const { return tables_; }
  const std::vector<Series>& series() const { return series_; }
  const std::vector<Board>& boards() const { return boards_; }
  // One model's name may stand for several: then its fingerprint tells them apart.
  std::string TitleOf(const Board& board) const;
  std::string TitleOf(const Table& table) const;

 private:
  struct SampleScore {
    uint64_t sample = 0;   // of id, content and seed
    uint64_t cluster = 0;  // of the group
    double score = 0;
  };
  Status AddTables(ResultStore& store, TaskGrouping by,
                   const std::map<std::string, std::string>& signatures);
  Status AddSamples(ResultStore& store, const std::vector<StoredCell>& cells);
  void Compare(Series& series, std::vector<SampleScore>& before,
               std::vector<SampleScore>& now) const;
  void ChooseTables();
  std::string TitleOf(const std::string& model, const std::string& fingerprint,
                      const std::string& compress_at) const;

  SiteOptions options_;
  std::vector<Source> sources_;
  std::vector<Table> tables_;
  std::vector<Series> series_;
  std::vector<Board> boards_;
  std::map<std::string, size_t> table_of_, series_of_;
  std::map<std::string, std::set<std::string>> prints_;  // fingerprints, by the model's name
  std::set<std::string> moments_;                        // of compression
  std::map<size_t, std::vector<SampleScore>> samples_;   // by series, of its newest point
};

}  // namespace kvgauge::site

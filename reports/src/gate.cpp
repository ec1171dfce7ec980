// SPDX-License-Identifier: Apache-2.0
#include "reports/gate.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/json.h"
#include "core/strings.h"
#include "reports/leaderboard.h"

namespace kvgauge {
namespace {

// Cells of one store that belong together.
struct Group {
  std::string name;
  std::string model, task;
  std::string metric;  // of the task
  bool full_cache = false;
  std::vector<StoredCell> cells;  // one a seed
};

std::string GroupName(const CellRow& c) {
  std::vector<std::string> parts = {c.model.name, c.task.name, c.method.name};
  if (!c.method.variant.empty()) parts.push_back(c.method.variant);
  parts.push_back(c.budget);
  parts.push_back(c.compress_at);
  return Join(parts, ", ");
}

std::string MetricOf(const TaskRow& task) {
  const Result<Json> spec = ParseJson(task.spec, "task");
  if (!spec.ok() || !spec->is_object()) return "";
  const auto at = spec->find("metric");
  return at != spec->end() && at->is_string() ? at->get<std::string>() : "";
}

Result<std::vector<Group>> ReadGroups(ResultStore& store) {
  KVG_ASSIGN(const std::vector<StoredCell> cells, store.Cells());
  std::vector<Group> groups;
  std::map<std::string, size_t> place;
  for (const StoredCell& stored : cells) {
    const std::string name = GroupName(stored.cell);
    const size_t at = place.try_emplace(name, groups.size()).first->second;
    if (at == groups.size()) {
      groups.push_back({.name = name,
                        .model = stored.cell.model.name,
                        .task = stored.cell.task.name,
                        .metric = MetricOf(stored.cell.task),
                        .full_cache = stored.cell.method.full_cache,
                        .cells = {}});
    }
    groups[at].cells.push_back(stored);
  }
  return groups;
}

const Group* FindGroup(const std::vector<Group>& groups, const std::string& name) {
  const auto found = std::ranges::find(groups, name, &Group::name);
  return found == groups.end() ? nullptr : &*found;
}

// Why two groups must not be compared; "" when they may.
std::string Obstacle(const Group& a, const Group& b) {
  for (const Group* group : {&a, &b}) {
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

struct Pair {
  ScoreRow a, b;
};

// What the samples of one side add to the sums of a score that is no mean.
struct SetSide {
  std::vector<double> parts;
  size_t size = 0;
  bool even = true;  // all samples have as many

  void Add(const std::vector<double>& more) {
    if (parts.empty()) size = more.size();
    even = even && more.size() == size;
    parts.insert(parts.end(), more.begin(), more.end());
  }
  bool complete(size_t samples) const { return even && size > 0 && parts.size() == samples * size; }
  std::vector<double> sums() const {
    std::vector<double> sums(size, 0.0);
    for (size_t i = 0; i < parts.size(); ++i) sums[i % size] += parts[i];
    return sums;
  }
};

// Samples of both by seed and id, in the baseline's order.
struct Pairs {
  std::vector<Pair> pairs;
  int64_t missing = 0;    // of the baseline's, in the candidate
  std::string differing;  // a sample of other content under the same id; "" for none
};

Result<Pairs> ReadPairs(ResultStore& baseline, const Group& a, ResultStore& candidate,
                        const Group& b) {
  Pairs result;
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

class Gate {
 public:
  Gate(ResultStore& baseline, ResultStore& candidate, const GateMargins& margins,
       const SumScores& set_scores)
      : baseline_(baseline), candidate_(candidate), margins_(margins), set_scores_(set_scores) {}

  Result<GateReport> Run() {
    KVG_ASSIGN(groups_a_, ReadGroups(baseline_));
    KVG_ASSIGN(groups_b_, ReadGroups(candidate_));
    for (const Group& a : groups_a_) {
      const Group* b = FindGroup(groups_b_, a.name);
      if (!b) {
        if (margins_.complete) Refuse(a, "the candidate does not hold it");
        continue;
      }
      const std::string obstacle = Obstacle(a, *b);
      if (!obstacle.empty()) {
        Refuse(a, obstacle);
        continue;
      }
      KVG_TRY(CompareSamples(a, *b));
      KVG_TRY(CompareLatency(a, *b));
    }
    report_.alpha = margins_.alpha;
    Conclude();
    return std::move(report_);
  }

 private:
  GateLine& AddLine(GateMetric metric, const Group& group, const std::string& quantity,
                    double margin) {
    GateLine& line = report_.lines.emplace_back();
    line.metric = metric;
    line.group = group.name;
    line.quantity = quantity;
    line.margin = margin;
    line.relative = metric != GateMetric::kAccuracy;
    settled_.push_back(false);
    return line;
  }

  // The verdict stands, whatever the numbers.
  void Settle(GateLine& line, Verdict verdict, const std::string& reason) {
    line.verdict = verdict;
    line.reason = reason;
    settled_.back() = true;
  }

  void Refuse(const Group& group, const std::string& reason) {
    GateLine& line = AddLine(GateMetric::kAccuracy, group, "score", margins_.accuracy.margin);
    Settle(line, Verdict::kUndecided, reason);
    line.comparable = false;
  }

  Evidence Compare(const std::vector<double>& a, const std::vector<double>& b,
                   const std::vector<std::string>& groups, double reach) const {
    const ResamplingOptions options = {
        .resamples = margins_.resamples, .seed = margins_.seed, .reach = reach};
    return ComparePaired(a, b, ClusterNumbers(groups), margins_.alpha, options);
  }

  Status CompareSamples(const Group& a, const Group& b) {
    KVG_ASSIGN(const Pairs pairs, ReadPairs(baseline_, a, candidate_, b));
    if (!pairs.differing.empty()) {
      Refuse(a, StrCat("sample ", Quoted(pairs.differing), " has another content"));
      return {};
    }
    if (pairs.missing > 0 && margins_.complete) {
      Refuse(a, StrCat("the candidate lacks ", pairs.missing, " of ",
                       pairs.missing + static_cast<int64_t>(pairs.pairs.size()), " samples"));
      return {};
    }
    AddAccuracy(a, pairs.pairs);
    AddBytes(a, pairs.pairs);
    return {};
  }

  void AddAccuracy(const Group& group, const std::vector<Pair>& pairs) {
    std::vector<double> a, b;
    SetSide set_a, set_b;
    std::vector<std::string> clusters;
    int64_t failed = 0, idle = 0;
    bool identical = true;
    for (const Pair& p : pairs) {
      if (p.a.status != SampleStatus::kOk) continue;
      if (p.b.status != SampleStatus::kOk) {
        ++failed;
        continue;
      }
      idle += p.b.engagement == EngagementMark::kNotEngaged &&
                      p.a.engagement != EngagementMark::kNotEngaged
                  ? 1
                  : 0;
      if (!p.a.score || !p.b.score) continue;
      a.push_back(*p.a.score);
      b.push_back(*p.b.score);
      set_a.Add(p.a.parts);
      set_b.Add(p.b.parts);
      clusters.push_back(p.a.group);
      identical = identical && a.back() == b.back() && p.a.answers_key == p.b.answers_key;
    }
    if (a.empty() && failed == 0 && idle == 0) return;  // nothing is scored
    const bool relative = LowerIsBetter(group.metric);
    GateLine& line = AddLine(GateMetric::kAccuracy, group, relative ? group.metric : "score",
                             margins_.accuracy.margin);
    line.relative = relative;
    if (!a.empty()) {
      SumScore score = set_scores_ ? set_scores_(group.metric) : SumScore();
      if (!set_a.complete(a.size()) || !set_b.complete(a.size())) score = {};
      line.baseline = score ? score(set_a.sums()) : Mean(a);
      line.candidate = score ? score(set_b.sums()) : Mean(b);
      double reach = 1.0;
      if (score || relative) {
        reach = 0.0;
        const SumScore seen = !relative ? score : [&](const std::vector<double>& sums) {
          return -std::log(score(sums));
        };
        for (auto* side : {&a, &b}) {
          SetSide& set = side == &a ? set_a : set_b;
          if (score) {
            *side = SetValues(set.parts, set.size, seen);
          } else {
            for (double& value : *side) value = -std::log(value);
          }
        }
      }
      line.evidence = Compare(a, b, clusters, reach);
    }
    if (failed > 0) {
      Settle(line, Verdict::kWorse, StrCat(failed, " samples fail that did not"));
    } else if (idle > 0) {
      Settle(line, Verdict::kWorse,
             StrCat("the method did nothing on ", idle, " samples where it did before"));
    } else if (identical) {
      Settle(line, Verdict::kSame, "all answers are identical");
    }
  }

  void AddBytes(const Group& group, const std::vector<Pair>& pairs) {
    std::vector<double> a, b, bytes_a, bytes_b;
    std::vector<std::string> clusters;
    for (const Pair& p : pairs) {
      if (p.a.status != SampleStatus::kOk || p.b.status != SampleStatus::kOk) continue;
      if (!(p.a.logical_bytes > 0) || !(p.b.logical_bytes > 0)) continue;
      bytes_a.push_back(static_cast<double>(*p.a.logical_bytes));
      bytes_b.push_back(static_cast<double>(*p.b.logical_bytes));
      a.push_back(-std::log(bytes_a.back()));
      b.push_back(-std::log(bytes_b.back()));
      clusters.push_back(p.a.group);
    }
    if (a.empty()) return;
    GateLine& line = AddLine(GateMetric::kBytes, group, "logical bytes", margins_.bytes.margin);
    line.baseline = Mean(bytes_a);
    line.candidate = Mean(bytes_b);
    line.evidence = Compare(a, b, clusters, 0.0);
    if (a == b) Settle(line, Verdict::kSame, "every sample takes the same bytes");
  }

  // Logarithms of one quantity at one context length. `related`: over the full cache's time of the
  // same run, length and repetition.
  struct Times {
    std::map<std::string, std::vector<double>> by_run;
    std::vector<double> logs;  // all of them
    bool related = false;
    std::set<std::string> machines;
    int64_t contended = 0;
  };
  using Grid = std::map<std::pair<std::string, int64_t>, Times>;  // (quantity, context tokens)

  Result<Grid> ReadTimes(ResultStore& store, const std::vector<Group>& groups,
                         const Group& group) const {
    using Key = std::tuple<std::string, int64_t, int64_t>;  // run, context tokens, repetition
    const auto key_of = [](const LatencyRow& r) {
      return Key(r.run_key, r.context_tokens, r.repetition);
    };
    std::map<Key, LatencyRow> full;
    if (!group.full_cache) {
      for (const Group& other : groups) {
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

    Grid grid;
    for (const StoredCell& cell : group.cells) {
      KVG_ASSIGN(const std::vector<LatencyRow> rows, store.Latency(cell.id));
      for (const LatencyRow& row : rows) {
        const auto partner = full.find(key_of(row));
        const double times[] = {row.ttft_s, row.tpot_p50_s};
        const char* const names[] = {"ttft", "tpot"};
        for (int i = 0; i < 2; ++i) {
          if (!(times[i] > 0)) continue;
          Times& t = grid[{names[i], row.context_tokens}];
          t.related = !full.empty();
          double base = 1;
          double share = row.others_share;
          if (t.related) {
            if (partner == full.end()) continue;
            base = i == 0 ? partner->second.ttft_s : partner->second.tpot_p50_s;
            share = std::max(share, partner->second.others_share);
            if (!(base > 0)) continue;
          }
          if (share > margins_.max_others_share) {
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

  static std::vector<double> RunMeans(const Times& times) {
    std::vector<double> means;
    for (const auto& run : times.by_run) means.push_back(Mean(run.second));
    return means;
  }

  // Of logarithms; positive is less time. `drift` widens the interval on either side, and p is that
  // of a difference beyond it.
  static TwoSampleResult CompareTimes(const std::vector<double>& before,
                                      const std::vector<double>& after, double confidence,
                                      double drift) {
    TwoSampleResult result = WelchTest(after, before, confidence);
    if (drift == 0) return result;
    std::vector<double> nearer = before;
    for (double& log : nearer) log += result.difference > 0 ? -drift : drift;
    result.p = std::abs(result.difference) <= drift ? 1 : WelchTest(after, nearer).p;
    result.interval = {result.interval.low - drift, result.interval.high + drift};
    return result;
  }

  Status CompareLatency(const Group& a, const Group& b) {
    KVG_ASSIGN(const Grid before, ReadTimes(baseline_, groups_a_, a));
    KVG_ASSIGN(const Grid after, ReadTimes(candidate_, groups_b_, b));
    for (const auto& [key, x] : before) {
      const auto found = after.find(key);
      if (found == after.end()) continue;
      const Times& y = found->second;
      GateLine& line =
          AddLine(GateMetric::kLatency, a, StrCat(key.first, " at ", key.second, " tokens"),
                  margins_.latency.margin);
      if (x.contended + y.contended > 0) {
        line.reason = StrCat(x.contended + y.contended,
                             " repetitions left out, other programs ran beside them");
      }
      if (x.logs.empty() || y.logs.empty()) continue;
      if (x.related != y.related) {
        Settle(line, Verdict::kUndecided, "only one store timed the full cache beside it");
        continue;
      }
      if (!x.related && (x.machines != y.machines || x.machines.size() != 1)) {
        Settle(line, Verdict::kUndecided, "timed on different machines, without the full cache");
        continue;
      }
      line.baseline = std::exp(Mean(x.logs));
      line.candidate = std::exp(Mean(y.logs));
      const bool runs_tell = std::ssize(x.by_run) >= GateMargins::kDriftRuns &&
                             std::ssize(y.by_run) >= GateMargins::kDriftRuns;
      const bool apart = !x.related && !runs_tell;
      const std::vector<double> before_logs = x.related || apart ? x.logs : RunMeans(x);
      const std::vector<double> after_logs = x.related || apart ? y.logs : RunMeans(y);
      if (apart && line.reason.empty()) line.reason = "absolute, so the machine's drift counts";
      const double drift = apart ? std::log1p(margins_.latency_drift) : 0;
      const TwoSampleResult wide = CompareTimes(before_logs, after_logs, 1 - margins_.alpha, drift);
      const TwoSampleResult narrow =
          CompareTimes(before_logs, after_logs, 1 - 2 * margins_.alpha, drift);
      line.evidence.value = wide.difference;
      line.evidence.interval = wide.interval;
      line.evidence.equivalence = narrow.interval;
      line.evidence.p = wide.p;
      line.evidence.test = "Welch's t of logarithms";
      line.evidence.samples = line.evidence.clusters =
          static_cast<int64_t>(std::min(before_logs.size(), after_logs.size()));
      Estimate estimate;
      estimate.standard_error = wide.standard_error;
      estimate.clusters = line.evidence.clusters;
      line.evidence.detectable = drift + MinimumDetectableEffect(estimate, 0, margins_.alpha);
    }
    return {};
  }

  // Corrects p-values within each metric and decides what is open. What is settled takes no part:
  // a comparison without any difference cannot become a false alarm (Tarone 1990).
  void Conclude() {
    for (const GateMetric metric :
         {GateMetric::kAccuracy, GateMetric::kBytes, GateMetric::kLatency}) {
      std::vector<size_t> at;
      std::vector<double> p_values;
      for (size_t i = 0; i < report_.lines.size(); ++i) {
        const GateLine& line = report_.lines[i];
        if (line.metric != metric || settled_[i] || line.evidence.samples == 0) continue;
        at.push_back(i);
        p_values.push_back(line.evidence.p);
      }
      const std::vector<double> adjusted = HolmAdjust(p_values);
      for (size_t k = 0; k < at.size(); ++k) {
        GateLine& line = report_.lines[at[k]];
        line.p_adjusted = adjusted[k];
        line.verdict = Decide(line.evidence, adjusted[k], LimitsOf(line));
      }
    }
    std::ranges::stable_sort(report_.lines, {}, &GateLine::metric);
  }

  VerdictLimits LimitsOf(const GateLine& line) const {
    const auto relative = [&](const GateMargins::Limits& l) {
      return VerdictLimits{margins_.alpha, std::log1p(l.margin), std::log1p(l.tolerance)};
    };
    if (line.metric == GateMetric::kBytes) return relative(margins_.bytes);
    if (line.metric == GateMetric::kLatency) return relative(margins_.latency);
    if (line.relative) return relative(margins_.accuracy);
    return {margins_.alpha, margins_.accuracy.margin, margins_.accuracy.tolerance};
  }

  static double Mean(const std::vector<double>& values) {
    return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  }

  ResultStore& baseline_;
  ResultStore& candidate_;
  const GateMargins& margins_;
  const SumScores& set_scores_;
  std::vector<Group> groups_a_, groups_b_;
  GateReport report_;
  std::vector<bool> settled_;  // beside report_.lines
};

}  // namespace

std::string_view NameOf(GateMetric metric) {
  switch (metric) {
    case GateMetric::kAccuracy:
      return "accuracy";
    case GateMetric::kBytes:
      return "bytes";
    case GateMetric::kLatency:
      return "latency";
  }
  return "";
}

int64_t GateReport::Count(Verdict verdict) const {
  return std::ranges::count_if(
      lines, [&](const GateLine& l) { return l.comparable && l.verdict == verdict; });
}

int64_t GateReport::NotComparable() const {
  return std::ranges::count_if(lines, [](const GateLine& l) { return !l.comparable; });
}

int GateReport::ExitCode(bool strict) const {
  if (Count(Verdict::kWorse) > 0) return 1;
  if (NotComparable() > 0) return 2;
  return strict && Count(Verdict::kUndecided) > 0 ? 3 : 0;
}

Result<GateReport> CompareStores(ResultStore& baseline, ResultStore& candidate,
                                 const GateMargins& margins, const SumScores& set_scores) {
  KVG_ASSIGN(GateReport report, Gate(baseline, candidate, margins, set_scores).Run());
  if (!report.lines.empty()) return report;
  return BadInput(StrCat(candidate.path(), ": nothing to compare with ", baseline.path(),
                         ", expected cells of the same models, tasks, methods and budgets"));
}

}  // namespace kvgauge

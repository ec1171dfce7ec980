// SPDX-License-Identifier: Apache-2.0
#include "reports/gate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/counted.h"
#include "core/strings.h"
#include "reports/leaderboard.h"
#include "src/distributions.h"
#include "src/gate_times.h"

namespace kvgauge {
namespace {

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

double Mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

std::vector<double> RunMeans(const GateTimes& times) {
  std::vector<double> means;
  for (const auto& run : times.by_run) means.push_back(Mean(run.second));
  return means;
}

// Compares logarithms; positive is less time. `drift` widens the interval on either side, and p
// belongs to a difference beyond it.
TwoSampleResult CompareTimes(const std::vector<double>& before, const std::vector<double>& after,
                             double confidence, double drift) {
  TwoSampleResult result = WelchTest(after, before, confidence);
  if (drift == 0) return result;
  std::vector<double> nearer = before;
  for (double& log : nearer) log += result.difference > 0 ? -drift : drift;
  result.p = std::abs(result.difference) <= drift ? 1 : WelchTest(after, nearer).p;
  result.interval = {result.interval.low - drift, result.interval.high + drift};
  return result;
}

class Gate {
 public:
  Gate(ResultStore& baseline, ResultStore& candidate, const GateMargins& margins,
       const SumScores& set_scores, const GateScope& scope)
      : baseline_(baseline),
        candidate_(candidate),
        margins_(margins),
        set_scores_(set_scores),
        scope_(scope) {}

  Result<GateReport> Run() {
    KVG_ASSIGN(groups_a_, ReadGateGroups(baseline_));
    KVG_ASSIGN(groups_b_, ReadGateGroups(candidate_));
    for (const GateGroup& a : groups_a_) {
      if (!InScope(a, scope_)) continue;
      const GateGroup* b = FindGateGroup(groups_b_, a.name);
      if (!b) {
        if (margins_.complete) Refuse(a, "the candidate does not hold it");
        continue;
      }
      const std::string obstacle = GateObstacle(a, *b);
      if (!obstacle.empty()) {
        Refuse(a, obstacle);
        continue;
      }
      const size_t before = report_.lines.size();
      KVG_TRY(CompareSamples(a, *b));
      KVG_TRY(CompareLatency(a, *b));
      if (report_.lines.size() == before && margins_.complete) {
        Refuse(a, "the baseline holds no samples of it");
      }
    }
    report_.alpha = margins_.alpha;
    Conclude();
    return std::move(report_);
  }

 private:
  GateLine& AddLine(GateMetric metric, const GateGroup& group, const std::string& quantity,
                    const GateMargins::Limits& limits) {
    GateLine& line = report_.lines.emplace_back();
    line.metric = metric;
    line.group = group.name;
    line.quantity = quantity;
    line.margin = limits.margin;
    line.relative = metric != GateMetric::kAccuracy;
    drafts_.push_back({.limits = limits});
    return line;
  }

  // The verdict of the last line stands, whatever the numbers.
  void Settle(GateLine& line, Verdict verdict, const std::string& reason,
              const std::string& remedy = "") {
    line.verdict = verdict;
    line.reason =
        Join(line.reason.empty() ? std::vector{reason} : std::vector{reason, line.reason}, "; ");
    line.remedy = remedy;
    drafts_.back().settled = true;
  }

  void Refuse(GateLine& line, const std::string& reason) {
    Settle(line, Verdict::kUndecided, reason);
    line.comparable = false;
  }
  void Refuse(const GateGroup& group, const std::string& reason) {
    Refuse(AddLine(GateMetric::kAccuracy, group, "score", margins_.accuracy), reason);
  }

  Evidence Compare(const std::vector<double>& a, const std::vector<double>& b,
                   const std::vector<std::string>& groups, double reach) const {
    const ResamplingOptions options = {
        .resamples = margins_.resamples, .seed = margins_.seed, .reach = reach};
    return ComparePaired(a, b, ClusterNumbers(groups), margins_.alpha, options);
  }

  Status CompareSamples(const GateGroup& a, const GateGroup& b) {
    KVG_ASSIGN(const GatePairs pairs, ReadGatePairs(baseline_, a, candidate_, b));
    if (!pairs.differing.empty()) {
      Refuse(a, StrCat("sample ", Quoted(pairs.differing), " has another content"));
      return {};
    }
    if (pairs.missing > 0 && margins_.complete) {
      Refuse(a, StrCat("the candidate lacks ", pairs.missing, " of ",
                       Counted(pairs.missing + std::ssize(pairs.pairs), "sample")));
      return {};
    }
    const auto ok = [](const GatePair& p) { return p.a.status == SampleStatus::kOk; };
    if (!pairs.pairs.empty() && std::ranges::none_of(pairs.pairs, ok)) {
      if (margins_.complete) {
        Refuse(a, StrCat("none of the baseline's ", Counted(std::ssize(pairs.pairs), "sample"),
                         " succeeded (", pairs.pairs[0].a.reason, ")"));
      }
      return {};
    }
    AddAccuracy(a, pairs.pairs);
    AddBytes(a, pairs.pairs, "logical bytes", &ScoreRow::logical_bytes, margins_.bytes);
    AddBytes(a, pairs.pairs, "resident bytes", &ScoreRow::resident_bytes, margins_.resident);
    return {};
  }

  void AddAccuracy(const GateGroup& group, const std::vector<GatePair>& pairs) {
    std::vector<double> a, b;
    SetSide set_a, set_b;
    std::vector<std::string> clusters;
    int64_t failed = 0, idle = 0, unscored = 0, without = 0;
    bool identical = true;
    for (const GatePair& p : pairs) {
      if (p.a.status != SampleStatus::kOk) {
        ++without;
        continue;
      }
      if (p.b.status != SampleStatus::kOk) {
        ++failed;
        continue;
      }
      idle += p.b.engagement == EngagementMark::kNotEngaged &&
                      p.a.engagement != EngagementMark::kNotEngaged
                  ? 1
                  : 0;
      unscored += p.a.score && !p.b.score ? 1 : 0;
      if (!p.a.score || !p.b.score) continue;
      a.push_back(*p.a.score);
      b.push_back(*p.b.score);
      set_a.Add(p.a.parts);
      set_b.Add(p.b.parts);
      clusters.push_back(p.a.group);
      identical = identical && a.back() == b.back() && p.a.answers_key == p.b.answers_key;
    }
    if (a.empty() && failed + idle + unscored == 0) return;  // nothing is scored
    const bool relative = group.lower_is_better;
    GateLine& line =
        AddLine(GateMetric::kAccuracy, group, relative ? group.metric : "score", margins_.accuracy);
    line.relative = relative;
    if (without > 0) {
      line.reason = StrCat(without, " of ", pairs.size(),
                           " samples left out, they did not succeed in the baseline");
    }
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
      Settle(line, Verdict::kWorse,
             StrCat(Counted(failed, "sample"), failed == 1 ? " fails" : " fail", " that did not"));
    } else if (idle > 0) {
      Settle(line, Verdict::kWorse,
             StrCat("the method did nothing on ", Counted(idle, "sample"), " where it did before"));
    } else if (unscored > 0 && margins_.complete) {
      Refuse(line,
             StrCat("the candidate has no score of ", unscored, " of ", pairs.size(), " samples"));
    } else if (identical) {
      Settle(line, Verdict::kSame, "all answers are identical");
    }
  }

  void AddBytes(const GateGroup& group, const std::vector<GatePair>& pairs,
                const std::string& quantity, std::optional<int64_t> ScoreRow::*field,
                const GateMargins::Limits& limits) {
    std::vector<double> a, b, bytes_a, bytes_b;
    std::vector<std::string> clusters;
    int64_t uncounted = 0;
    for (const GatePair& p : pairs) {
      if (p.a.status != SampleStatus::kOk || p.b.status != SampleStatus::kOk) continue;
      if (!(p.a.*field > 0)) continue;
      if (!(p.b.*field > 0)) {
        ++uncounted;
        continue;
      }
      bytes_a.push_back(static_cast<double>(*(p.a.*field)));
      bytes_b.push_back(static_cast<double>(*(p.b.*field)));
      a.push_back(-std::log(bytes_a.back()));
      b.push_back(-std::log(bytes_b.back()));
      clusters.push_back(p.a.group);
    }
    if (uncounted > 0 && margins_.complete) {
      Refuse(AddLine(GateMetric::kBytes, group, quantity, limits),
             StrCat("the candidate did not count them of ", Counted(uncounted, "sample")));
      return;
    }
    if (a.empty()) return;
    GateLine& line = AddLine(GateMetric::kBytes, group, quantity, limits);
    line.baseline = Mean(bytes_a);
    line.candidate = Mean(bytes_b);
    line.evidence = Compare(a, b, clusters, 0.0);
    if (a == b) Settle(line, Verdict::kSame, "every sample takes the same bytes");
  }

  Status CompareLatency(const GateGroup& a, const GateGroup& b) {
    KVG_ASSIGN(const GateGrid before,
               ReadGateTimes(baseline_, groups_a_, a, margins_.max_others_share));
    KVG_ASSIGN(const GateGrid after,
               ReadGateTimes(candidate_, groups_b_, b, margins_.max_others_share));
    for (const auto& [key, x] : before) {
      const auto found = after.find(key);
      const std::string quantity = StrCat(key.first, " at ", key.second, " tokens");
      if (found == after.end()) {
        if (margins_.complete) {
          Refuse(AddLine(GateMetric::kLatency, a, quantity, margins_.latency),
                 "the candidate does not hold such times");
        }
        continue;
      }
      const GateTimes& y = found->second;
      GateLine& line = AddLine(GateMetric::kLatency, a, quantity, margins_.latency);
      line.over_full = x.related;
      const int64_t contended = x.contended + y.contended;
      if (x.logs.empty() || y.logs.empty()) {
        const GateTimes& bare = x.logs.empty() ? x : y;
        const char* const side = x.logs.empty() ? "baseline" : "candidate";
        if (bare.contended > 0) {
          Settle(
              line, Verdict::kUndecided,
              StrCat("all repetitions of the ", side, " left out, other programs ran beside them"),
              "a quieter machine");
        } else {
          Settle(line, Verdict::kUndecided,
                 StrCat("the ", side, " did not time the full cache beside it"),
                 "times of the full cache");
        }
        continue;
      }
      if (contended > 0) {
        line.reason =
            StrCat(Counted(contended, "repetition"), " left out, other programs ran beside ",
                   contended == 1 ? "it" : "them");
      }
      if (x.related != y.related) {
        Settle(line, Verdict::kUndecided, "only one store timed the full cache beside it",
               "times of the full cache");
        continue;
      }
      if (!x.related && (x.machines != y.machines || x.machines.size() != 1)) {
        Settle(line, Verdict::kUndecided, "timed on different machines, without the full cache",
               "one machine for both");
        continue;
      }
      line.baseline = std::exp(Mean(x.logs));
      line.candidate = std::exp(Mean(y.logs));
      const bool runs_tell = std::ssize(x.by_run) >= GateMargins::kDriftRuns &&
                             std::ssize(y.by_run) >= GateMargins::kDriftRuns;
      const bool apart = !x.related && !runs_tell;
      const std::vector<double> before_logs = x.related || apart ? x.logs : RunMeans(x);
      const std::vector<double> after_logs = x.related || apart ? y.logs : RunMeans(y);
      line.evidence.samples = line.evidence.clusters =
          static_cast<int64_t>(std::min(before_logs.size(), after_logs.size()));
      if (line.evidence.samples < LatencyRow::kLeastRepetitions) {
        line.evidence.value = Mean(before_logs) - Mean(after_logs);
        line.evidence.interval = {-kInfinity, kInfinity};
        line.evidence.detectable = kInfinity;
        Settle(line, Verdict::kUndecided,
               StrCat("too few repetitions: ", before_logs.size(), " and ", after_logs.size(), ", ",
                      LatencyRow::kLeastRepetitions, " each are the least"),
               contended > 0 ? "a quieter machine" : "more repetitions");
        continue;
      }
      if (apart && line.reason.empty()) line.reason = "absolute, so the machine's drift counts";
      line.remedy = apart           ? "three runs in each database"
                    : !x.related    ? "more runs"
                    : contended > 0 ? "more repetitions on a quieter machine"
                                    : "more repetitions";
      const double drift = apart ? std::log1p(margins_.latency_drift) : 0;
      const TwoSampleResult wide = CompareTimes(before_logs, after_logs, 1 - margins_.alpha, drift);
      const TwoSampleResult narrow =
          CompareTimes(before_logs, after_logs, 1 - 2 * margins_.alpha, drift);
      line.evidence.value = wide.difference;
      line.evidence.interval = wide.interval;
      line.evidence.equivalence = narrow.interval;
      line.evidence.p = wide.p;
      line.evidence.test = "Welch's t of logarithms";
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
        if (line.metric != metric || drafts_[i].settled || line.evidence.samples == 0) continue;
        at.push_back(i);
        p_values.push_back(line.evidence.p);
      }
      const std::vector<double> adjusted = HolmAdjust(p_values);
      for (size_t k = 0; k < at.size(); ++k) {
        GateLine& line = report_.lines[at[k]];
        line.p_adjusted = adjusted[k];
        line.verdict = Decide(line.evidence, adjusted[k], LimitsOf(line, drafts_[at[k]].limits));
        if (line.verdict != Verdict::kUndecided) {
          line.remedy.clear();
        } else if (line.remedy.empty()) {
          line.remedy = "more samples or a wider margin";
        }
      }
    }
    std::ranges::stable_sort(report_.lines, {}, &GateLine::metric);
  }

  VerdictLimits LimitsOf(const GateLine& line, const GateMargins::Limits& l) const {
    if (!line.relative) return {margins_.alpha, l.margin, l.tolerance};
    return {margins_.alpha, std::log1p(l.margin), std::log1p(l.tolerance)};
  }

  ResultStore& baseline_;
  ResultStore& candidate_;
  const GateMargins& margins_;
  const SumScores& set_scores_;
  const GateScope& scope_;
  std::vector<GateGroup> groups_a_, groups_b_;
  GateReport report_;
  struct Draft {
    GateMargins::Limits limits;
    bool settled = false;
  };
  std::vector<Draft> drafts_;  // beside report_.lines
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
                                 const GateMargins& margins, const SumScores& set_scores,
                                 const GateScope& scope) {
  KVG_ASSIGN(GateReport report, Gate(baseline, candidate, margins, set_scores, scope).Run());
  if (!report.lines.empty()) return report;
  KVG_ASSIGN(const std::vector<GateGroup> held, ReadGateGroups(baseline));
  if (!held.empty() &&
      std::ranges::none_of(held, [&](const GateGroup& group) { return InScope(group, scope); })) {
    return NothingInScope(baseline.path(), held, scope);
  }
  return BadInput(StrCat(candidate.path(), ": nothing to compare with ", baseline.path(),
                         ", expected cells of the same models, tasks, methods and budgets"));
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "reports/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "core/files.h"
#include "core/json.h"
#include "core/rng.h"
#include "reports/store_fixture.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Measured {
  double score = 1;
  int64_t bytes = 1000;
  int64_t resident = 0;
  SampleStatus status = SampleStatus::kOk;
  EngagementMark engagement = EngagementMark::kEngaged;
  bool scored = true;
};

// A store in memory-backed scratch space, filled cell by cell.
class GateStore {
 public:
  GateStore(const ScratchDirectory& scratch, const std::string& name)
      : store_(MustOpen(scratch.File(name))), run_(Must(store_->AddRun(TestRun(name)))) {}

  int64_t Cell(int64_t c, const std::function<void(CellRow&)>& change = {}) {
    CellRow cell = TestCell(c);
    if (change) change(cell);
    return Must(store_->AddCell(cell));
  }
  void Samples(int64_t cell, int count, const std::function<Measured(int)>& measure,
               int samples_a_group = 1) {
    for (int i = 0; i < count; ++i) {
      const Measured m = measure(i);
      SampleRow s;
      s.cell = cell;
      s.run = run_;
      s.sample_id = StrCat(i);
      s.group = StrCat(i / samples_a_group);
      s.position = i;
      s.status = m.status;
      s.engagement = m.engagement;
      if (m.status == SampleStatus::kOk) {
        if (m.scored) s.score = m.score;
      } else {
        s.reason = "out of memory";
      }
      MemoryRow memory;
      memory.full_bytes = 4000;
      memory.payload_bytes = m.bytes;
      memory.resident_bytes = m.resident;
      s.memory.push_back(memory);
      s.answers.push_back({.prediction = StrCat(m.score), .references = {"1"}, .score = s.score});
      Must(store_->Write(s));
    }
  }
  void Times(int64_t cell, int count, const std::function<double(int)>& tpot_s,
             double others_share = 0) {
    std::vector<LatencyRow> rows(static_cast<size_t>(count));
    for (int i = 0; i < count; ++i) {
      rows[static_cast<size_t>(i)].repetition = i;
      rows[static_cast<size_t>(i)].context_tokens = 4096;
      rows[static_cast<size_t>(i)].tpot_p50_s = tpot_s(i);
      rows[static_cast<size_t>(i)].others_share = others_share;
    }
    MustOk(store_->WriteLatency(cell, run_, rows));
  }
  // What follows is of another run.
  void NextRun(const std::string& key) { run_ = Must(store_->AddRun(TestRun(key))); }
  ResultStore& get() { return *store_; }

 private:
  std::unique_ptr<ResultStore> store_;
  int64_t run_;
};

Measured Plain(int i) { return {.score = i % 2 == 0 ? 1.0 : 0.0, .bytes = 1000 + i}; }

TEST(Gate, MarginsAreChecked) {
  const auto parse = [](const char* text) {
    return ParseGateMargins(Must(ParseJson(text, "m.json")), "m.json");
  };
  const GateMargins m = Must(parse(
      R"({"alpha": 0.1, "complete": false, "seed": 3, "accuracy": {"margin": 0.02},
          "latency": {"tolerance": 0.03, "drift": 0.3, "max_others_share": 0.5}})"));
  EXPECT_EQ(m.alpha, 0.1);
  EXPECT_FALSE(m.complete);
  EXPECT_EQ(m.seed, 3u);
  EXPECT_EQ(m.accuracy.margin, 0.02);
  EXPECT_EQ(m.bytes.margin, 0.0);
  EXPECT_EQ(m.resident.margin, 0.005);
  EXPECT_EQ(m.latency.margin, 0.05);
  EXPECT_EQ(m.latency.tolerance, 0.03);
  EXPECT_EQ(m.max_others_share, 0.5);
  EXPECT_EQ(m.latency_drift, 0.3);
  EXPECT_THAT(parse(R"({"acuracy": {}})").error().message,
              AllOf(HasSubstr("m.json: unknown key"), HasSubstr("did you mean 'accuracy'")));
  EXPECT_THAT(parse(R"({"bytes": {"margin": 2}})").error().message,
              HasSubstr("m.json: key 'bytes': key 'margin': 2, expected a number from 0 to 1"));
  EXPECT_THAT(parse(R"({"alpha": "x"})").error().message, HasSubstr("expected a number"));
  EXPECT_THAT(parse(R"({"complete": 1})").error().message, HasSubstr("true or false"));
  EXPECT_THAT(parse("[]").error().message, HasSubstr("expected an object"));
  EXPECT_THAT(ReadGateMargins("/no/margins.json").error().message, HasSubstr("/no/margins.json"));
}

TEST(Gate, AStoreIsTheSameAsItself) {
  const ScratchDirectory scratch("/dev/shm");
  GateStore a(scratch, "a.db");
  a.Samples(a.Cell(0), 20, Plain);
  a.Samples(a.Cell(2), 20, Plain);
  const GateReport report = Must(CompareStores(a.get(), a.get(), {}));
  EXPECT_EQ(report.lines.size(), 4u);
  EXPECT_EQ(report.Count(Verdict::kSame), 4);
  EXPECT_EQ(report.ExitCode(true), 0);
  EXPECT_EQ(report.lines[0].group, "ref-gqa, needle/single, full, none, prompt");
  EXPECT_EQ(report.lines[0].reason, "all answers are identical");
}

TEST(Gate, ByHand) {
  const ScratchDirectory scratch("/dev/shm");
  GateStore a(scratch, "a.db"), b(scratch, "b.db");
  a.Samples(a.Cell(1), 400, Plain);
  a.Samples(a.Cell(2), 400, Plain);
  b.Samples(b.Cell(1), 400, [](int i) {
    Measured m = Plain(i);
    if (i % 2 == 0 && i < 16) m.score = 0;
    m.bytes = m.bytes * 102 / 100;
    return m;
  });
  b.Samples(b.Cell(2), 400, [](int i) {
    Measured m = Plain(i);
    if (i < 40) m.score = 1 - m.score;
    m.bytes = m.bytes / 2;
    return m;
  });
  const GateReport report = Must(CompareStores(a.get(), b.get(), {}));
  ASSERT_EQ(report.lines.size(), 4u);
  const GateLine& worse = report.lines[0];
  EXPECT_EQ(worse.verdict, Verdict::kWorse);
  EXPECT_EQ(worse.baseline, 0.5);
  EXPECT_EQ(worse.candidate, 0.48);
  EXPECT_EQ(worse.evidence.test, "exact McNemar");
  EXPECT_NEAR(worse.p_adjusted, 2 * 2.0 / 256, 1e-12);
  const GateLine& open = report.lines[1];
  EXPECT_EQ(open.verdict, Verdict::kUndecided);
  EXPECT_EQ(open.evidence.p, 1.0);
  EXPECT_GT(open.evidence.detectable, 0.03);
  EXPECT_EQ(report.lines[2].metric, GateMetric::kBytes);
  EXPECT_EQ(report.lines[2].verdict, Verdict::kWorse);
  EXPECT_NEAR(report.lines[2].evidence.value, -std::log(1.02), 1e-3);
  EXPECT_EQ(report.lines[3].verdict, Verdict::kBetter);
  EXPECT_EQ(report.ExitCode(false), 1);

  const std::string markdown = GateMarkdown(report);
  EXPECT_THAT(markdown, HasSubstr("## Gate: 2 WORSE, 1 UNDECIDED, 1 BETTER, 0 SAME"));
  EXPECT_THAT(markdown, HasSubstr("| WORSE | score | ref-gqa, needle/single, snapkv, 10%, prompt "
                                  "| 50.00 | 48.00 | -2.00 ["));
  EXPECT_THAT(markdown, HasSubstr("-50.0"));
  const std::string xml = GateJUnit(report);
  EXPECT_THAT(xml, HasSubstr(R"(tests="4" failures="2" errors="0" skipped="1")"));
  EXPECT_THAT(xml, HasSubstr(R"(<failure message="WORSE: 50.00 to 48.00, change -2.00 [)"));
}

TEST(Gate, WhatFailsOrIdlesIsWorse) {
  const ScratchDirectory scratch("/dev/shm");
  GateStore a(scratch, "a.db"), b(scratch, "b.db");
  a.Samples(a.Cell(1), 30, Plain);
  a.Samples(a.Cell(2), 30, Plain);
  b.Samples(b.Cell(1), 30, [](int i) {
    Measured m = Plain(i);
    if (i < 3) m.status = SampleStatus::kFailed;
    return m;
  });
  b.Samples(b.Cell(2), 30, [](int i) {
    Measured m = Plain(i);
    m.engagement = EngagementMark::kNotEngaged;
    return m;
  });
  const GateReport report = Must(CompareStores(a.get(), b.get(), {}));
  EXPECT_EQ(report.lines[0].verdict, Verdict::kWorse);
  EXPECT_EQ(report.lines[0].reason, "3 samples fail that did not");
  EXPECT_EQ(report.lines[1].verdict, Verdict::kWorse);
  EXPECT_THAT(report.lines[1].reason, HasSubstr("did nothing on 30 samples"));
  // The other way round both are gains, which the gate has no quarrel with.
  EXPECT_EQ(Must(CompareStores(b.get(), a.get(), {})).ExitCode(false), 0);
}

TEST(Gate, WhatCannotBeComparedIsSaid) {
  const ScratchDirectory scratch("/dev/shm");
  GateStore a(scratch, "a.db");
  a.Samples(a.Cell(1), 10, Plain);
  const auto reason = [&](GateStore& b, bool complete = true) {
    const GateReport report = Must(CompareStores(a.get(), b.get(), {.complete = complete}));
    EXPECT_EQ(report.NotComparable(), 1);
    EXPECT_EQ(report.ExitCode(false), 2);
    EXPECT_THAT(GateJUnit(report), HasSubstr("<error message=\"NOT COMPARABLE"));
    return report.lines[0].reason;
  };
  GateStore signature(scratch, "signature.db");
  signature.Samples(
      signature.Cell(1, [](CellRow& c) { c.signature = R"({"bos":1,"template":2})"; }), 10, Plain);
  EXPECT_THAT(reason(signature),
              AllOf(HasSubstr("signatures differ"), HasSubstr("bos"), HasSubstr("template")));

  GateStore twice(scratch, "twice.db");
  twice.Samples(twice.Cell(1), 10, Plain);
  twice.Cell(1, [](CellRow& c) { c.identity = R"({"other":1})"; });
  EXPECT_THAT(reason(twice), HasSubstr("candidate holds it twice for seed 0"));

  GateStore fewer(scratch, "fewer.db");
  fewer.Samples(fewer.Cell(1), 4, Plain);
  EXPECT_EQ(reason(fewer), "the candidate lacks 6 of 10 samples");
  EXPECT_EQ(Must(CompareStores(a.get(), fewer.get(), {.complete = false})).ExitCode(false), 0);

  GateStore none(scratch, "none.db");
  EXPECT_EQ(reason(none), "the candidate does not hold it");
  const auto nothing = CompareStores(a.get(), none.get(), {.complete = false});
  ASSERT_FALSE(nothing.ok());
  EXPECT_THAT(nothing.error().message, HasSubstr("nothing to compare"));
}

// What the baseline holds and the candidate does not must not pass for what is the same.
TEST(Gate, MissingTimesCannotBeCompared) {
  const ScratchDirectory scratch("/dev/shm");
  GateStore a(scratch, "a.db"), none(scratch, "none.db"), one(scratch, "one.db");
  const auto time = [](int i) { return 0.01 + 0.0001 * i; };
  for (GateStore* store : {&a, &none, &one}) {
    for (int c = 0; c < 2; ++c) {
      const int64_t cell = store->Cell(c);
      store->Samples(cell, 20, Plain);
      if (store == &a || (store == &one && c == 0)) store->Times(cell, 6, time);
    }
  }
  GateReport report = Must(CompareStores(a.get(), none.get(), {}));
  EXPECT_EQ(report.NotComparable(), 2);
  EXPECT_EQ(report.ExitCode(false), 2);
  EXPECT_EQ(report.lines.back().reason, "the candidate does not hold such times");
  EXPECT_EQ(report.lines.back().quantity, "tpot at 4096 tokens");
  report = Must(CompareStores(a.get(), one.get(), {}));
  EXPECT_EQ(report.NotComparable(), 1);
  EXPECT_EQ(report.lines.back().group, "ref-gqa, needle/single, snapkv, 10%, prompt");
  report = Must(CompareStores(a.get(), none.get(), {.complete = false}));
  EXPECT_EQ(report.ExitCode(true), 0);
  EXPECT_EQ(report.lines.size(), 4u);
  // Times of the candidate alone are news, no loss.
  EXPECT_EQ(Must(CompareStores(none.get(), a.get(), {})).ExitCode(true), 0);
}

TEST(Gate, ABaselineOfFailuresCannotBeCompared) {
  const ScratchDirectory scratch("/dev/shm");
  GateStore a(scratch, "a.db"), b(scratch, "b.db");
  const auto failing = [](int below) {
    return [below](int i) {
      Measured m = Plain(i);
      if (i < below) m.status = SampleStatus::kFailed;
      return m;
    };
  };
  a.Samples(a.Cell(0), 20, Plain);
  a.Samples(a.Cell(1), 20, failing(20));
  a.Samples(a.Cell(2), 20, failing(3));
  a.Cell(3);
  for (int c = 0; c < 4; ++c) b.Samples(b.Cell(c), 20, Plain);
  const GateReport report = Must(CompareStores(a.get(), b.get(), {}));
  EXPECT_EQ(report.ExitCode(false), 2);
  EXPECT_EQ(report.NotComparable(), 2);
  EXPECT_EQ(report.lines[1].reason, "none of the baseline's 20 samples succeeded (out of memory)");
  EXPECT_EQ(report.lines[2].verdict, Verdict::kSame);
  EXPECT_EQ(report.lines[2].reason,
            "all answers are identical; 3 of 20 samples left out, they did not succeed in the "
            "baseline");
  EXPECT_EQ(report.lines[3].reason, "the baseline holds no samples of it");
  EXPECT_EQ(Must(CompareStores(a.get(), b.get(), {.complete = false})).ExitCode(true), 0);
}

TEST(Gate, ScoresAndBytesThatAreGoneCannotBeCompared) {
  const ScratchDirectory scratch("/dev/shm");
  GateStore a(scratch, "a.db"), b(scratch, "b.db");
  a.Samples(a.Cell(1), 20, Plain);
  b.Samples(b.Cell(1), 20, [](int i) {
    Measured m = Plain(i);
    m.scored = i > 0;
    if (i < 2) m.bytes = 0;
    return m;
  });
  const GateReport report = Must(CompareStores(a.get(), b.get(), {}));
  ASSERT_EQ(report.lines.size(), 2u);
  EXPECT_EQ(report.lines[0].reason, "the candidate has no score of 1 of 20 samples");
  EXPECT_EQ(report.lines[1].reason, "the candidate did not count them of 2 samples");
  EXPECT_EQ(report.ExitCode(false), 2);
  EXPECT_EQ(Must(CompareStores(a.get(), b.get(), {.complete = false})).ExitCode(true), 0);
}

// 40 samples of 100 KB with 256 B more each: 0.26%, and no chance.
TEST(Gate, LogicalBytesAreExactAndResidentOnesComeInPages) {
  const ScratchDirectory scratch("/dev/shm");
  GateStore a(scratch, "a.db"), b(scratch, "b.db");
  const auto sized = [](int64_t more) {
    return [more](int i) {
      Measured m = Plain(i);
      m.bytes = 100000 + i + more;
      m.resident = 120000 + more;
      return m;
    };
  };
  a.Samples(a.Cell(1), 40, sized(0));
  b.Samples(b.Cell(1), 40, sized(256));
  GateReport report = Must(CompareStores(a.get(), b.get(), {}));
  ASSERT_EQ(report.lines.size(), 3u);
  EXPECT_EQ(report.lines[1].quantity, "logical bytes");
  EXPECT_EQ(report.lines[1].verdict, Verdict::kWorse);
  EXPECT_EQ(report.lines[2].quantity, "resident bytes");
  EXPECT_EQ(report.lines[2].verdict, Verdict::kSame);
  GateMargins margins;
  margins.bytes.margin = 0.005;
  margins.resident.margin = 0.001;
  report = Must(CompareStores(a.get(), b.get(), margins));
  EXPECT_EQ(report.lines[1].verdict, Verdict::kSame);
  EXPECT_EQ(report.lines[2].verdict, Verdict::kWorse);
}

TEST(Gate, FewRepetitionsMakeNoInterval) {
  const ScratchDirectory scratch("/dev/shm");
  GateStore a(scratch, "a.db"), b(scratch, "b.db");
  for (int c = 0; c < 2; ++c) {
    a.Times(a.Cell(c), 2, [](int i) { return i == 0 ? 0.001 : 0.1; });
    b.Times(b.Cell(c), 2, [](int i) { return i == 0 ? 0.002 : 0.1; });
  }
  const GateReport report = Must(CompareStores(a.get(), b.get(), {}));
  for (const GateLine& line : report.lines) {
    EXPECT_EQ(line.verdict, Verdict::kUndecided);
    EXPECT_EQ(line.reason, "too few repetitions: 2 and 2, 3 each are the least");
    EXPECT_EQ(Describe(line).interval, "");
  }
  EXPECT_EQ(GateRemedies(report), "2 need more repetitions");
}

TEST(Gate, TimesSayWhatTheyAreMeasuredIn) {
  const ScratchDirectory scratch("/dev/shm");
  GateStore a(scratch, "a.db");
  a.Times(a.Cell(0), 6, [](int i) { return 0.02 + 0.0001 * i; });
  a.Times(a.Cell(1), 6, [](int i) { return (0.02 + 0.0001 * i) / 2; });
  const GateReport report = Must(CompareStores(a.get(), a.get(), {}));
  ASSERT_EQ(report.lines.size(), 2u);
  EXPECT_EQ(Describe(report.lines[0]).baseline, "20.25 ms");
  EXPECT_EQ(Describe(report.lines[1]).baseline, "0.500x");
}

TEST(Gate, AScopeLeavesTheOthersOut) {
  const ScratchDirectory scratch("/dev/shm");
  GateStore a(scratch, "a.db"), b(scratch, "b.db");
  const auto multi = [](CellRow& c) {
    c.identity += "multi";
    c.task = {"needle/multi", 1, R"({"group":"needles"})"};
  };
  for (GateStore* store : {&a, &b}) store->Samples(store->Cell(1), 20, Plain);
  a.Samples(a.Cell(1, multi), 20, Plain);
  const auto lines = [&](const GateScope& scope) {
    return Must(CompareStores(a.get(), b.get(), {}, {}, scope)).lines.size();
  };
  EXPECT_EQ(lines({}), 3u) << "the candidate lacks needle/multi";
  EXPECT_EQ(lines({.task = "needle/s"}), 2u);
  EXPECT_EQ(lines({.task = "needles"}), 1u);
  EXPECT_EQ(lines({.model = "ref", .compress_at = "prompt"}), 3u);
  const auto nothing = CompareStores(a.get(), b.get(), {}, {}, {.task = "needle/mutli"});
  ASSERT_FALSE(nothing.ok());
  EXPECT_THAT(nothing.error().message,
              HasSubstr("holds nothing of task 'needle/mutli' (did you mean 'needle/multi'?)"));
}

TEST(Gate, TimesAreRelatedToTheFullCache) {
  const ScratchDirectory scratch("/dev/shm");
  GateStore a(scratch, "a.db"), b(scratch, "b.db");
  const auto noise = [](int i) { return 1 + 0.01 * std::sin(7.0 * i); };
  // The whole of b's machine is twice as slow; the method itself is 10% slower.
  a.Times(a.Cell(0), 10, [&](int i) { return 0.020 * noise(i); });
  a.Times(a.Cell(1), 10, [&](int i) { return 0.010 * noise(i + 3); });
  b.Times(b.Cell(0), 10, [&](int i) { return 0.040 * noise(i + 5); });
  b.Times(b.Cell(1), 10, [&](int i) { return 0.022 * noise(i + 9); });
  const GateReport report = Must(CompareStores(a.get(), b.get(), {}));
  ASSERT_EQ(report.lines.size(), 2u);
  EXPECT_EQ(report.lines[0].quantity, "tpot at 4096 tokens");
  EXPECT_EQ(report.lines[0].verdict, Verdict::kWorse) << "the full cache, beyond any drift";
  EXPECT_NEAR(report.lines[0].candidate, 0.040, 0.001);
  EXPECT_EQ(report.lines[1].verdict, Verdict::kWorse);
  EXPECT_NEAR(report.lines[1].baseline, 0.5, 0.01);
  EXPECT_NEAR(report.lines[1].candidate, 0.55, 0.01);
  EXPECT_NEAR(report.lines[1].evidence.value, -std::log(1.1), 0.01);
  EXPECT_THAT(GateMarkdown(report), HasSubstr("| +10."));
}

// The full cache is timed beside nothing: what a machine does between two runs must not look like a
// change of the program, and three runs each tell how much that is.
TEST(Gate, AbsoluteTimesAllowForDrift) {
  const ScratchDirectory scratch("/dev/shm");
  int stores = 0;
  const auto line = [&](double scale, int runs, const GateMargins& margins) {
    GateStore a(scratch, StrCat("a", stores)), b(scratch, StrCat("b", stores));
    ++stores;
    const auto fill = [&](GateStore& store, double level) {
      const int64_t cell = store.Cell(0);
      for (int run = 0; run < runs; ++run) {
        if (run > 0) store.NextRun(StrCat(stores, level, run));
        const double drift = 1 + 0.02 * run;
        store.Times(cell, 6, [&](int i) { return level * drift * (1 + 0.001 * i); });
      }
    };
    fill(a, 0.010);
    fill(b, 0.010 * scale);
    return Must(CompareStores(a.get(), b.get(), margins)).lines[0];
  };
  for (const double scale : {0.9, 1.0, 1.15}) {
    EXPECT_EQ(line(scale, 1, {}).verdict, Verdict::kUndecided) << scale;
  }
  EXPECT_EQ(line(1.3, 1, {}).verdict, Verdict::kWorse);
  EXPECT_EQ(line(0.7, 1, {}).verdict, Verdict::kBetter);
  EXPECT_THAT(line(1.1, 1, {}).reason, HasSubstr("drift"));
  EXPECT_GT(line(1.1, 1, {}).evidence.detectable, std::log(1.2));
  GateMargins still;
  still.latency_drift = 0;
  EXPECT_EQ(line(1.15, 1, still).verdict, Verdict::kWorse);
  EXPECT_EQ(line(1.0, 1, still).verdict, Verdict::kSame);
  still.latency.tolerance = 0;
  still.latency_drift = 0.2;
  EXPECT_EQ(line(1.15, 1, still).verdict, Verdict::kUndecided) << "p knows of the drift, too";
  EXPECT_EQ(line(1.15, 3, {}).verdict, Verdict::kWorse) << "runs differ by 2% to 4%";
  EXPECT_EQ(line(1.03, 3, {}).verdict, Verdict::kUndecided);
  EXPECT_EQ(line(1.15, 3, {}).evidence.samples, 3);
}

TEST(Gate, ContendedTimesSayNothing) {
  const ScratchDirectory scratch("/dev/shm");
  GateStore a(scratch, "a.db"), b(scratch, "b.db");
  a.Times(a.Cell(0), 10, [](int i) { return 0.02 + 0.0001 * i; });
  b.Times(
      b.Cell(0), 10, [](int i) { return 0.04 + 0.0001 * i; }, 0.5);
  const GateReport report = Must(CompareStores(a.get(), b.get(), {}));
  EXPECT_EQ(report.lines[0].verdict, Verdict::kUndecided);
  EXPECT_EQ(report.lines[0].reason,
            "all repetitions of the candidate left out, other programs ran beside them");
  EXPECT_EQ(GateRemedies(report), "1 needs a quieter machine");
  EXPECT_EQ(report.ExitCode(false), 0);
  EXPECT_EQ(report.ExitCode(true), 3);
}

// 100 comparisons of equals: scores of which 5% change, times with 3% of noise on machines whose
// speed drifts by 8% from run to run.
TEST(GateSimulation, EqualsAreRarelyWorse) {
  const ScratchDirectory scratch("/dev/shm");
  Rng rng(11, 1);
  const auto fill = [&](GateStore& store) {
    double speed = 1;
    for (int c = 0; c < 2; ++c) {
      const int64_t cell = store.Cell(c);
      store.Samples(cell, 100, [&](int i) {
        Measured m = Plain(i);
        if (rng.NextBelow(20) == 0) m.score = 1 - m.score;
        return m;
      });
      // A machine that is faster today; 3% of noise in what is left.
      const double drift = c == 0 ? std::exp(0.08 * rng.NextGaussian()) : speed;
      speed = drift;
      store.Times(cell, 10,
                  [&](int) { return 0.01 * drift * std::exp(0.03 * rng.NextGaussian()); });
    }
  };
  GateMargins margins;
  margins.resamples = 200;
  int worse = 0;
  for (int trial = 0; trial < 100; ++trial) {
    GateStore a(scratch, StrCat("a", trial)), b(scratch, StrCat("b", trial));
    fill(a);
    fill(b);
    worse += Must(CompareStores(a.get(), b.get(), margins)).ExitCode(false) == 1 ? 1 : 0;
  }
  EXPECT_LE(worse, 5);
  RecordProperty("false_worse_of_100", worse);
}

// A loss of 2 points at n = 400 (8 samples, and one more that changes either way), 1% more bytes
// and 10% more time are found, each by itself.
TEST(GateSimulation, PlantedRegressionsAreFound) {
  const ScratchDirectory scratch("/dev/shm");
  Rng rng(12, 1);
  GateStore a(scratch, "a");
  const int64_t cell_a = a.Cell(1);
  const auto time = [&](double scale) {
    return [&rng, scale](int) { return scale * std::exp(0.03 * rng.NextGaussian()); };
  };
  a.Samples(cell_a, 400, Plain);
  a.Times(a.Cell(0), 12, time(0.02));
  a.Times(cell_a, 12, time(0.01));
  GateMargins margins;
  margins.resamples = 200;
  int found[3] = {};
  for (int trial = 0; trial < 100; ++trial) {
    GateStore b(scratch, StrCat("b", trial));
    const int64_t cell = b.Cell(1);
    const auto first = static_cast<int>(2 * rng.NextBelow(180));
    b.Samples(cell, 400, [&](int i) {
      Measured m = Plain(i);
      if (i % 2 == 0 && first <= i && i < first + 18) m.score = 0;
      if (i == first + 1) m.score = 1;
      m.bytes += 8 + static_cast<int64_t>(rng.NextBelow(8));
      return m;
    });
    b.Times(b.Cell(0), 12, time(0.02));
    b.Times(cell, 12, time(0.011));
    const GateReport report = Must(CompareStores(a.get(), b.get(), margins));
    for (const GateLine& line : report.lines) {
      found[static_cast<int>(line.metric)] += line.verdict == Verdict::kWorse ? 1 : 0;
    }
  }
  EXPECT_GE(found[0], 95);
  EXPECT_GE(found[1], 95);
  EXPECT_GE(found[2], 95);
  RecordProperty("found_accuracy", found[0]);
  RecordProperty("found_bytes", found[1]);
  RecordProperty("found_latency", found[2]);
}

}  // namespace
}  // namespace kvgauge

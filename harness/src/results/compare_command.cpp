// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "reports/comparison.h"
#include "reports/statistics.h"
#include "src/cli/print.h"
#include "src/cli/table.h"
#include "src/results/leaderboard_fields.h"
#include "src/results/open_stores.h"
#include "src/results/results.h"
#include "src/results/set_scores.h"

namespace kvgauge {
namespace {

// What is needed to show scores of a comparison as the leaderboard does.
LeaderboardTable Units(const RowComparison& row) {
  LeaderboardTable table;
  table.scale = row.scale;
  table.digits = row.digits;
  return table;
}

// ", 22 paired samples of 44 (snapkv@5%: 22 skipped)".
std::string SamplesText(const RowComparison& row) {
  const int64_t all = std::max(row.a_side.samples, row.b_side.samples);
  std::string text = Counted(row.score.samples, "paired sample");
  if (row.score.samples >= all) return text;
  std::vector<std::string> sides;
  for (const bool second : {false, true}) {
    const RowComparison::Side& side = second ? row.b_side : row.a_side;
    std::vector<std::string> parts;
    if (side.failed > 0) parts.push_back(StrCat(WithCommas(side.failed), " failed"));
    if (side.skipped > 0) parts.push_back(StrCat(WithCommas(side.skipped), " skipped"));
    if (side.samples < all) parts.push_back(StrCat(WithCommas(all - side.samples), " not run"));
    if (!parts.empty()) {
      sides.push_back(StrCat(second ? row.b : row.a, ": ", Join(parts, ", ")));
    }
  }
  text.append(StrCat(" of ", WithCommas(all)));
  return sides.empty() ? text : text.append(StrCat(" (", Join(sides, "; "), ")"));
}

// "[1.42, 1.58]" of a ratio; "" where nothing is known.
std::string RatioInterval(const Evidence& e) {
  if (e.samples == 0 || std::isinf(e.interval.low) || std::isinf(e.interval.high)) return "";
  return StrCat("[", Fixed(std::exp(-e.interval.high), 2), ", ",
                Fixed(std::exp(-e.interval.low), 2), "]");
}

std::string TimesSentence(const RowComparison& row, const CompareOptions& options) {
  std::string text;
  for (const bool first_token : {true, false}) {
    const RowComparison::Times& times = first_token ? row.ttft : row.tpot;
    const Evidence& e = times.evidence;
    if (e.samples == 0) continue;
    const std::string interval = RatioInterval(e);
    text += StrCat(" Its ", first_token ? "TTFT" : "TPOT", " at ", WithCommas(row.latency_tokens),
                   " tokens is ", Fixed(times.ratio(), 2), "x of ", row.a,
                   "'s: ", NameOf(times.verdict), " (",
                   interval.empty()
                       ? std::string("too few repetitions for an interval: ")
                       : StrCat(Fixed(100 * (1 - options.alpha), 0), "% interval ", interval, ", "),
                   interval.empty() ? StrCat(e.samples) : Counted(e.samples, "repetition"), ").");
  }
  if (row.disturbed > 0) {
    text +=
        StrCat(" ", Counted(row.disturbed, "repetition"), " left out: other programs ran beside.");
  }
  return text;
}

// "smaller by 40.0%", of b against a.
std::string BytesSentence(const RowComparison& row) {
  if (row.bytes.samples == 0) return "";
  const double change = std::expm1(-row.bytes.value);
  std::string text = StrCat(" It keeps ", Percent(row.b_ratio), " of the full cache's bytes, ",
                            row.a, " ", Percent(row.a_ratio), ": ");
  if (row.bytes_verdict == Verdict::kSame) return text + "the same size.";
  return text.append(
      StrCat(Fixed(100 * std::abs(change), 1), "% ", change < 0 ? "smaller." : "larger."));
}

// The verdict as one would read it aloud.
std::string Sentence(const RowComparison& row, const CompareOptions& options) {
  const std::string where = StrCat("On ", row.model, ", ", row.task, ": ");
  if (!row.obstacle.empty()) {
    return StrCat(where, row.b, " and ", row.a, " cannot be compared: ", row.obstacle, ".");
  }
  const LeaderboardTable units = Units(row);
  const Evidence& e = row.score;
  const std::string interval = ShowInterval(units, e.interval, true);
  const std::string data = StrCat(
      interval.empty() ? ""
                       : StrCat(Fixed(100 * (1 - options.alpha), 0), "% interval ", interval, ", "),
      PSentence(row.p_adjusted), ", ", SamplesText(row));
  const std::string by = ShowScore(units, std::abs(e.value));
  const std::string turned = row.lower_is_better ? " (+ is a lower score)" : "";
  std::string text;
  switch (row.verdict) {
    case Verdict::kBetter:
    case Verdict::kWorse:
      text =
          StrCat(row.b, " is ", NameOf(row.verdict), " than ", row.a, " by ", by, " (", data, ").");
      break;
    case Verdict::kSame:
      text =
          StrCat(row.b, " does the SAME as ", row.a, " within ",
                 ShowScore(units, row.lower_is_better ? options.score_margin * std::abs(row.a_score)
                                                      : options.score_margin),
                 ": the difference", turned, " is ", ShowChange(units, e.value), " (", data, ").");
      break;
    case Verdict::kUndecided: {
      text = StrCat("whether ", row.b, " is better or worse than ", row.a,
                    " is UNDECIDED: the difference", turned, " is ", ShowChange(units, e.value),
                    " (", data, ")");
      text += std::isfinite(e.detectable) ? StrCat("; this many samples would show ",
                                                   ShowScore(units, e.detectable), " 4 times in 5.")
                                          : std::string("; more samples are needed.");
      break;
    }
  }
  return StrCat(where, text, BytesSentence(row), TimesSentence(row, options));
}

TextTable Rows(const RowsComparison& result) {
  TextTable table;
  table.columns = {{"task"},
                   {result.tasks[0].a, true},
                   {result.tasks[0].b, true},
                   {"change", true},
                   {"interval"},
                   {"p", true},
                   {"verdict"},
                   {"bytes of a", true},
                   {"bytes of b", true},
                   {"TTFT", true},
                   {"interval"},
                   {"TPOT", true},
                   {"interval"},
                   {"n", true},
                   {"note"}};
  const auto add = [&](const RowComparison& row, bool total) {
    const LeaderboardTable units = Units(row);
    const bool measured = row.obstacle.empty();
    const auto ratio = [](const RowComparison::Times& times) -> TableCell {
      if (times.evidence.samples == 0) return {""};
      return {StrCat(Fixed(times.ratio(), 2), "x"),
              RatioInterval(times.evidence).empty() ? Tone::kFaint : ToneOf(times.verdict)};
    };
    const auto paired = [&]() -> std::string {
      const int64_t all = std::max(row.a_side.samples, row.b_side.samples);
      return row.score.samples < all ? StrCat(row.score.samples, " of ", all)
                                     : StrCat(row.score.samples);
    };
    const Tone tone = total ? Tone::kStrong : Tone::kPlain;
    table.rows.push_back({{total ? StrCat("mean of ", row.task) : row.task, tone},
                          {measured ? ShowScore(units, row.a_score) : "", tone},
                          {measured ? ShowScore(units, row.b_score) : "", tone},
                          {measured ? ShowChange(units, row.score.value) : "", tone},
                          {measured ? ShowInterval(units, row.score.interval, true) : ""},
                          {measured ? PText(row.p_adjusted) : ""},
                          {measured ? std::string(NameOf(row.verdict)) : "NOT COMPARABLE",
                           measured ? ToneOf(row.verdict) : Tone::kBad},
                          {row.a_ratio > 0 ? Percent(row.a_ratio) : ""},
                          {row.b_ratio > 0 ? Percent(row.b_ratio) : ""},
                          ratio(row.ttft),
                          {RatioInterval(row.ttft.evidence)},
                          ratio(row.tpot),
                          {RatioInterval(row.tpot.evidence)},
                          {measured ? paired() : ""},
                          {row.obstacle, Tone::kDoubtful}});
  };
  for (const RowComparison& row : result.tasks) add(row, false);
  if (result.overall) add(*result.overall, true);
  table.DropEmptyColumns();
  return table;
}

Json ToJson(const RowComparison& row, const CompareOptions& options) {
  const auto number = [](double v) { return std::isfinite(v) ? Json(v) : Json(); };
  const auto evidence = [&](const Evidence& e) -> Json {
    if (e.samples == 0) return nullptr;
    return {{"change", number(e.value)},
            {"low", number(e.interval.low)},
            {"high", number(e.interval.high)},
            {"p", e.p},
            {"test", e.test},
            {"detectable", number(e.detectable)},
            {"samples", e.samples},
            {"contexts", e.clusters}};
  };
  Json json = {{"model", row.model},
               {"task", row.task},
               {"compress_at", row.compress_at},
               {"a", row.a},
               {"b", row.b},
               {"obstacle", row.obstacle},
               {"a_score", row.a_score},
               {"b_score", row.b_score},
               {"score", evidence(row.score)},
               {"p_adjusted", row.p_adjusted},
               {"verdict", NameOf(row.verdict)},
               {"a_ratio", row.a_ratio},
               {"b_ratio", row.b_ratio},
               {"log_bytes", evidence(row.bytes)},
               {"bytes_verdict", NameOf(row.bytes_verdict)},
               {"sentence", Sentence(row, options)}};
  const auto side = [](const RowComparison::Side& s) -> Json {
    return {{"samples", s.samples}, {"failed", s.failed}, {"skipped", s.skipped}};
  };
  json["a_side"] = side(row.a_side);
  json["b_side"] = side(row.b_side);
  const auto times = [&](const char* name, const RowComparison::Times& t) {
    if (t.evidence.samples == 0) return;
    json[StrCat(name, "_ratio")] = t.ratio();
    json[StrCat("log_", name)] = evidence(t.evidence);
    json[StrCat(name, "_verdict")] = NameOf(t.verdict);
  };
  times("ttft", row.ttft);
  times("tpot", row.tpot);
  json["latency_tokens"] = row.latency_tokens;
  json["disturbed_repetitions"] = row.disturbed;
  return json;
}

Status CompareNames(const CompareFlags& flags) {
  if (flags.stores.empty()) {
    return BadInput(StrCat("compare: ", Quoted(flags.a),
                           " is no file; for two methods name their "
                           "database with --db FILE, for two databases give both files"));
  }
  if (!flags.margins.empty()) {
    return BadInput("compare: --margins applies to two databases; two methods take --margin");
  }
  CompareOptions options = {.task = flags.task,
                            .model = flags.model,
                            .compress_at = flags.compress_at,
                            .set_scores = KnownSetScores()};
  options.alpha = flags.alpha.value_or(options.alpha);
  options.score_margin = flags.margin.value_or(options.score_margin);
  options.seed = flags.seed.value_or(options.seed);
  options.resamples = flags.resamples.value_or(options.resamples);
  KVG_ASSIGN(const OpenStores stores, OpenAllForReading(flags.stores));
  KVG_ASSIGN(const RowsComparison result,
             CompareRows(stores.all, ParseRowName(flags.a), ParseRowName(flags.b), options));
  if (flags.json) {
    Json tasks = Json::array();
    for (const RowComparison& row : result.tasks) tasks.push_back(ToJson(row, options));
    Json json = {{"tasks", tasks}, {"sentence", Sentence(result.conclusion(), options)}};
    if (result.overall) json["overall"] = ToJson(*result.overall, options);
    PrintJson(json);
    return {};
  }
  const bool colour = StdoutTakesColour();
  Print(Rows(result).ToText(colour) + "\n");
  if (result.overall || result.tasks.size() == 1) {
    const RowComparison& row = result.conclusion();
    Print(Coloured(Sentence(row, options), ToneOf(row.verdict), colour) + "\n");
    return {};
  }
  // Several models or units: each task has its own verdict.
  for (const RowComparison& row : result.tasks) {
    Print(Coloured(Sentence(row, options), ToneOf(row.verdict), colour) + "\n");
  }
  return {};
}

}  // namespace

Status RunCompare(const CompareFlags& flags) {
  const bool file_a = FileExists(flags.a), file_b = FileExists(flags.b);
  if (file_a && file_b) {
    if (!flags.stores.empty()) {
      return BadInput(StrCat("compare: --db ", Join(flags.stores, ", "),
                             " applies to two methods; leave it out with the databases ", flags.a,
                             " and ", flags.b));
    }
    GateFlags gate;
    gate.baseline = flags.a;
    gate.candidate = flags.b;
    gate.margins = flags.margins;
    gate.scope = {.task = flags.task, .model = flags.model, .compress_at = flags.compress_at};
    gate.alpha = flags.alpha;
    gate.accuracy_margin = flags.margin;
    gate.seed = flags.seed;
    gate.resamples = flags.resamples;
    gate.all = true;
    gate.json = flags.json;
    int ignored = 0;
    return RunGate(gate, ignored);
  }
  if (file_a || file_b) {
    // A missing database beside one that is there: the message of a missing file says most.
    const std::string& missing = file_a ? flags.b : flags.a;
    if (flags.stores.empty()) {
      const auto opened = OpenForReading(missing);
      if (!opened.ok()) return opened.error();
    }
  }
  return CompareNames(flags);
}

}  // namespace kvgauge

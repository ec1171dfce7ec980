// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "core/counted.h"
#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "reports/gate.h"
#include "src/cli/print.h"
#include "src/cli/table.h"
#include "src/model/model_flags.h"
#include "src/results/open_stores.h"
#include "src/results/results.h"
#include "src/results/set_scores.h"

namespace kvgauge {
namespace {

// The unit of baseline and candidate.
const char* UnitOf(const GateLine& line) {
  switch (line.metric) {
    case GateMetric::kAccuracy:
      return line.quantity.c_str();
    case GateMetric::kBytes:
      return "bytes";
    case GateMetric::kLatency:
      return line.over_full ? "times the full cache's" : "s";
  }
  return "";
}

Json ToJson(const GateReport& report, int exit_code) {
  Json lines = Json::array();
  for (const GateLine& line : report.lines) {
    const Evidence& e = line.evidence;
    // What was not measured is null, never zero.
    const auto number = [&](double value) {
      return e.samples > 0 ? FiniteOrNull(value) : Json(nullptr);
    };
    lines.push_back({{"metric", NameOf(line.metric)},
                     {"group", line.group},
                     {"quantity", line.quantity},
                     {"verdict", NameOf(line.verdict)},
                     {"comparable", line.comparable},
                     {"reason", line.reason},
                     {"remedy", line.remedy},
                     {"unit", UnitOf(line)},
                     {"baseline", number(line.baseline)},
                     {"candidate", number(line.candidate)},
                     {"change", number(e.value)},
                     {"low", number(e.interval.low)},
                     {"high", number(e.interval.high)},
                     {"p", number(e.p)},
                     {"p_adjusted", number(line.p_adjusted)},
                     {"detectable", number(e.detectable)},
                     {"margin", line.margin},
                     {"samples", e.samples},
                     {"test", e.test}});
  }
  return {{"exit_code", exit_code},
          {"worse", report.Count(Verdict::kWorse)},
          {"undecided", report.Count(Verdict::kUndecided)},
          {"better", report.Count(Verdict::kBetter)},
          {"same", report.Count(Verdict::kSame)},
          {"not_comparable", report.NotComparable()},
          {"alpha", report.alpha},
          {"lines", lines}};
}

Tone ToneOf(const GateLine& line) {
  if (!line.comparable || line.verdict == Verdict::kWorse) return Tone::kBad;
  if (line.verdict == Verdict::kUndecided) return Tone::kDoubtful;
  return Tone::kGood;
}

std::string Lines(const GateReport& report, bool all, bool colour) {
  TextTable table;
  table.columns = {{"verdict"},        {"metric"},          {"group"},
                   {"baseline", true}, {"candidate", true}, {"change", true},
                   {"interval"},       {"p", true},         {"note"}};
  for (const GateLine& line : report.lines) {
    if (!all && line.comparable && line.verdict == Verdict::kSame) continue;
    const GateText text = Describe(line);
    table.rows.push_back({{text.verdict, ToneOf(line)},
                          {line.quantity},
                          {line.group},
                          {text.baseline},
                          {text.candidate},
                          {text.change},
                          {text.interval},
                          {text.p},
                          {text.note}});
  }
  if (table.rows.empty()) return "";
  table.DropEmptyColumns();
  std::string text = table.ToText(colour) + "\n";
  const bool over_full =
      std::ranges::any_of(report.lines, [](const GateLine& line) { return line.over_full; });
  if (over_full) {
    text += Coloured("Times with an x are over the full cache's of the same round.\n\n",
                     Tone::kFaint, colour);
  }
  return text;
}

// What a person would say, and why the exit code is what it is.
std::string Sentence(const GateReport& report, int exit_code) {
  const std::string all = Counted(std::ssize(report.lines), "comparison");
  const std::string of = StrCat(" of ", all);
  switch (exit_code) {
    case 1:
      return StrCat("FAIL: ", report.Count(Verdict::kWorse), of, " got worse");
    case 2:
      return StrCat("CANNOT COMPARE: ", report.NotComparable(), of, " cannot be made");
    case 3:
      return StrCat("UNDECIDED: ", report.Count(Verdict::kUndecided), of,
                    " are undecided, and --strict asks for certainty: ", GateRemedies(report));
    default: {
      const int64_t open = report.Count(Verdict::kUndecided);
      std::string text = StrCat("PASS: nothing got worse in ", all);
      if (open > 0) text.append(StrCat("; ", open, " undecided: ", GateRemedies(report)));
      return text;
    }
  }
}

Status WriteOutput(const std::string& path, const std::string& content) {
  if (path.empty()) return {};
  const Status written = WriteFile(path, content);
  return written.ok() ? written : BadInput(written.error().message);
}

Status HoldAgainstBaseline(const GateFlags& flags, int& exit_code) {
  std::string margins_path = flags.margins;
  if (margins_path.empty()) {
    KVG_ASSIGN(margins_path, FindConfigFile("gate/default.json"));
  }
  KVG_ASSIGN(GateMargins margins, ReadGateMargins(margins_path));
  margins.alpha = flags.alpha.value_or(margins.alpha);
  margins.accuracy.margin = flags.accuracy_margin.value_or(margins.accuracy.margin);
  margins.seed = flags.seed.value_or(margins.seed);
  margins.resamples = flags.resamples.value_or(margins.resamples);
  KVG_ASSIGN(const auto baseline, OpenForReading(flags.baseline));
  KVG_ASSIGN(const auto candidate, OpenForReading(flags.candidate));
  KVG_ASSIGN(const GateReport report,
             CompareStores(*baseline, *candidate, margins, KnownSetScores(), flags.scope));
  KVG_TRY(WriteOutput(flags.junit, GateJUnit(report)));
  KVG_TRY(WriteOutput(flags.markdown, GateMarkdown(report)));
  exit_code = report.ExitCode(flags.strict);
  if (flags.json) {
    PrintJson(ToJson(report, exit_code));
    return CheckPrinted();
  }
  const bool colour = StdoutTakesColour();
  Print(Lines(report, flags.all, colour));
  const Tone tone = exit_code == 0 ? Tone::kGood : exit_code == 3 ? Tone::kDoubtful : Tone::kBad;
  Print(Coloured(Sentence(report, exit_code), tone, colour) + "\n");
  return CheckPrinted();
}

}  // namespace

Status RunGate(const GateFlags& flags, int& exit_code) {
  const Status status = HoldAgainstBaseline(flags, exit_code);
  // 1 means worse: whatever else goes wrong must not look like it.
  return status.ok() ? status : BadInput(status.error().message);
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/run/run_outcome.h"

#include "core/json.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

// The counts of an outcome, by the names that they have in JSON.
struct OutcomeCount {
  const char* name;
  int64_t RunOutcome::*count;
};
constexpr OutcomeCount kOutcomeCounts[] = {
    {"cells", &RunOutcome::cells},
    {"failed", &RunOutcome::failed},
    {"skipped", &RunOutcome::skipped},
    {"succeeded", &RunOutcome::succeeded},
    {"had", &RunOutcome::had},
    {"prefills", &RunOutcome::prefills},
    {"latencies", &RunOutcome::latencies},
    {"latencies_failed", &RunOutcome::latencies_failed},
};

}  // namespace

Json ReasonsJson(const std::vector<ReasonTally::Line>& lines) {
  Json reasons = Json::array();
  for (const ReasonTally::Line& line : lines) {
    reasons.push_back(
        {{"status", NameOf(line.status)}, {"cells", line.cells}, {"reason", line.reason}});
  }
  return reasons;
}

Json OutcomeJson(const RunOutcome& outcome, const std::string& name, const std::string& database) {
  Json json = {{"name", name},
               {"database", database},
               {"run", outcome.run_key},
               {"reasons", ReasonsJson(outcome.reasons)},
               {"seconds", outcome.seconds},
               {"processor_s", outcome.processor_s},
               {"recording_s", outcome.recording_s},
               {"signal", outcome.signal}};
  for (const OutcomeCount& of : kOutcomeCounts) json[of.name] = outcome.*of.count;
  return json;
}

Result<RunOutcome> ReadOutcome(const std::string& text, const std::string& from) {
  KVG_ASSIGN(const Json json, ParseJson(text, from));
  RunOutcome outcome;
  try {
    for (const OutcomeCount& of : kOutcomeCounts) {
      outcome.*of.count = json.at(of.name).get<int64_t>();
    }
    outcome.run_key = json.at("run").get<std::string>();
    outcome.processor_s = json.at("processor_s").get<double>();
    outcome.recording_s = json.at("recording_s").get<double>();
    outcome.seconds = json.at("seconds").get<double>();
    outcome.signal = json.at("signal").get<int>();
    for (const Json& line : json.at("reasons")) {
      const bool failed = line.at("status") == NameOf(SampleStatus::kFailed);
      outcome.reasons.push_back({failed ? SampleStatus::kFailed : SampleStatus::kSkipped,
                                 line.at("reason").get<std::string>(),
                                 line.at("cells").get<int64_t>()});
    }
  } catch (const Json::exception& error) {
    return IoError(StrCat(from, ": is not the outcome of a run: ", error.what()));
  }
  return outcome;
}

void AddOutcome(const RunOutcome& part, RunOutcome& all) {
  if (all.run_key.empty()) all.run_key = part.run_key;
  for (const OutcomeCount& of : kOutcomeCounts) all.*of.count += part.*of.count;
  all.processor_s += part.processor_s;
  all.recording_s += part.recording_s;
  ReasonTally reasons;
  for (const RunOutcome* of : {static_cast<const RunOutcome*>(&all), &part}) {
    for (const ReasonTally::Line& l : of->reasons) reasons.Add(l.status, l.reason, l.cells);
  }
  all.reasons = reasons.Lines();
}

}  // namespace kvgauge

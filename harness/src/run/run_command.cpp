// SPDX-License-Identifier: Apache-2.0
#include "src/run/run_command.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>

#include "core/counted.h"
#include "core/files.h"
#include "core/json.h"
#include "core/log.h"
#include "core/strings.h"
#include "src/cli/print.h"
#include "src/run/run_estimate.h"
#include "src/run/run_executor.h"
#include "src/run/run_history.h"

namespace kvgauge {
namespace {

constexpr size_t kMostReasons = 3;

Result<RunConfig> ReadConfig(const RunOptions& options) {
  return ReadRunConfig(options.config, {.seeds = options.seeds,
                                        .only = options.only,
                                        .data_directory = options.data_directory,
                                        .max_memory = options.max_memory,
                                        .backend = options.backend,
                                        .threads = options.threads,
                                        .unscored = options.unscored,
                                        .skip_bad = options.skip_bad});
}

Result<SampleChoice> ChooseSamples(const RunOptions& options) {
  SampleChoice choice;
  choice.limit = options.limit;
  if (!options.samples.empty()) {
    KVG_ASSIGN(choice.positions, ParsePositions(options.samples));
  }
  if (!options.shard.empty()) KVG_TRY(ParseShard(options.shard, choice));
  return choice;
}

std::string DatabasePath(const RunOptions& options, const RunConfig& config) {
  return options.database.empty() ? StrCat("results/", config.name, ".db") : options.database;
}

// What is recorded of a cell; everything is pending without a store.
PendingOf PendingIn(ResultStore* store, bool retry) {
  if (store == nullptr) {
    return [](const CellRow&, const std::vector<std::string>& ids) {
      return Result<std::vector<std::string>>(ids);
    };
  }
  // Ids of cells by key; read once.
  auto known = std::make_shared<std::map<std::string, int64_t>>();
  auto read = std::make_shared<bool>(false);
  return [=](const CellRow& cell,
             const std::vector<std::string>& ids) -> Result<std::vector<std::string>> {
    if (!*read) {
      KVG_ASSIGN(const std::vector<StoredCell> cells, store->Cells());
      for (const StoredCell& stored : cells) (*known)[stored.cell.Key()] = stored.id;
      *read = true;
    }
    const auto found = known->find(cell.Key());
    if (found == known->end()) return ids;
    return store->Pending(found->second, ids, retry);
  };
}

void PrintRefused(const RunPlan& plan) {
  for (const PlanRefusal& refusal : plan.refused) {
    LogWarning(StrCat("left out: ", refusal.row, " on ", refusal.model, ": ", refusal.reason));
  }
}

Json ReasonsJson(const std::vector<ReasonTally::Line>& lines) {
  Json reasons = Json::array();
  for (const ReasonTally::Line& line : lines) {
    reasons.push_back(
        {{"status", NameOf(line.status)}, {"cells", line.cells}, {"reason", line.reason}});
  }
  return reasons;
}

Status ShowPlan(const RunOptions& options, const RunConfig& config, const RunPlan& plan,
                const SampleChoice& choice) {
  const std::string path = DatabasePath(options, config);
  std::unique_ptr<ResultStore> store;
  RateOf rate = [](const PlanGroup&) { return std::optional<double>(); };
  if (FileExists(path)) {
    KVG_ASSIGN(store, ResultStore::Open(path, StoreMode::kReadOnly));
    KVG_ASSIGN(rate, RecordedRates(*store));
  }
  GroupEstimator estimator(plan, choice, PendingIn(store.get(), options.retry), rate);
  std::vector<std::vector<std::string>> table;
  Json groups = Json::array();
  GroupEstimate total;
  bool measured = true;
  std::vector<std::string> unfit;
  for (const PlanGroup& group : plan.groups) {
    KVG_ASSIGN(const GroupEstimate estimate, estimator.Estimate(group));
    total.samples += estimate.samples;
    total.cells += estimate.cells;
    total.done += estimate.done;
    total.seconds += estimate.seconds;
    total.memory_bytes = std::max(total.memory_bytes, estimate.memory_bytes);
    total.least_bytes = std::max(total.least_bytes, estimate.least_bytes);
    measured = measured && estimate.measured;
    if (estimate.skipped_records > 0) {
      LogWarning(StrCat(config.tasks[group.task].task.name,
                        ": malformed records left out: ", estimate.skipped_records));
    }
    const PlanModel& model = plan.models[group.model];
    if (const std::string beyond = model.BeyondPositions(estimate.longest_prompt);
        !beyond.empty()) {
      LogWarning(StrCat(config.tasks[group.task].task.name, ": ", beyond));
    }
    table.push_back({model.spec->name, config.tasks[group.task].task.name,
                     std::string(NameOf(group.compress_at)), StrCat(group.seed),
                     model.prefills[group.prefill].name, StrCat(group.rows.size()),
                     StrCat(estimate.samples), StrCat(estimate.cells), StrCat(estimate.done),
                     StrCat(estimate.longest_prompt),
                     estimate.done == estimate.cells
                         ? "-"
                         : StrCat(estimate.measured ? "" : "~", ClockTime(estimate.seconds)),
                     HumanBytes(estimate.memory_bytes)});
    for (const std::string& text : ReasonTexts(estimate.unfit, kMostReasons)) {
      unfit.push_back(StrCat(group.name, ": ", text));
    }
    Json cells = Json::array();
    for (size_t i = 0; i < group.rows.size(); ++i) {
      cells.push_back({{"row", config.rows[group.rows[i]].Name()}, {"key", group.cells[i].Key()}});
    }
    groups.push_back({{"group", group.name},
                      {"prefill", model.prefills[group.prefill].name},
                      {"samples", estimate.samples},
                      {"cells", estimate.cells},
                      {"done", estimate.done},
                      {"longest_prompt", estimate.longest_prompt},
                      {"seconds", estimate.seconds},
                      {"measured", estimate.measured},
                      {"memory_bytes", estimate.memory_bytes},
                      {"least_memory_bytes", estimate.least_bytes},
                      {"unfit", ReasonsJson(estimate.unfit)},
                      {"rows", cells}});
  }
  std::vector<LatencyEstimate> latencies;
  if (choice.shard == 0) {
    KVG_ASSIGN(latencies, EstimateLatency(plan, store.get()));
  }
  Json latency = Json::array();
  for (const LatencyEstimate& estimate : latencies) {
    const std::string& model = plan.models[estimate.model].spec->name;
    total.seconds += estimate.seconds;
    measured = measured && estimate.measurements == 0;
    table.push_back({model, "(latency)", std::string(NameOf(estimate.compress_at)), "", "",
                     StrCat(estimate.rows), "", StrCat(estimate.measurements + estimate.done),
                     StrCat(estimate.done), StrCat(estimate.longest_prompt),
                     estimate.measurements == 0 ? "-" : StrCat("~", ClockTime(estimate.seconds)),
                     ""});
    latency.push_back({{"model", model},
                       {"compress_at", NameOf(estimate.compress_at)},
                       {"rows", estimate.rows},
                       {"measurements", estimate.measurements},
                       {"done", estimate.done},
                       {"longest_prompt", estimate.longest_prompt},
                       {"seconds", estimate.seconds}});
  }
  if (options.json) {
    Json refused = Json::array();
    for (const PlanRefusal& refusal : plan.refused) {
      refused.push_back(
          {{"model", refusal.model}, {"row", refusal.row}, {"reason", refusal.reason}});
    }
    PrintJson({{"name", config.name},
               {"database", path},
               {"groups", groups},
               {"refused", refused},
               {"cells", total.cells},
               {"done", total.done},
               {"seconds", total.seconds},
               {"latency", latency},
               {"memory_bytes", total.memory_bytes},
               {"least_memory_bytes", total.least_bytes}});
    return {};
  }
  PrintTable({"model", "task", "compress at", "seed", "prefill", "rows", "samples", "cells", "done",
              "tokens", "time", "memory"},
             table);
  Print("\n");
  for (const PlanRefusal& refusal : plan.refused) {
    Print(StrCat("left out  ", refusal.row, " on ", refusal.model, ": ", refusal.reason, "\n"));
  }
  for (const std::string& text : unfit) Print(StrCat("cannot run  ", text, "\n"));
  PrintFacts(
      {{"cells", StrCat(total.cells, ", ", total.done, " recorded in ", path)},
       {"time", StrCat(ClockTime(total.seconds), measured ? " at the recorded rates"
                                                          : " at 20 GFLOP/s a processor where "
                                                            "no rate is recorded (~)")},
       {"memory", StrCat(HumanBytes(total.memory_bytes), " at most, one model at a time; ",
                         HumanBytes(total.least_bytes), " with one row at a time")}});
  return {};
}

Status MakeParent(const std::string& path) {
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  if (parent.empty()) return {};
  std::error_code error;
  std::filesystem::create_directories(parent, error);
  if (error) {
    return IoError(StrCat(parent.string(), ": cannot be made: ", error.message(),
                          "; --db FILE puts the results elsewhere"));
  }
  return {};
}

Json OutcomeJson(const RunOutcome& outcome, const RunConfig& config, const std::string& path) {
  return {{"name", config.name},
          {"database", path},
          {"run", outcome.run_key},
          {"cells", outcome.cells},
          {"failed", outcome.failed},
          {"skipped", outcome.skipped},
          {"reasons", ReasonsJson(outcome.reasons)},
          {"had", outcome.had},
          {"prefills", outcome.prefills},
          {"latencies", outcome.latencies},
          {"latencies_failed", outcome.latencies_failed},
          {"seconds", outcome.seconds},
          {"processor_s", outcome.processor_s},
          {"recording_s", outcome.recording_s},
          {"signal", outcome.signal}};
}

std::string SummaryText(const RunOutcome& outcome) {
  std::string text =
      StrCat(Counted(outcome.cells, "cell"), " recorded in ", ClockTime(outcome.seconds), ", ",
             outcome.failed, " failed, ", outcome.skipped, " skipped; ");
  if (outcome.latencies + outcome.latencies_failed > 0) {
    text += StrCat(Counted(outcome.latencies, "latency measurement"), ", ",
                   outcome.latencies_failed, " failed; ");
  }
  return text + StrCat("recording took ",
                       Fixed(100 * outcome.recording_s / std::max(outcome.processor_s, 1e-9), 2),
                       "% of the processors' time");
}

// Whether there was something to run and nothing came of it.
bool RanInVain(const RunOutcome& outcome) {
  return outcome.failed + outcome.skipped > 0 && outcome.succeeded == 0 && outcome.latencies == 0;
}

}  // namespace

Result<RunConfig> CheckedConfig(const RunOptions& options) {
  const Result<SampleChoice> choice = ChooseSamples(options);
  if (!choice.ok()) return choice.error();
  return ReadConfig(options);
}

Status RunPlanCommand(const RunOptions& options) {
  KVG_ASSIGN(const RunConfig config, ReadConfig(options));
  KVG_ASSIGN(const SampleChoice choice, ChooseSamples(options));
  KVG_ASSIGN(const RunPlan plan, MakeRunPlan(config));
  KVG_TRY(CheckSomethingRuns(plan, choice));
  return ShowPlan(options, config, plan, choice);
}

Result<int> RunRunCommand(const RunOptions& options) {
  KVG_ASSIGN(const RunConfig config, ReadConfig(options));
  KVG_ASSIGN(const SampleChoice choice, ChooseSamples(options));
  const std::string path = DatabasePath(options, config);
  if (options.dry_run) {
    KVG_TRY(RunPlanCommand(options));
    return kExitOk;
  }
  const InterruptGuard interrupt;
  RunProgress progress(options.quiet);
  if (!options.quiet) {
    progress.Note(StrCat("run ", config.name, ": ", Counted(std::ssize(config.models), "model"),
                         " x ", Counted(std::ssize(config.tasks), "task"), " x ",
                         Counted(std::ssize(config.rows), "row"), " -> ", path));
  }
  KVG_ASSIGN(const RunPlan plan, MakeRunPlan(config));
  PrintRefused(plan);
  KVG_TRY(CheckSomethingRuns(plan, choice));
  KVG_TRY(MakeParent(path));
  KVG_ASSIGN(const std::unique_ptr<ResultStore> store, ResultStore::Open(path, StoreMode::kCreate));
  const RunSettings settings = {
      .choice = choice, .retry = options.retry, .command = options.command, .build = options.build};
  KVG_ASSIGN(const RunOutcome outcome, ExecuteRun(plan, settings, *store, progress, interrupt));
  if (options.json) {
    PrintJson(OutcomeJson(outcome, config, path));
  } else if (!options.quiet) {
    progress.Note(SummaryText(outcome));
  }
  const bool in_vain = RanInVain(outcome);
  if (in_vain || !options.quiet) {
    for (const std::string& text : ReasonTexts(outcome.reasons, kMostReasons)) {
      progress.Note(StrCat("  ", text));
    }
  }
  if (outcome.signal == 0) {
    if (in_vain) Log(LogLevel::kError, "nothing that was run succeeded");
    return in_vain ? kExitFailure : kExitOk;
  }
  progress.Note(
      StrCat("interrupted; nothing that was recorded is lost. Go on with:\n  ", options.command));
  return 128 + outcome.signal;
}

}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
#include "src/run/run_command.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "core/counted.h"
#include "core/files.h"
#include "core/json.h"
#include "core/log.h"
#include "core/strings.h"
#include "core/threads.h"
#include "src/cli/print.h"
#include "src/run/check_records.h"
#include "src/run/device_workers.h"
#include "src/run/run_estimate.h"
#include "src/run/run_executor.h"
#include "src/run/run_history.h"
#include "src/run/run_outcome.h"

namespace kvgauge {
namespace {

constexpr size_t kMostReasons = 3;

RunOverrides OverridesOf(const RunOptions& options) {
  return {.seeds = options.seeds,
          .draws = options.draws,
          .temperature = options.temperature,
          .top_p = options.top_p,
          .only = options.only,
          .data_directory = options.data_directory,
          .max_memory = options.max_memory,
          .backend = options.backend,
          .threads = options.threads,
          .unscored = options.unscored,
          .skip_bad = options.skip_bad};
}

// A configuration, and of a shorthand the file that it stands for.
struct GivenConfig {
  RunConfig config;
  Json shorthand;  // null: a file was named
};

Result<GivenConfig> ReadConfig(const RunOptions& options) {
  const RunOverrides overrides = OverridesOf(options);
  GivenConfig given;
  if (options.prepared != nullptr) {
    KVG_ASSIGN(given.config, ParseRunConfig(*options.prepared, options.config, overrides));
    return given;
  }
  if (options.shorthand.empty()) {
    if (options.config.empty()) {
      return BadInput(
          "nothing to run: name a configuration, such as quickstart or mine.json, or give --model "
          "DIR --task NAME --method NAME,NAME --budget 10%,20%");
    }
    KVG_ASSIGN(given.config, ReadRunConfig(options.config, overrides));
    return given;
  }
  if (!options.config.empty()) {
    return BadInput(StrCat("configuration ", Quoted(options.config),
                           " and --model, --task, --method or --budget: give one or the other; "
                           "--only picks methods of a configuration"));
  }
  KVG_ASSIGN(given.shorthand, ShorthandConfig(options.shorthand, overrides, options.limit));
  KVG_ASSIGN(given.config, ParseRunConfig(given.shorthand, "the command line", overrides));
  return given;
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
    LogWarning(
        StrCat("left out: ", refusal.contender, " on ", refusal.model, ": ", refusal.reason));
  }
}

// What is known of a plan before anything runs: of its groups, then of the latency phase.
struct PlanEstimates {
  std::vector<GroupEstimate> groups;  // as the plan's
  std::vector<LatencyEstimate> latencies;
  GroupEstimate total;
  bool measured = true;  // all times at recorded rates
};

Result<PlanEstimates> EstimatePlan(const RunOptions& options, const RunPlan& plan,
                                   const SampleChoice& choice, ResultStore* store) {
  RateOf rate = [](const PlanGroup&) { return std::optional<double>(); };
  if (store != nullptr) {
    KVG_ASSIGN(rate, RecordedRates(*store));
  }
  GroupEstimator estimator(plan, choice, PendingIn(store, options.retry), rate);
  PlanEstimates all;
  GroupEstimate& total = all.total;
  for (const PlanGroup& group : plan.groups) {
    KVG_ASSIGN(GroupEstimate estimate, estimator.Estimate(group));
    total.samples += estimate.samples;
    total.cells += estimate.cells;
    total.done += estimate.done;
    total.seconds += estimate.seconds;
    total.memory_bytes = std::max(total.memory_bytes, estimate.memory_bytes);
    total.least_bytes = std::max(total.least_bytes, estimate.least_bytes);
    all.measured = all.measured && estimate.measured;
    all.groups.push_back(std::move(estimate));
  }
  if (choice.shard == 0) {
    KVG_ASSIGN(all.latencies, EstimateLatency(plan, store));
  }
  for (const LatencyEstimate& estimate : all.latencies) {
    total.seconds += estimate.seconds;
    all.measured = all.measured && estimate.measurements == 0;
  }
  return all;
}

void WarnOf(const RunConfig& config, const RunPlan& plan, const PlanEstimates& all) {
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const PlanGroup& group = plan.groups[i];
    const std::string& task = config.tasks[group.task].task.name;
    if (all.groups[i].skipped_records > 0) {
      LogWarning(StrCat(task, ": malformed records left out: ", all.groups[i].skipped_records));
    }
    const std::string beyond =
        plan.models[group.model].BeyondPositions(all.groups[i].longest_prompt);
    if (!beyond.empty()) LogWarning(StrCat(task, ": ", beyond));
  }
  std::set<std::string> said;  // once for all rows of a method
  for (const PlanModel& model : plan.models) {
    for (const PlanPrefill& prefill : model.prefills) {
      for (const size_t i : prefill.contenders) {
        for (const std::string& note : ShorterGroups(config.contenders[i].method, model.shape)) {
          const std::string text = StrCat(model.spec->name, ": ", note);
          if (said.insert(text).second) LogWarning(text);
        }
      }
    }
  }
}

// Rows that read prompts in chunks, each for itself, and what that costs.
Json OwnJson(const RunConfig& config, const RunPlan& plan, const PlanGroup& group,
             const GroupEstimate& estimate) {
  Json rows = Json::array();
  for (const size_t i : OwnPrefills(plan, group)) {
    rows.push_back(config.contenders[group.contenders[i]].Name());
  }
  return {{"rows", rows},
          {"prefills", estimate.own_prefills},
          {"seconds", estimate.own_seconds},
          {"bytes", estimate.own_bytes}};
}

std::vector<std::string> OwnTexts(const RunConfig& config, const RunPlan& plan,
                                  const PlanEstimates& all) {
  std::vector<std::string> texts;
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    const GroupEstimate& estimate = all.groups[g];
    std::vector<std::string> rows;
    for (const size_t i : OwnPrefills(plan, plan.groups[g])) {
      rows.push_back(config.contenders[plan.groups[g].contenders[i]].Name());
    }
    if (rows.empty()) continue;
    texts.push_back(StrCat(plan.groups[g].name, ": ", Join(rows, ", "), " read prompts in chunks, ",
                           Counted(estimate.own_prefills, "prefill"), " of their own, ~",
                           ClockTime(estimate.own_seconds), " more than one that is shared, ",
                           HumanBytes(estimate.own_bytes), " each at most"));
  }
  return texts;
}

Json PlanJson(const GivenConfig& given, const RunPlan& plan, const PlanEstimates& all,
              const std::string& path) {
  const RunConfig& config = given.config;
  Json groups = Json::array(), latency = Json::array(), refused = Json::array();
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    const PlanGroup& group = plan.groups[g];
    const GroupEstimate& estimate = all.groups[g];
    Json cells = Json::array();
    for (size_t i = 0; i < group.contenders.size(); ++i) {
      cells.push_back(
          {{"row", config.contenders[group.contenders[i]].Name()}, {"key", group.cells[i].Key()}});
    }
    groups.push_back({{"group", group.name},
                      {"prefill", plan.models[group.model].prefills[group.prefill].name},
                      {"samples", estimate.samples},
                      {"cells", estimate.cells},
                      {"done", estimate.done},
                      {"longest_prompt", estimate.longest_prompt},
                      {"seconds", estimate.seconds},
                      {"own_prefills", OwnJson(config, plan, group, estimate)},
                      {"measured", estimate.measured},
                      {"memory_bytes", estimate.memory_bytes},
                      {"least_memory_bytes", estimate.least_bytes},
                      {"unfit", ReasonsJson(estimate.unfit)},
                      {"rows", cells}});
  }
  for (const LatencyEstimate& estimate : all.latencies) {
    latency.push_back({{"model", plan.models[estimate.model].spec->name},
                       {"compress_at", config.PlaceName(estimate.compress_at)},
                       {"rows", estimate.contenders},
                       {"measurements", estimate.measurements},
                       {"done", estimate.done},
                       {"longest_prompt", estimate.longest_prompt},
                       {"seconds", estimate.seconds}});
  }
  for (const PlanRefusal& refusal : plan.refused) {
    refused.push_back(
        {{"model", refusal.model}, {"row", refusal.contender}, {"reason", refusal.reason}});
  }
  Json json = {{"name", config.name},
               {"database", path},
               {"groups", groups},
               {"refused", refused},
               {"cells", all.total.cells},
               {"done", all.total.done},
               {"seconds", all.total.seconds},
               {"latency", latency},
               {"memory_bytes", all.total.memory_bytes},
               {"least_memory_bytes", all.total.least_bytes}};
  if (!given.shorthand.is_null()) json["config"] = given.shorthand;
  return json;
}

std::string TimeText(double seconds, bool measured) {
  return StrCat(measured ? "" : "~", ClockTime(seconds));
}

std::string PrefillText(const PlanPrefill& prefill, const GroupEstimate& estimate) {
  if (estimate.own_rows == 0) return prefill.name;
  return StrCat(prefill.name, ", ", estimate.own_rows, " own");
}

void PrintPlan(const RunConfig& config, const RunPlan& plan, const PlanEstimates& all,
               const std::string& path) {
  std::vector<std::vector<std::string>> table;
  std::vector<std::string> unfit;
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    const PlanGroup& group = plan.groups[g];
    const GroupEstimate& estimate = all.groups[g];
    const PlanModel& model = plan.models[group.model];
    const bool done = estimate.done == estimate.cells;
    table.push_back({model.spec->name, config.tasks[group.task].task.name,
                     config.PlaceName(group.compress_at), StrCat(group.seed),
                     PrefillText(model.prefills[group.prefill], estimate),
                     StrCat(group.contenders.size()), StrCat(estimate.samples),
                     StrCat(estimate.cells), StrCat(estimate.done), StrCat(estimate.longest_prompt),
                     done ? "-" : TimeText(estimate.seconds, estimate.measured),
                     HumanBytes(estimate.memory_bytes)});
    for (const std::string& text : ReasonTexts(estimate.unfit, kMostReasons)) {
      unfit.push_back(StrCat(group.name, ": ", text));
    }
  }
  for (const LatencyEstimate& estimate : all.latencies) {
    table.push_back({plan.models[estimate.model].spec->name, "(latency)",
                     config.PlaceName(estimate.compress_at), "", "", StrCat(estimate.contenders),
                     "", StrCat(estimate.measurements + estimate.done), StrCat(estimate.done),
                     StrCat(estimate.longest_prompt),
                     estimate.measurements == 0 ? "-" : TimeText(estimate.seconds, false), ""});
  }
  PrintTable({"model", "task", "compress at", "seed", "prefill", "rows", "samples", "cells", "done",
              "tokens", "time", "memory"},
             table);
  Print("\n");
  for (const PlanRefusal& refusal : plan.refused) {
    Print(
        StrCat("left out  ", refusal.contender, " on ", refusal.model, ": ", refusal.reason, "\n"));
  }
  for (const std::string& text : unfit) Print(StrCat("cannot run  ", text, "\n"));
  for (const std::string& text : OwnTexts(config, plan, all)) {
    Print(StrCat("own prefill  ", text, "\n"));
  }
  PrintFacts(
      {{"cells", StrCat(all.total.cells, ", ", all.total.done, " recorded in ", path)},
       {"time", StrCat(ClockTime(all.total.seconds),
                       all.measured ? " at the recorded rates"
                                    : " at 20 GFLOP/s a processor where no rate is "
                                      "recorded (~)")},
       {"memory", StrCat(HumanBytes(all.total.memory_bytes), " at most, one model at a time; ",
                         HumanBytes(all.total.least_bytes), " with one row at a time")}});
}

Status ShowPlan(const RunOptions& options, const GivenConfig& given, const RunPlan& plan,
                const SampleChoice& choice) {
  const std::string path = DatabasePath(options, given.config);
  std::unique_ptr<ResultStore> store;
  if (FileExists(path)) {
    KVG_ASSIGN(store, ResultStore::Open(path, StoreMode::kReadOnly));
  }
  KVG_ASSIGN(const PlanEstimates all, EstimatePlan(options, plan, choice, store.get()));
  WarnOf(given.config, plan, all);
  if (options.json) {
    PrintJson(PlanJson(given, plan, all, path));
    return {};
  }
  if (!given.shorthand.is_null()) Print(given.shorthand.dump(2) + "\n\n");
  PrintPlan(given.config, plan, all, path);
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

// What a run is made of, once it was read and found right.
struct RunCall {
  const RunOptions& options;
  const GivenConfig& given;
  const SampleChoice& choice;
  const std::string& path;  // of the database
};

// To standard output, where nothing else of a run goes: `> mine.json` keeps it.
void PrintShorthand(const GivenConfig& given) {
  if (!given.shorthand.is_null()) Print(given.shorthand.dump(2) + "\n");
}

// All that is to be run by this process: everything, or a worker's part.
Result<RunOutcome> RunHere(const RunCall& call, SharedWork* work, RunProgress& progress,
                           const InterruptGuard& interrupt) {
  KVG_ASSIGN(const RunPlan plan, MakeRunPlan(call.given.config));
  PrintRefused(plan);
  KVG_TRY(CheckSomethingRuns(plan, call.choice));
  KVG_TRY(CheckRecords(plan, call.choice, interrupt));
  KVG_TRY(MakeParent(call.path));
  const StoreMode mode = work != nullptr ? StoreMode::kShared : StoreMode::kCreate;
  KVG_ASSIGN(const std::unique_ptr<ResultStore> store, ResultStore::Open(call.path, mode));
  if (!call.options.json && work == nullptr) PrintShorthand(call.given);
  const RunSettings settings = {.choice = call.choice,
                                .retry = call.options.retry,
                                .command = call.options.command,
                                .build = call.options.build,
                                .work = work};
  return ExecuteRun(plan, settings, *store, progress, interrupt);
}

// What came of a run, and how it went on each device where there are several.
struct RunEnd {
  RunOutcome outcome;
  std::vector<WorkerEnd> workers;

  // Whether every worker went to the end, or to where the run was interrupted.
  bool well() const {
    return std::ranges::all_of(workers, [](const WorkerEnd& end) { return end.exit_code == 0; });
  }
  // Whether all of them refused what was asked for; they have said why.
  bool refused() const {
    return !workers.empty() && std::ranges::all_of(workers, [](const WorkerEnd& end) {
      return end.exit_code == kExitBadInput;
    });
  }
};

// What is left behind the workers, on one device. `times`: latencies are measured, too.
Result<RunOutcome> RunBehind(const RunCall& call, int device, bool times, bool retry,
                             RunProgress& progress, const InterruptGuard& interrupt) {
  GivenConfig alone = {call.given.config, {}};
  alone.config.backend = StrCat("cuda:", device);
  if (!times) alone.config.latency = nullptr;
  RunOptions options = call.options;
  options.retry = retry;
  return RunHere({options, alone, call.choice, call.path}, nullptr, progress, interrupt);
}

// A worker on each device, all into one database; then, on one device, what did not fit on the one
// that claimed it, and what is measured alone.
Result<RunEnd> RunOnDevices(const RunCall& call, const std::vector<int>& devices,
                            RunProgress& progress, const InterruptGuard& interrupt) {
  const RunConfig& config = call.given.config;
  RunEnd end;
  bool left = false;
  int roomiest = devices[0];
  if (!call.options.json) PrintShorthand(call.given);
  {
    KVG_TRY(MakeParent(call.path));
    // It holds the lock for the workers.
    KVG_ASSIGN(const std::unique_ptr<ResultStore> store,
               ResultStore::Open(call.path, StoreMode::kCreate));
    KVG_ASSIGN(const std::vector<StoredRun> before, store->Runs());
    const bool resumed = std::ranges::any_of(
        before, [&](const StoredRun& run) { return run.run.config == config.canonical; });
    KVG_ASSIGN(const std::unique_ptr<SharedWork> work, SharedWork::Create(devices, resumed));
    KVG_ASSIGN(WorkersOutcome workers,
               RunWorkers(devices, call.options.words, config.name, *work, progress, interrupt));
    end.outcome = std::move(workers.all);
    end.workers = std::move(workers.workers);
    left = work->left();
    roomiest = work->roomiest();
  }
  const auto go_on = [&] { return end.well() && interrupt.signal() == 0; };
  const auto add = [&](const RunOutcome& part) {
    end.outcome.seconds += part.seconds;
    end.outcome.signal = part.signal;
    AddOutcome(part, end.outcome);
  };
  if (left && go_on()) {
    progress.Note(StrCat("device ", roomiest, " runs what did not fit on others"));
    KVG_ASSIGN(const RunOutcome rest,
               RunBehind(call, roomiest, false, call.options.retry, progress, interrupt));
    add(rest);
  }
  if (config.latency != nullptr && go_on()) {
    // What failed just now does not run once more.
    KVG_ASSIGN(const RunOutcome measured,
               RunBehind(call, devices[0], true, false, progress, interrupt));
    add(measured);
  }
  return end;
}

Json EndJson(const RunEnd& end, const GivenConfig& given, const std::string& path) {
  Json json = OutcomeJson(end.outcome, given.config.name, path);
  if (!given.shorthand.is_null()) json["config"] = given.shorthand;
  for (const WorkerEnd& worker : end.workers) {
    json["workers"].push_back({{"device", worker.device},
                               {"exit_code", worker.exit_code},
                               {"run", worker.run_key},
                               {"cells", worker.cells}});
  }
  return json;
}

// The exit code, and why it is none of success.
int ConcludeRun(const RunEnd& end, const std::string& command, RunProgress& progress) {
  if (end.outcome.signal != 0) {
    progress.Note(
        StrCat("interrupted; nothing that was recorded is lost. Go on with:\n  ", command));
    return 128 + end.outcome.signal;
  }
  if (!end.well()) {
    std::vector<std::string> failed;
    for (const WorkerEnd& worker : end.workers) {
      if (worker.exit_code != 0) failed.push_back(StrCat(worker.device));
    }
    Log(LogLevel::kError,
        StrCat("the worker of device ", Join(failed, ", "), " did not go to the end; what it left ",
               "open is run by the same command:\n  ", command));
    return kExitFailure;
  }
  if (!RanInVain(end.outcome)) return kExitOk;
  Log(LogLevel::kError, "nothing that was run succeeded");
  return kExitFailure;
}

// A worker is asked as its run is, and by its own last word to be a worker.
Result<std::unique_ptr<SharedWork>> JoinRun(RunOptions& options) {
  KVG_ASSIGN(std::unique_ptr<SharedWork> work, SharedWork::Join(options.worker));
  KVG_TRY(work->EndWithLeader());
  const size_t own = StrCat(" --worker=", options.worker).size();
  options.command.resize(options.command.size() - std::min(own, options.command.size()));
  options.quiet = true;
  return work;
}

// What a worker has of its own: one device and its part of the processors.
void TakePlace(const SharedWork& work, int processors, RunConfig& config) {
  config.backend = StrCat("cuda:", work.device());
  if (config.threads > 0) return;
  config.threads = ProcessorsOf(work.index(), work.workers(),
                                processors > 0 ? processors : AvailableProcessors());
}

// Workers share --processors, and each needs one. --threads says how many each worker has, so a run
// takes one of the two.
Status CheckProcessors(const RunOptions& options, int64_t devices) {
  if (options.processors == 0) return {};
  if (options.devices.empty()) {
    return BadInput("--processors: no workers share them; expected --devices, too, or --threads");
  }
  if (options.threads > 0) {
    return BadInput(
        "--processors, --threads: one is of all workers and one is of each; expected one of them");
  }
  if (options.processors >= devices) return {};
  return BadInput(StrCat("--processors: ", options.processors, " for ", devices,
                         " devices; expected one for each at least"));
}

}  // namespace

Result<RunConfig> CheckedConfig(const RunOptions& options) {
  const Result<SampleChoice> choice = ChooseSamples(options);
  if (!choice.ok()) return choice.error();
  KVG_ASSIGN(GivenConfig given, ReadConfig(options));
  return std::move(given.config);
}

Status RunPlanCommand(const RunOptions& options) {
  KVG_ASSIGN(const GivenConfig given, ReadConfig(options));
  KVG_ASSIGN(const SampleChoice choice, ChooseSamples(options));
  KVG_ASSIGN(const RunPlan plan, MakeRunPlan(given.config));
  KVG_TRY(CheckSomethingRuns(plan, choice));
  return ShowPlan(options, given, plan, choice);
}

Result<int> ExecuteRunCommand(const RunOptions& asked) {
  RunOptions options = asked;
  std::unique_ptr<SharedWork> work;  // of a worker
  if (!options.worker.empty()) {
    KVG_ASSIGN(work, JoinRun(options));
  }
  KVG_ASSIGN(GivenConfig given, ReadConfig(options));
  if (options.processors > 0) given.config.threads = 0;
  if (work != nullptr) TakePlace(*work, options.processors, given.config);
  KVG_ASSIGN(const SampleChoice choice, ChooseSamples(options));
  std::vector<int> devices;
  if (!options.devices.empty() && work == nullptr) {
    KVG_ASSIGN(devices, ChooseDevices(options.devices, given.config.backend));
    if (devices.size() == 1) given.config.backend = StrCat("cuda:", devices[0]);
  }
  if (work == nullptr) {
    KVG_TRY(CheckProcessors(options, std::ssize(devices)));
    if (options.processors > 0) given.config.threads = options.processors;
  }
  const RunConfig& config = given.config;
  const std::string path = DatabasePath(options, config);
  if (options.dry_run) {
    KVG_TRY(RunPlanCommand(options));
    return kExitOk;
  }
  const InterruptGuard interrupt(work != nullptr ? InterruptOf::kWorker : InterruptOf::kRun);
  RunProgress progress(options.quiet, work != nullptr ? &work->counters() : nullptr);
  if (!options.quiet) {
    progress.Note(StrCat("run ", config.name, ": ", Counted(std::ssize(config.models), "model"),
                         " x ", Counted(std::ssize(config.tasks), "task"), " x ",
                         Counted(std::ssize(config.contenders), "row"), " -> ", path));
  }
  const RunCall call = {options, given, choice, path};
  RunEnd end;
  if (devices.size() > 1) {
    KVG_ASSIGN(end, RunOnDevices(call, devices, progress, interrupt));
    if (end.refused()) return kExitBadInput;
  } else {
    KVG_ASSIGN(end.outcome, RunHere(call, work.get(), progress, interrupt));
  }
  if (work != nullptr) {
    PrintJson(OutcomeJson(end.outcome, config.name, path));
    return kExitOk;
  }
  if (options.json) {
    PrintJson(EndJson(end, given, path));
  } else if (!options.quiet) {
    progress.Note(SummaryText(end.outcome));
  }
  if (RanInVain(end.outcome) || !options.quiet) {
    for (const std::string& text : ReasonTexts(end.outcome.reasons, kMostReasons)) {
      progress.Note(StrCat("  ", text));
    }
  }
  return ConcludeRun(end, options.command, progress);
}

}  // namespace kvgauge

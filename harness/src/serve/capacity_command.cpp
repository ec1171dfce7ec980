// SPDX-License-Identifier: Apache-2.0
// bench capacity: from flags to cases, and what came of them to a table or JSON.
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "core/clock.h"
#include "core/files.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "core/threads.h"
#include "kernels/devices.h"
#include "src/cli/print.h"
#include "src/model/method_flags.h"
#include "src/model/model_flags.h"
#include "src/run/interrupt.h"
#include "src/run/machine_facts.h"
#include "src/run/recorded_rows.h"
#include "src/run/run_config.h"
#include "src/serve/capacity_bench.h"
#include "src/serve/capacity_options.h"
#include "src/serve/capacity_record.h"

namespace kvgauge {
namespace {

constexpr int64_t kFailuresShown = 20;

struct CapacityLine {
  ChosenMethod chosen;
};

// What is run, in this order: methods, policies, batches, repetitions.
struct CapacityRun {
  std::vector<CapacityLine> lines;
  std::vector<ServePolicy> policies;
  std::vector<int64_t> batches;  // 0: as many as fit
  int64_t memory_bytes = 0, host_bytes = 0;
  Trace trace;
  Json workload;
};

struct CapacityMeasured {
  const CapacityLine* line = nullptr;
  const ServePolicy* policy = nullptr;
  int repetition = 0;
  CapacityResult result = {};
  bool recorded = false;  // before this call: without single requests and answers
  std::string failure = {};
};

Result<int64_t> ParseBatch(const std::string& text) {
  if (text == "max") return int64_t{0};
  int64_t batch = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), batch);
  if (error == std::errc() && end == text.data() + text.size() && batch >= 1 && batch <= 4096) {
    return batch;
  }
  return BadInput(StrCat("--batches: ", Quoted(text), "; expected 1 .. 4096, or max"));
}

Result<int64_t> MemoryFlag(const std::string& flag, const std::string& text) {
  if (text.empty()) return int64_t{0};
  const Result<int64_t> bytes = ParseBytes(text);
  if (!bytes.ok()) return bytes.error().Wrap(flag);
  if (*bytes > 0) return *bytes;
  return BadInput(
      StrCat(flag, ": ", Quoted(text), " holds nothing; expected more, or no flag: no limit"));
}

int64_t Scaled(int64_t tokens, double scale) {
  return std::max<int64_t>(1, std::llround(static_cast<double>(tokens) * scale));
}

// What comes of it must be a trace that could be read.
Status ScaleTrace(const BenchCapacityOptions& options, Trace& trace) {
  for (TraceRequest& request : trace.requests) {
    request.at_s *= options.time_scale;
    if (request.at_s > kMostTraceSeconds) {
      return BadInput(StrCat("--time-scale: ", options.time_scale, " makes request ",
                             Quoted(request.id), " arrive at ", request.at_s,
                             " s; expected at most ", kMostTraceSeconds));
    }
    if (options.length_scale == 1) continue;
    int64_t shared = 0;
    for (TokenRun& run : request.prefix) {
      run.tokens = Scaled(run.tokens, options.length_scale);
      shared += run.tokens;
    }
    request.prompt_tokens = std::max(Scaled(request.prompt_tokens, options.length_scale), shared);
    request.answer_tokens = Scaled(request.answer_tokens, options.length_scale);
    const int64_t most = std::max(request.prompt_tokens, request.answer_tokens);
    if (most > kMostTraceTokens) {
      return BadInput(StrCat("--length-scale: ", options.length_scale, " makes request ",
                             Quoted(request.id), " ", most, " tokens long; expected at most ",
                             kMostTraceTokens));
    }
  }
  return {};
}

Result<Trace> MakeTrace(const BenchCapacityOptions& options, Json* workload) {
  if (!options.trace.empty()) {
    KVG_ASSIGN(Trace trace, ReadTrace(options.trace, options.first));
    KVG_TRY(ScaleTrace(options, trace));
    *workload = {{"trace", trace.name},
                 {"requests", trace.requests.size()},
                 {"length_scale", options.length_scale},
                 {"time_scale", options.time_scale},
                 {"seed", options.seed}};
    return trace;
  }
  GeneratedTrace generated;
  KVG_ASSIGN(generated.arrivals, ParseArrivals(options.arrivals));
  generated.per_second = options.per_second;
  generated.burstiness = options.burstiness;
  generated.requests = options.requests;
  KVG_ASSIGN(generated.prompts, LengthMix::Parse(options.prompt_tokens, "--prompt-tokens"));
  KVG_ASSIGN(generated.answers, LengthMix::Parse(options.answer_tokens, "--answer-tokens"));
  generated.shared_tokens = options.shared_tokens;
  generated.shared_groups = options.shared_groups;
  generated.turns = options.turns;
  generated.pause_s = options.pause_s;
  generated.seed = options.seed;
  *workload = {{"arrivals", options.arrivals},
               {"requests", options.requests},
               {"prompt_tokens", options.prompt_tokens},
               {"answer_tokens", options.answer_tokens},
               {"seed", options.seed}};
  if (generated.arrivals != Arrivals::kTogether) (*workload)["per_second"] = options.per_second;
  if (generated.arrivals == Arrivals::kBursts) (*workload)["burstiness"] = options.burstiness;
  if (options.shared_tokens > 0) {
    (*workload)["shared_tokens"] = options.shared_tokens;
    (*workload)["shared_groups"] = options.shared_groups;
  }
  if (options.turns > 1) {
    (*workload)["turns"] = options.turns;
    (*workload)["pause_s"] = options.pause_s;
  }
  return GenerateTrace(generated);
}

// A case that is asked for twice would be measured twice and look like two.
Status CheckOnce(const std::string& flag, const std::vector<std::string>& words) {
  for (auto word = words.begin(); word != words.end(); ++word) {
    if (std::find(words.begin(), word, *word) == word) continue;
    return BadInput(StrCat(flag, ": ", Quoted(*word),
                           " is named twice; expected it once (--repetitions measures again)"));
  }
  return {};
}

Result<CapacityRun> MakeCapacityRun(const BenchCapacityOptions& options) {
  KVG_TRY(CheckOnce("--methods", options.methods));
  KVG_TRY(CheckOnce("--budgets", options.budgets));
  KVG_TRY(CheckOnce("--policies", options.policies));
  KVG_TRY(CheckOnce("--batches", options.batches));
  CapacityRun run;
  for (const std::string& name : options.policies) {
    KVG_ASSIGN(ServePolicy policy, FindServePolicy(name));
    run.policies.push_back(std::move(policy));
  }
  for (const std::string& text : options.batches) {
    KVG_ASSIGN(const int64_t batch, ParseBatch(text));
    run.batches.push_back(batch);
  }
  KVG_ASSIGN(run.memory_bytes, MemoryFlag("--max-memory", options.max_memory));
  KVG_ASSIGN(run.host_bytes, MemoryFlag("--host-memory", options.host_memory));
  if (run.memory_bytes == 0 &&
      std::find(run.batches.begin(), run.batches.end(), 0) != run.batches.end()) {
    if (options.batches.size() == 1) {
      return BadInput("--batches: \"max\" needs --max-memory; expected it, or a number");
    }
    std::erase(run.batches, 0);
  }
  KVG_ASSIGN(run.trace, MakeTrace(options, &run.workload));
  for (const std::string& method : options.methods) {
    KVG_ASSIGN(const ChosenMethod chosen,
               ChooseMethod({.method = method, .overrides = options.overrides}));
    std::vector<std::string> budgets = {"none"};
    if (chosen.method.takes_budget) budgets = options.budgets;
    for (const std::string& budget : budgets) {
      run.lines.push_back({chosen});
      KVG_ASSIGN(run.lines.back().chosen.budget, Budget::Parse(budget));
    }
  }
  return run;
}

// The model as one method after another needs it; one at a time, as memory is what is measured.
class CapacityModels {
 public:
  explicit CapacityModels(const ModelFlags& flags) : flags_(flags) {}

  Result<Model*> For(const ChosenMethod& chosen, const ModelShape& shape, int64_t longest_prompt) {
    std::string key = chosen.method.prepare ? StageKey(*chosen.method.prepare) : "";
    if (KeepsModelLatents(chosen.method, shape)) key += " latents";
    key += LoadedBeside(chosen.method);
    if (loaded_ && key == key_) return loaded_->model.get();
    loaded_.reset();
    KVG_ASSIGN(loaded_, LoadModelFor(chosen, flags_, longest_prompt));
    key_ = key;
    const Model& model = *loaded_->model;
    const int64_t free_bytes = model.ops().memory->FreeBytes();
    device_bytes_ = free_bytes > 0 ? model.weight_bytes() + free_bytes : 0;
    products_ = ManyRowsText(DevicesOf(model.ops()));
    return loaded_->model.get();
  }
  // What a device had for the model that was loaded last, with its weights; 0: unknown.
  int64_t device_bytes() const { return device_bytes_; }
  // What was pinned for its products; once for each model that is loaded, else "".
  std::string TakeProducts() { return std::exchange(products_, ""); }

 private:
  const ModelFlags& flags_;
  std::optional<LoadedModel> loaded_;
  std::string key_;
  int64_t device_bytes_ = 0;
  std::string products_;
};

std::string PercentileText(const ServePercentiles& p) { return TimesText({p.p50, p.p90, p.p99}); }

Json PercentileJson(const ServePercentiles& p) {
  return {{"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}};
}

// What was recorded before has one reason, without its request.
Json FailuresOf(const CapacityMeasured& m, const Trace& trace) {
  Json failures = Json::array();
  if (m.recorded && !m.failure.empty()) failures.push_back({{"reason", m.failure}});
  const std::vector<ServedRequest>& requests = m.result.outcome.requests;
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::string& failure = requests[i].failure;
    if (failure.empty() || std::ssize(failures) == kFailuresShown) continue;
    failures.push_back({{"id", trace.requests[i].id}, {"reason", failure}});
  }
  return failures;
}

// "": every request was served.
std::string FailedText(const CapacityMeasured& m, const Trace& trace) {
  const int64_t failed = m.result.metrics.failed;
  if (failed == 0) return "";
  return StrCat(failed, " of ", trace.requests.size(), " requests failed");
}

// What was refused before as many as fit were counted has no number.
std::string BatchText(const CapacityMeasured& m) {
  return m.result.max_batch > 0 ? StrCat(m.result.max_batch) : "max";
}

// "": none had to go.
std::string PreemptedText(const CapacityResult& r, bool estimate) {
  const int64_t times = r.metrics.preemptions;
  if (times == 0) return "";
  std::string text =
      StrCat("a running cache had to go ", WithCommas(times), times == 1 ? " time" : " times");
  if (r.outcome.host_peak_bytes > 0) {
    text += StrCat(", at most ", HumanBytes(r.outcome.host_peak_bytes),
                   estimate ? " are planned for the host" : " lay on the host");
  }
  return text;
}

void PrintCapacity(const CapacityRun& run, const std::vector<CapacityMeasured>& all,
                   bool estimate) {
  std::vector<std::vector<std::string>> table;
  for (const CapacityMeasured& m : all) {
    const CapacityResult& r = m.result;
    const ChosenMethod& chosen = m.line->chosen;
    if (!r.refused.empty()) {
      table.push_back(
          {chosen.method.id, chosen.budget.ToString(), m.policy->name, BatchText(m), "refused"});
      table.back().resize(14, "-");
      continue;
    }
    const bool served = r.metrics.served > 0;
    const bool later = r.metrics.tokens_out > r.metrics.served;  // than the first token
    table.push_back({chosen.method.id, chosen.budget.ToString(), m.policy->name, BatchText(m),
                     StrCat(r.outcome.most_held),
                     run.memory_bytes > 0 ? StrCat(r.planned_held) : "-",
                     served ? Fixed(r.metrics.tokens_per_s, 1) : "-",
                     served ? PercentileText(r.metrics.ttft_s) : "-",
                     later ? PercentileText(r.metrics.tpot_s) : "-",
                     served ? PercentileText(r.metrics.e2e_s) : "-",
                     HumanBytes(estimate ? r.outcome.planned_peak_bytes : r.peak_bytes),
                     served && !estimate ? HumanBytes(std::llround(r.sequence_bytes)) : "-",
                     StrCat(r.metrics.served, " of ", run.trace.requests.size()),
                     estimate ? "-" : Fixed(100 * r.others_share, 0)});
  }
  PrintTable({"method", "budget", "policy", "batch", "held", "fit", "tokens/s",
              "first token p50/90/99", "token p50/90/99", "whole p50/90/99",
              estimate ? "planned" : "peak", "sequence", "served", "others %"},
             table);
  std::set<std::string> said;  // mostly for all batches alike
  for (const CapacityMeasured& m : all) {
    const CapacityResult& r = m.result;
    const std::string name = StrCat(m.line->chosen.method.id, " ", m.line->chosen.budget.ToString(),
                                    ", ", m.policy->name);
    if (!r.refused.empty()) {
      const std::string why = StrCat("\n", name, ": refused: ", r.refused, "\n");
      if (said.insert(why).second) Print(why);
    }
    const Json failures = FailuresOf(m, run.trace);
    if (!failures.empty()) {
      const Json& first = failures.front();
      const std::string whose =
          first.contains("id") ? StrCat(first["id"].get<std::string>(), ": ") : std::string();
      Print(StrCat("\n", name, ", batch ", BatchText(m), ": ", FailedText(m, run.trace),
                   ", and no figure counts them; ", whose, first["reason"].get<std::string>(),
                   "\n"));
    }
    if (const std::string preempted = PreemptedText(r, estimate); !preempted.empty()) {
      Print(StrCat("\n", name, ", batch ", BatchText(m), ": ", preempted, "\n"));
    }
    if (r.not_engaged > 0) {
      const std::string why = StrCat("\n", name, ": not engaged in ", r.not_engaged, " of ",
                                     r.metrics.served, " requests: ", r.not_engaged_because, "\n");
      if (said.insert(why).second) Print(why);
    }
  }
}

Json CaseJson(const CapacityMeasured& m, const Trace& trace) {
  const CapacityResult& r = m.result;
  // A refused case of the largest batch never had a number of it.
  const Json batch = r.max_batch > 0 ? Json(r.max_batch) : Json("max");
  Json json = {{"method", m.line->chosen.method.id}, {"budget", m.line->chosen.budget.ToString()},
               {"policy", m.policy->name},           {"batch", batch},
               {"repetition", m.repetition},         {"weight_bytes", r.weight_bytes}};
  if (m.recorded) json["recorded"] = true;
  if (!r.refused.empty()) {
    json["refused"] = r.refused;
    return json;
  }
  json["served"] = r.metrics.served;
  json["failed"] = r.metrics.failed;
  json["failures"] = FailuresOf(m, trace);
  json["held"] = r.outcome.most_held;
  json["fit"] = r.planned_held;
  json["decoding"] = r.outcome.most_decoding;
  json["tokens_in"] = r.metrics.tokens_in;
  json["tokens_out"] = r.metrics.tokens_out;
  json["seconds"] = r.outcome.served_s;
  json["busy_s"] = r.outcome.busy_s;
  json["tokens_per_s"] = r.metrics.tokens_per_s;
  const bool served = r.metrics.served > 0;
  const bool later = r.metrics.tokens_out > r.metrics.served;  // than the first token
  json["ttft_s"] = served ? PercentileJson(r.metrics.ttft_s) : Json(nullptr);
  json["tpot_s"] = later ? PercentileJson(r.metrics.tpot_s) : Json(nullptr);
  json["e2e_s"] = served ? PercentileJson(r.metrics.e2e_s) : Json(nullptr);
  json["passes"] = r.outcome.passes;
  json["preemptions"] = r.metrics.preemptions;
  json["shared_tokens"] = r.metrics.shared_tokens;
  json["prompt_rows"] = r.outcome.prompt_rows;
  json["replayed_tokens"] = r.outcome.replayed_tokens;
  json["working_bytes"] = r.working_bytes;
  json["cache_bytes"] = m.recorded ? Json(nullptr) : Json(r.cache_bytes);  // which no store holds
  json["planned_bytes"] = r.outcome.planned_peak_bytes;
  json["peak_bytes"] = r.peak_bytes;
  json["sequence_bytes"] = std::llround(r.sequence_bytes);
  json["host_bytes"] = r.outcome.host_peak_bytes;
  json["not_engaged"] = r.not_engaged;
  json["others_share"] = r.others_share;
  return json;
}

// Whether requests that were served in two cases of one method got the same tokens.
Status CompareAnswers(const CapacityMeasured& a, const CapacityMeasured& b, const Trace& trace) {
  if (a.recorded || b.recorded) return {};  // the recorder compares those
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    if (!a.result.outcome.requests[i].failure.empty() ||
        !b.result.outcome.requests[i].failure.empty()) {
      continue;
    }
    const auto size = static_cast<size_t>(trace.requests[i].answer_tokens);
    if (a.result.answers[i].size() != size || b.result.answers[i].size() != size) continue;
    if (a.result.answers[i] == b.result.answers[i]) continue;
    return Unsupported(StrCat(b.line->chosen.method.id, ": request ", trace.requests[i].id,
                              " got other tokens under ", b.policy->name, ", batch ", BatchText(b),
                              ", than under ", a.policy->name, ", batch ", BatchText(a)));
  }
  return {};
}

class CapacityBench {
 public:
  CapacityBench(const BenchCapacityOptions& options, const CapacityRun& run)
      : options_(options), run_(run), models_(options.model) {}

  Status Start() {
    KVG_ASSIGN(const ModelOptions model_options, ParseModelOptions(options_.model));
    KVG_ASSIGN(config_, ReadModelConfig(options_.model.model));
    dtype_ = model_options.dtype.value_or(config_->stored_dtype);
    planned_.config = &*config_;
    caches_ = config_->OfCaches();
    planned_.caches = &caches_;
    planned_.shape = ShapeFor(options_.model, *config_, model_options);
    planned_.checkpoint_shape = planned_.shape;
    KVG_ASSIGN(ops_, MakeOps(options_.model.backend, MakeThreadSettings(options_.model.threads)));
    planned_.weight_bytes = PlannedWeightBytes(*config_, dtype_, config_->stored_dtype);
    if (!model_options.random_seed && !config_->weight_format.empty()) {
      KVG_ASSIGN(const std::unique_ptr<WeightSource> source,
                 OpenWeights(options_.model.model, dtype_));
      planned_.weight_bytes = PlannedWeightBytes(*config_, dtype_, *source,
                                                 model_options.keep_blocks ? ops_.get() : nullptr);
    }
    planned_.ops = ops_.get();
    planned_.product_rows = model_options.product_rows;
    if (run_.memory_bytes > 0 && planned_.weight_bytes >= run_.memory_bytes) {
      return BadInput(StrCat("--max-memory is ", HumanBytes(run_.memory_bytes),
                             "; expected more than the weights, which take ",
                             HumanBytes(planned_.weight_bytes)));
    }
    KVG_TRY(StartRecording());
    for (const TraceRequest& request : run_.trace.requests) {
      longest_prompt_ = std::max(longest_prompt_, request.prompt_tokens);
    }
    if (config_->max_position > 0) {
      longest_prompt_ = std::min(longest_prompt_, config_->max_position);
    }
    return {};
  }

  Status Run(const InterruptGuard& guard) {
    const auto cancelled = [&guard] { return guard.signal() != 0; };
    for (const CapacityLine& line : run_.lines) {
      const CapacityMeasured* first = nullptr;
      const size_t begin = all_.size();
      for (const ServePolicy& policy : run_.policies) {
        for (const int64_t batch : run_.batches) {
          for (int repetition = 0; repetition < options_.repetitions; ++repetition) {
            if (cancelled()) return {};
            CapacityMeasured m = {.line = &line, .policy = &policy, .repetition = repetition};
            KVG_TRY(MeasureOrFind(batch, cancelled, m));
            if (cancelled()) return {};
            std::string said = m.result.refused.empty()
                                   ? StrCat(Fixed(m.result.metrics.tokens_per_s, 1), " tokens/s")
                                   : std::string("refused");
            const std::string failed = FailedText(m, run_.trace);
            if (!failed.empty()) said += StrCat(", ", failed);
            std::fprintf(stderr, "%s %s, %s, batch %s: %s%s\n", line.chosen.method.id.c_str(),
                         line.chosen.budget.ToString().c_str(), policy.name.c_str(),
                         BatchText(m).c_str(), said.c_str(),
                         m.recorded ? " (recorded before)" : "");
            all_.push_back(std::move(m));
          }
        }
      }
      for (size_t i = begin; i < all_.size() && !options_.estimate; ++i) {
        if (!all_[i].result.refused.empty()) continue;
        if (first != nullptr) KVG_TRY(CompareAnswers(*first, all_[i], run_.trace));
        first = first == nullptr ? &all_[i] : first;
      }
    }
    return {};
  }

  Status Finish(const InterruptGuard& guard) {
    return recorder_ == nullptr ? Status() : recorder_->Finish(guard.signal());
  }

  const std::vector<CapacityMeasured>& all() const { return all_; }
  DType dtype() const { return dtype_; }
  int64_t cases() const {
    return std::ssize(run_.lines) * std::ssize(run_.policies) * std::ssize(run_.batches) *
           options_.repetitions;
  }

 private:
  Status StartRecording() {
    if (options_.database.empty()) return {};
    KVG_ASSIGN(const std::string fingerprint, FingerprintOf(options_.model));
    Json workload = run_.workload;
    // Files of one name may differ.
    if (!options_.trace.empty()) workload["digest"] = Sha256Hex(WriteTrace(run_.trace));
    std::vector<std::string> variant = options_.overrides;
    std::ranges::sort(variant, {},
                      [](std::string_view set) { return set.substr(0, set.find('=')); });
    subject_.model =
        ModelRowOf(NameOfPath(options_.model.model), fingerprint, planned_.shape, *config_, dtype_);
    subject_.variant = Join(variant, ", ");
    subject_.workload = CanonicalJson(workload);
    subject_.dtype = NumbersOf(options_.model, dtype_);
    subject_.backend = ops_->backend;
    subject_.isa = ops_->variant;
    subject_.memory_bytes = run_.memory_bytes;
    subject_.host_memory_bytes = run_.host_bytes;
    RunRow row;
    row.key = RandomKey();
    row.machine.facts =
        CanonicalJson(MachineFacts(*ops_, MakeThreadSettings(options_.model.threads).threads));
    row.command = RepairUtf8(options_.command);
    row.config = CanonicalJson({{"bench", "capacity"},
                                {"model", options_.model.model},
                                {"weights", options_.model.weights},
                                {"methods", options_.methods},
                                {"budgets", options_.budgets},
                                {"set", options_.overrides},
                                {"policies", options_.policies},
                                {"batches", options_.batches},
                                {"max_memory", options_.max_memory},
                                {"host_memory", options_.host_memory},
                                {"repetitions", options_.repetitions},
                                {"workload", workload}});
    row.version = options_.build.version;
    row.revision = options_.build.revision;
    row.started_at = UtcNow();
    KVG_ASSIGN(recorder_, CapacityRecorder::Open(options_.database, row));
    return {};
  }

  // A case that the store holds of this machine is taken from there. Whether it is refused is asked
  // again, which takes no time.
  Status MeasureOrFind(int64_t batch, const std::function<bool()>& cancelled, CapacityMeasured& m) {
    CapacityRow row;
    std::string refused;
    if (recorder_ != nullptr) {
      row = CapacityRowOf(subject_, m.line->chosen, *m.policy, batch, m.repetition);
      const CapacityRow* known = options_.again ? nullptr : recorder_->Find(row);
      if (known != nullptr) refused = known->refused;
      if (known != nullptr && refused.empty()) {
        m.result = ResultOfRow(*known);
        m.failure = known->failure;
        m.recorded = true;
        return {};
      }
    }
    KVG_ASSIGN(m.result, RunCase(*m.line, *m.policy, batch, cancelled));
    if (recorder_ == nullptr || cancelled()) return {};
    m.recorded = !refused.empty() && m.result.refused == refused;
    if (m.recorded) return {};
    FillCapacityRow(m.result, row);
    return recorder_->Write(row);
  }

  Result<CapacityResult> RunCase(const CapacityLine& line, const ServePolicy& policy, int64_t batch,
                                 const std::function<bool()>& cancelled) {
    CapacityCase of;
    of.chosen = &line.chosen;
    of.policy = policy;
    of.max_batch = batch;
    of.memory_bytes = run_.memory_bytes;
    of.host_bytes = run_.host_bytes;
    of.seed = options_.seed;
    of.directory = options_.disk;
    if (options_.estimate) {
      return EstimateCapacity(of, run_.trace, planned_,
                              {options_.bytes_per_s, options_.operations_per_s});
    }
    // Before any weight is read.
    const Result<CapacityPlan> plan = PlanCapacity(of, run_.trace, planned_);
    if (!plan.ok()) return RefusedCase(of, plan.error().message, planned_);
    KVG_ASSIGN(Model * model, models_.For(line.chosen, planned_.shape, longest_prompt_));
    of.device_bytes = models_.device_bytes();
    const std::string products = models_.TakeProducts();
    if (recorder_ != nullptr && !products.empty()) KVG_TRY(recorder_->Tell("products", products));
    return MeasureCapacity(of, run_.trace, *model, cancelled);
  }

  const BenchCapacityOptions& options_;
  const CapacityRun& run_;
  std::unique_ptr<Ops> ops_;
  std::optional<ModelConfig> config_;
  ModelConfig caches_;
  DType dtype_ = DType::kF32;
  PlannedModel planned_;
  int64_t longest_prompt_ = 0;
  CapacityModels models_;
  CapacitySubject subject_;
  std::unique_ptr<CapacityRecorder> recorder_;  // null: nothing is recorded
  std::vector<CapacityMeasured> all_;
};

// Flags that say nothing here would let figures be read as those of another workload.
Status CheckWorkloadFlags(const BenchCapacityOptions& options) {
  const BenchCapacityOptions usual;
  const bool bursty = options.burstiness != usual.burstiness;
  if (options.arrivals == "together" && (bursty || options.per_second != usual.per_second)) {
    return BadInput(
        "--per-second, --burstiness: all requests arrive together; expected --arrivals poisson or "
        "--arrivals bursts, too");
  }
  if (options.arrivals == "poisson" && bursty) {
    return BadInput("--burstiness: single requests arrive; expected --arrivals bursts");
  }
  if (options.turns == 1 && options.pause_s > 0) {
    return BadInput("--pause: there is one turn; expected --turns, too");
  }
  if (options.shared_tokens == 0 && options.shared_groups != 1) {
    return BadInput("--shared-groups: nothing is shared; expected --shared-tokens, too");
  }
  return {};
}

// What waits where, by the policies.
Status CheckPlaces(const BenchCapacityOptions& options, const CapacityRun& run) {
  const auto any = [&](auto&& of) { return std::ranges::any_of(run.policies, of); };
  if (run.host_bytes > 0 && !any([](const ServePolicy& policy) {
        return policy.preempt == ServePolicy::Preempt::kSwap ||
               policy.keep != ServePolicy::Keep::kNone;
      })) {
    return BadInput(
        "--host-memory: nothing waits there; expected swap, queues, keep_host or keep_disk among "
        "--policies");
  }
  if (options.disk.empty()) return {};
  if (!any([](const ServePolicy& policy) { return policy.keep == ServePolicy::Keep::kDisk; })) {
    return BadInput("--disk: nothing waits there; expected keep_disk among --policies");
  }
  std::error_code failed;
  if (!std::filesystem::is_directory(options.disk, failed) ||
      access(options.disk.c_str(), W_OK | X_OK) != 0) {
    return BadInput(StrCat("--disk: ", options.disk, " is no folder that can be written to"));
  }
  return {};
}

}  // namespace

Result<int> RunBenchCapacity(const BenchCapacityOptions& options) {
  if (options.estimate && !options.database.empty()) {
    return BadInput("--db: with --estimate nothing is measured; expected one of them");
  }
  if (options.again && options.database.empty()) {
    return BadInput("--again: measures once more what --db holds; expected --db, too");
  }
  const BenchCapacityOptions usual;
  if (options.trace.empty() &&
      (options.first != usual.first || options.length_scale != usual.length_scale ||
       options.time_scale != usual.time_scale)) {
    return BadInput("--first, --length-scale, --time-scale: change a file; expected --trace, too");
  }
  if (!options.estimate && (options.bytes_per_s != usual.bytes_per_s ||
                            options.operations_per_s != usual.operations_per_s)) {
    return BadInput(
        "--bytes-per-s, --operations-per-s: this machine has rates of its own; "
        "expected --estimate, too");
  }
  if (options.trace.empty()) KVG_TRY(CheckWorkloadFlags(options));
  KVG_ASSIGN(const CapacityRun run, MakeCapacityRun(options));
  KVG_TRY(CheckPlaces(options, run));
  if (!options.save_trace.empty()) KVG_TRY(WriteFile(options.save_trace, WriteTrace(run.trace)));
  BenchCapacityOptions found = options;
  KVG_ASSIGN(found.model.model, ShapeOrPath(options.model.model));
  CapacityBench bench(found, run);
  KVG_TRY(bench.Start());
  const InterruptGuard guard(InterruptOf::kBench);
  KVG_TRY(bench.Run(guard));
  KVG_TRY(bench.Finish(guard));
  if (options.json) {
    Json cases = Json::array();
    for (const CapacityMeasured& m : bench.all()) cases.push_back(CaseJson(m, run.trace));
    PrintJson({{"model", options.model.model},
               {"dtype", NameOf(bench.dtype())},
               {"memory_bytes", run.memory_bytes},
               {"workload", run.workload},
               {"left_out", run.trace.left_out},
               {"estimate", options.estimate},
               {"cases", cases}});
  } else {
    PrintCapacity(run, bench.all(), options.estimate);
  }
  if (guard.signal() == 0) return 0;
  std::fprintf(stderr, "interrupted after %lld of %lld cases\n",
               static_cast<long long>(bench.all().size()), static_cast<long long>(bench.cases()));
  return 128 + guard.signal();
}

}  // namespace kvgauge

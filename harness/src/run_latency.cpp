// SPDX-License-Identifier: Apache-2.0
#include "src/run_latency.h"

#include <map>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/strings.h"
#include "src/print.h"
#include "src/tokenizer_codec.h"

namespace kvgauge {
namespace {

constexpr int64_t kPromptSamples = 8;

// Token ids of the first samples of a group's task.
Result<std::vector<std::vector<int32_t>>> ReadPrompts(const RunPlan& plan, const PlanGroup& group) {
  const PlanModel& model = plan.models[group.model];
  const Task& task = plan.config->tasks[group.task].task;
  const TokenizerCodec codec(*model.tokenizer);
  const PromptBuilder builder(*model.tokenizer, model.chat);
  KVG_ASSIGN(const std::unique_ptr<SampleStream> stream,
             OpenSamples(plan, group, {.limit = kPromptSamples}, codec));
  std::vector<std::vector<int32_t>> prompts;
  while (true) {
    KVG_ASSIGN(const std::optional<Sample> sample, stream->Next());
    if (!sample) return prompts;
    KVG_ASSIGN(EngineSample built, builder.Build(*sample, task, {}));
    std::vector<int32_t> ids = std::move(built.context);
    ids.insert(ids.end(), built.turns[0].ids.begin(), built.turns[0].ids.end());
    prompts.push_back(std::move(ids));
  }
}

}  // namespace

Result<LatencyOutcome> RunLatencyPhase(const RunPlan& plan, ResultStore& store, int64_t run,
                                       RunProgress& progress, const InterruptGuard& interrupt) {
  const RunConfig& config = *plan.config;
  KVG_ASSIGN(const LatencyOptions options,
             ParseLatencyOptions(*config.latency, StrCat(config.path, ".latency")));
  LatencyOutcome total;
  for (size_t m = 0; m < plan.models.size(); ++m) {
    std::map<size_t, LoadedModel> models;  // by prefill
    std::map<size_t, LatencyLine> lines;   // by row
    const PlanGroup* first = nullptr;
    for (const PlanGroup& group : plan.groups) {
      if (group.model != m) continue;
      if (first == nullptr) first = &group;
      for (size_t i = 0; i < group.rows.size(); ++i) {
        const size_t row = group.rows[i];
        if (lines.count(row) > 0) continue;
        if (models.count(group.prefill) == 0) {
          KVG_ASSIGN(models[group.prefill], LoadPlanned(plan, m, group.prefill));
        }
        const RunRowSpec& spec = config.rows[row];
        KVG_ASSIGN(const int64_t cell, store.AddCell(group.cells[i]));
        lines[row] = {.name = spec.Name(),
                      .method = &spec.method,
                      .budget = spec.budget,
                      .model = models[group.prefill].model.get(),
                      .full_cache = spec.full_cache(),
                      .cell = cell};
      }
    }
    if (first == nullptr) continue;
    KVG_ASSIGN(std::vector<std::vector<int32_t>> prompts, ReadPrompts(plan, *first));
    std::vector<LatencyLine> ordered;
    std::vector<std::string> names;
    for (const auto& [row, line] : lines) {
      ordered.push_back(line);
      names.push_back(line.name);
    }
    progress.BeginGroup(m + 1, plan.models.size(), plan.models[m].spec->name + ", latency", names,
                        -1);
    LatencyHooks hooks;
    hooks.cancelled = [&] { return interrupt.signal() != 0; };
    hooks.on_event = [&](const LatencyEvent& event) {
      progress.EndCell(0, false, nullptr, !event.status.ok());
      if (!event.status.ok()) {
        progress.Note(StrCat("latency: ", event.line->name, " at ", event.context_tokens,
                             " tokens: ", event.status.error().message));
      }
    };
    KVG_ASSIGN(
        const LatencyOutcome outcome,
        RecordLatency(ordered, SamplePrompts(std::move(prompts)), options, hooks, store, run));
    progress.EndGroup();
    total.measured += outcome.measured;
    total.had += outcome.had;
    total.disturbed += outcome.disturbed;
    total.failed += outcome.failed;
    total.cancelled = outcome.cancelled;
    if (outcome.cancelled) break;
  }
  return total;
}

}  // namespace kvgauge

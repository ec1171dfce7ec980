// SPDX-License-Identifier: Apache-2.0
#include "src/run/check_records.h"

#include <memory>
#include <optional>
#include <set>

#include "datasets/task.h"
#include "src/model/tokenizer_codec.h"
#include "src/run/sample_source.h"

namespace kvgauge {

Status CheckRecords(const RunPlan& plan, const SampleChoice& choice,
                    const InterruptGuard& interrupt) {
  std::set<size_t> seen;
  for (const PlanGroup& group : plan.groups) {
    const RunTask& entry = plan.config->tasks[group.task];
    const SourceSpec* source = FindSource(entry.task.source);
    if (source == nullptr || source->generated || entry.task.metric == kPerplexityMetric) continue;
    if (!seen.insert(group.task).second) continue;
    const TokenizerCodec codec(*plan.models[group.model].tokenizer);
    // Uncut: what is cut off a prompt is no part of a record's shape.
    const TaskOptions options = {.data_directory = plan.config->data_directory,
                                 .seed = static_cast<uint64_t>(group.seed),
                                 .limit = choice.Most(entry.samples),
                                 .codec = &codec,
                                 .skip_bad = plan.config->skip_bad};
    const Result<std::unique_ptr<SampleStream>> stream = OpenTask(entry.task, options);
    if (!stream.ok()) return OfTask(plan, entry.task, stream.error());
    while (interrupt.signal() == 0) {
      const Result<std::optional<Sample>> sample = (*stream)->Next();
      if (!sample.ok()) return OfTask(plan, entry.task, sample.error());
      if (!*sample) break;
    }
  }
  return {};
}

}  // namespace kvgauge

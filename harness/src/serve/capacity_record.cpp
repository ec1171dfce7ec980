// SPDX-License-Identifier: Apache-2.0
#include "src/serve/capacity_record.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/clock.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "src/run/recorded_rows.h"

namespace kvgauge {
namespace {

// Raised when the same case would get other numbers from another version of the loop. 2: a reader's
// index is planned and part of the peak, and `max` are those that begin where a policy preempts. No
// other case has changed.
int VersionOf(const Method& method, const ServePolicy& policy, int64_t batch) {
  const bool most = batch == 0 && policy.preempt != ServePolicy::Preempt::kNone;
  return method.read || most ? 2 : 1;
}

// Whether two rows answer the same requests with the same method and numbers, whatever the memory.
bool SameQuestions(const CapacityRow& a, const CapacityRow& b) {
  return a.workload == b.workload && a.method.name == b.method.name &&
         AreAlikeBut(a.identity, b.identity,
                     {"capacity", "policy", "batch", "memory_bytes", "host_memory_bytes"});
}

}  // namespace

CapacityRow CapacityRowOf(const CapacitySubject& subject, const ChosenMethod& chosen,
                          const ServePolicy& policy, int64_t batch, int64_t repetition) {
  CapacityRow row;
  row.model = subject.model;
  row.method = MethodRowOf(chosen.method, subject.variant);
  row.budget = chosen.budget.ToString();
  row.budget_kind = NameOf(chosen.budget.kind);
  row.budget_value = chosen.budget.value;
  row.workload = subject.workload;
  row.policy = policy.name;
  row.batch = batch;
  row.memory_bytes = subject.memory_bytes;
  row.host_memory_bytes = subject.host_memory_bytes;
  row.repetition = repetition;
  row.identity = CanonicalJson({{"capacity", VersionOf(chosen.method, policy, batch)},
                                {"model", subject.model.fingerprint},
                                {"dtype", subject.dtype},
                                {"numerics", {{"backend", subject.backend}, {"isa", subject.isa}}},
                                {"method", chosen.method.ToJson()},
                                {"budget", row.budget},
                                {"workload", subject.workload},
                                {"policy", policy.name},
                                {"batch", batch},
                                {"memory_bytes", subject.memory_bytes},
                                {"host_memory_bytes", subject.host_memory_bytes}});
  return row;
}

std::string AnswersKey(const CapacityResult& result) {
  if (!result.refused.empty() || result.metrics.failed > 0 || result.answers.empty()) return "";
  Sha256 sha;
  for (const std::vector<int32_t>& answer : result.answers) {
    const std::string head = StrCat(answer.size(), ":");
    sha.Update(head.data(), head.size());
    for (const int32_t token : answer) {
      const std::string text = StrCat(token, ",");
      sha.Update(text.data(), text.size());
    }
  }
  return sha.Finish();
}

void FillCapacityRow(const CapacityResult& result, CapacityRow& row) {
  row.refused = result.refused;
  row.max_batch = result.max_batch;
  row.weight_bytes = result.weight_bytes;
  if (!result.refused.empty()) return;
  const ServeOutcome& outcome = result.outcome;
  const ServeMetrics& metrics = result.metrics;
  row.requests = std::ssize(outcome.requests);
  row.served = metrics.served;
  row.failed = metrics.failed;
  for (const ServedRequest& request : outcome.requests) {
    if (request.failure.empty()) continue;
    row.failure = request.failure;
    break;
  }
  row.held = outcome.most_held;
  if (row.memory_bytes > 0) row.fit = result.planned_held;
  row.decoding = outcome.most_decoding;
  row.tokens_in = metrics.tokens_in;
  row.tokens_out = metrics.tokens_out;
  row.seconds = outcome.served_s;
  row.busy_s = outcome.busy_s;
  row.tokens_per_s = metrics.tokens_per_s;
  row.ttft_p50_s = metrics.ttft_s.p50;
  row.ttft_p90_s = metrics.ttft_s.p90;
  row.ttft_p99_s = metrics.ttft_s.p99;
  row.tpot_p50_s = metrics.tpot_s.p50;
  row.tpot_p90_s = metrics.tpot_s.p90;
  row.tpot_p99_s = metrics.tpot_s.p99;
  row.e2e_p50_s = metrics.e2e_s.p50;
  row.e2e_p90_s = metrics.e2e_s.p90;
  row.e2e_p99_s = metrics.e2e_s.p99;
  row.passes = outcome.passes;
  row.prompt_rows = outcome.prompt_rows;
  row.preemptions = metrics.preemptions;
  row.shared_tokens = metrics.shared_tokens;
  row.replayed_tokens = outcome.replayed_tokens;
  row.working_bytes = result.working_bytes;
  row.planned_bytes = outcome.planned_peak_bytes;
  row.peak_bytes = result.peak_bytes;
  row.sequence_bytes = std::llround(result.sequence_bytes);
  row.host_bytes = outcome.host_peak_bytes;
  row.not_engaged = result.not_engaged;
  row.not_engaged_because = result.not_engaged_because;
  row.answers_key = AnswersKey(result);
  row.others_share = result.others_share;
}

CapacityResult ResultOfRow(const CapacityRow& row) {
  CapacityResult result;
  result.refused = row.refused;
  result.max_batch = row.max_batch;
  result.weight_bytes = row.weight_bytes;
  result.working_bytes = row.working_bytes;
  result.planned_held = row.fit.value_or(0);
  result.peak_bytes = row.peak_bytes;
  result.sequence_bytes = static_cast<double>(row.sequence_bytes);
  result.not_engaged = row.not_engaged;
  result.not_engaged_because = row.not_engaged_because;
  result.others_share = row.others_share;
  ServeOutcome& outcome = result.outcome;
  outcome.most_held = row.held;
  outcome.most_decoding = row.decoding;
  outcome.served_s = row.seconds;
  outcome.busy_s = row.busy_s;
  outcome.passes = row.passes;
  outcome.prompt_rows = row.prompt_rows;
  outcome.replayed_tokens = row.replayed_tokens;
  outcome.planned_peak_bytes = row.planned_bytes;
  outcome.host_peak_bytes = row.host_bytes;
  result.metrics = {.served = row.served,
                    .failed = row.failed,
                    .tokens_in = row.tokens_in,
                    .tokens_out = row.tokens_out,
                    .tokens_per_s = row.tokens_per_s,
                    .ttft_s = {row.ttft_p50_s, row.ttft_p90_s, row.ttft_p99_s},
                    .tpot_s = {row.tpot_p50_s, row.tpot_p90_s, row.tpot_p99_s},
                    .e2e_s = {row.e2e_p50_s, row.e2e_p90_s, row.e2e_p99_s},
                    .preemptions = row.preemptions,
                    .shared_tokens = row.shared_tokens};
  return result;
}

Result<std::unique_ptr<CapacityRecorder>> CapacityRecorder::Open(const std::string& path,
                                                                 const RunRow& run) {
  KVG_ASSIGN(std::unique_ptr<ResultStore> store, OpenForRecording(path));
  KVG_ASSIGN(std::vector<CapacityRow> recorded, store->Capacities());
  std::erase_if(recorded,
                [&](const CapacityRow& row) { return row.machine_facts != run.machine.facts; });
  KVG_ASSIGN(const int64_t id, store->AddRun(run));
  KVG_TRY(store->AddEvent(
      id,
      {.at = UtcNow(), .kind = recorded.empty() ? "started" : "resumed", .message = "capacity"}));
  return std::unique_ptr<CapacityRecorder>(
      new CapacityRecorder(std::move(store), id, std::move(recorded)));
}

const CapacityRow* CapacityRecorder::Find(const CapacityRow& row) const {
  const auto at = std::find_if(recorded_.rbegin(), recorded_.rend(), [&](const CapacityRow& other) {
    return other.identity == row.identity && other.repetition == row.repetition;
  });
  return at == recorded_.rend() ? nullptr : &*at;
}

Status CapacityRecorder::Write(const CapacityRow& row) {
  for (const CapacityRow& other : recorded_) {
    if (row.answers_key.empty() || other.answers_key.empty() ||
        row.answers_key == other.answers_key || !SameQuestions(row, other)) {
      continue;
    }
    return Unsupported(StrCat(store_->path(), ": ", row.method.name, " ", row.budget,
                              ": requests got other tokens under ", row.policy, ", batch ",
                              row.max_batch, ", than those recorded under ", other.policy,
                              ", batch ", other.max_batch));
  }
  KVG_TRY(store_->WriteCapacity(run_, row));
  recorded_.push_back(row);
  return {};
}

Status CapacityRecorder::Tell(const std::string& kind, const std::string& message) {
  return store_->AddEvent(run_, {.at = UtcNow(), .kind = kind, .message = message});
}

Status CapacityRecorder::Finish(int signal) {
  return EndRecording(*store_, run_, signal, "capacity");
}

}  // namespace kvgauge

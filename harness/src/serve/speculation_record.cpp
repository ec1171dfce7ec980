// SPDX-License-Identifier: Apache-2.0
#include "src/serve/speculation_record.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/clock.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "src/run/recorded_rows.h"

namespace kvgauge {
namespace {

// Raised when the same answer would get other numbers from another version of the loop.
constexpr int kSpeculationVersion = 1;

void AddTokens(const std::vector<int32_t>& tokens, Sha256& sha) {
  std::string text = StrCat(tokens.size(), ":");
  for (const int32_t token : tokens) text += StrCat(token, ",");
  sha.Update(text.data(), text.size());
}

}  // namespace

std::string SpeculationWorkload(const std::vector<std::vector<int32_t>>& prompts,
                                const std::vector<std::string>& texts, int64_t answer_tokens,
                                uint64_t seed) {
  Sha256 sha;
  int64_t shortest = std::ssize(prompts.front()), longest = 0;
  for (const std::vector<int32_t>& prompt : prompts) {
    AddTokens(prompt, sha);
    shortest = std::min(shortest, std::ssize(prompt));
    longest = std::max(longest, std::ssize(prompt));
  }
  Json workload = {
      {"prompts", prompts.size()},
      {"prompt_tokens", shortest == longest ? StrCat(longest) : StrCat(shortest, "..", longest)},
      {"answer_tokens", answer_tokens},
      {"seed", seed},
      {"digest", sha.Finish()}};
  for (const std::string& path : texts) {
    workload["texts"].push_back(RepairUtf8(std::filesystem::path(path).filename().string()));
  }
  return CanonicalJson(workload);
}

SpeculationRow SpeculationRowOf(const SpeculationSubject& subject, const ChosenMethod& chosen,
                                const std::string& variant, const std::string& form,
                                int64_t gamma) {
  SpeculationRow row;
  row.model = subject.model;
  row.method = MethodRowOf(chosen.method, variant);
  row.budget = chosen.budget.ToString();
  row.budget_kind = NameOf(chosen.budget.kind);
  row.budget_value = chosen.budget.value;
  row.form = form;
  row.workload = subject.workload;
  row.gamma = gamma;
  row.answer_tokens = subject.answer_tokens;
  row.identity = CanonicalJson({{"speculation", kSpeculationVersion},
                                {"model", subject.model.fingerprint},
                                {"dtype", subject.dtype},
                                {"numerics", {{"backend", subject.backend}, {"isa", subject.isa}}},
                                {"method", chosen.method.ToJson()},
                                {"budget", row.budget},
                                {"form", form},
                                {"workload", subject.workload},
                                {"gamma", gamma}});
  return row;
}

void FillSpeculationRow(const SpeculationResult& own, const SpeculationResult& full,
                        SpeculationRow& row) {
  row.checks = own.checks;
  row.draft_steps = own.draft_steps;
  row.drafted = own.drafted();
  row.accepted = own.accepted();
  row.drafted_at = own.drafted_at;
  row.accepted_at = own.accepted_at;
  row.draft_s = own.draft_s;
  row.check_s = own.check_s;
  row.other_s = own.other_s;
  row.full_s = full.seconds();
  row.not_engaged = own.record.engagement == Engagement::kNotEngaged;
  if (row.not_engaged) row.not_engaged_because = own.record.reason;
  Sha256 sha;
  AddTokens(own.tokens, sha);
  row.answer_key = sha.Finish();
}

Result<std::unique_ptr<SpeculationRecorder>> SpeculationRecorder::Open(const std::string& path,
                                                                       const RunRow& run) {
  KVG_ASSIGN(std::unique_ptr<ResultStore> store, OpenForRecording(path));
  KVG_ASSIGN(std::vector<SpeculationRow> recorded, store->Speculations());
  std::erase_if(recorded,
                [&](const SpeculationRow& row) { return row.machine_facts != run.machine.facts; });
  KVG_ASSIGN(const int64_t id, store->AddRun(run));
  KVG_TRY(store->AddEvent(id, {.at = UtcNow(),
                               .kind = recorded.empty() ? "started" : "resumed",
                               .message = "speculation"}));
  return std::unique_ptr<SpeculationRecorder>(
      new SpeculationRecorder(std::move(store), id, std::move(recorded)));
}

const SpeculationRow* SpeculationRecorder::Find(const SpeculationRow& row) const {
  const auto at =
      std::find_if(recorded_.rbegin(), recorded_.rend(), [&](const SpeculationRow& other) {
        return other.prompt == row.prompt && other.repetition == row.repetition &&
               other.identity == row.identity;
      });
  return at == recorded_.rend() ? nullptr : &*at;
}

Status SpeculationRecorder::Write(const SpeculationRow& row) {
  for (const SpeculationRow& other : recorded_) {
    if (other.prompt != row.prompt || other.workload != row.workload ||
        other.answer_key == row.answer_key ||
        !AreAlikeBut(row.identity, other.identity,
                     {"speculation", "method", "budget", "form", "gamma"})) {
      continue;
    }
    return Unsupported(StrCat(store_->path(), ": ", row.method.name, " ", row.budget, ", ",
                              row.gamma, " drafted: prompt ", row.prompt,
                              " got other tokens than those recorded with ", other.method.name, " ",
                              other.budget));
  }
  KVG_TRY(store_->WriteSpeculation(run_, row));
  recorded_.push_back(row);
  return {};
}

Status SpeculationRecorder::Tell(const std::string& kind, const std::string& message) {
  return store_->AddEvent(run_, {.at = UtcNow(), .kind = kind, .message = message});
}

Status SpeculationRecorder::Finish(int signal) {
  return EndRecording(*store_, run_, signal, "speculation");
}

}  // namespace kvgauge

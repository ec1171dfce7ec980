// SPDX-License-Identifier: Apache-2.0
// A run's plan: the configuration expanded in a fixed order into groups that share their prefills,
// each a set of cells on the samples of one task.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "reports/store_rows.h"
#include "runner/chat_template.h"
#include "runner/model.h"
#include "runner/tokenizer.h"
#include "src/model/model_flags.h"
#include "src/run/run_config.h"
#include "src/run/sample_prompt.h"

namespace kvgauge {

// Contenders that run on one prefill: those of one model with weights transformed alike, caches of
// one kind, pictures reduced alike, and the same rows that leave. Where prompts are read in chunks,
// those among them that reduce prompts have one each (OwnPrefills).
struct PlanPrefill {
  // "shared", or the id of the method that changes it, with its variant where several of them do:
  // "fastv (thin.drop=0.5)".
  std::string name;
  std::string weights = {};  // equal for prefills that run on the same loaded model
  std::optional<StageChoice> see = {};
  std::vector<size_t> contenders = {};
};

// A model of the plan; its weights are not loaded.
struct PlanModel {
  const RunModel* spec = nullptr;
  ModelConfig config;
  DType dtype = DType::kF32;
  ProductRows product_rows = ProductRows::kRounded;
  int64_t weight_bytes = 0;  // planned
  // How the layers are divided, where the backend names several devices; otherwise empty.
  std::vector<LayerShare> shares = {};
  std::string fingerprint;
  ModelShape shape;
  std::shared_ptr<const Tokenizer> tokenizer;
  ChatTemplate chat;
  std::vector<PlanPrefill> prefills;
  std::optional<EyesShape> eyes = {};  // none: a text model

  // Tokens that the data set's texts may have; the rest of the positions is for the template, the
  // task's system text and the answer.
  int64_t MaxPromptTokens(int64_t max_new_tokens, const std::string& system) const;
  // What to know of a prompt of so many tokens where the model was not made for them; "": nothing.
  std::string BeyondPositions(int64_t prompt_tokens) const;
};

struct PlanGroup {
  size_t model = 0, task = 0;
  size_t prefill = 0;  // of the model
  CompressAt compress_at = CompressAt::kPrompt;
  int64_t seed = 0;
  std::vector<size_t> contenders = {};  // of the configuration
  std::vector<CellRow> cells = {};      // of each contender

  std::string name = {};  // "ref-gqa, needle/single, prompt, seed 0", for people and for events
};

// Contenders of samples that decode together at most.
inline constexpr int64_t kPoolLanes = 64;

struct PlanRefusal {
  std::string model, contender;
  std::string reason;
};

struct RunPlan {
  const RunConfig* config = nullptr;
  std::unique_ptr<Ops> ops;  // of the backend, to ask about it
  std::vector<PlanModel> models;
  std::vector<PlanGroup> groups;  // those of one model and prefill beside each other
  std::vector<PlanRefusal> refused;
};

// Which samples of each task a call runs.
struct SampleChoice {
  int64_t limit = -1;                   // the first so many, where the configuration has more
  std::vector<int64_t> positions = {};  // these; empty: all
  int64_t shard = 0, shards = 1;        // those whose position is `shard` modulo `shards`

  // What a task needs to make.
  int64_t Most(int64_t samples) const;
  bool Has(int64_t position) const;
  // How many samples it takes of a task that has so many; -1: not known beforehand.
  int64_t Count(int64_t samples) const;
};
// "3,7-9".
Result<std::vector<int64_t>> ParsePositions(const std::string& text);
// "2/4": the second of four.
Status ParseShard(const std::string& text, SampleChoice& choice);

// Reads configurations, tokenizers and fingerprints, and the first sample of each task. Tasks that
// cannot be run are errors with the reason; contenders that cannot run on a model are listed as
// refused, and a plan without contenders is an error. The configuration outlives the plan.
Result<RunPlan> MakeRunPlan(const RunConfig& config);

// The samples that a task is asked for in a group. A running text gives all of its windows.
Result<std::unique_ptr<SampleStream>> OpenSamples(const RunPlan& plan, const PlanGroup& group,
                                                  const SampleChoice& choice,
                                                  const TextCodec& codec);
// Which contenders of a group read prompts in chunks, each for itself: indices of the group's.
std::vector<size_t> OwnPrefills(const RunPlan& plan, const PlanGroup& group);
// What a budget is a part of: the longest prompt that is compressed.
int64_t CompressedTokens(const EngineSample& sample, CompressAt at);
// The weights that a prefill of a model runs on.
Result<LoadedModel> LoadPlanned(const RunPlan& plan, size_t model, size_t prefill);

}  // namespace kvgauge

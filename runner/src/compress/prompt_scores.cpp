// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <optional>
#include <string>

#include "core/guarded.h"
#include "runner/compressor.h"
#include "runner/drafted_answer.h"
#include "src/compress/draft_pass.h"
#include "src/compress/probe_pass.h"
#include "src/compress/stopwatch.h"
#include "src/compress/view.h"

namespace kvgauge {
namespace {

Status RunProbes(const Scorer& scorer, const StageChoice& stage, Model& model,
                 const PromptState& state, ProbePass& pass) {
  std::vector<int32_t> ids, answer;
  for (const PromptPosition& at : state.prompt->positions) ids.push_back(at.token_id);
  if (const int64_t most = scorer.AnswerTokens(); most > 0) {
    KVG_ASSIGN(answer, DraftedAnswer(model, stage, state, most));
  }
  KVG_ASSIGN(const std::vector<Probe> probes,
             scorer.Probes({.prompt = ids, .encode = model.encode(), .answer = answer}));
  return pass.Run(probes, scorer.ProbeRows(state.prompt->size()));
}

}  // namespace

bool ProbesPrompt(const Method& method) {
  if (!method.score) return false;
  const std::unique_ptr<Stage> stage = MakeStage(*method.score);
  const auto& scorer = static_cast<const Scorer&>(*stage);
  return scorer.ProbeRows(1) > 0 || scorer.DraftRows() > 0;
}

bool DraftsAnswers(const Method& method) {
  if (!method.score) return false;
  const std::unique_ptr<Stage> stage = MakeStage(*method.score);
  const auto& scorer = static_cast<const Scorer&>(*stage);
  return scorer.DraftRows() > 0 || scorer.AnswerTokens() > 0;
}

PromptScores PromptScores::Compute(Model& model, const PromptState& state,
                                   std::span<const Method* const> methods) {
  PromptScores scores;
  struct Job {
    std::unique_ptr<Stage> stage;
    const StageChoice* choice;
    Scored* scored;
    std::string name;
    std::unique_ptr<ProbePass> probes = nullptr;  // if it probes
    std::vector<Tensor> maxima = {};
    std::unique_ptr<DraftPass> draft = nullptr;  // if it drafts
    std::vector<Tensor> queries = {};
  };
  std::vector<Job> jobs;
  for (const Method* method : methods) {
    if (!method->score) continue;
    const auto [at, is_new] = scores.scored_.try_emplace(StageKey(*method->score));
    if (is_new) {
      jobs.push_back(
          {MakeStage(*method->score), &*method->score, &at->second, NameOf(*method->score->spec)});
    }
  }
  const ModelShape shape = model.shape();
  Ops& ops = model.ops();
  ViewMemory memory(std::numeric_limits<int64_t>::max());
  const ViewSource source = {.model = &model,
                             .shape = &shape,
                             .cache = state.cache,
                             .prompt = state.prompt,
                             .prefill = state.capture,
                             .seed = state.seed,
                             .memory = &memory};
  for (Job& job : jobs) {
    const auto& scorer = static_cast<const Scorer&>(*job.stage);
    if (scorer.ProbeRows(1) == 0 && scorer.DraftRows() == 0) continue;
    KVG_CHECK(state.prompt != nullptr, "probes need the prompt's tokens");
    const Stopwatch watch(ops, job.scored->seconds);
    job.scored->status = Guarded([&]() -> Status {
      if (scorer.DraftRows() > 0) {
        job.draft = std::make_unique<DraftPass>(model, source, *state.prompt);
        KVG_TRY(job.draft->Run(scorer, state.next, state.valid_vocab));
        for (int64_t layer = 0; layer < shape.layers; ++layer) {
          job.queries.push_back(job.draft->Queries(layer));
        }
      }
      if (scorer.ProbeRows(1) == 0) return {};
      job.probes = std::make_unique<ProbePass>(model, *state.cache, *state.prompt);
      KVG_TRY(RunProbes(scorer, *job.choice, model, state, *job.probes));
      for (int64_t layer = 0; layer < shape.layers; ++layer) {
        job.maxima.push_back(job.probes->Maxima(layer));
      }
      return {};
    });
    if (!job.scored->status.ok()) {
      job.scored->status = job.scored->status.error().Wrap(job.name);
    }
  }
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    CacheView plain(source, layer);
    for (Job& job : jobs) {
      if (!job.scored->status.ok()) continue;
      // A scorer that runs the model sees what that gave, and shares nothing else.
      ViewSource probed = source;
      probed.memory = nullptr;
      probed.probe_maxima = job.maxima;
      probed.draft_queries = job.queries;
      std::optional<CacheView> own;
      if (job.probes != nullptr || job.draft != nullptr) own.emplace(probed, layer);
      CacheView& view = own ? *own : plain;
      const Stopwatch watch(ops, job.scored->seconds);
      const int64_t size = std::max<int64_t>(view.shape().kv_heads * view.width(), 1);
      job.scored->status = Guarded([&]() -> Status {
        job.scored->memory.push_back(view.ops().memory->Allocate(size * 4));
        job.scored->layers.push_back(
            job.scored->memory.back().As(DType::kF32, {view.shape().kv_heads, view.width()}));
        static_cast<const Scorer&>(*job.stage).Score(view, job.scored->layers.back());
        return {};
      });
    }
  }
  return scores;
}

Result<std::span<const Tensor>> PromptScores::Of(const Method& method) const {
  const Scored& scored = scored_.at(StageKey(*method.score));
  if (!scored.status.ok()) return scored.status.error();
  return std::span<const Tensor>(scored.layers);
}

double PromptScores::seconds(const Method& method) const {
  return method.score ? scored_.at(StageKey(*method.score)).seconds : 0;
}

int64_t PromptScores::bytes() const {
  int64_t bytes = 0;
  for (const auto& [key, scored] : scored_) {
    for (const Buffer& buffer : scored.memory) bytes += buffer.size_bytes();
  }
  return bytes;
}

}  // namespace kvgauge

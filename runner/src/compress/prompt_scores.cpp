// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "core/guarded.h"
#include "runner/compressor.h"
#include "src/compress/stopwatch.h"
#include "src/compress/view.h"

namespace kvgauge {

PromptScores PromptScores::Compute(const Model& model, const PromptState& state,
                                   std::span<const Method* const> methods) {
  PromptScores scores;
  struct Job {
    std::unique_ptr<Stage> stage;
    Scored* scored;
  };
  std::vector<Job> jobs;
  for (const Method* method : methods) {
    if (!method->score) continue;
    const auto [at, is_new] = scores.scored_.try_emplace(StageKey(*method->score));
    if (is_new) jobs.push_back({MakeStage(*method->score), &at->second});
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
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    CacheView view(source, layer);
    for (Job& job : jobs) {
      if (!job.scored->status.ok()) continue;
      const Stopwatch watch(ops, job.scored->seconds);
      const int64_t size = std::max<int64_t>(shape.kv_heads * view.width(), 1);
      job.scored->status = Guarded([&]() -> Status {
        job.scored->memory.push_back(ops.memory->Allocate(size * 4));
        job.scored->layers.push_back(
            job.scored->memory.back().As(DType::kF32, {shape.kv_heads, view.width()}));
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

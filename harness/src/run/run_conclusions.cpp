// SPDX-License-Identifier: Apache-2.0
#include "src/run/run_conclusions.h"

#include <string>
#include <utility>
#include <vector>

#include "core/json.h"

namespace kvgauge {

Status AskConclusions(const Task& task, const Tokenizer& tokenizer, Model& model,
                      const EngineOptions& options, SampleSource& source,
                      std::span<FinishedCell> cells) {
  KVG_ASSIGN(
      const Method full,
      ParseMethod({{"id", "full"}, {"title", "Full cache"}, {"family", "baseline"}, {"version", 1}},
                  "full"));
  std::vector<EngineSample> prompts;
  struct Asked {
    FinishedCell* cell;
    size_t turn;
  };
  std::vector<Asked> asked;  // by prompt
  for (FinishedCell& cell : cells) {
    const Sample& sample = cell.sample->sample;
    cell.conclusions.resize(cell.result.turns.size());
    for (size_t turn = 0; turn < cell.result.turns.size(); ++turn) {
      if (sample.questions[turn].conclusion.empty()) continue;
      const std::string reasoning =
          CutAtStop(task.stop, tokenizer.Decode(cell.result.turns[turn].ids));
      KVG_ASSIGN(EngineSample prompt,
                 source.Build(ConclusionOf(sample, sample.questions[turn], reasoning)));
      prompts.push_back(std::move(prompt));
      asked.push_back({&cell, turn});
    }
  }
  Engine engine({{.method = &full, .model = &model}}, options);
  std::vector<bool> answered(asked.size());
  const Status ran = engine.Run(prompts, [&](CellResult result) {
    const auto number = static_cast<size_t>(result.sample);
    const Asked& one = asked[number];
    answered[number] = true;
    if (result.status.ok()) {
      one.cell->conclusions[one.turn] = std::move(result.turns[0]);
    } else {
      one.cell->result.status = std::move(result.status);
    }
    return Status();
  });
  for (size_t i = 0; i < asked.size(); ++i) {
    if (!ran.ok() && !answered[i]) asked[i].cell->result.status = ran;
  }
  return {};
}

}  // namespace kvgauge

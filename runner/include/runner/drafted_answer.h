// SPDX-License-Identifier: Apache-2.0
// Answers that are drafted for a stage before it looks at a prompt (Scorer::AnswerTokens).
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "methods/method.h"
#include "runner/compressor.h"
#include "runner/model.h"

namespace kvgauge {

// The greedy answer behind a prompt of which `cache` holds all but the last tokens: at most `most`
// tokens, the one that ends it (ModelConfig::eos_ids) included. `valid_vocab`: as of
// Model::BestTokens.
Result<std::vector<int32_t>> GreedyAnswer(Model& model, const Prompt& prompt, KvCache& cache,
                                          int64_t most, int64_t valid_vocab);

// The same from the model that the stage names, which must be among those of `model`, or from this
// one. Runs the model: what its last pass gave is then gone.
Result<std::vector<int32_t>> DraftedAnswer(Model& model, const StageChoice& stage,
                                           const PromptState& state, int64_t most);

}  // namespace kvgauge

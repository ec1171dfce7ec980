// SPDX-License-Identifier: Apache-2.0
#include "runner/drafted_answer.h"

#include <algorithm>

#include "core/strings.h"
#include "runner/generate.h"

namespace kvgauge {

Result<std::vector<int32_t>> GreedyAnswer(Model& model, const Prompt& prompt, KvCache& cache,
                                          int64_t most, int64_t valid_vocab) {
  const int64_t reached = prompt.size() + most, positions = model.config().max_position;
  if (positions > 0 && reached > positions) {
    return Unsupported(StrCat("a draft of ", most, " tokens behind a prompt of ", prompt.size(),
                              " tokens needs ", reached,
                              " positions; the model that drafts was made for ", positions,
                              "; use a shorter draft, or a shorter prompt"));
  }
  const auto& ends = model.config().eos_ids;
  const auto goes_on = [&](int32_t id) {
    return std::find(ends.begin(), ends.end(), id) == ends.end();
  };
  GenerateOptions options;
  options.max_new_tokens = most;
  options.valid_vocab = valid_vocab;
  KVG_ASSIGN(GenerateResult answer, GenerateFrom(model, prompt, cache, options, goes_on));
  return std::move(answer.ids);
}

Result<std::vector<int32_t>> DraftedAnswer(Model& model, const StageChoice& stage,
                                           const PromptState& state, int64_t most) {
  const Prompt& prompt = *state.prompt;
  if (DraftModelPath(stage).empty()) {
    KvCache fork = state.cache->Fork();
    KVG_TRY(fork.Truncate(prompt.size() - 1));
    return GreedyAnswer(model, prompt, fork, most, state.valid_vocab);
  }
  const std::string& directory = stage.draft->directory;
  const auto found = model.drafters().find(directory);
  if (found == model.drafters().end()) {
    return BadInput(StrCat(directory, " was not loaded beside this model, so it cannot draft"));
  }
  std::vector<int32_t> ids;
  for (const PromptPosition& at : prompt.positions) {
    if (at.token_id < 0) {
      return Unsupported(StrCat(directory,
                                " drafts from text alone, and the prompt shows pictures; use a "
                                "task of text, or ",
                                kDraftModelParam, "=", kOwnDraft));
    }
    ids.push_back(at.token_id);
  }
  Result<std::vector<int32_t>> answer = found->second.answer(ids, most);
  if (!answer.ok()) return answer.error().Wrap(directory);
  return answer;
}

}  // namespace kvgauge

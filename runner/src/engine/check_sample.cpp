// SPDX-License-Identifier: Apache-2.0
#include "src/engine/check_sample.h"

#include <set>
#include <string>

#include "core/strings.h"
#include "runner/config.h"

namespace kvgauge {
namespace {

Status CheckIds(const std::string& sample, std::span<const int32_t> ids, int64_t vocab_size) {
  for (const int32_t id : ids) {
    if (id >= 0 && id < vocab_size) continue;
    return BadInput(
        StrCat("sample ", sample, ": token id ", id, "; expected 0 .. ", vocab_size - 1));
  }
  return {};
}

// Spans ascend inside their tokens, and each position has a row of the sample's visuals.
Status CheckSpans(const EngineSample& sample, std::span<const int32_t> ids,
                  std::span<const VisualSpan> spans, int64_t hidden_size) {
  const SampleVisuals* visuals = sample.visuals.get();
  int64_t end = 0;
  for (const VisualSpan& span : spans) {
    if (visuals == nullptr || visuals->hidden_size != hidden_size) {
      return BadInput(StrCat("sample ", sample.id, ": pictures with rows of width ",
                             visuals == nullptr ? 0 : visuals->hidden_size,
                             "; the model needs rows of width ", hidden_size));
    }
    if (span.first < end || span.count <= 0 || span.first + span.count > std::ssize(ids) ||
        span.embedding_row < 0 || span.embedding_row + span.count > visuals->count()) {
      return BadInput(StrCat("sample ", sample.id, ": a picture at tokens ", span.first, " to ",
                             span.first + span.count - 1, " of ", ids.size(), ", rows ",
                             span.embedding_row, " on of ", visuals->count(), ", does not fit"));
    }
    end = span.first + span.count;
  }
  return {};
}

// A context that is read before its question is cut into blocks as the whole of both is, and
// something has to be known behind it. Other questions that go on from it have their blocks where
// its are.
Status CheckBlocks(const EngineSample& sample, const BlockConfig& blocks) {
  const int64_t context = std::ssize(sample.context), asked = std::ssize(sample.turns[0].ids);
  if (!blocks.Answers(context, context + asked)) {
    return Unsupported(StrCat("sample ", sample.id, ": a context of ", context,
                              " tokens before a question of ", asked,
                              "; the model reads blocks of ", blocks.tokens,
                              " tokens that end with the prompt, and the context has to hold one; "
                              "use compress_at prompt"));
  }
  for (size_t i = 1; i < sample.turns.size(); ++i) {
    const EngineTurn& turn = sample.turns[i];
    if (turn.continues || (std::ssize(turn.ids) - asked) % blocks.tokens == 0) continue;
    return Unsupported(
        StrCat("sample ", sample.id, ", turn ", i, ": a question of ", turn.ids.size(),
               " tokens behind a context whose first question has ", asked,
               "; the model reads blocks of ", blocks.tokens,
               " tokens that end with the prompt, so that only questions whose lengths differ by "
               "whole blocks go on from one context; use compress_at prompt"));
  }
  return {};
}

}  // namespace

Status CheckSample(const EngineSample& sample, CompressAt at, const ModelConfig& config) {
  if (sample.turns.empty()) return BadInput(StrCat("sample ", sample.id, ": no turns"));
  const std::set<int64_t> draws(sample.draws.begin(), sample.draws.end());
  if (draws.empty() || *draws.begin() < 0 || draws.size() != sample.draws.size()) {
    return BadInput(StrCat("sample ", sample.id, ": ", sample.draws.size(),
                           " draws; expected some from 0, none twice"));
  }
  for (size_t i = 0; i < sample.turns.size(); ++i) {
    const EngineTurn& turn = sample.turns[i];
    if (turn.max_new_tokens <= 0) {
      return BadInput(StrCat("sample ", sample.id, ", turn ", i, ": max_new_tokens is ",
                             turn.max_new_tokens, "; expected 1 or more"));
    }
    if (!turn.forced.empty() && std::ssize(turn.forced) != turn.max_new_tokens) {
      return BadInput(StrCat("sample ", sample.id, ", turn ", i, ": max_new_tokens is ",
                             turn.max_new_tokens, "; expected ", turn.forced.size(),
                             ", as many as are forced"));
    }
    const bool prompts = AsksApart(at) || (at == CompressAt::kTurn && i == 0);
    if (turn.ids.empty() && (!prompts || sample.context.empty())) {
      return BadInput(StrCat("sample ", sample.id, ", turn ", i, ": no question to prefill"));
    }
    KVG_TRY(CheckIds(sample.id, turn.ids, config.vocab_size));
    KVG_TRY(CheckSpans(sample, turn.ids, turn.spans, config.hidden_size));
    KVG_TRY(CheckIds(sample.id, turn.forced, config.vocab_size));
  }
  if (at == CompressAt::kContext && sample.context.empty()) {
    return BadInput(
        StrCat("sample ", sample.id, ": compress_at context needs a context before the question"));
  }
  KVG_TRY(CheckSpans(sample, sample.context, sample.context_spans, config.hidden_size));
  if (sample.whole != nullptr) {
    KVG_CHECK(sample.whole->whole == nullptr && sample.whole->turns.size() == sample.turns.size(),
              "a whole sample is another");
    KVG_TRY(CheckSample(*sample.whole, at, config));
  }
  KVG_TRY(CheckIds(sample.id, sample.context, config.vocab_size));
  if (!config.blocks || at != CompressAt::kContext) return {};
  return CheckBlocks(sample, *config.blocks);
}

}  // namespace kvgauge

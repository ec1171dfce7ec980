// SPDX-License-Identifier: Apache-2.0
// From a sample's texts to what the engine is fed: template, special tokens, where the context
// ends, and where the answer stands in it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "datasets/task.h"
#include "runner/chat_template.h"
#include "runner/config.h"
#include "runner/engine.h"
#include "runner/tokenizer.h"
#include "runner/visual_prompt.h"
#include "src/run/picture_prompt.h"

namespace kvgauge {

// Raised whenever the same sample would be fed as other tokens: part of every signature.
inline constexpr int kPromptVersion = 2;

// Between a system text and the context where the template has no place for it.
inline constexpr std::string_view kBehindSystem = "\n\n";

// Where an answer stands in a context, in bytes. Several places where the answer is made of
// several; ascending.
struct AnswerPlace {
  std::vector<std::pair<int64_t, int64_t>> bytes;  // [begin, end)
  std::vector<int64_t> pictures = {};              // of the sample, in the context; ascending

  bool empty() const { return bytes.empty() && pictures.empty(); }
};
// The needles that hold a reference text of the first question, or all needles where none does, and
// the pictures that are needles; without needles the last place of a reference. Empty: not known.
AnswerPlace FindAnswer(const Sample& sample);
// At most some 200 bytes of the context around the first place, well-formed; "" without a place.
std::string ExcerptAround(const Sample& sample, const AnswerPlace& place);

// What a task asks of every prompt of it, whatever the sample.
struct PromptRules {
  int64_t max_new_tokens = 0;  // 0: as each question says, or the task
  std::vector<int32_t> stop_ids;
  // Where the context ends must be known: a prompt in which it is not is an error.
  bool needs_context = false;
};

class PromptBuilder {
 public:
  // All outlive it. `config` is needed for samples with pictures.
  PromptBuilder(const Tokenizer& tokenizer, const ChatTemplate& chat,
                const ModelConfig* config = nullptr)
      : tokenizer_(tokenizer), chat_(chat), config_(config) {}

  // The model's own stop tokens and the task's.
  Result<std::vector<int32_t>> StopIds(const Task& task, std::span<const int64_t> eos_ids) const;

  // Context and question together are encoded as one text; the context is what of these tokens does
  // not depend on the questions. So `compress_at` never changes the tokens of a prompt. What the
  // template does to its texts (trim) is done. Text that looks like a special token stays text. A
  // conversation goes on with the model's own answers. The system text stands where the template
  // has it, else before the context with a blank line between them; it is part of the context.
  // `shown`: what the sample's pictures became, in order; placeholders stand at their places, and
  // the spans are told.
  Result<EngineSample> Build(const Sample& sample, const Task& task, const PromptRules& rules,
                             std::span<const ShownVisual> shown = {}) const;

  // Token ranges of the places within the context of `built`, which Build made of the sample and
  // `shown`; ascending and disjoint.
  Result<std::vector<std::pair<int64_t, int64_t>>> TokensOf(
      const Sample& sample, const AnswerPlace& place, const EngineSample& built,
      std::span<const ShownVisual> shown = {}) const;

  // Why the end of the sample's context cannot be told in its prompt; "" where it can.
  Result<std::string> WhyNoContext(const Sample& sample) const;

 private:
  // The whole text of one prompt and where the sample's context stands in it.
  struct Rendered {
    std::string text;
    // False: the template changes its texts so that they cannot be found, and what follows is not
    // known.
    bool located = true;
    size_t context = 0, context_end = 0;  // bytes
    size_t context_cut = 0;               // of the context's own beginning, which the template took
    // [begin, end) of what is the sample's own: the system text, the user's. Ascending; all else is
    // the template's.
    std::vector<std::pair<size_t, size_t>> plain;
    bool add_special = true;
    // With pictures in it the context stands in pieces.
    std::vector<PicturePrompt::Piece> pieces = {};
  };
  // Of one question; `shown`: the pictures of it and the context.
  Result<Rendered> Render(const Sample& sample, int64_t question,
                          std::span<const ShownVisual> shown) const;
  Result<Rendered> RenderText(const Sample& sample, const Question& question) const;
  // Where byte `at` of the context stands; as the end of a place it lies before the pictures there.
  static size_t PlaceOf(const Rendered& rendered, int64_t at, bool is_end);
  Result<std::vector<int32_t>> Encode(const Rendered& rendered) const;
  Result<std::vector<int32_t>> EncodePrefix(const Rendered& rendered, size_t end) const;
  // What follows an answer: the end of its turn, the next question, the start of the next answer.
  Result<std::vector<int32_t>> FollowUp(const Sample& sample, const Question& question) const;
  // Without places a special token in the data could not be kept a text.
  Status RefuseSpecials(std::string_view data) const;

  const Tokenizer& tokenizer_;
  const ChatTemplate& chat_;
  const ModelConfig* config_;
};

}  // namespace kvgauge

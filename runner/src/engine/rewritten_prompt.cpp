// SPDX-License-Identifier: Apache-2.0
#include "src/engine/rewritten_prompt.h"

#include <algorithm>

#include "core/check.h"
#include "core/strings.h"

namespace kvgauge {
namespace {

// How far ahead an equal token is looked for: words that leave are seldom so many.
constexpr int64_t kNearRows = 64;

class TextOfPrompt final : public SpelledPrompt {
 public:
  TextOfPrompt(const Prompt& prompt, const Model& model, const StageChoice& choice)
      : prompt_(prompt), model_(model), choice_(choice) {}

  int64_t rows() const override { return prompt_.size(); }
  bool IsText(int64_t row) const override { return IdOf(row) >= 0; }

  std::string Spell(int64_t begin, int64_t end) const override {
    std::vector<int32_t> ids;
    for (int64_t row = begin; row < end; ++row) ids.push_back(IdOf(row));
    KVG_CHECK(model_.spell() != nullptr, "a model that was loaded with its tokenizer");
    return model_.spell()(ids);
  }

  Result<std::vector<int32_t>> Encode(std::string_view text) const override {
    return model_.encode()(text);
  }

  Result<TokenTagger*> Tagger() const override {
    const std::string directory = choice_.tagger == nullptr ? "" : choice_.tagger->directory;
    const auto found = model_.taggers().find(directory);
    if (found != model_.taggers().end()) return found->second.get();
    return BadInput(StrCat("the encoder ", Quoted(directory), " was not loaded beside this model"));
  }

 private:
  int32_t IdOf(int64_t row) const { return prompt_.positions[static_cast<size_t>(row)].token_id; }

  const Prompt& prompt_;
  const Model& model_;
  const StageChoice& choice_;
};

Status CheckChange(const TextChange& change, int64_t before, const Prompt& prompt,
                   int64_t vocab_size) {
  const int64_t rows = change.end - change.begin;
  if (change.begin < before || rows <= 0 || change.end >= prompt.size()) {
    return BadInput(StrCat("rows ", change.begin, " to ", change.end - 1, " after row ", before - 1,
                           " of ", prompt.size(),
                           "; changes ascend, and the last row stays as it is"));
  }
  if (std::ssize(change.ids) > rows) {
    return BadInput(StrCat(change.ids.size(), " tokens in the place of ", rows, " rows from ",
                           change.begin, " on; expected at most as many"));
  }
  for (const int32_t id : change.ids) {
    if (id >= 0 && id < vocab_size) continue;
    return BadInput(StrCat("token ", id, " in the place of rows from ", change.begin,
                           " on; the model's ids are 0 .. ", vocab_size - 1));
  }
  return {};
}

// Puts the tokens of a change on rows of its run, each on the next one of an equal token where it
// is near and leaves rows for the others. Appends these rows.
void Place(const TextChange& change, Prompt& prompt, std::vector<int32_t>& kept) {
  const auto id_of = [&](int64_t row) -> int32_t& {
    return prompt.positions[static_cast<size_t>(row)].token_id;
  };
  int64_t row = change.begin, left = std::ssize(change.ids);
  for (const int32_t id : change.ids) {
    const int64_t end = std::min(row + kNearRows, change.end - left + 1);
    int64_t at = row;
    while (at < end && id_of(at) != id) ++at;
    if (at == end) at = row;
    id_of(at) = id;
    kept.push_back(static_cast<int32_t>(at));
    row = at + 1;
    --left;
  }
}

}  // namespace

Result<std::vector<int32_t>> RewritePrompt(const RewritingThin& stage, const StageChoice& choice,
                                           const Model& model, Prompt& prompt) {
  KVG_ASSIGN(const std::vector<TextChange> changes,
             stage.Rewrite(TextOfPrompt(prompt, model, choice)));
  std::vector<int32_t> kept;
  int64_t row = 0;
  const auto keep_until = [&](int64_t end) {
    for (; row < end; ++row) kept.push_back(static_cast<int32_t>(row));
  };
  for (const TextChange& change : changes) {
    KVG_TRY(CheckChange(change, row, prompt, model.config().vocab_size));
    keep_until(change.begin);
    Place(change, prompt, kept);
    row = change.end;
  }
  keep_until(prompt.size());
  return kept;
}

}  // namespace kvgauge

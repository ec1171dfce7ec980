// SPDX-License-Identifier: Apache-2.0
// A trained encoder says of each word of a prompt whether it stays, and the model reads the text
// that is left.
//
// Paper: LLMLingua-2, arXiv:2403.12968; after microsoft/LLMLingua (use_llmlingua2) with one context
// (methods/word_dropping.h). The first `sinks` and the last `recent` tokens always stay, as an
// instruction and a question; so do pieces of pictures, which part a context into several. The time
// of the encoder is part of the prefill, and so of the time to the first token.
#include <algorithm>
#include <utility>

#include "core/strings.h"
#include "methods/registry.h"
#include "methods/rereading_thin.h"
#include "methods/rewriting_thin.h"
#include "methods/word_dropping.h"

namespace kvgauge {
namespace {

WordRules RulesOf(const Params& params) {
  WordRules rules;
  for (std::string& word : Split(params.Text("force_tokens"), ' ')) {
    if (!word.empty()) rules.forced.push_back(std::move(word));
  }
  rules.forced_digits = params.Bool("force_reserve_digit");
  rules.drop_consecutive = params.Bool("drop_consecutive");
  rules.by_first_token = params.Text("token_to_word") == "first";
  if (params.Text("edges") == "released") rules.edges = TextEdges::kBerts;
  return rules;
}

class LlmLingua2 final : public RewritingThin {
 public:
  explicit LlmLingua2(const Params& params)
      : encoder_(params.Text(kTaggerParam)),
        drop_(params.Real("drop")),
        sinks_(params.Int("sinks")),
        recent_(params.Int("recent")),
        rules_(RulesOf(params)),
        own_positions_(params.Text("positions") == "own") {}

  Needs needs() const override { return {.encoder = true}; }
  bool closes_up() const override { return own_positions_; }

  Status Check(const ModelShape& shape) const override {
    if (encoder_.empty()) {
      return BadInput(StrCat(kTaggerParam,
                             " names no checkpoint; expected the directory of a token classifier, "
                             "such as one with the files of microsoft/llmlingua-2-bert-base-"
                             "multilingual-cased-meetingbank"));
    }
    if (std::ssize(rules_.forced) > TokenTagger::kMarks) {
      return BadInput(StrCat("force_tokens has ", rules_.forced.size(), " words; expected at most ",
                             TokenTagger::kMarks));
    }
    return own_positions_ ? CheckOwnPositions(shape) : Status();
  }

  Result<std::vector<TextChange>> Rewrite(const SpelledPrompt& prompt) const override {
    std::vector<TextChange> changes = Contexts(prompt);
    int64_t context = 0;
    for (const TextChange& change : changes) context += change.end - change.begin;
    if (drop_ <= 0 || context == 0) return std::vector<TextChange>();
    const double reduce =
        std::min(drop_ * static_cast<double>(prompt.rows()) / static_cast<double>(context), 1.0);
    KVG_ASSIGN(TokenTagger * tagger, prompt.Tagger());
    const auto encode = [&](std::string_view text) { return prompt.Encode(text); };
    for (TextChange& change : changes) {
      const std::string text = prompt.Spell(change.begin, change.end);
      KVG_ASSIGN(const DroppedWords left, DropWords(text, rules_, reduce, *tagger, encode));
      KVG_ASSIGN(change.ids, prompt.Encode(left.text));
    }
    // Spaces around punctuation may make a text longer that hardly lost a word.
    std::erase_if(changes, [](const TextChange& change) {
      return std::ssize(change.ids) > change.end - change.begin;
    });
    return changes;
  }

 private:
  // Runs of text that words may leave.
  std::vector<TextChange> Contexts(const SpelledPrompt& prompt) const {
    std::vector<TextChange> runs;
    for (int64_t row = sinks_; row < prompt.rows() - recent_; ++row) {
      if (!prompt.IsText(row)) continue;
      if (runs.empty() || runs.back().end != row) runs.push_back({row, row, {}});
      runs.back().end = row + 1;
    }
    return runs;
  }

  std::string encoder_;
  double drop_;
  int64_t sinks_, recent_;
  WordRules rules_;
  bool own_positions_;
};

KVG_REGISTER_STAGE({
    .kind = StageKind::kThin,
    .id = "llmlingua2",
    .paper = "arXiv:2403.12968",
    .summary = "words leave that a trained encoder does not hold on to, and the model reads the "
               "text that is left",
    .departures =
        {("the prompt without its first `sinks` and last `recent` tokens is one context; contexts "
          "are not chosen among (`use_context_level_filter`)"),
         ("a word counts as often as the model that answers has tokens for it; the reference "
          "counts "
          "those of GPT-3.5"),
         ("a context stays as it is where what is left of it has more tokens: words are joined by "
          "spaces"),
         ("a forced token that the encoder's vocabulary lacks is read as the mean of all tokens; "
          "the reference adds tokens that transformers draws near that mean, and before 4.46 from "
          "noise"),
         ("XLM-RoBERTa reads its own tokens around a text; the released code takes BERT's, which "
          "it "
          "does not know (`edges`)"),
         ("a word before which nothing of its chunk is known begins a word, where the reference "
          "fails; so it does where a chunk has no word at all, and where all is to leave")},
    .bytes = "what is left of the prompt, 4 bytes an entry for its position, and the encoder's "
             "weights, once",
    .params = {TaggerParam(), RealParam("drop", 0.5, 0, 1, "share of the prompt that leaves"),
               IntParam("sinks", 4, 0, 1 << 20,
                        "first tokens that never leave, such as an instruction's"),
               IntParam("recent", 64, 1, 1 << 20,
                        "last tokens that never leave, such as a question's"),
               ChoiceParam("force_tokens", "", {},
                           "words that always stay, with a space between each two"),
               BoolParam("force_reserve_digit", false, "words with a digit always stay"),
               BoolParam("drop_consecutive", false,
                         "of forced words that follow themselves one stays"),
               ChoiceParam("token_to_word", "mean", {"mean", "first"},
                           "a word is as likely to stay as its tokens on average, or its first"),
               ChoiceParam("edges", "own", {"own", "released"},
                           "what the encoder reads around a text: its own tokens, or BERT's"),
               ChoiceParam("positions", "own", {"own", "kept"},
                           "where tokens stand for rotation: next to each other, or on rows of the "
                           "prompt")},
    .make = Make<LlmLingua2>(),
});

}  // namespace
}  // namespace kvgauge

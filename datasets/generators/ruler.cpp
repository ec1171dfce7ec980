// SPDX-License-Identifier: Apache-2.0
#include "generators/ruler.h"

#include <iterator>

#include "core/strings.h"

namespace kvgauge {

std::vector<ParamSpec> RulerParams(std::vector<ParamSpec> more) {
  std::vector<ParamSpec> params = {
      TextParam("lengths", "4096", "tokens of prompt, answer prefix and answer together"),
      IntParam("samples", 500, 1, 1'000'000, "per length"),
      IntParam("reserve_tokens", 0, 0, 100'000, "of each length kept free for the chat template"),
      BoolParam("fill", false, "text that changes no answer fills each length to the token"),
  };
  params.insert(params.end(), std::make_move_iterator(more.begin()),
                std::make_move_iterator(more.end()));
  return params;
}

Result<RulerSetup> ReadRulerSetup(std::string_view owner, const Params& params, const Json& task,
                                  const TaskOptions& options, int64_t new_tokens) {
  RulerSetup setup;
  KVG_ASSIGN(static_cast<LengthAxis&>(setup),
             ReadLengthAxis(owner, params, task, options, Lengths::kRequired, new_tokens));
  setup.owner = std::string(owner);
  setup.samples = params.Int("samples");
  setup.reserve = params.Int("reserve_tokens");
  KVG_ASSIGN(const bool fill, ReadFill(params, owner));
  if (fill) {
    KVG_ASSIGN(setup.prose, Haystack::Open("", owner));
  }
  return setup;
}

Tail ProseTail(const RulerSetup& setup, int64_t index, std::string frame) {
  if (setup.prose == nullptr) return {{}, {}, RepeatingFiller(&setup.counter, {})};
  return {std::move(frame), " ",
          setup.prose->NewFiller(&setup.counter, RngFor(setup.seed, index, Draw::kTail))};
}

Tail GrassTail(const RulerSetup& setup) {
  std::vector<std::string> sentences = SplitSentences(kGrass);
  sentences[0].insert(0, " ");
  return {"\n", "", RepeatingFiller(&setup.counter, std::move(sentences))};
}

std::string WholeText(const RulerText& text) {
  return text.context + text.question.text + text.question.answer_prefix;
}

Sample RulerSample(const RulerSetup& setup, int64_t index, RulerText text, int64_t tokens) {
  Sample sample;
  const int64_t length = setup.length_of(index);
  sample.id = sample.group = StrCat("n", length, "-", index % setup.samples);
  sample.context = std::move(text.context);
  sample.marks = std::move(text.marks);
  text.question.max_new_tokens = setup.new_tokens;
  sample.questions.push_back(std::move(text.question));
  sample.length = tokens;
  sample.facts = {{"length", std::to_string(length)}};
  return sample;
}

Result<Sample> FitRulerSample(const RulerSetup& setup, int64_t index, int64_t least, int64_t most,
                              Tail tail, const std::function<RulerText(int64_t units)>& build) {
  const std::string what = StrCat(
      setup.owner, ".lengths: ", setup.length_of(index), " less ", setup.new_tokens, " new tokens",
      setup.reserve == 0 ? "" : StrCat(" and ", setup.reserve, " reserve_tokens"));
  const auto filled = [&](int64_t units, int64_t cut) {
    RulerText text = build(units);
    text.context += tail.Text(cut);
    return text;
  };
  const auto whole = [&](int64_t units, int64_t cut) { return WholeText(filled(units, cut)); };
  KVG_ASSIGN(const FilledFit fit,
             FitFilled(setup.counter, setup.prose == nullptr ? nullptr : &tail.filler,
                       setup.budget(index), least, most, whole, what));
  return RulerSample(setup, index, filled(fit.units, fit.cut), fit.tokens);
}

}  // namespace kvgauge

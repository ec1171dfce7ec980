// SPDX-License-Identifier: Apache-2.0
// Passkey retrieval as the landmark-attention evaluation builds it: a number between two stretches
// of the same five sentences.
#include "core/json.h"
#include "core/strings.h"
#include "generators/length_axis.h"
#include "generators/ruler.h"

namespace kvgauge::passkey {
namespace {

constexpr std::string_view kOwner = "passkey";
constexpr std::string_view kHead =
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them. "
    "I "
    "will quiz you about the important information there.";
constexpr std::string_view kQuestion = "What is the pass key? The pass key is";

struct Setup : LengthAxis {
  std::vector<Percent> depths;  // empty: drawn
  int64_t samples = 0;
};

std::string Grass(int64_t characters) {
  std::string text;
  while (static_cast<int64_t>(text.size()) < characters) {
    text += kGrass;
    text += ' ';
  }
  text.resize(static_cast<size_t>(characters));
  return text;
}

Result<Sample> Make(const Setup& setup, int64_t index) {
  const auto depths = static_cast<int64_t>(std::max<size_t>(1, setup.depths.size()));
  const int64_t cell = index / setup.samples;
  const int64_t length = setup.lengths[static_cast<size_t>(cell / depths)];
  Rng rng = RngFor(setup.seed, index, Draw::kFacts);
  const std::string key = std::to_string(Between(rng, 1, 50000));
  const double drawn = rng.NextDouble();
  const Percent* depth =
      setup.depths.empty() ? nullptr : &setup.depths[static_cast<size_t>(cell % depths)];
  const double share = depth == nullptr ? drawn : depth->value / 100;
  Mark needle{};
  Tail tail{"", " ", RepeatingFiller(&setup.counter, SplitSentences(kGrass))};
  const auto build = [&](int64_t characters, int64_t before, int64_t cut) {
    std::string text = StrCat(kHead, "\n", Grass(before), "\n");
    const std::string line =
        StrCat("The pass key is ", key, ". Remember it. ", key, " is the pass key.");
    needle = MarkAt(MarkKind::kNeedle, text.size(), line.size());
    return text + line + "\n" + Grass(characters - before) + tail.Text(cut) + "\n";
  };
  const auto before = [share](int64_t characters) {
    return static_cast<int64_t>(static_cast<double>(characters) * share);
  };
  const std::string question_text(kQuestion), what = StrCat(kOwner, ".lengths: ", length);
  // Two cuts moving at once skip counts: the last characters go behind the key.
  KVG_ASSIGN(const Fit near, FitUnits(
                                 setup.counter, length, 0, int64_t{1} << 40,
                                 [&](int64_t characters) {
                                   return build(characters, before(characters), -1) + question_text;
                                 },
                                 what));
  const int64_t first = before(near.size);
  // Single characters do not give every count either.
  KVG_ASSIGN(const FilledFit fit,
             FitFilled(
                 setup.counter, &tail.filler, length, near.size, near.size + 4096,
                 [&](int64_t characters, int64_t cut) {
                   return build(characters, first, cut) + question_text;
                 },
                 what));
  Sample sample;
  sample.context = build(fit.units, first, fit.cut);
  sample.marks = {needle};
  Question question;
  question.text = question_text;
  question.answers = {key};
  question.max_new_tokens = setup.new_tokens;
  sample.questions.push_back(std::move(question));
  sample.length = fit.tokens;
  const std::string depth_text =
      depth != nullptr ? depth->text : std::to_string(fit.units == 0 ? 0 : first * 100 / fit.units);
  sample.id = sample.group =
      StrCat("n", length, depth == nullptr ? "" : "-d" + depth_text, "-", index % setup.samples);
  sample.facts = {{"length", std::to_string(length)}, {"depth", depth_text}};
  return sample;
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  Setup setup;
  KVG_ASSIGN(static_cast<LengthAxis&>(setup),
             ReadLengthAxis(kOwner, params, task, options, Lengths::kRequired, 10));
  if (!params.Text("depths").empty()) {
    KVG_ASSIGN(setup.depths, ParsePercents(params, "depths", kOwner));
  }
  setup.samples = params.Int("samples");
  const int64_t total = setup.samples * static_cast<int64_t>(setup.lengths.size()) *
                        static_cast<int64_t>(std::max<size_t>(1, setup.depths.size()));
  return StreamOf(std::move(setup), total, options, Make);
}

KVG_REGISTER_SOURCE({
    .name = "passkey",
    .version = 2,  // 2: no length stays two below
    .description = "a pass key in repeated sentences",
    .generated = true,
    .params =
        {
            TextParam("lengths", "4096", "tokens of context and question together"),
            TextParam("depths", "", "percent of the filler before the key; empty: drawn"),
            IntParam("samples", 100, 1, 1'000'000, "per length and depth"),
        },
    .open = Open,
    .files = nullptr,
    .check = nullptr,
});

}  // namespace
}  // namespace kvgauge::passkey

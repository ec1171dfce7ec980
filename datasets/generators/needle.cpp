// SPDX-License-Identifier: Apache-2.0
// Needle in a haystack: a grid of depths and lengths, one needle or several.
//
// Differences from the first implementation: the haystack is cut and the depth measured on text,
// not on ids that are decoded again; several needles are placed on the haystack alone, not on the
// already lengthened text.
#include <algorithm>
#include <cmath>

#include "core/json.h"
#include "core/strings.h"
#include "generators/generator.h"
#include "generators/length_axis.h"
#include "generators/prose.h"
#include "generators/words.h"

namespace kvgauge::needle {
namespace {

constexpr std::string_view kOwner = "needle";
constexpr std::string_view kDrawn[] = {"number", "city", "key"};
constexpr double kToldPoints = 1;  // of depth: less is what whole sentences cost everywhere

struct Setup : LengthAxis {
  std::vector<Percent> depths;
  int64_t repeats = 1;
  int64_t reserve = 0;
  bool snap = true;
  std::string head, tail, prefix;
  std::vector<std::string> needles, answers;
  std::string question;
  std::shared_ptr<Haystack> haystack;
};

struct Built {
  std::string context;
  std::vector<Mark> marks;
  double depth = 0;  // percent of the haystack before the first needle
};

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Needles with their own white space keep it; bare sentences get a blank towards their neighbours.
std::string Spaced(const std::string& needle, bool at_start) {
  if (at_start) return IsSpace(needle.back()) ? needle : needle + " ";
  return IsSpace(needle.front()) ? needle : " " + needle;
}

Built Build(const Setup& setup, const Filler& filler, const std::vector<std::string>& needles,
            double depth, int64_t cut, int64_t spread) {
  Built built;
  built.context = setup.head;
  const size_t haystack_begin = built.context.size();
  const double tokens = filler.TokensAt(spread);
  const double step = (100 - depth) / static_cast<double>(needles.size());
  int64_t from = 0;
  for (size_t i = 0; i < needles.size(); ++i) {
    const double at = depth + static_cast<double>(i) * step;
    const double before = std::floor(tokens * at / 100);
    const int64_t place = at >= 100    ? cut
                          : setup.snap ? filler.SentenceEnd(before, cut)
                                       : filler.CharacterEnd(before, cut);
    if (i == 0 && cut > 0) built.depth = 100 * filler.TokensAt(place) / filler.TokensAt(cut);
    built.context.append(filler.text(), static_cast<size_t>(from),
                         static_cast<size_t>(place - from));
    from = std::max(from, place);
    const std::string needle = setup.snap ? Spaced(needles[i], place == 0) : needles[i];
    built.marks.push_back(MarkAt(MarkKind::kNeedle, built.context.size(), needle.size()));
    built.context += needle;
  }
  built.context.append(filler.text(), static_cast<size_t>(from), static_cast<size_t>(cut - from));
  built.marks.push_back(
      MarkAt(MarkKind::kContext, haystack_begin, built.context.size() - haystack_begin));
  built.context += setup.tail;
  return built;
}

Result<Sample> Make(const Setup& setup, int64_t index) {
  const int64_t repeat = index % setup.repeats;
  const int64_t cell = index / setup.repeats;
  const auto depths = static_cast<int64_t>(setup.depths.size());
  const Percent& depth = setup.depths[static_cast<size_t>(cell % depths)];
  const int64_t length = setup.lengths[static_cast<size_t>(cell / depths)];

  Rng facts = RngFor(setup.seed, index, Draw::kFacts);
  const std::string number = std::to_string(Between(facts, 1000000, 9999999));
  const std::string city(Pick(facts, Cities()));
  const std::string key = WordPair(facts);
  const auto fill = [&](std::string_view text) {
    return FillIn(text, {{"number", number}, {"city", city}, {"key", key}});
  };

  Sample sample;
  std::vector<std::string> needles;
  for (const std::string& needle : setup.needles) needles.push_back(fill(needle));
  Question question;
  question.text = fill(setup.question);
  question.answer_prefix = fill(setup.prefix);
  for (const std::string& answer : setup.answers) question.answers.push_back(fill(answer));
  question.max_new_tokens = setup.new_tokens;

  Rng filler_rng = RngFor(setup.seed, index, Draw::kFiller);
  // Files are read from their beginning first; repeats begin elsewhere.
  const int64_t start = repeat == 0 ? 0 : Between(filler_rng, 0, setup.haystack->sentences() - 1);
  Filler filler = setup.haystack->NewFiller(&setup.counter, filler_rng, start);
  const auto count = [&](int64_t cut, int64_t spread) {
    return setup.counter.Exact(Build(setup, filler, needles, depth.value, cut, spread).context +
                               question.text + question.answer_prefix);
  };
  const std::string what =
      StrCat(kOwner, ".lengths: ", length,
             setup.reserve == 0 ? "" : StrCat(" less ", setup.reserve, " reserve_tokens"));
  KVG_ASSIGN(const Fit fit, FitCut(filler, length - setup.reserve, count, what));
  Built built = Build(setup, filler, needles, depth.value, fit.size, fit.spread);
  sample.id = sample.group = StrCat("n", length, "-d", depth.text, "-r", repeat);
  sample.context = std::move(built.context);
  sample.marks = std::move(built.marks);
  sample.questions.push_back(std::move(question));
  sample.length = fit.tokens;
  sample.facts = {{"length", std::to_string(length)},
                  {"depth", depth.text},
                  {"repeat", std::to_string(repeat)}};
  if (std::abs(built.depth - depth.value) >= kToldPoints) {
    const int64_t tenths = std::llround(10 * built.depth);
    sample.facts.emplace_back("placed_depth", StrCat(tenths / 10, ".", tenths % 10));
  }
  return sample;
}

// The first "{name}" of a text that is none of the drawn ones; "" where there is none.
std::string UnknownName(std::string_view text) {
  for (size_t at = text.find('{'); at != std::string_view::npos; at = text.find('{', at + 1)) {
    size_t end = at + 1;
    while (end < text.size() && (IsLetter(text[end]) || text[end] == '_')) ++end;
    if (end == at + 1 || end == text.size() || text[end] != '}') continue;
    const std::string_view name = text.substr(at + 1, end - at - 1);
    if (std::find(std::begin(kDrawn), std::end(kDrawn), name) == std::end(kDrawn)) {
      return std::string(name);
    }
  }
  return "";
}

Status Check(const Params& params, const Json&) {
  for (const char* list : {"needles", "answers"}) {
    for (const std::string& entry : Split(params.Text(list), '|')) {
      if (!Trim(entry).empty()) continue;
      return BadInput(StrCat(".", list, ": ", Quoted(params.Text(list)),
                             " has an empty one; expected texts separated by |"));
    }
  }
  for (const char* text : {"needles", "answers", "question", "answer_prefix"}) {
    const std::string unknown = UnknownName(params.Text(text));
    if (unknown.empty()) continue;
    std::vector<std::string> known(std::begin(kDrawn), std::end(kDrawn));
    return BadInput(StrCat(".", text, ": unknown name {", unknown, "}", DidYouMean(unknown, known),
                           "; known: {", Join(known, "}, {"), "}"));
  }
  return {};
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  Setup setup;
  KVG_ASSIGN(static_cast<LengthAxis&>(setup),
             ReadLengthAxis(kOwner, params, task, options, Lengths::kRequired, 50));
  KVG_ASSIGN(setup.depths, ParsePercents(params, "depths", kOwner));
  setup.repeats = params.Int("repeats");
  setup.reserve = params.Int("reserve_tokens");
  setup.snap = params.Bool("snap");
  setup.head = params.Text("head");
  setup.tail = params.Text("tail");
  setup.question = params.Text("question");
  setup.prefix = params.Text("answer_prefix");
  setup.needles = Split(params.Text("needles"), '|');
  setup.answers = Split(params.Text("answers"), '|');
  KVG_ASSIGN(setup.haystack, Haystack::Open(TextDirectoryPath(params.Text("haystack"), options),
                                            StrCat(kOwner, ".haystack")));
  const auto total =
      static_cast<int64_t>(setup.lengths.size() * setup.depths.size()) * setup.repeats;
  return StreamOf(std::move(setup), total, options, Make);
}

KVG_REGISTER_SOURCE({
    .name = "needle",
    .version = 2,  // 2: full stops where no character of the haystack fills the length
    .description = "facts hidden in a haystack, over a grid of lengths and depths",
    .generated = true,
    .params =
        {
            TextParam("lengths", "4096", "tokens of context, question and answer prefix together"),
            TextParam("depths", "0,11,22,33,44,56,67,78,89,100", "percent of the haystack"),
            IntParam("repeats", 1, 1, 1'000'000, "samples per cell"),
            IntParam("reserve_tokens", 0, 0, 100'000,
                     "of each length kept free, as for a template"),
            BoolParam("snap", true, "needles stand between sentences"),
            TextParam("haystack", "",
                      "directory of *.txt files, below the data directory; empty: prose"),
            TextParam("head", "", "before the haystack"),
            TextParam("tail", "\n\n", "after the haystack"),
            TextParam("needles",
                      "\nThe best thing to do in San Francisco is eat a sandwich and sit in "
                      "Dolores Park on a sunny day.\n",
                      "separated by |; {city}, {key} and {number} are drawn"),
            TextParam("question", "What is the best thing to do in San Francisco?",
                      "after the tail; may use the same names"),
            TextParam("answer_prefix", "", "begins the answer"),
            TextParam("answers", "eat a sandwich and sit in Dolores Park on a sunny day",
                      "separated by |; may use the same names"),
        },
    .open = Open,
    .files = [](const Params& params,
                const Json&) { return TextDirectory(params.Text("haystack")); },
    .check = Check,
});

}  // namespace
}  // namespace kvgauge::needle

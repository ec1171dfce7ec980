// SPDX-License-Identifier: Apache-2.0
// LongEval's fine-grained retrieval: one line's number out of many.
#include <memory>
#include <set>

#include "core/json.h"
#include "core/strings.h"
#include "generators/generator.h"
#include "generators/length_axis.h"
#include "generators/prose.h"
#include "generators/words.h"

namespace kvgauge::lines {
namespace {

constexpr std::string_view kOwner = "lines";
constexpr std::string_view kHead =
    "Below is a record of lines I want you to remember. Each line begins with 'line <line index>' "
    "and contains a '<REGISTER_CONTENT>' at the end of the line as a numerical value. For each "
    "line "
    "index, memorize its corresponding <REGISTER_CONTENT>. At the end of the record, I will ask "
    "you "
    "to retrieve the corresponding <REGISTER_CONTENT> of a certain line index. Now the record "
    "start:\n\n";
constexpr std::string_view kQuestion =
    "\nNow the record is over. Tell me what is the <REGISTER_CONTENT> in line {index}? I need the "
    "number.";

struct Setup : LengthAxis {
  std::vector<int64_t> lines;  // unless there are lengths
  int64_t samples = 0;
  std::string index_type;
  bool fill = false;
  std::shared_ptr<Haystack> prose;  // to fill with
};

// "AAAAAA", "AAAAAB", ... in six letters from A to F.
std::string Letters(int64_t number) {
  std::string text(6, 'A');
  for (size_t i = 6; i > 0; --i, number /= 6) text[i - 1] = static_cast<char>('A' + number % 6);
  return text;
}

struct Record {
  std::vector<std::string> indices;
  std::vector<int64_t> numbers;
};

class RecordDraw {
 public:
  RecordDraw(const Setup& setup, int64_t sample)
      : type_(setup.index_type), rng_(RngFor(setup.seed, sample, Draw::kFacts)) {}

  const Record& Grow(int64_t count) {
    while (static_cast<int64_t>(record_.numbers.size()) < count) {
      const auto i = static_cast<int64_t>(record_.numbers.size());
      std::string index = type_ == "numbers" ? std::to_string(i + 1) : Letters(i);
      if (type_ == "uuids") index = Uuid(rng_);
      if (type_ == "words") index = Fresh(i);
      record_.indices.push_back(std::move(index));
      record_.numbers.push_back(Between(rng_, 1, 50000));
    }
    return record_;
  }

 private:
  // Pairs are finite: past half of them the line's number is added.
  std::string Fresh(int64_t i) {
    const auto pairs = static_cast<int64_t>(Adjectives().size() * Nouns().size());
    std::string pair = WordPair(rng_);
    if (i >= pairs / 2) return StrCat(pair, "-", i + 1);
    while (!taken_.insert(pair).second) pair = WordPair(rng_);
    return pair;
  }

  std::string type_;
  Rng rng_;
  Record record_;
  std::set<std::string> taken_;
};

Result<Sample> Make(const Setup& setup, int64_t index) {
  const auto cell = static_cast<size_t>(index / setup.samples);
  RecordDraw draw(setup, index);
  const double place = RngFor(setup.seed, index, Draw::kPlaces).NextDouble();
  Tail tail{"The lines end here.", " ",
            setup.prose->NewFiller(&setup.counter, RngFor(setup.seed, index, Draw::kTail))};
  const auto build = [&](int64_t count, int64_t cut) {
    const Record& record = draw.Grow(count);
    const auto asked = static_cast<size_t>(place * static_cast<double>(count));
    Sample sample;
    sample.context = kHead;
    for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
      const std::string line =
          StrCat("line ", record.indices[i], ": REGISTER_CONTENT is <", record.numbers[i], ">\n");
      if (i == asked) {
        sample.marks.push_back(MarkAt(MarkKind::kNeedle, sample.context.size(), line.size()));
      }
      sample.context += line;
    }
    sample.context += tail.Text(cut);
    Question question;
    question.text = FillIn(kQuestion, {{"index", record.indices[asked]}});
    question.answers = {std::to_string(record.numbers[asked])};
    question.max_new_tokens = setup.new_tokens;
    sample.questions.push_back(std::move(question));
    sample.facts = {{"lines", std::to_string(count)}, {"line", std::to_string(asked + 1)}};
    return sample;
  };
  Sample sample;
  if (setup.lengths.empty()) {
    sample = build(setup.lines[cell], -1);
    sample.length = setup.lines[cell];
    sample.id = StrCat("l", setup.lines[cell], "-", index % setup.samples);
  } else {
    const int64_t length = setup.lengths[cell];
    const auto whole = [&](int64_t count, int64_t cut) {
      const Sample text = build(count, cut);
      return text.context + text.questions[0].text;
    };
    KVG_ASSIGN(const FilledFit fit,
               FitFilled(setup.counter, setup.fill ? &tail.filler : nullptr, length, 1,
                         int64_t{1} << 40, whole, StrCat(kOwner, ".lengths: ", length)));
    sample = build(fit.units, fit.cut);
    sample.length = fit.tokens;
    sample.id = StrCat("n", length, "-", index % setup.samples);
    sample.facts.insert(sample.facts.begin(), {"length", std::to_string(length)});
  }
  sample.group = sample.id;
  return sample;
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  Setup setup;
  KVG_ASSIGN(static_cast<LengthAxis&>(setup),
             ReadLengthAxis(kOwner, params, task, options, Lengths::kOptional, 100));
  setup.index_type = params.Text("index_type");
  if (setup.lengths.empty()) {
    const int64_t most = setup.index_type == "letters" ? 46656 : 10'000'000;
    KVG_ASSIGN(setup.lines, ParseInts(params, "lines", kOwner, 1, most));
  }
  setup.samples = params.Int("samples");
  KVG_ASSIGN(setup.fill, ReadFill(params, kOwner));
  KVG_ASSIGN(setup.prose, Haystack::Open("", kOwner));
  const auto cells = static_cast<int64_t>(setup.lines.size() + setup.lengths.size());
  const int64_t total = cells * setup.samples;
  return StreamOf(std::move(setup), total, options, Make);
}

KVG_REGISTER_SOURCE({
    .name = "lines",
    .version = 1,
    .description = "LongEval lines: one line's number out of many",
    .generated = true,
    .params =
        {
            TextParam("lines", "200,300,400,500,600,680", "lines of the record"),
            TextParam("lengths", "", "tokens instead of lines: as many lines as fit"),
            IntParam("samples", 50, 1, 1'000'000, "per number of lines or length"),
            ChoiceParam("index_type", "words", {"words", "numbers", "letters", "uuids"},
                        "what lines are called"),
            BoolParam("fill", false, "prose behind the lines fills each of lengths to the token"),
        },
    .open = Open,
    .files = nullptr,
    .check = nullptr,
});

}  // namespace
}  // namespace kvgauge::lines

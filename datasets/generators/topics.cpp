// SPDX-License-Identifier: Apache-2.0
// LongEval's topics: conversations about one topic after another; the first is asked for,
// or the second or third (TopicRet). The
// record's frame is the published one, the conversations are generated prose.
#include <algorithm>
#include <memory>

#include "core/json.h"
#include "core/strings.h"
#include "generators/generator.h"
#include "generators/length_axis.h"
#include "generators/prose.h"
#include "generators/words.h"

namespace kvgauge::topics {
namespace {

constexpr std::string_view kOwner = "topics";
constexpr std::string_view kHead =
    "Below is a record of our previous conversation on {count} different topics. You are the "
    "ASSISTANT, and I am the USER. At the beginning of each topic, the USER will say 'I would like "
    "to discuss the topic of <TOPIC>'. Memorize each <TOPIC>. At the end of the record, I will ask "
    "you to retrieve the {ordinal} topic. Now the record start. ";
constexpr std::string_view kQuestion =
    " Now the record ends. What is the {ordinal} topic(s) we discussed? Only give me the topic "
    "name. "
    "Do "
    "not summarize yourself.";

struct Setup : LengthAxis {
  std::vector<int64_t> topics;  // unless there are lengths
  int64_t samples = 0, turns = 0;
  int64_t asked = 1;  // counted from 1
  std::string ordinal;
  bool fill = false;
  std::shared_ptr<Haystack> prose;  // to fill with
};

struct Talk {
  std::string topic, text;
};

// "the history of the amber lantern": no topic's name stands in prose.
Talk DrawTalk(Rng& rng, const std::string& topic, int64_t turns) {
  Talk talk;
  talk.topic = topic;
  const auto sentences = [&] {
    std::string text;
    for (int64_t i = Between(rng, 2, 4); i > 0; --i) {
      text += " " + ProseSentence(Between(rng, 0, kProseSentences - 1));
    }
    return text;
  };
  talk.text = StrCat(" USER: I would like to discuss the topic of ", topic,
                     ". ASSISTANT: Gladly. What would you like to know?");
  for (int64_t turn = 0; turn < turns; ++turn) {
    talk.text += StrCat(" USER: Tell me more.", " ASSISTANT:", sentences());
  }
  return talk;
}

Result<Sample> Make(const Setup& setup, int64_t index) {
  static constexpr std::string_view kSubjects[] = {"the history", "the making", "the trade",
                                                   "the care",    "the price",  "the science"};
  const auto cell = static_cast<size_t>(index / setup.samples);
  Rng rng = RngFor(setup.seed, index, Draw::kFacts);
  const auto nouns = static_cast<int64_t>(Nouns().size());
  const auto kinds = static_cast<int64_t>(std::size(kSubjects));
  std::vector<int64_t> order(static_cast<size_t>(nouns * kinds));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  Shuffle(order, rng);
  std::vector<Talk> talks;
  // The last conversation goes on.
  Tail tail{" USER: Tell me more. ASSISTANT:", " ",
            setup.prose->NewFiller(&setup.counter, RngFor(setup.seed, index, Draw::kTail))};
  const auto build = [&](int64_t count, int64_t cut) {
    while (static_cast<int64_t>(talks.size()) < count) {
      const int64_t drawn = order[talks.size()];
      talks.push_back(DrawTalk(
          rng,
          StrCat(kSubjects[drawn % kinds], " of the ", Nouns()[static_cast<size_t>(drawn / kinds)]),
          setup.turns));
    }
    std::string text =
        FillIn(kHead, {{"count", std::to_string(count)}, {"ordinal", setup.ordinal}});
    for (int64_t i = 0; i < count; ++i) text += talks[static_cast<size_t>(i)].text;
    return text + tail.Text(cut);
  };
  const std::string asking = FillIn(kQuestion, {{"ordinal", setup.ordinal}});
  Sample sample;
  int64_t count = 0, cut = -1;
  if (setup.lengths.empty()) {
    count = sample.length = setup.topics[cell];
    sample.id = StrCat("t", count);
  } else {
    const int64_t length = setup.lengths[cell];
    const auto whole = [&](int64_t units, int64_t filled) { return build(units, filled) + asking; };
    KVG_ASSIGN(const FilledFit fit,
               FitFilled(setup.counter, setup.fill ? &tail.filler : nullptr, length, setup.asked,
                         nouns * kinds, whole, StrCat(kOwner, ".lengths: ", length)));
    count = fit.units;
    cut = fit.cut;
    sample.length = fit.tokens;
    sample.id = StrCat("n", length);
    sample.facts = {{"length", std::to_string(length)}};
  }
  sample.id = sample.group = StrCat(sample.id, "-", index % setup.samples);
  sample.context = build(count, cut);
  const std::string& topic = talks[static_cast<size_t>(setup.asked - 1)].topic;
  sample.marks = {MarkAt(MarkKind::kNeedle, sample.context.find(topic + "."), topic.size())};
  Question question;
  question.text = asking;
  question.answers = {topic};
  question.max_new_tokens = setup.new_tokens;
  sample.questions.push_back(std::move(question));
  sample.facts.emplace_back("topics", std::to_string(count));
  return sample;
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  Setup setup;
  KVG_ASSIGN(static_cast<LengthAxis&>(setup),
             ReadLengthAxis(kOwner, params, task, options, Lengths::kOptional, 50));
  setup.ordinal = params.Text("asked");
  setup.asked = setup.ordinal == "first" ? 1 : setup.ordinal == "second" ? 2 : 3;
  if (setup.lengths.empty()) {
    KVG_ASSIGN(setup.topics, ParseInts(params, "topics", kOwner, setup.asked, 1000));
  }
  setup.samples = params.Int("samples");
  KVG_ASSIGN(setup.fill, ReadFill(params, kOwner));
  KVG_ASSIGN(setup.prose, Haystack::Open("", kOwner));
  setup.turns = params.Int("turns");
  const auto cells = static_cast<int64_t>(setup.topics.size() + setup.lengths.size());
  const int64_t total = cells * setup.samples;
  return StreamOf(std::move(setup), total, options, Make);
}

KVG_REGISTER_SOURCE({
    .name = "topics",
    .version = 1,
    .description = "LongEval topics: the first, second or third of many conversations",
    .generated = true,
    .params =
        {
            TextParam("topics", "5,10,15,20,25", "conversations"),
            TextParam("lengths", "", "tokens instead of conversations: as many as fit"),
            IntParam("samples", 50, 1, 1'000'000, "per number of topics or length"),
            ChoiceParam("asked", "first", {"first", "second", "third"}, "the topic's place"),
            IntParam("turns", 6, 1, 1000, "of each conversation"),
            BoolParam("fill", false, "the last answer fills each of lengths to the token"),
        },
    .open = Open,
    .files = nullptr,
    .check = nullptr,
});

}  // namespace
}  // namespace kvgauge::topics

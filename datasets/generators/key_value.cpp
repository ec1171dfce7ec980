// SPDX-License-Identifier: Apache-2.0
// Key-value retrieval of "Lost in the middle": uuids in one JSON object, one key asked for.
#include <algorithm>

#include "core/json.h"
#include "core/strings.h"
#include "generators/generator.h"
#include "generators/length_axis.h"
#include "generators/prose.h"

namespace kvgauge::key_value {
namespace {

constexpr std::string_view kOwner = "key_value";
constexpr std::string_view kHead =
    "Extract the value corresponding to the specified key in the JSON object below.\n\n";

struct Setup : LengthAxis {
  std::vector<int64_t> keys;  // unless there are lengths
  std::vector<Percent> depths;
  int64_t samples = 0;
  bool query_first = false, fill = false;
  std::shared_ptr<Haystack> prose;  // to fill with
};

Result<Sample> Make(const Setup& setup, int64_t index) {
  const auto depths = static_cast<int64_t>(setup.depths.size());
  const int64_t cell = index / setup.samples;
  const auto size = static_cast<size_t>(cell / depths);
  const Percent& depth = setup.depths[static_cast<size_t>(cell % depths)];

  Rng rng = RngFor(setup.seed, index, Draw::kFacts);
  const std::string key = Uuid(rng), value = Uuid(rng);
  Rng last_rng = RngFor(setup.seed, index, Draw::kFiller);
  Filler filler = setup.prose->NewFiller(&setup.counter, RngFor(setup.seed, index, Draw::kPlaces));
  std::vector<std::string> others;  // records without the white space between them
  const auto record = [](const std::string& name, const std::string& content) {
    return StrCat("\"", name, "\": \"", content, "\"");
  };
  const std::string last = Uuid(last_rng);
  const auto build = [&](int64_t count, int64_t cut) {
    while (static_cast<int64_t>(others.size()) + 1 < count) {
      const std::string name = Uuid(rng);
      others.push_back(record(name, Uuid(rng)));
    }
    const auto place = static_cast<int64_t>(static_cast<double>(count - 1) * depth.value / 100);
    Sample sample;
    sample.context = kHead;
    if (setup.query_first) sample.context += StrCat("Key: \"", key, "\"\n\n");
    sample.context += "JSON data:\n{";
    for (int64_t i = 0; i < count; ++i) {
      if (i > 0) sample.context += ",\n ";
      const auto other = static_cast<size_t>(i < place ? i : i - 1);
      const std::string line = i == place ? record(key, value) : others[other];
      if (i == place) {
        sample.marks.push_back(MarkAt(MarkKind::kNeedle, sample.context.size(), line.size()));
      }
      sample.context += line;
    }
    if (cut >= 0) {
      const std::string value_text = filler.text().substr(0, static_cast<size_t>(cut));
      sample.context += StrCat(",\n ", record(last, value_text));
    }
    sample.context += '}';
    Question question;
    question.text = StrCat("\n\nKey: \"", key, "\"\nCorresponding value:");
    question.answers = {value};
    question.max_new_tokens = setup.new_tokens;
    sample.questions.push_back(std::move(question));
    sample.facts = {{"keys", std::to_string(count)}, {"depth", depth.text}};
    return sample;
  };
  Sample sample;
  if (setup.lengths.empty()) {
    sample = build(setup.keys[size], -1);
    sample.length = setup.keys[size];
    sample.id = StrCat("k", setup.keys[size]);
  } else {
    const int64_t length = setup.lengths[size];
    const auto whole = [&](int64_t count, int64_t cut) {
      const Sample text = build(count, cut);
      return text.context + text.questions[0].text;
    };
    KVG_ASSIGN(const FilledFit fit,
               FitFilled(setup.counter, setup.fill ? &filler : nullptr, length, 1, int64_t{1} << 40,
                         whole, StrCat(kOwner, ".lengths: ", length)));
    sample = build(fit.units, fit.cut);
    sample.length = fit.tokens;
    sample.id = StrCat("n", length);
    sample.facts.insert(sample.facts.begin(), {"length", std::to_string(length)});
  }
  sample.id = sample.group = StrCat(sample.id, "-d", depth.text, "-", index % setup.samples);
  return sample;
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  Setup setup;
  KVG_ASSIGN(static_cast<LengthAxis&>(setup),
             ReadLengthAxis(kOwner, params, task, options, Lengths::kOptional, 100));
  if (setup.lengths.empty()) {
    KVG_ASSIGN(setup.keys, ParseInts(params, "keys", kOwner, 1, 10'000'000));
  }
  KVG_ASSIGN(setup.depths, ParsePercents(params, "depths", kOwner));
  setup.samples = params.Int("samples");
  setup.query_first = params.Bool("query_first");
  KVG_ASSIGN(setup.fill, ReadFill(params, kOwner));
  KVG_ASSIGN(setup.prose, Haystack::Open("", kOwner));
  const auto cells =
      static_cast<int64_t>((setup.keys.size() + setup.lengths.size()) * setup.depths.size());
  const int64_t total = cells * setup.samples;
  return StreamOf(std::move(setup), total, options, Make);
}

KVG_REGISTER_SOURCE({
    .name = "key_value",
    .version = 1,
    .description = "one value out of a JSON object of uuids",
    .generated = true,
    .params =
        {
            TextParam("keys", "75,140,300", "records"),
            TextParam("lengths", "", "tokens instead of records: as many records as fit"),
            TextParam("depths", "0,25,50,75,100",
                      "percent of the records before the one asked for"),
            IntParam("samples", 100, 1, 1'000'000, "per size and depth"),
            BoolParam("query_first", false, "the key stands before the object too"),
            BoolParam("fill", false, "prose in a last record fills each of lengths to the token"),
        },
    .open = Open,
    .files = nullptr,
    .check = nullptr,
});

}  // namespace
}  // namespace kvgauge::key_value

// SPDX-License-Identifier: Apache-2.0
// Pages of drawn pictures with questions about them.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/image.h"
#include "core/json.h"
#include "core/sha256.h"
#include "core/strings.h"
#include "generators/generator.h"
#include "generators/visual_draw.h"

namespace kvgauge::visual {
namespace {

constexpr std::string_view kOwner = "visual_pages";
constexpr int kFixedCells = 4;  // of a scene that all frames show
constexpr int kMostCount = 9;   // one digit

enum class Form { kNeedle, kPairs, kBeside, kCount, kFrames, kFact, kSee };
constexpr std::array<std::string_view, 7> kForms = {"needle", "pairs", "beside", "count",
                                                    "frames", "fact",  "see"};

struct Setup {
  Form form = Form::kNeedle;
  Style style = Style::kGlyphs;
  int32_t side = 64;
  bool mixed = true, train = false, whole = false, asked_first = false;
  std::vector<int64_t> pictures;
  std::vector<Percent> depths;  // none: drawn
  int64_t cells = 4, digits = 3, needles = 1, distractors = 0, questions = 1;
  int64_t new_tokens = 0;
  uint64_t seed = 0;
};

// A question of a page. `thing` stands before the answer, in glyphs as in a text.
struct Ask {
  std::string question, thing, answer;
  int64_t picture = -1;  // that holds the answer
  int64_t fact = -1;     // or the text between the pictures that does
};

struct Fact {
  int64_t behind = 0;  // of which picture
  std::string text;
};

struct Page {
  std::vector<std::shared_ptr<Scene>> scenes;
  std::vector<Fact> facts;  // ascending
  std::vector<Ask> asks;
};

std::string ImageFile(const Scene& scene) {
  const Image image = Render(scene);
  std::string file = StrCat("P6\n", image.width, " ", image.height, "\n255\n");
  file.append(image.rgb.begin(), image.rgb.end());
  return file;
}

class PageMaker {
 public:
  PageMaker(const Setup& setup, int64_t index, int64_t pictures, const Percent* depth)
      : setup_(setup),
        index_(index),
        count_(pictures),
        facts_(Stream(Draw::kFacts)),
        places_(Stream(Draw::kPlaces)) {
    target_ = depth == nullptr
                  ? Between(places_, 0, pictures - 1)
                  : std::llround(depth->value * static_cast<double>(pictures - 1) / 100);
    const auto colours = static_cast<int>(ColourNames(setup.style).size());
    const auto nouns = static_cast<int>(ThingNames(setup.style).size());
    for (int colour = 0; colour < colours; ++colour) {
      for (int noun = 0; noun < nouns; ++noun) {
        const Thing thing{colour, noun};
        if (!setup.train || !IsHeldOut(thing)) names_.push_back(thing);
      }
    }
    Shuffle(names_, facts_);
    contents_.resize(static_cast<size_t>(pictures));
  }

  Page Make() {
    switch (setup_.form) {
      case Form::kNeedle:
        MakeNeedles();
        break;
      case Form::kFrames:
        MakeFrames();
        break;
      case Form::kCount:
        MakeCount();
        break;
      default:
        MakeCells();
    }
    if (setup_.form != Form::kFrames) Compose();
    return std::move(page_);
  }
  int64_t target() const { return target_; }

 private:
  // What a cell says, behind its first thing.
  struct Cell {
    Thing thing;
    std::string number;              // or
    std::optional<Thing> neighbour;  // or neither
  };

  Rng Stream(Draw purpose) const {
    const auto kind = static_cast<int64_t>(setup_.form) + (setup_.train ? 16 : 0);
    return RngFor(setup_.seed, index_ + (kind << 44), purpose);
  }
  std::string Said(const Thing& thing) const { return NameOf(setup_.style, thing); }

  // The next name, or the next that may be asked for.
  std::optional<Thing> TakeName(bool asked) {
    const auto fits = [&](const Thing& thing) {
      return !asked || setup_.style == Style::kShapes || IsHeldOut(thing) != setup_.train;
    };
    const auto found = std::find_if(names_.rbegin(), names_.rend(), fits);
    if (found == names_.rend()) return std::nullopt;
    const Thing thing = *found;
    names_.erase(std::next(found).base());
    return thing;
  }
  // Another name that shares its colour, or else its noun.
  std::optional<Thing> TakeLike(const Thing& other, bool colour) {
    const auto found = std::find_if(names_.begin(), names_.end(), [&](const Thing& thing) {
      return colour ? thing.colour == other.colour : thing.noun == other.noun;
    });
    if (found == names_.end()) return std::nullopt;
    const Thing thing = *found;
    names_.erase(found);
    return thing;
  }
  std::string Number() {
    std::string number;
    for (int64_t i = 0; i < setup_.digits; ++i)
      number += static_cast<char>('0' + Between(facts_, 0, 9));
    return number;
  }
  // In that picture, or in the next that has room; says in which.
  int64_t Put(int64_t picture, Cell cell) {
    int64_t tried = 0;
    while (!HasRoom(picture)) {
      KVG_CHECK(++tried < count_, "more cells than rows");
      picture = (picture + 1) % count_;
    }
    contents_[static_cast<size_t>(picture)].push_back(std::move(cell));
    return picture;
  }

  void AskNumber(const Cell& cell, int64_t picture) {
    page_.asks.push_back(
        {NumberQuestion(Said(cell.thing)), Said(cell.thing), cell.number, picture});
  }
  std::string NumberQuestion(const std::string& thing) const {
    if (setup_.style == Style::kGlyphs) return StrCat("which number has the ", thing, "?");
    return StrCat("What number stands right of the ", thing, "?");
  }

  // Things everywhere; few of them have a number. The first needle stands at the depth asked for.
  void MakeNeedles() {
    for (int64_t i = 0; i < setup_.needles; ++i) {
      const std::optional<Thing> thing = TakeName(true);
      KVG_CHECK(thing.has_value(), "more needles than things");
      const Cell cell = {*thing, Number(), {}};
      const int64_t picture = Put(i == 0 ? target_ : Between(places_, 0, count_ - 1), cell);
      AskNumber(cell, picture);
      for (int64_t j = 0; j < setup_.distractors; ++j) {
        const std::optional<Thing> like = TakeLike(*thing, j % 2 == 0);
        if (like) Put(OtherThan(picture), {*like, Number(), {}});
      }
    }
    for (int64_t i = 0; i < count_; ++i) AddThings(i, Between(facts_, 1, setup_.cells));
  }
  int64_t OtherThan(int64_t picture) {
    if (count_ == 1) return 0;
    const int64_t other = Between(places_, 0, count_ - 2);
    return other >= picture ? other + 1 : other;
  }
  void AddThings(int64_t picture, int64_t more) {
    for (int64_t i = 0; i < more && HasRoom(picture); ++i) {
      if (const std::optional<Thing> thing = TakeName(false)) Put(picture, {*thing, "", {}});
    }
  }
  bool HasRoom(int64_t picture) const {
    return std::ssize(contents_[static_cast<size_t>(picture)]) < kGrid;
  }

  // Cells everywhere, each with a number or a neighbour; or facts in the text between.
  void MakeCells() {
    const bool beside = setup_.form == Form::kBeside, fact = setup_.form == Form::kFact;
    const auto fill = [&](const Thing& thing) -> Cell {
      if (!beside) return {thing, Number(), {}};
      return {thing, "", TakeName(false)};
    };
    std::vector<std::pair<int64_t, Cell>> asked;
    const bool needs_target = !fact && setup_.form != Form::kSee;
    if (needs_target) {
      const std::optional<Thing> thing = TakeName(true);
      KVG_CHECK(thing.has_value(), "no thing to ask for");
      asked.emplace_back(target_, fill(*thing));
      Put(target_, asked[0].second);
      for (int64_t j = 0; j < setup_.distractors; ++j) {
        const std::optional<Thing> like = TakeLike(*thing, j % 2 == 0);
        if (like) Put(OtherThan(target_), fill(*like));
      }
    }
    if (fact) MakeFacts();
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t wanted = Between(facts_, 1, setup_.cells);
      while (std::ssize(contents_[static_cast<size_t>(i)]) < wanted && names_.size() > 1) {
        const Cell cell = fill(*TakeName(false));
        if (beside && !cell.neighbour) break;
        if (IsHeldOut(cell.thing) != setup_.train) asked.emplace_back(i, cell);
        Put(i, cell);
      }
    }
    if (!needs_target) return;
    // The one at the depth first, others only where a whole text asks for many. Their order is
    // drawn apart, so that a page has the same pictures either way.
    if (setup_.whole) {
      std::vector<std::pair<int64_t, Cell>> rest(asked.begin() + 1, asked.end());
      Rng order = Stream(Draw::kQuestion);
      Shuffle(rest, order);
      asked.resize(1);
      asked.insert(asked.end(), rest.begin(), rest.end());
    }
    for (const auto& [picture, cell] : asked) {
      if (std::ssize(page_.asks) >= setup_.questions) break;
      if (!beside) {
        AskNumber(cell, picture);
        continue;
      }
      const std::string thing = Said(cell.thing);
      const std::string question = setup_.style == Style::kGlyphs
                                       ? StrCat("which thing is near the ", thing, "?")
                                       : StrCat("What stands right of the ", thing, "?");
      const bool glyphs = setup_.style == Style::kGlyphs;
      page_.asks.push_back(
          {question, thing, StrCat(glyphs ? " " : "", Said(*cell.neighbour)), picture});
    }
  }

  void MakeFacts() {
    const bool glyphs = setup_.style == Style::kGlyphs;
    std::vector<std::pair<Fact, Ask>> made;
    for (int64_t i = 0; i < setup_.questions + setup_.distractors; ++i) {
      const bool asked = i < setup_.questions;
      const std::optional<Thing> thing = TakeName(asked);
      if (!thing) break;
      const int64_t behind = i == 0 ? target_ : Between(places_, 0, count_ - 1);
      const std::string code = Number(), said = Said(*thing);
      made.push_back(
          {{behind, StrCat("The code of the ", said, " is *", code, ".\n")},
           {StrCat(glyphs ? "what is the code of the " : "What is the code of the ", said, "?"),
            StrCat("The code of the ", said, " is *"), code}});
      if (!asked) made.back().second.answer.clear();
    }
    std::vector<size_t> order(made.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return made[a].first.behind < made[b].first.behind;
    });
    for (const size_t i : order) page_.facts.push_back(made[i].first);
    for (size_t i = 0; i < made.size(); ++i) {
      if (made[i].second.answer.empty()) continue;
      made[i].second.fact = std::find(order.begin(), order.end(), i) - order.begin();
      page_.asks.push_back(made[i].second);
    }
  }

  void MakeCount() {
    const std::optional<Thing> thing = TakeName(true);
    KVG_CHECK(thing.has_value(), "no thing to count");
    const int64_t most = std::min<int64_t>(count_, kMostCount);
    const int64_t times = Between(facts_, 1, most);
    std::vector<int64_t> at = DrawDistinct(places_, count_, times);
    for (const int64_t picture : at) Put(picture, {*thing, "", {}});
    for (int64_t j = 0; j < setup_.distractors; ++j) {
      const std::optional<Thing> like = TakeLike(*thing, j % 2 == 0);
      if (like) Put(Between(places_, 0, count_ - 1), {*like, "", {}});
    }
    for (int64_t i = 0; i < count_; ++i) AddThings(i, Between(facts_, 1, setup_.cells));
    const std::string said = Said(*thing);
    page_.asks.push_back({setup_.style == Style::kGlyphs
                              ? StrCat("how many pictures have the ", said, "?")
                              : StrCat("In how many of the pictures is the ", said, "?"),
                          said, std::to_string(times), *std::min_element(at.begin(), at.end())});
  }

  // One scene; what is asked for stands in one of its frames only.
  void MakeFrames() {
    Rng looks = Stream(Draw::kFiller);
    const Background background = DrawBackground(looks, setup_.mixed);
    std::vector<int64_t> rows = DrawDistinct(places_, kGrid, kGrid);
    std::vector<Item> fixed;
    for (int i = 0; i < kFixedCells; ++i) {
      const std::optional<Thing> thing = TakeName(false);
      const std::vector<Item> cell = ThingAndNumber(looks, setup_.style, *thing, Number(),
                                                    static_cast<int>(rows[static_cast<size_t>(i)]));
      fixed.insert(fixed.end(), cell.begin(), cell.end());
    }
    std::vector<int64_t> hits = {target_};
    const int64_t most = std::min<int64_t>({setup_.questions, count_, kGrid});
    for (const int64_t frame : DrawDistinct(places_, count_, most)) {
      if (frame != target_ && std::ssize(hits) < most) hits.push_back(frame);
    }
    std::vector<std::vector<Item>> passing(static_cast<size_t>(count_));
    for (size_t i = 0; i < hits.size(); ++i) {
      const std::optional<Thing> thing = TakeName(true);
      if (!thing) break;
      const Cell cell = {*thing, Number(), {}};
      const auto row = static_cast<int>(rows[kFixedCells + i % (kGrid - kFixedCells)]);
      passing[static_cast<size_t>(hits[i])] =
          ThingAndNumber(looks, setup_.style, *thing, cell.number, row);
      AskNumber(cell, hits[i]);
    }
    for (int64_t i = 0; i < count_; ++i) {
      auto scene = NewScene(i);
      scene->background = background;
      scene->items = fixed;
      const std::vector<Item>& more = passing[static_cast<size_t>(i)];
      scene->items.insert(scene->items.end(), more.begin(), more.end());
      page_.scenes.push_back(std::move(scene));
    }
  }

  std::shared_ptr<Scene> NewScene(int64_t picture) const {
    auto scene = std::make_shared<Scene>();
    scene->style = setup_.style;
    scene->side = setup_.side;
    Rng key = Stream(Draw::kTail);
    scene->noise_seed = key.NextU64();
    scene->noise_stream = key.NextU64() + static_cast<uint64_t>(picture);
    return scene;
  }

  // Every cell in a row of its own, at any column, in any order.
  void Compose() {
    Rng looks = Stream(Draw::kFiller);
    for (int64_t i = 0; i < count_; ++i) {
      std::vector<Cell>& cells = contents_[static_cast<size_t>(i)];
      auto scene = NewScene(i);
      scene->background = DrawBackground(looks, setup_.mixed);
      Shuffle(cells, places_);
      std::vector<int64_t> rows = DrawDistinct(places_, kGrid, std::ssize(cells));
      std::sort(rows.begin(), rows.end());
      for (size_t j = 0; j < cells.size(); ++j) {
        const auto row = static_cast<int>(rows[j]);
        const std::vector<Item> items =
            cells[j].neighbour
                ? ThingAndThing(looks, setup_.style, cells[j].thing, *cells[j].neighbour, row)
                : ThingAndNumber(looks, setup_.style, cells[j].thing, cells[j].number, row);
        scene->items.insert(scene->items.end(), items.begin(), items.end());
        if (setup_.form == Form::kSee) read_ += StrCat(" ", Said(cells[j].thing), cells[j].number);
      }
      page_.scenes.push_back(std::move(scene));
    }
    if (setup_.form == Form::kSee) page_.asks.push_back({"", "", read_, 0});
  }

  const Setup& setup_;
  const int64_t index_, count_;
  Rng facts_, places_;
  int64_t target_ = 0;
  std::vector<Thing> names_;
  std::vector<std::vector<Cell>> contents_;  // of each picture
  std::string read_;
  Page page_;
};

// Texts of glyph pages are those that the reference models are trained on; others ask anybody.
struct Wording {
  std::string head, before, behind;  // before all pictures, each, behind each
  std::string lead, tail;            // of a question
};
Wording WordingOf(const Setup& setup) {
  if (setup.style == Style::kGlyphs) return {"Story:", " ", "\n", "Question: ", " Answer:"};
  return {setup.form == Form::kFrames ? "These pictures are the frames of a video.\n"
                                      : "Look at these pictures.\n",
          "", "\n", "", " Answer with nothing else."};
}

Sample Assemble(const Setup& setup, const Page& page, int64_t index) {
  Sample sample;
  const bool glyphs = setup.style == Style::kGlyphs;
  sample.chat_template = !glyphs;
  const Wording words = WordingOf(setup);
  const bool see = setup.form == Form::kSee;
  if (setup.asked_first) {
    sample.context = StrCat(words.lead, page.asks[0].question, "\n");
  }
  sample.context += words.head;
  size_t fact = 0;
  std::vector<Mark> facts;
  for (size_t i = 0; i < page.scenes.size(); ++i) {
    sample.context += words.before;
    const std::shared_ptr<const Scene> scene = page.scenes[i];
    std::function<Result<std::string>()> load = [scene]() -> Result<std::string> {
      return ImageFile(*scene);
    };
    sample.pictures.push_back({.name = StrCat("picture ", i + 1, " of sample ", index),
                               .hash = Sha256Hex(ImageFile(*scene)),
                               .at = std::ssize(sample.context),
                               .frame = setup.form == Form::kFrames ? static_cast<int64_t>(i) : -1,
                               .load = std::move(load),
                               .words = WordsOf(*scene)});
    sample.context += words.behind;
    for (; fact < page.facts.size() && page.facts[fact].behind == static_cast<int64_t>(i); ++fact) {
      facts.push_back(
          MarkAt(MarkKind::kNeedle, sample.context.size(), page.facts[fact].text.size()));
      sample.context += page.facts[fact].text;
    }
  }
  for (size_t i = 0; i < page.asks.size(); ++i) {
    const Ask& ask = page.asks[i];
    Question question;
    if (see) {
      question.text = glyphs ? "Read:" : "Name everything in the pictures, in reading order.";
    } else if (setup.asked_first) {
      question.text = glyphs ? "Answer:" : "Answer the question. Answer with nothing else.";
    } else {
      question.text =
          StrCat(setup.whole && i > 0 ? "\n" : "", words.lead, ask.question, words.tail);
    }
    if (glyphs && !see) question.answer_prefix = StrCat(" ", ask.thing);
    question.answers = {ask.answer};
    question.max_new_tokens = setup.new_tokens;
    sample.questions.push_back(std::move(question));
    if (ask.fact >= 0) {
      sample.marks.push_back(facts[static_cast<size_t>(ask.fact)]);
    } else if (!see) {
      const int64_t at = sample.pictures[static_cast<size_t>(ask.picture)].at;
      sample.marks.push_back(
          {.kind = MarkKind::kNeedle, .begin = at, .end = at, .picture = ask.picture});
    }
  }
  if (sample.questions.size() > 1) {
    sample.mode = setup.whole ? QuestionMode::kMultiTurn : QuestionMode::kMultiRequest;
  }
  return sample;
}

Result<Sample> Make(const Setup& setup, int64_t index) {
  const auto depths = static_cast<int64_t>(std::max<size_t>(1, setup.depths.size()));
  const Percent* depth =
      setup.depths.empty() ? nullptr : &setup.depths[static_cast<size_t>(index % depths)];
  const int64_t pictures =
      setup.pictures[static_cast<size_t>(index / depths % std::ssize(setup.pictures))];
  PageMaker maker(setup, index, pictures, depth);
  const Page page = maker.Make();
  Sample sample = Assemble(setup, page, index);
  sample.length = pictures;
  const int64_t tenths = pictures == 1 ? 0 : maker.target() * 10 / (pictures - 1) * 10;
  sample.facts = {{"length", std::to_string(pictures)},
                  {"depth", depth != nullptr ? depth->text : std::to_string(tenths)},
                  {"pictures", std::to_string(pictures)}};
  if (setup.form == Form::kCount) sample.facts.emplace_back("count", page.asks[0].answer);
  sample.id = StrCat(setup.train ? "train-" : "", "p", pictures, "-", index);
  sample.group = sample.id;
  return sample;
}

Status Check(const Setup& setup) {
  if (setup.style == Style::kGlyphs && setup.side % (kGrid * kGrid) != 0) {
    return BadInput(StrCat(kOwner, ".side: ", setup.side,
                           " is no multiple of 64, which pictures of glyphs need; shapes take any "
                           "multiple of 8"));
  }
  if (setup.side % kGrid != 0) {
    return BadInput(StrCat(kOwner, ".side: ", setup.side, " is no multiple of 8"));
  }
  if (setup.needles > 1 && setup.form != Form::kNeedle) {
    return BadInput(StrCat(kOwner, ".needles: ", setup.needles, ", but the form is ",
                           kForms[static_cast<size_t>(setup.form)],
                           "; only pages of the form needle hide several"));
  }
  const int64_t hidden = setup.needles * (1 + setup.distractors);
  const int64_t fewest = *std::min_element(setup.pictures.begin(), setup.pictures.end());
  if (hidden > fewest * kGrid) {
    return BadInput(StrCat(kOwner, ".distractors: ", setup.distractors, " for each of ",
                           setup.needles, " needles are ", hidden, " things with a number, but ",
                           fewest, fewest == 1 ? " picture has" : " pictures have", " room for ",
                           fewest * kGrid));
  }
  if (setup.asked_first && (setup.needles > 1 || setup.whole || setup.form == Form::kSee)) {
    return BadInput(StrCat(kOwner,
                           ".question: first, but there is not one question; that needs "
                           "one needle, no whole text, and another form than see"));
  }
  return {};
}

Result<std::unique_ptr<SampleStream>> Open(const Params& params, const Json& task,
                                           const TaskOptions& options) {
  Setup setup;
  const auto form = std::find(kForms.begin(), kForms.end(), params.Text("form"));
  setup.form = static_cast<Form>(form - kForms.begin());
  setup.style = params.Text("style") == "shapes" ? Style::kShapes : Style::kGlyphs;
  setup.side = static_cast<int32_t>(params.Int("side"));
  setup.mixed = params.Text("backgrounds") == "mixed";
  setup.train = params.Text("split") == "train";
  setup.whole = params.Bool("whole");
  setup.asked_first = params.Text("question") == "first";
  KVG_ASSIGN(setup.pictures, ParseInts(params, "pictures", kOwner, 1, 10'000));
  if (!params.Text("depths").empty()) {
    KVG_ASSIGN(setup.depths, ParsePercents(params, "depths", kOwner));
  }
  setup.cells = params.Int("cells");
  setup.digits = params.Int("digits");
  setup.needles = params.Int("needles");
  setup.distractors = params.Int("distractors");
  if (setup.whole) {
    setup.questions = params.Int("questions") > 0 ? params.Int("questions") : 1 << 20;
  }
  if (setup.form == Form::kFact && setup.whole) {
    setup.questions = std::min<int64_t>(setup.questions, 16);
  }
  setup.new_tokens = NewTokens(task, 8);
  setup.seed = options.seed;
  KVG_TRY(Check(setup));
  const int64_t first = params.Int("first");
  const int64_t each = std::ssize(setup.pictures) * std::max<int64_t>(1, std::ssize(setup.depths));
  const int64_t total =
      params.Int("samples") == 0 ? int64_t{1} << 40 : params.Int("samples") * each;
  return MakeStream(total, options, [setup = std::move(setup), first](int64_t index) {
    return Make(setup, first + index);
  });
}

std::vector<std::string> FormNames() { return {kForms.begin(), kForms.end()}; }

KVG_REGISTER_SOURCE({
    .name = "visual_pages",
    .version = 1,
    .description = "drawn pictures, text between them, and questions about both",
    .generated = true,
    .params =
        {
            ChoiceParam("form", "needle", FormNames(),
                        "needle: one thing has a number; pairs: every thing has one; beside: every "
                        "thing has a neighbour; count; frames: one scene, and a thing that one "
                        "frame shows; fact: the answer stands in the text; see: all is read"),
            ChoiceParam("style", "glyphs", {"glyphs", "shapes"},
                        "glyphs: signs and words of the reference models; shapes: stars and "
                        "circles, questions in plain English"),
            IntParam("side", 64, 64, 2048, "pixels; a multiple of 64, of 8 for shapes"),
            ChoiceParam("backgrounds", "mixed", {"mixed", "ramp"}, "of five kinds, or ramps"),
            TextParam("pictures", "16", "of a page; several take turns"),
            TextParam("depths", "",
                      "percent of the pictures before the one asked for; empty: drawn"),
            IntParam("samples", 100, 0, 1'000'000,
                     "per number of pictures and depth; 0: without end"),
            IntParam("first", 0, 0, int64_t{1} << 40, "index of the first sample"),
            IntParam("cells", 4, 1, 5, "things of a picture, or pairs of them, at most"),
            IntParam("digits", 3, 1, 4, "of a number; 1: answers of one token"),
            IntParam("needles", 1, 1, 16, "hidden things, each asked for; form needle"),
            IntParam("distractors", 0, 0, 16,
                     "things that share the colour or the noun with the one asked for"),
            ChoiceParam("question", "last", {"last", "first"}, "before or behind the pictures"),
            ChoiceParam("split", "eval", {"eval", "train"}, "the two ask for different things"),
            BoolParam("whole", false, "answers stand as they continue the text, many questions"),
            IntParam("questions", 0, 0, 1 << 20, "most of a whole text; 0: all"),
        },
    .open = Open,
    .files = nullptr,
    .check = nullptr,
});

}  // namespace
}  // namespace kvgauge::visual

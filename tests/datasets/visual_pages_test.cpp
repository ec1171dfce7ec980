// SPDX-License-Identifier: Apache-2.0
// Drawn pictures: the same bytes everywhere, and pages whose answers stand where they should.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/json.h"
#include "core/sha256.h"
#include "datasets/sample_stream.h"
#include "generators/visual_draw.h"

namespace kvgauge {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Result<std::vector<Sample>> Pages(const Json& source, int64_t limit, uint64_t seed = 0) {
  Json json = {{"name", "t"},        {"version", 1},         {"group", "t"},
               {"description", "t"}, {"metric", "accuracy"}, {"max_new_tokens", 8},
               {"source", source}};
  json["source"]["name"] = "visual_pages";
  KVG_ASSIGN(const Task task, ParseTask(std::move(json), "t.json"));
  return ReadAll(task, {.data_directory = "", .seed = seed, .limit = limit});
}

std::vector<Sample> MustPages(const Json& source, int64_t limit, uint64_t seed = 0) {
  Result<std::vector<Sample>> pages = Pages(source, limit, seed);
  EXPECT_TRUE(pages.ok()) << pages.error().message;
  return pages.ok() ? *std::move(pages) : std::vector<Sample>();
}

// What a picture says, cell after cell: "red ball 7 3 4".
std::string Said(const Picture& picture) {
  std::string text;
  for (const std::string& word : picture.words) {
    if (!word.empty()) text += word + " ";
  }
  return text;
}

std::string Spaced(const std::string& digits) {
  std::string text;
  for (const char digit : digits) text += std::string(1, digit) + " ";
  return text;
}

TEST(VisualPages, SameBytesOnEveryMachine) {
  std::string all;
  for (const char* form : {"needle", "pairs", "beside", "count", "frames", "fact", "see"}) {
    for (const Sample& page : MustPages({{"form", form}, {"pictures", "2,5"}}, 10, 7)) {
      all += page.hash;
    }
    const Json shapes = {{"form", form}, {"style", "shapes"}, {"side", 336}, {"pictures", "2"}};
    for (const Sample& page : MustPages(shapes, 2, 7)) all += page.hash;
  }
  EXPECT_EQ(Sha256Hex(all), "f77228914c2cfee074280179b7c682119ac054e80e76704ee2c3f419865f4bd5");
}

TEST(VisualPages, FilesAreWhatTheirHashesSay) {
  const Sample page = MustPages({{"pictures", "3"}}, 1)[0];
  for (const Picture& picture : page.pictures) {
    const Result<std::string> bytes = picture.load();
    ASSERT_TRUE(bytes.ok());
    EXPECT_EQ(bytes->size(), 13 + 64 * 64 * 3);
    EXPECT_EQ(bytes->substr(0, 13), "P6\n64 64\n255\n");
    EXPECT_EQ(Sha256Hex(*bytes), picture.hash);
  }
}

TEST(VisualPages, ASamplesPlaceDoesNotChangeIt) {
  const Json source = {{"form", "pairs"}, {"pictures", "2,4"}};
  const std::vector<Sample> many = MustPages(source, 6);
  Json later = source;
  later["first"] = 5;
  EXPECT_EQ(MustPages(later, 1)[0].hash, many[5].hash);
  EXPECT_NE(MustPages(source, 6, 1)[5].hash, many[5].hash);
}

// The picture at the depth says thing and number, in this order, and no other has the number beside
// the thing.
TEST(VisualPages, AWholeTextHasTheSamePictures) {
  for (const char* form : {"needle", "pairs", "beside", "count", "see"}) {
    SCOPED_TRACE(form);
    const std::vector<Sample> asked = MustPages({{"form", form}, {"pictures", "4"}}, 4);
    const std::vector<Sample> whole =
        MustPages({{"form", form}, {"pictures", "4"}, {"whole", true}}, 4);
    ASSERT_EQ(asked.size(), whole.size());
    for (size_t i = 0; i < asked.size(); ++i) {
      ASSERT_EQ(asked[i].pictures.size(), whole[i].pictures.size());
      for (size_t j = 0; j < asked[i].pictures.size(); ++j) {
        EXPECT_EQ(asked[i].pictures[j].hash, whole[i].pictures[j].hash) << i << ", picture " << j;
      }
    }
  }
}

TEST(VisualPages, TheNeedleStandsAtItsDepth) {
  const std::vector<Sample> pages = MustPages(
      {{"form", "needle"}, {"pictures", "11"}, {"depths", "0,50,100"}, {"distractors", 3}}, 30);
  for (size_t i = 0; i < pages.size(); ++i) {
    const Sample& page = pages[i];
    const int64_t want = static_cast<int64_t>(i % 3) * 5;
    ASSERT_EQ(page.pictures.size(), 11u);
    ASSERT_EQ(page.marks[0].kind, MarkKind::kNeedle);
    EXPECT_EQ(page.marks[0].picture, want);
    const Question& question = page.questions[0];
    const std::string cell = question.answer_prefix.substr(1) + " " + Spaced(question.answers[0]);
    for (size_t k = 0; k < page.pictures.size(); ++k) {
      EXPECT_EQ(Said(page.pictures[k]).find(cell) != std::string::npos,
                static_cast<int64_t>(k) == want)
          << page.id << ": " << Said(page.pictures[k]);
    }
  }
}

TEST(VisualPages, EveryFormAsksForWhatIsShown) {
  for (const char* style : {"glyphs", "shapes"}) {
    const Json looks = {{"style", style}, {"pictures", "6"}};
    const auto pages = [&](const char* form) {
      Json source = looks;
      source["form"] = form;
      return MustPages(source, 12);
    };
    const auto shown = [](const Sample& page, const std::string& cell) {
      return std::count_if(page.pictures.begin(), page.pictures.end(), [&](const Picture& picture) {
        return Said(picture).find(cell) != std::string::npos;
      });
    };
    const auto thing = [&](const Sample& page) {
      const std::string& text = page.questions[0].text;
      const size_t begin =
          text.find("the ", text.find(std::string(style) == "glyphs" ? "ha" : "f ")) + 4;
      return text.substr(begin, text.find('?') - begin);
    };
    for (const Sample& page : pages("pairs")) {
      EXPECT_EQ(shown(page, thing(page) + " " + Spaced(page.questions[0].answers[0])), 1);
    }
    for (const Sample& page : pages("frames")) {
      EXPECT_EQ(shown(page, thing(page) + " " + Spaced(page.questions[0].answers[0])), 1);
    }
    for (const Sample& page : pages("fact")) {
      EXPECT_THAT(page.context, HasSubstr("*" + page.questions[0].answers[0] + "."));
    }
  }
  for (const Sample& page : MustPages({{"form", "count"}, {"pictures", "12"}}, 20)) {
    const std::string thing = page.questions[0].answer_prefix.substr(1) + " ";
    const auto times = std::count_if(
        page.pictures.begin(), page.pictures.end(),
        [&](const Picture& picture) { return Said(picture).find(thing) != std::string::npos; });
    EXPECT_EQ(page.questions[0].answers[0], std::to_string(times));
  }
  for (const Sample& page : MustPages({{"form", "beside"}, {"pictures", "5"}}, 12)) {
    const std::string cell =
        page.questions[0].answer_prefix.substr(1) + page.questions[0].answers[0];
    EXPECT_TRUE(std::any_of(
        page.pictures.begin(), page.pictures.end(),
        [&](const Picture& picture) { return Said(picture).find(cell) != std::string::npos; }))
        << cell;
  }
}

TEST(VisualPages, FramesShowOneScene) {
  const Sample page = MustPages({{"form", "frames"}, {"pictures", "9"}, {"depths", "25"}}, 1)[0];
  std::set<std::string> kinds;
  for (const Picture& picture : page.pictures) kinds.insert(Said(picture));
  EXPECT_EQ(kinds.size(), 2u);
  EXPECT_NE(Said(page.pictures[2]), Said(page.pictures[0]));
  EXPECT_NE(page.pictures[0].hash, page.pictures[1].hash) << "noise differs";
}

// What evaluation asks for is never named in training, in any picture or question.
TEST(VisualPages, TrainingHoldsThingsOut) {
  std::set<std::string> held;
  const auto colours = visual::ColourNames(visual::Style::kGlyphs);
  const auto nouns = visual::ThingNames(visual::Style::kGlyphs);
  for (int colour = 0; colour < std::ssize(colours); ++colour) {
    for (int noun = 0; noun < std::ssize(nouns); ++noun) {
      if (!visual::IsHeldOut({colour, noun})) continue;
      held.insert(visual::NameOf(visual::Style::kGlyphs, {colour, noun}) + " ");
    }
  }
  EXPECT_EQ(held.size(), 64u);
  for (const char* form : {"needle", "pairs", "beside", "frames", "count"}) {
    for (const Sample& page :
         MustPages({{"form", form}, {"split", "train"}, {"whole", true}, {"pictures", "8"}}, 5)) {
      for (const Picture& picture : page.pictures) {
        const std::string said = Said(picture);
        for (const std::string& thing : held) EXPECT_THAT(said, Not(HasSubstr(thing)));
      }
    }
    for (const Sample& page : MustPages({{"form", form}, {"pictures", "8"}}, 5)) {
      EXPECT_TRUE(held.contains(page.questions[0].answer_prefix.substr(1) + " ")) << form;
    }
  }
}

TEST(VisualPages, TheQuestionCanComeFirst) {
  const Sample page = MustPages({{"question", "first"}, {"pictures", "2"}}, 1)[0];
  EXPECT_TRUE(page.context.starts_with("Question: which number has the "));
  EXPECT_LT(page.context.find('?'), static_cast<size_t>(page.pictures[0].at));
  EXPECT_EQ(page.questions[0].text, "Answer:");
}

TEST(VisualPages, SeveralNeedlesAreAskedForOneByOne) {
  const Sample page = MustPages({{"needles", 4}, {"pictures", "8"}}, 1)[0];
  EXPECT_EQ(page.questions.size(), 4u);
  EXPECT_EQ(page.mode, QuestionMode::kMultiRequest);
}

TEST(VisualPages, PeopleReadNamesOfPictures) {
  const Sample page = MustPages({{"pictures", "2"}}, 1)[0];
  EXPECT_EQ(WithPictureNames(page), "Story: [picture 1]\n [picture 2]\n");
  EXPECT_EQ(page.context, "Story: \n \n");
}

TEST(VisualPages, RefusesWhatCannotBe) {
  const auto fault = [](const Json& source) {
    const Result<std::vector<Sample>> pages = Pages(source, 1);
    return pages.ok() ? std::string("fine") : pages.error().message;
  };
  EXPECT_THAT(fault({{"side", 72}}), HasSubstr("visual_pages.side: 72 is no multiple of 64"));
  EXPECT_THAT(fault({{"side", 338}, {"style", "shapes"}}), HasSubstr("no multiple of 8"));
  EXPECT_THAT(fault({{"pictures", "0"}}), AllOf(HasSubstr("pictures"), HasSubstr("'0'")));
  EXPECT_THAT(fault({{"form", "pairs"}, {"needles", 2}}), HasSubstr("the form is pairs"));
  EXPECT_THAT(fault({{"question", "first"}, {"needles", 2}}), HasSubstr("question: first"));
  EXPECT_THAT(fault({{"pictures", "1"}, {"distractors", 9}}), HasSubstr("room for 8"));
}

}  // namespace
}  // namespace kvgauge

// SPDX-License-Identifier: Apache-2.0
// Stages that reduce pictures against scripts/goldens/make_see: the cases of kinds "see" and
// "frames" of tests/golden/methods. Kept patches are equal, in order; sums of them are within 1e-5.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "methods/method.h"
#include "runner/vision.h"
#include "runner/weights.h"
#include "support/fixtures.h"
#include "support/visual_rows.h"

namespace kvgauge {
namespace {

const std::string kCases = std::string(KVG_TEST_DATA) + "/golden/methods/";

std::vector<std::string> SeeCases(const std::string& kind = "see") {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(kCases)) {
    if (file.path().extension() != ".json") continue;
    const Result<Json> json = ReadJsonFile(file.path().string());
    if (json.ok() && json->value("kind", "") == kind) names.push_back(file.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// A case: what it says, its tensors, and the stages of its method.
struct SeeCase {
  Json json;
  std::unique_ptr<WeightSource> file;
  Pipeline stages;
};
SeeCase OpenSeeCase(const std::string& name) {
  SeeCase opened;
  opened.json = *ReadJsonFile(kCases + name + ".json");
  Result<std::unique_ptr<WeightSource>> file = OpenSafetensorsFile(kCases + name + ".safetensors");
  EXPECT_TRUE(file.ok()) << file.error().message;
  opened.file = std::move(file).value();
  const Result<Method> method =
      LoadMethod(opened.json["method"].get<std::string>(), KVG_SOURCE_DIR "/configs/methods",
                 opened.json["set"].get<std::vector<std::string>>());
  EXPECT_TRUE(method.ok()) << method.error().message;
  opened.stages = MakePipeline(*method);
  EXPECT_NE(opened.stages.see, nullptr);
  return opened;
}

class SeeGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(SeeGolden, KeepsAndMergesAsTheOracle) {
  const SeeCase one = OpenSeeCase(GetParam());
  const See& see = *one.stages.see;
  const auto read = [&](const char* name) {
    return ReadFixture<float>(*one.file, name, DType::kF32);
  };
  const std::vector<float> features = read("features"), attention = read("attention"),
                           keys = read("keys"), class_key = read("class_key"),
                           class_query = read("class_query"), behind_keys = read("behind_keys"),
                           behind_class_key = read("behind_class_key"),
                           behind_class_query = read("behind_class_query"), rows = read("rows"),
                           expected = read("expected_rows");
  const std::vector<int32_t> places =
      ReadFixture<int32_t>(*one.file, "expected_places", DType::kI32);

  const auto width = std::ssize(class_key);
  TileView tile;
  tile.patches = std::ssize(keys) / width;
  tile.width = width;
  tile.heads = one.json["heads"];
  const SeeNeeds needs = see.sees();
  // What was not asked for is not there.
  if (needs.attention) tile.attention = attention;
  if (needs.keys) tile.keys = {class_query, keys, class_key};
  if (needs.behind) tile.behind = {behind_class_query, behind_keys, behind_class_key};
  if (needs.rows) tile.rows = rows;
  std::vector<float> early;
  if (needs.early >= 0) early = read("early");
  tile.early = early;
  tile.columns = one.json.value("columns", tile.patches);
  tile.hidden = std::ssize(rows) / tile.patches;

  const std::vector<SeenRow> seen = see.Reduce(tile);
  ASSERT_EQ(seen.size(), places.size());
  // What it mixes; the class token's features come first.
  const std::vector<float>& table = needs.mixes_shown ? rows : features;
  const int64_t columns = needs.mixes_shown ? tile.hidden : width;
  const int64_t first = needs.mixes_shown ? 0 : 1;
  double largest = 0;
  for (const float one_value : expected) largest = std::max(largest, std::fabs(double{one_value}));
  for (size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].place, places[i]) << i;
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (const auto& [patch, weight] : seen[i].mix) {
        sum += double{weight} * double{table[static_cast<size_t>((patch + first) * columns + c)]};
      }
      const double want =
          double{expected[i * static_cast<size_t>(columns) + static_cast<size_t>(c)]};
      ASSERT_LE(std::fabs(sum - want), 1e-5 * largest) << "row " << i << ", column " << c;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, SeeGolden, ::testing::ValuesIn(SeeCases()));

// Frames of a video as one visual, and as pictures of their own.
class FramesGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(FramesGolden, JoinsFramesAsTheOracle) {
  const SeeCase one = OpenSeeCase(GetParam());
  const See& see = *one.stages.see;
  const std::vector<float> frames = ReadFixture<float>(*one.file, "frames", DType::kF32),
                           expected = ReadFixture<float>(*one.file, "expected_rows", DType::kF32);
  const std::vector<int32_t> first = ReadFixture<int32_t>(*one.file, "expected_first", DType::kI32);
  ASSERT_TRUE(see.sees().frames);
  const auto count = std::ssize(first);
  const auto numbers = frames.size() / first.size();
  const int32_t rows = one.json["rows"];
  FrameView view;
  for (size_t i = 0; i < first.size(); ++i) {
    view.frames.push_back(std::span(frames).subspan(i * numbers, numbers));
  }
  EXPECT_EQ(see.Join(view), first);

  // What is shown of them.
  const auto shape = [&](VisualBlock::Kind kind, int32_t times) {
    VisualLayout layout;
    layout.rows = int64_t{times} * rows;
    layout.blocks = {{.kind = kind, .rows = layout.rows, .grid = {times, 1, rows}}};
    return layout;
  };
  auto video = std::make_shared<VisualFeatures>();
  video->layout = shape(VisualBlock::Kind::kVideo, static_cast<int32_t>(count));
  const int64_t width = static_cast<int64_t>(numbers) / rows;
  video->rows = VisualRows(HostMemory(), frames, width);
  std::vector<std::shared_ptr<const VisualFeatures>> pictures;
  for (const std::span<const float> frame : view.frames) {
    auto picture = std::make_shared<VisualFeatures>();
    picture->layout = shape(VisualBlock::Kind::kWhole, 1);
    picture->rows = VisualRows(HostMemory(), {frame.begin(), frame.end()}, width);
    pictures.push_back(std::move(picture));
  }
  std::vector<float> as_pictures;
  const auto of_video = *JoinFrames(see, {{video}}, {{-1}}, HostMemory());
  const std::vector<float> shown = NumbersOf(of_video.at(0)->rows);
  const std::vector<int32_t> one_video(pictures.size(), 0);
  const auto left = *JoinFrames(see, pictures, one_video, HostMemory());
  ASSERT_EQ(left.size(), pictures.size());
  for (size_t i = 0; i < left.size(); ++i) {
    EXPECT_EQ(left[i]->gone, first[i] != static_cast<int32_t>(i)) << i;
    const std::vector<float> own = NumbersOf(left[i]->rows);
    as_pictures.insert(as_pictures.end(), own.begin(), own.end());
  }
  EXPECT_EQ(shown, as_pictures);
  ASSERT_EQ(shown.size(), expected.size());
  double largest = 0;
  for (const float number : expected) largest = std::max(largest, std::fabs(double{number}));
  for (size_t i = 0; i < shown.size(); ++i) {
    ASSERT_LE(std::fabs(double{shown[i]} - double{expected[i]}), 1e-6 * largest) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, FramesGolden, ::testing::ValuesIn(SeeCases("frames")));

TEST(SeeStages, RandomRowsAreThoseOfThePicture) {
  const Result<Method> method = LoadMethod("random_see", KVG_SOURCE_DIR "/configs/methods", {});
  ASSERT_TRUE(method.ok()) << method.error().message;
  const Pipeline stages = MakePipeline(*method);
  const auto kept = [&](uint64_t seed) {
    TileView tile;
    tile.patches = 64;
    tile.seed = seed;
    std::vector<int32_t> places;
    for (const SeenRow& row : stages.see->Reduce(tile)) places.push_back(row.place);
    return places;
  };
  const std::vector<int32_t> some = kept(3);
  EXPECT_EQ(some.size(), 16u);
  EXPECT_TRUE(std::is_sorted(some.begin(), some.end()));
  EXPECT_EQ(kept(3), some);
  EXPECT_NE(kept(3), kept(4));
}

// A stage that looks where a tower has nothing is refused before anything runs.
TEST(SeeStages, AreCheckedAgainstTheEyes) {
  const auto check = [](const char* id, const std::optional<EyesShape>& eyes) {
    const Result<Method> method = LoadMethod(id, KVG_SOURCE_DIR "/configs/methods", {});
    EXPECT_TRUE(method.ok());
    const Status status = CheckSee(*method, eyes);
    return status.ok() ? std::string() : status.error().message;
  };
  const EyesShape clip = {.by_row = true, .class_token = true, .behind = true};
  const EyesShape last = {.by_row = true, .class_token = true, .behind = false};
  EyesShape blocks = clip;
  blocks.whole_blocks = {2, 5};
  EXPECT_EQ(check("vscan", blocks), "");
  blocks.whole_blocks = {2, 7};
  EXPECT_NE(check("vscan", blocks).find("looks at block 5 of the tower"), std::string::npos);
  EXPECT_NE(check("vscan", blocks).find("expected one of 2, 7"), std::string::npos);
  const EyesShape siglip = {.by_row = true, .class_token = false, .behind = true};
  for (const char* id :
       {"visionzip", "prumerge", "holov", "aim", "random_see", "streammem", "snapkv"}) {
    EXPECT_EQ(check(id, clip), "") << id;
  }
  EXPECT_EQ(check("streammem", EyesShape{}), "");
  EXPECT_NE(check("streammem", std::nullopt).find("text model"), std::string::npos);
  EXPECT_NE(check("random_see", std::nullopt).find("text model"), std::string::npos);
  EXPECT_EQ(check("random_see", EyesShape{}), "");
  EXPECT_EQ(check("snapkv", std::nullopt), "");
  EXPECT_EQ(check("visionzip", siglip), "");
  EXPECT_NE(check("visionzip", EyesShape{}).find("rows of the tower"), std::string::npos);
  EXPECT_NE(check("prumerge", last).find("no such block"), std::string::npos);
  EXPECT_NE(check("prumerge", siglip).find("no such token"), std::string::npos);
}

}  // namespace
}  // namespace kvgauge

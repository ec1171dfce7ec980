// SPDX-License-Identifier: Apache-2.0
// Stages that reduce pictures inside towers of tiles and of merged rows against
// scripts/goldens/make_see_towers: which rows are left, in which order, and what they hold.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/files.h"
#include "core/json.h"
#include "images/drawn.h"
#include "images/preprocess.h"
#include "methods/method.h"
#include "runner/vision.h"
#include "runner/visual_prompt.h"
#include "src/vision/places.h"
#include "support/fixtures.h"
#include "support/test_ops.h"
#include "support/visual_rows.h"

namespace kvgauge {
namespace {

const std::string kSeen = std::string(KVG_TEST_DATA) + "/golden/see/";

std::vector<std::string> SeenFamilies() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(kSeen)) {
    if (file.path().extension() == ".json") names.push_back(file.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

class SeeTowerGolden : public ::testing::TestWithParam<std::string> {};

TEST_P(SeeTowerGolden, LeavesTheRowsOfTheOracle) {
  const Result<Json> one = ReadJsonFile(kSeen + GetParam() + ".json");
  ASSERT_TRUE(one.ok());
  const Result<std::unique_ptr<WeightSource>> file =
      OpenSafetensorsFile(kSeen + GetParam() + ".safetensors");
  ASSERT_TRUE(file.ok()) << file.error().message;
  const std::vector<float> want = ReadFixture<float>(**file, "rows", DType::kF32);
  const std::vector<int32_t> places = ReadFixture<int32_t>(**file, "places", DType::kI32);

  const std::string checkpoint =
      std::string(KVG_TEST_DATA) + "/golden/vision/" + (*one)["checkpoint"].get<std::string>();
  const Result<Json> pixels_config = ReadJsonFile(checkpoint + "/preprocessor_config.json");
  ASSERT_TRUE(pixels_config.ok());
  const Result<Preprocessor> preprocessor = ReadPreprocessor(*pixels_config, "config");
  ASSERT_TRUE(preprocessor.ok()) << preprocessor.error().message;
  const Json& drawn = (*one)["picture"];
  const Result<PixelValues> pixels = Preprocess(*preprocessor, Drawn(drawn[0], drawn[1], drawn[2]));
  ASSERT_TRUE(pixels.ok()) << pixels.error().message;

  const Result<Method> method =
      LoadMethod((*one)["method"].get<std::string>(), KVG_SOURCE_DIR "/configs/methods",
                 (*one)["set"].get<std::vector<std::string>>());
  ASSERT_TRUE(method.ok()) << method.error().message;
  const Pipeline stages = MakePipeline(*method);
  const std::unique_ptr<Ops> ops = MakeTestOps("cpu", 2);
  const auto tower = VisionTower::Load(checkpoint, {.dtype = DType::kF32, .random_seed = {}}, *ops);
  ASSERT_TRUE(tower.ok()) << tower.error().message;
  ASSERT_TRUE(CheckSee(*method, ShapeOfEyes((*tower)->spec())).ok());
  const auto seen = (*tower)->Encode({&*pixels, 1}, Modality::kImage, nullptr, stages.see.get());
  ASSERT_TRUE(seen.ok()) << seen.error().message;
  EXPECT_EQ((*seen)[0].places, places);
  const std::vector<float> rows = NumbersOf((*seen)[0].rows, 0, *ops->memory);
  ASSERT_EQ(rows.size(), want.size());
  double most = 0, off = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_FALSE(std::isnan(rows[i])) << i;
    most = std::max(most, std::abs(double{want[i]}));
    off = std::max(off, std::abs(double{rows[i]} - double{want[i]}));
  }
  EXPECT_LE(off, 2e-5 * most);
  const VisionSpec& spec = (*tower)->spec();
  EXPECT_LE((*tower)->scratch_bytes(),
            VisionScratchBytes(spec, DType::kF32, RowsOf(spec.tower, *pixels), true));
}

// Where text stands between the rows of a picture, what is left of it fits between that text.
TEST(SeeTowers, RowsStayInTheirLines) {
  const std::string checkpoint = std::string(KVG_TEST_DATA) + "/golden/vision/pixtral";
  const std::unique_ptr<Ops> ops = MakeTestOps("cpu", 1);
  const auto tower = VisionTower::Load(checkpoint, {.dtype = DType::kF32, .random_seed = {}}, *ops);
  const Result<Json> config = ReadJsonFile(checkpoint + "/preprocessor_config.json");
  ASSERT_TRUE(tower.ok() && config.ok());
  const Result<PixelValues> pixels =
      Preprocess(*ReadPreprocessor(*config, "config"), Drawn(50, 40, 14));
  ASSERT_TRUE(pixels.ok());
  const Result<Method> method = LoadMethod("visionzip", KVG_SOURCE_DIR "/configs/methods",
                                           {"see.dominant=9", "see.contextual=4"});
  ASSERT_TRUE(method.ok());
  const Pipeline stages = MakePipeline(*method);
  const auto seen = (*tower)->Encode({&*pixels, 1}, Modality::kImage, nullptr, stages.see.get());
  ASSERT_TRUE(seen.ok());
  const VisualFeatures& picture = (*seen)[0];
  ModelConfig model;
  model.vision_family = "llava";
  model.visual_ids.image = 90;
  const VisualBlock& block = picture.layout.blocks[0];
  std::vector<int32_t> ids;
  for (int32_t line = 0; line < block.grid[1]; ++line) {
    ids.insert(ids.end(), static_cast<size_t>(block.grid[2]), 90);
    ids.push_back(12);
  }
  const ShownVisual shown = {.modality = Modality::kImage, .layout = picture.layout};
  Result<std::vector<VisualSpan>> spans = PlaceVisuals(model, ids, {&shown, 1});
  ASSERT_TRUE(spans.ok()) << spans.error().message;
  const SeenVisual left = {picture.layout.rows, picture.places};
  ShowLess({&left, 1}, ids, *spans);
  EXPECT_EQ(std::ssize(ids), picture.count() + block.grid[1]);
  int64_t row = 0;
  for (const VisualSpan& span : *spans) {
    EXPECT_EQ(span.embedding_row, row);
    for (int64_t i = 0; i < span.count; ++i, ++row) {
      const VisualPlace place = PlaceIn(span, span.first + i);
      EXPECT_EQ(place.row * block.grid[2] + place.column, picture.places[static_cast<size_t>(row)]);
    }
  }
  EXPECT_EQ(row, picture.count());
}

INSTANTIATE_TEST_SUITE_P(Towers, SeeTowerGolden, ::testing::ValuesIn(SeenFamilies()),
                         [](const auto& which) { return which.param; });

}  // namespace
}  // namespace kvgauge

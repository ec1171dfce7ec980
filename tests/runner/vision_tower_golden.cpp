// SPDX-License-Identifier: Apache-2.0
// Eyes against transformers: pictures are drawn, preprocessed and encoded, for every checkpoint
// under tests/golden/vision; each directory's made_by.json says what the oracle was.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/files.h"
#include "core/json.h"
#include "images/drawn.h"
#include "images/preprocess.h"
#include "runner/vision.h"
#include "src/vision/places.h"
#include "support/fixtures.h"
#include "support/test_ops.h"
#include "support/visual_rows.h"

namespace kvgauge {
namespace {

struct VisionCase {
  std::string name;
  Modality modality = Modality::kImage;
  std::vector<std::array<int32_t, 3>> pictures;  // width, height, seed
  std::vector<int64_t> rows;                     // of each picture, or of the video
};

template <class T>
T Must(Result<T> result) {
  if (!result.ok()) {
    ADD_FAILURE() << result.error().message;
    std::abort();
  }
  return std::move(result).value();
}

class VisionGolden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    directory_ = std::string(KVG_TEST_DATA) + "/golden/vision/" + GetParam();
    expected_ = Must(OpenSafetensorsFile(directory_ + "/expected.safetensors"));
    const Json record = Must(ReadJsonFile(directory_ + "/made_by.json"));
    for (const auto& [name, c] : record["cases"].items()) {
      VisionCase& out = cases_.emplace_back();
      out.name = name;
      out.modality = c["video"] ? Modality::kVideo : Modality::kImage;
      out.pictures = c["pictures"].get<std::vector<std::array<int32_t, 3>>>();
      out.rows = c["rows"].get<std::vector<int64_t>>();
    }
    ASSERT_FALSE(cases_.empty());
  }

  Preprocessor ReadPixels() {
    const std::string file = "preprocessor_config.json";
    return Must(ReadPreprocessor(Must(ReadJsonFile(directory_ + "/" + file)), file));
  }
  Preprocessor ReadFramePixels() {
    std::string file = "video_preprocessor_config.json";
    if (!FileExists(directory_ + "/" + file)) file = "preprocessor_config.json";
    return Must(ReadVideoPreprocessor(Must(ReadJsonFile(directory_ + "/" + file)),
                                      "Qwen2VLVideoProcessor", file));
  }

  std::vector<PixelValues> Pixels(const VisionCase& c) {
    std::vector<Image> images;
    for (const auto& [width, height, seed] : c.pictures) {
      images.push_back(Drawn(width, height, static_cast<uint32_t>(seed)));
    }
    std::vector<PixelValues> pixels;
    if (c.modality == Modality::kImage) {
      const Preprocessor preprocessor = ReadPixels();
      for (const Image& image : images) {
        pixels.push_back(Must(Preprocess(preprocessor, image, std::ssize(images))));
      }
      return pixels;
    }
    const Preprocessor frames = ReadFramePixels();
    if (frames.kind == PreprocessKind::kPatches) return {Must(PreprocessVideo(frames, images))};
    // One tile a frame.
    for (const Image& image : images) {
      const PixelValues frame = Must(Preprocess(frames, image));
      if (pixels.empty()) {
        pixels.push_back(frame);
      } else {
        pixels[0].values.insert(pixels[0].values.end(), frame.values.begin(), frame.values.end());
        pixels[0].tiles += 1;
      }
    }
    return pixels;
  }

  std::unique_ptr<VisionTower> Load(DType dtype, Ops& ops) {
    VisionOptions options;
    options.dtype = dtype;
    return Must(VisionTower::Load(directory_, options, ops));
  }

  std::vector<float> Expected(const std::string& name) {
    return ReadFixture<float>(*expected_, name, DType::kF32);
  }

  std::string directory_;
  std::unique_ptr<WeightSource> expected_;
  std::vector<VisionCase> cases_;
};

// Largest difference, as a share of the largest number that is expected.
double Difference(const std::vector<float>& got, const std::vector<float>& want) {
  if (got.size() != want.size()) {
    ADD_FAILURE() << got.size() << " numbers, expected " << want.size();
    return 1;
  }
  double most = 0, largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(want[i])));
    largest = std::max(largest, std::abs(static_cast<double>(got[i]) - want[i]));
    if (std::isnan(got[i])) return 1;
  }
  return most > 0 ? largest / most : largest;
}

constexpr double kFloat = 2e-5, kNarrow = 2e-2;

TEST_P(VisionGolden, RowsAreThoseOfTheReference) {
  const std::unique_ptr<Ops> ops = MakeTestOps("cpu", 2);
  for (const auto& [dtype, bound] : {std::pair{DType::kF32, kFloat}, {DType::kBF16, kNarrow}}) {
    const std::unique_ptr<VisionTower> tower = Load(dtype, *ops);
    int64_t most_rows = 0;  // of a batch
    for (const VisionCase& c : cases_) {
      SCOPED_TRACE(c.name + " " + std::string(NameOf(dtype)));
      const std::vector<PixelValues> pixels = Pixels(c);
      int64_t batch_rows = 0;
      for (const PixelValues& each : pixels) batch_rows += RowsOf(tower->spec().tower, each);
      most_rows = std::max(most_rows, batch_rows);
      const std::vector<VisualFeatures> features = Must(tower->Encode(pixels, c.modality));
      ASSERT_EQ(features.size(), c.rows.size());
      for (size_t i = 0; i < features.size(); ++i) {
        EXPECT_EQ(features[i].layout.rows, c.rows[i]) << i;
        const std::vector<float> want = Expected(c.name + ".rows." + std::to_string(i));
        const std::vector<float> rows = NumbersOf(features[i].rows, 0, *ops->memory);
        EXPECT_LE(Difference(rows, want), bound) << "picture " << i;
        EXPECT_EQ(features[i].rows.on_host(), ops->device == Device::kHost);
      }
      for (size_t layer = 0; layer < tower->spec().deepstack.size(); ++layer) {
        std::vector<float> all;
        for (const VisualFeatures& each : features) {
          const std::vector<float> own = NumbersOf(each.rows, layer + 1, *ops->memory);
          all.insert(all.end(), own.begin(), own.end());
        }
        EXPECT_LE(Difference(all, Expected(c.name + ".deepstack." + std::to_string(layer))), bound)
            << "deepstack " << layer;
      }
    }
    // What a plan expects of the batches is enough, and not much more than that. Towers of tests
    // are so small that what an allocator rounds up counts.
    const int64_t planned = VisionScratchBytes(tower->spec(), dtype, most_rows, false);
    EXPECT_LE(tower->scratch_bytes(), planned);
    EXPECT_GE(5 * tower->scratch_bytes(), 4 * planned);
    tower->DropScratch();
    EXPECT_EQ(tower->scratch_bytes(), 0);
  }
}

TEST_P(VisionGolden, HiddenStatesOfEveryBlockAreThoseOfTheReference) {
  const VisionCase& c = *std::ranges::find(cases_, "one", &VisionCase::name);
  // A device is only one.
  const std::vector<std::string> backends = OnDevice()
                                                ? std::vector<std::string>{"device"}
                                                : std::vector<std::string>{"cpu", "reference"};
  for (const std::string& backend : backends) {
    const std::unique_ptr<Ops> ops = MakeTestOps(backend, 2);
    const std::unique_ptr<VisionTower> tower = Load(DType::kF32, *ops);
    VisionTrace trace;
    Must(tower->Encode(Pixels(c), c.modality, &trace));
    ASSERT_EQ(std::ssize(trace.hidden), tower->spec().tower.run_layers + 1);
    for (size_t i = 0; i < trace.hidden.size(); ++i) {
      EXPECT_LE(Difference(trace.hidden[i], Expected("one.hidden." + std::to_string(i))), kFloat)
          << backend << " block " << i;
    }
  }
}

// Company, threads and batches move no bit.
TEST_P(VisionGolden, APictureIsSeenAloneAsInCompany) {
  const std::unique_ptr<Ops> one = MakeTestOps("cpu", 1), two = MakeTestOps("cpu", 2);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const std::unique_ptr<VisionTower> alone = Load(dtype, *one), together = Load(dtype, *two);
    std::vector<PixelValues> all;
    for (const VisionCase& c : cases_) {
      if (c.modality != Modality::kImage) continue;
      for (PixelValues& pixels : Pixels(c)) all.push_back(std::move(pixels));
    }
    const std::vector<VisualFeatures> batch = Must(together->Encode(all, Modality::kImage));
    for (size_t i = 0; i < all.size(); ++i) {
      const std::vector<VisualFeatures> single =
          Must(alone->Encode({&all[i], 1}, Modality::kImage));
      for (size_t table = 0; table <= alone->spec().deepstack.size(); ++table) {
        EXPECT_EQ(NumbersOf(single[0].rows, table, *one->memory),
                  NumbersOf(batch[i].rows, table, *two->memory))
            << i << " " << table;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Vision, VisionGolden,
                         ::testing::ValuesIn(FixtureDirectories("golden/vision")),
                         [](const auto& which) { return which.param; });

}  // namespace
}  // namespace kvgauge

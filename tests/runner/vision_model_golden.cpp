// SPDX-License-Identifier: Apache-2.0
// Models that see against transformers, from drawn pictures to tokens, for every checkpoint under
// tests/golden/vision whose text part is read; each directory's made_by.json says what the oracle
// was.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/files.h"
#include "core/json.h"
#include "images/drawn.h"
#include "images/preprocess.h"
#include "methods/method.h"
#include "runner/engine.h"
#include "runner/generate.h"
#include "runner/vision.h"
#include "runner/visual_prompt.h"
#include "support/fixtures.h"
#include "support/test_ops.h"

namespace kvgauge {
namespace {

template <class T>
T Need(Result<T> result) {
  if (!result.ok()) {
    ADD_FAILURE() << result.error().message;
    std::abort();
  }
  return std::move(result).value();
}

// Ids from here on are placeholders, which the oracle never chooses.
constexpr int64_t kWords = 90;

class VisionModelGolden : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    directory_ = std::string(KVG_TEST_DATA) + "/golden/vision/" + GetParam();
    expected_ = Need(OpenSafetensorsFile(directory_ + "/expected.safetensors"));
    cases_ = Need(ReadJsonFile(directory_ + "/made_by.json"))["cases"];
    ops_ = MakeTestOps("cpu", 2);
  }

  void LoadAs(DType dtype) {
    ModelOptions options;
    options.dtype = dtype;
    model_ = Need(Model::Load(directory_, options, *ops_));
    tower_ = Need(VisionTower::Load(directory_, {.dtype = dtype, .random_seed = {}}, *ops_));
  }

  Preprocessor ReadPixels() {
    const std::string file = "preprocessor_config.json";
    return Need(ReadPreprocessor(Need(ReadJsonFile(directory_ + "/" + file)), file));
  }
  Preprocessor ReadFramePixels() {
    std::string file = "video_preprocessor_config.json";
    if (!FileExists(directory_ + "/" + file)) file = "preprocessor_config.json";
    return Need(ReadVideoPreprocessor(Need(ReadJsonFile(directory_ + "/" + file)),
                                      "Qwen2VLVideoProcessor", file));
  }

  std::vector<PixelValues> Pixels(const Json& c) {
    std::vector<Image> images;
    for (const Json& picture : c["pictures"]) {
      images.push_back(Drawn(picture[0], picture[1], picture[2]));
    }
    std::vector<PixelValues> pixels;
    if (!c["video"]) {
      const Preprocessor preprocessor = ReadPixels();
      for (const Image& image : images) {
        pixels.push_back(Need(Preprocess(preprocessor, image, std::ssize(images))));
      }
      return pixels;
    }
    const Preprocessor frames = ReadFramePixels();
    if (frames.kind == PreprocessKind::kPatches) return {Need(PreprocessVideo(frames, images))};
    for (const Image& image : images) {
      PixelValues frame = Need(Preprocess(frames, image));
      if (pixels.empty()) {
        pixels.push_back(std::move(frame));
        continue;
      }
      pixels[0].values.insert(pixels[0].values.end(), frame.values.begin(), frame.values.end());
      pixels[0].tiles += 1;
    }
    return pixels;
  }

  // The sample of a case: what the tower makes of its pictures, at the places of its ids.
  EngineSample SampleOf(const Json& c) {
    const Modality modality = c["video"] ? Modality::kVideo : Modality::kImage;
    auto visuals = std::make_shared<SampleVisuals>();
    visuals->hidden_size = model_->config().hidden_size;
    std::vector<ShownVisual> shown;
    for (VisualFeatures& one : Need(tower_->Encode(Pixels(c), modality))) {
      const int64_t count = one.rows.count();
      visuals->Append(std::make_shared<const VisualRows>(std::move(one.rows)), 0, count);
      shown.push_back({.modality = modality, .layout = one.layout});
    }
    EngineSample sample;
    sample.id = "case";
    EngineTurn turn;
    turn.ids = c["ids"].get<std::vector<int32_t>>();
    // The oracle's version puts text behind the sides of a video.
    turn.spans = Need(PlaceVisuals(model_->config(), turn.ids, shown, {.next_by_sides = true}));
    turn.max_new_tokens = std::ssize(c["greedy"]);
    sample.turns = {turn};
    sample.visuals = visuals;
    return sample;
  }

  Prompt PromptOf(const EngineSample& sample) {
    Prompt prompt;
    sample.visuals->ShowIn(prompt);
    const ModelConfig& config = model_->config();
    prompt.Append(sample.turns[0].ids, sample.turns[0].spans,
                  config.rope && !config.rope->sections.empty());
    return prompt;
  }

  std::vector<float> Logits(const Prompt& prompt, int64_t chunk) {
    KvCache cache = model_->NewCache(prompt.size());
    std::vector<float> all;
    const Status status =
        Prefill(*model_, prompt, cache, chunk, true, [&](const Tensor& rows) -> Status {
          all.insert(all.end(), rows.f32(), rows.f32() + rows.Numel());
          return {};
        });
    EXPECT_TRUE(status.ok());
    return all;
  }

  std::string directory_;
  std::unique_ptr<WeightSource> expected_;
  Json cases_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<VisionTower> tower_;
};

// Largest difference as a share of the range of what is expected.
double OfRange(std::span<const float> got, const std::vector<float>& want) {
  if (got.size() != want.size()) return 1;
  const auto [low, high] = std::minmax_element(want.begin(), want.end());
  double largest = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(got[i])) return 1;
    largest = std::max(largest, std::abs(static_cast<double>(got[i]) - want[i]));
  }
  return largest / (static_cast<double>(*high) - *low);
}

TEST_P(VisionModelGolden, LogitsAreThoseOfTheReference) {
  for (const auto& [dtype, bound] : {std::pair{DType::kF32, 1e-4}, {DType::kBF16, 2e-2}}) {
    LoadAs(dtype);
    for (const auto& [name, c] : cases_.items()) {
      SCOPED_TRACE(name + " " + std::string(NameOf(dtype)));
      const EngineSample sample = SampleOf(c);
      const Prompt prompt = PromptOf(sample);
      const std::vector<float> logits = Logits(prompt, 512);
      const std::vector<float> want = ReadFixture<float>(*expected_, name + ".logits", DType::kF32);
      ASSERT_GE(logits.size(), want.size());
      EXPECT_LE(OfRange(std::span(logits).last(want.size()), want), bound);
      // Chunks cut pictures anywhere, and no bit changes.
      if (dtype == DType::kF32) {
        EXPECT_EQ(Logits(prompt, 3), logits);
      }
    }
  }
}

TEST_P(VisionModelGolden, PositionsAreThoseOfTheReference) {
  LoadAs(DType::kF32);
  for (const auto& [name, c] : cases_.items()) {
    SCOPED_TRACE(name);
    const EngineSample sample = SampleOf(c);
    const Prompt prompt = PromptOf(sample);
    if (!c.contains("positions")) {
      EXPECT_EQ(RopePlaces::Of(prompt), nullptr);
      continue;
    }
    for (int64_t axis = 0; axis < 3; ++axis) {
      std::vector<int32_t> got;
      for (const PromptPosition& position : prompt.positions) {
        got.push_back(position.rope_position[static_cast<size_t>(axis)]);
      }
      EXPECT_EQ(got, c["positions"][static_cast<size_t>(axis)].get<std::vector<int32_t>>());
    }
    EXPECT_EQ(prompt.next_rope_position - prompt.size(), c["delta"].get<int64_t>());
  }
}

// Alone, and through the engine with a full cache: the same tokens as the reference chooses.
TEST_P(VisionModelGolden, GreedyTokensAreThoseOfTheReference) {
  LoadAs(DType::kF32);
  const Method full = Need(ParseMethod(
      Json{{"id", "full"}, {"title", "Full cache"}, {"family", "baseline"}, {"version", 1}},
      "full"));
  for (const auto& [name, c] : cases_.items()) {
    SCOPED_TRACE(name);
    const auto want = c["greedy"].get<std::vector<int32_t>>();
    const EngineSample sample = SampleOf(c);
    GenerateOptions options;
    options.max_new_tokens = std::ssize(want);
    options.valid_vocab = kWords;
    EXPECT_EQ(Need(Generate(*model_, PromptOf(sample), options, nullptr)).ids, want);
    Engine engine({{.method = &full, .model = model_.get()}}, {.valid_vocab = kWords});
    const Status status = engine.Run({&sample, 1}, [&](const CellResult& cell) {
      EXPECT_EQ(cell.turns[0].ids, want);
      return cell.status;
    });
    EXPECT_TRUE(status.ok()) << status.error().message;
  }
}

// Methods that keep every entry of a prompt with pictures say what the full cache says, together.
TEST_P(VisionModelGolden, MethodsThatKeepAllAreTheFullCache) {
  LoadAs(DType::kF32);
  const std::string folder = std::string(KVG_SOURCE_DIR) + "/configs/methods";
  std::vector<Method> methods;
  std::vector<std::string> ids = {"full", "h2o", "snapkv"};
  // It turns keys by their slots, which on three axes is another rotation even if all stay.
  if (model_->config().rope->sections.empty()) ids.emplace_back("streaming_llm");
  for (const std::string& id : ids) {
    methods.push_back(Need(LoadMethod(id, folder, {})));
  }
  const Budget all = Need(Budget::Parse("100%"));
  std::vector<Contender> contenders;
  for (const Method& method : methods) {
    contenders.push_back({.method = &method, .budget = all, .model = model_.get()});
  }
  for (const auto& [name, c] : cases_.items()) {
    SCOPED_TRACE(name);
    const EngineSample sample = SampleOf(c);
    EngineOptions options;
    options.valid_vocab = kWords;
    Engine engine(contenders, options);
    const auto greedy = c.at("greedy").get<std::vector<int32_t>>();
    int64_t cells = 0;
    const Status status = engine.Run({&sample, 1}, [&](const CellResult& cell) {
      ++cells;
      EXPECT_EQ(cell.turns[0].ids, greedy);
      return cell.status;
    });
    EXPECT_TRUE(status.ok()) << status.error().message;
    EXPECT_EQ(cells, std::ssize(contenders));
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, VisionModelGolden,
                         ::testing::Values("llava", "llava_layers", "pixtral", "llava_next",
                                           "llava_next_video", "llava_onevision", "qwen2_vl",
                                           "qwen2_5_vl", "qwen3_vl", "internvl", "internvl_rms",
                                           "idefics3", "smolvlm", "gemma3", "gemma3_wide"),
                         [](const auto& param) { return param.param; });

}  // namespace
}  // namespace kvgauge

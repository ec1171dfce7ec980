// SPDX-License-Identifier: Apache-2.0
// Which checkpoints a tower accepts, and what it says of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <map>

#include "core/json.h"
#include "core/strings.h"
#include "images/preprocess.h"
#include "runner/vision.h"
#include "support/test_ops.h"
#include "support/visual_rows.h"

namespace kvgauge {
namespace {

using ::testing::HasSubstr;

std::string TowerDirectory(const std::string& name) {
  return std::string(KVG_TEST_DATA) + "/golden/vision/" + name;
}

// A checkpoint whose tensors have other names, or are others.
class Changed final : public WeightSource {
 public:
  explicit Changed(std::unique_ptr<WeightSource> inner) : inner_(std::move(inner)) {
    for (const std::string& name : inner_->Names()) {
      Result<WeightTensor> tensor = inner_->Get(name);
      if (tensor.ok()) tensors_[name] = std::move(tensor).value();
    }
  }

  void Rename(const std::function<std::string(const std::string&)>& name_of) {
    std::map<std::string, WeightTensor> renamed;
    for (auto& [name, tensor] : tensors_) renamed[name_of(name)] = std::move(tensor);
    tensors_ = std::move(renamed);
  }
  void Remove(const std::string& name) { ASSERT_EQ(tensors_.erase(name), 1u) << name; }
  void Put(const std::string& name, std::vector<float> values) {
    const auto owner = std::make_shared<std::vector<float>>(std::move(values));
    tensors_[name] = {View(*owner, {std::ssize(*owner)}), owner};
  }

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }
  bool Contains(const std::string& name) const override { return tensors_.contains(name); }
  Result<WeightTensor> Get(const std::string& name) const override { return tensors_.at(name); }
  std::string OriginOf(const std::string&) const override { return "changed.safetensors"; }
  std::string Fingerprint() const override { return inner_->Fingerprint(); }

 private:
  std::unique_ptr<WeightSource> inner_;
  std::map<std::string, WeightTensor> tensors_;
};

class VisionTowerTest : public ::testing::Test {
 protected:
  static VisionSpec Spec(const std::string& name) {
    const Result<std::optional<VisionSpec>> spec = ReadVisionConfig(TowerDirectory(name));
    EXPECT_TRUE(spec.ok() && spec->has_value());
    return **spec;
  }
  static Changed Checkpoint(const std::string& name) {
    Result<std::unique_ptr<WeightSource>> source = OpenSafetensors(TowerDirectory(name));
    EXPECT_TRUE(source.ok());
    return Changed(std::move(source).value());
  }
  std::string Refusal(const std::string& name, const WeightSource& source) {
    const auto tower = VisionTower::Load(Spec(name), source, DType::kF32, *ops_);
    return tower.ok() ? "" : tower.error().message;
  }

  const std::unique_ptr<Ops> ops_ = MakeHostOps("cpu", 1);
};

std::string With(const std::string& from, const std::string& to, const std::string& name) {
  return name.starts_with(from) ? to + name.substr(from.size()) : name;
}

TEST_F(VisionTowerTest, EverySpellingIsTheSameTower) {
  PixelValues pixels;
  pixels.tiles = 1;
  pixels.height = pixels.width = 28;
  pixels.values.resize(3 * 28 * 28);
  for (size_t i = 0; i < pixels.values.size(); ++i) {
    pixels.values[i] = static_cast<float>(i % 17) / 8 - 1;
  }
  std::vector<float> first;
  for (const std::string tower : {"vision_tower.vision_model.", "model.vision_tower.vision_model.",
                                  "vision_tower.", "model.vision_tower."}) {
    Changed source = Checkpoint("llava");
    source.Rename([&](const std::string& name) {
      const std::string renamed = With("vision_tower.vision_model.", tower, name);
      return tower.starts_with("model.")
                 ? With("multi_modal_projector.", "model.multi_modal_projector.", renamed)
                 : renamed;
    });
    const auto loaded = VisionTower::Load(Spec("llava"), source, DType::kF32, *ops_);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    const auto features = (*loaded)->Encode({&pixels, 1}, Modality::kImage);
    ASSERT_TRUE(features.ok()) << features.error().message;
    const std::vector<float> rows = NumbersOf((*features)[0].rows);
    if (first.empty()) first = rows;
    EXPECT_EQ(rows, first) << tower;
  }
}

TEST_F(VisionTowerTest, MixedSpellingsAreRefused) {
  Changed source = Checkpoint("llava");
  source.Rename([](const std::string& name) {
    return name.find("layers.1.") == std::string::npos
               ? name
               : With("vision_tower.vision_model.", "vision_tower.", name);
  });
  EXPECT_THAT(Refusal("llava", source), HasSubstr("spelled in two ways"));
}

TEST_F(VisionTowerTest, MissingTensorsAreNamed) {
  Changed source = Checkpoint("qwen2_5_vl");
  source.Remove("visual.blocks.1.mlp.up_proj.bias");
  EXPECT_THAT(Refusal("qwen2_5_vl", source),
              HasSubstr("tensor 'visual.blocks.1.mlp.up_proj.bias' is missing"));
}

TEST_F(VisionTowerTest, WrongShapesAreNamed) {
  Changed source = Checkpoint("llava");
  source.Put("multi_modal_projector.linear_1.bias", std::vector<float>(31));
  EXPECT_THAT(Refusal("llava", source),
              HasSubstr("'multi_modal_projector.linear_1.bias' has shape [31], but the config "
                        "needs [32]"));
}

TEST_F(VisionTowerTest, UnknownTensorsAreNamed) {
  Changed source = Checkpoint("llava");
  source.Put("vision_tower.vision_model.encoder.layers.0.self_attn.q_norm.weight",
             std::vector<float>(24, 1.0f));
  EXPECT_THAT(Refusal("llava", source), HasSubstr("q_norm.weight' is not one that llava has"));
}

TEST_F(VisionTowerTest, WhatNothingReadsMayBeThereOrNot) {
  Changed source = Checkpoint("llava");
  source.Put("vision_tower.vision_model.head.probe", std::vector<float>(24));
  source.Put("vision_tower.vision_model.embeddings.position_ids", std::vector<float>(17));
  EXPECT_EQ(Refusal("llava", source), "");
  // The last block is not run.
  source.Remove("vision_tower.vision_model.encoder.layers.2.mlp.fc1.weight");
  EXPECT_EQ(Refusal("llava", source), "");
}

TEST_F(VisionTowerTest, WeightsAreFinite) {
  Changed source = Checkpoint("llava");
  std::vector<float> bias(32);
  bias[3] = std::numeric_limits<float>::quiet_NaN();
  source.Put("multi_modal_projector.linear_1.bias", bias);
  EXPECT_THAT(Refusal("llava", source), HasSubstr("holds NaN or infinity at element 3"));
}

TEST_F(VisionTowerTest, ATextModelHasNoEyes) {
  const auto tower =
      VisionTower::Load(std::string(KVG_TEST_DATA) + "/golden/models/llama3", {}, *ops_);
  ASSERT_FALSE(tower.ok());
  EXPECT_THAT(tower.error().message, HasSubstr("names no model that sees"));
}

TEST_F(VisionTowerTest, RandomTowersHaveEveryTensor) {
  for (const char* name : {"llava", "llava_onevision", "qwen2_vl", "qwen2_5_vl", "qwen3_vl",
                           "internvl_rms", "smolvlm", "gemma3"}) {
    VisionOptions options;
    options.random_seed = 3;
    const auto tower = VisionTower::Load(TowerDirectory(name), options, *ops_);
    ASSERT_TRUE(tower.ok()) << tower.error().message;
    EXPECT_GT((*tower)->weight_bytes(), 0);
  }
}

TEST_F(VisionTowerTest, PixelsOfAnotherShapeAreRefused) {
  VisionOptions options;
  options.random_seed = 1;
  const auto tower = VisionTower::Load(TowerDirectory("qwen2_vl"), options, *ops_);
  ASSERT_TRUE(tower.ok());
  PixelValues pixels;
  pixels.grid = {1, 4, 4};
  pixels.values.resize(16 * 3 * 2 * 14 * 14);
  const auto features = (*tower)->Encode({&pixels, 1}, Modality::kImage);
  ASSERT_FALSE(features.ok());
  EXPECT_THAT(features.error().message, HasSubstr("the tower reads 4704"));
}

TEST_F(VisionTowerTest, TensorsOfTheEyesAreKnownFromTheirNames) {
  const VisionSpec llava = Spec("llava_next"), qwen = Spec("qwen2_vl");
  EXPECT_TRUE(IsVisionTensor(llava, "model.image_newline"));
  EXPECT_TRUE(IsVisionTensor(llava, "vision_tower.vision_model.head.probe"));
  EXPECT_FALSE(IsVisionTensor(llava, "language_model.model.norm.weight"));
  EXPECT_TRUE(IsVisionTensor(qwen, "visual.merger.mlp.0.weight"));
  EXPECT_FALSE(IsVisionTensor(qwen, "model.layers.0.mlp.up_proj.weight"));
}

}  // namespace
}  // namespace kvgauge

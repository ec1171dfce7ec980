// SPDX-License-Identifier: Apache-2.0
// Parts that the readers of several families that see share. Each reads its keys into `spec` and
// leaves faults in its reader.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "src/config/config_reader.h"
#include "src/vision/family.h"

namespace kvgauge {

// Bounds that no published tower comes near.
inline constexpr int64_t kMostTowerWidth = int64_t{1} << 15;
inline constexpr int64_t kMostTowerFfn = int64_t{1} << 17;
inline constexpr int64_t kMostTowerLayers = int64_t{1} << 10;
inline constexpr int64_t kMostImageSide = int64_t{1} << 14;

// What a tower's configuration class sets where a key is absent.
struct TowerDefaults {
  int64_t width = 768, ffn = 3072, layers = 12, heads = 12;
  int64_t image = 224, patch = 32;
  std::string_view activation = "gelu";
  double norm_eps = 1e-6;
};

// hidden_size, intermediate_size, num_hidden_layers, num_attention_heads, image_size, patch_size,
// hidden_act, layer_norm_eps and num_channels: CLIP's names, which many share.
void ReadTower(ConfigReader& tower, const TowerDefaults& defaults, TowerSpec& spec);
// CLIP or SigLIP, as the tower's model_type says.
void ReadClipOrSiglip(ConfigReader& tower, TowerSpec& spec);
// SigLIP with its last norm, as Idefics3 and Gemma-3 read it.
void ReadSiglipKeys(ConfigReader& tower, const TowerDefaults& defaults, TowerSpec& spec);
// rope_parameters of a tower that turns by rows and columns, where it is there.
void ReadAxialRope(ConfigReader& tower, TowerSpec& spec);
// depth, num_heads, patch_size, temporal_patch_size, spatial_merge_size ... of Qwen's towers.
void ReadQwenTower(ConfigReader& tower, std::string_view width_key, int64_t width,
                   std::string_view activation, VisionSpec& spec);

// One side of a square, or both as [n, n].
int64_t ReadSide(ConfigReader& reader, std::string_view key, int64_t fallback, int64_t most);
Activation ReadVisionActivation(ConfigReader& reader, std::string_view key,
                                std::string_view fallback);
// vision_feature_layer and vision_feature_select_strategy. Precondition: the tower is read.
void ReadFeatures(ConfigReader& top, int64_t layer, std::string_view strategy, VisionSpec& spec);
// The projector of LLaVA and its kin.
void ReadTwoLayers(ConfigReader& top, VisionSpec& spec);
// image_grid_pinpoints.
void ReadCanvases(ConfigReader& top, VisionSpec& spec);
// The last hidden state, and all blocks.
void UseLastLayer(VisionSpec& spec);

// Of CLIP and SigLIP towers, and of LLaVA's projector.
TowerNames ClipNames();
ProjectorNames TwoLayerNames();
// With the prefixes of LLaVA and its kin.
VisionNames LlavaNames(bool newline);
// Of Qwen's towers, without their projectors.
TowerNames QwenNames();

}  // namespace kvgauge

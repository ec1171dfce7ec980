// SPDX-License-Identifier: Apache-2.0
// InternVL 2.5 and 3 in the layout of transformers: InternViT, and four rows side by side.
#include <cmath>

#include "core/strings.h"
#include "src/vision/common.h"

namespace kvgauge {
namespace {

void ReadInternVl(ConfigReader& top, ConfigReader& tower, VisionSpec& spec) {
  TowerSpec& t = spec.tower;
  ReadTower(tower,
            {.width = 1024, .ffn = 4096, .layers = 24, .heads = 16, .image = 448, .patch = 14}, t);
  t.class_token = t.patch_bias = t.layer_scale = true;
  t.qkv_bias = tower.Bool("attention_bias", false);
  t.qk_norm = tower.Bool("use_qk_norm", false);
  const std::string norm = tower.Text("norm_type", "layer_norm");
  if (norm != "layer_norm" && norm != "rms_norm") {
    tower.Fail("norm_type", "layer_norm or rms_norm");
  }
  t.norm = norm == "rms_norm" ? TowerNorm::kRms : TowerNorm::kLayer;
  tower.Neutral("use_absolute_position_embeddings", true);
  tower.Neutral("use_mask_token", false);
  tower.Ignore({"layer_scale_init_value", "initializer_factor", "hidden_dropout_prob",
                "projection_dropout"});
  const bool mean_pooling = tower.Bool("use_mean_pooling", true);

  ReadFeatures(top, -1, "default", spec);
  const bool last = spec.feature_layers.size() == 1 && spec.feature_layers[0] == t.layers;
  if (spec.feature_layers.size() != 1) top.Fail("vision_feature_layer", "one layer");
  if (!mean_pooling && last) {
    tower.Fail("use_mean_pooling", "true: another final norm is not implemented");
  }
  if (!spec.drop_class) {
    top.Fail("vision_feature_select_strategy", "default: the class token is no part of a picture");
  }
  const double ratio = top.Real("downsample_ratio", 0.5, 1.0 / 64, 1.0);
  spec.merge = static_cast<int64_t>(std::lround(1 / ratio));
  if (1.0 / static_cast<double>(spec.merge) != ratio) {
    top.Fail("downsample_ratio", "one over a whole number");
  }
  if (t.grid_rows() % spec.merge != 0) {
    top.Fail("downsample_ratio",
             StrCat("a tile has ", t.grid_rows(), " rows of patches, which it must divide"));
  }
  spec.projector = ProjectorKind::kShuffledTwo;
  spec.projector_activation = ReadVisionActivation(top, "projector_hidden_act", "gelu");
  top.Ignore({"image_seq_length"});
}

const VisionNames& InternVlPartNames(const VisionSpec&) {
  static const VisionNames names = {
      .tower_prefixes = {"vision_tower.", "model.vision_tower."},
      .tower = {.patch = "embeddings.patch_embeddings.projection",
                .class_token = "embeddings.cls_token.",
                .places = "embeddings.position_embeddings.",
                .post_norm = "layernorm",
                .attention_norm = "encoder.layer.#.layernorm_before",
                .mlp_norm = "encoder.layer.#.layernorm_after",
                .qkv = {"encoder.layer.#.attention.q_proj", "encoder.layer.#.attention.k_proj",
                        "encoder.layer.#.attention.v_proj"},
                .q_norm = "encoder.layer.#.attention.q_norm",
                .k_norm = "encoder.layer.#.attention.k_norm",
                .output = "encoder.layer.#.attention.projection_layer",
                .up = {"encoder.layer.#.mlp.fc1"},
                .down = "encoder.layer.#.mlp.fc2",
                .attention_scale = "encoder.layer.#.lambda_1.",
                .mlp_scale = "encoder.layer.#.lambda_2.",
                .leading_one = true},
      .projector_prefixes = {"multi_modal_projector.", "model.multi_modal_projector."},
      .projector = {.norm = "layer_norm", .first = "linear_1", .second = "linear_2"}};
  return names;
}

}  // namespace

KVG_VISION_FAMILY(internvl, {.title = "InternVL 2.5 and 3 (hf)",
                             .read = ReadInternVl,
                             .names = InternVlPartNames})

}  // namespace kvgauge

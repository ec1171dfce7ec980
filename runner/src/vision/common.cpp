// SPDX-License-Identifier: Apache-2.0
#include "src/vision/common.h"

#include <algorithm>

#include "core/json.h"
#include "core/strings.h"
#include "src/config/common.h"

namespace kvgauge {
namespace {

// The index of a list of hidden states that a config names, negative ones from the end.
int64_t HiddenState(ConfigReader& top, std::string_view key, int64_t named, int64_t layers) {
  const int64_t index = named < 0 ? named + layers + 1 : named;
  if (index >= 0 && index <= layers) return index;
  top.Fail(key, StrCat("a hidden state from 0 to ", layers, ", or from -", layers + 1,
                       " to -1 counted from the end"));
  return layers;
}

}  // namespace

int64_t ReadSide(ConfigReader& reader, std::string_view key, int64_t fallback, int64_t most) {
  const std::vector<int64_t> sides = reader.IntOrInts(key, 1, most);
  if (sides.empty()) return fallback;
  if (sides.size() > 2 || sides.front() != sides.back()) {
    reader.Fail(key, "one number, or two equal ones");
  }
  return sides.front();
}

Activation ReadVisionActivation(ConfigReader& reader, std::string_view key,
                                std::string_view fallback) {
  const std::string name = reader.Text(key, fallback);
  if (name == "quick_gelu") return Activation::kGeluQuick;
  if (const std::optional<Activation> known = ActivationFromName(name)) return *known;
  reader.Fail(key, "one of quick_gelu, gelu, gelu_pytorch_tanh, silu, relu");
  return Activation::kGelu;
}

void ReadTower(ConfigReader& tower, const TowerDefaults& defaults, TowerSpec& spec) {
  spec.width = tower.Int("hidden_size", defaults.width, 1, kMostTowerWidth);
  spec.ffn = tower.Int("intermediate_size", defaults.ffn, 1, kMostTowerFfn);
  spec.layers = tower.Int("num_hidden_layers", defaults.layers, 1, kMostTowerLayers);
  spec.run_layers = spec.layers;
  spec.heads = tower.Int("num_attention_heads", defaults.heads, 1, kMostTowerWidth);
  if (spec.width % spec.heads != 0) {
    tower.Fail("num_attention_heads", StrCat("a divisor of hidden_size (", spec.width, ")"));
    spec.heads = 1;
  }
  spec.image_height = spec.image_width =
      ReadSide(tower, "image_size", defaults.image, kMostImageSide);
  spec.patch = ReadSide(tower, "patch_size", defaults.patch, kMostImageSide);
  if (spec.patch > spec.image_height) {
    tower.Fail("patch_size", StrCat("at most image_size (", spec.image_height, ")"));
    spec.patch = 1;
  }
  spec.activation = ReadVisionActivation(tower, "hidden_act", defaults.activation);
  spec.norm_eps = static_cast<float>(tower.Real("layer_norm_eps", defaults.norm_eps, 1e-30, 0.5));
  tower.Neutral("num_channels", int64_t{3});
}

void ReadSiglipKeys(ConfigReader& tower, const TowerDefaults& defaults, TowerSpec& spec) {
  ReadTower(tower, defaults, spec);
  spec.patch_bias = true;
  // What the pooling head would do is not read.
  tower.Ignore({"vision_use_head", "projection_dim", "num_image_tokens", "num_positions"});
}

void ReadClipOrSiglip(ConfigReader& tower, TowerSpec& spec) {
  const std::string kind = tower.Text("model_type", "clip_vision_model");
  if (kind == "clip_vision_model") {
    ReadTower(tower, {.activation = "quick_gelu", .norm_eps = 1e-5}, spec);
    spec.class_token = spec.pre_norm = true;
    tower.Ignore({"projection_dim", "vocab_size", "initializer_factor"});
    return;
  }
  if (kind == "siglip_vision_model") {
    ReadSiglipKeys(tower, {.patch = 16, .activation = "gelu_pytorch_tanh"}, spec);
    return;
  }
  tower.Fail("model_type", "clip_vision_model or siglip_vision_model; of llava also pixtral");
}

void ReadAxialRope(ConfigReader& tower, TowerSpec& spec) {
  const Json* rope = tower.Take("rope_parameters");
  if (rope == nullptr || !rope->is_object()) return;
  ConfigReader reader(*rope, tower.origin(), tower.NameOfKey("rope_parameters") + ".");
  const std::string type = reader.Text("rope_type", "axial");
  if (type != "axial") reader.Fail("rope_type", "axial");
  spec.rotary_base = reader.Real("rope_theta", spec.rotary_base, 1e-3, 1e12);
  reader.Ignore({"type"});
  if (const Status read = reader.Finish(); !read.ok()) tower.Fail(read.error());
}

void ReadQwenTower(ConfigReader& tower, std::string_view width_key, int64_t width,
                   std::string_view activation, VisionSpec& spec) {
  TowerSpec& t = spec.tower;
  t.layers = tower.Int("depth", 32, 1, kMostTowerLayers);
  t.width = tower.Int(width_key, width, 1, kMostTowerWidth);
  t.heads = tower.Int("num_heads", 16, 1, kMostTowerWidth);
  // Rows and columns each turn half of the pairs of a head.
  if (t.width % t.heads != 0 || t.width / t.heads % 4 != 0) {
    tower.Fail("num_heads",
               StrCat("heads whose width is a multiple of 4, of ", width_key, " (", t.width, ")"));
    t.heads = 1;
  }
  t.patch = ReadSide(tower, "patch_size", 14, kMostImageSide);
  t.frames = ReadSide(tower, "temporal_patch_size", 2, 64);
  spec.merge = tower.Int("spatial_merge_size", 2, 1, 64);
  t.activation = ReadVisionActivation(tower, "hidden_act", activation);
  t.norm_eps = 1e-6f;
  t.qkv_fused = true;
  t.rotary = true;
  t.places = PatchPlaces::kNone;
  ReadAxialRope(tower, t);
  tower.Neutral("in_channels", int64_t{3});
  tower.Neutral("in_chans", int64_t{3});
  // Another name for patch_size that nothing reads.
  tower.Ignore({"spatial_patch_size"});
  spec.projector = ProjectorKind::kMerger;
  UseLastLayer(spec);
}

void UseLastLayer(VisionSpec& spec) {
  spec.tower.run_layers = spec.tower.layers;
  spec.feature_layers = {spec.tower.layers};
}

void ReadFeatures(ConfigReader& top, int64_t layer, std::string_view strategy, VisionSpec& spec) {
  std::vector<int64_t> named =
      top.IntOrInts("vision_feature_layer", -kMostTowerLayers, kMostTowerLayers);
  if (named.empty()) named = {layer};
  spec.feature_layers.clear();
  for (const int64_t each : named) {
    spec.feature_layers.push_back(
        HiddenState(top, "vision_feature_layer", each, spec.tower.layers));
  }
  spec.tower.run_layers = std::ranges::max(spec.feature_layers);
  const std::string select = top.Text("vision_feature_select_strategy", strategy);
  if (select != "default" && select != "full") {
    top.Fail("vision_feature_select_strategy", "default or full");
  }
  spec.drop_class = select == "default";
  if (spec.drop_class && !spec.tower.class_token) {
    top.Fail("vision_feature_select_strategy",
             "full: the tower has no class token, and default would drop a patch");
  }
}

void ReadTwoLayers(ConfigReader& top, VisionSpec& spec) {
  spec.projector = ProjectorKind::kTwoLayers;
  spec.projector_activation = ReadVisionActivation(top, "projector_hidden_act", "gelu");
  spec.projector_bias = top.Bool("multimodal_projector_bias", true);
  if (const Json* type = top.Take("multimodal_projector_type"); type != nullptr) {
    if (*type != "mlp") top.Fail("multimodal_projector_type", "mlp");
  }
}

void ReadCanvases(ConfigReader& top, VisionSpec& spec) {
  spec.packing = Packing::kAnyRes;
  const Json* canvases = top.Take("image_grid_pinpoints");
  if (canvases == nullptr) {
    spec.canvases = {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}};
  } else {
    for (const Json& canvas : *canvases) {
      const bool pair = canvas.is_array() && canvas.size() == 2 && canvas[0].is_number_integer() &&
                        canvas[1].is_number_integer();
      const int64_t height = pair ? canvas[0].get<int64_t>() : 0;
      const int64_t width = pair ? canvas[1].get<int64_t>() : 0;
      if (height < 1 || width < 1 || height > kMostImageSide || width > kMostImageSide) {
        top.Fail("image_grid_pinpoints", "a list of pairs [height, width] of pixels");
        return;
      }
      spec.canvases.emplace_back(static_cast<int32_t>(height), static_cast<int32_t>(width));
    }
  }
  if (spec.tower.class_token && !spec.drop_class) {
    top.Fail("vision_feature_select_strategy",
             "default: rows of tiles are put together as a picture, which has no class token");
  }
}

TowerNames ClipNames() {
  return {.patch = "embeddings.patch_embedding",
          .class_token = "embeddings.class_embedding.",
          .places = "embeddings.position_embedding",
          .pre_norm = "pre_layrnorm",
          .post_norm = "post_layernorm",
          .attention_norm = "encoder.layers.#.layer_norm1",
          .mlp_norm = "encoder.layers.#.layer_norm2",
          .qkv = {"encoder.layers.#.self_attn.q_proj", "encoder.layers.#.self_attn.k_proj",
                  "encoder.layers.#.self_attn.v_proj"},
          .output = "encoder.layers.#.self_attn.out_proj",
          .up = {"encoder.layers.#.mlp.fc1"},
          .down = "encoder.layers.#.mlp.fc2"};
}

ProjectorNames TwoLayerNames() { return {.first = "linear_1", .second = "linear_2"}; }

VisionNames LlavaNames(bool newline) {
  VisionNames names = {
      .tower_prefixes = {"vision_tower.vision_model.", "model.vision_tower.vision_model.",
                         "vision_tower.", "model.vision_tower."},
      .tower = ClipNames(),
      .projector_prefixes = {"multi_modal_projector.", "model.multi_modal_projector."},
      .projector = TwoLayerNames()};
  if (newline) names.newline = {"image_newline", "model.image_newline"};
  return names;
}

TowerNames QwenNames() {
  return {.patch = "patch_embed.proj",
          .attention_norm = "blocks.#.norm1",
          .mlp_norm = "blocks.#.norm2",
          .qkv = {"blocks.#.attn.qkv"},
          .output = "blocks.#.attn.proj",
          .up = {"blocks.#.mlp.fc1"},
          .down = "blocks.#.mlp.fc2"};
}

}  // namespace kvgauge

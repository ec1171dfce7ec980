// SPDX-License-Identifier: Apache-2.0
// LLaVA-1.5 and what is saved as such: one tile, a class token that is dropped, two linear layers.
// With Pixtral's tower: patches of a picture of any size, and text behind each of its rows.
#include "core/json.h"
#include "core/strings.h"
#include "src/vision/common.h"

namespace kvgauge {
namespace {

// Rows and columns turn all of a head by frequencies of their own; RMSNorm, no biases.
void ReadPixtral(ConfigReader& tower, VisionSpec& spec) {
  TowerSpec& t = spec.tower;
  ReadTower(tower,
            {.width = 1024, .ffn = 4096, .layers = 24, .heads = 16, .image = 1024, .patch = 16}, t);
  t.image_height = t.image_width = 0;
  const int64_t head = t.width / t.heads;
  if (tower.Int("head_dim", head, 1, kMostTowerWidth) != head) {
    tower.Fail("head_dim", StrCat("hidden_size over num_attention_heads (", head, ")"));
  }
  if (head % 4 != 0) tower.Fail("num_attention_heads", "heads whose width is a multiple of 4");
  t.norm = TowerNorm::kRms;
  t.norm_eps = 1e-5f;  // whatever the config says
  t.pre_norm = t.gated = true;
  t.qkv_bias = t.branch_bias = false;
  t.places = PatchPlaces::kNone;
  t.rotary = t.rotary_between = true;
  t.rotary_base = tower.Real("rope_theta", 10000.0, 1e-3, 1e12);
  ReadAxialRope(tower, t);
  tower.Ignore({"tie_word_embeddings"});
  spec.lines_apart = true;
}

void ReadLlava(ConfigReader& top, ConfigReader& tower, VisionSpec& spec) {
  if (tower.Text("model_type", "clip_vision_model") == "pixtral") {
    ReadPixtral(tower, spec);
  } else {
    ReadClipOrSiglip(tower, spec.tower);
  }
  ReadFeatures(top, -2, "default", spec);
  ReadTwoLayers(top, spec);
  // Counted from the tower, not believed.
  top.Ignore({"image_seq_length"});
}

VisionNames PixtralNames() {
  return {.tower_prefixes = {"vision_tower.", "model.vision_tower."},
          .tower = {.patch = "patch_conv",
                    .pre_norm = "ln_pre",
                    .attention_norm = "transformer.layers.#.attention_norm",
                    .mlp_norm = "transformer.layers.#.ffn_norm",
                    .qkv = {"transformer.layers.#.attention.q_proj",
                            "transformer.layers.#.attention.k_proj",
                            "transformer.layers.#.attention.v_proj"},
                    .output = "transformer.layers.#.attention.o_proj",
                    .up = {"transformer.layers.#.feed_forward.gate_proj",
                           "transformer.layers.#.feed_forward.up_proj"},
                    .down = "transformer.layers.#.feed_forward.down_proj"},
          .projector_prefixes = {"multi_modal_projector.", "model.multi_modal_projector."},
          .projector = TwoLayerNames()};
}

const VisionNames& LlavaPartNames(const VisionSpec& spec) {
  static const VisionNames of_tiles = LlavaNames(false), of_patches = PixtralNames();
  return spec.tower.tiled() ? of_tiles : of_patches;
}

}  // namespace

KVG_VISION_FAMILY(llava,
                  {.title = "LLaVA-1.5, Pixtral", .read = ReadLlava, .names = LlavaPartNames})

}  // namespace kvgauge

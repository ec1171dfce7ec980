// SPDX-License-Identifier: Apache-2.0
// What a config says about its eyes, and how many rows a picture becomes.
#include "runner/vision_spec.h"

#include <gtest/gtest.h>

#include "core/json.h"
#include "images/preprocess.h"

namespace kvgauge {
namespace {

Json Parsed(const std::string& text) {
  Result<Json> json = ParseJson(text, "config.json");
  if (!json.ok()) {
    ADD_FAILURE() << json.error().message;
    return Json();
  }
  return std::move(json).value();
}

// A config with a tower of 28 x 28 pixels and patches of 7.
Json Config(const std::string& family, const std::string& tower, const std::string& top = "{}") {
  Json config = Parsed(top);
  config["model_type"] = family;
  config["text_config"] = Parsed(R"({"model_type": "llama", "hidden_size": 32})");
  config["vision_config"] = Parsed(tower);
  return config;
}
const std::string kClip =
    R"({"model_type": "clip_vision_model", "hidden_size": 24, "intermediate_size": 40,
        "num_hidden_layers": 3, "num_attention_heads": 2, "image_size": 28, "patch_size": 7})";
const std::string kSiglip =
    R"({"model_type": "siglip_vision_model", "hidden_size": 24, "intermediate_size": 40,
        "num_hidden_layers": 2, "num_attention_heads": 2, "image_size": 28, "patch_size": 7})";
const std::string kSquares = R"({"image_grid_pinpoints": [[28, 56], [56, 28], [56, 56]]})";

VisionSpec Read(const Json& config) {
  const Result<std::optional<VisionSpec>> spec = ReadVision(config, "config.json");
  if (!spec.ok() || !spec->has_value()) {
    ADD_FAILURE() << (spec.ok() ? "no eyes" : spec.error().message);
    return {};
  }
  return **spec;
}
std::string Refusal(const Json& config) {
  const Result<std::optional<VisionSpec>> spec = ReadVision(config, "config.json");
  return spec.ok() ? "" : spec.error().message;
}

PixelValues Tiles(int32_t rows, int32_t columns, int32_t height, int32_t width) {
  PixelValues pixels;
  pixels.tiles = rows * columns + 1;
  pixels.height = pixels.width = 28;
  pixels.rows = rows;
  pixels.columns = columns;
  pixels.original_height = height;
  pixels.original_width = width;
  return pixels;
}
PixelValues Patches(int32_t times, int32_t rows, int32_t columns) {
  PixelValues pixels;
  pixels.grid = {times, rows, columns};
  return pixels;
}
VisualLayout LaidOut(const VisionSpec& spec, const PixelValues& pixels,
                     Modality modality = Modality::kImage) {
  const Result<VisualLayout> layout = LayOutVisual(spec, pixels, modality);
  if (!layout.ok()) {
    ADD_FAILURE() << layout.error().message;
    return {};
  }
  return *layout;
}
std::string LayoutRefusal(const VisionSpec& spec, const PixelValues& pixels) {
  const Result<VisualLayout> layout = LayOutVisual(spec, pixels, Modality::kImage);
  return layout.ok() ? "" : layout.error().message;
}

TEST(VisionSpec, ATextModelHasNone) {
  const Result<std::optional<VisionSpec>> spec =
      ReadVision(Parsed(R"({"model_type": "llama"})"), "config.json");
  ASSERT_TRUE(spec.ok());
  EXPECT_FALSE(spec->has_value());
}

TEST(VisionSpec, LlavaRunsNoBlockThatNothingReads) {
  const VisionSpec spec = Read(Config("llava", kClip));
  EXPECT_EQ(spec.tower.layers, 3);
  EXPECT_EQ(spec.tower.run_layers, 2);
  EXPECT_EQ(spec.feature_layers, std::vector<int64_t>{2});
  EXPECT_TRUE(spec.drop_class);
  EXPECT_EQ(spec.hidden_size, 32);
  EXPECT_EQ(LaidOut(spec, Tiles(0, 0, 30, 30)).rows, 16);
}

TEST(VisionSpec, LlavaTakesSeveralLayersAndTheClassToken) {
  const VisionSpec spec = Read(
      Config("llava", kClip,
             R"({"vision_feature_layer": [-3, 0, 3], "vision_feature_select_strategy": "full"})"));
  EXPECT_EQ(spec.feature_layers, (std::vector<int64_t>{1, 0, 3}));
  EXPECT_EQ(spec.tower.run_layers, 3);
  EXPECT_EQ(LaidOut(spec, Tiles(0, 0, 30, 30)).rows, 17);
}

// Counted by transformers: a picture of 40 x 56 pixels on a canvas of 56 x 56.
TEST(VisionSpec, CanvasesLoseTheirPaddingAndGainNewlines) {
  const VisionSpec spec = Read(Config("llava_next", kClip, kSquares));
  const VisualLayout layout = LaidOut(spec, Tiles(2, 2, 40, 56));
  EXPECT_EQ(layout.rows, 70);
  ASSERT_EQ(layout.blocks.size(), 2u);
  EXPECT_EQ(layout.blocks[0].rows, 16);
  EXPECT_EQ(layout.blocks[1].first, 16);
  EXPECT_EQ(layout.blocks[1].grid, (std::array<int32_t, 3>{1, 6, 8}));
  EXPECT_TRUE(layout.blocks[1].newlines);
}

TEST(VisionSpec, OneVisionFramesHaveAFourthOfTheRowsAndOneNewline) {
  const VisionSpec spec = Read(Config("llava_onevision", kSiglip, kSquares));
  EXPECT_EQ(LaidOut(spec, Tiles(2, 2, 40, 56)).rows, 70);
  PixelValues video = Tiles(0, 0, 40, 56);
  video.tiles = 3;
  EXPECT_EQ(LaidOut(spec, video, Modality::kVideo).rows, 13);
  // One of several pictures is not cut.
  EXPECT_EQ(LaidOut(spec, Tiles(0, 0, 40, 56)).rows, 17);
}

TEST(VisionSpec, OneVisionShrinksLargeCanvases) {
  Json config = Config("llava_onevision", kSiglip, kSquares);
  config["vision_aspect_ratio"] = "anyres_max_1";
  // 8 x 8 rows are twice as many a side as one tile has: they become 4 x 4.
  const VisualLayout layout = LaidOut(Read(config), Tiles(2, 2, 56, 56));
  EXPECT_EQ(layout.blocks[1].grid, (std::array<int32_t, 3>{1, 4, 4}));
}

// As transformers counts it, too.
TEST(VisionSpec, APictureMayBeTooThinForItsCanvas) {
  const VisionSpec spec = Read(Config("llava_onevision", kSiglip, kSquares));
  const VisualLayout layout = LaidOut(spec, Tiles(1, 3, 9, 200));
  EXPECT_EQ(layout.rows, 16);
  EXPECT_EQ(layout.blocks.size(), 1u);
}

TEST(VisionSpec, PatchesMergeInSquares) {
  const VisionSpec spec =
      Read(Config("qwen2_vl", R"({"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4,
                      "mlp_ratio": 2, "patch_size": 7})"));
  EXPECT_EQ(spec.tower.ffn, 64);
  EXPECT_EQ(LaidOut(spec, Patches(1, 4, 6)).rows, 6);
  EXPECT_EQ(LaidOut(spec, Patches(8, 4, 4), Modality::kVideo).rows, 32);
  EXPECT_NE(LayoutRefusal(spec, Patches(1, 5, 6)).find("no multiples"), std::string::npos);
}

TEST(VisionSpec, TilesAreNumberedAndTheWholePictureComesLast) {
  Json config = Config("smolvlm", kSiglip);
  config["vision_config"]["model_type"] = "smolvlm_vision";
  const VisualLayout layout = LaidOut(Read(config), Tiles(1, 2, 28, 56));
  EXPECT_EQ(layout.rows, 12);
  ASSERT_EQ(layout.blocks.size(), 3u);
  EXPECT_EQ(layout.blocks[1].tile_column, 1);
  EXPECT_EQ(layout.blocks[2].kind, VisualBlock::Kind::kWhole);
}

// 500 sizes, counted by the processors of transformers with the settings of published models.
TEST(VisionSpec, CountsAreThoseOfTransformers) {
  const Result<Json> golden =
      ReadJsonFile(std::string(KVG_TEST_DATA) + "/golden/vision/counts.json");
  ASSERT_TRUE(golden.ok()) << golden.error().message;
  Json clip = Parsed(kClip), siglip = Parsed(kSiglip);
  clip["image_size"] = 336;
  siglip["image_size"] = 384;
  clip["patch_size"] = siglip["patch_size"] = 14;
  Json next_config = Config("llava_next", clip.dump()),
       one = Config("llava_onevision", siglip.dump());
  next_config["image_grid_pinpoints"] = (*golden)["next_canvases"];
  one["image_grid_pinpoints"] = (*golden)["one_canvases"];
  const auto reader = [](Json config, const char* kind) {
    config["image_processor_type"] = kind;
    const Result<Preprocessor> read = ReadPreprocessor(config, kind);
    EXPECT_TRUE(read.ok()) << read.error().message;
    return *read;
  };
  struct Column {
    VisionSpec spec;
    Preprocessor preprocessor;
  };
  const Column columns[] = {
      {Read(next_config), reader({{"image_grid_pinpoints", (*golden)["next_canvases"]},
                                  {"size", {{"shortest_edge", 336}}},
                                  {"crop_size", {{"height", 336}, {"width", 336}}}},
                                 "LlavaNextImageProcessor")},
      {Read(one), reader({{"image_grid_pinpoints", (*golden)["one_canvases"]},
                          {"size", {{"height", 384}, {"width", 384}}}},
                         "LlavaOnevisionImageProcessor")},
      {Read(Config("qwen2_vl", R"({"patch_size": 14})")),
       reader({{"min_pixels", 3136}, {"max_pixels", 1003520}}, "Qwen2VLImageProcessor")},
      {Read(Config("internvl", R"({"image_size": [448, 448], "patch_size": [14, 14]})")),
       reader({{"size", {{"height", 448}, {"width", 448}}},
               {"crop_to_patches", true},
               {"min_patches", 1},
               {"max_patches", 12}},
              "GotOcr2ImageProcessor")}};
  ASSERT_EQ((*golden)["rows"].size(), 500u);
  for (const Json& row : (*golden)["rows"]) {
    for (size_t i = 0; i < 4; ++i) {
      SCOPED_TRACE(row.dump() + " " + columns[i].spec.family);
      const Result<PixelValues> pixels = ShapeOfPixels(columns[i].preprocessor, row[0], row[1]);
      if (row[2 + i].is_null()) {
        EXPECT_FALSE(pixels.ok());
        continue;
      }
      ASSERT_TRUE(pixels.ok()) << pixels.error().message;
      EXPECT_EQ(LaidOut(columns[i].spec, *pixels).rows, row[2 + i].get<int64_t>());
    }
  }
}

// What config.json of published checkpoints says of their eyes, and rows of one of their tiles, or
// of a picture of 448 x 448 pixels.
TEST(VisionSpec, PublishedConfigsAreRead) {
  struct Published {
    const char* config;
    int64_t run_layers, hidden_size, rows;
  };
  const Published all[] = {
      {R"({"model_type": "llava", "ignore_index": -100, "image_token_index": 32000,
           "projector_hidden_act": "gelu", "vision_feature_layer": -2,
           "vision_feature_select_strategy": "default", "torch_dtype": "float16",
           "text_config": {"_name_or_path": "lmsys/vicuna-7b-v1.5", "model_type": "llama"},
           "vision_config": {"hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
             "model_type": "clip_vision_model", "num_attention_heads": 16,
             "num_hidden_layers": 24, "patch_size": 14, "projection_dim": 768,
             "vocab_size": 32000}})",
       23, 4096, 576},
      {R"({"model_type": "qwen2_vl", "hidden_size": 1536, "num_hidden_layers": 28,
           "torch_dtype": "bfloat16",
           "vision_config": {"depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16,
             "in_chans": 3, "hidden_size": 1536, "patch_size": 14, "spatial_merge_size": 2,
             "spatial_patch_size": 14, "temporal_patch_size": 2}})",
       32, 1536, 256},
      {R"({"model_type": "qwen2_5_vl", "hidden_size": 2048, "torch_dtype": "bfloat16",
           "vision_config": {"depth": 32, "hidden_act": "silu", "hidden_size": 1280,
             "intermediate_size": 3420, "num_heads": 16, "in_chans": 3, "out_hidden_size": 2048,
             "patch_size": 14, "spatial_merge_size": 2, "spatial_patch_size": 14,
             "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31],
             "tokens_per_second": 2, "temporal_patch_size": 2}})",
       32, 2048, 256},
      {R"({"model_type": "internvl", "downsample_ratio": 0.5, "image_seq_length": 256,
           "projector_hidden_act": "gelu", "vision_feature_layer": -1,
           "vision_feature_select_strategy": "default", "torch_dtype": "bfloat16",
           "text_config": {"model_type": "qwen2", "hidden_size": 896},
           "vision_config": {"architectures": ["InternVisionModel"], "attention_bias": true,
             "attention_dropout": 0.0, "dropout": 0.0, "hidden_act": "gelu",
             "hidden_dropout_prob": 0.0, "hidden_size": 1024, "image_size": [448, 448],
             "initializer_factor": 0.1, "initializer_range": 1e-10, "intermediate_size": 4096,
             "layer_norm_eps": 1e-06, "layer_scale_init_value": 0.1,
             "model_type": "internvl_vision", "norm_type": "layer_norm",
             "num_attention_heads": 16, "num_channels": 3, "num_hidden_layers": 24,
             "patch_size": [14, 14], "projection_dropout": 0.0, "torch_dtype": "bfloat16",
             "use_absolute_position_embeddings": true, "use_mask_token": false,
             "use_mean_pooling": true, "use_qk_norm": false}})",
       24, 896, 256},
      {R"({"model_type": "idefics3", "scale_factor": 4, "image_token_id": 49190,
           "text_config": {"model_type": "llama", "hidden_size": 576},
           "vision_config": {"model_type": "idefics3", "hidden_size": 768, "image_size": 512,
             "max_image_size": {"longest_edge": 512}, "num_attention_heads": 12,
             "patch_size": 16, "size": {"longest_edge": 2048}, "tie_word_embeddings": false,
             "use_base_siglip": false}})",
       12, 576, 64},
      {R"({"model_type": "idefics3", "scale_factor": 2, "image_token_id": 128257,
           "text_config": {"model_type": "llama", "hidden_size": 4096},
           "vision_config": {"model_type": "idefics3", "hidden_size": 1152, "image_size": 364,
             "intermediate_size": 4304, "num_hidden_layers": 27, "patch_size": 14}})",
       27, 4096, 169},
      {R"({"model_type": "gemma3", "boi_token_index": 255999, "mm_tokens_per_image": 256,
           "text_config": {"model_type": "gemma3_text", "hidden_size": 2560},
           "vision_config": {"hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
             "model_type": "siglip_vision_model", "num_attention_heads": 16,
             "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": false}})",
       27, 2560, 256},
      {R"({"model_type": "llava", "ignore_index": -100, "image_seq_length": 1,
           "image_token_index": 10, "projector_hidden_act": "gelu", "vision_feature_layer": -1,
           "vision_feature_select_strategy": "full",
           "text_config": {"hidden_size": 5120, "head_dim": 128, "intermediate_size": 14336,
             "is_composition": true, "max_position_embeddings": 1024000, "model_type": "mistral",
             "num_hidden_layers": 40, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
             "rope_theta": 1000000000.0, "sliding_window": null, "vocab_size": 131072},
           "vision_config": {"head_dim": 64, "hidden_act": "silu", "image_size": 1024,
             "is_composition": true, "model_type": "pixtral", "patch_size": 16,
             "rope_theta": 10000.0, "tie_word_embeddings": false}})",
       24, 5120, 1024}};
  for (const Published& published : all) {
    const VisionSpec spec = Read(Parsed(published.config));
    SCOPED_TRACE(spec.family);
    EXPECT_EQ(spec.tower.run_layers, published.run_layers);
    EXPECT_EQ(spec.hidden_size, published.hidden_size);
    PixelValues pixels = Tiles(0, 0, 448, 448);
    pixels.height = static_cast<int32_t>(spec.tower.image_height);
    pixels.width = static_cast<int32_t>(spec.tower.image_width);
    if (!spec.tower.tiled()) pixels = Patches(1, 32, 32);
    EXPECT_EQ(LaidOut(spec, pixels).rows, published.rows);
  }
}

TEST(VisionSpec, PixelsOfAnotherModelAreRefused) {
  const VisionSpec spec = Read(Config("llava", kClip));
  EXPECT_NE(LayoutRefusal(spec, Patches(1, 4, 4)).find("belongs to another model"),
            std::string::npos);
  PixelValues large = Tiles(0, 0, 56, 56);
  large.height = large.width = 56;
  EXPECT_NE(LayoutRefusal(spec, large).find("56 x 56 pixels, but key 'vision_config.image_size'"),
            std::string::npos);
  PixelValues torn = Tiles(1, 2, 28, 56);
  torn.tiles = 2;
  EXPECT_NE(LayoutRefusal(spec, torn).find("2 tiles are not 1 x 2"), std::string::npos);
}

TEST(VisionSpec, FaultsNameTheKey) {
  const auto with = [](Json config, const std::string& key, const Json& value) {
    config["vision_config"][key] = value;
    return Refusal(config);
  };
  const auto with_top = [](Json config, const std::string& key, const Json& value) {
    config[key] = value;
    return Refusal(config);
  };
  const Json llava = Config("llava", kClip);
  EXPECT_NE(with(llava, "model_type", "owlvit").find("'vision_config.model_type'"),
            std::string::npos);
  EXPECT_NE(with(llava, "num_attention_heads", 5).find("'vision_config.num_attention_heads'"),
            std::string::npos);
  EXPECT_NE(with(llava, "patch_size", 29).find("'vision_config.patch_size'"), std::string::npos);
  EXPECT_NE(with(llava, "use_rope", true).find("'vision_config.use_rope'"), std::string::npos);
  EXPECT_NE(with(llava, "hidden_act", "mish").find("'vision_config.hidden_act'"),
            std::string::npos);
  EXPECT_NE(with_top(llava, "vision_feature_layer", 4).find("'vision_feature_layer'"),
            std::string::npos);
  EXPECT_NE(with_top(llava, "vision_feature_select_strategy", "some")
                .find("'vision_feature_select_strategy'"),
            std::string::npos);
  EXPECT_NE(with_top(llava, "vision_config", nullptr).find("'vision_config'"), std::string::npos);
  EXPECT_NE(with_top(Config("llava_next", kClip), "image_grid_pinpoints", Parsed("[[28]]"))
                .find("'image_grid_pinpoints'"),
            std::string::npos);
  EXPECT_NE(with_top(Config("llava_onevision", kSiglip), "vision_aspect_ratio", "square")
                .find("'vision_aspect_ratio'"),
            std::string::npos);
}

TEST(VisionSpec, EveryFamilyIsListedOnce) {
  std::vector<std::string> names;
  for (const VisionFamilyInfo& family : VisionFamilies()) names.emplace_back(family.model_type);
  EXPECT_EQ(names, (std::vector<std::string>{"gemma3", "idefics3", "internvl", "llava",
                                             "llava_next", "llava_next_video", "llava_onevision",
                                             "qwen2_5_vl", "qwen2_vl", "qwen3_vl", "smolvlm"}));
}

}  // namespace
}  // namespace kvgauge

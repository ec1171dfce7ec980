// SPDX-License-Identifier: Apache-2.0
#include "runner/vision_spec.h"

#include <algorithm>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "src/config/common.h"
#include "src/vision/common.h"

namespace kvgauge {

// The build writes vision_families.inc: KVG_VISION_FAMILY(name) for each file of
// src/vision/families.
#pragma push_macro("KVG_VISION_FAMILY")
#undef KVG_VISION_FAMILY
#define KVG_VISION_FAMILY(model_type) VisionFamily VisionFamilyOf_##model_type();
#include "vision_families.inc"
#undef KVG_VISION_FAMILY

namespace {

constexpr int64_t kMostVisionConfigBytes = int64_t{16} << 20;

struct VisionRow {
  std::string_view model_type;
  VisionFamily family;
};

const std::vector<VisionRow>& VisionRows() {
  static const std::vector<VisionRow> rows = {
#define KVG_VISION_FAMILY(model_type) {#model_type, VisionFamilyOf_##model_type()},
#include "vision_families.inc"
#undef KVG_VISION_FAMILY
  };
  return rows;
}
#pragma pop_macro("KVG_VISION_FAMILY")

// The width of the text model where its config leaves it to its class.
int64_t TextWidth(const Json& config, ConfigReader& top) {
  const auto text = config.find("text_config");
  if (text == config.end() || !text->is_object()) return 4096;
  ConfigReader reader(*text, top.origin(), "text_config.");
  const std::string kind = reader.Text("model_type", "");
  const int64_t width =
      reader.Int("hidden_size", kind == "gemma3_text" ? 2304 : 4096, 1, kMostHidden);
  if (!reader.ok()) top.Fail(reader.fault());
  return width;
}

// "dtype" or "torch_dtype" of the whole, or of the text model where only that has it.
DType StoredType(const Json& config) {
  const auto named = [](const Json& object) -> std::optional<DType> {
    for (const char* key : {"dtype", "torch_dtype"}) {
      const auto found = object.find(key);
      if (found == object.end() || !found->is_string()) continue;
      std::string name = *found;
      if (name.starts_with("torch.")) name = name.substr(6);
      if (name == "bfloat16") return DType::kBF16;
      if (name == "float16") return DType::kF16;
      if (name == "float32") return DType::kF32;
    }
    return std::nullopt;
  };
  if (const std::optional<DType> whole = named(config)) return *whole;
  const auto text = config.find("text_config");
  if (text == config.end() || !text->is_object()) return DType::kF32;
  return named(*text).value_or(DType::kF32);
}

}  // namespace

const VisionFamily* FindVisionFamily(std::string_view model_type) {
  for (const VisionRow& row : VisionRows()) {
    if (row.model_type == model_type) return &row.family;
  }
  return nullptr;
}

std::vector<VisionFamilyInfo> VisionFamilies() {
  std::vector<VisionFamilyInfo> families;
  for (const VisionRow& row : VisionRows()) families.push_back({row.model_type, row.family.title});
  std::ranges::sort(families, {}, &VisionFamilyInfo::model_type);
  return families;
}

std::vector<std::string_view> VisionConfigKeys() {
  return {"vision_config",
          "vision_feature_layer",
          "vision_feature_select_strategy",
          "projector_hidden_act",
          "multimodal_projector_bias",
          "multimodal_projector_type",
          "image_seq_length",
          "video_seq_length",
          "image_grid_pinpoints",
          "use_image_newline_parameter",
          "spatial_pool_mode",
          "spatial_pool_stride",
          "spatial_pool_out_channels",
          "vision_aspect_ratio",
          "downsample_ratio",
          "scale_factor",
          "mm_tokens_per_image"};
}

Result<std::optional<VisionSpec>> ReadVision(const Json& config, const std::string& origin) {
  if (!config.is_object()) return BadInput(StrCat(origin, ": expected a JSON object"));
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) return std::optional<VisionSpec>();
  const std::string name = type->get<std::string>();
  const VisionFamily* family = FindVisionFamily(name);
  if (family == nullptr) return std::optional<VisionSpec>();

  const auto vision = config.find("vision_config");
  if (vision == config.end() || !vision->is_object()) {
    return BadInput(
        StrCat(origin, ": key 'vision_config' is missing or no object; ", name, " needs it"));
  }
  VisionSpec spec;
  spec.family = name;
  spec.path = origin;
  spec.stored_dtype = StoredType(config);
  ConfigReader top(config, origin);
  ConfigReader tower(*vision, origin, "vision_config.");
  IgnoreGeneralKeys(tower);
  tower.Ignore({"dtype", "torch_dtype", "architectures"});
  spec.hidden_size = TextWidth(config, top);
  family->read(top, tower, spec);
  if (!tower.ok()) return tower.fault();
  if (!top.ok()) return top.fault();
  KVG_TRY(tower.Finish());
  return std::optional<VisionSpec>(std::move(spec));
}

Result<std::optional<VisionSpec>> ReadVisionConfig(const std::string& path) {
  const std::string file = DirectoryExists(path) ? path + "/config.json" : path;
  KVG_ASSIGN(const std::string text, ReadFile(file, kMostVisionConfigBytes));
  KVG_ASSIGN(const Json json, ParseJson(text, file));
  return ReadVision(json, file);
}

}  // namespace kvgauge

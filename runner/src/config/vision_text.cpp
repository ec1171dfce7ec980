// SPDX-License-Identifier: Apache-2.0
#include "src/config/vision_text.h"

#include <algorithm>
#include <set>

#include "core/short_json.h"
#include "core/strings.h"
#include "src/config/common.h"
#include "src/config/config_reader.h"

namespace kvgauge {
namespace {

// What a class of transformers sets where its text_config leaves a key out.
constexpr std::string_view kLlamaDefaults = R"({"vocab_size": 32000, "hidden_size": 4096,
  "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32})";
constexpr std::string_view kMistralDefaults = R"({"vocab_size": 32000, "hidden_size": 4096,
  "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32})";
constexpr std::string_view kMinistral3Defaults = R"({"vocab_size": 131072, "hidden_size": 4096,
  "intermediate_size": 14336, "num_hidden_layers": 34, "num_attention_heads": 32})";
constexpr std::string_view kQwen2Defaults = R"({"vocab_size": 151936, "hidden_size": 4096,
  "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32})";
constexpr std::string_view kQwen3Defaults = kQwen2Defaults;
constexpr std::string_view kQwen2VlDefaults = R"({"vocab_size": 152064, "hidden_size": 8192,
  "intermediate_size": 29568, "num_hidden_layers": 80, "num_attention_heads": 64,
  "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "max_window_layers": 80,
  "rope_theta": 1000000.0, "bos_token_id": 151643, "eos_token_id": 151645})";
constexpr std::string_view kQwen3VlDefaults = R"({"vocab_size": 151936, "hidden_size": 4096,
  "intermediate_size": 22016, "num_hidden_layers": 32, "num_attention_heads": 32,
  "num_key_value_heads": 32, "max_position_embeddings": 128000, "rope_theta": 500000.0})";
constexpr std::string_view kQwen35Defaults = R"({"vocab_size": 248320, "hidden_size": 4096,
  "intermediate_size": 12288, "num_hidden_layers": 32, "num_attention_heads": 16})";
constexpr std::string_view kQwen35MoeDefaults = R"({"vocab_size": 248320, "hidden_size": 2048,
  "num_hidden_layers": 40, "num_attention_heads": 16})";
constexpr std::string_view kLlama4Defaults = R"({"vocab_size": 202048, "hidden_size": 5120,
  "intermediate_size": 8192, "num_hidden_layers": 48, "num_attention_heads": 40})";
constexpr std::string_view kGemma3Defaults = R"({"vocab_size": 262208, "hidden_size": 2304,
  "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8})";

constexpr std::string_view kGemma3nDefaults = R"({"vocab_size": 262400, "hidden_size": 2048,
  "num_hidden_layers": 35, "num_attention_heads": 8})";

constexpr std::string_view kGemma4Defaults = R"({"vocab_size": 262144, "hidden_size": 2304,
  "intermediate_size": 9216, "num_hidden_layers": 30, "num_attention_heads": 8})";

// A text model_type as it may stand in a text_config.
struct TextClass {
  std::string_view model_type;
  std::string_view family;  // whose reader takes it
  std::string_view defaults;
  // mrope_section where the file has none; empty: it must have one, or the family has none.
  std::string_view sections = "";
  bool three_axes = false;
};
constexpr TextClass kTextClasses[] = {
    {"gemma3_text", "gemma3_text", kGemma3Defaults},
    {"gemma3n_text", "gemma3n_text", kGemma3nDefaults},
    {"gemma4_text", "gemma4_text", kGemma4Defaults},
    {"llama", "llama", kLlamaDefaults},
    {"llama4_text", "llama4_text", kLlama4Defaults},
    {"ministral3", "ministral3", kMinistral3Defaults},
    {"mistral", "mistral", kMistralDefaults},
    {"qwen2", "qwen2", kQwen2Defaults},
    {"qwen3", "qwen3", kQwen3Defaults},
    {"qwen3_5_text", "qwen3_5_text", kQwen35Defaults, "[11, 11, 10]", true},
    {"qwen3_5_moe_text", "qwen3_5_moe_text", kQwen35MoeDefaults, "[11, 11, 10]", true},
    {"qwen2_vl_text", "qwen2", kQwen2VlDefaults, "", true},
    {"qwen2_5_vl_text", "qwen2", kQwen2VlDefaults, "", true},
    {"qwen3_vl_text", "qwen3", kQwen3VlDefaults, "[24, 20, 20]", true},
};

struct TextPartFamily {
  std::string_view model_type;
  std::string_view text;  // the text class where text_config names none
  // Keys of the ids of placeholders, and the class's values.
  std::vector<std::string_view> image_keys;
  int64_t image = -1;
  std::vector<std::string_view> video_keys = {};
  int64_t video = -1;
  bool flat = false;  // old files have the keys of the text part at the top
  bool tied = false;
};

const std::vector<TextPartFamily>& TextPartFamilies() {
  static const std::vector<TextPartFamily> families = {
      {.model_type = "gemma3",
       .text = "gemma3_text",
       .image_keys = {"image_token_index", "image_token_id"},
       .image = 262144,
       .tied = true},
      {.model_type = "gemma3n",
       .text = "gemma3n_text",
       .image_keys = {"image_token_id"},
       .image = 262145,
       .tied = true},
      {.model_type = "gemma4",
       .text = "gemma4_text",
       .image_keys = {"image_token_id"},
       .image = 258880,
       .video_keys = {"video_token_id"},
       .video = 258884,
       .tied = true},
      {"idefics3", "llama", {"image_token_id"}, 128257},
      {"internvl", "qwen2", {"image_token_id"}, 151667, {}, -1, false, true},
      {"llama4", "llama4_text", {"image_token_index", "image_token_id"}, 200092},
      {"llava", "llama", {"image_token_index", "image_token_id"}, 32000},
      {"llava_next", "llama", {"image_token_index", "image_token_id"}, 32000},
      {"llava_next_video",
       "llama",
       {"image_token_index", "image_token_id"},
       32001,
       {"video_token_index", "video_token_id"},
       32000},
      {"llava_onevision",
       "qwen2",
       {"image_token_index", "image_token_id"},
       151646,
       {"video_token_index", "video_token_id"},
       151647},
      {"mistral3", "mistral", {"image_token_index", "image_token_id"}, 10},
      {"qwen2_5_vl",
       "qwen2_5_vl_text",
       {"image_token_id"},
       151655,
       {"video_token_id"},
       151656,
       true},
      {"qwen2_vl", "qwen2_vl_text", {"image_token_id"}, 151655, {"video_token_id"}, 151656, true},
      {"qwen3_5", "qwen3_5_text", {"image_token_id"}, 248056, {"video_token_id"}, 248057},
      {"qwen3_5_moe", "qwen3_5_moe_text", {"image_token_id"}, 248056, {"video_token_id"}, 248057},
      {"qwen3_vl", "qwen3_vl_text", {"image_token_id"}, 151655, {"video_token_id"}, 151656},
      {"smolvlm", "llama", {"image_token_id"}, 128257},
  };
  return families;
}

// Keys at the top of a vision-language config that belong to the tower, the projector or no part.
// The reader of the tower checks them.
constexpr std::string_view kTowerKeys[] = {"vision_config",
                                           "projector_hidden_act",
                                           "vision_feature_select_strategy",
                                           "vision_feature_layer",
                                           "multimodal_projector_bias",
                                           "image_seq_length",
                                           "video_seq_length",
                                           "image_grid_pinpoints",
                                           "use_image_newline_parameter",
                                           "spatial_pool_mode",
                                           "spatial_pool_stride",
                                           "vision_aspect_ratio",
                                           "downsample_ratio",
                                           "scale_factor",
                                           "spatial_merge_size",
                                           "mm_tokens_per_image",
                                           "boi_token_index",
                                           "boi_token_id",
                                           "eoi_token_index",
                                           "eoi_token_id",
                                           "ignore_index",
                                           "audio_config",
                                           "audio_token_id",
                                           "boa_token_id",
                                           "eoa_token_id",
                                           "eoa_token_index",
                                           "audio_soft_tokens_per_image",
                                           "vision_soft_tokens_per_image",
                                           "vision_start_token_id",
                                           "vision_end_token_id",
                                           "vision_token_id",
                                           "video_token_id",
                                           "video_token_index",
                                           "image_token_id",
                                           "image_token_index",
                                           "qk_layer_norms",
                                           "use_resampler",
                                           "perceiver_config",
                                           "max_frames",
                                           "vocab_size",
                                           "frames_per_clip",
                                           "tie_word_embeddings"};

// Keys of flat files that are not the text part's.
bool IsTopKey(std::string_view key) {
  static const std::set<std::string_view> general = {"architectures", "model_type",
                                                     "transformers_version"};
  if (general.contains(key)) return true;
  // A flat file has one vocabulary and one tie, its text part's.
  if (key == "vocab_size" || key == "tie_word_embeddings") return false;
  return std::find(std::begin(kTowerKeys), std::end(kTowerKeys), key) != std::end(kTowerKeys);
}

const TextPartFamily* FindVisionFamily(const Json& json) {
  const auto found = json.find("model_type");
  if (found == json.end() || !found->is_string()) return nullptr;
  for (const TextPartFamily& family : TextPartFamilies()) {
    if (family.model_type == found->get<std::string>()) return &family;
  }
  return nullptr;
}

bool IsThere(const Json& json, std::string_view key) {
  const auto found = json.find(key);
  return found != json.end() && !found->is_null();
}

// A key that says how all of the checkpoint is stored or ended counts for the text part too.
void Inherit(const Json& top, Json& text) {
  // One type for the whole checkpoint: the top's.
  if (IsThere(top, "dtype") || IsThere(top, "torch_dtype")) {
    text.erase("dtype");
    text.erase("torch_dtype");
    for (const char* key : {"dtype", "torch_dtype"}) {
      if (IsThere(top, key)) text[key] = top[key];
    }
  }
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (IsThere(top, key) && !IsThere(text, key)) text[key] = top[key];
  }
  // The checkpoint's word on tying wins over its text part's, as in transformers 5.
  if (IsThere(top, "tie_word_embeddings")) text["tie_word_embeddings"] = top["tie_word_embeddings"];
}

bool RopeBlockHas(const Json& text, std::string_view key) {
  for (const char* block : {"rope_parameters", "rope_scaling"}) {
    const auto found = text.find(block);
    if (found != text.end() && found->is_object() && found->contains(key)) return true;
  }
  return false;
}

void FillDefaults(const TextClass& of, Json& text) {
  const Json defaults = Json::parse(of.defaults);
  if (!text.contains("vocab_size")) text["vocab_size"] = defaults["vocab_size"];
  for (const auto& [key, value] : defaults.items()) {
    if (text.contains(key)) continue;
    if (key == "rope_theta" && RopeBlockHas(text, key)) continue;
    // A class default may lie past a small vocabulary; then there is no such token.
    if (key.ends_with("_token_id") && text["vocab_size"].is_number() &&
        text["vocab_size"] <= value) {
      continue;
    }
    text[key] = value;
  }
  if (of.sections.empty() || RopeBlockHas(text, "mrope_section")) return;
  const char* block = IsThere(text, "rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!IsThere(text, block)) text[block] = Json::object();
  if (text[block].is_object()) text[block]["mrope_section"] = Json::parse(of.sections);
}

// Keys of old text parts that belong to a resampler which no supported file uses.
Status DropResampler(const std::string& origin, Json& text) {
  for (const char* key : {"use_resampler", "qk_layer_norms"}) {
    if (IsThere(text, key) && text[key] != Json(false)) {
      return Unsupported(StrCat(origin, ": key 'text_config.", key, "': ", ShortJson(text[key]),
                                ", expected false: a resampler is not supported"));
    }
    text.erase(key);
  }
  for (const char* key : {"perceiver_config", "neftune_noise_alpha", "pixel_shuffle_factor"}) {
    text.erase(key);
  }
  return {};
}

int64_t ReadId(ConfigReader& reader, const std::vector<std::string_view>& keys, int64_t fallback) {
  int64_t id = fallback;
  std::string_view from;
  for (const std::string_view key : keys) {
    if (!reader.Has(key)) continue;
    const int64_t value = reader.Int(key, fallback, 0, kMostVocab);
    if (!from.empty() && value != id) {
      reader.Fail(key, StrCat("the same as key '", from, "' (", id, ")"));
    }
    from = key;
    id = value;
  }
  return id;
}

Result<VisualIds> ReadIds(const Json& json, const std::string& origin,
                          const TextPartFamily& family) {
  ConfigReader reader(json, origin);
  VisualIds ids;
  ids.image = ReadId(reader, family.image_keys, family.image);
  ids.video = ReadId(reader, family.video_keys, family.video);
  if (family.model_type.starts_with("qwen")) {
    // The values of the classes.
    const bool newer = family.model_type.starts_with("qwen3_5");
    ids.vision_start = ReadId(reader, {"vision_start_token_id"}, newer ? 248053 : 151652);
    ids.vision_end = ReadId(reader, {"vision_end_token_id"}, newer ? 248054 : 151653);
  }
  if (family.model_type == "gemma3") {
    ids.image_begin = ReadId(reader, {"boi_token_index", "boi_token_id"}, 255999);
    ids.image_end = ReadId(reader, {"eoi_token_index", "eoi_token_id"}, 256000);
  }
  if (family.model_type == "qwen2_5_vl") {
    ids.tokens_per_second = 4;  // the class's
    const auto tower = json.find("vision_config");
    if (tower != json.end() && tower->is_object()) {
      ConfigReader vision(*tower, origin, "vision_config.");
      ids.tokens_per_second = vision.Real("tokens_per_second", 4.0, 1e-3, 1e6);
      if (!vision.ok()) return vision.fault();
    }
  }
  if (!reader.ok()) return reader.fault();
  return ids;
}

Result<Json> NestedText(const Json& json, const std::string& origin) {
  const Json& nested = json["text_config"];
  if (!nested.is_object()) {
    return BadInput(
        StrCat(origin, ": key 'text_config': ", ShortJson(nested), ", expected an object"));
  }
  return nested;
}

// Every key at the top is the checkpoint's, the tower's, or repeats one of the text part.
Status CheckTop(const Json& json, const Json& text, const std::string& origin) {
  Json top = Json::object();
  for (const auto& [key, value] : json.items()) {
    const auto inner = text.find(key);
    const bool repeats = inner != text.end() && *inner == value;
    if (!repeats) top[key] = value;
  }
  ConfigReader reader(top, origin);
  ModelConfig ignored;
  ReadGeneralKeys(reader, ignored);
  for (const std::string_view key : kTowerKeys) reader.Ignore({key});
  reader.Ignore({"text_config", "bos_token_id", "eos_token_id", "pad_token_id", "_pad_token_id"});
  return reader.Finish();
}

}  // namespace

bool HasTextPart(const Json& json) { return FindVisionFamily(json) != nullptr; }

std::vector<std::string> VisionFamilyNames() {
  std::vector<std::string> names;
  for (const TextPartFamily& family : TextPartFamilies()) names.emplace_back(family.model_type);
  return names;
}

Result<TextPart> ReadTextPart(const Json& json, const std::string& origin) {
  const TextPartFamily& family = *FindVisionFamily(json);
  TextPart part;
  part.vision_family = family.model_type;
  part.tied_by_default = family.tied;
  KVG_ASSIGN(part.ids, ReadIds(json, origin, family));
  if (IsThere(json, "text_config")) {
    part.scope = "text_config.";
    KVG_ASSIGN(part.json, NestedText(json, origin));
    KVG_TRY(CheckTop(json, part.json, origin));
    Inherit(json, part.json);
  } else if (family.flat) {
    part.json = Json::object();
    for (const auto& [key, value] : json.items()) {
      if (!IsTopKey(key)) part.json[key] = value;
    }
  } else {
    part.json = Json::object();
    KVG_TRY(CheckTop(json, part.json, origin));
    Inherit(json, part.json);
  }
  if (!IsThere(part.json, "model_type")) part.json["model_type"] = family.text;
  std::string name = part.json["model_type"].is_string()
                         ? part.json["model_type"].get<std::string>()
                         : ShortJson(part.json["model_type"]);
  // Files that were written while the text part had no type of its own.
  if (name == family.model_type) name = family.text;
  for (const TextClass& known : kTextClasses) {
    if (known.model_type != name) continue;
    if (known.three_axes && known.sections.empty() && !RopeBlockHas(part.json, "mrope_section")) {
      return BadInput(StrCat(origin, ": key '", part.scope,
                             "rope_scaling.mrope_section' is missing, and it has no default"));
    }
    FillDefaults(known, part.json);
    part.json["model_type"] = known.family;
    // What the text part calls its class is no concern of the checkpoint's head.
    part.json.erase("architectures");
    KVG_TRY(DropResampler(origin, part.json));
    return part;
  }
  std::vector<std::string> names;
  for (const TextClass& known : kTextClasses) names.emplace_back(known.model_type);
  return Unsupported(StrCat(origin, ": key 'text_config.model_type': ", Quoted(name),
                            " is not a supported text part", DidYouMean(name, names),
                            "; supported are ", Join(names, ", ")));
}

Status CheckTextPart(const Json& json, const std::string& origin, const ModelConfig& config) {
  if (IsThere(json, "vocab_size") && json["vocab_size"] != Json(config.vocab_size)) {
    return BadInput(StrCat(origin, ": key 'vocab_size': ", ShortJson(json["vocab_size"]),
                           ", expected that of the text part, ", config.vocab_size));
  }
  return {};
}

}  // namespace kvgauge

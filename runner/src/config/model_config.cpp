// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "core/files.h"
#include "core/json.h"
#include "core/strings.h"
#include "runner/config.h"
#include "src/config/common.h"
#include "src/config/family.h"
#include "src/config/gguf_config.h"
#include "src/config/quantization.h"
#include "src/config/vision_text.h"

namespace kvgauge {

// The build writes families.inc: KVG_FAMILY(name) for each file of src/config/families.
#define KVG_FAMILY(model_type) FamilySpec FamilyOf_##model_type();
#include "families.inc"
#undef KVG_FAMILY

namespace {

// Configs are a few KiB; longrope lists and label maps make some larger.
constexpr int64_t kMostConfigBytes = int64_t{16} << 20;

struct FamilyRow {
  FamilyRow(std::string_view stem, const FamilySpec& of)
      : model_type(of.model_type.empty() ? stem : of.model_type), spec(of) {}

  std::string_view model_type;
  FamilySpec spec;
};

const std::vector<FamilyRow>& FamilyRows() {
  static const std::vector<FamilyRow> rows = {
#define KVG_FAMILY(model_type) {#model_type, FamilyOf_##model_type()},
#include "families.inc"
#undef KVG_FAMILY
  };
  return rows;
}

// Architectures that are known and not run.
struct NotRun {
  std::string_view model_type;
  std::string_view why;
};
constexpr std::string_view kIndexer =
    "its cache is compressed by design: an indexer picks the entries that attention reads";
constexpr NotRun kNotRun[] = {
    {"axk2", kIndexer},
    {"deepseek_v32", kIndexer},
    {"deepseek_v4", kIndexer},
    {"dots3_note", kIndexer},
    {"glm5_next", kIndexer},
    {"glm_moe_dsa", kIndexer},
    {"hy_v4", kIndexer},
    {"kimi_linear", "its layers of constant state forget by column (Kimi delta attention)"},
    {"minimax_m3_vl", kIndexer},
    {"mistral_large4", kIndexer},
    {"qwen4_exp", kIndexer},
};

Result<FamilyRow> FindFamily(const Json& json, const std::string& origin) {
  std::vector<std::string> known;
  for (const FamilyRow& row : FamilyRows()) known.emplace_back(row.model_type);
  for (std::string& name : VisionFamilyNames()) known.push_back(std::move(name));
  const std::string supported = StrCat("supported are ", Join(known, ", "));
  const auto found = json.find("model_type");
  if (found == json.end() || !found->is_string()) {
    return BadInput(StrCat(origin, ": key 'model_type' is missing or not a string; ", supported));
  }
  const std::string name = found->get<std::string>();
  for (const FamilyRow& row : FamilyRows()) {
    if (row.model_type == name) return row;
  }
  for (const NotRun& row : kNotRun) {
    if (row.model_type != name) continue;
    return Unsupported(StrCat(origin, ": key 'model_type': ", Quoted(name),
                              " is not run: ", row.why, "; ", supported));
  }
  return Unsupported(StrCat(origin, ": key 'model_type': ", Quoted(name),
                            " is not a supported model", DidYouMean(name, known), "; ", supported));
}

// Python writes numbers into its JSON that JSON does not have, and published files have them: they
// become texts of the same letters, which a key takes or refuses.
std::string WithPythonsNumbers(std::string_view text) {
  static constexpr std::string_view kNames[] = {"-Infinity", "Infinity", "NaN"};
  std::string out;
  bool inside = false;  // a string
  for (size_t at = 0; at < text.size(); ++at) {
    const char byte = text[at];
    if (byte == '"') inside = !inside;
    const auto name = std::find_if(std::begin(kNames), std::end(kNames), [&](std::string_view one) {
      return !inside && text.substr(at).starts_with(one);
    });
    if (name != std::end(kNames)) {
      out += '"';
      out += *name;
      out += '"';
      at += name->size() - 1;
      continue;
    }
    out += byte;
    if (inside && byte == '\\' && at + 1 < text.size()) out += text[++at];
  }
  return out;
}

Result<Json> ReadConfigJson(const std::string& path) {
  KVG_ASSIGN(std::string text, ReadFile(path, kMostConfigBytes));
  text = WithPythonsNumbers(text);
  KVG_ASSIGN(Json json, ParseJson(text, path));
  if (!json.is_object()) return BadInput(StrCat(path, ": expected a JSON object"));
  return json;
}

// A config whose keys are those of a text model; `scope` is put before them in messages.
Result<ModelConfig> ParseText(const Json& json, const std::string& origin,
                              const std::string& scope) {
  KVG_ASSIGN(const FamilyRow row, FindFamily(json, origin));
  ModelConfig config;
  config.family = row.model_type;
  config.path = origin;
  ConfigReader reader(json, origin, scope);
  ReadGeneralKeys(reader, config);
  row.spec.read(reader, config);
  KVG_TRY(reader.Finish());
  return config;
}

// Special tokens of generation_config.json win; its sampling settings are the run's business.
Status ApplyGenerationConfig(const Json& json, const std::string& origin, ModelConfig& config) {
  ConfigReader reader(json, origin);
  const int64_t last = config.vocab_size - 1;
  if (reader.Has("eos_token_id")) config.eos_ids = reader.IntOrInts("eos_token_id", 0, last);
  config.bos_id = reader.Int("bos_token_id", config.bos_id, -1, last);
  config.pad_id = reader.Int("pad_token_id", config.pad_id, -1, kMostVocab);
  if (!reader.ok()) return reader.fault();
  return {};
}

}  // namespace

std::vector<FamilyInfo> ModelFamilies() {
  std::vector<FamilyInfo> families;
  for (const FamilyRow& row : FamilyRows()) {
    families.push_back({row.model_type, row.spec.title, row.spec.notes});
  }
  std::ranges::sort(families, {}, &FamilyInfo::model_type);
  return families;
}

int64_t ModelConfig::cache_count() const { return CachesBelow(layer_count()); }

int64_t ModelConfig::block_layer_count() const {
  return std::ranges::find_if(layers, &LayerConfig::in_block) - layers.begin();
}

bool ModelConfig::SharesCaches() const {
  return std::ranges::any_of(layers, [](const LayerConfig& layer) { return layer.reads >= 0; });
}

int64_t ModelConfig::PassedEnd(int64_t first) const {
  int64_t last = layers[static_cast<size_t>(first)].reads;
  for (int64_t layer = first; layer <= last; ++layer) {
    last = std::max(last, layers[static_cast<size_t>(layer)].reads);
  }
  return last + 1;
}

namespace {

bool KeepsState(const LayerConfig& layer) { return layer.state || layer.in_block; }

}  // namespace

int64_t ModelConfig::state_count() const { return std::ranges::count_if(layers, KeepsState); }

int64_t ModelConfig::StateOf(int64_t layer) const {
  return std::count_if(layers.begin(), layers.begin() + layer, KeepsState);
}

int64_t ModelConfig::StateNumbers(int64_t layer) const {
  const LayerConfig& own = layers[static_cast<size_t>(layer)];
  if (own.in_block) return blocks->rows() * kv_heads * (key_dim + value_dim);
  return own.rows_alone ? state->mixed_columns + state->mlp_columns : state->numbers();
}

std::vector<int64_t> ModelConfig::StateNumbers() const {
  std::vector<int64_t> numbers;
  for (int64_t layer = 0; layer < layer_count(); ++layer) {
    if (KeepsState(layers[static_cast<size_t>(layer)])) numbers.push_back(StateNumbers(layer));
  }
  return numbers;
}

int64_t ModelConfig::StateBytes() const {
  int64_t bytes = 0;
  for (const int64_t numbers : StateNumbers()) bytes += numbers * SizeOf(DType::kF32);
  return bytes;
}

int64_t ModelConfig::CacheOf(int64_t layer) const {
  return CachesBelow(HasCache(layer) ? layer : layers[static_cast<size_t>(layer)].reads);
}

int64_t ModelConfig::CachesBelow(int64_t layer) const {
  int64_t count = 0;
  for (int64_t other = 0; other < layer; ++other) count += HasCache(other) ? 1 : 0;
  return count;
}

int64_t ModelConfig::LayerOf(int64_t cache) const {
  int64_t layer = 0;
  for (int64_t left = cache;; ++layer) {
    if (HasCache(layer) && left-- == 0) return layer;
  }
}

Status ModelConfig::ShareCaches(std::span<const int64_t> reads) {
  if (std::ssize(reads) != layer_count()) {
    return BadInput(
        StrCat(reads.size(), " layers say whose cache they read; the model has ", layer_count()));
  }
  if (mla) return Unsupported("latent attention: its layers cannot read each other's caches");
  std::vector<LayerConfig> shared = layers;
  for (int64_t layer = 0; layer < layer_count(); ++layer) {
    const int64_t owner = reads[static_cast<size_t>(layer)];
    LayerConfig& own = shared[static_cast<size_t>(layer)];
    own.reads = owner == layer ? -1 : owner;
    if (owner == layer) continue;
    const std::string what = StrCat("layer ", layer, " reads the cache of layer ", owner);
    if (owner < 0 || owner >= layer_count() || (owner > layer && prompt_passes == 1)) {
      return BadInput(StrCat(what, "; expected its own, or that of an earlier layer"));
    }
    const int64_t next = reads[static_cast<size_t>(owner)];
    if (next != owner) {
      return BadInput(StrCat(what, ", which reads that of layer ", next,
                             "; expected a layer that reads its own"));
    }
    const LayerConfig& other = shared[static_cast<size_t>(owner)];
    if (!own.attends || !other.attends) {
      return BadInput(StrCat(what, ", and layer ", own.attends ? owner : layer,
                             " does not attend; expected two layers that do"));
    }
    if (own.window != other.window || own.chunked != other.chunked ||
        own.local_rope != other.local_rope || own.heads != other.heads) {
      return BadInput(
          StrCat(what, ", which has another window, rope or heads; expected one of its kind"));
    }
  }
  layers = std::move(shared);
  return {};
}

HeadSizes ModelConfig::HeadsOf(int64_t layer) const {
  const std::optional<HeadSizes>& own = layers[static_cast<size_t>(layer)].heads;
  HeadSizes heads = own ? *own : HeadSizes{kv_heads, key_dim, value_dim, 0};
  if (RopeOf(layer)) heads.rotary_dim = RopeOf(layer)->rotary_dim;
  return heads;
}

bool ModelConfig::HasEvenHeads() const {
  return std::ranges::none_of(layers,
                              [](const LayerConfig& layer) { return layer.heads.has_value(); });
}

bool ModelConfig::Turns(int64_t layer) const {
  const std::optional<RopeConfig>& own = RopeOf(layer);
  return own && own->kind != RopeKind::kNone;
}

ModelConfig ModelConfig::OfCaches() const {
  ModelConfig own = *this;
  own.layers.clear();
  for (int64_t layer = 0; layer < layer_count(); ++layer) {
    if (HasCache(layer)) own.layers.push_back(layers[static_cast<size_t>(layer)]);
  }
  return own;
}

int64_t ModelConfig::KvBytesPerToken(DType dtype) const {
  int64_t numbers = 0;
  for (int64_t layer = 0; layer < layer_count(); ++layer) {
    if (!HasCache(layer)) continue;
    const HeadSizes heads = HeadsOf(layer);
    numbers += heads.kv_heads * (heads.key_dim + heads.value_dim);
  }
  return (numbers * SizeOf(dtype) + EntryTokens() - 1) / EntryTokens();
}

int64_t ModelConfig::KvReachBytes(int64_t tokens, DType dtype) const {
  int64_t numbers = 0;
  const int64_t whole = (tokens + EntryTokens() - 1) / EntryTokens();
  for (int64_t i = 0; i < layer_count(); ++i) {
    if (!HasCache(i)) continue;
    const LayerConfig& layer = layers[static_cast<size_t>(i)];
    const HeadSizes heads = HeadsOf(i);
    const bool begins = layer.chunked && tokens > 0;
    const int64_t entries = begins             ? (tokens - 1) % layer.window + 1
                            : layer.window > 0 ? std::min(whole, layer.window)
                                               : whole;
    numbers += entries * heads.kv_heads * (heads.key_dim + heads.value_dim);
  }
  return numbers * SizeOf(dtype);
}

Result<ModelConfig> ParseModelConfig(const Json& json, const std::string& origin) {
  if (!json.is_object()) return BadInput(StrCat(origin, ": expected a JSON object"));
  KVG_ASSIGN(const std::optional<QuantizationConfig> quantization, ReadQuantization(json, origin));
  const std::string format = quantization ? quantization->Title() : "";
  if (!HasTextPart(json)) {
    KVG_ASSIGN(ModelConfig config, ParseText(json, origin, ""));
    config.weight_format = format;
    return config;
  }
  KVG_ASSIGN(TextPart part, ReadTextPart(json, origin));
  // Some writers repeat it.
  if (part.json.value("quantization_config", Json()) == json.value("quantization_config", Json())) {
    if (!part.scope.empty()) part.json.erase("quantization_config");
  }
  KVG_ASSIGN(ModelConfig config, ParseText(part.json, origin, part.scope));
  config.weight_format = format;
  KVG_TRY(CheckTextPart(json, origin, config));
  if (!part.json.contains("tie_word_embeddings")) config.tied_head = part.tied_by_default;
  config.vision_family = part.vision_family;
  config.visual_ids = part.ids;
  config.mutual_pictures = part.vision_family == "gemma3";
  return config;
}

DType ModelConfig::TableType(DType dtype) const {
  if (weight_format.empty()) return stored_dtype;
  return SizeOf(dtype) > SizeOf(stored_dtype) ? dtype : stored_dtype;
}

Result<Json> ReadConfigDocument(const std::string& path) {
  KVG_ASSIGN(const std::optional<std::string> gguf, FindGguf(path));
  if (!gguf) return ReadConfigJson(path);
  KVG_ASSIGN(const GgufFile file, OpenGgufFile(*gguf));
  return ConfigOfGguf(file);
}

Result<ModelConfig> ReadModelConfig(const std::string& path) {
  KVG_ASSIGN(const std::optional<std::string> gguf, FindGguf(path));
  if (gguf) {
    KVG_ASSIGN(const GgufFile metadata, OpenGgufFile(*gguf));
    KVG_ASSIGN(const Json json, ConfigOfGguf(metadata));
    KVG_ASSIGN(ModelConfig config, ParseModelConfig(json, *gguf));
    config.weight_format = metadata.WeightFormat();
    return config;
  }
  const bool directory = DirectoryExists(path);
  const std::string file = directory ? path + "/config.json" : path;
  KVG_ASSIGN(const Json json, ReadConfigJson(file));
  KVG_ASSIGN(ModelConfig config, ParseModelConfig(json, file));
  const std::string generation = path + "/generation_config.json";
  if (directory && FileExists(generation)) {
    KVG_ASSIGN(const Json settings, ReadConfigJson(generation));
    KVG_TRY(ApplyGenerationConfig(settings, generation, config));
  }
  return config;
}

}  // namespace kvgauge

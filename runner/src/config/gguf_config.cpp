// SPDX-License-Identifier: Apache-2.0
#include "src/config/gguf_config.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/strings.h"
#include "src/config/common.h"

namespace kvgauge {
namespace {

struct KeyName {
  std::string_view file, config;
};

// Whole numbers that are only called otherwise.
constexpr KeyName kIntegers[] = {
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"block_count", "num_hidden_layers"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.sliding_window", "sliding_window"},
    {"expert_used_count", "num_experts_per_tok"},
};
constexpr KeyName kReals[] = {
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"rope.freq_base", "rope_theta"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
};
// What cannot change the forward pass, or follows from the tensors.
constexpr std::string_view kIgnored[] = {
    "vocab_size",
    "tensor_data_layout",
    "leading_dense_block_count",
    "interleave_moe_layer_step",
    "rope.scaling.finetuned",
    "expert_group_count",
};

// Keys that a family has in its own way.
struct OwnKey {
  std::string_view model_type, file;
};
constexpr OwnKey kOwnKeys[] = {
    {"gemma4_text", "attention.head_count_kv"},
    {"gemma4_text", "expert_used_count"},
    {"gemma4_text", "rope.freq_base"},
    {"llama4_text", "attention.sliding_window"},
};

// One file's metadata, each key taken once; Finish() looks for what nobody took.
class Metadata {
 public:
  Metadata(const GgufFile& file, Json& out) : file_(file), out_(out) {}

  const GgufFile& file() const { return file_; }
  std::string_view type() const { return file_.architecture->model_type; }
  // Whether keys of all families say this one for the model's family.
  bool IsShared(std::string_view key) const {
    return std::ranges::none_of(
        kOwnKeys, [&](const OwnKey& own) { return own.model_type == type() && own.file == key; });
  }

  const GgufValue* Take(std::string_view key) {
    taken_.insert(StrCat(file_.architecture->name, ".", key));
    return file_.Find(key);
  }

  std::optional<int64_t> Int(std::string_view key) {
    const GgufValue* value = Take(key);
    if (value == nullptr) return std::nullopt;
    // Some files say one number for each layer, all of them the same.
    if (const auto all = value->Ints(); all && !all->empty()) {
      if (std::ranges::count(*all, all->front()) == std::ssize(*all)) return all->front();
    }
    const std::optional<int64_t> number = value->Int();
    if (!number) Fail(key, "one whole number for all layers");
    return number;
  }
  // One number for each layer, which the file may say once for all of them; empty where it has
  // none.
  std::vector<int64_t> LayerInts(std::string_view key, int64_t layers) {
    const GgufValue* value = Take(key);
    if (value == nullptr) return {};
    if (const auto all = value->Ints(); all && std::ssize(*all) == layers) return *all;
    if (const auto one = value->Int())
      return std::vector<int64_t>(static_cast<size_t>(layers), *one);
    Fail(key, StrCat("one whole number, or ", layers, ", one for each layer"));
    return {};
  }
  std::vector<bool> LayerFlags(std::string_view key, int64_t layers) {
    const GgufValue* value = Take(key);
    const auto flags = value != nullptr ? value->Bools() : std::nullopt;
    if (flags && std::ssize(*flags) == layers) return *flags;
    Fail(key, StrCat(layers, " flags, one for each layer"));
    return std::vector<bool>(static_cast<size_t>(layers), false);
  }
  std::optional<double> Real(std::string_view key) {
    const GgufValue* value = Take(key);
    if (value == nullptr) return std::nullopt;
    const std::optional<double> number = value->Real();
    if (!number) Fail(key, "a number");
    return number;
  }
  std::string Text(std::string_view key) {
    const GgufValue* value = Take(key);
    if (value == nullptr) return "";
    const std::optional<std::string_view> text = value->Text();
    if (!text || FindInvalidUtf8(*text) != std::string_view::npos) Fail(key, "a text");
    return std::string(text.value_or(""));
  }

  void Set(std::string_view key, Json value) { out_[std::string(key)] = std::move(value); }
  template <class T>
  void SetIf(std::string_view key, const std::optional<T>& value) {
    if (value) Set(key, *value);
  }

  void Fail(std::string_view key, std::string_view expected) {
    if (fault_.ok()) {
      fault_ = BadInput(StrCat(file_.path(), ": key '", file_.architecture->name, ".", key,
                               "': expected ", expected));
    }
  }
  void Refuse(std::string_view key, std::string_view why) {
    if (fault_.ok()) {
      fault_ = Unsupported(
          StrCat(file_.path(), ": key '", file_.architecture->name, ".", key, "': ", why));
    }
  }

  Status Finish() {
    KVG_TRY(fault_);
    for (const std::string_view key : kIgnored) Take(key);
    const std::string scope = StrCat(file_.architecture->name, ".");
    for (const auto& [key, value] : file_.header.metadata) {
      if (!key.starts_with(scope) || taken_.contains(key)) continue;
      return Unsupported(StrCat(file_.path(), ": key ", Quoted(key, 120),
                                " is not understood, and may change what the model computes"));
    }
    return {};
  }

 private:
  const GgufFile& file_;
  Json& out_;
  std::set<std::string> taken_;
  Status fault_;
};

// The numbers of a small f32 tensor, or none.
std::optional<std::vector<double>> Numbers(const GgufFile& file, std::string_view name) {
  constexpr int64_t kMost = 1 << 14;
  const GgufTensor* tensor = file.FindTensor(name);
  if (tensor == nullptr || tensor->shape.size() != 1 || tensor->shape[0] > kMost ||
      tensor->type->elements != 1) {
    return std::nullopt;
  }
  std::vector<float> floats(static_cast<size_t>(tensor->shape[0]));
  ReadBlocks(*tensor->type, file.map->bytes().data() + tensor->begin, tensor->shape[0],
             floats.data());
  return std::vector<double>(floats.begin(), floats.end());
}

// Divisors of frequencies that the file has as tensors: those of long and short texts (Phi-3), or
// one list (Llama-3.1), which is then both.
void SetListedScaling(Metadata& data, Json scaling) {
  const auto both = Numbers(data.file(), "rope_freqs.weight");
  auto longer = Numbers(data.file(), "rope_factors_long.weight");
  auto shorter = Numbers(data.file(), "rope_factors_short.weight");
  if (both) longer = shorter = both;
  if (!longer || !shorter) {
    return data.Fail("rope.scaling.type", "tensors rope_factors_long and rope_factors_short");
  }
  scaling["long_factor"] = *longer;
  scaling["short_factor"] = *shorter;
  data.Set("rope_scaling", std::move(scaling));
}

void SetScaling(Metadata& data) {
  std::string type = data.Text("rope.scaling.type");
  std::optional<double> factor = data.Real("rope.scaling.factor");
  if (const auto old = data.Real("rope.scale_linear"); old && !factor) {
    factor = old;
    if (type.empty()) type = "linear";
  }
  const auto original = data.Int("rope.scaling.original_context_length");
  const auto magnitude = data.Real("rope.scaling.attn_factor");
  const bool lists = data.file().FindTensor("rope_factors_long.weight") != nullptr;
  if (data.file().FindTensor("rope_freqs.weight") != nullptr) {
    if (!type.empty() && type != "none") {
      return data.Refuse("rope.scaling.type", "a scaling beside the list rope_freqs");
    }
    return SetListedScaling(data, {{"rope_type", "longrope"}, {"attention_factor", 1.0}});
  }
  if (lists) {
    Json scaling = {{"type", "longrope"}};
    data.SetIf("original_max_position_embeddings", original);
    if (data.type() == "phimoe") {
      if (!magnitude) return data.Fail("rope.scaling.attn_factor", "a factor beside the two lists");
      scaling["short_mscale"] = scaling["long_mscale"] = *magnitude;
    } else if (magnitude) {
      scaling["attention_factor"] = *magnitude;
    }
    return SetListedScaling(data, std::move(scaling));
  }
  if (magnitude && *magnitude != 1.0) {
    return data.Refuse("rope.scaling.attn_factor", "a factor beside this scaling");
  }
  if (type.empty() || type == "none") {
    if (factor && *factor != 1.0 && *factor != 0.0)
      data.Fail("rope.scaling.type", "linear or yarn");
    return;
  }
  if (type != "linear" && type != "yarn") {
    return data.Fail("rope.scaling.type", "none, linear, yarn or longrope with its tensors");
  }
  if (!factor) return data.Fail("rope.scaling.factor", "a factor");
  Json scaling = {{"rope_type", type}, {"factor", *factor}};
  if (type == "yarn") {
    if (original) scaling["original_max_position_embeddings"] = *original;
    const auto fast = data.Real("rope.scaling.yarn_beta_fast"),
               slow = data.Real("rope.scaling.yarn_beta_slow");
    if (fast) scaling["beta_fast"] = *fast;
    if (slow) scaling["beta_slow"] = *slow;
    // What every published checkpoint of the family says, and no file.
    if (data.type() == "gpt_oss") scaling["truncate"] = false;
  }
  data.Set("rope_scaling", std::move(scaling));
}

void SetHeads(Metadata& data) {
  const auto keys = data.Int("attention.key_length");
  const auto values = data.Int("attention.value_length");
  if (keys && values && *keys != *values) {
    data.Refuse("attention.value_length", "another width than that of keys");
  }
  const auto rotated = data.Int("rope.dimension_count");
  const auto hidden = data.file().Find("embedding_length");
  const auto heads = data.file().Find("attention.head_count");
  std::optional<int64_t> width = keys;
  if (!width && hidden != nullptr && heads != nullptr) {
    const int64_t count = heads->Int().value_or(0);
    if (count > 0) width = hidden->Int().value_or(0) / count;
  }
  data.SetIf("head_dim", keys);
  if (!rotated || !width || *rotated == *width) return;
  if (data.type() == "phi3") {
    data.Set("partial_rotary_factor", static_cast<double>(*rotated) / static_cast<double>(*width));
  } else {
    data.Refuse("rope.dimension_count", "a part of each head that does not turn");
  }
}

void SetExperts(Metadata& data) {
  const std::string_view type = data.type();
  const auto width = data.Int("feed_forward_length");
  const auto expert_width = data.Int("expert_feed_forward_length");
  const auto experts = data.Int("expert_count");
  data.SetIf(type == "llama4_text" ? "intermediate_size_mlp" : "intermediate_size", width);
  if (!data.file().architecture->mixture) return;
  const bool by_qwen = type == "qwen3_moe";
  data.SetIf(by_qwen ? "num_experts" : "num_local_experts", experts);
  if (type == "llama4_text" || type == "gpt_oss") data.SetIf("intermediate_size", expert_width);
  if (!by_qwen) return;
  data.SetIf("moe_intermediate_size", expert_width);
  data.Set("norm_topk_prob", true);
}

// What no file says and every reader knows of the two families.
void SetGemma(Metadata& data) {
  const std::string_view type = data.type();
  if (type != "gemma2" && type != "gemma3_text") return;
  // The largest model of each scales by the width of a head's share, the others by that of a head.
  const GgufValue* layers = data.file().Find("block_count");
  const GgufValue* hidden = data.file().Find("embedding_length");
  const GgufValue* heads = data.file().Find("attention.head_count");
  const GgufValue* width = data.file().Find("attention.key_length");
  if (layers == nullptr || hidden == nullptr || heads == nullptr || width == nullptr) {
    return data.Fail("attention.key_length", "a width");
  }
  const int64_t largest = type == "gemma2" ? 46 : 62, count = heads->Int().value_or(1);
  data.Set("query_pre_attn_scalar", layers->Int() == largest
                                        ? hidden->Int().value_or(0) / std::max<int64_t>(count, 1)
                                        : width->Int().value_or(0));
  if (type == "gemma2") return;
  data.Set("attn_logit_softcapping", nullptr);
  const auto local = data.Real("rope.freq_base_swa");
  data.Set("rope_local_base_freq", local.value_or(10000.0));
  data.SetIf("sliding_window_pattern", data.Int("attention.sliding_window_pattern"));
}

// For families whose lists are as long.
int64_t LayersOf(Metadata& data) {
  const int64_t layers = data.Int("block_count").value_or(0);
  if (layers >= 1 && layers <= kMostLayers) return layers;
  data.Fail("block_count", StrCat("a number from 1 to ", kMostLayers));
  return 1;
}

// What no file says and every reader knows of Scout and Maverick: chunks, how queries grow in
// layers that do not turn, and that the larger model alone has no norms of queries and keys.
void SetLlama4(Metadata& data) {
  constexpr int64_t kChunk = 8192, kExpertsOfMaverick = 128;
  if (const auto window = data.Int("attention.sliding_window"); window && *window != kChunk) {
    data.Refuse("attention.sliding_window", StrCat(*window, ", where Llama 4 has chunks of 8192"));
  }
  data.Set("attention_chunk_size", kChunk);
  data.Set("attn_temperature_tuning", true);
  data.Set("attn_scale", 0.1);
  data.Set("floor_scale", 8192.0);
  data.SetIf("interleave_moe_layer_step", data.Int("interleave_moe_layer_step"));
  data.Set("use_qk_norm", data.Int("expert_count") != kExpertsOfMaverick);
}

// The one number of the layers that are `of` one kind; `key` names it if there are several.
std::optional<int64_t> OfKind(Metadata& data, std::string_view key,
                              const std::vector<int64_t>& numbers, const std::vector<bool>& kinds,
                              bool of) {
  std::optional<int64_t> found;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (kinds[i] != of) continue;
    if (found && *found != numbers[i]) {
      data.Fail(key, StrCat("one number for all ", of ? "sliding" : "full", " layers"));
    }
    found = numbers[i];
  }
  return found;
}

// The part of a full layer's heads that turns: divisors of what does not are past all positions.
double TurningPart(Metadata& data) {
  const auto divisors = Numbers(data.file(), "rope_freqs.weight");
  const auto turning = divisors ? std::ranges::count(*divisors, 1.0) : 0;
  const bool prefix = turning > 0 &&
                      std::all_of(divisors->begin(), divisors->begin() + turning,
                                  [](double divisor) { return divisor == 1.0; }) &&
                      std::all_of(divisors->begin() + turning, divisors->end(),
                                  [](double divisor) { return divisor >= 1e30; });
  if (!prefix) {
    data.Fail("rope.dimension_count",
              "a tensor rope_freqs of ones, and of 1e30 for what does not turn");
    return 1.0;
  }
  return static_cast<double>(turning) / static_cast<double>(divisors->size());
}

// Layers behind the first that share a cache may have MLPs twice as wide.
void SetGemma4Widths(Metadata& data, int64_t layers, int64_t shared) {
  constexpr std::string_view kKey = "feed_forward_length";
  const std::vector<int64_t> widths = data.LayerInts(kKey, layers);
  if (widths.empty()) return;
  if (widths.front() < 1 || widths.front() > kMostFfn) {
    return data.Fail(kKey, StrCat("a width from 1 to ", kMostFfn));
  }
  const bool wide = widths.back() != widths.front();
  for (int64_t i = 0; i < layers; ++i) {
    const int64_t times = wide && i >= layers - shared ? 2 : 1;
    if (widths[static_cast<size_t>(i)] != times * widths.front()) {
      return data.Fail(kKey, StrCat(widths.front(), ", or twice as much in all of the last ",
                                    shared, " layers, which share caches, for layer ", i));
    }
  }
  data.Set("intermediate_size", widths.front());
  data.Set("use_double_wide_mlp", wide);
}

// How many heads each kind of layer has and how wide they are. Values are what is projected to keys
// where a layer has these alone.
void SetGemma4Heads(Metadata& data, const std::vector<bool>& sliding) {
  constexpr std::string_view kHeads = "attention.head_count_kv";
  const std::vector<int64_t> heads = data.LayerInts(kHeads, std::ssize(sliding));
  data.SetIf("num_key_value_heads", OfKind(data, kHeads, heads, sliding, true));
  data.SetIf("num_global_key_value_heads", OfKind(data, kHeads, heads, sliding, false));
  const auto full = std::ranges::find(sliding, false) - sliding.begin();
  const auto has = [&](std::string_view part) {
    return data.file().FindTensor(StrCat("blk.", full, ".", part, ".weight")) != nullptr;
  };
  data.Set("attention_k_eq_v", has("attn_k") && !has("attn_v"));
  struct Width {
    std::string_view keys, values, turns, config;
  };
  for (const Width& width : {Width{"attention.key_length", "attention.value_length",
                                   "rope.dimension_count", "global_head_dim"},
                             Width{"attention.key_length_swa", "attention.value_length_swa",
                                   "rope.dimension_count_swa", "head_dim"}}) {
    const auto keys = data.Int(width.keys), values = data.Int(width.values);
    if (!keys) data.Fail(width.keys, "a width");
    if (values && values != keys) data.Refuse(width.values, "another width than that of keys");
    if (const auto turns = data.Int(width.turns); turns && turns != keys) {
      data.Refuse(width.turns, "a part of each head that does not turn");
    }
    data.SetIf(width.config, keys);
  }
}

void SetGemma4Ropes(Metadata& data) {
  data.Set("rope_parameters",
           {{"full_attention",
             {{"rope_type", "proportional"},
              {"partial_rotary_factor", TurningPart(data)},
              {"rope_theta", data.Real("rope.freq_base").value_or(1000000.0)}}},
            {"sliding_attention",
             {{"rope_type", "default"},
              {"rope_theta", data.Real("rope.freq_base_swa").value_or(10000.0)}}}});
  if (const std::string type = data.Text("rope.scaling.type"); !type.empty() && type != "none") {
    data.Refuse("rope.scaling.type", "a scaling of Gemma 4's ropes");
  }
}

void SetGemma4(Metadata& data) {
  const int64_t layers = LayersOf(data);
  const std::vector<bool> sliding = data.LayerFlags("attention.sliding_window_pattern", layers);
  Json kinds = Json::array();
  for (const bool slides : sliding) {
    kinds.push_back(slides ? "sliding_attention" : "full_attention");
  }
  data.Set("layer_types", std::move(kinds));

  SetGemma4Heads(data, sliding);
  SetGemma4Ropes(data);
  const int64_t shared = data.Int("attention.shared_kv_layers").value_or(0);
  data.Set("num_kv_shared_layers", shared);
  SetGemma4Widths(data, layers, shared);
  data.Set("hidden_size_per_layer_input", data.Int("embedding_length_per_layer_input").value_or(0));
  const GgufTensor* table = data.file().FindTensor("per_layer_token_embd.weight");
  if (table != nullptr && table->shape.size() == 2) {
    data.Set("vocab_size_per_layer_input", table->shape[0]);
  }
  const auto experts = data.Int("expert_count"), used = data.Int("expert_used_count"),
             width = data.Int("expert_feed_forward_length");
  data.Set("enable_moe_block", data.file().architecture->mixture);
  if (!data.file().architecture->mixture) return;
  data.SetIf("num_experts", experts);
  data.SetIf("top_k_experts", used);
  data.SetIf("moe_intermediate_size", width);
}

// Ids of special tokens, and of several that end an answer.
Status SetTokenIds(const GgufFile& file, Json& out) {
  const auto id = [&](std::string_view key) -> std::optional<int64_t> {
    const GgufValue* value = file.header.Find(StrCat("tokenizer.ggml.", key));
    return value == nullptr ? std::nullopt : value->Int();
  };
  for (const auto& [from, to] :
       {KeyName{"bos_token_id", "bos_token_id"}, KeyName{"padding_token_id", "pad_token_id"}}) {
    const auto value = id(from);
    out[std::string(to)] = value ? Json(*value) : Json(nullptr);
  }
  Json stops = Json::array();
  for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
    const auto value = id(key);
    if (value && std::find(stops.begin(), stops.end(), Json(*value)) == stops.end()) {
      stops.push_back(*value);
    }
  }
  out["eos_token_id"] = stops.empty() ? Json(nullptr) : stops;
  return {};
}

}  // namespace

Result<Json> ConfigOfGguf(const GgufFile& file) {
  Json config = {{"model_type", file.architecture->model_type},
                 {"torch_dtype", file.StoredType() == DType::kF32   ? "float32"
                                 : file.StoredType() == DType::kF16 ? "float16"
                                                                    : "bfloat16"}};
  Metadata data(file, config);
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return BadInput(StrCat(file.path(),
                           ": tensor 'token_embd.weight' is missing or no matrix; a "
                           "file of a vocabulary alone has no model"));
  }
  data.Set("vocab_size", embedding->shape[0]);
  data.Set("tie_word_embeddings", file.FindTensor("output.weight") == nullptr);
  for (const KeyName& key : kIntegers) {
    if (data.IsShared(key.file)) data.SetIf(key.config, data.Int(key.file));
  }
  if (config.value("sliding_window", Json()) == 0) config["sliding_window"] = nullptr;
  for (const KeyName& key : kReals) {
    if (data.IsShared(key.file)) data.SetIf(key.config, data.Real(key.file));
  }
  const std::string_view type = data.type();
  if (type == "llama" || type == "qwen3" || type == "phimoe") {
    data.Set("attention_bias", file.FindTensor("blk.0.attn_q.bias") != nullptr);
  }
  if (type == "phimoe") data.Set("lm_head_bias", file.FindTensor("output.bias") != nullptr);
  if (type == "gemma4_text") {
    SetGemma4(data);
  } else {
    SetHeads(data);
    SetExperts(data);
    SetGemma(data);
    SetScaling(data);
  }
  if (type == "llama4_text") SetLlama4(data);
  // No file says which layers do not turn.
  if (type == "llama4_text" || type == "smollm3") data.Set("no_rope_layer_interval", 4);
  KVG_TRY(data.Finish());
  KVG_TRY(SetTokenIds(file, config));
  return config;
}

}  // namespace kvgauge

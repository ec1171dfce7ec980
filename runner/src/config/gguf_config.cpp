// SPDX-License-Identifier: Apache-2.0
#include "src/config/gguf_config.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "core/strings.h"
#include "src/config/common.h"
#include "src/config/gguf_metadata.h"
#include "src/config/gguf_rope.h"

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
// Keys that a family has in its own way.
struct OwnKey {
  std::string_view model_type, file;
};
constexpr OwnKey kOwnKeys[] = {
    {"gemma4_text", "attention.head_count_kv"}, {"gemma4_text", "expert_used_count"},
    {"gemma4_text", "rope.freq_base"},          {"granitemoehybrid", "attention.head_count_kv"},
    {"jamba", "attention.head_count_kv"},       {"llama4_text", "attention.sliding_window"},
    {"nemotron_h", "attention.head_count_kv"},
};
// Whether keys of all families say this one for the model's family.
bool IsShared(std::string_view model_type, std::string_view key) {
  return std::ranges::none_of(
      kOwnKeys, [&](const OwnKey& own) { return own.model_type == model_type && own.file == key; });
}

void SetExperts(GgufMetadata& data) {
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
void SetGemma(GgufMetadata& data) {
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

// What no file says and every reader knows of Scout and Maverick: chunks, how queries grow in
// layers that do not turn, and that the larger model alone has no norms of queries and keys.
void SetLlama4(GgufMetadata& data) {
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
std::optional<int64_t> OfKind(GgufMetadata& data, std::string_view key,
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
double TurningPart(GgufMetadata& data) {
  const auto divisors = GgufNumbers(data.file(), "rope_freqs.weight");
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
void SetGemma4Widths(GgufMetadata& data, int64_t layers, int64_t shared) {
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
void SetGemma4Heads(GgufMetadata& data, const std::vector<bool>& sliding) {
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

void SetGemma4Ropes(GgufMetadata& data) {
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

void SetGemma4(GgufMetadata& data) {
  const int64_t layers = GgufLayers(data);
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

// Keys without which a file says nothing, whatever a checkpoint of the family may leave out. The
// number of KV heads is that of heads where a file has none.
void CheckRequired(GgufMetadata& data) {
  const GgufFile& file = data.file();
  for (const std::string_view key : {"embedding_length", "block_count"}) {
    if (file.Find(key) == nullptr) data.Fail(key, "a whole number");
  }
  if (file.Find("attention.layer_norm_rms_epsilon") == nullptr &&
      file.Find("attention.layer_norm_epsilon") == nullptr) {
    data.Fail("attention.layer_norm_rms_epsilon", "a number");
  }
  if (file.architecture->mixture && file.Find("expert_used_count") == nullptr) {
    data.Fail("expert_used_count", "a whole number");
  }
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
  GgufMetadata data(file, config);
  const GgufTensor* embedding = file.FindTensor("token_embd.weight");
  if (embedding == nullptr || embedding->shape.size() != 2) {
    return BadInput(StrCat(file.path(),
                           ": tensor 'token_embd.weight' is missing or no matrix; a "
                           "file of a vocabulary alone has no model"));
  }
  data.Set("vocab_size", embedding->shape[0]);
  data.Set("tie_word_embeddings", file.FindTensor("output.weight") == nullptr);
  for (const KeyName& key : kIntegers) {
    if (IsShared(data.type(), key.file)) data.SetIf(key.config, data.Int(key.file));
  }
  if (const auto drafts = file.DraftLayer()) data.Set("num_hidden_layers", *drafts);
  if (config.value("sliding_window", Json()) == 0) config["sliding_window"] = nullptr;
  for (const KeyName& key : kReals) {
    if (IsShared(data.type(), key.file)) data.SetIf(key.config, data.Real(key.file));
  }
  const std::string_view type = data.type();
  if (type == "llama" || type == "qwen3" || type == "phimoe") {
    data.Set("attention_bias", file.FindTensor("blk.0.attn_q.bias") != nullptr ||
                                   file.FindTensor("blk.0.attn_qkv.bias") != nullptr);
  }
  if (type == "phimoe") data.Set("lm_head_bias", file.FindTensor("output.bias") != nullptr);
  if (type == "gemma4_text") {
    SetGemma4(data);
  } else if (!SetOwnFamily(data) && !SetStateFamily(data)) {
    if (!config.contains("num_key_value_heads") && config.contains("num_attention_heads")) {
      config["num_key_value_heads"] = config["num_attention_heads"];
    }
    SetHeads(data);
    SetExperts(data);
    SetGemma(data);
    SetScaling(data);
  }
  if (type == "llama4_text") SetLlama4(data);
  // No file says which layers do not turn.
  if (type == "llama4_text" || type == "smollm3") data.Set("no_rope_layer_interval", 4);
  KVG_TRY(data.Finish());
  CheckRequired(data);
  KVG_TRY(data.Finish());
  KVG_TRY(SetTokenIds(file, config));
  return config;
}

}  // namespace kvgauge

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

// One file's metadata, each key taken once; Finish() looks for what nobody took.
class Metadata {
 public:
  Metadata(const GgufFile& file, Json& out) : file_(file), out_(out) {}

  const GgufFile& file() const { return file_; }

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
    if (magnitude) scaling["attention_factor"] = *magnitude;
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
  if (type == "yarn" && original) scaling["original_max_position_embeddings"] = *original;
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
  if (data.file().architecture->model_type == "phi3") {
    data.Set("partial_rotary_factor", static_cast<double>(*rotated) / static_cast<double>(*width));
  } else {
    data.Refuse("rope.dimension_count", "a part of each head that does not turn");
  }
}

void SetExperts(Metadata& data) {
  const bool mixtral = data.file().architecture->model_type == "mixtral";
  const auto width = data.Int("feed_forward_length");
  const auto expert_width = data.Int("expert_feed_forward_length");
  const auto experts = data.Int("expert_count");
  data.SetIf("intermediate_size", width);
  if (!data.file().architecture->mixture) return;
  data.SetIf(mixtral ? "num_local_experts" : "num_experts", experts);
  if (mixtral) return;
  data.SetIf("moe_intermediate_size", expert_width);
  data.Set("norm_topk_prob", true);
}

// What no file says and every reader knows of the two families.
void SetGemma(Metadata& data) {
  const std::string_view type = data.file().architecture->model_type;
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
  for (const KeyName& key : kIntegers) data.SetIf(key.config, data.Int(key.file));
  if (config.value("sliding_window", Json()) == 0) config["sliding_window"] = nullptr;
  for (const KeyName& key : kReals) data.SetIf(key.config, data.Real(key.file));
  if (file.architecture->model_type == "llama" || file.architecture->model_type == "qwen3") {
    data.Set("attention_bias", file.FindTensor("blk.0.attn_q.bias") != nullptr);
  }
  SetHeads(data);
  SetExperts(data);
  SetGemma(data);
  SetScaling(data);
  KVG_TRY(data.Finish());
  KVG_TRY(SetTokenIds(file, config));
  return config;
}

}  // namespace kvgauge
